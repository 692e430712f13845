"""Sentences of which every word is to get a tag, as rows for the encoder.

A word's tag is read at its first sub-token (Devlin et al. 2019, section 5.3). A sentence that is too long for one row
becomes several that overlap; each of its words is read once, in the row where more stands around it, so that no word
goes without a prediction, in training as in scoring.
"""

from collections.abc import Sequence
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from model.tuning.examples import UNKNOWN, Asked, Examples, Ints, read_columns
from pipeline.tokenizer import Tokenizer


def read_words(path: Path, tokenizer: Tokenizer, max_length: int) -> Examples:
    """Read train, dev or test.parquet of a tagging task. Raises DataError where it can't be read."""
    ids, words, tags = read_columns(path, "example_id", "words", "tags")
    room = max_length - 2
    distinct = list(dict.fromkeys(chain.from_iterable(words)))
    whole = dict(zip(distinct, tokenizer.encode_ids(distinct), strict=True))
    unknown = np.array([tokenizer.unk_id], np.int32)
    pieces = {word: found[:room] if len(found) else unknown for word, found in whole.items()}
    input_ids: list[npt.NDArray[np.int32]] = []
    places: list[Ints] = []
    numbers: list[Ints] = []
    windowed = 0
    starts = np.array([0, *accumulate(map(len, words))], np.int64)
    cls, sep = np.array([tokenizer.cls_id], np.int32), np.array([tokenizer.sep_id], np.int32)
    for sentence, start in zip(words, starts, strict=False):
        of_words = [pieces[word] for word in sentence]
        lengths = np.array([len(each) for each in of_words], np.int64)
        rows = windows(lengths, room)
        windowed += len(rows) > 1
        for (first, end), read in zip(rows, best_windows(lengths, rows), strict=True):
            if not len(read):
                continue
            input_ids.append(np.concatenate([cls, *of_words[first:end], sep]))
            before = np.cumsum(lengths[first:end]) - lengths[first:end]
            places.append(1 + before[read - first])
            numbers.append(start + read)
    labels = [UNKNOWN] * int(starts[-1])
    for start, known in zip(starts, tags, strict=False):
        if known is not None:
            labels[start : start + len(known)] = known
    cut = {word for word, found in whole.items() if len(found) > room}
    blank = {word for word, found in whole.items() if not len(found)}
    flat = tuple(chain.from_iterable(words))
    return Examples(
        example_ids=tuple(ids),
        texts=(),
        input_ids=tuple(input_ids),
        second_starts=np.array([len(row) for row in input_ids], np.int64),
        labels=np.array(labels, np.int64),
        truncated=sum(not cut.isdisjoint(sentence) for sentence in words) if cut else 0,
        asked=Asked(tuple(places), tuple(numbers), flat, starts),
        counts={
            "words": len(flat),
            "windowed_sentences": windowed,
            "cut_words": sum(word in cut for word in flat),
            "blank_words": sum(word in blank for word in flat),
        },
    )


def windows(lengths: Ints, room: int) -> list[tuple[int, int]]:
    """(first, end) of the stretches of words that become rows: all words, in stretches of at most `room` pieces.

    lengths: int [words], pieces of every word, from 1 to `room`. Where there are several stretches, neighbours share up to
    half a row, and the last is as long as the others.
    """
    ends = np.concatenate([[0], np.cumsum(lengths)])
    count = len(lengths)
    found: list[tuple[int, int]] = []
    first = end = 0
    while end < count:
        end = int(np.searchsorted(ends, ends[first] + room, side="right")) - 1
        if end == count and found:
            first = int(np.searchsorted(ends, ends[end] - room))
        found.append((first, end))
        if end < count:
            shared = min(room // 2, room - int(lengths[end]))  # the next word must fit behind what is shared
            first = int(np.searchsorted(ends, ends[end] - shared))
    return found


def best_windows(lengths: Ints, rows: Sequence[tuple[int, int]]) -> list[Ints]:
    """For every stretch, the words that are read in it: each word where the shorter of its two sides is longest, as
    google-research/bert run_squad.py chooses but for its small bonus for longer windows; of equals the first."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    best, owner = np.full(len(lengths), -1), np.zeros(len(lengths), np.int64)
    for number, (first, end) in enumerate(rows):
        context = np.minimum(ends[first:end] - ends[first], ends[end] - ends[first + 1 : end + 1])
        better = context > best[first:end]
        best[first:end][better] = context[better]
        owner[first:end][better] = number
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, len(rows)))) if rows else []
