"""The GLUE average of one part, in both ways that it is calculated, with and without WNLI.

`paper` is Devlin et al. 2019, table 1: the mean of nine columns, MNLI matched and mismatched each one of them, F1 of QQP and
MRPC, Spearman of STS-B, without WNLI. (Its rows: 79.6 for BERT-base, 82.1 for BERT-large.) `leaderboard` is that of
gluebenchmark.com: the mean of nine tasks with WNLI, a task with two scores or two test sets counting by their mean.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model.reporting.bootstrap import ends

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Column:
    """What of a task counts: the mean of some metrics of one part."""

    task: str
    metrics: tuple[str, ...]
    suffix: str = ""
    """of the part: `_mismatched`"""
    weight: float = 1.0
    """among the columns"""


@dataclass(frozen=True)
class Measured:
    """A part of a task: points of each metric, and these in bootstrap resamples where there are any."""

    points: Mapping[str, float]
    resamples: Mapping[str, Numbers]
    """metric → float64 [resamples], fractions of 1"""


_MNLI = ("", "_mismatched")
_SAME = (
    Column("qnli", ("accuracy",)),
    Column("sst2", ("accuracy",)),
    Column("cola", ("matthews",)),
    Column("rte", ("accuracy",)),
)
_WNLI = Column("wnli", ("accuracy",))
_PAPER = (
    *(Column("mnli", ("accuracy",), suffix) for suffix in _MNLI),
    Column("qqp", ("f1",)),
    Column("stsb", ("spearman",)),
    Column("mrpc", ("f1",)),
    *_SAME,
)
_LEADERBOARD = (
    *(Column("mnli", ("accuracy",), suffix, 0.5) for suffix in _MNLI),
    Column("qqp", ("f1", "accuracy")),
    Column("stsb", ("pearson", "spearman")),
    Column("mrpc", ("f1", "accuracy")),
    *_SAME,
)
AVERAGES: Sequence[tuple[str, str, tuple[Column, ...]]] = (
    ("paper", "as in the paper's table 1, without WNLI", _PAPER),
    ("paper_wnli", "as in the paper's table 1, with WNLI", (*_PAPER, _WNLI)),
    ("leaderboard", "as on the GLUE leaderboard, with WNLI", (*_LEADERBOARD, _WNLI)),
    ("leaderboard_no_wnli", "as on the GLUE leaderboard, without WNLI", _LEADERBOARD),
)
"""(name, what people read, columns)"""
TASKS = tuple(dict.fromkeys(column.task for column in (*_PAPER, _WNLI)))


def averages(
    part: str, measured: Callable[[str, str], Measured | None], title: Callable[[str], str]
) -> list[dict[str, Any]]:
    """All averages of `dev` or `test`.

    measured: (task, part) → its scores; None: not run, or its labels are not known. title: of a task. An average whose
    columns are not all there has points None and names what is missing.
    """
    return [
        {"name": name, "title": told, "part": part, **_average(part, columns, measured, title)}
        for name, told, columns in AVERAGES
    ]


def _average(
    part: str,
    columns: Sequence[Column],
    measured: Callable[[str, str], Measured | None],
    title: Callable[[str], str],
) -> dict[str, Any]:
    cells = [(column, measured(column.task, part + column.suffix)) for column in columns]
    missing = [
        title(column.task).replace("(matched)", "(mismatched)") if column.suffix else title(column.task)
        for column, found in cells
        if found is None or not set(column.metrics) <= set(found.points)
    ]
    if missing:
        return {"points": None, "low": None, "high": None, "missing": missing}
    total = sum(column.weight for column in columns)
    points, below, above, drawn = 0.0, 0.0, 0.0, True
    for column, found in cells:
        assert found is not None
        weight = column.weight / total
        mean = float(np.mean([found.points[name] for name in column.metrics]))
        points += weight * mean
        if not set(column.metrics) <= set(found.resamples):
            drawn = False
            continue
        values = 100 * np.mean([found.resamples[name] for name in column.metrics], axis=0)
        low, high = ends(values)
        below += (weight * (mean - low)) ** 2
        above += (weight * (high - mean)) ** 2
    # Parts are independent test sets, so squared distances to the ends of their intervals add up (Zou and Donner 2008).
    return {
        "points": round(points, 4),
        "low": round(points - math.sqrt(below), 4) if drawn else None,
        "high": round(points + math.sqrt(above), 4) if drawn else None,
        "missing": [],
    }
