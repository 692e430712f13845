"""Texts that are longer than a row: windows that share tokens, and one answer out of the logits of all of them.

A text becomes as few windows as hold all its tokens with a quarter of a window shared by neighbours (Pappagari et al. 2019,
"Hierarchical transformers for long document classification", share tokens too); they are spread evenly, so that each is full
and none weighs more than its text. The text's logits are the mean of its windows': a window that knows nothing can say
nothing (logits near 0), one that does can outweigh it. The loss is of that mean. Windows that are each taught the label of
the text would learn that every part of it tells the label.

No method wins everywhere: Sun et al. 2019 ("How to fine-tune BERT for text classification?", section 5.3) pool vectors of parts
side by side and find it no better than the first and last tokens alone on film reviews and news, whose ends tell the label.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.ragged import places, ranges
from pipeline.streams import drawn, stable_hash
from pipeline.tokenizer import Tokenizer

SHARED = 4
"""neighbours share a quarter of a window at least"""
Ints = npt.NDArray[np.int64]
Pieces = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Windowed:
    """n texts, or pairs of texts, as R rows."""

    input_ids: tuple[Pieces, ...]
    """[R] with [CLS] and [SEP], at most max_length"""
    second_starts: Ints
    """[R] index of the first token of the second text; the length where there is none"""
    starts: Ints
    """[n + 1] where the rows of each text begin, and the end of the last"""
    cut: int
    """pairs of which something is in no window"""

    @property
    def counts(self) -> dict[str, int]:
        """What there is to tell."""
        return {"windows": len(self.input_ids), "windowed_texts": int((np.diff(self.starts) > 1).sum())}


def windowed(
    first: Sequence[Pieces], second: Sequence[Pieces | None], tokenizer: Tokenizer, max_length: int
) -> Windowed:
    """Rows [CLS] window [SEP]; of pairs [CLS] text [SEP] window [SEP] or [CLS] window [SEP] text [SEP].

    first, second: [n] tokens; None: there is no second text. Of a pair, the longer text (of equal ones the second) is cut
    into windows, each beside the whole shorter one; of that, what goes beyond half of a row is left out. A pair that fits
    into a row, and a text without tokens, is one row.
    """
    a = np.array([len(each) for each in first], np.int64)
    b = np.array([0 if each is None else len(each) for each in second], np.int64)
    pairs = np.array([each is not None for each in second], bool)
    room = max_length - np.where(pairs, 3, 2)
    first_is_cut = ~pairs | (a > b)
    longer, shorter = np.where(first_is_cut, a, b), np.where(first_is_cut, b, a)
    whole = np.minimum(shorter, room // 2)
    begins, sizes, starts = windows(longer, room - whole)
    cls, sep = np.array([tokenizer.cls_id], np.int32), np.array([tokenizer.sep_id], np.int32)
    owners = np.repeat(np.arange(len(first)), np.diff(starts))
    rows: list[Pieces] = []
    second_starts = np.empty(len(owners), np.int64)
    for row, (owner, begin, size) in enumerate(zip(owners.tolist(), begins.tolist(), sizes.tolist(), strict=True)):
        left, right = first[owner], second[owner]
        if first_is_cut[owner]:
            left, right = left[begin : begin + size], None if right is None else right[: whole[owner]]
        elif right is not None:
            left, right = left[: whole[owner]], right[begin : begin + size]
        second_starts[row] = len(left) + 2
        rows.append(np.concatenate([cls, left, sep, *([] if right is None else [right, sep])]))
    return Windowed(tuple(rows), second_starts, starts, int((whole < shorter).sum()))


def windows(tokens: Ints, room: Ints) -> tuple[Ints, Ints, Ints]:
    """(first token of every window [R], its tokens [R], where the windows of each text begin [n + 1]).

    tokens, room: [n] of every text, and what a window of it holds. Every token is in a window, all windows of a text have
    as many tokens, and neighbours share room // SHARED at least.
    """
    beyond = np.maximum(tokens - room, 0)
    counts = 1 + -(-beyond // (room - room // SHARED))
    owners = np.repeat(np.arange(len(tokens)), counts)
    begins = places(counts) * beyond[owners] // np.maximum(counts - 1, 1)[owners]
    return begins, np.minimum(tokens, room)[owners], np.concatenate([[0], np.cumsum(counts)])


def drawn_windows(starts: Ints, examples: Ints, most: int, seed: int, epoch: int) -> tuple[Ints, Ints]:
    """What a training step sees of some examples: (rows, example by example in the order of the text; how many of each [n]).

    starts: [N + 1] of all examples; examples: [n] some of them. Of more than `most` windows, `most` are drawn, so that memory
    is bounded; others in every epoch. A pure function.
    """
    sizes = np.diff(starts)[examples]
    rows = ranges(starts[examples], sizes)
    owners = np.repeat(np.arange(len(examples)), sizes)
    order = np.lexsort((drawn(np.array([stable_hash("windows", seed, epoch)], np.uint64), rows), owners))
    return rows[np.sort(order[places(sizes) < most])], np.minimum(sizes, most)


def pooled(logits: Tensor, sizes: Tensor) -> Tensor:
    """The mean of the logits of each text's windows: float [R, C], int64 [n], rows of each → float [n, C]."""
    if not len(sizes):  # a part without texts, which segment_reduce does not know
        return logits
    return torch.segment_reduce(logits, "mean", lengths=sizes, axis=0)
