"""What fine-tuning has to know of a kind of tasks: what is read, how many outputs it has, the loss, scores and predictions.

The loop is one for all of them (model/tuning/finetuning_loop.py). n examples are asked for N labels: N = n where a text is asked
as a whole or choices are compared, else a label for every word or, for spans, every window. The label of a regression task is
a float. The logits of a part are float [outputs, classes] (`Examples.outputs`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.nn.functional as F
from torch import Tensor

from model import metrics
from model.artifact import short
from model.layers.classifier import Pooling
from model.scoring.entities import added, counts_by_type
from model.tuning.answered_spans import (
    SpanGuesses,
    decide,
    no_answer,
    read_spans,
    span_files,
    span_guesses,
    span_loss,
    span_scores,
    span_table,
)
from model.tuning.choices import read_choices
from model.tuning.examples import UNKNOWN, Examples, Ints, Labels, read_examples, read_scored
from model.tuning.sentence_vectors import contrastive_loss, cosines, read_sentence_pairs, texts_of
from model.tuning.tagged_words import read_words
from pipeline.errors import DataError
from pipeline.formats.iob import is_iob
from pipeline.tokenizer import Tokenizer

Numbers = npt.NDArray[Any]
Task = Mapping[str, Any]
"""task.json"""
Decided = Mapping[str, float]
"""numbers that are found on dev and that guesses of every part need"""
Published = tuple[pa.Table, Mapping[str, str]]
"""a table, and ending → text of files beside it"""
OF_ENTITIES = ("entity_f1", "precision", "recall")


@dataclass(frozen=True)
class Head:
    """What is read of a row, and what becomes of the outputs."""

    read: Callable[[Path, Tokenizer, int], Examples]
    """(train, dev or test.parquet; tokenizer; longest row) → rows, and the tokens of each that are read"""
    read_windows: Callable[[Path, Tokenizer, int], Examples] | None
    """the same, of long texts as windows; None: there are none"""
    pooling: Pooling | None
    """what the classifier reads; None: as the recipe says"""
    labels: Callable[[Task, Collection[Examples]], list[str]]
    """(task, its parts) → names of the labels"""
    outputs: Callable[[Task], int]
    """of each of the N; `labels` of the task are these names"""
    classes: Callable[[Task], int]
    """outputs of the linear layer; 0: there is none"""
    labelled: Collection[str]
    """of train and dev: the parts that need a label for every example"""
    targets: Callable[[Examples, Ints], Numbers]
    """(train, the numbers of a batch) → what the loss is of beside outputs"""
    loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    """(what the classifier gives for some rows, their targets, outputs of each row int64 [rows]) → their mean, a scalar"""
    loss_name: str | None
    """as scores call the loss of logits and labels; None: what is learnt is not what is scored"""
    answers: Callable[[Tensor], Tensor]
    """what the classifier gives → logits"""
    guesses: Callable[[Examples, Tensor, Decided], Any]
    """(examples, logits, what was decided on dev) → guesses, labels [N] where there are classes or scores"""
    metrics: Callable[[Task], tuple[str, ...]]
    """what predictions are scored by, beside the task's own"""
    scores: Callable[[Sequence[str], Examples, Any, Sequence[str]], dict[str, float] | None]
    """(metrics, examples, guesses, names of the labels) → score of each; None where no label is known"""
    predictions: Callable[[Examples, Tensor, Sequence[str], Decided], Published]
    """(examples, logits, names of the labels, what was decided on dev) → what is published"""
    constant: Callable[[Examples], Any]
    """of train: the best guess for one who reads nothing"""
    constantly: Callable[[Examples, Any], Any]
    """(examples, that guess) → guesses"""
    decide: Callable[[Examples, Tensor], Decided]
    """(dev, its logits) → what guesses need to know beside logits"""
    untouched: bool
    """whether the pretrained network answers before any step: then its scores are a baseline"""


def head_of(task: Task) -> Head:
    """The head of a task's kind. Raises DataError where its metric can't be calculated of its labels."""
    if task["metric"] in OF_ENTITIES and not is_iob(task["labels"]):
        raise DataError(
            f"task {task['name']} is scored by entities, but its labels are {', '.join(task['labels'][:10])}",
            "Entities need labels O, B-TYPE and I-TYPE: leave label_names out, or write metric: accuracy.",
        )
    return HEADS[task["kind"]]


def scored_by(head: Head, task: Task) -> tuple[str, ...]:
    """The metrics of a task that its predictions are scored by."""
    return tuple(dict.fromkeys((*head.metrics(task), *task.get("metrics", [task["metric"]]))))


# ── one label of some classes, for a text or a word ──────────────────────────────────────────────────────────────────


def _named(task: Task, parts: Collection[Examples]) -> list[str]:
    return list(task["labels"])


def _classes(task: Task) -> int:
    return len(task["labels"])


