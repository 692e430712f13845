"""Batches without padding: the tokens of all rows one after the other, for attention over rows of any length.

T tokens, B rows, M masked words of the whole batch, Q = B + M tokens that the heads read.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from model.bert import BertForPretraining
from model.devices import Device
from model.layers.attention import Rows
from pipeline.ragged import places
from pipeline.sharding.shard_schema import Shards


@dataclass(frozen=True)
class UnpaddedBatch:
    """The content of a `Batch`."""

    input_ids: Tensor
    """int64 [T]"""
    token_type_ids: Tensor
    """int64 [T]"""
    position_ids: Tensor
    """int64 [T], 0 for the first token of a row"""
    rows: Rows
    """where each row lies among the T"""
    asked: Tensor
    """int64 [Q], which of the T tokens the heads read: of each row [CLS], then its masked words"""
    asked_rows: Rows
    """where each row's lie among the Q"""
    masked_places: Tensor
    """int64 [M], where in `asked` the masked words stand"""
    masked_ids: Tensor
    """int64 [M], the ids before masking"""
    labels: Tensor | None
    """int64 [B], 0 next and 1 random; None without a sentence task"""

    @property
    def masked_weights(self) -> None:
        """There are no fillers."""

    @property
    def tokens(self) -> int:
        """T"""
        return self.input_ids.numel()

    def logits(self, model: BertForPretraining) -> tuple[Tensor, Tensor | None]:
        """What the model says of the masked words and of the sentence pairs."""
        return model.unpadded(
            self.input_ids,
            self.token_type_ids,
            self.position_ids,
            self.rows,
            self.asked,
            self.asked_rows,
            self.masked_places,
        )

    def on(self, device: Device) -> "UnpaddedBatch":
        """The same batch on a device."""
        return replace(
            self,
            input_ids=device.put(self.input_ids),
            token_type_ids=device.put(self.token_type_ids),
            position_ids=device.put(self.position_ids),
            rows=Rows(device.put(self.rows.starts), self.rows.longest),
            asked=device.put(self.asked),
            asked_rows=Rows(device.put(self.asked_rows.starts), self.asked_rows.longest),
            masked_places=device.put(self.masked_places),
            masked_ids=device.put(self.masked_ids),
            labels=None if self.labels is None else device.put(self.labels),
        )


def unpadded_of(rows: Shards) -> UnpaddedBatch:
    """Rows as they lie in shards, one after the other."""
    lengths, starts = rows.lengths, rows.input_offsets[:-1]
    position_ids = places(lengths)
    types = np.zeros_like(position_ids)
    if rows.token_type_start is not None:
        types = (position_ids >= np.repeat(rows.token_type_start, lengths)).astype(np.int64)
    counts = np.diff(rows.masked_offsets)
    first = rows.masked_offsets[:-1] + np.arange(len(rows))  # where the [CLS] of each row stands in `asked`
    masked_places = np.arange(len(rows.masked_ids)) + np.repeat(np.arange(len(rows)), counts) + 1
    asked = np.empty(len(rows) + len(rows.masked_ids), np.int64)
    asked[first] = starts
    asked[masked_places] = np.repeat(starts, counts) + rows.masked_positions
    return UnpaddedBatch(
        input_ids=torch.from_numpy(rows.input_ids.astype(np.int64)),
        token_type_ids=torch.from_numpy(types),
        position_ids=torch.from_numpy(position_ids),
        rows=_rows(lengths),
        asked=torch.from_numpy(asked),
        asked_rows=_rows(counts + 1),
        masked_places=torch.from_numpy(masked_places),
        masked_ids=torch.from_numpy(rows.masked_ids.astype(np.int64)),
        labels=None if rows.label is None else torch.from_numpy(rows.label.astype(np.int64)),
    )


def _rows(lengths: npt.NDArray[np.int64]) -> Rows:
    return Rows(
        torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)), int(lengths.max(initial=0))
    )
