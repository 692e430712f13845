"""A run that is cut anywhere gives the bytes of one that never was, and uses every sample exactly once."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model import checkpoint
from model.feeding.order import rows_at
from model.processes import lines
from model.processes.child import Stop
from model.training.pretraining_loop import train
from pipeline.sharding.shard_reader import ShardReader
from pipeline.stage import ROOT
from tests.model.test_pretraining import config_of, files, job
from tests.model.tiny import write_shards

STEPS = 200
"""of 6 sequences out of 40: an epoch is 6⅔ steps, warm-up is 20 steps"""


def run(folder: Path, point: str = "model.pretrain:main", count: int = 0, log: bool = False) -> int:
    """`python -m tests.model.killed`; returns its exit code."""
    command = [sys.executable, "-m", "tests.model.killed", str(folder), point, str(count), *(["log"] if log else [])]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=120).returncode


def long(folder: Path, shards: Path, previous: Path | None = None, **training: Any) -> Path:
    """A job of 200 steps, each in three parts, that saves at every fifth step."""
    config = config_of(
        steps=STEPS, schedule_steps=STEPS * 2, first_step=0 if previous is None else STEPS, warmup_steps=20,
        log_every=9, evaluate_every=50,
    )  # fmt: skip
    return job(
        folder, shards, config, previous, seconds=1000, **{"micro_batch_tokens": 32, "checkpoint_steps": 5, **training}
    )


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, shards: Path) -> Path:
    folder = long(tmp_path_factory.mktemp("whole"), shards)
    assert train(folder, Stop())
    return folder


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory, shards: Path, whole: Path) -> Path:
    """The phase after it."""
    folder = long(tmp_path_factory.mktemp("second"), shards, whole / "result")
    assert train(folder, Stop())
    return folder


LOSSES = "model.training.pretraining_loop:pretraining_losses"
"""three times a step, twice an evaluation, and three times before the first step (the rehearsal)"""
UPDATE = "model.optimization.optimizer:AdamW.step"
"""once a step, and three times before the first"""


@pytest.mark.parametrize(
    ("point", "count"),
    [
        pytest.param(LOSSES, 3 + 1, id="step 0"),
        pytest.param(LOSSES, 3 + 3 * 100 + 2 * 2 + 2, id="inside the accumulation of step 100"),
        pytest.param(LOSSES, 3 + 3 * 46 + 3, id="inside the step that holds an epoch's edge"),
        pytest.param("model.training.pretraining_loop:held_out_rows", 3, id="during an evaluation"),
        pytest.param("model.checkpoint:save_tensors", 2 * 20 + 1, id="during a save, weights half written"),
        pytest.param("model.checkpoint:save_tensors", 2 * 20 + 2, id="during a save, optimizer half written"),
        pytest.param("pipeline.system.atomic:rename_folder", 11, id="during a save, before its rename"),
        pytest.param(UPDATE, 3 + 21, id="the first step after warm-up"),
        pytest.param(UPDATE, 3 + STEPS, id="last step"),
        pytest.param("model.checkpoint:write_verified", STEPS // 5 + 1, id="before the result"),
    ],
)
def test_a_killed_run_gives_the_bytes_of_one_that_never_was(
    tmp_path: Path, shards: Path, whole: Path, point: str, count: int
) -> None:
    folder = long(tmp_path / "run", shards)
    assert run(folder, point, count) == -signal.SIGKILL
    assert not (folder / "result").exists()
    assert train(folder, Stop())
    assert files(folder / "result") == files(whole / "result")


def test_a_run_killed_between_the_phases_goes_on(tmp_path: Path, shards: Path, whole: Path, second: Path) -> None:
    """128 is published, the process of 512 is killed before its first step."""
    folder = long(tmp_path / "run", shards, whole / "result")
    assert run(folder, LOSSES, 4) == -signal.SIGKILL
    assert not checkpoint.steps(folder / "checkpoints")
    assert train(folder, Stop())
    assert files(folder / "result") == files(second / "result")


def test_five_kills_in_one_epoch_use_every_sample_exactly_once(tmp_path: Path, shards: Path, whole: Path) -> None:
    """Of what each process did, that counts which its successor could go on from: up to the checkpoint it found."""
    folder = long(tmp_path / "run", shards, checkpoint_steps=1)
    used: list[str] = []
    log = folder / "samples.log"
    epoch = 16  # steps 106⅔ to 113⅓
    assert run(folder, UPDATE, 3 + 107, log=True) == -signal.SIGKILL
    kills = 0
    while True:
        found = checkpoint.newest(folder / "checkpoints")
        assert found is not None
        # The rehearsal's three look-ups of a process come before its first step's.
        used += rehearsed_away(log, found.step, len(used) // 3)
        log.unlink()
        code = run(folder, UPDATE, 3 + 2 if kills < 5 else 0, log=True)
        kills += 1
        if code == 0:
            break
        assert code == -signal.SIGKILL
    used += rehearsed_away(log, STEPS, len(used) // 3)
    assert kills == 6
    batches = [int(line.partition(":")[0]) for line in used]
    assert batches == [step for step in range(STEPS) for _ in range(3)]
    samples = [int(number) for line in used for number in line.partition(":")[2].split()]
    assert samples == list(range(STEPS * 6))
    reader = ShardReader(shards / "train")
    rows = rows_at(epoch * 40, 40, reader.sizes, 5)
    assert Counter(rows.tolist()) == Counter(range(40))
    assert files(folder / "result") == files(whole / "result")
    logged = [row["step"] for row in lines.read(folder / "result" / "metrics.jsonl") if "loss" in row]
    assert logged == [*range(9, STEPS, 9), STEPS]


def rehearsed_away(log: Path, end: int, begin: int) -> list[str]:
    """The log's lines of steps `begin` … `end` − 1, without the three of the rehearsal before them."""
    lines_of = log.read_text().splitlines()[3:]
    return [line for line in lines_of if begin <= int(line.partition(":")[0]) < end]


def test_samples_of_an_epoch_are_a_permutation() -> None:
    for epoch in range(5):
        rows = rows_at(epoch * 97, 97, np.array([40, 50, 7]), 3)
        assert sorted(rows.tolist()) == list(range(97))
