"""What the declaration of a task can't be, beyond what its models refuse: keys that say nothing of its kind or its files, shares
that leave nothing, scores that it doesn't have."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pipeline.config import (
    METRICS_OF,
    From,
    Metric,
    PathFrom,
    PublishedScore,
    Task,
    TaskKind,
    UrlFrom,
    WheelFrom,
    WikimediaFrom,
)
from pipeline.formats.iob import TAG, is_iob, naming_faults
from pipeline.formats.kinds import ARCHIVES, is_of, plain_name
from pipeline.recipes.yamlfile import KeyPath

Fault: TypeAlias = tuple[KeyPath, str, Any, str]
"""(key path below the task, rule, value, what to do)"""

_CLASSES: tuple[TaskKind, ...] = ("classification", "pair_classification")
_LABELLED: tuple[TaskKind, ...] = (*_CLASSES, "tagging")
_OF_TEXTS: tuple[TaskKind, ...] = (*_CLASSES, "regression", "sentence_similarity")
_KINDS_WITH: Mapping[str, tuple[TaskKind, ...]] = {
    "text": (*_OF_TEXTS, "multiple_choice"),
    "text_b": _OF_TEXTS,
    "negative": ("sentence_similarity",),
    "positive_score": ("sentence_similarity",),
    "label": (*_OF_TEXTS, "multiple_choice"),
    "labels": _LABELLED,
    "label_names": _LABELLED,
    **dict.fromkeys(("choices", "choice_start"), ("multiple_choice",)),
    **dict.fromkeys(("question", "context", "answers", "answer_start", "document", "id"), ("span",)),
    **dict.fromkeys(("words", "tags"), ("tagging",)),
}
"""Key of a task → the kinds that it says something of."""
SCORED_BY: Mapping[TaskKind, tuple[Metric, ...]] = {
    **dict.fromkeys(_CLASSES, ("accuracy", "macro_f1")),
    **dict.fromkeys(("regression", "sentence_similarity"), ("spearman", "pearson")),
    "span": ("f1", "exact_match"),
    "multiple_choice": ("accuracy",),
    "tagging": ("entity_f1", "accuracy", "macro_f1"),
}
"""What predictions are scored by, whatever `metric` says (model/tuning/heads.py)."""
_CORRELATIONS: tuple[Metric, ...] = ("matthews", "pearson", "spearman")
_SQUAD, _COLUMNS = "SQuAD's form", "column file"


def task_faults(task: Task) -> Iterator[Fault]:
    """Everything of a task that can't be."""
    yield from _keys_of_other_kinds(task)
    yield from _keys_of_other_files(task)
    yield from _shares(task)
    yield from _labels(task)
    yield from _tags(task)
    for number, row in enumerate(task.published):
        yield from _published(task, ("published", number), row)


def _keys_of_other_kinds(task: Task) -> Iterator[Fault]:
    for key, kinds in _KINDS_WITH.items():
        if key in task.model_fields_set and task.kind not in kinds:
            rule = f"says nothing of a task of kind {task.kind}, but of {', '.join(kinds)}"
            yield (key,), rule, None, "Remove the key, or write another kind."


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _keys_of_other_files(task: Task) -> Iterator[Fault]:
    """Keys that say something of files of another form. Where a file's form can't be told from its name, nothing is said."""
    origins: dict[str, From | None] = {part: getattr(task.files, part) for part in type(task.files).model_fields}
    for part, origin in origins.items():
        if isinstance(origin, WikimediaFrom):
            yield ("files", part), "is a wiki's dump, which is no table", None, "Name a file of examples."
    forms = {_form(task.kind, origin) for origin in origins.values() if origin is not None}
    if task.header and ".tab" in forms:
        yield (
            ("header",),
            "stands beside a .tab file, whose first three lines name the columns",
            None,
            "Remove the key.",
        )
    elif task.header and not forms & {"", ".csv", ".tsv", _COLUMNS}:
        rule = "names the columns of .csv, .tsv and column files, and there is none"
        yield ("header",), rule, None, "Remove the key."
    if not task.quotes:
        other = next((form for form in (".csv", ".tab") if form in forms), "")
        if other or not forms & {"", ".tsv"}:
            rule = f"is of .tsv files, and {f'a {other} file is read otherwise' if other else 'there is none'}"
            yield ("quotes",), rule, "false", "Remove the key."
    if forms == {_COLUMNS} and not task.header:
        for key in ("words", "tags"):
            if key in task.model_fields_set:
                rule = "names a column, and a column file has no names without `header`: its first column is the word, its last the tag"
                yield (key,), rule, getattr(task, key), "Write header, or remove the key."
    if forms == {_SQUAD}:
        for key in ("question", "context", "answers", "answer_start", "document", "id"):
            if key in task.model_fields_set:
                rule = "names a column of a table, and a .json file of SQuAD's form is none"
                yield (key,), rule, getattr(task, key), "Remove the key, or let the name of JSON Lines end in .jsonl."


