"""Batches out of task data: texts as ids, in an order that follows from seed and epoch, with little padding."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from model.artifact import broken, read_table
from model.feeding.order import mix, permuted
from model.tuning.long_texts import drawn_windows, windowed
from model.tuning.span_windows import SpanWindows
from pipeline.config import LongTexts
from pipeline.ragged import ranges
from pipeline.tokenizer import Tokenizer

LENGTH_STEP = 8
"""texts count as equally long within this many tokens"""
POOL_BATCHES = 32
"""so many batches are drawn at random, then cut by length: a batch holds texts of similar length"""
UNKNOWN = -1
"""label of an example whose label is not known"""
Ints = npt.NDArray[np.int64]
Labels = Ints | npt.NDArray[np.float64]
"""numbers of labels, or scores"""


@dataclass(frozen=True)
class Asked:
    """Words that are asked for a label, each at one token of one row."""

    places: tuple[Ints, ...]
    """of every row: the tokens that are read"""
    numbers: tuple[Ints, ...]
    """of every row: which of the words these are"""
    words: tuple[str, ...]
    """all words, example by example"""
    starts: Ints
    """[n + 1] where the words of each example begin, and the end of the last"""


@dataclass(frozen=True)
class Questions:
    """Questions about documents, each a span of its document."""

    windows: SpanWindows
    answers: tuple[tuple[str, ...], ...]
    """[n] the texts of the right ones; none where there is none or it is not known"""
    known: npt.NDArray[np.bool_]
    """[n] whether the right answer, or that there is none, is known"""
    none: npt.NDArray[np.bool_]
    """[n] known to have no answer"""


@dataclass(frozen=True)
class Examples:
    """One part of a task (train, dev or test), ready for the encoder: n examples in R rows, asked for N labels.

    Where a label is of a whole text, n = R = N. Where it is of a word (`asked`), an example has N / n of them, and may take
    several rows. Where it is the number of a choice (`choices`), an example has a row for every choice, and n = N. Scores are
    labels too, as floats. Where it is a span (`questions`), an example has a row for every window, N = R, and every token of a
    row is an output. Where long texts are windows (`windows`), an example has a row for each of them, and n = N.
    """

    example_ids: tuple[str, ...]
    texts: tuple[str, ...]
    """both texts of a pair joined by a space: for models that know no pairs; none for words, choices and scores"""
    input_ids: tuple[npt.NDArray[np.int32], ...]
    """[R] with [CLS] and [SEP], at most max_length"""
    second_starts: Ints
    """[R] index of the first token of the second text; the length where there is none"""
    labels: Labels
    """[N] UNKNOWN, of scores NaN, where it is not known; of spans [N, 2], first and last token, UNKNOWN where it is not to be
    learnt"""
    truncated: int
    """examples of which something was cut off"""
    asked: Asked | None = None
    """None: every row is asked as a whole"""
    choices: Ints | None = None
    """[n + 1] where the rows of each example begin, and the end of the last; None: rows are not compared"""
    questions: Questions | None = None
    """None: no spans are asked"""
    windows: Ints | None = None
    """[n + 1] where the rows of each example begin that is read as windows, and the end of the last"""
    counts: Mapping[str, int] = field(default_factory=dict)
    """what else there is to tell of them"""

    def __len__(self) -> int:
        return len(self.example_ids)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """[N], of spans [n], whether the label is known: any float may be a score, UNKNOWN too."""
        if self.questions is not None:
            return self.questions.known
        known: npt.NDArray[np.bool_] = (
            ~np.isnan(self.labels) if self.labels.dtype.kind == "f" else self.labels != UNKNOWN
        )
        return known

    @cached_property
    def lengths(self) -> Ints:
        """Tokens of what batches are made of: of every row, [R]; of choices and windows, which stay together, the longest, [n]."""
        lengths = np.array([len(ids) for ids in self.input_ids], dtype=np.int64)
        together = self.windows if self.choices is None else self.choices
        return lengths if together is None else np.maximum.reduceat(lengths, together[:-1])

    @property
    def outputs(self) -> int:
        """How often the head answers: N, of spans once for every token."""
        return int(self.lengths.sum()) if self.questions is not None else len(self.labels)

    def labels_of(self, rows: Ints) -> Ints:
        """Which of the N labels some rows (of choices and windows: some examples) are asked for, in the order in which a model
        answers."""
        return rows if self.asked is None else np.concatenate([self.asked.numbers[row] for row in rows])

    def outputs_of(self, rows: Ints) -> Ints:
        """Which of the outputs some rows give, in the order in which a model answers."""
        if self.questions is None:
            return self.labels_of(rows)
        lengths = self.lengths
        return ranges((np.cumsum(lengths) - lengths)[rows], lengths[rows])

    def drawn(self, most: int, seed: int, epoch: int) -> "Examples":
        """What an epoch sees: of each text at most so many windows (`drawn_windows`); itself where there are none."""
        if self.windows is None:
            return self
        rows, sizes = drawn_windows(self.windows, np.arange(len(self)), most, seed, epoch)
        return replace(
            self,
            input_ids=tuple(self.input_ids[row] for row in rows),
            second_starts=self.second_starts[rows],
            windows=np.concatenate([[0], np.cumsum(sizes)]),
        )

    @property
    def apart(self) -> "Examples":
        """Every window as an example of its own, so that a long text need not be computed at once; itself where there are none."""
        if self.windows is None:
            return self
        owners = np.repeat(np.arange(len(self)), np.diff(self.windows))
        ids = tuple(self.example_ids[owner] for owner in owners)
        return replace(self, example_ids=ids, labels=self.labels[owners], windows=None)


def read_examples(path: Path, tokenizer: Tokenizer, max_length: int, long_texts: LongTexts = "truncate") -> Examples:
    """Read train, dev or test.parquet of task data. Raises DataError where it can't be read."""
    return _read(path, tokenizer, max_length, long_texts, "label")


