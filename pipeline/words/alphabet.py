"""The characters of counted words, and the words written in them: what merging starts from."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from pipeline.words.merges import BETWEEN
from pipeline.words.word_counts import Words

BLOCK_WORDS = 1 << 20
"""Words looked at at a time."""
_CODE_POINTS = 0x110000


def most_frequent(words: Words, limit: int) -> list[str]:
    """The most frequent characters, of equally frequent ones those with the lower code point, sorted."""
    sums = np.zeros(_CODE_POINTS, np.int64)
    for codes, lengths, counts in _blocks(words):
        # exact: float64 holds whole numbers up to 2^53
        sums += np.bincount(codes, np.repeat(counts, lengths), _CODE_POINTS).astype(np.int64)
    counted = Counter({chr(code): int(sums[code]) for code in np.flatnonzero(sums)}) + words.long_characters
    return sorted(sorted(counted, key=lambda character: (-counted[character], character))[:limit])


def spelled(
    words: Words, alphabet: Sequence[str], first_number: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], list[str]]:
    """(symbols, weights, characters that continue a word) of the words that consist of the alphabet, as `merges.merged` wants them.

    A character that begins a word has the number `first_number` + its index in the alphabet; those that continue one are numbered
    behind, in the same order, each that occurs so. Words of one character have nothing to merge and are left out.
    """
    size = len(alphabet)
    index = np.full(_CODE_POINTS, -1, np.int32)
    index[[ord(character) for character in alphabet]] = np.arange(size)
    continues = np.zeros(size, bool)
    spelt, weights = [], []
    for codes, lengths, counts in _blocks(words):
        numbers = index[codes]
        known = np.logical_and.reduceat(numbers >= 0, np.cumsum(lengths) - lengths) & (lengths > 1)
        numbers, lengths, counts = numbers[np.repeat(known, lengths)], lengths[known], counts[known]
        starts = np.cumsum(lengths) - lengths
        inside = np.ones(len(numbers), bool)
        inside[starts] = False
        continues[numbers[inside]] = True
        numbers[inside] += size
        spelt.append(np.insert(numbers, starts, BETWEEN))
        weights.append(counts)
    number_of = np.concatenate([np.arange(size), size + np.cumsum(continues) - 1, [0]]) + first_number
    number_of[-1] = BETWEEN  # which is -1, the last of an array
    symbols = np.concatenate([number_of.astype(np.int32)[part] for part in [*spelt, np.array([BETWEEN])]])
    found = [character for character, there in zip(alphabet, continues, strict=True) if there]
    return symbols, np.concatenate([np.zeros(0, np.int64), *weights]), found


def _blocks(words: Words) -> Iterator[tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """(code points of some words, one word after the other; length of each word; its count)."""
    for start in range(0, len(words.words), BLOCK_WORDS):
        block = words.words[start : start + BLOCK_WORDS]
        codes = np.frombuffer("".join(block.to_pylist()).encode("utf-32-le"), np.uint32)
        lengths = pc.utf8_length(block).to_numpy().astype(np.int64)
        yield codes, lengths, words.counts[start : start + BLOCK_WORDS]
