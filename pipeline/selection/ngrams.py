"""Words and runs of words as 64-bit numbers, made with numpy: what finds near-duplicates and contamination.

A word is a run of letters, marks, digits and underscores (Unicode L, M, N and "_"), lowercased; nothing else counts, so that
punctuation and white space make no difference. A word's number is a polynomial over its code points, a run's number one over
its words' numbers, both modulo 2^64. With 10⁶ runs looked for and 10⁹ words looked through, the chance that any two different
runs have one number is about 10⁶ · 10⁹ / 2⁶⁴ = 1 : 18,000.
"""

import sys
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.streams import mixed

Hashes = npt.NDArray[np.uint64]
NO_RUN = np.uint64(0)
PIECE_CHARACTERS = 1 << 16
"""So many are looked at together: about 40 bytes each in memory for a moment."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_OTHER, _LETTER, _ALONE = 0, 1, 2
_ALONE_RANGES = (
    *((0x0E00, 0x0E80), (0x0E80, 0x0F00), (0x1000, 0x10A0), (0x1780, 0x1800)),  # Thai, Lao, Myanmar, Khmer
    *((0x3040, 0x3100), (0x31F0, 0x3200), (0x3400, 0x4DC0), (0x4E00, 0xA000)),  # kana, Chinese characters
    *((0xF900, 0xFB00), (0x20000, 0x323B0)),
)
"""Scripts that write no spaces between words."""
_ASSIGNED_RANGES = ((0, 0x323B0), (0xE0100, 0xE01F0))
"""Outside of these Unicode has no letters, marks and digits."""


def words(texts: Sequence[str], alone: bool = False) -> tuple[npt.NDArray[np.int64], Hashes]:
    """Every word of the texts in order: (row of its text, its number).

    alone: in scripts without spaces (Chinese, Japanese, Thai, …) every character is a word; else a run of them is.
    """
    rows: list[npt.NDArray[np.int64]] = []
    hashes: list[Hashes] = []
    for first, pieces in _pieces(texts):
        row, number = _numbered(pieces, alone)
        rows.append(row + first)
        hashes.append(number)
    if not rows:
        return np.zeros(0, np.int64), np.zeros(0, np.uint64)
    return np.concatenate(rows), np.concatenate(hashes)


def spelled(text: str) -> list[str]:
    """The words of a text, as `words` counts them."""
    lowered = text.lower()
    starts, ends = _edges(_kinds(lowered, alone=False)[1])
    return [lowered[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def runs(rows: npt.NDArray[Any], numbers: Hashes, length: int) -> Hashes:
    """For every word the number of the run of `length` words that begins there: uint64 [words].

    `NO_RUN` where the text ends before the run does.
    """
    hashes = np.full(len(numbers), NO_RUN)
    for first in range(0, len(numbers) - length + 1, PIECE_CHARACTERS):  # pieces stay in the processor's cache
        count = min(PIECE_CHARACTERS, len(numbers) - length + 1 - first)
        sums = numbers[first : first + count].copy()
        for position in range(first + 1, first + length):
            sums *= _FACTOR
            sums += numbers[position : position + count]
        whole = rows[first : first + count] == rows[first + length - 1 : first + length - 1 + count]
        hashes[first : first + count] = np.where(whole, np.maximum(sums, np.uint64(1)), NO_RUN)
    return hashes


# ── from characters to numbers ───────────────────────────────────────────────────────────────────────────────────────


def _pieces(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(row of the first, texts) with about PIECE_CHARACTERS together. A longer text comes in pieces, cut at white space, each
    as a group of its own."""
    first, held, size = 0, list[str](), 0
    for row, text in enumerate(texts):
        if len(text) > PIECE_CHARACTERS:
            if held:
                yield first, held
            yield from ((row, [piece]) for piece in _cut(text))
            first, held, size = row + 1, [], 0
            continue
        held.append(text)
        size += len(text)
        if size >= PIECE_CHARACTERS:
            yield first, held
            first, held, size = row + 1, [], 0
    if held:
        yield first, held


def _cut(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        stop = start + PIECE_CHARACTERS
        if stop < len(text):
            space = max(text.rfind(" ", start, stop), text.rfind("\n", start, stop))
            stop = space + 1 if space > start else stop
        yield text[start:stop]
        start = stop


def _numbered(texts: Sequence[str], alone: bool) -> tuple[npt.NDArray[np.int64], Hashes]:
    lowered = [text.lower() for text in texts]
    points, kinds = _kinds("\n".join(lowered), alone)
    starts, ends = _edges(kinds)
    # With prefix sums S(k) = Σ point(j) · F^j, j < k, a word is (S(end) − S(start)) / F^start, wherever it stands.
    powers, inverse = _powers(1 << max(len(points), PIECE_CHARACTERS).bit_length())
    sums = np.zeros(len(points) + 1, np.uint64)
    np.multiply(points.astype(np.uint64), powers[: len(points)], out=sums[1:])
    np.cumsum(sums[1:], out=sums[1:])
    numbers = mixed((sums.take(ends) - sums.take(starts)) * inverse.take(starts))
    after = np.cumsum([len(text) + 1 for text in lowered])
    return np.repeat(np.arange(len(texts)), np.diff(np.searchsorted(starts, after), prepend=0)), numbers


def _kinds(text: str, alone: bool) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """The code points of a text, and what each is."""
    if text.isascii():
        data = text.encode("ascii")
        return np.frombuffer(data, np.uint8), np.frombuffer(data.translate(_ascii_table()), np.uint8)
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kinds = _table().take(points)  # in a third of the time that [points] takes
    return points, kinds if alone else np.minimum(kinds, _LETTER)


def _edges(kinds: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """First place of every word, and the place after its last character."""
    around = np.zeros(len(kinds) + 2, np.uint8)
    around[1:-1] = kinds
    changes = around[1:] != around[:-1]
    starts = changes & (around[1:] != _OTHER)
    ends = changes & (around[:-1] != _OTHER)
    single = around == _ALONE
    if single.any():
        starts |= single[1:]
        ends |= single[:-1]
    return np.flatnonzero(starts), np.flatnonzero(ends)


@cache
def _table() -> npt.NDArray[np.uint8]:
    """What each code point is."""
    table = np.full(sys.maxunicode + 1, _OTHER, np.uint8)
    for start, stop in _ASSIGNED_RANGES:
        table[start:stop] = [unicodedata.category(chr(point))[0] in "LMN" for point in range(start, stop)]
    table[ord("_")] = _LETTER
    for start, stop in _ALONE_RANGES:
        part = table[start:stop]
        part[part == _LETTER] = _ALONE
    return table


@cache
def _ascii_table() -> bytes:
    return bytes(_LETTER if chr(point).isalnum() or point == ord("_") else _OTHER for point in range(128)) + bytes(128)


@cache
def _powers(count: int) -> tuple[Hashes, Hashes]:
    """The powers of the factor modulo 2^64 from the zeroth on, and their inverses."""
    inverse = np.uint64(pow(int(_FACTOR), -1, 1 << 64))
    first, second = (
        np.cumprod(np.concatenate([np.ones(1, np.uint64), np.full(count - 1, factor)])) for factor in (_FACTOR, inverse)
    )
    return first, second
