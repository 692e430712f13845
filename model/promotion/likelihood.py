"""What a released model makes of rows: the loss of their masked words, and which sentence pairs it gets right."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from model.devices import open_for_many_shapes
from model.feeding.batches import batch_of
from model.fill_mask import load_release
from pipeline import progress
from pipeline.settings import settings
from pipeline.sharding.shard_schema import Shards

ROWS_AT_ONCE = 32
Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Made:
    """Of every row."""

    loss: Numbers
    """float64 [rows] nats, the sum over the masked words"""
    pairs: Numbers | None
    """bool [rows] whether the sentence pair is right; None: there are no pairs"""


@torch.no_grad()
def of_rows(release: Path, rows: Shards, sequence_length: int, precision: str, what: str) -> Made:
    """A release folder's model on rows with masked words. `what` names them in progress.

    Raises DataError where the folder is no release.
    """
    device = open_for_many_shapes(settings().training)
    model = load_release(release).to(device.torch_device)
    losses, pairs = [], []
    starts = range(0, len(rows), ROWS_AT_ONCE)
    for part in progress.track(_parts(rows), len(starts), what):
        batch = batch_of(part, sequence_length).on(device)
        with device.autocast(precision):
            words, sentences = batch.logits(model)
        of_row = np.repeat(np.arange(len(part)), np.diff(part.masked_offsets))
        each = functional.cross_entropy(words.float(), batch.masked_ids, reduction="none").double().cpu().numpy()
        losses.append(np.bincount(of_row, each, len(part)))
        if batch.labels is not None and sentences is not None:
            pairs.append((sentences.argmax(1) == batch.labels).cpu().numpy())
    return Made(np.concatenate([np.zeros(0), *losses]), np.concatenate(pairs) if pairs else None)


def _parts(rows: Shards) -> Iterator[Shards]:
    for start in range(0, len(rows), ROWS_AT_ONCE):
        yield rows.take(np.arange(start, min(start + ROWS_AT_ONCE, len(rows))))