def _read(
    path: Path, tokenizer: Tokenizer, max_length: int, long_texts: LongTexts, answer: Literal["label", "score"]
) -> Examples:
    ids, first, second, labels = read_columns(path, "example_id", "text_a", "text_b", answer)
    scored = answer == "score"
    known: Labels = (
        np.array([np.nan if score is None else score for score in labels], np.float64)
        if scored
        else np.array([UNKNOWN if label is None else label for label in labels], np.int64)
    )
    pieces = tokenizer.encode_ids(first)
    pairs = tokenizer.encode_ids([text or "" for text in second])
    texts = () if scored else tuple(a if b is None else f"{a} {b}" for a, b in zip(first, second, strict=True))
    beside = [None if text is None else ids for ids, text in zip(pairs, second, strict=True)]
    if long_texts == "windows":
        found = windowed(pieces, beside, tokenizer, max_length)
        return Examples(
            example_ids=tuple(ids),
            texts=texts,
            input_ids=found.input_ids,
            second_starts=found.second_starts,
            labels=known,
            truncated=found.cut,
            windows=found.starts,
            counts=found.counts,
        )
    built = [as_row(a, b, tokenizer, max_length) for a, b in zip(pieces, beside, strict=True)]
    return Examples(
        example_ids=tuple(ids),
        texts=texts,
        input_ids=tuple(each[0] for each in built),
        second_starts=np.array([each[1] for each in built], dtype=np.int64),
        labels=known,
        truncated=sum(each[2] for each in built),
    )


def read_scored(path: Path, tokenizer: Tokenizer, max_length: int, long_texts: LongTexts = "truncate") -> Examples:
    """Read train, dev or test.parquet of a regression task. Raises DataError where it can't be read."""
    return _read(path, tokenizer, max_length, long_texts, "score")


def read_columns(path: Path, *names: str) -> list[list[Any]]:
    """Columns of a table of task data. Raises DataError where it can't be read."""
    table = read_table(path)
    try:
        return [table.column(name).to_pylist() for name in names]
    except KeyError as error:
        raise broken(path, error) from error


def as_row(
    first: npt.NDArray[np.int32], second: npt.NDArray[np.int32] | None, tokenizer: Tokenizer, max_length: int
) -> tuple[npt.NDArray[np.int32], int, bool]:
    """([CLS] first [SEP] or [CLS] first [SEP] second [SEP], where the second begins, whether something was cut off)."""
    cls, sep = np.array([tokenizer.cls_id], np.int32), np.array([tokenizer.sep_id], np.int32)
    if second is None:
        kept = first[: max_length - 2]
        return np.concatenate([cls, kept, sep]), len(kept) + 2, len(kept) < len(first)
    a, b = pair_lengths(len(first), len(second), max_length - 3)
    cut = (a, b) != (len(first), len(second))
    return np.concatenate([cls, first[:a], sep, second[:b], sep]), a + 2, cut


def pair_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths after the original's truncation: the last token of the longer one goes, of the second when both are equal,
    until both fit into `room` (google-research/bert run_classifier.py)."""
    excess = max(0, first + second - room)
    from_longer = min(excess, abs(first - second))
    first, second = (first - from_longer, second) if first > second else (first, second - from_longer)
    rest = excess - from_longer
    return first - rest // 2, second - (rest + 1) // 2


def epoch_batches(lengths: Ints, batch_size: int, seed: int, epoch: int, by_length: bool) -> list[Ints]:
    """All rows once, as batches in the order in which epoch `epoch` (from 0) sees them.

    A pure function. Rows are shuffled and cut into batches. `by_length`, for devices that need padding: cut into pools of
    POOL_BATCHES batches, sorted inside a pool by their length in steps of LENGTH_STEP (rows of one step stay shuffled), cut
    into batches, and the batches are shuffled again.
    """
    rows = len(lengths)
    key = mix(seed, epoch)
    shuffled = permuted(np.arange(rows), rows, key)
    if not by_length:
        return [shuffled[at : at + batch_size] for at in range(0, rows, batch_size)]
    batches: list[Ints] = []
    for start in range(0, rows, POOL_BATCHES * batch_size):
        pool = shuffled[start : start + POOL_BATCHES * batch_size]
        pool = pool[np.argsort(-(-lengths[pool] // LENGTH_STEP), kind="stable")]
        batches += [pool[at : at + batch_size] for at in range(0, len(pool), batch_size)]
    order = permuted(np.arange(len(batches)), len(batches), mix(key, len(batches)))
    return [batches[number] for number in order]


def sorted_batches(lengths: Ints, batch_size: int) -> list[Ints]:
    """All rows once, longest first: for scoring."""
    order = np.argsort(-lengths, kind="stable")
    return [order[at : at + batch_size] for at in range(0, len(order), batch_size)]
