"""Batches without padding: the tokens of all rows one after the other, for attention over rows of any length.

T tokens, B rows, M masked words of the whole batch.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from model.devices import Device
from pipeline.ragged import places
from pipeline.shard_schema import Shards


@dataclass(frozen=True)
class UnpaddedBatch:
    """The content of a `Batch`, row i in tokens cu_seqlens[i] … cu_seqlens[i + 1] − 1."""

    input_ids: Tensor
    """int64 [T]"""
    token_type_ids: Tensor
    """int64 [T]"""
    position_ids: Tensor
    """int64 [T], 0 for the first token of a row"""
    cu_seqlens: Tensor
    """int32 [B + 1], from 0 to T"""
    longest: int
    """tokens of the longest row"""
    masked_places: Tensor
    """int64 [M], which of the T tokens are to be predicted, row by row"""
    masked_ids: Tensor
    """int64 [M], the ids before masking"""
    labels: Tensor | None
    """int64 [B], 0 next and 1 random; None without a sentence task"""

    @property
    def tokens(self) -> int:
        """T"""
        return self.input_ids.numel()

    @property
    def first_tokens(self) -> Tensor:
        """int32 [B], where each row's [CLS] stands."""
        return self.cu_seqlens[:-1]

    def on(self, device: Device) -> "UnpaddedBatch":
        """The same batch on a device."""
        return replace(
            self,
            input_ids=device.put(self.input_ids),
            token_type_ids=device.put(self.token_type_ids),
            position_ids=device.put(self.position_ids),
            cu_seqlens=device.put(self.cu_seqlens),
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
    masked_places = np.repeat(starts, np.diff(rows.masked_offsets)) + rows.masked_positions
    return UnpaddedBatch(
        input_ids=torch.from_numpy(rows.input_ids.astype(np.int64)),
        token_type_ids=torch.from_numpy(types),
        position_ids=torch.from_numpy(position_ids),
        cu_seqlens=torch.from_numpy(rows.input_offsets.astype(np.int32)),
        longest=int(lengths.max(initial=0)),
        masked_places=torch.from_numpy(masked_places),
        masked_ids=torch.from_numpy(rows.masked_ids.astype(np.int64)),
        labels=None if rows.label is None else torch.from_numpy(rows.label.astype(np.int64)),
    )
