"""The frame of a training process: one at a time in a run folder, asked to stop by signals, by a file or by the death of
whoever started it.

    if __name__ == "__main__":
        child.main(train)          # train(run_folder, stop) -> True: finished, False: stopped and saved

Exit codes: 0 finished, 143 stopped and saved (as after SIGTERM), 75 hung, 1 failed, with the reason on stderr. Processes
that torchrun started write to stderr.log of the run folder; the first of them holds the folder's lock.
"""

import ctypes
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from model.heartbeat import Watch
from pipeline.errors import BertError, TrainingError

PARENT = "BERTWORKS_PARENT"
"""environment variable: process id of the launcher that this process must not outlive"""
STOPPED = 143
LOCK_SECONDS = 60.0
LOG = "stderr.log"
CANCEL = "cancel"
"""a file of this name in the run folder asks to stop"""
LAUNCHER = "launcher"
"""a file of this name in the run folder is touched by a launcher that lives, on whatever host"""
LAUNCHER_SECONDS = 300.0
"""when it was touched before and is not for so long, the launcher is dead"""
_PR_SET_PDEATHSIG = 1


class Stop:
    """Whether this process was asked to stop; the loop looks at `asked` between two steps."""

    asked = False

    def ask(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Ask (also as a signal handler). Asking twice changes nothing."""
        self.asked = True


def main(train: Callable[[Path, Stop], bool]) -> None:
    """Run `train` on the run folder that the command line names, and exit."""
    if len(sys.argv) != 2:
        print(f"usage: python -m {_module()} RUN_DIR", file=sys.stderr)
        sys.exit(2)
    stop = Stop()
    signal.signal(signal.SIGTERM, stop.ask)
    signal.signal(signal.SIGINT, stop.ask)
    folder = Path(sys.argv[1])
    watch(stop, folder)
    try:
        if _by_torchrun() and folder.is_dir():
            _log_into(folder / LOG)
        lock = hold(folder) if os.environ.get("RANK", "0") == "0" else None
        finished = train(folder, stop)
        if lock is not None:
            os.close(lock)
    except BertError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0 if finished else STOPPED)


def hold(folder: Path, seconds: float = LOCK_SECONDS) -> int:
    """Lock the run folder for this process's life; returns the lock's file descriptor.

    A process that was asked to stop may still be saving there: wait for it, for `seconds` at most.

    Raises:
        TrainingError: another process keeps training there, or the folder does not exist.
    """
    if not folder.is_dir():
        raise TrainingError(f"the run folder {folder} does not exist", "Name a folder that holds config.json.")
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise TrainingError(
                    f"another process trains in {folder}", "Wait until it has ended, or end it."
                ) from None
            time.sleep(0.1)


def watch(stop: Stop, folder: Path) -> None:
    """Ask to stop when the run folder says so, or when the launcher that started this process dies. Started by hand, there
    is no launcher to watch."""
    named = os.environ.pop(PARENT, None)  # not for processes that this one may start
    launcher = int(named) if named else None
    parent = os.getppid()
    if launcher is not None:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)

    # The signal alone does not do: the parent may have died before the line above, and it may not be the launcher.
    def orphaned() -> bool:
        return launcher is not None and (os.getppid() != parent or not _lives(launcher))

    files = Watch()
    mark = folder / LAUNCHER
    first = _mtime(mark)

    def abandoned() -> bool:
        seconds = files.unchanged_seconds(mark)
        return seconds is not None and seconds > LAUNCHER_SECONDS and _mtime(mark) != first

    def poll() -> None:
        while not (orphaned() or abandoned() or (folder / CANCEL).exists()):
            time.sleep(0.5)
        stop.ask()

    threading.Thread(target=poll, name="watch-launcher", daemon=True).start()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _mtime(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


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
