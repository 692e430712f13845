"""The launcher with real processes and real signals."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from model.processes import child, launcher
from pipeline import progress
from pipeline.errors import ProcessLost, TrainingError
from pipeline.settings import TrainingSettings
from pipeline.stage import ROOT
from pipeline.system import atomic

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


def test_of_two_replicas_the_one_that_torchrun_did_not_end_is_named(tmp_path: Path) -> None:
    """torchrun ends the others by SIGTERM, and lists them before the one that failed first."""
    log = tmp_path / "torchrun.log"
    log.write_text(
        "Failures:\n[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 71)  (SIGTERM)\n"
        "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 72)  (SIGKILL)\n"
    )
    assert launcher._first_to_fail(log, 0) == ("rank 1 (pid 72)", -9)


def test_progress_is_forwarded_and_the_end_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    seen: list[progress.Progress] = []
    with progress.listen(seen.append):
        launcher.run(MODULE, prepared(tmp_path, steps=40), total=40, poll_seconds=0.05)
    assert seen[-1].done == 40 and seen[-1].total == 40 and seen[-1].unit == "steps"
    assert seen[-1].measured == {"loss": 1 / 40}
    done = [report.done for report in seen]
    assert done == sorted(done) and any(0 < value < 40 for value in done)


def test_what_a_process_says_of_its_length_is_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    timing = tmp_path / "timing.jsonl"
    timing.write_text('{"step": 0, "told": "of a start before"}\n')
    assert launcher._tell(tmp_path, launcher._told(tmp_path)) == "of a start before"
    with progress.listen(lambda now: None, told.append):
        said = launcher._told(tmp_path)
        with timing.open("a") as file:
            file.write('{"step": 3, "told": "about 6 h"}\n{"step": 5, "seconds": 1.0}\n')
        for _ in range(3):
            said = launcher._tell(tmp_path, said)
    assert told == ["about 6 h"]


@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        (
            "error",
            ["the gradients are not finite", "reading the shards"],
        ),
        (
            "crash",
            [
                f"{MODULE} ended with exit code 1: ValueError: a bug",
                "reading the shards",
                "Traceback",
                "ValueError: a bug",
            ],
        ),
    ],
)
def test_a_failure_shows_the_end_of_the_log_of_this_attempt(tmp_path: Path, fail: str, expected: list[str]) -> None:
    (tmp_path / "stderr.log").write_text("from an attempt before\n")
    with pytest.raises(TrainingError) as failed:
        launcher.run(MODULE, prepared(tmp_path, steps=1, fail=fail), total=1)
    assert not isinstance(failed.value, ProcessLost)
    for text in expected:
        assert text in failed.value.what
    assert "an attempt before" not in failed.value.what
    assert "stderr.log" in failed.value.todo
    assert str(failed.value).count("→") == 1, "what it says is not said again by its log"
    assert ("Traceback" in failed.value.what) == (fail == "crash")
    assert failed.value.what.splitlines()[0].startswith(expected[0]), "the first line says it"
    # What the process itself advises; to run again what failed by itself would fail again.
    assert failed.value.todo.startswith("Lower the learning rate.") == (fail == "error")
    assert ("run the asset again" in failed.value.todo) == (fail == "crash")


def test_an_error_of_an_attempt_before_is_not_this_one_s(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="^the gradients are not finite"):
        launcher.run(MODULE, prepared(tmp_path, steps=1, fail="error"), total=1)
    with pytest.raises(TrainingError, match="^tests.model.launched ended with exit code 1: ValueError: a bug"):
        launcher.run(MODULE, prepared(tmp_path, steps=1, fail="crash"), total=1)
    launcher.run(MODULE, prepared(tmp_path, steps=1), total=1)


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
    with pytest.raises(ProcessLost, match="was killed by SIGKILL"):
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
        launcher.run(MODULE, tmp_path, 2000, TrainingSettings(stop_seconds=0.3), poll_seconds=0.05)
    assert not (tmp_path / "saved").exists()
    wait_for(lambda: not running(int(grandchild.read_text())))
    assert "did not end within 0.3 s and is killed" in capfd.readouterr().err


def test_when_the_launcher_is_killed_the_process_saves_and_ends(tmp_path: Path) -> None:
    prepared(tmp_path, steps=100_000)
    code = (
        "import sys; from pathlib import Path; from model.processes import launcher; "
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


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_host_that_makes_room_loses_the_process_but_who_cancels_by_hand_means_it(
    tmp_path: Path, by_hand: bool
) -> None:
    prepared(tmp_path, steps=2000)

    def ask() -> None:
        wait_for((tmp_path / "metrics.jsonl").exists)
        if by_hand:
            (tmp_path / "cancel").touch()
        else:
            os.kill(pid_of(tmp_path), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(TrainingError, match="asked to stop from outside; it has saved") as ended:
        launcher.run(MODULE, tmp_path, total=2000, poll_seconds=0.05)
    asking.join()
    assert isinstance(ended.value, ProcessLost) != by_hand
    assert ("stopped and saved: SIGTERM" in ended.value.what) != by_hand


def test_one_process_at_a_time_in_a_run_folder(tmp_path: Path) -> None:
    held = child.hold(tmp_path)
    with pytest.raises(TrainingError, match=rf"another process \(pid {os.getpid()} on .*\) trains"):
        child.hold(tmp_path, seconds=0.2)
    os.close(held)
    os.close(child.hold(tmp_path, seconds=0.2))


# ── a command template ───────────────────────────────────────────────────────────────────────────────────────────────


def template(begin: str = "") -> TrainingSettings:
    """A local shell that stays between: no signal and no process id passes it."""
    return TrainingSettings(
        launcher=f"cd {ROOT} && echo on the other host; {begin} {sys.executable} -m {{module}} {{run}}; exit $?"
    )


def log_of(folder: Path) -> str:
    return (folder / "stderr.log").read_text()


def test_a_template_runs_the_process_and_its_end_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    seen: list[progress.Progress] = []
    with progress.listen(seen.append):
        launcher.run(MODULE, prepared(tmp_path, steps=20), 20, template("LAUNCHED=1"), poll_seconds=0.05)
    assert seen[-1].done == 20 and seen[-1].measured == {"loss": 1 / 20}
    assert "on the other host" in log_of(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "lock", "metrics.jsonl", "stderr.log"]


def test_what_a_template_s_process_says_is_shown_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as failed:
        launcher.run(MODULE, prepared(tmp_path, steps=1, fail="error"), 1, template(), poll_seconds=0.05)
    assert failed.value.what.count("the gradients are not finite") == 1
    assert f"-m {MODULE} {tmp_path}" in failed.value.what
    assert not isinstance(failed.value, ProcessLost)


def test_a_template_with_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    settings = TrainingSettings(launcher="sssh far 'python -m {module} {run}'")
    with pytest.raises(TrainingError) as failed:
        launcher.run(MODULE, prepared(tmp_path, steps=1), 1, settings, poll_seconds=0.05)
    assert f"sssh far 'python -m {MODULE} {tmp_path}'" in failed.value.what and "not found" in failed.value.what
    assert "training.launcher" in failed.value.todo


def test_a_host_that_can_t_be_reached_any_more_is_not_the_job_s_fault(tmp_path: Path) -> None:
    settings = TrainingSettings(launcher="echo broken pipe; exit 255 # {module} {run}")  # as ssh ends
    with pytest.raises(ProcessLost, match="exit code 255"):
        launcher.run(MODULE, prepared(tmp_path, steps=1), 1, settings, poll_seconds=0.05)


def test_a_command_that_ends_before_its_process_is_told_what_it_must_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "SHARED_SECONDS", 0.5)
    settings = TrainingSettings(launcher="true sbatch {module} {run}")
    with pytest.raises(TrainingError, match="result is not there") as failed:
        launcher.result(MODULE, prepared(tmp_path, steps=1), 1, settings)
    assert "sbatch --wait" in failed.value.todo


def test_a_cancel_reaches_a_template_s_process_by_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    prepared(tmp_path, steps=100_000)
    with pytest.raises(Cancel), progress.listen(cancelling(tmp_path, (tmp_path / "metrics.jsonl").exists)):
        launcher.run(MODULE, tmp_path, 100_000, template(), poll_seconds=0.05)
    assert (tmp_path / "saved").exists()
    assert f"stopped and saved: {tmp_path / 'cancel'} asks to" in log_of(tmp_path)
    assert not (tmp_path / "cancel").exists() and not (tmp_path / "launcher").exists()


def test_a_far_process_that_takes_longer_finds_the_cancel_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of its own stands for the other host: what is killed here does not reach it."""
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    settings = template("setsid --wait").model_copy(update={"stop_seconds": 0.1})
    prepared(tmp_path, steps=100_000, pause=2)
    with pytest.raises(Cancel), progress.listen(cancelling(tmp_path, (tmp_path / "metrics.jsonl").exists)):
        launcher.run(MODULE, tmp_path, 100_000, settings, poll_seconds=0.05)
    pid = pid_of(tmp_path)
    assert running(pid) and (tmp_path / "cancel").exists()
    wait_for((tmp_path / "saved").exists)
    wait_for(lambda: not running(pid))


