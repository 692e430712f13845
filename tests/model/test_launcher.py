"""The launcher with real processes and real signals."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model import child, launcher
from pipeline import atomic, progress
from pipeline.errors import TrainingError
from pipeline.stage import ROOT

MODULE = "tests.model.launched"


def prepared(folder: Path, **config: Any) -> Path:
    atomic.write_json(folder / "config.json", config)
    return folder


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


def running(pid: int) -> bool:
    """Whether the process runs; one that ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Cancel(BaseException):
    """As Dagster's interrupt: no Exception."""


def cancelling(folder: Path, after: Callable[[], Any]) -> Callable[[progress.Progress], None]:
    def listener(report: progress.Progress) -> None:
        if after():
            raise Cancel

    return listener


def test_progress_is_forwarded_and_the_end_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    seen: list[progress.Progress] = []
    with progress.listen(seen.append):
        launcher.run(MODULE, prepared(tmp_path, steps=40), total=40, poll_seconds=0.05)
    assert seen[-1].done == 40 and seen[-1].total == 40 and seen[-1].unit == "steps"
    assert seen[-1].measured == {"loss": 1 / 40}
    done = [report.done for report in seen]
    assert done == sorted(done) and any(0 < value < 40 for value in done)


@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        (
            "error",
            ["exit code 1", "reading the shards", "error: the gradients are not finite", "Lower the learning rate."],
        ),
        ("crash", ["exit code 1", "reading the shards", "Traceback", "ValueError: a bug"]),
    ],
)
def test_a_failure_shows_the_end_of_the_log_of_this_attempt(tmp_path: Path, fail: str, expected: list[str]) -> None:
    (tmp_path / "stderr.log").write_text("from an attempt before\n")
    with pytest.raises(TrainingError) as failed:
        launcher.run(MODULE, prepared(tmp_path, steps=1, fail=fail), total=1)
    for text in expected:
        assert text in failed.value.what
    assert "an attempt before" not in failed.value.what
    assert "stderr.log" in failed.value.todo
    assert ("Traceback" in failed.value.what) == (fail == "crash")


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"config\.json"):
        launcher.run(MODULE, tmp_path, total=1)


def test_a_process_killed_from_outside_is_an_error_that_says_so(tmp_path: Path) -> None:
    prepared(tmp_path, steps=2000)

    def kill() -> None:
        wait_for((tmp_path / "metrics.jsonl").exists)
        os.kill(pid_of(tmp_path), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(TrainingError, match="was killed by SIGKILL"):
        launcher.run(MODULE, tmp_path, total=2000, poll_seconds=0.05)
    killer.join()


def pid_of(folder: Path) -> int:
    """The process whose last argument is this run folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if MODULE.encode() in arguments and str(folder).encode() in arguments:
            return int(path.parent.name)
    raise AssertionError("no such process")


def test_whatever_ends_the_caller_stops_the_process_which_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    prepared(tmp_path, steps=2000)
    listener = cancelling(tmp_path, (tmp_path / "metrics.jsonl").exists)
    with pytest.raises(Cancel), progress.listen(listener):
        launcher.run(MODULE, tmp_path, total=2000, poll_seconds=0.05)
    assert (tmp_path / "saved").exists()


def test_a_process_that_does_not_stop_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    prepared(tmp_path, steps=2000, deaf=True)
    grandchild = tmp_path / "grandchild"
    listener = cancelling(tmp_path, lambda: grandchild.exists() and grandchild.read_text())
    with pytest.raises(Cancel), progress.listen(listener):
        launcher.run(MODULE, tmp_path, total=2000, grace_seconds=0.3, poll_seconds=0.05)
    assert not (tmp_path / "saved").exists()
    wait_for(lambda: not running(int(grandchild.read_text())))
    assert "did not end within 0.3 s and is killed" in capfd.readouterr().err


def test_when_the_launcher_is_killed_the_process_saves_and_ends(tmp_path: Path) -> None:
    prepared(tmp_path, steps=100_000)
    code = (
        "import sys; from pathlib import Path; from model import launcher; "
        f"launcher.run({MODULE!r}, Path(sys.argv[1]), total=None)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT)
    wait_for((tmp_path / "metrics.jsonl").exists)
    pid = pid_of(tmp_path)
    parent.kill()
    parent.wait()
    wait_for((tmp_path / "saved").exists)
    wait_for(lambda: not running(pid))


def test_a_signal_to_the_process_makes_exit_code_143(tmp_path: Path) -> None:
    prepared(tmp_path, steps=100_000)
    process = subprocess.Popen([sys.executable, "-m", MODULE, str(tmp_path)], cwd=ROOT)
    wait_for((tmp_path / "metrics.jsonl").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 143


def test_one_process_at_a_time_in_a_run_folder(tmp_path: Path) -> None:
    held = child.hold(tmp_path)
    with pytest.raises(TrainingError, match="another process trains"):
        child.hold(tmp_path, seconds=0.2)
    os.close(held)
    os.close(child.hold(tmp_path, seconds=0.2))
