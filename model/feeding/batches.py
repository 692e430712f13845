"""Batches out of shards: which rows (model/feeding/order.py), padded to one of a few lengths.

B batch, S padded length, P one more than the most masked words in a row, M masked words of the whole batch. A batch of
static shapes has fillers among the M, whose weight is 0.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from model.bert import BertForPretraining
from model.devices import Device
from model.feeding.order import rows_at
from model.feeding.targets import Targets
from pipeline.errors import DataError
from pipeline.ragged import places
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import Shards

LENGTHS = 4
"""Batches are padded to a multiple of a quarter of the sequence length: few shapes to compile, little padding."""
PAD = 0
IGNORED = -100
"""the label that torch's cross entropy passes over"""


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
    """int64 [M], the ids before masking; 0 for fillers"""
    labels: Tensor | None
    """int64 [B], 0 next and 1 random, IGNORED for filled-up rows; None without a sentence task"""
    tokens: int
    """tokens that are not padding"""
    masked_weights: Tensor | None = None
    """float32 [M], 1 for masked words and 0 for fillers; None: there are no fillers"""

    @property
    def model_inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The arguments of BertForPretraining."""
        return self.input_ids, self.token_type_ids, self.attention_mask, self.positions, self.masked_places

    def logits(self, model: BertForPretraining) -> tuple[Tensor, Tensor | None]:
        """What the model says of the masked words and of the sentence pairs."""
        words, sentences = model(*self.model_inputs)
        return words, sentences

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
            masked_weights=None if self.masked_weights is None else device.put(self.masked_weights),
        )


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


def padded_length(longest: int, sequence_length: int, shapes: int = LENGTHS) -> int:
    """The shortest of the lengths 1/shapes, 2/shapes … 1 × sequence_length (rounded up) that holds `longest` tokens."""
    step = -(-sequence_length // shapes)
    return min(sequence_length, -(-longest // step) * step)


def batch_of(
    rows: Shards,
    sequence_length: int,
    padded: int | None = None,
    predictions: int | None = None,
    height: int | None = None,
) -> Batch:
    """Rows, padded to `padded`, or else to the shortest of the lengths ¼, ½, ¾ and 1 × sequence_length that holds them.

    With `predictions` every shape follows from the number of rows, `padded` and `predictions` alone, as a compiler for
    static shapes needs it: each row has so many masked words, M = B · predictions, the fillers of which point to [CLS],
    have id 0 and weight 0. The mean of the losses of the masked words, Σ weight · loss / Σ weight, is then that of the
    batch without fillers. With `height` as well there are B = `height` rows, the last of them fillers: a [PAD] that attends to
    itself, with no masked words and label IGNORED.

    Raises:
        DataError: a row is longer than `padded` or has more masked words than `predictions`.
    """
    lengths, counts = rows.lengths, np.diff(rows.masked_offsets)
    longest, most = int(lengths.max(initial=1)), int(counts.max(initial=0))
    padded = padded_length(longest, sequence_length) if padded is None else padded
    if longest > padded or (predictions is not None and most > predictions):
        of = f"{longest} tokens, more than {padded}" if longest > padded else f"{most} masks, more than {predictions}"
        raise DataError(f"a row has {of}", "Build the shards again for the length and the predictions of this recipe.")
    height = len(rows) if height is None else height
    fillers = height - len(rows)
    columns = np.arange(padded)[None, :]  # [1, S]
    real = columns < np.pad(lengths, (0, fillers))[:, None]  # [B, S]
    input_ids = np.full((height, padded), PAD, np.int64)
    input_ids[real] = rows.input_ids
    real[len(rows) :, 0] = True  # what looks at nothing has no mean of what it sees
    types = np.zeros_like(input_ids)
    if rows.token_type_start is not None:
        types = (real & (columns >= np.pad(rows.token_type_start, (0, fillers), constant_values=1)[:, None])).astype(
            np.int64
        )
    width = (most if predictions is None else predictions) + 1
    where = np.repeat(np.arange(len(rows)) * width + 1, counts) + places(counts)
    positions = np.zeros((height, width), np.int64)
    positions.ravel()[where] = rows.masked_positions
    masked_ids, weights = rows.masked_ids.astype(np.int64), None
    if predictions is not None:
        of_all = np.zeros((2, height, width), np.int64)
        of_all[0].ravel()[where], of_all[1].ravel()[where] = masked_ids, 1
        masked_ids, weights = of_all[0, :, 1:].ravel(), torch.from_numpy(of_all[1, :, 1:].ravel().astype(np.float32))
        where = np.arange(height * width).reshape(-1, width)[:, 1:].ravel()
    labels = None if rows.label is None else np.pad(rows.label.astype(np.int64), (0, fillers), constant_values=IGNORED)
    return Batch(
        input_ids=torch.from_numpy(input_ids),
        token_type_ids=torch.from_numpy(types),
        attention_mask=torch.from_numpy(real),
        positions=torch.from_numpy(positions),
        masked_places=torch.from_numpy(where),
        masked_ids=torch.from_numpy(masked_ids),
        labels=None if labels is None else torch.from_numpy(labels),
        tokens=int(lengths.sum()),
        masked_weights=weights,
    )


def check(
    rows: Shards, name: str, vocabulary_size: int, sequence_length: int, sentence_task: str, stores_masks: bool = True
) -> None:
    """Refuse rows that this model can't read. `name` says where they stand, for the message.

    Raises:
        DataError: a row longer than `sequence_length` or without tokens, an id outside the vocabulary, a missing label or
            one that is not 0 or 1, a masked position or the begin of B outside its row, or, where masks are stored, a
            row without any.
    """
    again = "Build pretraining_shards again from the vocabulary and the length of this recipe."
    if not len(rows):
        return
    longest = int(np.argmax(rows.lengths))
    if rows.lengths[longest] > sequence_length:
        raise DataError(f"{name}: row {longest} has {rows.lengths[longest]} tokens, more than {sequence_length}", again)
    if not rows.lengths.all():
        raise DataError(f"{name}: row {int(np.argmin(rows.lengths))} has no tokens", again)
    for ids in (rows.input_ids, rows.masked_ids):
        for id_ in (ids.max(initial=0), ids.min(initial=0)):
            if not 0 <= id_ < vocabulary_size:
                raise DataError(f"{name} holds id {id_}, the vocabulary has {vocabulary_size} tokens", again)
    masks = np.diff(rows.masked_offsets)
    unmasked = np.flatnonzero(masks == 0)
    if stores_masks and len(unmasked):
        raise DataError(f"{name}: row {unmasked[0]} has no masked position", again)
    if sentence_task != "none" and rows.label is None:
        raise DataError(f"{name} has no next_sentence_label", again)
    beyond = rows.masked_positions >= np.repeat(rows.lengths, masks)
    if rows.token_type_start is not None and rows.label is not None:
        wrong = (
            (rows.token_type_start < 0) | (rows.token_type_start > rows.lengths) | (rows.label < 0) | (rows.label > 1)
        )
        if wrong.any():
            row = int(np.argmax(wrong))
            start, label = rows.token_type_start[row], rows.label[row]
            raise DataError(
                f"{name}: row {row} of {rows.lengths[row]} tokens has token_type_start {start}, label {label}", again
            )
    if beyond.any():
        row = int(np.repeat(np.arange(len(rows)), masks)[np.argmax(beyond)])
        raise DataError(f"{name}: row {row} has a masked position outside its {rows.lengths[row]} tokens", again)