def _labels(train: Examples, numbers: Ints) -> Numbers:
    return train.labels[train.labels_of(numbers)]


def _as_they_are(logits: Tensor) -> Tensor:
    return logits


def _loss(logits: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels)


def _most_likely(examples: Examples, logits: Tensor, decided: Decided) -> Ints:
    return logits.argmax(1).numpy()


def _of_classes(task: Task) -> tuple[str, ...]:
    return "accuracy", "macro_f1"


def _class_scores(
    names: Sequence[str], examples: Examples, guesses: Labels, labels: Sequence[str]
) -> dict[str, float] | None:
    known = examples.known
    return metrics.scores(names, examples.labels[known], guesses[known]) if known.any() else None


def _most_frequent(train: Examples) -> int:
    return int(np.bincount(train.labels).argmax())


def _everywhere(examples: Examples, guess: Any) -> Labels:
    return np.full(len(examples.labels), guess)


def _nothing(dev: Examples, logits: Tensor) -> Decided:
    return {}


def _class_predictions(examples: Examples, logits: Tensor, labels: Sequence[str], decided: Decided) -> Published:
    """example_id, label (null where not known), prediction, and p_LABEL, the probability of every label."""
    ids = {"example_id": pa.array(examples.example_ids, pa.string())}
    return pa.table({**ids, **_columns(examples, logits, labels)}), {}


def _columns(examples: Examples, logits: Tensor, labels: Sequence[str]) -> dict[str, pa.Array]:
    names = np.array(labels, dtype=object)
    probabilities = torch.softmax(logits.double(), 1).float().numpy()
    return {
        "label": pa.array([None if label == UNKNOWN else labels[label] for label in examples.labels], pa.string()),
        "prediction": pa.array(names[logits.argmax(1).numpy()], pa.string()),
        **{f"p_{label}": pa.array(probabilities[:, number], pa.float32()) for number, label in enumerate(labels)},
    }


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _of_words(task: Task) -> tuple[str, ...]:
    return ("accuracy", *OF_ENTITIES) if is_iob(task["labels"]) else _of_classes(task)


def _word_scores(
    names: Sequence[str], examples: Examples, guesses: Labels, labels: Sequence[str]
) -> dict[str, float] | None:
    found = _class_scores([name for name in names if name not in OF_ENTITIES], examples, guesses, labels)
    if found is None or not set(names) & set(OF_ENTITIES):
        return found
    assert examples.asked is not None
    tags = np.array(labels, dtype=object)

    def of_sentence(first: int, end: int) -> Mapping[str, Any]:
        return counts_by_type(tags[examples.labels[first:end]].tolist(), tags[guesses[first:end]].tolist())

    sentences = [
        pair for pair in pairwise(examples.asked.starts.tolist()) if UNKNOWN not in examples.labels[slice(*pair)]
    ]
    total = added(counts for pair in sentences for counts in of_sentence(*pair).values())
    entities = dict(zip(OF_ENTITIES, (total.f1, total.precision, total.recall), strict=True))
    return {name: short(entities[name]) if name in entities else found[name] for name in names}


def _word_predictions(examples: Examples, logits: Tensor, labels: Sequence[str], decided: Decided) -> Published:
    """A row for every word: example_id, word_number (in its sentence, from 0), word, and as for classes."""
    assert examples.asked is not None
    counts = np.diff(examples.asked.starts)
    ids = np.repeat(np.array(examples.example_ids, dtype=object), counts)
    places = np.arange(int(counts.sum())) - np.repeat(examples.asked.starts[:-1], counts)
    table = pa.table(
        {
            "example_id": pa.array(ids, pa.string()),
            "word_number": pa.array(places, pa.int32()),
            "word": pa.array(examples.asked.words, pa.string()),
            **_columns(examples, logits, labels),
        }
    )
    return table, {}


# ── choices ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _numbers(task: Task, parts: Collection[Examples]) -> list[str]:
    """0, 1, …: as many as the example with most choices has."""
    most = max(int(np.diff(part.choices).max(initial=0)) for part in parts if part.choices is not None)
    return [str(number) for number in range(most)]


def _one(task: Task) -> int:
    return 1


def _of_choices(task: Task) -> tuple[str, ...]:
    return ("accuracy",)


def _choice_predictions(examples: Examples, logits: Tensor, labels: Sequence[str], decided: Decided) -> Published:
    """As for classes: the number of the right choice and of the predicted one, and p_NUMBER, null where there is none."""
    table, _ = _class_predictions(examples, logits, labels, decided)
    for number, label in enumerate(labels):
        name = f"p_{label}"
        there = pa.array(torch.isfinite(logits[:, number]).numpy())
        column = pc.if_else(there, table[name], pa.scalar(None, pa.float32()))
        table = table.set_column(table.column_names.index(name), name, column)
    return table, {}


