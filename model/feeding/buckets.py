"""Batches of rows of nearly equal length: the order of model/feeding/order.py, dealt anew inside windows.

A window is a fixed number of steps. Its samples are sorted by length and cut into buckets of so many rows, and the
buckets are dealt in a random order, so that every sample of a window is trained on exactly once, in one of its steps. To
know the rows of a step takes the lengths of one window and nothing before it: any position is reached in the same time.

What it does to the gradient: the rows of a batch are no longer drawn independently of each other. A batch is short or
long as a whole, so steps differ more than they would, in tokens and, where the loss is a mean over the masked words of a
batch, in the weight of a word: a masked word counts more in a batch of short rows. Over a window nothing changes: every
row counts once, in a random order of batches. Buckets smaller than the batch (`rows`) give batches that are mixed from
several lengths, each of which can still be computed by itself (a micro-batch, or a rank's part). An epoch's last window
reaches into the next epoch, so a row may come up to a window early or late in its epoch.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from model.feeding.order import mix, permuted, rows_of
from pipeline.streams import drawn

WINDOW_ROWS = 16_384
"""Rows of a window, or one batch if that is larger: about a row group of a shard, so that few are in memory at once."""


def window_steps(batch_size: int) -> int:
    """Steps of a window."""
    return max(1, WINDOW_ROWS // batch_size)


def deal(lengths: npt.NDArray[np.int64], rows: int, key: int) -> npt.NDArray[np.int64]:
    """An order of the rows of a window in which each `rows` after each other are of nearly equal length.

    Args:
        lengths: [n] tokens of each row; n is a multiple of `rows`.
        rows: of a bucket; inside one the order is random.
        key: chooses the order.
    """
    buckets = np.argsort(lengths, kind="stable").reshape(-1, rows)
    inside = np.argsort(drawn(np.array([[key]], np.uint64), buckets), axis=1, kind="stable")
    order = permuted(np.arange(len(buckets)), len(buckets), mix(key, 1))
    return np.take_along_axis(buckets, inside, axis=1)[order].ravel()


class Buckets:
    """Which sample stands at which position, when rows of nearly equal length come together.

    Args:
        groups: rows of each row group.
        lengths: row numbers → tokens of each.
        seed: of the order.
        batch_size: rows of a step, over all ranks.
        rows: of a bucket; divides `batch_size`.

    Raises:
        ValueError: it does not.
    """

    def __init__(
        self,
        groups: npt.NDArray[np.int64],
        lengths: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]],
        seed: int,
        batch_size: int,
        rows: int,
    ) -> None:
        if batch_size % rows:
            raise ValueError(f"buckets of {rows} rows do not divide a batch of {batch_size}")
        self.size = window_steps(batch_size) * batch_size
        """rows of a window"""
        self._groups, self._lengths, self._seed, self._rows = groups, lengths, seed, rows
        self._kept: dict[int, npt.NDArray[np.int64]] = {}

    def samples(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The sample of each position; both are counted through all epochs."""
        windows = positions // self.size
        found = np.empty(len(positions), np.int64)
        for window in np.unique(windows).tolist():
            here = windows == window
            found[here] = window * self.size + self._dealt(window)[positions[here] - window * self.size]
        return found

    def _dealt(self, window: int) -> npt.NDArray[np.int64]:
        if window not in self._kept:
            samples = np.arange(window * self.size, (window + 1) * self.size)
            lengths = self._lengths(rows_of(samples, self._groups, self._seed))
            if len(self._kept) == 2:  # the window of this step and the one before or after it
                del self._kept[next(iter(self._kept))]
            self._kept[window] = deal(lengths, self._rows, mix(self._seed, window, 2))
        return self._kept[window]
