"""Which batches are passed over, and what a spike is: against plain enumeration and hand calculation."""

import random

import numpy as np
import pytest

from model.training.guard import SPIKE_STEPS, batch_number, is_spike, just_passed, pass_over


def walked(bad: set[int], count: int) -> list[int]:
    """The first `count` batches that are not bad."""
    found: list[int] = []
    number = 0
    while len(found) < count:
        if number not in bad:
            found.append(number)
        number += 1
    return found


@pytest.mark.parametrize("seed", range(20))
def test_batches_are_those_of_a_walk_that_leaves_the_bad_ones_out(seed: int) -> None:
    dice = random.Random(seed)
    passed: tuple[tuple[int, int], ...] = ()
    bad: set[int] = set()
    for _ in range(5):
        steps = walked(bad, 80)
        first, length = dice.randrange(40), dice.randrange(1, 7)
        hit = steps[first : first + length]
        passed = pass_over(first, first + length - 1, passed)
        bad |= set(range(hit[0], hit[-1] + 1))
        assert {n for begin, end in passed for n in range(begin, end)} == bad
        assert [batch_number(step, passed) for step in range(80)] == walked(bad, 80)
        gaps = [just_passed(step, passed) for step in range(80)]
        told = {n for gap in gaps if gap for n in range(*gap)}
        assert told == {n for n in bad if n < walked(bad, 80)[-1]}


def test_without_bad_batches_a_step_is_its_batch() -> None:
    assert [batch_number(step, ()) for step in range(4)] == [0, 1, 2, 3]
    assert just_passed(0, ()) is just_passed(3, ()) is None
    assert just_passed(0, ((0, 11),)) == (0, 11)


def test_a_spike_stands_out_of_the_noise() -> None:
    noise = np.random.default_rng(7).normal(5, 0.2, 20_000)
    alarms = [is_spike(float(noise[i]), noise[i - 128 : i].tolist()) for i in range(128, len(noise))]
    assert not any(alarms)
    recent = noise[:128].tolist()
    # median 5, deviation 0.2: the threshold is 5 + 8 × 0.2
    assert is_spike(7.2, recent) and not is_spike(6.1, recent)
    assert not is_spike(7.2, recent[: SPIKE_STEPS - 1])
    assert not is_spike(3.0, recent)
    flat = [1.0] * 64
    assert is_spike(1.06, flat) and not is_spike(1.04, flat)
