"""Files of one label an example: GLUE's official files and leaderboard files, SWAG's CSV and a label a line."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model.scoring.text import Lines, counted, lines
from model.task_files.known_tasks import KNOWN
from pipeline.errors import DataError
from pipeline.formats.tables import read_table

PREDICTIONS_HEADER = "index\tprediction"


@dataclass(frozen=True)
class LabelColumn:
    """Where a task's files have their label, what it may be, and what it is scored by."""

    column: str | int
    """name in the header; a number from 0 where the file has no header"""
    labels: tuple[str, ...]
    """in the order of their numbers, so that 1 is what F1 is of; none: labels are numbers"""
    metrics: tuple[str, ...] = ("accuracy",)
    """official ones, names of model/metrics.py"""


_COLA_COLUMNS = 4
_SCORED = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax")
_COLUMNS: Mapping[str, str | int] = {"cola": 1, "ax": "Label"}
"""of files with labels, where these are not those that are trained on: CoLA's have no header, AX's has its own"""

GLUE: Mapping[str, LabelColumn] = {
    name: LabelColumn(_COLUMNS.get(name, KNOWN[name].form.label), KNOWN[name].form.labels, KNOWN[name].scored_by)
    for name in _SCORED
}
_TEXTS: Mapping[str, tuple[str, ...]] = {
    name: tuple(text for text in (KNOWN[name].form.text, KNOWN[name].form.text_b) if text)
    for name in _SCORED
    if name not in _COLUMNS
}
"""columns of the texts: two tasks may have the same labels, and are told apart by these"""
STSB_SCORES = (0.0, 5.0)
"""what people gave"""
SWAG = LabelColumn("label", ("0", "1", "2", "3"))


def glue_gold(task: str, path: Path) -> Lines:
    """(line, label) of every example of a labelled GLUE file, in order. Quotes are characters like others."""
    found = lines(path)
    column, columns, first = GLUE[task].column, _COLA_COLUMNS, 0
    if isinstance(column, str):
        header = found[0][1].split("\t")
        for name in (column, *_TEXTS.get(task, ())):
            if name not in header:
                raise DataError(
                    f"{path}, line 1: no column {name!r}; it has {', '.join(map(repr, header[:20]))}",
                    f"Name a labelled file of {task}; the labels of GLUE's test sets are not public."
                    if name == column
                    else f"Name a file of {task}, as GLUE distributes it: this is one of another task.",
                )
        column, columns, first = header.index(column), len(header), 1
    rows = []
    for number, line in found[first:]:
        values = line.split("\t")
        if len(values) != columns:
            raise DataError(
                f"{path}, line {number}: {counted(len(values), 'column')}, not {columns}",
                f"Name a labelled file of {task}, as GLUE distributes it (values between tabs).",
            )
        rows.append((number, values[column]))
    if not rows:
        raise DataError(f"{path} holds no examples", f"Name a labelled file of {task}, written to its end.")
    return rows


def glue_predictions(path: Path, gold: Path, examples: int) -> Lines:
    """(line, prediction) for every example, in the order of the gold file, of a file as GLUE's leaderboard takes it.

    DataError: another header, an index that is no row of the gold file, stands twice or lacks.
    """
    (_, header), *found = lines(path)
    if header != PREDICTIONS_HEADER:
        raise DataError(
            f"{path}, line 1: {header[:80]!r}, not 'index<TAB>prediction'",
            "Write a file as GLUE's leaderboard takes it: this header, then a line for every example.",
        )
    rows: dict[int, tuple[int, str]] = {}
    for number, line in found:
        index, tab, prediction = line.partition("\t")
        if not tab or "\t" in prediction or not re.fullmatch(r"[0-9]{1,9}", index):
            raise DataError(
                f"{path}, line {number}: {line[:80]!r} is not a number, a tab and a prediction",
                "The number is that of the gold file's row, from 0, its header not counted.",
            )
        if int(index) >= examples:
            raise DataError(
                f"{path}, line {number}: index {index} is not in {gold}, which has the examples 0 to {examples - 1}",
                "The index is the number of the gold file's row, from 0, its header not counted.",
            )
        if int(index) in rows:
            raise DataError(
                f"{path}, line {number}: index {index} stands twice, before on line {rows[int(index)][0]}",
                "Write one line for every example.",
            )
        rows[int(index)] = (number, prediction)
    if lacking := [index for index in range(examples) if index not in rows]:
        shown = ", ".join(map(str, lacking[:5])) + (" …" if len(lacking) > 5 else "")
        raise DataError(
            f"{path} predicts {len(rows):,} of the {examples:,} examples of {gold}; index {shown} "
            f"{'is' if len(lacking) == 1 else 'are'} missing",
            "Write a line for every example; the index is the number of the gold file's row, from 0.",
        )
    return [rows[index] for index in range(examples)]


