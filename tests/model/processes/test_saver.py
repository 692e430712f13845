"""Checkpoints written beside the training."""

import errno
import threading
from pathlib import Path

import pytest
import torch

from model import checkpoint
from model.processes.saver import Saver
from pipeline.errors import DataError


def test_what_is_written_is_what_was_there_when_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    save_tensors = checkpoint.save_tensors

    def slow(*arguments: object) -> None:
        assert go.wait(10)
        save_tensors(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "save_tensors", slow)
    weight = torch.arange(1000.0)
    saver = Saver(tmp_path, keep=2)
    saver.save(7, {"model": {"weight": weight}}, {"step": 7})
    weight.add_(1)  # the next step
    assert checkpoint.steps(tmp_path) == []
    go.set()
    saver.wait()
    found = checkpoint.newest(tmp_path)
    assert found is not None and torch.equal(found.tensors("model")["weight"], torch.arange(1000.0))
    assert (tmp_path / "LATEST").read_text() == "step-0000000007\n"


def test_milestones_stay(tmp_path: Path) -> None:
    saver = Saver(tmp_path, keep=2, milestone_steps=10)
    for step in (5, 10, 15, 20, 25, 30):
        saver.save(step, {"model": {"weight": torch.full((2,), float(step))}}, {})
    saver.wait()
    assert [checkpoint.step_of(path) for path in checkpoint.steps(tmp_path)] == [30, 25, 20, 10]


def test_what_goes_wrong_is_raised_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_tensors", full)
    saver = Saver(tmp_path, keep=2)
    saver.save(1, {"model": {"weight": torch.zeros(2)}}, {})
    with pytest.raises(Exception, match="disk is full|No space"):
        saver.wait()
    saver.check()  # said once
    assert checkpoint.steps(tmp_path) == [] and not (tmp_path / "LATEST").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_poisoned_weights_are_no_checkpoint(tmp_path: Path, value: float) -> None:
    good = checkpoint.save(tmp_path, 1, {"model": {"weight": torch.zeros(2)}}, {})
    with pytest.raises(DataError, match="weight"):
        checkpoint.save(tmp_path, 2, {"model": {"weight": torch.tensor([0.0, value])}}, {}, keep=2)
    assert checkpoint.steps(tmp_path) == [good] and (tmp_path / "LATEST").read_text() == f"{good.name}\n"
