"""Published predictions of one part of a task: what each seed got right, and its scores in bootstrap resamples.

What is drawn in a resample is what is independent: examples; whole articles of spans and whole documents of tagged sentences
where at least bootstrap.FEWEST_GROUPS of them are known, as `bert score` does it. All seeds see the same resamples.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.artifact import read_table
from model.reporting import bootstrap
from model.reporting.bootstrap import Statistic
from model.reporting.weighted_metrics import WEIGHTED, mean, median
from model.scoring.entities import Counts, added, counts_by_type
from model.scoring.entity_scores import entity_statistics
from pipeline.errors import DataError

Numbers = npt.NDArray[Any]

UNITS = {
    "classification": "texts",
    "pair_classification": "pairs of texts",
    "regression": "examples",
    "sentence_similarity": "pairs of texts",
    "multiple_choice": "questions",
    "tagging": "sentences",
    "span": "questions",
}
"""what an example is, by kind of task"""
SCORED = ("regression", "sentence_similarity")
"""kinds whose answers are scores"""
_GROUPS = {"span": ("title", "articles"), "tagging": ("document_id", "documents")}
"""kind → (column of the task's data, what people call it) of examples that are not independent"""


@dataclass(frozen=True)
class Predicted:
    """What every seed predicted of the examples of a part whose answers are known."""

    kind: str
    labels: tuple[str, ...]
    """names of the classes; none for scores and spans"""
    tables: Mapping[int, pa.Table]
    """seed → its rows, all in one order"""
    groups: Numbers | None = None
    """int [examples] the article or document of each; None: every example stands for itself"""

    @property
    def unit(self) -> str:
        """What is drawn."""
        return UNITS[self.kind] if self.groups is None else _GROUPS[self.kind][1]

    @property
    def first(self) -> pa.Table:
        """Rows of any seed: ids and answers are the same in all."""
        return next(iter(self.tables.values()))

    @property
    def example_ids(self) -> list[str]:
        """Of every example, in order."""
        ids: list[str] = self.first["example_id"].take(pa.array(self.starts[:-1])).to_pylist()
        return ids

    @property
    def starts(self) -> Numbers:
        """int64 [examples + 1] where the rows of each example begin, and the end of the last: words are rows of their own."""
        rows = len(self.first)
        if self.kind != "tagging":
            return np.arange(rows + 1)
        ids = self.first["example_id"].to_numpy(zero_copy_only=False)
        return np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1, [rows]]).astype(np.int64)


@dataclass(frozen=True)
class Resampled:
    """A score's median over the seeds in every resample."""

    values: Numbers
    """float64 [resamples]"""
    drawn: int
    """how many units there are to draw from"""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % percentile interval."""
        return bootstrap.ends(self.values)


# ── what is read ─────────────────────────────────────────────────────────────────────────────────────────────────────


def read_predicted(
    folder: Path, part: str, seeds: Sequence[int], kind: str, labels: Sequence[str], data: Path | None
) -> Predicted:
    """The predictions of a part in a folder of the finetuned stage.

    data: the task's data, for the articles or documents of its examples; None: not at hand.

    Raises:
        DataError: a file is missing or can't be read, or two seeds predicted different examples.
    """
    tables = {seed: _known(kind, read_table(folder / "predictions" / f"{part}-seed-{seed}.parquet")) for seed in seeds}
    first = next(iter(tables.values()))
    for seed, table in tables.items():
        if not table["example_id"].equals(first["example_id"]):
            raise DataError(
                f"{folder}: seed {seed} predicted other examples of {part} than seed {next(iter(tables))}",
                "Materialize it again with --force.",
            )
    found = Predicted(kind, tuple(labels), tables)
    if kind not in _GROUPS or data is None:
        return found
    return Predicted(kind, tuple(labels), tables, _groups(data / f"{part}.parquet", found.example_ids, kind))


def _known(kind: str, table: pa.Table) -> pa.Table:
    return table.filter(pc.is_valid(table["f1" if kind == "span" else "label"]))


def _groups(path: Path, example_ids: Sequence[str], kind: str) -> Numbers | None:
    """Numbers of articles or documents by first occurrence; None where they are unknown or too few to be drawn."""
    column = _GROUPS[kind][0]
    table = read_table(path)
    named = dict(zip(table["example_id"].to_pylist(), table[column].to_pylist(), strict=True))
    names = [named.get(example) for example in example_ids]
    if None in names:
        return None
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return bootstrap.useful_groups([numbers[name] for name in names])


# ── scores in resamples ──────────────────────────────────────────────────────────────────────────────────────────────


def resampled(predicted: Predicted, names: Sequence[str]) -> dict[str, Resampled]:
    """Of every metric that is a function of published predictions, its median over the seeds in each resample."""
    if not len(predicted.first):
        return {}
    if predicted.kind == "span":
        return _of_examples(predicted, {name: _means(predicted, name) for name in names if name in _OF_SPANS})
    if predicted.kind == "tagging":
        by_sentence = _entities(predicted) if set(names) & _OF_ENTITIES else {}
        wanted = {name: statistic for name, statistic in by_sentence.items() if name in names}
        return {**_of_examples(predicted, wanted), **_of_words(predicted, names)}
    return _of_examples(predicted, _classes(predicted, names))


def scored(predicted: Predicted, name: str) -> float | None:
    """A metric's median over the seeds, of the examples as they are; None where it is no function of published predictions."""
    rows = len(predicted.first)
    statistic: Statistic | None = None
    if rows and predicted.kind == "span":
        statistic = _means(predicted, name) if name in _OF_SPANS else None
    elif rows and predicted.kind == "tagging" and name in _OF_ENTITIES:
        statistic, rows = _entities(predicted)[name], len(predicted.starts) - 1
    elif rows:
        statistic = _classes(predicted, [name]).get(name)
    return None if statistic is None else float(statistic(np.ones((1, rows)))[0])


