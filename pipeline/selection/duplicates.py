"""Which documents are copies of others: equal texts, and near-duplicates by MinHash (Broder 1997) and banding (Leskovec,
Rajaraman, Ullman: Mining of Massive Datasets, chapter 3).

A document is a set of word 5-grams (its words as one run, if it has fewer). `rensa` gives it a signature of `PERMUTATIONS`
numbers; the share of equal numbers of two signatures estimates the Jaccard similarity of the sets with a standard error of
√(s(1 − s)/256): 0.025 at 0.8. Signatures are kept as 16 bits a number, which adds 1/65,536 to the estimate. Documents that agree
in all numbers of a band are compared by that estimate. Every array here has one entry a document, so that memory follows the
number of documents, not their text.

Who is kept follows from the documents alone, never from the order of arrival: the one of highest rank, see `ranks`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.selection.ngrams import NO_RUN, Hashes, runs
from pipeline.streams import mixed

SHINGLE_WORDS = 5
PERMUTATIONS = 256
SIGNATURE_BYTES = 2 * PERMUTATIONS
SEED = 42
RECALL = 0.99
"""Chance that two documents exactly at the threshold are compared at all."""
ROUNDS = 32
"""Of comparisons in one band, and of every document with others of its cluster on the average: bounds the work where very many
different documents share a band."""
COMPARED_TOGETHER = 1 << 14
"""Pairs whose signatures are in memory at once."""
Indices = npt.NDArray[np.int64]


def band_rows(threshold: float) -> int:
    """Numbers per band: the most with which two documents of Jaccard similarity `threshold` share one of the
    PERMUTATIONS / rows bands with a chance of at least RECALL. 8 at 0.8, so 32 bands."""
    fitting = [
        rows for rows in range(1, PERMUTATIONS + 1) if 1 - (1 - threshold**rows) ** (PERMUTATIONS // rows) >= RECALL
    ]
    return max(fitting, default=1)


def signatures(rows: Indices, numbers: Hashes, count: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """(MinHash signatures [count, PERMUTATIONS], whether the document has any word) of `count` documents.

    rows, numbers: their words as `ngrams.words` gives them.
    """
    from rensa import RMinHash

    per_document = np.bincount(rows, minlength=count)
    shingles = runs(rows, numbers, SHINGLE_WORDS)
    firsts = np.cumsum(per_document) - per_document
    for length in range(1, SHINGLE_WORDS):
        short = firsts[per_document == length]
        if len(short):
            shingles[short] = runs(rows, numbers, length)[short]
    there = shingles != NO_RUN
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[there], minlength=count))]).astype(np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(shingles[there], offsets, PERMUTATIONS, SEED)
    return np.array(matrix.to_rows(), np.uint32).reshape(count, PERMUTATIONS), per_document > 0


def bands(signature: npt.NDArray[np.uint32], rows: int) -> npt.NDArray[np.uint32]:
    """A number for each band of each signature: uint32 [PERMUTATIONS // rows, documents]."""
    count = PERMUTATIONS // rows
    folded = np.zeros((count, len(signature)), np.uint64)
    for row in range(rows):
        folded = mixed(folded ^ signature[:, row : count * rows : rows].T.astype(np.uint64))
    return folded.astype(np.uint32)


def estimates(signature_file: Path, first: Indices, second: Indices) -> npt.NDArray[np.float32]:
    """Estimated Jaccard similarity of pairs of documents; the file holds SIGNATURE_BYTES for each document."""
    found = np.zeros(len(first), np.float32)
    for start in range(0, len(first), COMPARED_TOGETHER):
        some = slice(start, start + COMPARED_TOGETHER)
        # Opened anew each time: pages that were read would count as this process's memory until it is closed.
        kept = np.memmap(signature_file, np.uint16, "r").reshape(-1, PERMUTATIONS)
        found[some] = (kept[first[some]] == kept[second[some]]).mean(axis=1)
    return found


# ── who is kept ──────────────────────────────────────────────────────────────────────────────────────────────────────


def ranks(*keys: npt.NDArray[Any]) -> Indices:
    """The place of every document in the order of the keys, the first key first; equal ones by their place in the table."""
    order = np.lexsort(keys[::-1])
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order))
    return found


