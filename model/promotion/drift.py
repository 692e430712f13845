"""How much a corpus changed: the population stability index of the lengths of its documents and of its sources' shares.

PSI = Σ (p - q) · ln(p / q) over the shares p of the new and q of the old corpus (Siddiqi 2006, Credit Risk Scorecards, chapter
10, where below 0.1 is no change to speak of, and above 0.25 a large one).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

BINS = 10
LEAST_SHARE = 1e-4
"""stands for a share of none: the index would be infinite"""


@dataclass(frozen=True)
class Profile:
    """What is compared of the training part of a `documents` artifact."""

    characters: int
    lengths: npt.NDArray[np.int64]
    """[documents] characters"""
    by_source: dict[str, int]
    """characters"""


def profile(documents: Path) -> Profile:
    """Reads lengths, not text: four bytes a sentence."""
    length = pl.col("sentence_ends").list.last().cast(pl.Int64)
    found = (
        pl.scan_parquet(documents / "part-*.parquet")
        .filter(pl.col("split") == "train")
        .select("source", length.alias("length"))
        .collect(engine="streaming")
    )
    by_source = found.group_by("source").agg(pl.col("length").sum()).sort("source")
    return Profile(
        int(found["length"].sum()),
        found["length"].to_numpy(),
        dict(zip(*map(pl.Series.to_list, by_source), strict=True)),
    )


def of_lengths(new: Profile, old: Profile) -> float:
    """The index of document lengths, in tenths of the old ones."""
    edges = np.unique(np.quantile(old.lengths, np.linspace(0, 1, BINS + 1)[1:-1]))
    shares = [
        np.bincount(np.searchsorted(edges, each.lengths, side="right"), minlength=len(edges) + 1) / len(each.lengths)
        for each in (new, old)
    ]
    return index(*shares)


def of_sources(new: Profile, old: Profile) -> float:
    """The index of the sources' shares of the characters."""
    names = sorted({*new.by_source, *old.by_source})
    return index(*(np.array([each.by_source.get(n, 0) / each.characters for n in names]) for each in (new, old)))


def index(new: npt.NDArray[np.float64], old: npt.NDArray[np.float64]) -> float:
    """The population stability index of two distributions over the same bins."""
    p, q = np.maximum(new, LEAST_SHARE), np.maximum(old, LEAST_SHARE)
    return float(((p - q) * np.log(p / q)).sum())
