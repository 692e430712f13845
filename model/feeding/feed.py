"""The rows of every step for one rank: order, targets; read a few steps at a time.

A numpy call costs as much for a batch of 32 rows as for 500, so the rows of some steps are taken and masked together and
handed out step by step. What a step gets does not depend on it, nor on the rank: a masked row is a function of (seed,
epoch, row).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from model.feeding.batches import LENGTHS, padded_length
from model.feeding.order import part, rows_of
from model.feeding.targets import Targets
from pipeline.errors import TrainingError
from pipeline.sharding.shard_reader import ShardReader, slice_of
from pipeline.sharding.shard_schema import Shards

CHUNK_TOKENS = 1 << 16
"""Tokens that are taken and masked together: numpy's calls cost little then, and its arrays stay in a core's cache."""


@dataclass(frozen=True)
class Place:
    """Which part of every batch a process computes, and in how many pieces."""

    rank: int = 0
    ranks: int = 1
    micros: int = 1
    """micro-batches of a step, on every rank"""


class Feed:
    """Rows by step, at any step without the steps before it.

    Args:
        reader: of the training part.
        batch_size: rows of a step, over all ranks and micro-batches.
        seed: of the order.
        sequence_length: the longest that a row can be.
        targets: what rows without stored masks are given to predict.
        place: the part that is this process's.

    Raises:
        TrainingError: the batch can't be split so.
    """

    def __init__(
        self,
        reader: ShardReader,
        batch_size: int,
        seed: int,
        sequence_length: int,
        targets: Targets | None = None,
        place: Place = Place(),  # frozen
    ) -> None:
        if place.ranks > batch_size:
            raise TrainingError(
                f"a batch of {batch_size} rows can't be split into {place.ranks} parts", "Change batch_size."
            )
        self.reader, self.batch_size, self.seed, self.place = reader, batch_size, seed, place
        self.sequence_length, self.targets = sequence_length, targets
        first, last = self._part(0, 0), self._part(0, place.micros - 1)
        self._mine = np.arange(first.start, last.stop)
        """this rank's samples of step 0"""
        self._steps = max(1, CHUNK_TOKENS // (sequence_length * len(self._mine)))
        self._chunk: tuple[int, Shards] | None = None

    def rows(self, step: int, micro: int = 0) -> Shards:
        """The rows of a micro-batch of this rank, none where there are more of them than rows; DataError where they can't be
        read."""
        number = step // self._steps
        if self._chunk is None or self._chunk[0] != number:
            self._chunk = None  # not two in memory
            self._chunk = number, self._read(number)
        mine = self._part(0, micro)
        first = (step - number * self._steps) * len(self._mine) + mine.start - int(self._mine[0])
        return slice_of(self._chunk[1], first, first + len(mine))

    def padded_length(self, step: int, micro: int = 0, shapes: int = LENGTHS) -> int:
        """To what all ranks pad this micro-batch, so that they all compute one shape."""
        positions = [np.array(self._part(step, micro, rank)) for rank in range(self.place.ranks)]
        rows, _ = self._drawn(np.concatenate(positions))
        return padded_length(int(self.reader.lengths(rows).max()), self.sequence_length, shapes)

    def _part(self, step: int, micro: int, rank: int | None = None) -> range:
        place = self.place
        return part(step, self.batch_size, place.rank if rank is None else rank, place.ranks, micro, place.micros)

    def _drawn(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(row, epoch) of each of these positions of the sequence."""
        return rows_of(positions, self.reader.sizes, self.seed), positions // len(self.reader)

    def _read(self, number: int) -> Shards:
        steps = np.arange(number * self._steps, (number + 1) * self._steps)
        rows, epochs = self._drawn((steps[:, None] * self.batch_size + self._mine).ravel())
        found = self.reader.take(rows)
        return self.targets(found, rows, epochs) if self.targets else found