def first_of_equals(candidates: Indices, rank: Indices, *keys: npt.NDArray[Any]) -> Indices:
    """For each of the candidates (places of documents) the one of highest rank that has the same keys: maybe itself."""
    if not len(candidates):
        return candidates
    order = np.lexsort((rank[candidates], *(key[candidates] for key in keys)))
    sorted_ = candidates[order]
    new = np.ones(len(order), bool)
    new[1:] = np.any([key[sorted_[1:]] != key[sorted_[:-1]] for key in keys], axis=0)
    found = np.empty(len(order), np.int64)
    found[order] = sorted_[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
    return found


@dataclass(frozen=True)
class Near:
    """Near-duplicates among candidates."""

    kept: Indices
    """for each candidate the document that stays in its place, maybe itself"""
    similarity: npt.NDArray[np.float32]
    """estimated, with that document; 1 for itself"""


def near_duplicates(
    candidates: Indices,
    rank: Indices,
    band: Callable[[int], npt.NDArray[np.uint32]],
    band_count: int,
    signature_file: Path,
    threshold: float,
    progress: Callable[[int], None] = lambda done: None,
) -> Near:
    """Group the candidates (places of documents): of each group the document of highest rank stays, and every other one is at
    least `threshold` similar to it.

    Documents that are linked by a chain of similar ones form a cluster; in a cluster the highest rank takes those that are
    similar to it, then the highest of the rest its own, and so on: without that, a chain of small steps would drop documents
    that have little in common with the one that stays.

    band: number of a band → its numbers for all documents; called for one band after the other.
    """
    ordered = candidates[
        np.argsort(rank[candidates])
    ]  # from here on: places in this order, so that the smaller one ranks higher
    parents = np.arange(len(ordered))
    for number in range(band_count):
        _link(ordered, parents, band(number)[ordered], signature_file, threshold)
        progress(number + 1)
    kept, similarity = _stars(ordered, _roots(parents), signature_file, threshold)
    back = np.empty(len(ordered), np.int64)
    back[np.argsort(rank[candidates])] = np.arange(len(ordered))
    return Near(ordered[kept][back], similarity[back])


def _link(
    ordered: Indices, parents: Indices, numbers: npt.NDArray[np.uint32], signature_file: Path, threshold: float
) -> None:
    """Join the clusters of documents that share a number and are similar enough.

    The first of those that share one is compared with all the others, then the first of those that were not similar to it
    with the rest, and so on: linear in the number of documents.
    """
    left = np.argsort(numbers, kind="stable")
    for _ in range(ROUNDS):
        new = np.ones(len(left), bool)
        new[1:] = numbers[left[1:]] != numbers[left[:-1]]
        firsts = left[np.maximum.accumulate(np.where(new, np.arange(len(left)), 0))]
        others, firsts = left[~new], firsts[~new]
        if not len(others):
            return
        known = _roots(parents, others) == _roots(parents, firsts)
        similar = known.copy()
        ask = np.flatnonzero(~known)
        similar[ask] = estimates(signature_file, ordered[firsts[ask]], ordered[others[ask]]) >= threshold
        joined = np.flatnonzero(similar & ~known)
        _join(parents, firsts[joined], others[joined])
        left = others[~similar]


def _join(parents: Indices, first: Indices, second: Indices) -> None:
    """Union by the smaller place, all pairs at once."""
    while len(first):
        one, two = _roots(parents, first), _roots(parents, second)
        apart = one != two
        first, second = first[apart], second[apart]
        low, high = np.minimum(one, two)[apart], np.maximum(one, two)[apart]
        np.minimum.at(parents, high, low)


def _roots(parents: Indices, of: Indices | None = None) -> Indices:
    """The smallest member of each one's cluster; shortens the ways there."""
    found = parents.copy() if of is None else parents[of]
    while True:
        further = parents[found]
        if np.array_equal(further, found):
            break
        found = further
    parents[slice(None) if of is None else of] = found
    return found


def _stars(
    ordered: Indices, roots: Indices, signature_file: Path, threshold: float
) -> tuple[Indices, npt.NDArray[np.float32]]:
    """(who stays for each, similarity with it) of clusters."""
    kept = np.arange(len(ordered))
    similarity = np.ones(len(ordered), np.float32)
    left = np.flatnonzero(np.bincount(roots, minlength=len(roots))[roots] > 1)
    left = left[np.argsort(roots[left], kind="stable")]
    work = ROUNDS * len(ordered)
    while (
        len(left) and work > 0
    ):  # what is left then stays: a cluster of very many documents, each like few of the others
        cluster = roots[left]
        new = np.ones(len(left), bool)
        new[1:] = cluster[1:] != cluster[:-1]
        first = left[np.maximum.accumulate(np.where(new, np.arange(len(left)), 0))]
        left, first = left[~new], first[~new]
        found = estimates(signature_file, ordered[first], ordered[left])
        similar = found >= threshold
        kept[left[similar]], similarity[left[similar]] = first[similar], found[similar]
        work -= len(left)
        left = left[~similar]
    return kept, similarity
