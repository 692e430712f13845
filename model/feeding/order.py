"""The order of samples: a pure function of (seed, epoch, position), the same in every version of every library.

Each epoch is a permutation of all rows, computed for any position without computing the ones before it: a Feistel
network over the smallest square domain that holds the rows, applied again while the result lies outside (cycle
walking). So a checkpoint stores one counter, and a resume seeks in no time and with no memory.

Samples are numbered through all epochs: step s of training takes samples s · batch_size and on, whatever computes it.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

ROUNDS = 6
BLOCK = 4096
"""Positions of a group whose rows are computed at once and remembered: a batch alone costs mostly numpy calls."""
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_FIRST, _SECOND, _STEP = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15


def mix(*numbers: int) -> int:
    """A 63-bit number that depends on all of `numbers` and their order (the finaliser of splitmix64, chained)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed ^ number & _MASK) + _STEP & _MASK
        mixed = (mixed ^ mixed >> 30) * _FIRST & _MASK
        mixed = (mixed ^ mixed >> 27) * _SECOND & _MASK
        mixed ^= mixed >> 31
    return mixed >> 1


def part(step: int, batch_size: int, rank: int = 0, ranks: int = 1, micro: int = 0, micros: int = 1) -> range:
    """The samples of step `step` that micro-batch `micro` of `micros` of rank `rank` of `ranks` takes.

    Rank by rank, and micro-batch by micro-batch in each, the parts are samples step · batch_size … (step + 1) · batch_size
    − 1 in their order, for any numbers of ranks and micro-batches; two parts differ by at most one sample, and are equal
    where ranks · micros divides the batch.

    Raises:
        ValueError: no such rank or micro-batch.
    """
    if not (0 <= rank < ranks and 0 <= micro < micros):
        raise ValueError(f"rank {rank} of {ranks}, micro-batch {micro} of {micros}")
    number, parts = rank * micros + micro, ranks * micros
    first = step * batch_size
    return range(first + batch_size * number // parts, first + batch_size * (number + 1) // parts)


def rows_at(first: int, count: int, groups: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """Row numbers of samples `first` … `first + count − 1`: `rows_of` of a range."""
    return rows_of(np.arange(first, first + count), groups, seed)


def rows_of(samples: npt.NDArray[np.int64], groups: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """Row numbers of these samples of an endless sequence over groups of so many rows each.

    Samples e · rows … (e + 1) · rows − 1 are epoch e: every row exactly once, in an order of its own. The groups come in
    a random order, and so do the rows of each, so that rows are read a group at a time; shards are shuffled as a whole
    when they are made, and every group is a random sample of all rows. A batch may span the edge between two epochs.
    """
    sizes = groups.astype(np.int64).tobytes()
    epochs, positions = np.divmod(samples, int(groups.sum()))
    found = np.empty(len(samples), np.int64)
    for epoch, of_epoch in _split(epochs):
        order, starts, ends = _groups_in_order(sizes, seed, epoch)
        key = mix(seed, epoch)
        inside = positions[of_epoch]
        rows = np.empty(len(inside), np.int64)
        for place, here in _split(np.searchsorted(ends, inside, side="right")):
            group, size = int(order[place]), int(groups[order[place]])
            within = _images(inside[here] - (ends[place] - size), size, mix(key, group) if group else key)
            rows[here] = starts[group] + within
        found[of_epoch] = rows
    return found


def samples_of(
    rows: npt.NDArray[np.int64], groups: npt.NDArray[np.int64], seed: int, epoch: int
) -> npt.NDArray[np.int64]:
    """In which sample of an epoch each of these rows comes: what `rows_of` undoes."""
    order, starts, ends = _groups_in_order(groups.astype(np.int64).tobytes(), seed, epoch)
    key, places = mix(seed, epoch), np.argsort(order)
    found = np.empty(len(rows), np.int64)
    for group, here in _split(np.searchsorted(starts, rows, side="right") - 1):
        size, place = int(groups[group]), int(places[group])
        within = placed(rows[here] - starts[group], size, mix(key, group) if group else key)
        found[here] = ends[place] - size + within
    return epoch * int(groups.sum()) + found


def _split(numbers: npt.NDArray[np.int64]) -> list[tuple[int, Any]]:
    """Each number that occurs, and an index of where."""
    if len(numbers) and numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
        return [(int(numbers[0]), slice(None))]
    return [(int(number), numbers == number) for number in np.unique(numbers)]


@lru_cache(maxsize=4)
def _groups_in_order(sizes: bytes, seed: int, epoch: int) -> tuple[npt.NDArray[np.int64], ...]:
    """(the groups in the order of the epoch, first row of each group, where each place of the order ends)."""
    groups = np.frombuffer(sizes, np.int64)
    order = permuted(np.arange(len(groups)), len(groups), mix(seed, epoch))
    return order, np.cumsum(groups) - groups, np.cumsum(groups[order])


def _images(positions: npt.NDArray[np.int64], rows: int, key: int) -> npt.NDArray[np.int64]:
    """As `permuted`, a block at a time."""
    images = np.empty(len(positions), np.int64)
    for block, here in _split(positions // BLOCK):
        images[here] = _block(block, rows, key)[positions[here] - block * BLOCK]
    return images


@lru_cache(maxsize=16)
def _block(block: int, rows: int, key: int) -> npt.NDArray[np.int64]:
    return permuted(np.arange(block * BLOCK, min(rows, (block + 1) * BLOCK)), rows, key)


def permuted(positions: npt.NDArray[Any], rows: int, key: int) -> npt.NDArray[np.int64]:
    """The images of `positions` (each below `rows`) under the permutation of 0 … rows − 1 that `key` chooses."""
    half = (max(rows - 1, 1).bit_length() + 1) // 2  # the domain has 2 · half bits
    keys = [mix(key, number) for number in range(ROUNDS)]
    values = _feistel(positions.astype(np.uint64), half, keys)
    while (outside := values >= rows).any():
        values[outside] = _feistel(values[outside], half, keys)
    return values.astype(np.int64)


def placed(images: npt.NDArray[Any], rows: int, key: int) -> npt.NDArray[np.int64]:
    """The positions that `permuted` gives these images."""
    half = (max(rows - 1, 1).bit_length() + 1) // 2
    keys = [mix(key, number) for number in range(ROUNDS)]
    values = _undone(images.astype(np.uint64), half, keys)
    while (outside := values >= rows).any():
        values[outside] = _undone(values[outside], half, keys)
    return values.astype(np.int64)


def _feistel(values: npt.NDArray[np.uint64], half: int, keys: list[int]) -> npt.NDArray[np.uint64]:
    bits, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> bits, values & mask
    for key in keys:
        left, right = right, left ^ (_scrambled(right ^ np.uint64(key)) & mask)
    return left << bits | right


def _undone(values: npt.NDArray[np.uint64], half: int, keys: list[int]) -> npt.NDArray[np.uint64]:
    """What `_feistel` made these values of."""
    bits, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> bits, values & mask
    for key in reversed(keys):
        left, right = right ^ (_scrambled(left ^ np.uint64(key)) & mask), left
    return left << bits | right


def _scrambled(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    values = (values ^ values >> np.uint64(30)) * np.uint64(_FIRST)
    values = (values ^ values >> np.uint64(27)) * np.uint64(_SECOND)
    return values ^ values >> np.uint64(31)