@pytest.mark.parametrize("death", ["killed", "its host lost and another launcher began"])
def test_a_far_process_notices_that_its_launcher_is_gone(tmp_path: Path, death: str) -> None:
    """By the file alone: it is touched no more, or it is another launcher's."""
    prepared(tmp_path, steps=100_000)
    code = (
        "import sys; from pathlib import Path; from model.processes import launcher; from tests.model.processes.test_launcher import template; "
        f"launcher.run({MODULE!r}, Path(sys.argv[1]), None, template('setsid --wait'), launcher_seconds=float(sys.argv[2]))"
    )
    seconds = "2" if death == "killed" else "1000"
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), seconds], cwd=ROOT)
    wait_for((tmp_path / "metrics.jsonl").exists)
    pid = pid_of(tmp_path)
    parent.kill()
    parent.wait()
    if death != "killed":
        atomic.write_json(tmp_path / "launcher", {"id": "another", "seconds": 1000})
    wait_for((tmp_path / "saved").exists)
    wait_for(lambda: not running(pid))
    assert "stopped and saved: the launcher that started this process has ended" in log_of(tmp_path)


def test_a_process_started_by_hand_watches_no_launcher(tmp_path: Path) -> None:
    """What a dead launcher left behind does not count."""
    atomic.write_json(tmp_path / "launcher", {"id": "of long ago", "seconds": 0.1})
    os.utime(tmp_path / "launcher", (0, 0))
    prepared(tmp_path, steps=100)
    assert subprocess.run([sys.executable, "-m", MODULE, str(tmp_path)], cwd=ROOT, timeout=60).returncode == 0


