"""Several processes that train one model together give what one gives, and go on from each other's checkpoints."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from model import checkpoint
from model.processes import heartbeat, launcher, lines
from model.processes.child import Stop
from model.training.pretraining_loop import train
from pipeline import progress
from pipeline.errors import ProcessLost
from pipeline.settings import TrainingSettings
from pipeline.stage import ROOT
from tests.model.test_pretraining import config_of, job
from tests.model.tiny import ARCHITECTURE, write_shards

DRY = ARCHITECTURE.model_copy(update={"dropout": 0.0}).plain()
"""without dropout: its random numbers are others in every process"""


def prepared(folder: Path, shards: Path, training: dict[str, Any], **changes: Any) -> Path:
    config = config_of(**{"architecture": DRY, "log_every": 1, "learning_rate": 1e-3, **changes})
    return job(folder, shards, config, **training)


def launch(folder: Path, ranks: int, **training: Any) -> None:
    settings = TrainingSettings(device="cpu", threads=1, **training)
    launcher.run("model.pretrain", folder, 48, settings=settings, ranks=ranks, poll_seconds=0.05)


def curve(folder: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in lines.read(folder / "metrics.jsonl") if "loss" in row]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, shards: Path) -> Path:
    folder = prepared(tmp_path_factory.mktemp("alone"), shards, {})
    assert train(folder, Stop())
    return folder


def test_parts_of_a_batch_give_its_gradient(tmp_path: Path, shards: Path, alone: Path) -> None:
    """Batches of 6 in parts of 4 and 2, with masked words in unequal numbers."""
    folder = prepared(tmp_path / "run", shards, {"micro_batch_tokens": 64})
    assert train(folder, Stop())
    assert [step for step, _ in curve(folder)] == list(range(1, 49))
    for (_, loss), (_, expected) in zip(curve(folder), curve(alone), strict=True):
        assert loss == pytest.approx(expected, rel=1e-5)


def test_two_processes_give_the_curve_of_one_and_one_goes_on_where_two_stopped(
    tmp_path: Path, shards: Path, alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """5 sequences in one process and 4 in the other would be 9: here 6, three each; held-out parts are shared too."""
    two = prepared(tmp_path / "two", shards, {})
    launch(two, ranks=2)
    for (_, loss), (_, expected) in zip(curve(two), curve(alone), strict=True):
        assert loss == pytest.approx(expected, rel=1e-5)
    scores, expected_scores = (json.loads((f / "result" / "held_out.json").read_text()) for f in (two, alone))
    assert scores["mlm_loss"] == pytest.approx(expected_scores["mlm_loss"], abs=1e-4)
    assert scores["nsp_accuracy"] == expected_scores["nsp_accuracy"]
    starts = [row for row in lines.read(two / "timing.jsonl") if "ranks" in row]
    assert [row["ranks"] for row in starts] == [2]
    assert not list(two.glob("heartbeat-*")) and not (two / "cancel").exists()

    cut = prepared(tmp_path / "cut", shards, {"checkpoint_steps": 1}, steps=48)
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "model.pretrain", str(cut)],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(lambda: len(curve(cut)) >= 10)
    (cut / "cancel").touch()
    process.wait(60)
    (cut / "cancel").unlink()
    saved = checkpoint.newest(cut / "checkpoints")
    assert saved is not None and saved.state["place"]["ranks"] == 2
    assert train(cut, Stop())
    assert "ranks 2 → 1" in capsys.readouterr().err
    assert [step for step, _ in curve(cut)] == list(range(1, 49))
    for (_, loss), (_, expected) in zip(curve(cut), curve(alone), strict=True):
        assert loss == pytest.approx(expected, rel=1e-5)


def test_two_processes_take_the_parts_that_the_first_one_found(tmp_path: Path, shards: Path, alone: Path) -> None:
    """Two rows of 16 tokens of the three that are each one's; without the note both would compute all three at once."""
    two = prepared(tmp_path / "two", shards, {"micro_batch_tokens": "auto"})
    (two / "micro_batch.json").write_text('{"micro_batch_tokens": 32}')
    launch(two, ranks=2)
    for (_, loss), (_, expected) in zip(curve(two), curve(alone), strict=True):
        assert loss == pytest.approx(expected, rel=1e-5)
    saved = checkpoint.newest(two / "checkpoints")
    assert saved is not None and saved.state["place"] | {"device": ""} == {
        "device": "",
        "threads": 1,
        "ranks": 2,
        "micro_batch_tokens": 32,
    }


def test_three_processes_share_batches_that_three_does_not_divide(tmp_path: Path, shards: Path) -> None:
    """Batches of 5 (2, 2 and 1 sequences), in parts of one."""
    one = prepared(tmp_path / "one", shards, {}, batch_size=5, steps=12, schedule_steps=12)
    assert train(one, Stop())
    three = prepared(tmp_path / "three", shards, {"micro_batch_tokens": 16}, batch_size=5, steps=12, schedule_steps=12)
    launch(three, ranks=3)
    for (_, loss), (_, expected) in zip(curve(three), curve(one), strict=True):
        assert loss == pytest.approx(expected, rel=1e-5)


