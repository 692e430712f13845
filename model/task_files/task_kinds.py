"""The kinds of tasks: what the tables of each hold, and how two examples are told to be the same.

Every table has `example_id`: the id that the files give (span), else `<part of the files>:<number of the record, from 1>`.
What is to be predicted stands in the column `ANSWER_OF[kind]`, null where it is not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.config import METRICS_OF, Metric, TaskKind

PARTS = ("train", "dev", "test")


def _table(*fields: tuple[str, pa.DataType, bool]) -> pa.Schema:
    """Fields as (name, type, whether every row has a value) after example_id."""
    return pa.schema([pa.field(name, type_, nullable=not filled) for name, type_, filled in (_ID, *fields)])


def _list(type_: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", type_, nullable=False))


_ID = ("example_id", pa.string(), True)
_TEXTS = (("text_a", pa.string(), True), ("text_b", pa.string(), False))
_CLASSES = _table(*_TEXTS, ("label", pa.int32(), False))
_ANSWER = pa.struct([pa.field("text", pa.string(), nullable=False), pa.field("start", pa.int32())])

SCHEMAS: Mapping[TaskKind, pa.Schema] = {
    "classification": _CLASSES,
    "pair_classification": _CLASSES,
    "regression": _table(*_TEXTS, ("score", pa.float64(), False)),
    "sentence_similarity": _table(
        *(("text_a", pa.string(), True), ("text_b", pa.string(), True)),
        *(("negative", pa.string(), False), ("score", pa.float64(), False)),
    ),
    "multiple_choice": _table(
        ("text_a", pa.string(), True), ("choices", _list(pa.string()), True), ("label", pa.int32(), False)
    ),
    "tagging": _table(
        ("words", _list(pa.string()), True), ("tags", _list(pa.int32()), False), ("document_id", pa.string(), False)
    ),
    "span": _table(
        *(("question", pa.string(), True), ("context", pa.string(), True), ("title", pa.string(), False)),
        *(("answers", _list(_ANSWER), True), ("impossible", pa.bool_(), False)),
    ),
}
"""train.parquet, dev.parquet, test.parquet. `text_b` is null for single texts; `label` is an index into the labels of
task.json, or, of multiple_choice, into `choices`; of sentence_similarity, train has no `score` unless its files do, and only
train has `negative`; `tags` has an index into the labels for every word; `start` is in
characters of `context`, null for an answer that does not stand there; `impossible`: the context has no answer."""

ANSWER_OF: Mapping[TaskKind, str] = {
    "classification": "label",
    "pair_classification": "label",
    "regression": "score",
    "sentence_similarity": "score",
    "multiple_choice": "label",
    "tagging": "tags",
    "span": "answers",
}


def default_metric(kind: TaskKind) -> Metric:
    """What the best weights are chosen by where nothing else is said."""
    return METRICS_OF[kind][0]


@dataclass(frozen=True)
class Example:
    """One example, before labels are numbers."""

    example_id: str
    values: Mapping[str, Any]
    """the columns of the kind's table but example_id and, unless the kind is span, the answer"""
    label: Any
    """as in the files: a label, a score, the number of a choice, tags; None: not known; of span always None"""
    same: str
    """equal for examples that differ in white space only"""
    group: str
    """examples of one group are never on two sides of a split by hash"""


def squeezed(*texts: str) -> str:
    """Texts as one, each with single spaces."""
    return "\t".join(" ".join(text.split()) for text in texts)