def test_a_path_that_shells_would_change_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    with pytest.raises(TrainingError, match="spaces or signs"):
        launcher.run(MODULE, folder, 1, template())


@pytest.mark.parametrize(
    ("launcher_", "ranks", "said"),
    [
        ("ssh gpu 'python -m {module}'", 1, "must name {module} and {run}"),
        ("ssh gpu 'python -m model.pretrain {run}'", 1, "must name {module} and {run}"),
        ("ssh gpu 'python -m {module} {run} --gpus {gpus}'", 1, "{gpus} is not known"),
        ("ssh gpu 'python -m {module} {run}'", 2, "ranks: 2 does not reach"),
    ],
)
def test_a_template_that_can_t_work_is_refused_when_settings_are_read(launcher_: str, ranks: int, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        TrainingSettings(launcher=launcher_, ranks=ranks)
    assert said in str(refused.value)


def test_a_template_keeps_what_is_the_shell_s_own(tmp_path: Path) -> None:
    settings = TrainingSettings(
        launcher="cd ${HOME} && torchrun --nproc-per-node={ranks} -m {module} {run} && echo {1..3}", ranks=2
    )
    how = launcher.way("model.pretrain", tmp_path, settings, 2)
    filled = f"cd ${{HOME}} && torchrun --nproc-per-node=2 -m model.pretrain {tmp_path} && echo {{1..3}}"
    assert how.command == ("/bin/sh", "-c", filled)


def test_the_templates_of_the_documentation_can_be_used(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "pretraining.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.S) if "launcher:" in block]
    assert len(blocks) == 3
    for block in blocks:
        plain = YAML(typ="safe").load(block)
        settings = TrainingSettings.model_validate(plain.get("training", plain))
        command = launcher.way("model.pretrain", tmp_path, settings, 8).command
        assert f"-m model.pretrain {tmp_path}" in command[-1]
        assert subprocess.run(["sh", "-n", "-c", command[-1]]).returncode == 0
