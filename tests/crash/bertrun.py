"""Cells that go through the real `bert run`, Dagster and all: what a person does, sees and does again."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.assets.bertcli import dagster_runs, environment_in, kill_tree
from tests.conftest import ROOT
from tests.crash import shim
from tests.crash.driver import DAY, Outcome, error_told, nothing_left, same_as
from tests.crash.world import Made, Place

WORK = "wordpiece_vocab"
PATIENCE = 240.0


@dataclass(frozen=True)
class BertCell:
    """What goes wrong under `bert run tiny/wordpiece_vocab`."""

    name: str
    do: Callable[["Run"], Outcome]


class Run:
    """A place, the library that makes faults, and a `bert run` in it."""

    def __init__(self, place: Place, library: Path) -> None:
        self.place, self.library = place, library

    def start(self, *arguments: str, fault: shim.Fault | None = None, clock: int = 0) -> "subprocess.Popen[str]":
        more = {"CRASH_CLOCK": str(clock)} if clock else {}
        more |= fault.environment if fault else {}
        return subprocess.Popen(
            [sys.executable, "-m", "assets.command", *arguments],
            cwd=ROOT,
            env={**environment_in(self.place.folder), **({"LD_PRELOAD": str(self.library), **more} if more else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def fault(self, operation: str, pattern: str, kind: str) -> shim.Fault:
        """A full or read-only disk is that of staging, or of the store: Dagster's database lies elsewhere."""
        disk = self.place.home / pattern.partition("/")[0]
        return shim.Fault(self.place.folder, disk, operation, f"{self.place.home}/{pattern}", 1, kind)

    def ended(self, process: "subprocess.Popen[str]") -> str:
        try:
            return process.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
            raise AssertionError(f"it hangs\n{process.communicate()[0]}") from None

    def stopped(self, process: "subprocess.Popen[str]", fault: shim.Fault) -> int:
        """Wait until a process of it stands still at the point; its pid."""
        end = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < end and process.poll() is None, "it never stood still"
            with suppress(psutil.Error):
                if fault.fired.pid and psutil.Process(fault.fired.pid).status() == psutil.STATUS_STOPPED:
                    return fault.fired.pid
            time.sleep(0.02)

    def statuses(self) -> list[str]:
        """Of Dagster's runs, the oldest first."""
        return list(dagster_runs(self.place.home).values())[::-1]


def _told(operation: str, pattern: str, kind: str) -> Callable[[Run], Outcome]:
    """The fault is an error of the step, which the command tells."""

    def do(run: Run) -> Outcome:
        fault = run.fault(operation, pattern, kind)
        process = run.start("run", f"tiny/{WORK}", fault=fault)
        said = run.ended(process)
        assert fault.fired.pid, f"the fault never happened\n{said}"
        assert process.returncode == 1, said
        assert run.statuses() == ["FAILURE"], said
        return Outcome("told", error_told(said, "✗ wordpiece_vocab\n"), fault.fired.path)

    return do


def _killed_step(run: Run) -> Outcome:
    """Dagster sees that a step's process was killed."""
    fault = run.fault("write", "staging/*/vocab.txt", "kill")
    process = run.start("run", f"tiny/{WORK}", fault=fault)
    said = run.ended(process)
    assert fault.fired.pid, said
    assert process.returncode in (0, 1) and "Traceback" not in said, said
    return Outcome("went on" if process.returncode == 0 else "told", where=fault.fired.path)


def _killed_all(run: Run) -> Outcome:
    """kill -9 of `bert run`, its run and its steps while a record is written."""
    fault = run.fault("rename", "records/*.json", "stop")
    process = run.start("run", f"tiny/{WORK}", fault=fault)
    stopped = run.stopped(process, fault)
    kill_tree(process.pid)
    with suppress(ProcessLookupError):
        os.kill(stopped, signal.SIGKILL)
    process.communicate()
    assert run.statuses() == ["STARTED"], "nobody can have said otherwise"
    return Outcome("killed", where=fault.fired.path)