def _form(kind: TaskKind, origin: From) -> str:
    """.csv, .tsv, .tab, jsonl, parquet, _SQUAD or _COLUMNS, by the file's name; "" where that doesn't tell."""
    name = _file(origin)
    plain = plain_name(name)
    if not name or plain.endswith(ARCHIVES):
        return ""
    if kind == "span" and plain.endswith(".json"):
        return _SQUAD
    for form in (".csv", ".tsv", ".tab"):
        if plain.endswith(form):
            return form
    for form in ("jsonl", "parquet"):
        if is_of(form, name):
            return form
    return _COLUMNS if kind == "tagging" else ""


def _file(origin: From) -> str:
    """The name of an origin's file; "" for a folder."""
    if isinstance(origin, PathFrom):
        return "" if Path(origin.path).is_dir() else Path(origin.path).name
    if isinstance(origin, UrlFrom):
        return origin.url.partition("?")[0].rpartition("/")[2]
    return Path(origin.member).name if isinstance(origin, WheelFrom) else ""


# ── shares, labels, scores ───────────────────────────────────────────────────────────────────────────────────────────


def _shares(task: Task) -> Iterator[Fault]:
    for part in ("dev", "test"):
        key = f"{part}_share"
        if key in task.model_fields_set and getattr(task.files, part) is not None:
            todo = "Remove one of the two."
            yield (key,), f"changes nothing beside files.{part}, which is that part", getattr(task, key), todo
    if len(task.shares) == 2 and sum(task.shares.values()) >= 1:
        rule = f"makes 1 or more with dev_share {task.dev_share:g}, and train needs a share too"
        yield ("test_share",), rule, task.test_share, "Lower one of the two."


def _labels(task: Task) -> Iterator[Fault]:
    if task.kind not in _CLASSES or not task.labels:
        return
    if len(task.labels) == 1:
        yield (
            ("labels",),
            "is one label, and a classifier needs two",
            task.labels[0],
            "List all labels, or remove the key.",
        )
    elif len(task.labels) > 2 and task.metric == "f1":
        rule = f"is F1 of label number 1 of two, and `labels` has {len(task.labels)}"
        yield ("metric",), rule, task.metric, "Write metric: macro_f1."


def _tags(task: Task) -> Iterator[Fault]:
    """Labels of words that are scored by entities and can't be; whether files without `labels` have tags of entities is
    seen when they are read."""
    by_entities = task.metric == "entity_f1" or (task.metric is None and is_iob(task.labels))
    if task.kind != "tagging" or not by_entities:
        return
    todo = "Entities need O, B-TYPE and I-TYPE: {}, or write metric: accuracy."
    if task.label_names:
        for fault in list(naming_faults(task.labels, task.label_names))[:1]:
            yield ("label_names",), fault, None, todo.format("name them so, or leave label_names out")
    elif other := next((label for label in task.labels if not TAG.fullmatch(label)), ""):
        yield ("labels",), f"{other} is no tag of entities", None, todo.format("write label_names that are")


def _published(task: Task, at: KeyPath, row: PublishedScore) -> Iterator[Fault]:
    scored = dict.fromkeys([*([task.metric] if task.metric else []), *SCORED_BY[task.kind]])
    if row.metric not in scored:
        rule = f"is nothing that this task is scored by: {', '.join(scored)}"
        todo = f"Name one of these; `metric` of the task may be one of {', '.join(METRICS_OF[task.kind])}."
        yield (*at, "metric"), rule, row.metric, todo
    least = -100 if row.metric in _CORRELATIONS else 0
    if not least <= row.points <= 100:
        yield (
            (*at, "points"),
            f"is out of 100: {row.metric} has {least} to 100 points",
            row.points,
            "Correct the number.",
        )
