"""Random rows are rows of the recipe."""

from typing import Any

import numpy as np
import pytest

from model.feeding.batches import check
from model.feeding.random_rows import random_rows
from pipeline.config import PretrainConfig


def config_of(**changes: Any) -> PretrainConfig:
    plain = {
        "architecture": None,
        "sequence_length": 128,
        "steps": 1,
        "schedule_steps": 1,
        "warmup_steps": 0,
        "batch_size": 4,
        "learning_rate": 1,
    }
    return PretrainConfig.model_validate(plain | {"max_predictions_per_seq": 20} | changes)


@pytest.mark.parametrize(("length", "masked"), [(128, 20), (64, 10), (118, 18), (4, 1), (3, 1)])
def test_rows_have_masks_in_proportion(length: int, masked: int) -> None:
    rows = random_rows(5, length, config_of(), 100)
    check(rows, "random", 100, 128, "nsp")
    assert rows.lengths.tolist() == [length] * 5
    assert np.diff(rows.masked_offsets).tolist() == [masked] * 5
    assert rows.label is not None and rows.token_type_start is not None


def test_left_to_right_every_word_but_the_first_is_predicted() -> None:
    rows = random_rows(2, 16, config_of(objective="clm", sentence_task="none"), 100)
    check(rows, "random", 100, 128, "none")
    assert rows.masked_positions.tolist() == [*range(15), *range(15)]
    assert rows.label is None and rows.token_type_start is None
