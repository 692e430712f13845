"""Batches for fine-tuning: rows of examples on the device, and which of their tokens are read.

B rows of T tokens in all, of which Q are read, row by row. Without padding the rows stand one after the other; a device that
is faster with padding (model/devices) gets them side by side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from model.bert import Bert
from model.devices import Device
from model.layers.attention import Rows
from model.tuning.examples import Examples, Ints
from model.tuning.features import Kept
from pipeline.ragged import places, ranges

MULTIPLE = 8
"""rows side by side are padded to a multiple of this: few shapes, little padding"""


@dataclass(frozen=True)
class Read:
    """Which tokens are read, and how they belong together."""

    tokens: Tensor
    """int64 [Q], counted through all rows, padding included"""
    rows: Rows
    """where each row's lie among the Q"""
    row_of: Tensor
    """int64 [Q]"""
    compared: Tensor | None
    """int64 [n, choices], rows that are the choices of one example, −1 where it has no more; None: rows are not compared"""
    windows: Tensor | None = None
    """int64 [n], how many rows one after the other are of one text; None: each is"""


@dataclass(frozen=True)
class Flat:
    """Rows one after the other."""

    input_ids: Tensor
    """int64 [T], as are the next two"""
    token_type_ids: Tensor
    position_ids: Tensor
    rows: Rows
    read: Read

    def states(self, encoder: Bert) -> Tensor:
        """Hidden states of the tokens that are read: float [Q, H]."""
        ids, types, positions = self.input_ids, self.token_type_ids, self.position_ids
        return encoder.unpadded(ids, types, positions, self.rows, self.read.tokens, self.read.rows)


@dataclass(frozen=True)
class Padded:
    """Rows side by side."""

    input_ids: Tensor
    """int64 [B, S], as is the next"""
    token_type_ids: Tensor
    attention_mask: Tensor
    """bool [B, S], False: padding"""
    read: Read

    def states(self, encoder: Bert) -> Tensor:
        """Hidden states of the tokens that are read: float [Q, H]."""
        hidden = encoder(self.input_ids, self.token_type_ids, self.attention_mask)
        return torch.nn.functional.embedding(self.read.tokens, hidden.flatten(0, 1))


@dataclass(frozen=True)
class KeptStates:
    """Rows that a frozen encoder has read already (model/tuning/features.py), one after the other."""

    layers: Mapping[int, Tensor]
    """by number: hidden states of the tokens that are read, float32 [Q, H]"""
    read: Read


Batch = Flat | Padded | KeptStates


def batch_of(examples: Examples, numbers: Ints, whole: bool, device: Device, pad_id: int) -> Batch:
    """The rows of some examples (which are compared, or windows of one text), or some rows.

    whole: every token is read; else of a row its first, [CLS], or, where words are asked, theirs.
    """
    rows, compared = _compared(examples, numbers)
    chosen = [examples.input_ids[row] for row in rows]
    lengths = np.array([len(ids) for ids in chosen], np.int64)
    starts = np.cumsum(lengths) - lengths
    place = places(lengths)  # of every token in its row
    types = (place >= np.repeat(examples.second_starts[rows], lengths)).astype(np.int64)
    ids = np.concatenate(chosen).astype(np.int64)
    read, counts = _read(examples, rows, lengths, whole)
    row_of = np.repeat(np.arange(len(rows)), counts)

    def put(array: npt.NDArray[Any]) -> Tensor:
        return device.put(torch.from_numpy(array))

    def on_device(counts: Ints) -> Rows:
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return Rows(put(ends), int(counts.max()))

    def told(width: Ints) -> Read:
        """width: [B] tokens, padding included, before each row."""
        tokens = put(read + width[row_of])
        windows = None if examples.windows is None else put(np.diff(examples.windows)[numbers])
        return Read(tokens, on_device(counts), put(row_of), None if compared is None else put(compared), windows)

    if device.unpadded:
        return Flat(put(ids), put(types), put(place), on_device(lengths), told(starts))
    width = -(-int(lengths.max()) // MULTIPLE) * MULTIPLE
    mask = np.arange(width)[None, :] < lengths[:, None]
    padded_ids, padded_types = np.full(mask.shape, pad_id, np.int64), np.zeros(mask.shape, np.int64)
    padded_ids[mask], padded_types[mask] = ids, types
    read_of = told(np.arange(len(rows)) * width)
    return Padded(put(padded_ids), put(padded_types), device.put(torch.from_numpy(mask)), read_of)


def kept_batch(examples: Examples, numbers: Ints, kept: Kept, device: Device) -> KeptStates:
    """The rows of some examples (which are compared), or some rows, out of what is kept of these examples."""
    rows, compared = _compared(examples, numbers)
    states, of_rows = kept.batch(rows)
    row_of = torch.from_numpy(np.repeat(np.arange(len(rows)), kept.lengths[rows]))
    read = Read(
        tokens=device.put(torch.arange(len(row_of))),
        rows=Rows(device.put(of_rows.starts), of_rows.longest),
        row_of=device.put(row_of),
        compared=None if compared is None else device.put(torch.from_numpy(compared)),
    )
    return KeptStates({layer: device.put(each) for layer, each in states.items()}, read)


def tokens_of(examples: Examples, numbers: Ints) -> tuple[int, int]:
    """(tokens, rows) of a batch of these."""
    rows, _ = _compared(examples, numbers)
    return sum(len(examples.input_ids[row]) for row in rows), len(rows)


def _read(examples: Examples, rows: Ints, lengths: Ints, whole: bool) -> tuple[Ints, Ints]:
    """(places in their rows of the tokens that are read, how many of each row)."""
    if examples.asked is not None:
        asked = [examples.asked.places[row] for row in rows]
        return np.concatenate(asked), np.array([len(each) for each in asked], np.int64)
    return (places(lengths), lengths) if whole else (np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64))


def _compared(examples: Examples, numbers: Ints | Sequence[int]) -> tuple[Ints, Ints | None]:
    """(the rows that `numbers` stands for, which of them are compared: [n, choices], −1 for none)."""
    numbers = np.asarray(numbers)
    if examples.windows is not None:
        return ranges(examples.windows[:-1][numbers], np.diff(examples.windows)[numbers]), None
    if examples.choices is None:
        return numbers, None
    starts, counts = examples.choices[:-1][numbers], np.diff(examples.choices)[numbers]
    choice = np.arange(counts.max())[None, :]
    first = np.cumsum(counts) - counts
    return ranges(starts, counts), np.where(choice < counts[:, None], first[:, None] + choice, -1)
