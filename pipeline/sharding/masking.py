"""Masks (Devlin et al. 2019, section 3.1 and appendix A.1; google-research/bert create_pretraining_data.py).

An instance's masks are a function of its key: the same function makes the masks that are stored in shards and those that
are drawn when a batch is loaded.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.config import Shards
from pipeline.ragged import places
from pipeline.streams import Keys, below, drawn, substreams, uniform
from pipeline.tokenizer import SPECIAL_TOKENS

Ints = npt.NDArray[np.integer]
COLUMN_BITS = np.uint64(16)
LAST = np.uint64(1 << 47)
"""as a key without column: behind every candidate"""
_UNUSED = re.compile(r"\[unused\d+\]")


def mask_counts(lengths: Ints, rate: float, max_predictions: int, control_tokens: Ints | int) -> npt.NDArray[np.int64]:
    """Number of masked positions of instances of these lengths ([CLS] and [SEP] included).

    min(max_predictions, max(1, round(length · rate))), halves to the even number, and never more than there are
    tokens other than the `control_tokens`.
    """
    wanted = np.maximum(1, np.rint(lengths * rate)).astype(np.int64)
    return np.minimum(np.minimum(wanted, max_predictions), lengths - control_tokens)


@dataclass(frozen=True)
class Control:
    """What masks and instances need to know of the vocabulary."""

    vocab_size: int
    cls_id: int
    sep_id: int
    mask_id: int
    words: tuple[tuple[int, int], ...]
    """ranges of ids (from, below): all but [PAD], [UNK], [CLS], [SEP], [MASK] and [unusedN]"""
    continued: tuple[tuple[int, int], ...]
    """ranges of ids (from, below) of the pieces that continue a word, `##…`"""


def control(vocabulary: Sequence[str], *, cls_id: int, sep_id: int, mask_id: int) -> Control:
    """Read off a vocabulary what masks and instances need to know."""
    special = [token in SPECIAL_TOKENS or bool(_UNUSED.fullmatch(token)) for token in vocabulary]
    continued = [token.startswith("##") and len(token) > 2 for token in vocabulary]
    return Control(
        len(vocabulary),
        cls_id,
        sep_id,
        mask_id,
        words=_ranges(np.invert(special)),
        continued=_ranges(np.array(continued)),
    )


def _ranges(flags: npt.NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]))).tolist()
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def _flags(ranges: Sequence[tuple[int, int]], size: int) -> npt.NDArray[np.bool_]:
    flags = np.zeros(size, bool)
    for first, below_ in ranges:
        flags[first:below_] = True
    return flags


@dataclass(frozen=True)
class Masked:
    """Masked instances; the last two have `counts[i]` entries for instance i (fewer where whole words did not fit)."""

    input_ids: Ints
    positions: npt.NDArray[np.uint16]
    """ascending in each instance"""
    ids: Ints
    """what stood there before"""
    counts: npt.NDArray[np.int64]
    """[n] masked positions of each instance"""


def draw_masks(
    input_ids: Ints, lengths: Ints, keys: Keys, config: Shards, max_predictions: int, control: Control
) -> Masked:
    """Choose tokens of instances and mask them.

    Args:
        input_ids: [sum of lengths] ids of all instances, one after the other, [CLS] and [SEP] among them.
        lengths: [n] tokens of each instance.
        keys: [n] stream of each instance.
        config: rate, mix, and what is masked together.
        max_predictions: most masked positions of an instance.
        control: of the vocabulary.
    """
    candidate = (input_ids != control.cls_id) & (input_ids != control.sep_id)
    candidates = _sums(candidate, lengths)
    counts = mask_counts(lengths, config.mask_rate, max_predictions, lengths - candidates)
    if config.whole_words:
        begins = ~_flags(control.continued, control.vocab_size)[input_ids]
        chosen = chosen_words(lengths, candidate, begins, counts, keys, config.max_ngram)
        none = _sums(chosen, lengths) == 0  # no word is short enough: single tokens then
        if none.any():
            chosen |= np.repeat(none, lengths) & chosen_tokens(lengths, candidate, counts, keys)
    else:
        chosen = chosen_tokens(lengths, candidate, counts, keys)
    return masked(input_ids, lengths, chosen, keys, config, control)


def masked(
    input_ids: Ints, lengths: Ints, chosen: npt.NDArray[np.bool_], keys: Keys, config: Shards, control: Control
) -> Masked:
    """Mask the chosen tokens ([sum of lengths], True where chosen); the other arguments as in `draw_masks`."""
    columns = places(lengths)[chosen]
    counts = _sums(chosen, lengths)
    streams = np.repeat(keys, counts)
    choices = uniform(substreams(streams, "choice"), columns)
    drawable = np.arange(control.vocab_size)
    if config.random_words == "no_specials":
        drawable = np.flatnonzero(_flags(control.words, control.vocab_size))
    words = drawable[below(len(drawable), uniform(substreams(streams, "word"), columns))]
    mask, random, _ = config.mask_random_keep
    original = input_ids[chosen]
    result = input_ids.copy()
    result[chosen] = np.where(choices < mask, control.mask_id, np.where(choices < mask + random, words, original))
    return Masked(result, columns.astype(np.uint16), original, counts)


def chosen_tokens(lengths: Ints, candidate: npt.NDArray[np.bool_], counts: Ints, keys: Keys) -> npt.NDArray[np.bool_]:
    """`counts[i]` candidates of each instance: [sum of lengths], True where chosen.

    `candidate` [sum of lengths] is False for [CLS] and [SEP]; `keys` [n] are the streams of the instances.
    """
    columns = places(lengths)
    drawn_keys = drawn(np.repeat(substreams(keys, "order"), lengths), columns) >> (COLUMN_BITS + np.uint64(1))
    limits, table_keys, inside = _smallest(lengths, np.where(candidate, drawn_keys, LAST), counts)
    return (table_keys <= limits[:, None])[inside]


def _smallest(lengths: Ints, keys: Keys, counts: Ints) -> tuple[Keys, npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """(the counts-th smallest key of each instance, keys [n, longest], which of them are tokens)."""
    width = int(lengths.max(initial=0))
    inside = np.arange(width) < lengths[:, None]
    table = np.full(inside.shape, LAST)
    table[inside] = keys
    # The column in the low bits makes the keys of an instance differ, so that exactly `counts` are chosen.
    table = table << COLUMN_BITS | np.arange(width, dtype=np.uint64)
    return np.sort(table, axis=1)[np.arange(len(lengths)), counts - 1], table, inside


def chosen_words(
    lengths: Ints, candidate: npt.NDArray[np.bool_], begins: npt.NDArray[np.bool_], counts: Ints, keys: Keys,
    max_ngram: int = 1,
) -> npt.NDArray[np.bool_]:  # fmt: skip
    """Whole words of each instance, together at most `counts[i]` tokens: [sum of lengths], True where chosen.

    Words are taken in random order; one that would be too much is passed over, and later ones may still fit, as in the
    original. With `max_ngram` above 1 each is the first of 1 … max_ngram words in a row, n with probability ∝ 1/n (Lan et
    al. 2020, section 3.1), shortened until it fits.

    Args:
        begins: [sum of lengths] True for the candidates that begin a word. Other candidates go with the one before them,
            across a [SEP] too; in front of the first they are a word of their own (google-research/bert does both).
    """
    word_of, word_sizes, words = _words(lengths, candidate, begins)
    n, width = len(lengths), int(words.max(initial=0))
    inside = np.arange(width) < words[:, None]
    sizes = np.zeros(inside.shape, np.int64)
    sizes[inside] = word_sizes
    order_keys = drawn(substreams(keys, "order")[:, None], np.arange(width)) >> np.uint64(1)
    order = np.argsort(np.where(inside, order_keys, np.uint64(2**64 - 1)), axis=1, kind="stable")
    grams = _gram_sizes(uniform(substreams(keys, "gram")[:, None], np.arange(width)), max_ngram)
    taken = np.zeros(inside.shape, bool)
    left = counts.astype(np.int64).copy()
    rows = np.arange(n)
    for rank in range(width):
        open_ = rows[(left[rows] > 0) & (rank < words[rows])]
        if not len(open_):
            break
        first = order[open_, rank]
        free = ~taken[open_, first]
        open_, first = open_[free], first[free]
        _take(open_, first, grams[open_, rank], sizes, words, taken, left)
    chosen = np.zeros(len(candidate), bool)
    chosen[candidate] = taken[inside][word_of]
    return chosen


def _take(
    rows: Ints, first: Ints, grams: Ints, sizes: Ints, words: Ints, taken: npt.NDArray[np.bool_], left: Ints
) -> None:
    """Take up to `grams` words from `first` on, as many as fit in what is left; marks `taken` and lowers `left`."""
    for more in range(int(grams.max(initial=0))):
        word = first + more
        fits = (more < grams) & (word < words[rows])
        rows, first, grams, word = rows[fits], first[fits], grams[fits], word[fits]
        fits = ~taken[rows, word] & (sizes[rows, word] <= left[rows])
        rows, first, grams, word = rows[fits], first[fits], grams[fits], word[fits]
        taken[rows, word] = True
        left[rows] -= sizes[rows, word]


def _gram_sizes(numbers: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.int64]:
    """1 … most, n with probability ∝ 1/n."""
    weights = 1 / np.arange(1, most + 1)
    return 1 + np.searchsorted(np.cumsum(weights / weights.sum())[:-1], numbers, side="right")


def _words(
    lengths: Ints, candidate: npt.NDArray[np.bool_], begins: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(word of every candidate, counted through; candidates of every word; [n] words of each instance)."""
    instance = np.repeat(np.arange(len(lengths)), lengths)[candidate]
    fresh = np.diff(instance, prepend=-1) != 0
    starts = begins[candidate] | fresh
    word_of = np.cumsum(starts) - 1
    return word_of, np.bincount(word_of), np.bincount(instance[starts], minlength=len(lengths))


def _sums(values: npt.NDArray[np.bool_], lengths: Ints) -> npt.NDArray[np.int64]:
    """The sum of the values of each instance."""
    sums = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    ends = np.cumsum(lengths, dtype=np.int64)
    return sums[ends] - sums[ends - lengths]
