"""What is done about steps that go wrong: which batches are passed over, and which losses are spikes. Pure functions.

A step whose loss or gradient norm is not finite changes nothing and is counted. After more than `SKIPPED_IN_A_ROW` of them
the run goes back to the checkpoint before and takes the batches behind them instead: the list of batches that are passed
over is part of the state, so that the batch of every step is known without replaying, and a run that was killed meanwhile
comes to the same end.
"""

import math
from collections.abc import Sequence
from statistics import median

SKIPPED_IN_A_ROW = 10
"""so many steps without a finite gradient lead back to the checkpoint before"""
MOST_ROLL_BACKS = 3
"""so many times; then the run ends: what is wrong is not the batches"""
SPIKE_WINDOW = 128
"""losses of the steps before that a loss is compared with"""
SPIKE_STEPS = 32
"""fewer are not compared with"""
SPIKE_DEVIATIONS = 8.0
"""A spike is so many robust standard deviations (1.4826 × the median absolute deviation) above the median; of normally
distributed losses one in 10^15 is."""
SPIKE_RISE = 0.05
"""and at least this share above it: at the end of training losses differ so little that noise would count"""

Batches = tuple[int, int]
"""a range of batch numbers: first, end"""


def batch_number(step: int, passed_over: Sequence[Batches]) -> int:
    """The batch that step `step` takes: the step-th of those that are not passed over. Ranges ascend."""
    number = step
    for first, end in passed_over:
        if number >= first:
            number += end - first
    return number


def step_of(batch: int, passed_over: Sequence[Batches]) -> int | None:
    """The step that takes a batch: what `batch_number` undoes; None of one that is passed over."""
    if any(first <= batch < end for first, end in passed_over):
        return None
    return batch - sum(end - first for first, end in passed_over if end <= batch)


def pass_over(first_bad: int, last_bad: int, passed_over: Sequence[Batches]) -> tuple[Batches, ...]:
    """The ranges with the batches of steps `first_bad` … `last_bad` added (step numbers under the ranges so far)."""
    first, end = batch_number(first_bad, passed_over), batch_number(last_bad, passed_over) + 1
    kept = [each for each in passed_over if not (first <= each[0] and each[1] <= end)]
    return tuple(sorted([*kept, (first, end)]))


def just_passed(step: int, passed_over: Sequence[Batches]) -> Batches | None:
    """The batches that are passed over between the step before and this one; None if it takes the next one."""
    here = batch_number(step, passed_over)
    before = batch_number(step - 1, passed_over) if step else -1
    return (before + 1, here) if here > before + 1 else None


def is_spike(loss: float, recent: Sequence[float]) -> bool:
    """Whether a loss stands far above the `recent` ones (the newest last)."""
    if len(recent) < SPIKE_STEPS or not math.isfinite(loss):
        return False
    middle = median(recent)
    deviation = 1.4826 * median(abs(each - middle) for each in recent)
    return loss > middle + max(SPIKE_DEVIATIONS * deviation, SPIKE_RISE * abs(middle))
