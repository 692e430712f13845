"""kill -9 of Dagster's runs, those of `bert run` and those that the UI's launcher starts: none stays STARTED, none keeps a slot."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import dagster as dg
import psutil
import pytest

from assets.asset import process_of
from assets.dagster_home import end_dead_runs
from tests.assets.bertcli import World, kill_tree, when
from tests.conftest import ROOT

POOL = "accelerator"
PATIENCE = 150.0
FAILED = dg.DagsterRunStatus.FAILURE
DIRECT = """
telemetry: {enabled: false}
concurrency: {pools: {default_limit: 1}}
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
"""  # runs are launched at once; with the queue, the daemon would do it


def world_of(folder: Path) -> World:
    world = World.make(folder)
    (world.home / "dagster").mkdir(parents=True)
    (world.home / "dagster" / "dagster.yaml").write_text(DIRECT, encoding="utf-8")
    return world


@contextmanager
def dagster_of(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("DAGSTER_HOME", str(world.home / "dagster"))
    monkeypatch.setenv("BERT_SETTINGS", str(world.folder / "settings.yaml"))
    with dg.DagsterInstance.get() as opened:
        yield opened


def until(what: str, seen: Callable[[], bool], every: float = 0.05) -> None:
    end = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < end, f"{what}: not within {PATIENCE:.0f} s"
        time.sleep(every)


def launch(world: World) -> "subprocess.Popen[bytes]":
    """The whole job by the launcher that the UI's button uses: a code server starts the run's process."""
    command = [sys.executable, "-m", "dagster", "job", "launch", "-w", str(ROOT / "workspace.yaml"), "-j", "tiny"]
    home = {"DAGSTER_HOME": str(world.home / "dagster"), "BERT_HOME": str(world.home)}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**world.environment, **home},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def newest(opened: dg.DagsterInstance) -> dg.DagsterRun:
    return next(iter(opened.get_runs(limit=1)))


def pid_told(opened: dg.DagsterInstance) -> int:
    """The pid that Dagster's launcher tells of the newest run's process; 0 while it does not."""
    for entry in opened.all_logs(newest(opened).run_id):
        found = re.search(r"Started process for run \(pid: (\d+)\)", entry.user_message or entry.message or "")
        if found:
            return int(found[1])
    return 0


def kill_all(world: World) -> None:
    """kill -9 of every process of this world, as when the machine loses its memory."""
    mark = str(world.folder / "settings.yaml")
    for _ in range(2):  # what was started meanwhile
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("BERT_SETTINGS") == mark:
                    kill_tree(process.pid)


def claimed(opened: dg.DagsterInstance) -> set[str]:
    return {slot.run_id for slot in opened.event_log_storage.get_concurrency_info(POOL).claimed_slots}


@pytest.mark.slow
def test_runs_that_are_killed_stay_neither_started_nor_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path / "world")
    world.edit("steps: 30", "steps: 100000")

    # of `bert run`, with everything under it
    process = world.start("run", "tiny/pretrained_32")
    when(process, lambda line: line.startswith("pretrained_32:") and "loss" in line, lambda: kill_all(world))
    with dagster_of(world, monkeypatch) as opened:
        killed = newest(opened)
        assert killed.status == dg.DagsterRunStatus.STARTED and claimed(opened) == {killed.run_id}
        assert "ended 1 run whose process was dead" in world.bert("doctor", code=None)
        assert opened.get_run_by_id(killed.run_id).status == FAILED and claimed(opened) == set()

        # of the UI's launcher, with the code server, while it trains
        launcher = launch(world)
        until("it trains", lambda: claimed(opened) == {newest(opened).run_id} != {killed.run_id})
        second = newest(opened)
        kill_all(world)
        launcher.communicate()
        assert opened.get_run_by_id(second.run_id).status == dg.DagsterRunStatus.STARTED
        assert "ended 1 run whose process was dead" in world.bert("doctor", code=None)
        assert opened.get_run_by_id(second.run_id).status == FAILED and claimed(opened) == set()

        # of the UI's launcher, before its process has said which one it is
        launcher = launch(world)
        until("a process is started", lambda: newest(opened).run_id != second.run_id and pid_told(opened) > 0, 0.005)
        third = newest(opened)
        kill_all(world)
        launcher.wait()
        assert process_of(opened.get_run_by_id(third.run_id)) is None, "it was killed too late"
        assert "1 launched and not begun" in world.bert("doctor", code=None)
        assert not opened.get_run_by_id(third.run_id).is_finished, "its launcher may live"
        assert end_dead_runs(opened, start_seconds=0.1) == [third.run_id]
        assert opened.get_run_by_id(third.run_id).status == FAILED

    world.edit("steps: 100000", "steps: 30")
    assert "tiny/pretrained_32 is up to date" in world.bert("run", "tiny/pretrained_32")


@pytest.mark.slow
def test_a_run_that_the_launcher_starts_says_which_process_it_is_before_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path / "world")
    with dagster_of(world, monkeypatch) as opened:
        launcher = launch(world)
        until("a run begins", lambda: bool(opened.get_runs()) and newest(opened).status == dg.DagsterRunStatus.STARTED)
        until("it says so", lambda: process_of(newest(opened)) is not None, 0.01)
        events = [entry.dagster_event for entry in opened.all_logs(newest(opened).run_id) if entry.dagster_event]
        owner = process_of(newest(opened))
        assert owner is not None and owner.pid == pid_told(opened)
        assert not any(event.is_step_success for event in events)
        kill_all(world)
        launcher.wait()
        assert end_dead_runs(opened) == [newest(opened).run_id]
