"""Merges of a WordPiece vocabulary from counted words: the most frequent pair of neighbours becomes a token, again and again.

The result is that of the trainer of `tokenizers` (tests hold the two against each other), which takes no counts: it must be fed
every word as often as it occurs. Here a word costs the same however often it was counted, and all places of a pair are merged at
once, as arrays.

All words lie one after the other in one array, a symbol a place, with a mark between words. A token of several characters stands at
the place of its first; at its first and at its last place stands how many places it takes, so that both neighbours are found.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

BETWEEN = -1
"""The symbol between two words, before the first and behind the last."""
_WITHIN = -2
"""Stands at the places of a token but its first."""
BLOCK = 1 << 22
"""Places whose pairs are sorted at a time."""
LONGEST = 255
"""Characters of a word, at most."""

Symbols = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Places = npt.NDArray[Any]


def merged(
    symbols: Symbols,
    weights: Numbers,
    tokens: list[str],
    size: int,
    min_frequency: int,
    report: Callable[[int], None] = lambda _: None,
) -> list[str]:
    """`tokens` and behind them those that merging gives, `size` in all or fewer where no pair is frequent enough.

    symbols: int32 [places], indices into `tokens`; BETWEEN before every word and behind the last. It is written over.
    weights: int64 [words], how often each word was counted.
    tokens: a character, or `##` and a character that continues a word; others before them are never merged.
    min_frequency: a pair that occurs less often is not merged.
    report: hears how many tokens there are.

    Of equally frequent pairs the one with the lower numbers is first. As in `tokenizers`, a pair that was merged keeps its count: it
    adds to it if the pair arises again, which happens where one token is made in two ways (`a` + `##bc`, `ab` + `##c`).
    """
    tokens = list(tokens)
    numbers = {token: number for number, token in enumerate(tokens)}
    pairs = _Pairs(symbols, weights, min_frequency)
    while len(tokens) < size and (key := pairs.most_frequent()) is not None:
        first, second = key >> 32, key & 0xFFFFFFFF
        token = tokens[first] + tokens[second].removeprefix("##")
        number = numbers.setdefault(token, len(tokens))
        if number == len(tokens):
            tokens.append(token)
            report(len(tokens))
        pairs.merge(key, number)
    return tokens


class _Pairs:
    """Which pairs of neighbours there are, how often and where. The key of a pair is `first << 32 | second`."""

    def __init__(self, symbols: Symbols, weights: Numbers, min_frequency: int) -> None:
        self.symbols = symbols
        self.weights = weights
        self.min_frequency = min_frequency
        self.lengths = np.ones(len(symbols), np.uint8)
        self.places: type[np.signedinteger[Any]] = np.int32 if len(symbols) < 2**31 else np.int64
        self.words = np.empty(len(symbols), np.int32)
        """the word of each place"""
        self.counts: dict[int, int] = {}
        self.waiting: dict[int, Places | list[Places]] = {}
        """where a pair arose; some may be gone since"""
        self.queue: list[int] = []
        """`-count << 64 | key`: the most frequent pair first, of these the one with the lowest key; counts may have fallen since"""
        seen = -1
        for start, block in _blocks(symbols):
            words = seen + np.cumsum(block[:-1] == BETWEEN)
            self.words[start : start + len(words)] = words
            seen = int(words[-1])
            within = np.flatnonzero((block[:-1] >= 0) & (block[1:] >= 0))
            keys = block[within].astype(np.int64) << 32 | block[within + 1]
            self._add(keys, (within + start).astype(self.places))
        self.queue = [-count << 64 | key for key, count in self.counts.items() if count >= min_frequency]
        heapify(self.queue)

    def most_frequent(self) -> int | None:
        """The key of the pair to merge, or None if none is frequent enough."""
        while self.queue:
            top = heappop(self.queue)
            key, count = top & 0xFFFFFFFFFFFFFFFF, -(top >> 64)
            now = self.counts.get(key, 0)
            if now == count and key in self.waiting:
                return key
            if self.min_frequency <= now < count and key in self.waiting:
                heappush(self.queue, -now << 64 | key)
        return None

    def merge(self, key: int, number: int) -> None:
        """Put token `number` wherever the pair stands."""
        first, second = key >> 32, key & 0xFFFFFFFF
        places = self._there(key)
        symbols, lengths = self.symbols, self.lengths
        seconds = places + lengths[places]
        after = seconds + lengths[seconds]
        before = places - lengths[places - 1]
        was_right, left = symbols[after], symbols[before]
        symbols[places], symbols[seconds] = number, _WITHIN
        sizes = (after - places).astype(np.uint8)
        lengths[places], lengths[after - 1] = sizes, sizes

        weights = self.weights[self.words[places]]
        right = symbols[after]  # the new token itself, where two pairs stood side by side
        has_right = right >= 0
        has_left = (left >= 0) & (symbols[before] != _WITHIN)  # else the pair on the left has counted this neighbour
        self._remove(
            np.concatenate(
                [second << 32 | was_right[has_right].astype(np.int64), left[has_left].astype(np.int64) << 32 | first]
            ),
            np.concatenate([weights[has_right], weights[has_left]]),
        )
        arisen = self._add(
            np.concatenate(
                [number << 32 | right[has_right].astype(np.int64), left[has_left].astype(np.int64) << 32 | number]
            ),
            np.concatenate([places[has_right], before[has_left]]),
        )
        for each in arisen:
            if (count := self.counts[each]) >= self.min_frequency:
                heappush(self.queue, -count << 64 | each)

    def _there(self, key: int) -> Places:
        """The places where the pair still stands; of overlapping ones (`aaa`) the first, as read from the left."""
        waiting = self.waiting.pop(key)
        places = np.concatenate(waiting) if isinstance(waiting, list) else waiting
        first, second = key >> 32, key & 0xFFFFFFFF
        places = places[self.symbols[places] == first]
        places = places[self.symbols[places + self.lengths[places]] == second]
        if first != second or not len(places):
            return places
        places = np.sort(places)
        follows = np.concatenate([[False], (places + self.lengths[places])[:-1] == places[1:]])
        number = np.arange(len(places))
        return places[(number - np.maximum.accumulate(np.where(follows, 0, number))) % 2 == 0]

    def _add(self, keys: Numbers, places: Places) -> list[int]:
        """Note where pairs arose; returns their keys, each once."""
        if not len(keys):
            return []
        order = np.argsort(keys, kind="stable")
        keys, places = keys[order], places[order]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        sums = np.add.reduceat(self.weights[self.words[places]], starts).tolist()
        arisen: list[int] = keys[starts].tolist()
        bounds = [*starts.tolist(), len(keys)]
        counts, waiting = self.counts, self.waiting
        for index, key in enumerate(arisen):
            counts[key] = counts.get(key, 0) + sums[index]
            found = places[bounds[index] : bounds[index + 1]]
            others = waiting.get(key)
            if others is None:
                waiting[key] = found
            elif isinstance(others, list):
                others.append(found)
            else:
                waiting[key] = [others, found]
        return arisen

    def _remove(self, keys: Numbers, weights: Numbers) -> None:
        """Pairs that are no more; one that is nowhere any more is forgotten."""
        if not len(keys):
            return
        order = np.argsort(keys)
        keys = keys[order]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        counts = self.counts
        for key, gone in zip(keys[starts].tolist(), np.add.reduceat(weights[order], starts).tolist(), strict=True):
            counts[key] -= gone
            if not counts[key]:
                del counts[key]
                self.waiting.pop(key, None)


def _blocks(symbols: Symbols) -> Iterator[tuple[int, Symbols]]:
    """(place of its first symbol, a run of symbols and the one behind it); the last symbol is BETWEEN."""
    for start in range(0, len(symbols) - 1, BLOCK):
        yield start, symbols[start : min(start + BLOCK, len(symbols) - 1) + 1]