# ── scores ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _squared_error(logits: Tensor, scores: Tensor, lengths: Tensor) -> Tensor:
    """Of the score as it is, as transformers' problem_type "regression" has it."""
    return F.mse_loss(logits.squeeze(1), scores.to(logits.dtype))


def _number(examples: Examples, logits: Tensor, decided: Decided) -> Labels:
    return logits.squeeze(1).double().numpy()


def _of_scores(task: Task) -> tuple[str, ...]:
    return metrics.CORRELATIONS


def _mean(train: Examples) -> float:
    return short(train.labels.mean())


def _score_predictions(examples: Examples, logits: Tensor, labels: Sequence[str], decided: Decided) -> Published:
    """example_id, label (the score; null where not known) and prediction."""
    table = pa.table(
        {
            "example_id": pa.array(examples.example_ids, pa.string()),
            "label": pa.array(examples.labels, pa.float64(), mask=~examples.known),
            "prediction": pa.array(logits.squeeze(1).numpy(), pa.float32()),
        }
    )
    return table, {}


# ── sentence vectors ─────────────────────────────────────────────────────────────────────────────────────────────────


def _none(task: Task) -> int:
    return 0


def _contrastive(vectors: Tensor, texts: Tensor, lengths: Tensor) -> Tensor:
    return contrastive_loss(vectors, texts)


def _cosines(vectors: Tensor) -> Tensor:
    return cosines(vectors)[:, None]


def _zero(train: Examples) -> float:
    """As good as any: a constant has no correlation."""
    return 0.0


# ── spans ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _no_labels(task: Task, parts: Collection[Examples]) -> list[str]:
    return []


def _two(task: Task) -> int:
    return 2


def _of_spans(task: Task) -> tuple[str, ...]:
    return "exact_match", "f1"


def _span_scores(
    names: Sequence[str], examples: Examples, guesses: SpanGuesses, labels: Sequence[str]
) -> dict[str, float] | None:
    return span_scores(names, examples, guesses)


def _span_predictions(examples: Examples, logits: Tensor, labels: Sequence[str], decided: Decided) -> Published:
    guesses = span_guesses(examples, logits, decided)
    return span_table(examples, guesses, decided), span_files(examples, guesses, decided)


def _unanswered(train: Examples) -> str:
    return ""


def _never_answered(examples: Examples, guess: str) -> SpanGuesses:
    return no_answer(examples)


_TEXTS = Head(
    read=read_examples,
    read_windows=partial(read_examples, long_texts="windows"),
    pooling=None,
    labels=_named,
    outputs=_classes,
    classes=_classes,
    labelled=("train", "dev"),
    targets=_labels,
    loss=_loss,
    loss_name="cross_entropy",
    answers=_as_they_are,
    guesses=_most_likely,
    metrics=_of_classes,
    scores=_class_scores,
    predictions=_class_predictions,
    constant=_most_frequent,
    constantly=_everywhere,
    decide=_nothing,
    untouched=False,
)
_WORDS = replace(
    _TEXTS,
    read=read_words,
    read_windows=None,
    pooling="tokens",
    metrics=_of_words,
    scores=_word_scores,
    predictions=_word_predictions,
)
_CHOICES = replace(
    _TEXTS,
    read=read_choices,
    read_windows=None,
    labels=_numbers,
    classes=_one,
    metrics=_of_choices,
    predictions=_choice_predictions,
)
_SCORES = replace(
    _TEXTS,
    read=read_scored,
    read_windows=partial(read_scored, long_texts="windows"),
    outputs=_one,
    classes=_one,
    loss=_squared_error,
    loss_name="mean_squared_error",
    guesses=_number,
    metrics=_of_scores,
    predictions=_score_predictions,
    constant=_mean,
)
_SPANS = replace(
    _TEXTS,
    read=read_spans,
    read_windows=None,
    pooling="tokens",
    labels=_no_labels,
    outputs=_two,
    classes=_two,
    loss=span_loss,
    guesses=span_guesses,
    metrics=_of_spans,
    scores=_span_scores,
    predictions=_span_predictions,
    constant=_unanswered,
    constantly=_never_answered,
    decide=decide,
)
_PAIRS = replace(
    _SCORES,
    read=read_sentence_pairs,
    read_windows=None,
    pooling="mean",
    classes=_none,
    labelled=("dev",),
    targets=texts_of,
    loss=_contrastive,
    loss_name=None,
    answers=_cosines,
    constant=_zero,
    untouched=True,
)

HEADS: Mapping[str, Head] = {
    "classification": _TEXTS,
    "pair_classification": _TEXTS,
    "tagging": _WORDS,
    "multiple_choice": _CHOICES,
    "regression": _SCORES,
    "span": _SPANS,
    "sentence_similarity": _PAIRS,
}
"""by kind of task"""
