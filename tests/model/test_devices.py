"""What of devices can be seen without any but the CPU: refusals, and batches of one shape."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from model.bert import BertForPretraining, initialize, pretraining_losses
from model.devices import open_device
from model.feeding.batches import IGNORED, batch_of
from model.layers.unpadded import unpadded_of
from model.tuning.finetuning_loop import _device
from pipeline.errors import TrainingError
from pipeline.settings import TrainingSettings
from pipeline.stage import ROOT
from tests.model.tiny import ARCHITECTURE, VOCABULARY, read_shards, rows_of, write_rows


@pytest.mark.skipif(importlib.util.find_spec("torch_xla") is not None, reason="torch-xla is here")
def test_xla_without_torch_xla_says_what_to_do() -> None:
    with pytest.raises(TrainingError, match="torch-xla can't be imported") as failed:
        open_device("xla", 1)
    assert "make xla-env" in failed.value.todo


def test_settings_that_xla_can_not_follow_are_refused() -> None:
    assert TrainingSettings(device="xla").device == "xla"
    with pytest.raises(ValueError, match="leave ranks at 1"):
        TrainingSettings(device="xla", ranks=2)
    with pytest.raises(ValueError, match="with device: xla write a number"):
        TrainingSettings(device="xla", micro_batch_tokens="auto")
    with pytest.raises(ValueError, match="activation_checkpointing is not available with device: xla"):
        TrainingSettings(device="xla", activation_checkpointing=True)


def test_fine_tuning_runs_on_the_cpu_where_xla_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert _device(TrainingSettings(device="xla", threads=torch.get_num_threads())).kind == "cpu"
    assert "fine-tuning runs on the CPU" in capsys.readouterr().err


def test_a_batch_that_is_filled_up_has_the_losses_and_gradients_of_its_rows(tmp_path: Path) -> None:
    """Three rows of 8 with three masked words each, of which two rows are real."""
    rows = read_shards(write_rows(tmp_path / "train", rows_of(2, 8, 1), len(VOCABULARY)))
    filled = batch_of(rows, 16, predictions=3, height=3)
    assert filled.input_ids.shape == (3, 8) and filled.positions.shape == (3, 4) and filled.masked_ids.shape == (9,)
    assert filled.labels is not None and filled.masked_weights is not None
    assert filled.attention_mask[2].tolist() == [True, *[False] * 7]
    assert filled.labels.tolist()[2] == IGNORED and filled.masked_weights.sum() == len(rows.masked_ids)
    assert filled.tokens == rows.lengths.sum() and np.array_equal(filled.token_type_ids[2], np.zeros(8))
    model = BertForPretraining(ARCHITECTURE.model_copy(update={"dropout": 0.0}), len(VOCABULARY), "nsp").double()
    initialize(model, 1)
    found = []
    for batch in (unpadded_of(rows), filled):
        for totals in ({}, {"batch_words": 5.0, "batch_rows": 7.0}):
            words, pairs = batch.logits(model)
            losses = pretraining_losses(
                words, batch.masked_ids, pairs, batch.labels, masked_weights=batch.masked_weights, **totals
            )
            model.zero_grad()
            losses.total.backward()
            found.append((losses.total.detach(), *[p.grad for p in model.parameters()]))
    for wanted, ours in ((found[0], found[2]), (found[1], found[3])):
        for expected, value in zip(wanted, ours, strict=True):
            torch.testing.assert_close(value, expected, atol=1e-10, rtol=0)


def test_the_xla_environment_differs_from_the_other_by_torch_alone() -> None:
    """Its lock is a copy: a pin that is raised in one must be raised in the other."""

    def pins(name: str) -> dict[str, str]:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        return dict(line.split("==") for line in lines if "==" in line)

    ours, theirs = pins("requirements.lock"), pins("requirements-xla.lock")
    assert {name for name in ours if theirs.get(name) != ours[name]} == {"torch"}
    assert set(theirs) - set(ours) == {"torch-xla", "libtpu"}
