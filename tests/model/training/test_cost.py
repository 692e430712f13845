"""The arithmetic of estimates, against hand calculation."""

from typing import Any

import pytest

from model.feeding.random_rows import random_rows
from model.training.cost import Speed, Work, hours, stated_speed, step_seconds
from model.training.flops import training_flops
from pipeline.config import Architecture, PretrainConfig
from pipeline.errors import RecipeError

WORK = Work(steps=900_000, batch_size=256, evaluate_every=10_000, evaluated_sequences=5_120)
SPEED = Speed(rows=8, part_seconds=0.5, update_seconds=2.0)


def config_of(**changes: Any) -> PretrainConfig:
    plain = {
        "architecture": Architecture(),
        "sequence_length": 128,
        "steps": 10,
        "schedule_steps": 10,
        "warmup_steps": 1,
        "batch_size": 256,
        "learning_rate": 1e-4,
        "max_predictions_per_seq": 20,
        "precision": "bf16",
    }
    return PretrainConfig.model_validate(plain | changes)


def test_a_step_has_as_many_parts_as_it_has_rows_for_and_one_update() -> None:
    assert step_seconds(256, SPEED) == 32 * 0.5 + 2  # 256 / 8 parts


def test_hours_by_hand() -> None:
    """900,000 steps of 18 s; 90 evaluations of 640 parts, each a third of 0.5 s."""
    seconds = 900_000 * 18 + 90 * 640 * 0.5 / 3
    assert hours(WORK, SPEED, 1) == pytest.approx(seconds / 3600, rel=1e-12)
    assert hours(WORK, SPEED, 1) == pytest.approx(4502.6667, abs=1e-4)
    assert hours(WORK, SPEED, 8) == pytest.approx(4502.6667 / 8, abs=1e-4)
    assert hours(WORK, SPEED, 64) == pytest.approx(4502.6667 / 64, abs=1e-4)


def test_the_last_step_is_evaluated_too() -> None:
    """25 steps, evaluated after 10, 20 and 25: 3 · 8 rows of a third of 1 s for 8 rows."""
    assert hours(Work(25, 8, 10, 8), Speed(8, 1.0, 0.0), 1) == pytest.approx((25 + 3 / 3) / 3600)


def test_a_limit_of_hours_and_a_batch_that_can_not_be_split() -> None:
    assert hours(Work(900_000, 256, 10_000, 5_120, max_hours=100), SPEED, 1) == 100
    assert hours(Work(900_000, 256, 10_000, 5_120, max_hours=100), SPEED, 64) == pytest.approx(70.354, abs=1e-3)
    assert hours(Work(10, 32, 10, 0), SPEED, 64) is None


def test_a_stated_device_is_its_peak_times_the_share_that_is_reached() -> None:
    """BERT base at 128 without padding: 6 operations a parameter of its layers and token, within a tenth (Kaplan et al. 2020);
    an H200 does 989.4e12 a second."""
    speed = stated_speed("nvidia h200", 0.4, Architecture(), 30522, config_of(), 128)
    assert speed.rows == 256 and speed.update_seconds == 0
    layers = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert speed.part_seconds == pytest.approx(6 * layers * 128 * 256 / (0.4 * 989.4e12), rel=0.10)
    half = stated_speed("NVIDIA H200", 0.2, Architecture(), 30522, config_of(), 128)
    assert half.part_seconds == pytest.approx(2 * speed.part_seconds)
    a100 = stated_speed("A100", 0.4, Architecture(), 30522, config_of(), 128)
    assert a100.part_seconds / speed.part_seconds == pytest.approx(989.4 / 312)


def test_devices_and_precisions_without_a_known_peak_are_refused() -> None:
    with pytest.raises(RecipeError, match="no peak is known for 'Z80'"):
        stated_speed("Z80", 0.4, Architecture(), 30522, config_of(), 128)
    with pytest.raises(RecipeError, match="pretrained_128 is trained in fp32"):
        stated_speed("H200", 0.4, Architecture(), 30522, config_of(precision="fp32"), 128)


def test_padding_costs_what_its_tokens_would() -> None:
    """Rows of half the length have a little less than half the operations: attention has a quarter."""
    whole, half = (
        training_flops(Architecture(), 30522, random_rows(4, n, config_of(sequence_length=512), 30522))
        for n in (512, 256)
    )
    assert 0.40 * whole < half < 0.5 * whole
