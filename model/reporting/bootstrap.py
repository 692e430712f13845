"""Bootstrap intervals (Efron 1979): how far a score would move if the test set had been another one of the same kind.

Examples are drawn with replacement, as many as there are. A resample is held as how often each example was drawn, its
weights: a metric is then a function of weights, which gives the scores of many resamples at once. Where examples are
not independent, as the questions of one article, whole groups of them are drawn.

The interval is the percentile interval. It tells of the test set only: not of seeds, and not of a score chosen as the
best of many on the same examples.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
Statistic = Callable[[Numbers], Numbers]
"""float64 [resamples, examples], how often each example counts → the metric, float64 [resamples]"""

RESAMPLES = 1000
SHARE = 0.95
FEWEST_GROUPS = 20
"""A percentile interval over fewer independent groups than this is far too narrow."""

_SEED = 0
_BLOCK = 1 << 21  # weights held at once: 16 MiB of float64, and a few times that in the metrics


@dataclass(frozen=True)
class Interval:
    """Where 95 % of the resamples' scores lie."""

    low: float
    high: float


def intervals(
    statistics: Mapping[str, Statistic], examples: int, groups: Sequence[int] | Numbers | None = None
) -> dict[str, Interval]:
    """The 95 % percentile interval of every statistic, all from the same resamples, the same in every call.

    `groups`, int [examples], says which examples belong together; None: every example stands for itself.
    """
    return {name: Interval(*ends(values)) for name, values in resampled(statistics, examples, groups).items()}


def ends(values: Numbers) -> tuple[float, float]:
    """The 95 % percentile interval of values in resamples, float64 [resamples]."""
    low, high = np.quantile(values, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return float(low), float(high)


def resampled(
    statistics: Mapping[str, Statistic],
    examples: int,
    groups: Sequence[int] | Numbers | None = None,
    resamples: int = RESAMPLES,
    seed: int = _SEED,
) -> dict[str, Numbers]:
    """Every statistic of every resample, float64 [resamples]. Raises ValueError without examples."""
    if examples == 0:
        raise ValueError("no examples to draw from")
    blocks: dict[str, list[Numbers]] = {name: [] for name in statistics}
    for weights in _weights(examples, groups, resamples, np.random.default_rng(seed)):
        for name, statistic in statistics.items():
            blocks[name].append(statistic(weights))
    return {name: np.concatenate(values) for name, values in blocks.items()}


def useful_groups(groups: Sequence[int] | Numbers) -> Numbers | None:
    """The groups as 0, 1, 2, …; None where they are too few to be drawn, so that examples have to be."""
    distinct, numbers = np.unique(np.asarray(groups), return_inverse=True)
    return numbers if len(distinct) >= FEWEST_GROUPS else None


def _weights(
    examples: int, groups: Sequence[int] | Numbers | None, resamples: int, random: np.random.Generator
) -> Iterator[Numbers]:
    """Blocks of weights, float64 [resamples of this block, examples]."""
    members = None if groups is None else np.asarray(groups)
    units = examples if members is None else int(members.max()) + 1
    at_once = max(1, _BLOCK // max(examples, units))
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        drawn = random.integers(0, units, (rows, units), dtype=np.int32)
        drawn += np.arange(0, rows * units, units, dtype=np.int32)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units).astype(np.float64)
        yield counts if members is None else counts[:, members]
