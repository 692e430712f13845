"""The frame of a training process: one at a time in a run folder, asked to stop by signals or by its parent's death.

    if __name__ == "__main__":
        child.main(train)          # train(run_folder, stop) -> True: finished, False: stopped and saved

Exit codes: 0 finished, 143 stopped and saved (as after SIGTERM), 1 failed, with the reason on stderr.
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

from pipeline.errors import BertError, TrainingError

PARENT = "BERTWORKS_PARENT"
"""environment variable: process id of the launcher that this process must not outlive"""
STOPPED = 143
LOCK_SECONDS = 60.0
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
    watch_parent(stop)
    folder = Path(sys.argv[1])
    try:
        lock = hold(folder)
        finished = train(folder, stop)
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


def watch_parent(stop: Stop) -> None:
    """Ask to stop when the launcher that started this process dies. Started by hand, there is nothing to watch."""
    named = os.environ.pop(PARENT, None)  # not for processes that this one may start
    if named is None:
        return
    parent = int(named)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)

    # The signal alone does not do: the parent may have died before the line above.
    def poll() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        stop.ask()

    threading.Thread(target=poll, name="watch-parent", daemon=True).start()


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec else "MODULE"
