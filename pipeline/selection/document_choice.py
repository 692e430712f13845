"""Which documents stay: withdrawn ones and their copies go, then of documents with one doc_id, of equal texts and of near-duplicates
all but one each.

Of several the one stays whose doc_id has the smallest split fraction, then the one with the smallest text digest: a held-out one
wherever there is any, and the same one in whatever order they come. A withdrawn document comes before all others: what is a copy
of it, or nearly one, goes with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.selection.document_passes import NO_WORDS, REASONS, Numbers
from pipeline.selection.duplicates import PERMUTATIONS, Indices, first_of_equals, near_duplicates, ranks

WITHDRAWN, SAME_ID, SAME_TEXT, NEAR = (
    REASONS.index(name) for name in ("withdrawn", "duplicate_doc_id", "duplicate_text", "near_duplicate")
)


@dataclass(frozen=True)
class Choice:
    """One entry a document."""

    reason: npt.NDArray[np.uint8]
    """number in REASONS; 0: it stays"""
    group: Indices
    """of those that stay: how many documents of different doc_ids they stand for, themselves included; else 0"""


def choose(
    numbers: Numbers, band_rows: int, threshold: float, progress: Callable[[int], None] = lambda done: None
) -> Choice:
    """Decide from the numbers of pass 1, and write `reason`, `kept` and `similarity` for pass 2.

    band_rows: 0 leaves near-duplicates in. progress: called with the number of bands done.
    """
    reason = numbers.read("reason")
    wordless = reason == NO_WORDS
    reason[wordless] = 0
    kept = np.full(numbers.rows, -1, np.int64)
    similarity = np.ones(numbers.rows, np.float32)
    identity, digest = numbers.read("identity"), numbers.read("digest")
    rank = ranks(reason != WITHDRAWN, identity[:, 0], digest[:, 0], digest[:, 1])
    withdrawn = (reason == WITHDRAWN) & (numbers.read("characters") > 0)

    def drop(places: Indices, by: Indices, why: int) -> None:
        gone = (by != places) & (reason[places] == 0)
        kept[places[gone]] = by[gone]
        reason[places[gone]] = np.where(withdrawn[by[gone]], WITHDRAWN, why)

    there = np.flatnonzero(reason == 0)
    drop(there, first_of_equals(there, rank, identity[:, 0], identity[:, 1]), SAME_ID)
    there = np.flatnonzero((reason == 0) | withdrawn)
    drop(there, first_of_equals(there, rank, digest[:, 0], digest[:, 1]), SAME_TEXT)
    del identity, digest
    if band_rows:
        there = np.flatnonzero(((reason == 0) & ~wordless) | withdrawn)
        bands = PERMUTATIONS // band_rows
        near = near_duplicates(there, rank, numbers.band, bands, numbers.signatures, threshold, progress)
        similarity[there] = near.similarity
        drop(there, near.kept, NEAR)
    _follow(kept, reason, withdrawn)
    for name, values in (("reason", reason), ("kept", kept), ("similarity", similarity)):
        numbers.write(name, 0, values)
    copies = kept[(reason == SAME_TEXT) | (reason == NEAR)]
    return Choice(reason, np.where(reason == 0, 1 + np.bincount(copies, minlength=numbers.rows), 0))


def _follow(kept: Indices, reason: npt.NDArray[np.uint8], withdrawn: npt.NDArray[np.bool_]) -> None:
    """Let `kept` name the document that stays in the end: what stood for another may itself be nearly a third."""
    gone = np.flatnonzero(kept >= 0)
    while len(gone):
        further = kept[kept[gone]]
        gone, further = gone[further >= 0], further[further >= 0]
        kept[gone] = further
    copies = np.flatnonzero(reason == SAME_TEXT)
    reason[copies[withdrawn[kept[copies]]]] = WITHDRAWN


def expected_held_out(group: Indices, held_out: float) -> tuple[float, float]:
    """(mean, variance) of the number of held-out documents: of a group of k the one with the smallest fraction stays, and that is
    held out with probability 1 − (1 − held_out)^k."""
    sizes, counts = np.unique(group[group > 0], return_counts=True)
    chance = 1 - (1 - held_out) ** sizes
    return float((counts * chance).sum()), float((counts * chance * (1 - chance)).sum())


def counts_by_reason(reason: npt.NDArray[Any]) -> dict[str, int]:
    """Reason → documents, without those that stay."""
    counted = np.bincount(reason, minlength=len(REASONS))
    return {name: int(counted[number]) for number, name in enumerate(REASONS) if name and counted[number]}