def test_a_process_that_is_stopped_is_found_and_the_others_say_where_they_wait(tmp_path: Path, shards: Path) -> None:
    """SIGSTOP to one of two: the other waits for its gradients, and ends itself."""
    folder = prepared(tmp_path / "run", shards, {"hang_seconds": 4}, steps=100_000, schedule_steps=100_000)
    settings = TrainingSettings(device="cpu", threads=1, hang_seconds=4)
    stopped: list[int] = []

    def stop_one(_: Any) -> None:
        found = folder / "heartbeat-1"
        if not stopped and found.exists() and len(curve(folder)) > 3:
            stopped.append(json.loads(found.read_text())["pid"])
            os.kill(stopped[0], signal.SIGSTOP)

    with pytest.raises(ProcessLost) as failed, progress.listen(stop_one):
        launcher.run("model.pretrain", folder, 100_000, settings=settings, ranks=2, poll_seconds=0.05)
    assert stopped
    assert "rank 0 has made no progress" in failed.value.what or "no sign of life" in failed.value.what
    log = (folder / "stderr.log").read_text()
    assert "rank 0 has made no progress for" in log and "replicas.py" in log
    wait_for(lambda: not Path(f"/proc/{stopped[0]}").exists())
    assert not heartbeat.pids(folder)


class Cancel(BaseException):
    """As Dagster's interrupt: no Exception."""


def trained_in(folder: Path) -> list[int]:
    """Processes that have this run folder as an argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(folder) in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


@pytest.mark.slow
def test_two_processes_lose_one_then_their_launcher_then_are_cancelled_and_nothing_is_lost(
    tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    steps = {"steps": 600, "schedule_steps": 600, "evaluate_every": 600}
    whole = prepared(tmp_path / "whole", shards, {}, **steps)
    assert train(whole, Stop())
    folder = prepared(tmp_path / "run", shards, {"checkpoint_steps": 20}, **steps)
    settings = TrainingSettings(device="cpu", threads=1)

    def saved_at() -> int:
        found = checkpoint.newest(folder / "checkpoints")
        return 0 if found is None else found.step

    killed: list[int] = []

    def kill_one(_: Any) -> None:
        if not killed and len(curve(folder)) > 50:
            killed.append(json.loads((folder / "heartbeat-1").read_text())["pid"])
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(ProcessLost) as lost, progress.listen(kill_one):
        launcher.run("model.pretrain", folder, 600, settings, ranks=2, poll_seconds=0.05)
    assert f"rank 1 (pid {killed[0]}) was killed by SIGKILL" in lost.value.what
    assert not trained_in(folder)
    assert saved_at() >= 40

    code = "import sys; from pathlib import Path; from model.processes import launcher; launcher.run('model.pretrain', Path(sys.argv[1]), 600, ranks=2)"
    before = saved_at()
    parent = subprocess.Popen(
        [sys.executable, "-c", code, f"{folder}/"], cwd=ROOT
    )  # another spelling than its children's
    wait_for(lambda: len(curve(folder)) > before + 50)
    parent.kill()
    parent.wait()
    wait_for(lambda: not trained_in(folder))
    assert before + 50 <= saved_at() == curve(folder)[-1][0], "it saved where it was"

    before = saved_at()

    def cancel(now: progress.Progress) -> None:
        if now.done > before + 20:
            raise Cancel

    with pytest.raises(Cancel), progress.listen(cancel):
        launcher.run("model.pretrain", folder, 600, settings, ranks=2, poll_seconds=0.05)
    assert not trained_in(folder) and not (folder / "cancel").exists()
    assert before + 20 <= saved_at() == curve(folder)[-1][0]

    assert train(folder, Stop())
    assert [step for step, _ in curve(folder)] == list(range(1, 601))
    for (_, loss), (_, expected) in zip(curve(folder), curve(whole), strict=True):
        assert loss == pytest.approx(expected, rel=1e-4)


def test_a_single_process_that_is_stopped_is_killed_and_named(tmp_path: Path, shards: Path) -> None:
    folder = prepared(tmp_path / "run", shards, {"hang_seconds": 4}, steps=100_000, schedule_steps=100_000)
    settings = TrainingSettings(device="cpu", threads=1, hang_seconds=4)

    def stop_it(_: Any) -> None:
        if len(curve(folder)) > 3:
            for pid in heartbeat.pids(folder):
                os.kill(pid, signal.SIGSTOP)

    what = r"rank 0 \(pid \d+, step \d+\) gave no sign of life"
    with pytest.raises(ProcessLost, match=what), progress.listen(stop_it):
        launcher.run("model.pretrain", folder, 100_000, settings=settings, poll_seconds=0.05)


def wait_for(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
