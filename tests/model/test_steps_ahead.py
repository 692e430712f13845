"""A device that is some steps ahead of the host leaves the bytes of one that is waited for at every step.

The CPU stands for it: it is told to be 8 steps ahead, so that the loop reads results late and the update decides by itself
whether it counts.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from model.devices.cpu import Cpu
from model.optimization.lamb import Lamb
from model.optimization.optimizer import AdamW, Optimizer, clip_gradients, clip_gradients_ahead
from model.processes import lines
from model.processes.child import Stop
from model.training import pretraining_loop
from model.training.pretraining_loop import train
from pipeline.stage import ROOT
from tests.model.killed import AHEAD
from tests.model.test_pretraining import StopAt, config_of, files, job
from tests.model.test_pretraining_guards import poisoned  # noqa: F401  a fixture
from tests.model.tiny import write_shards


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(tmp_path_factory.mktemp("shards"))


def ahead(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes the CPU run ahead; the list gets how many steps were read together, each time."""
    together: list[int] = []
    settle_all = pretraining_loop._Run._settle_all

    def counted(run: Any) -> None:
        together.append(len(run.ahead))
        settle_all(run)

    monkeypatch.setattr(Cpu, "steps_ahead", AHEAD)
    monkeypatch.setattr(pretraining_loop._Run, "_settle_all", counted)
    return together


@pytest.mark.parametrize(
    ("changes", "training"),
    [
        ({}, {}),
        ({"optimizer": "lamb", "bias_correction": True, "max_gradient_norm": 0.3}, {}),
        ({"bias_correction": True, "precision": "bf16"}, {"micro_batch_tokens": 32, "checkpoint_steps": 5}),
        ({"publish": "best", "decay_steps": 10, "evaluate_every": 5}, {}),
    ],
    ids=["adamw", "lamb", "in parts", "best and stable"],
)
def test_bytes_are_those_of_a_device_that_is_waited_for(
    tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], training: dict[str, Any]
) -> None:
    config = config_of(log_every=20, **changes)
    waited = job(tmp_path / "waited", shards, config, **training)
    assert train(waited, Stop())
    together = ahead(monkeypatch)
    run = job(tmp_path / "ahead", shards, config, **training)
    assert train(run, Stop())
    assert files(run / "result") == files(waited / "result")
    assert max(together) == (5 if training or "evaluate_every" in changes else AHEAD + 1)


@pytest.mark.parametrize("looks", [7, 21, 33])
def test_stopping_and_going_on(tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    waited = job(tmp_path / "waited", shards, config_of())
    assert train(waited, Stop())
    run = job(tmp_path / "run", shards, config_of())
    with monkeypatch.context() as patched:
        ahead(patched)
        assert not train(run, StopAt(looks))
    assert train(run, Stop())
    assert files(run / "result") == files(waited / "result")
    ahead(monkeypatch)
    again = job(tmp_path / "again", shards, config_of())
    while not train(again, StopAt(looks)):
        pass
    assert files(again / "result") == files(waited / "result")


@pytest.mark.parametrize("seed", [1, 2])
def test_going_around_batches_without_a_finite_gradient(
    tmp_path: Path,
    poisoned: tuple[Path, Path],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """The steps behind the eleventh bad one, which the device has made already, are forgotten."""
    shards, before = poisoned
    changes = {"steps": 60, "schedule_steps": 60, "log_every": 17, "evaluate_every": 25, "learning_rate": 0.003}
    config = config_of(seed=seed, bias_correction=seed > 1, **changes)
    waited = job(tmp_path / "waited", shards, config, before)
    assert train(waited, Stop())
    rows = lines.read(waited / "result" / "metrics.jsonl")
    assert any("passed_over" in row for row in rows) and rows[-2]["skipped_steps"] >= 1
    ahead(monkeypatch)
    for name, seconds, looks in (("whole", 60.0, 1000), ("often", 1e-9, 1000), ("stopped", 60.0, 40)):
        run = job(tmp_path / name, shards, config, before, seconds=seconds)
        while not train(run, StopAt(looks)):
            pass
        assert files(run / "result") == files(waited / "result")
        events = [
            [row for row in lines.read(folder / "timing.jsonl") if "rolled_back_from" in row]
            for folder in (run, waited)
        ]
        assert [e["batches"] for e in events[0]] == [e["batches"] for e in events[1]]


@pytest.mark.parametrize("count", [3 + 1, 3 + 30, 3 + 48])
def test_a_killed_run(tmp_path: Path, shards: Path, count: int) -> None:
    """kill −9 in an update while results of others are unread; three updates are rehearsed before."""
    waited = job(tmp_path / "waited", shards, config_of(log_every=19), checkpoint_steps=11)
    assert train(waited, Stop())
    run = job(tmp_path / "run", shards, config_of(log_every=19), checkpoint_steps=11)
    assert killed(run, count).returncode == -signal.SIGKILL
    assert killed(run, 0).returncode == 0
    assert files(run / "result") == files(waited / "result")


def killed(folder: Path, count: int, *launcher: str) -> subprocess.CompletedProcess[bytes]:
    arguments = [
        "-m",
        "tests.model.killed",
        str(folder),
        "model.optimization.optimizer:AdamW.step",
        str(count),
        "ahead",
    ]
    return subprocess.run(
        [sys.executable, *launcher, *arguments], cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=120
    )


def test_two_processes_that_are_ahead(tmp_path: Path, shards: Path) -> None:
    two = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    waited = job(tmp_path / "waited", shards, config_of())
    subprocess.run([sys.executable, *two, "-m", "model.pretrain", str(waited)], cwd=ROOT, check=True, timeout=120)
    run = job(tmp_path / "run", shards, config_of())
    assert killed(run, 0, *two).returncode == 0
    assert files(run / "result") == files(waited / "result")


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize("kind", [AdamW, Lamb])
def test_an_update_that_does_not_count_changes_nothing(kind: type[Optimizer], correct: bool) -> None:
    """Steps 3 and 4 of 6 have no finite gradient: the others are steps 1 to 4 of a run without them, to the last bit."""

    def run(gradients: list[float], asked_first: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
        weight = nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))
        optimizer = kind([("w", weight)], bias_correction=correct)
        for number, gradient in enumerate(gradients):
            weight.grad = torch.full((2, 3), gradient) * torch.arange(6).reshape(2, 3)
            if asked_first:
                clip_gradients([weight], 0.3)
                optimizer.step(0.1 / (number + 1))
            else:
                norm = clip_gradients_ahead([weight], 0.3)
                made = sum(abs(g) < torch.inf for g in gradients[:number])
                optimizer.step(0.1 / (made + 1), norm.isfinite())
        return weight.detach(), optimizer.state(), optimizer.updates

    bad = float("inf")
    weight, state, updates = run([0.5, -0.2, 1e-3, 3.0], asked_first=True)
    found, found_state, found_updates = run([0.5, -0.2, bad, bad, 1e-3, 3.0], asked_first=False)
    assert torch.equal(found, weight) and found_updates == updates == 4
    assert all(torch.equal(found_state[name], moment) for name, moment in state.items())
