"""What a classifier says to the examples of a part, in batches: scoring in fine-tuning, and with a model of another task."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from model.devices import Device
from model.layers.classifier import Classifier
from model.tuning.examples import Examples, Ints, sorted_batches
from model.tuning.heads import Head, Task
from model.tuning.long_texts import pooled
from model.tuning.tuning_batches import Batch

SCORING_BATCH = 64


@torch.inference_mode()
def answers_of(
    model: Classifier,
    examples: Examples,
    batch: Callable[[Examples, Ints], Batch],
    head: Head,
    task: Task,
    device: Device,
    precision: str,
    stopped: Callable[[], bool],
) -> tuple[Tensor, bool] | None:
    """(logits float [outputs, classes] of a part in its own order, whether all were finite: what is not is 0); None: stopped.

    Windows are computed one by one, so that a text of any length fits into memory.
    """
    model.eval()
    windows, rows_of = examples.windows, examples.apart
    logits = torch.full((rows_of.outputs, head.outputs(task)), -math.inf)
    finite = True
    for rows in sorted_batches(rows_of.lengths, SCORING_BATCH):
        if stopped():
            return None
        given = batch(rows_of, rows)
        with device.autocast(precision):
            found = head.answers(model(given).float()).cpu()
        absent = torch.zeros_like(found, dtype=torch.bool)
        if given.read.compared is not None:
            absent = (given.read.compared.cpu() < 0)[:, : found.shape[1]]
        broken = ~torch.isfinite(found) & ~absent
        finite = finite and not bool(broken.any())
        found[broken] = 0.0
        numbers = torch.from_numpy(rows_of.outputs_of(rows))
        # fewer columns where no example of the batch has all choices
        logits[numbers, : found.shape[1]] = found
    return (logits if windows is None else pooled(logits, torch.from_numpy(np.diff(windows)))), finite
