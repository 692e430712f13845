"""Batches out of shards: which rows (model/order.py), padded to one of a few lengths.

B batch, S padded length, P one more than the most masked words in a row, M masked words of the whole batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from model.devices import Device
from model.order import rows_at
from pipeline.config import ShardsConfig
from pipeline.errors import DataError
from pipeline.masking import Control, draw_masks
from pipeline.ragged import places, ranges
from pipeline.shard_reader import ShardReader
from pipeline.shard_schema import Shards
from pipeline.streams import drawn, stable_hash

LENGTHS = 4
"""Batches are padded to a multiple of a quarter of the sequence length: few shapes to compile, little padding."""
PAD = 0


@dataclass(frozen=True)
class Batch:
    """One batch, as the model takes it."""

    input_ids: Tensor
    """int64 [B, S]"""
    token_type_ids: Tensor
    """int64 [B, S]"""
    attention_mask: Tensor
    """bool [B, S]; False: padding"""
    positions: Tensor
    """int64 [B, P]: 0 ([CLS]), the row's masked positions, then zeros"""
    masked_places: Tensor
    """int64 [M], where in the flattened `positions` the masked words stand"""
    masked_ids: Tensor
    """int64 [M], the ids before masking"""
    labels: Tensor | None
    """int64 [B], 0 next and 1 random; None without a sentence task"""
    tokens: int
    """tokens that are not padding"""

    @property
    def padding_share(self) -> float:
        """Share of the batch that is padding."""
        return 1 - self.tokens / self.input_ids.numel()

    @property
    def model_inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The arguments of BertForPretraining."""
        return self.input_ids, self.token_type_ids, self.attention_mask, self.positions, self.masked_places

    def on(self, device: Device) -> "Batch":
        """The same batch on a device."""
        return replace(
            self,
            input_ids=device.put(self.input_ids),
            token_type_ids=device.put(self.token_type_ids),
            attention_mask=device.put(self.attention_mask),
            positions=device.put(self.positions),
            masked_places=device.put(self.masked_places),
            masked_ids=device.put(self.masked_ids),
            labels=None if self.labels is None else device.put(self.labels),
        )


Targets = Callable[[Shards, npt.NDArray[np.int64], npt.NDArray[np.int64]], Shards]
"""(rows without targets, their numbers, the epoch of each; -1: held out) → the rows with what is to be predicted"""


def training_rows(reader: ShardReader, step: int, batch_size: int, seed: int, targets: Targets | None = None) -> Shards:
    """The rows of step `step`, counted from 0: samples step · batch_size and on."""
    first = step * batch_size
    rows = rows_at(first, batch_size, reader.sizes, seed)
    found = reader.take(rows)
    return targets(found, rows, (first + np.arange(batch_size)) // len(reader)) if targets else found


def held_out_rows(reader: ShardReader, rows: npt.NDArray[np.int64], targets: Targets | None = None) -> Shards:
    """These rows, with the same targets on every evaluation."""
    found = reader.take(rows)
    return targets(found, rows, np.full(len(rows), -1)) if targets else found


def next_words(rows: Shards, numbers: npt.NDArray[np.int64], epochs: npt.NDArray[np.int64]) -> Shards:
    """Left to right: every token is to be predicted but the first, at the position before it."""
    counts = rows.lengths - 1
    following = ranges(rows.input_offsets[:-1] + 1, counts)
    return replace(
        rows,
        masked_positions=places(counts),
        masked_ids=rows.input_ids[following],
        masked_offsets=np.concatenate([[0], np.cumsum(counts)]),
    )


def drawn_masks(config: ShardsConfig, control: Control, seed: int) -> Targets:
    """Masks that are drawn when rows are loaded: a function of (seed, epoch, number of the row)."""
    root = np.array([stable_hash("masks", seed)], np.uint64)

    def draw(rows: Shards, numbers: npt.NDArray[np.int64], epochs: npt.NDArray[np.int64]) -> Shards:
        keys = drawn(drawn(root, epochs + 1), numbers)
        found = draw_masks(rows.input_ids, rows.lengths, keys, config, config.max_predictions_per_seq, control)
        return replace(
            rows,
            input_ids=found.input_ids,
            masked_positions=found.positions,
            masked_ids=found.ids,
            masked_offsets=np.concatenate([[0], np.cumsum(found.counts)]),
        )

    return draw


def batch_of(rows: Shards, sequence_length: int) -> Batch:
    """Rows, padded to the shortest of the lengths ¼, ½, ¾ and 1 × sequence_length that holds them all."""
    lengths = rows.lengths
    quarter = -(-sequence_length // LENGTHS)
    padded = min(sequence_length, -(-int(lengths.max()) // quarter) * quarter)
    columns = np.arange(padded)[None, :]  # [1, S]
    real = columns < lengths[:, None]  # [B, S]
    input_ids = np.full((len(rows), padded), PAD, np.int64)
    input_ids[real] = rows.input_ids
    types = np.zeros_like(input_ids)
    if rows.token_type_start is not None:
        types[real & (columns >= rows.token_type_start[:, None])] = 1
    counts = np.diff(rows.masked_offsets)
    width = int(counts.max(initial=0)) + 1
    where = np.repeat(np.arange(len(rows)) * width + 1, counts) + places(counts)
    positions = np.zeros((len(rows), width), np.int64)
    positions.ravel()[where] = rows.masked_positions
    return Batch(
        input_ids=torch.from_numpy(input_ids),
        token_type_ids=torch.from_numpy(types),
        attention_mask=torch.from_numpy(real),
        positions=torch.from_numpy(positions),
        masked_places=torch.from_numpy(where),
        masked_ids=torch.from_numpy(rows.masked_ids.astype(np.int64)),
        labels=None if rows.label is None else torch.from_numpy(rows.label.astype(np.int64)),
        tokens=int(lengths.sum()),
    )


def check(
    rows: Shards, name: str, vocabulary_size: int, sequence_length: int, sentence_task: str, stores_masks: bool = True
) -> None:
    """Refuse rows that this model can't read. `name` says where they stand, for the message.

    Raises:
        DataError: a row longer than `sequence_length`, an id outside the vocabulary, a missing label, or, where masks are
            stored, a row without any.
    """
    again = "Build pretraining_shards again from the vocabulary and the length of this recipe."
    if not len(rows):
        return
    longest = int(np.argmax(rows.lengths))
    if rows.lengths[longest] > sequence_length:
        raise DataError(f"{name}: row {longest} has {rows.lengths[longest]} tokens, more than {sequence_length}", again)
    largest = max(int(rows.input_ids.max()), int(rows.masked_ids.max(initial=0)))
    if largest >= vocabulary_size:
        raise DataError(f"{name} holds id {largest}, the vocabulary has {vocabulary_size} tokens", again)
    unmasked = np.flatnonzero(np.diff(rows.masked_offsets) == 0)
    if stores_masks and len(unmasked):
        raise DataError(f"{name}: row {unmasked[0]} has no masked position", again)
    if sentence_task != "none" and rows.label is None:
        raise DataError(f"{name} has no next_sentence_label", again)
