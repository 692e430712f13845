"""How long a phase of pretraining takes on some devices: arithmetic on what one step takes. An estimate."""

import math
from dataclasses import dataclass

from model.feeding.random_rows import random_rows
from model.training.flops import PEAK_BF16, peak_flops, training_flops
from pipeline.config import Architecture, PretrainConfig
from pipeline.errors import RecipeError

FORWARD_SHARE = 1 / 3
"""of a part's time: backward costs twice forward (model/training/flops.py)"""


@dataclass(frozen=True)
class Speed:
    """What a device takes."""

    rows: int
    """in a part of a batch"""
    part_seconds: float
    """forward and backward of such a part"""
    update_seconds: float
    """clipping and the optimizer, once a step"""


@dataclass(frozen=True)
class Work:
    """What a phase is made of."""

    steps: int
    batch_size: int
    evaluate_every: int
    evaluated_sequences: int
    """of each evaluation"""
    max_hours: float | None = None


def step_seconds(batch_size: int, speed: Speed) -> float:
    """A step of the whole batch on one device: as many parts as it has rows for, and one update."""
    return batch_size / speed.rows * speed.part_seconds + speed.update_seconds


def hours(work: Work, speed: Speed, devices: int) -> float | None:
    """All steps and evaluations on so many devices, n of which are taken to be n times as fast as one; None where the batch
    has fewer rows than there are devices. At most `max_hours`: the phase then makes fewer steps."""
    if devices > work.batch_size:
        return None
    evaluations = math.ceil(work.steps / work.evaluate_every)
    evaluating = evaluations * work.evaluated_sequences / speed.rows * speed.part_seconds * FORWARD_SHARE
    found = (work.steps * step_seconds(work.batch_size, speed) + evaluating) / 3600 / devices
    return found if work.max_hours is None else min(found, work.max_hours)


def stated_speed(
    device: str, mfu: float, architecture: Architecture, vocabulary_size: int, config: PretrainConfig, length: int
) -> Speed:
    """Of a device known by its maker's peak for bf16, of which training reaches the share `mfu`; rows of `length` tokens that
    are not padding.

    Raises:
        RecipeError: no peak is known for this device, or the phase is trained in fp32.
    """
    if config.precision != "bf16":
        raise RecipeError(
            f"pretrained_{config.sequence_length} is trained in {config.precision}, and peaks are known for bf16 only",
            "Set pretraining.precision: bf16, or leave --device out to measure on this machine.",
        )
    peak = peak_flops(device.upper(), config.precision)
    if peak is None:
        raise RecipeError(f"no peak is known for {device!r}", f"Known: {', '.join(PEAK_BF16)}.")
    rows = random_rows(config.batch_size, length, config, vocabulary_size)
    flops = training_flops(architecture, vocabulary_size, rows)
    return Speed(config.batch_size, flops / (peak * mfu), 0.0)
