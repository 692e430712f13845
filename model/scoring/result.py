"""Scores with their bootstrap intervals, as JSON values and as text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from model.reporting import bootstrap
from model.reporting.bootstrap import Statistic
from model.reporting.shown_numbers import decimal, interval
from model.scoring.text import counted

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Score:
    """One score in points: out of 100; a correlation of 1 is 100 points."""

    metric: str
    part: str
    """of the examples; "" for all"""
    count: int
    """examples of this part, or gold entities"""
    points: float
    low: float
    high: float
    """the 95 % bootstrap interval"""


@dataclass(frozen=True)
class Entry:
    """A score before its interval is drawn."""

    metric: str
    part: str
    count: int
    points: float
    statistic: Statistic


def result(
    count: int,
    unit: str,
    entries: Sequence[Entry],
    notes: Sequence[str],
    groups: tuple[str, Numbers] | None = None,
) -> dict[str, Any]:
    """`entries`, over `count` examples, with their intervals, as JSON values.

    `groups`, where examples are not independent: what a group is called, and the group of every example, int [count].
    """
    drawn = None if groups is None else bootstrap.useful_groups(groups[1])
    statistics = {str(number): entry.statistic for number, entry in enumerate(entries)}
    found = bootstrap.intervals(statistics, count, drawn)
    scores = [
        Score(entry.metric, entry.part, entry.count, entry.points, 100 * interval.low, 100 * interval.high)
        for entry, interval in zip(entries, found.values(), strict=True)
    ]
    return {
        "count": count,
        "unit": unit,
        "scores": [asdict(score) for score in scores],
        "interval": {
            "method": "percentile bootstrap",
            "share": bootstrap.SHARE,
            "resamples": bootstrap.RESAMPLES,
            "drawn": count if drawn is None else int(drawn.max()) + 1,
            "unit": unit if groups is None or drawn is None else groups[0],
        },
        "notes": list(notes),
    }


def text(found: Mapping[str, Any]) -> str:
    """What `score` found, for a person."""
    drawn = found["interval"]
    rows = [("", "points", f"{100 * drawn['share']:g} % interval", "of")]
    for row in found["scores"]:
        low_high = interval(row["low"], row["high"], 2)
        rows.append((_title(row["metric"], row["part"]), decimal(row["points"], 4), low_high, f"{row['count']:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    examples = counted(found["count"], found["unit"].removesuffix("s"))
    lines = [f"{found['task']}: {examples} of {Path(found['gold']).name}", ""]
    for title, *values in rows:
        aligned = (f"{value:>{width}}" for value, width in zip(values, widths[1:], strict=True))
        lines.append("  ".join([f"{title:{widths[0]}}", *aligned]))
    lines += ["", f"intervals: {drawn['method']}, {drawn['resamples']:,} resamples of {_drawn(drawn)}"]
    lines += [f"threshold of the best {name}: {value:g}" for name, value in found.get("thresholds", {}).items()]
    lines += [f"note: {note}" for note in found["notes"]]
    return "\n".join(lines)


def _title(metric: str, part: str) -> str:
    shown = part if part.isprintable() else repr(part)  # a type from a file must not steer the terminal
    return f"{metric}, {shown}" if part else metric


def _drawn(interval: Mapping[str, Any]) -> str:
    return counted(interval["drawn"], interval["unit"].removesuffix("s"))