_OF_SPANS = ("exact_match", "f1")
_OF_ENTITIES = {"entity_f1", "precision", "recall"}


def _of_examples(predicted: Predicted, statistics: Mapping[str, Statistic]) -> dict[str, Resampled]:
    examples = len(predicted.starts) - 1
    return _drawn(statistics, examples, predicted.groups)


def _of_words(predicted: Predicted, names: Sequence[str]) -> dict[str, Resampled]:
    """Scores of single words, whole sentences or documents of which are drawn."""
    lengths = np.diff(predicted.starts)
    groups = np.arange(len(lengths)) if predicted.groups is None else predicted.groups
    return _drawn(_classes(predicted, names), len(predicted.first), np.repeat(groups, lengths))


def _drawn(statistics: Mapping[str, Statistic], rows: int, groups: Numbers | None) -> dict[str, Resampled]:
    if not statistics:
        return {}
    units = rows if groups is None else int(groups.max()) + 1
    found = bootstrap.resampled(statistics, rows, groups)
    return {name: Resampled(values, units) for name, values in found.items()}


def _classes(predicted: Predicted, names: Sequence[str]) -> dict[str, Statistic]:
    read = [_labelled(predicted, table) for table in predicted.tables.values()]
    return {name: median([WEIGHTED[name](*each) for each in read]) for name in names if name in WEIGHTED}


def _labelled(predicted: Predicted, table: pa.Table) -> tuple[Numbers, Numbers]:
    """(labels, predictions): numbers of classes, or scores."""
    if predicted.kind in SCORED:
        return table["label"].to_numpy(), table["prediction"].to_numpy()
    names = pa.array(predicted.labels, pa.string())
    columns = (pc.index_in(table[column].cast(pa.string()), names) for column in ("label", "prediction"))
    labels, predictions = (column.fill_null(-1).to_numpy() for column in columns)
    return labels, predictions


def _means(predicted: Predicted, name: str) -> Statistic:
    return median([mean(table[name].to_numpy()) for table in predicted.tables.values()])


def _entities(predicted: Predicted) -> dict[str, Statistic]:
    by_seed = [entity_statistics(_counts(predicted, table)) for table in predicted.tables.values()]
    return {name: median([statistics[name] for statistics in by_seed]) for name in _OF_ENTITIES}


def _counts(predicted: Predicted, table: pa.Table) -> list[Counts]:
    """Entities of every sentence: right, predicted and there."""
    gold, given = table["label"].to_pylist(), table["prediction"].to_pylist()
    starts = predicted.starts.tolist()
    return [
        added(counts_by_type(gold[first:end], given[first:end]).values()) for first, end in itertools.pairwise(starts)
    ]


# ── right and wrong per example ──────────────────────────────────────────────────────────────────────────────────────


def right(predicted: Predicted, seed: int) -> Numbers:
    """How right a seed was about every example, float64 [examples]: 0 or 1; of spans F1, of sentences the share of words
    that are right. Scores are never quite right: of them prediction less score, and of sentence similarity, where a cosine is held against
    scores of another scale, the same of their ranks as shares of all."""
    table = predicted.tables[seed]
    if predicted.kind == "span":
        return np.asarray(table["f1"].to_numpy(), dtype=np.float64)
    labels, predictions = _labelled(predicted, table)
    if predicted.kind == "sentence_similarity":
        return _ranks(predictions) - _ranks(labels)
    if predicted.kind == "regression":
        return np.asarray(predictions - labels, dtype=np.float64)
    same = (labels == predictions).astype(np.float64)
    if predicted.kind != "tagging":
        return same
    return np.add.reduceat(same, predicted.starts[:-1]) / np.diff(predicted.starts)


def _ranks(values: Numbers) -> Numbers:
    """From 0 to 1, ties at their mean."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(ranks[place] / max(1, len(values) - 1), dtype=np.float64)


def exactly_right(predicted: Predicted, seed: int) -> Numbers:
    """Whether a seed was wholly right about every example, bool [examples]; of scores never."""
    if predicted.kind == "span":
        return np.asarray(predicted.tables[seed]["exact_match"].to_numpy() == 1.0)
    if predicted.kind in SCORED:
        return np.zeros(len(predicted.first), dtype=bool)
    return np.asarray(right(predicted, seed) == 1.0)


def answers(predicted: Predicted) -> pa.Array | pa.ChunkedArray:
    """The right answer of every example: a label, a score, the tags of a sentence, the texts of a span."""
    column = predicted.first["answers" if predicted.kind == "span" else "label"]
    if predicted.kind != "tagging":
        return column
    return pa.ListArray.from_arrays(pa.array(predicted.starts, pa.int32()), column.combine_chunks())
