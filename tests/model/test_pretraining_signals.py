"""SIGTERM and SIGINT at any time: the process saves within a step and exits 143; the next one gives the same bytes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model import checkpoint
from model.processes.child import STOPPED, Stop
from model.training.pretraining_loop import train
from pipeline.stage import ROOT
from tests.model.test_pretraining import config_of, files, job
from tests.model.tiny import write_shards

STEPS = 40
LOSSES = "model.training.pretraining_loop:pretraining_losses"
"""three times a step, six times an evaluation, and three times before the first step (the rehearsal)"""
TERM, INT = signal.SIGTERM, signal.SIGINT


def short(folder: Path, shards: Path) -> Path:
    """40 steps in three parts each, a checkpoint at every fifth, an evaluation at every tenth."""
    config = config_of(steps=STEPS, schedule_steps=STEPS, evaluate_every=10)
    return job(folder, shards, config, micro_batch_tokens=32, checkpoint_steps=5)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, shards: Path) -> Path:
    folder = short(tmp_path_factory.mktemp("whole"), shards)
    assert train(folder, Stop())
    return folder


def signalled(folder: Path, point: str, count: int, signals: list[signal.Signals]) -> tuple[int, str]:
    """A training process that gets signals while it is within the COUNT-th call; its exit code and what it printed."""
    command = [sys.executable, "-m", "tests.model.killed", str(folder), point, str(count), "wait"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True
    )
    while not (folder / "here").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    for number in signals:
        process.send_signal(number)
        time.sleep(0.05)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.parametrize(
    ("point", "count", "signals", "least", "most"),
    [
        pytest.param("model.training.pretraining_loop:open_device", 1, [TERM], 0, 0, id="while it starts"),
        pytest.param(LOSSES, 3 + 3 * 22 + 6 * 2 + 2, [INT], 22, 22, id="between the parts of a batch"),
        pytest.param("model.feeding.feed:Feed.rows", 3 + 3 * 17 + 1, [TERM], 17, 17, id="while it waits for data"),
        pytest.param("model.optimization.optimizer:AdamW.step", 3 + 23, [TERM], 23, 23, id="in the update"),
        pytest.param(
            "model.training.pretraining_loop:held_out_rows", 6 + 3, [INT, TERM], 20, 20, id="twice in an evaluation"
        ),
        pytest.param("model.checkpoint:save_tensors", 3, [TERM, TERM, INT], 5, 10, id="three times in a save"),
    ],
)
def test_a_signal_saves_within_a_step_and_the_next_process_goes_on_with_the_same_bytes(
    tmp_path: Path,
    shards: Path,
    whole: Path,
    point: str,
    count: int,
    signals: list[signal.Signals],
    least: int,
    most: int,
) -> None:
    folder = short(tmp_path / "run", shards)
    code, said = signalled(folder, point, count, signals)
    assert code == STOPPED, said
    assert "Traceback" not in said and f"stopped and saved: {signals[0].name}" in said
    assert not (folder / "result").exists()
    saved = checkpoint.newest(folder / "checkpoints")
    assert saved is not None and least <= saved.step <= most
    assert (folder / "checkpoints" / checkpoint.LATEST).read_text().strip() == saved.folder.name
    assert not list(folder.glob("heartbeat-*"))
    assert train(folder, Stop())
    assert files(folder / "result") == files(whole / "result")


def test_a_signal_while_the_result_is_written_lets_it_finish(tmp_path: Path, shards: Path, whole: Path) -> None:
    folder = short(tmp_path / "run", shards)
    code, said = signalled(folder, "model.training.pretraining_loop:published_scores", 1, [TERM])
    assert code == 0, said
    assert files(folder / "result") == files(whole / "result")
