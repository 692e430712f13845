"""The frame of a training process: one at a time in a run folder, asked to stop by signals, by a file or by the death of
whoever started it.

    if __name__ == "__main__":
        child.main(train)          # train(run_folder, stop) -> True: finished, False: stopped and saved

Exit codes: 0 finished, 143 stopped and saved (as after SIGTERM), 75 hung, 1 failed, with the reason on stderr. Processes
that torchrun started write to stderr.log of the run folder; the first of them holds the folder's lock.
"""

import ctypes
import fcntl
import json
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from model.processes.heartbeat import Watch
from pipeline.errors import BertError, StoreError, TrainingError, told
from pipeline.system import atomic

PARENT = "BERTWORKS_PARENT"
"""environment variable: process id of the launcher that this process must not outlive"""
STOPPED = 143
LOCK_SECONDS = 60.0
LOCK = "lock"
LOG = "stderr.log"
PLAN = "plan.json"
"""what a run with a budget of hours decided before its first step"""
ERROR = "error.json"
"""the error that ended this process, for who started it"""
CANCEL = "cancel"
"""a file of this name in the run folder asks to stop"""
LAUNCHER = "launcher"
"""the launcher's file in the run folder, {"id", "seconds"}: touched while it lives, removed when it ends, on whatever host.
Not touched for `seconds`, the launcher is dead; with another id, another one has taken over."""
_PR_SET_PDEATHSIG = 1


class Stop:
    """Whether this process was asked to stop; the loop looks at `asked` between two steps."""

    asked = False
    why = ""

    def ask(self, why: str) -> None:
        """Ask. Asking twice changes nothing."""
        self.why, self.asked = self.why or why, True


def main(train: Callable[[Path, Stop], bool]) -> None:
    """Run `train` on the run folder that the command line names, and exit."""
    if len(sys.argv) != 2:
        print(f"usage: python -m {_module()} RUN_DIR", file=sys.stderr)
        sys.exit(2)
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.ask(signal.Signals(number).name)

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    folder = Path(sys.argv[1])
    watch(stop, folder)
    try:
        if _by_torchrun() and folder.is_dir():
            _log_into(folder / LOG)
        lock = hold(folder) if os.environ.get("RANK", "0") == "0" else None
        finished = train(folder, stop)
        for number in (signal.SIGTERM, signal.SIGINT):  # what is done can't be stopped any more
            signal.signal(number, signal.SIG_IGN)
        if lock is not None:
            os.close(lock)
    except BertError as error:
        print(f"error: {error}", file=sys.stderr)
        with suppress(StoreError):  # a full disk: the log says it too, if anything does
            atomic.write_json(folder / ERROR, told(error))
        sys.exit(1)
    if not finished and stop.why:
        print(f"stopped and saved: {stop.why}", file=sys.stderr)
    sys.exit(0 if finished else STOPPED)


def hold(folder: Path, seconds: float = LOCK_SECONDS) -> int:
    """Lock the run folder for this process's life; returns the lock's file descriptor.

    A process that was asked to stop may still be saving there: wait for it, for `seconds` at most.

    Raises:
        TrainingError: another process keeps training there, or the folder does not exist.
    """
    if not folder.is_dir():
        raise TrainingError(f"the run folder {folder} does not exist", "Name a folder that holds config.json.")
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"pid {os.getpid()} on {platform.node()}".encode(), 0)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = os.pread(descriptor, 100, 0).decode(errors="replace") or "which is not known"
                os.close(descriptor)
                raise TrainingError(
                    f"another process ({holder}) trains in {folder}", "Wait until it has ended, or end it."
                ) from None
            time.sleep(0.1)


def watch(stop: Stop, folder: Path) -> None:
    """Ask to stop when the run folder says so, or when the launcher that started this process has ended. Started by hand,
    there is no launcher to watch."""
    named = os.environ.pop(PARENT, None)  # not for processes that this one may start
    launcher = int(named) if named else None
    parent = os.getppid()
    if launcher is not None:
        end_with_parent(signal.SIGTERM)
    files = Watch()
    mark = folder / LAUNCHER
    ours = _launcher_of_now(mark)

    # The signal alone does not do: the parent may have died before the line above, and it may not be the launcher.
    def orphaned() -> bool:
        return launcher is not None and (os.getppid() != parent or not _lives(launcher))

    def abandoned() -> bool:
        if ours is None:
            return False
        if _said(mark, ours) != ours:
            return True
        silent = files.unchanged_seconds(mark)
        return silent is not None and silent > ours["seconds"]

    def poll() -> None:
        while True:
            if (folder / CANCEL).exists():
                stop.ask(f"{folder / CANCEL} asks to")
            if orphaned() or abandoned():
                stop.ask("the launcher that started this process has ended")
            if stop.asked:
                return
            time.sleep(0.5)

    threading.Thread(target=poll, name="watch-launcher", daemon=True).start()


def end_with_parent(number: signal.Signals) -> None:
    """Let the kernel send this process a signal when its parent ends (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _said(mark: Path, unknown: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """What a launcher's file says; None: there is none; `unknown` where that can't be told."""
    try:
        said: dict[str, Any] = json.loads(mark.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):  # a shared disk that does not answer for a moment
        return unknown
    return said


def _launcher_of_now(mark: Path) -> dict[str, Any] | None:
    """What the file of a launcher that lives says; None: there is none, or what is there was left by a dead one.

    Its age is told by the disk's clock: that of another host may be wrong.
    """
    said = _said(mark)
    try:
        lock = mark.with_name(LOCK)
        lock.touch()
        age = lock.stat().st_mtime - mark.stat().st_mtime
    except OSError:
        return None
    return said if said is not None and age <= said["seconds"] else None


def _by_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _log_into(path: Path) -> None:
    """Let what this process prints go to the end of a file."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec else "MODULE"
