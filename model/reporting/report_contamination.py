"""A task's score with and without the examples that share a run of words with the training text, from the published predictions
of every seed: the same resamplable metrics as the report's intervals (model/reporting/predicted.py), so that the score of all examples is the
report's own.

Of few examples nothing can be said: below bootstrap.FEWEST_GROUPS of what is drawn there is no score.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from model.artifact import read_json, read_table
from model.contamination import TOUCHED
from model.reporting import bootstrap
from model.reporting.isolated import isolated
from model.reporting.predicted import Predicted, resampled, scored
from model.reporting.shown_numbers import decimal, interval

Overlap = Mapping[str, Mapping[str, Any]]
"""task → its entry of contamination.json, with `ids`: part → the touched examples"""


def read_overlap(folder: Path) -> dict[str, dict[str, Any]]:
    """The folder of `contamination`. Raises DataError where it can't be read."""
    tasks: dict[str, dict[str, Any]] = read_json(folder / "contamination.json")["tasks"]
    for row in read_table(folder / TOUCHED).select(["task", "part", "example_id"]).to_pylist():
        ids = tasks[row["task"]].setdefault("ids", {})
        ids.setdefault(row["part"], set()).add(row["example_id"])
    return tasks


def told_of(entry: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the report says of a task's overlap: all but the ids."""
    return None if entry is None else {name: value for name, value in entry.items() if name != "ids"}


def with_and_without(
    entry: Mapping[str, Any] | None, predicted: Mapping[str, Predicted], metric: str
) -> list[dict[str, Any]]:
    """Of every part with scores whose overlap is known: its score on all examples, without the touched ones, and on those alone.

    entry: of read_overlap; None: not measured. predicted: part → predictions of the seeds.
    """
    measured = (entry or {}).get("parts", {})
    ids = (entry or {}).get("ids", {})
    return [
        _row(part, predicted[part], metric, measured[part], ids.get(part, ()))
        for part in predicted
        if part in measured and len(predicted[part].first)
    ]


def _row(
    part: str, predicted: Predicted, metric: str, counts: Mapping[str, Any], ids: Collection[str]
) -> dict[str, Any]:
    touched = np.isin(np.array(predicted.example_ids, dtype=object), list(ids))
    groups = {"all": np.ones_like(touched), "untouched": ~touched, "touched": touched}
    scores = {name: _score(_subset(predicted, chosen), metric, chosen) for name, chosen in groups.items()}
    known = scores["untouched"]["score"] is not None and scores["all"]["score"] is not None
    return {
        "part": part,
        "texts": counts["texts"],
        "too_short": counts["texts"] - counts["measurable"],
        "unit": predicted.unit,
        **scores,
        "difference": round(scores["untouched"]["score"] - scores["all"]["score"], 4) if known else None,
    }


def _score(predicted: Predicted, metric: str, chosen: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """examples, score and its interval in points; None where there are too few examples to say, or the metric can't be had from
    predictions."""
    count = int(chosen.sum())
    empty = {"examples": count, "score": None, "low": None, "high": None}
    if count < bootstrap.FEWEST_GROUPS:
        return empty
    score, drawn = scored(predicted, metric), resampled(predicted, [metric]).get(metric)
    if score is None or drawn is None:
        return empty
    low, high = drawn.interval
    return {
        "examples": count,
        **{name: round(100 * v, 4) for name, v in (("score", score), ("low", low), ("high", high))},
    }


def _subset(predicted: Predicted, chosen: npt.NDArray[np.bool_]) -> Predicted:
    """The predictions of some examples; their articles or documents are drawn where enough of them are left."""
    rows = np.repeat(chosen, np.diff(predicted.starts))
    tables = {seed: table.filter(pa.array(rows)) for seed, table in predicted.tables.items()}
    groups = None if predicted.groups is None else bootstrap.useful_groups(predicted.groups[chosen])
    return Predicted(predicted.kind, predicted.labels, tables, groups)


def sentences(task: Mapping[str, Any]) -> list[str]:
    """In words, one for every part with touched examples."""
    return [_sentence(task, row) for row in task["with_and_without"] if row["touched"]["examples"]]


def _sentence(task: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    count, rest, alone = row["touched"]["examples"], row["untouched"], row["touched"]
    begin = f"{isolated(task['title'])}: {count:,} of {row['all']['examples']:,} {task['unit']} of {row['part'].replace('_', ' ')} share"
    text = f"{begin} a long run of words with the training text."
    if rest["score"] is None:
        return f"{text} The {rest['examples']:,} others are too few to say how it does without them."
    text += f" Without them it gets {_shown(rest)} instead of {_shown(row['all'])}"
    if alone["score"] is None:
        return f"{text}; they alone are too few to say anything."
    return f"{text}; on them alone {_shown(alone)}."


def _shown(score: Mapping[str, Any]) -> str:
    return f"{decimal(score['score'])} ({interval(score['low'], score['high'])})"


def cell(score: Mapping[str, Any]) -> str:
    """A score as a table shows it: with its interval, or why there is none."""
    if score["score"] is not None:
        return f"{_shown(score)}, {score['examples']:,}"
    return f"too few to say: {score['examples']:,}" if score["examples"] else "none"


def rows_of(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """All tasks' rows with their titles, for a table."""
    return [
        {**{name: task[name] for name in ("task", "title", "metric", "metric_title")}, **row}
        for task in tasks
        for row in task["with_and_without"]
    ]
