"""The order of samples: a pure function of (seed, epoch, position), the same in every version of every library.

Each epoch is a permutation of all rows, computed for any position without computing the ones before it: a Feistel
network over the smallest square domain that holds the rows, applied again while the result lies outside (cycle
walking). So a checkpoint stores one counter, and a resume seeks in no time and with no memory.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

ROUNDS = 6
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


def rows_at(first: int, count: int, groups: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """Row numbers of samples `first` … `first + count − 1` of an endless sequence over groups of so many rows each.

    Samples e · rows … (e + 1) · rows − 1 are epoch e: every row exactly once, in an order of its own. The groups come in
    a random order, and so do the rows of each, so that rows are read a group at a time; shards are shuffled as a whole
    when they are made, and every group is a random sample of all rows. A batch may span the edge between two epochs.
    """
    rows = int(groups.sum())
    starts = np.cumsum(groups) - groups
    samples = np.arange(first, first + count)
    found = np.empty(count, np.int64)
    for epoch in range(first // rows, (first + count - 1) // rows + 1):
        key = mix(seed, epoch)
        order = permuted(np.arange(len(groups)), len(groups), key)
        ends = np.cumsum(groups[order])
        positions = samples[samples // rows == epoch] % rows
        places = np.searchsorted(ends, positions, side="right")
        for place in np.unique(places):
            group = int(order[place])
            inside = positions[places == place] - (ends[place] - groups[group])
            within = permuted(inside, int(groups[group]), mix(key, group) if group else key)
            found[np.flatnonzero(samples // rows == epoch)[places == place]] = starts[group] + within
    return found


def permuted(positions: npt.NDArray[Any], rows: int, key: int) -> npt.NDArray[np.int64]:
    """The images of `positions` (each below `rows`) under the permutation of 0 … rows − 1 that `key` chooses."""
    half = (max(rows - 1, 1).bit_length() + 1) // 2  # the domain has 2 · half bits
    keys = [mix(key, number) for number in range(ROUNDS)]
    values = _feistel(positions.astype(np.uint64), half, keys)
    while (outside := values >= rows).any():
        values[outside] = _feistel(values[outside], half, keys)
    return values.astype(np.int64)


def _feistel(values: npt.NDArray[np.uint64], half: int, keys: list[int]) -> npt.NDArray[np.uint64]:
    bits, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> bits, values & mask
    for key in keys:
        left, right = right, left ^ (_scrambled(right ^ np.uint64(key)) & mask)
    return left << bits | right


def _scrambled(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    values = (values ^ values >> np.uint64(30)) * np.uint64(_FIRST)
    values = (values ^ values >> np.uint64(27)) * np.uint64(_SECOND)
    return values ^ values >> np.uint64(31)