def swag_gold(path: Path) -> Lines:
    """(line, label) of every question of SWAG's val.csv: column `label`, 0 to 3."""
    table = read_table(path)
    if "label" not in table.columns:
        raise DataError(
            f"{path}, line 1: no column 'label'; it has {', '.join(map(repr, table.columns[:20]))}",
            "Name SWAG's train.csv or val.csv; the labels of test.csv are not public.",
        )
    rows = [(number, row["label"]) for number, row in table.rows]
    if not rows:
        raise DataError(f"{path} holds no questions", "Name SWAG's val.csv.")
    return rows


def swag_predictions(path: Path, gold: Path, examples: int) -> Lines:
    """(line, label) of every line of a file without a header. DataError for another number of lines than `examples`."""
    found = lines(path)
    if len(found) != examples:
        raise DataError(
            f"{path} has {counted(len(found), 'line')}, but {gold} has {counted(examples, 'question')}",
            "Write one label (0, 1, 2 or 3) a line, without a header, in the order of the gold file.",
        )
    return found


def encoded(path: Path, rows: Lines, labels: Sequence[str]) -> npt.NDArray[Any]:
    """int [examples], each label's place among `labels`; float64 [examples] of the numbers where there are no labels.

    DataError, with the line, for what is neither.
    """
    if not labels:
        return np.array([_number(path, line, text) for line, text in rows], dtype=np.float64)
    places = {label: place for place, label in enumerate(labels)}
    for line, text in rows:
        if text.strip() not in places:
            raise DataError(f"{path}, line {line}: {text[:80]!r} is no label", f"Labels are {', '.join(labels)}.")
    return np.array([places[text.strip()] for _, text in rows])


def refuse_outside(path: Path, rows: Lines, values: npt.NDArray[Any]) -> None:
    """DataError, with the line, for a gold score that nobody could give: the file is no STS-B."""
    lowest, highest = STSB_SCORES
    for (line, text), value in zip(rows, values, strict=True):
        if not lowest <= value <= highest:
            raise DataError(
                f"{path}, line {line}: {text[:80]!r} is no score from {lowest:g} to {highest:g}",
                "Name a labelled file of stsb, as GLUE distributes it.",
            )


def outside(rows: Lines, values: npt.NDArray[Any]) -> str:
    """How many predictions no score can be, and the first; "" where there are none. A correlation takes them all the same, as
    the official script does: a model without bounds may well say 5.1."""
    lowest, highest = STSB_SCORES
    found = [row for row, value in zip(rows, values, strict=True) if not lowest <= value <= highest]
    if not found:
        return ""
    line, text = found[0]
    return f"{counted(len(found), 'prediction')} outside of {lowest:g} to {highest:g}, the first on line {line}: {text[:80].strip()}"


_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _number(path: Path, line: int, text: str) -> float:
    """Python would read more as a number than anybody writes: 1_0, ٣."""
    value = float(text) if _NUMBER.fullmatch(text.strip(" ")) else float("nan")
    if not np.isfinite(value):
        raise DataError(f"{path}, line {line}: {text[:80]!r} is no decimal number", "Write a number, as 3.25.")
    return value