def _interrupted(run: Run) -> Outcome:
    """SIGTERM to `bert run` while a step writes."""
    fault = run.fault("write", "staging/*/vocab.txt", "stop")
    process = run.start("run", f"tiny/{WORK}", fault=fault)
    stopped = run.stopped(process, fault)
    process.terminate()
    time.sleep(1)
    os.kill(stopped, signal.SIGCONT)
    said = run.ended(process)
    assert run.statuses()[0] in ("CANCELED", "SUCCESS"), said
    assert "Traceback" not in said, said
    return Outcome("canceled" if run.statuses() == ["CANCELED"] else "went on", where=fault.fired.path)


def _twice(run: Run) -> Outcome:
    """Two `bert run` at once: the second waits, and finds it done."""
    processes = [run.start("run", f"tiny/{WORK}") for _ in range(2)]
    said = [run.ended(process) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(said)
    assert any("waiting for bert run tiny" in each for each in said), said
    return Outcome("went on")


def _locked(seconds: float) -> Callable[[Run], Outcome]:
    """An outside writer holds Dagster's database of runs."""

    def do(run: Run) -> Outcome:
        path = next((run.place.home / "dagster").rglob("runs.db"))
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with closing(sqlite3.connect(path, isolation_level=None)) as database:
                database.execute("BEGIN EXCLUSIVE")
                held.set()
                done.wait(seconds)
                database.execute("ROLLBACK")

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        process = run.start("run", f"tiny/{WORK}")
        said = run.ended(process)
        done.set()
        thread.join()
        assert "Traceback" not in said, said
        if process.returncode == 0:
            return Outcome("went on")
        return Outcome("told", error_told(said, "error: "), str(path))

    return do


def _clock(run: Run) -> Outcome:
    """Everything happens with a clock that is a day behind; the next run has the right one again."""
    process = run.start("run", f"tiny/{WORK}", clock=-DAY)
    said = run.ended(process)
    assert process.returncode == 0, said
    return Outcome("went on")


BERT_CELLS = (
    BertCell("the disk is full when a step writes", _told("write", "staging/*/vocab.txt", "ENOSPC")),
    BertCell("kill -9 of a step", _killed_step),
    BertCell("kill -9 of all of it", _killed_all),
    BertCell("SIGTERM while a step writes", _interrupted),
    BertCell("two at once", _twice),
    BertCell("the clock is a day behind", _clock),
)
MORE_CELLS = (
    BertCell("an input/output error when a manifest is made durable", _told("fsync", "staging/*/.manifest*", "EIO")),
    BertCell("read-only when a version is published", _told("rename", "store/wordpiece_vocab/*", "EROFS")),
    BertCell("Dagster's SQLite is locked for 6 s", _locked(6)),
    BertCell("Dagster's SQLite is locked for as long as it lasts", _locked(PATIENCE)),
)
"""not in `make test`: each takes half a minute or more"""


def _known_to_dagster(made: Made) -> Place:
    """The home before the work, with Dagster's database, which has been told of all that is there; made once."""
    name = f"{WORK}, known to Dagster"
    if name not in made.before:
        run = Run(made.before[WORK].copy(made.folder / "known"), made.library)
        process = run.start("run", "tiny/documents")
        said = run.ended(process)
        assert process.returncode == 0, said
        made.before[name] = run.place
    return made.before[name]


def run_cell(cell: BertCell, made: Made, folder: Path) -> Outcome:
    """Do it; then `bert run` again, and look whether what is promised holds. Raises AssertionError."""
    place = _known_to_dagster(made).copy(folder)
    run = Run(place, made.library)
    outcome = cell.do(run)
    assert not place.store.verify(), "after it"
    again = run.start("run", f"tiny/{WORK}")
    said = run.ended(again)
    assert again.returncode == 0 and f"tiny/{WORK} is up to date" in said, said
    statuses = run.statuses()
    assert set(statuses) <= {"SUCCESS", "FAILURE", "CANCELED"}, f"Dagster's runs are {statuses}"
    same_as(made.after[WORK], place, exact=False)
    nothing_left(place)
    return outcome
