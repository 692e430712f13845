"""Batches out of shards: which rows (model/order.py), padded to one of a few lengths.

B batch, S padded length, P one more than the most masked words in a row, M masked words of the whole batch.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from model.devices import Device
from model.order import rows_at
from pipeline.errors import DataError
from pipeline.shard_schema import Shards

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


def training_batch(shards: Shards, step: int, batch_size: int, sequence_length: int, seed: int) -> Batch:
    """The batch of step `step`, counted from 0: samples step · batch_size and on."""
    return batch_of(shards, rows_at(step * batch_size, batch_size, len(shards), seed), sequence_length)


def batch_of(shards: Shards, rows: npt.NDArray[np.int64], sequence_length: int) -> Batch:
    """These rows, padded to the shortest of the lengths ¼, ½, ¾ and 1 × sequence_length that holds them all."""
    starts, ends = shards.input_offsets[rows], shards.input_offsets[rows + 1]
    lengths = ends - starts
    quarter = -(-sequence_length // LENGTHS)
    padded = min(sequence_length, -(-int(lengths.max()) // quarter) * quarter)
    columns = np.arange(padded)[None, :]  # [1, S]
    real = columns < lengths[:, None]  # [B, S]
    input_ids = np.full((len(rows), padded), PAD, np.int64)
    input_ids[real] = shards.input_ids[_ranges(starts, lengths)]
    types = np.zeros_like(input_ids)
    if shards.token_type_start is not None:
        types[real & (columns >= shards.token_type_start[rows][:, None])] = 1
    firsts = shards.masked_offsets[rows]
    counts = shards.masked_offsets[rows + 1] - firsts
    masked = _ranges(firsts, counts)
    width = int(counts.max(initial=0)) + 1
    places = np.repeat(np.arange(len(rows)) * width + 1, counts) + _ranges(np.zeros_like(counts), counts)
    positions = np.zeros((len(rows), width), np.int64)
    positions.ravel()[places] = shards.masked_positions[masked]
    return Batch(
        input_ids=torch.from_numpy(input_ids),
        token_type_ids=torch.from_numpy(types),
        attention_mask=torch.from_numpy(real),
        positions=torch.from_numpy(positions),
        masked_places=torch.from_numpy(places),
        masked_ids=torch.from_numpy(shards.masked_ids[masked].astype(np.int64)),
        labels=None if shards.label is None else torch.from_numpy(shards.label[rows].astype(np.int64)),
        tokens=int(lengths.sum()),
    )


def _ranges(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """starts[0] … starts[0] + lengths[0] − 1, starts[1] …: one index array."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(int(ends[-1]) if len(ends) else 0)


def check(shards: Shards, name: str, vocabulary_size: int, sequence_length: int, sentence_task: str) -> None:
    """Refuse shards that this model can't read. `name` says which part, for the message.

    Raises:
        DataError: no rows, a row longer than `sequence_length`, an id outside the vocabulary, no masked position, or
            a missing label.
    """
    again = "Build pretraining_shards again from the vocabulary and the length of this recipe."
    if len(shards) == 0:
        raise DataError(f"the {name} shards hold no rows", "The corpus is too small for this sequence length.")
    longest = int(np.argmax(shards.lengths))
    if shards.lengths[longest] > sequence_length:
        raise DataError(
            f"row {longest} of the {name} shards has {shards.lengths[longest]} tokens, more than {sequence_length}",
            again,
        )
    largest = max(int(shards.input_ids.max()), int(shards.masked_ids.max(initial=0)))
    if largest >= vocabulary_size:
        raise DataError(f"the {name} shards hold id {largest}, the vocabulary has {vocabulary_size} tokens", again)
    unmasked = np.flatnonzero(np.diff(shards.masked_offsets) == 0)
    if len(unmasked):
        raise DataError(f"row {unmasked[0]} of the {name} shards has no masked position", again)
    if sentence_task != "none" and shards.label is None:
        raise DataError(f"the {name} shards have no next_sentence_label", again)
