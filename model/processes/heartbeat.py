"""Signs of life of training processes, and what happens when they stop.

Every replica writes RUN_DIR/heartbeat-RANK when it begins a step, a part of an evaluation or a save, at most once a second.
A thread of its own watches: after `hang_seconds` without a sign it prints the stacks of all threads and ends the process
with the exit code HUNG. Who started the process looks at the files too: a process that was stopped can't watch itself.

Whoever waits looks for changes of a file against its own clock: the clocks of two hosts may differ.
"""

import faulthandler
import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

HUNG = 75
PREFIX = "heartbeat-"


class Heartbeat:
    """This process's sign of life."""

    def __init__(self, folder: Path, rank: int, hang_seconds: float) -> None:
        self._path = folder / f"{PREFIX}{rank}"
        self._rank, self._hang_seconds = rank, hang_seconds
        self._beat = self._written = time.monotonic()
        self._step = 0
        self._done = threading.Event()
        self._write()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def beat(self, step: int) -> None:
        """This process is alive and at `step`."""
        self._beat, self._step = time.monotonic(), step
        if self._beat - self._written >= 1:
            self._written = self._beat
            self._write()

    def end(self) -> None:
        """Stop watching and remove the file."""
        self._done.set()
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        # Written in place: a reader looks at the time of the file, and at what is in it only when that is old.
        with suppress(OSError):  # a full disk is said by what must be saved
            self._path.write_text(json.dumps({"pid": os.getpid(), "step": self._step}), encoding="utf-8")

    def _watch(self) -> None:
        while not self._done.wait(min(1.0, self._hang_seconds / 4)):
            silent = time.monotonic() - self._beat
            if silent > self._hang_seconds:
                print(
                    f"rank {self._rank} has made no progress for {silent:.0f} s at step {self._step}; its threads are at:",
                    file=sys.stderr,
                    flush=True,
                )
                faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
                os._exit(HUNG)


class Watch:
    """Looks at files from time to time, and knows for how long each has not changed."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, float]] = {}  # time of the file, and when it was first seen so

    def unchanged_seconds(self, path: Path) -> float | None:
        """For how long the file has been as it is, as far as this object has looked; None: there is no such file."""
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            self._seen.pop(path, None)
            return None
        known, since = self._seen.get(path, (None, 0.0))
        if known != changed:
            since = time.monotonic()
            self._seen[path] = (changed, since)
        return time.monotonic() - since

    def silent(self, folder: Path, seconds: float) -> list[str]:
        """The replicas of a run folder without a sign of life for so long: "rank 1 (pid 4711, step 900)"."""
        return [
            f"rank {path.name.removeprefix(PREFIX)} (pid {said['pid']}, step {said['step']})"
            for path in _files(folder)
            if (self.unchanged_seconds(path) or 0) > seconds and (said := _said(path)) is not None
        ]


def pids(folder: Path) -> list[int]:
    """The processes whose signs of life lie in a run folder, dead ones among them."""
    return [said["pid"] for path in _files(folder) if (said := _said(path)) is not None]


def clear(folder: Path) -> None:
    """Remove the signs of processes that are gone."""
    for path in _files(folder):
        path.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{PREFIX}*"))


def _said(path: Path) -> dict[str, int] | None:
    try:
        said: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # it has just ended, or is writing
    return said
