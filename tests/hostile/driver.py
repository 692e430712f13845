"""Sends cases through the doors in a process of their own, within limits, with traps that none may spring."""

import http.server
import json
import os
import selectors
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.hostile.child import CPU_SECONDS

MAX_MIB = 1024
HANGS_SECONDS = 150
"""without an answer, after which a case is killed: it waits for something. What it computes is bounded by processor time."""
SECRET = "the-secret-of-a-file-outside"


@dataclass
class Traps:
    """What must never happen: a request, a file that a program made, the text of a file outside."""

    url: str
    ran: Path
    """a program that ran would have made this"""
    secret: Path
    """nobody has a reason to read this"""
    requests: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Making:
    """Where a maker writes its input."""

    folder: Path
    traps: Traps

    def put(self, name: str, data: bytes | str | Iterable[bytes]) -> None:
        """Write a file below in/."""
        path = self.folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in (data.encode(),) if isinstance(data, str) else (data,) if isinstance(data, bytes) else data:
                file.write(piece)


Maker = Callable[[Making], None]


@dataclass(frozen=True)
class Told:
    """What came of a case."""

    outcome: dict[str, Any]
    cpu_seconds: float
    mib: int


@contextmanager
def traps(folder: Path) -> Iterator[Traps]:
    """A server that nobody may ask, and a secret that nobody may read."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            set_.requests.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        set_ = Traps(f"http://127.0.0.1:{server.server_port}", folder / "it ran", folder / "secret.txt")
        set_.secret.write_text(f"{SECRET}\n" * 5, encoding="utf-8")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield set_
        finally:
            server.shutdown()
            thread.join()


class Driver:
    """A warm process for many cases; a case that ends it gets the next one a new process."""

    def __init__(self, folder: Path, set_: Traps) -> None:
        self._folder = folder
        folder.mkdir()
        self._traps = set_
        self._child: subprocess.Popen[bytes] | None = None
        self._number = 0

    def send(self, make: Maker, door: str) -> Told:
        """Make an input and send it through a door. Fails where a trap was sprung or a limit was crossed."""
        self._number += 1
        folder = self._folder / f"{self._number:03d}"
        (folder / "in").mkdir(parents=True)
        make(Making(folder, self._traps))
        watched = _Watched(self._alive().pid)
        before = self._outside(folder)
        answer = self._ask({"door": door, "folder": str(folder)})
        below = watched.stop()
        told = Told(answer["outcome"], answer["cpu_seconds"], max(answer["MiB"], below))
        assert "fault" not in told.outcome, f"no error that a person can act on:\n{told.outcome['fault']}"
        assert self._traps.requests == [], "it asked the network"
        assert not self._traps.ran.exists(), "a program in it ran"
        assert SECRET not in json.dumps(told.outcome), "it read a file that was not given"
        assert self._outside(folder) == before, "it wrote outside of its folder"
        assert told.cpu_seconds <= CPU_SECONDS, f"{told.cpu_seconds} s of processor time"
        assert told.mib <= MAX_MIB, f"{told.mib} MiB"
        shutil.rmtree(folder)
        return told

    def _outside(self, folder: Path) -> set[Path]:
        return {path for path in self._folder.iterdir() if path != folder}

    def _alive(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._child.poll() is not None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env=self._environment(),
            )
            self._answer()
        return self._child

    def _environment(self) -> dict[str, str]:
        temporary = self._folder / "tmp"
        temporary.mkdir(exist_ok=True)
        clean = {name: value for name, value in os.environ.items() if name != "BERT_HOME"}
        return {**clean, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}

    def _ask(self, asked: dict[str, str]) -> dict[str, Any]:
        child = self._alive()
        assert child.stdin is not None
        child.stdin.write((json.dumps(asked) + "\n").encode())
        child.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._child is not None and self._child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            if not selector.select(HANGS_SECONDS):
                self._child.kill()
                raise AssertionError(f"no answer within {HANGS_SECONDS} s: it hangs")
        line = self._child.stdout.readline()
        if not line:
            raise AssertionError(f"it ended the process: signal or exit code {self._child.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            assert self._child.stdin is not None and self._child.stdout is not None
            self._child.stdin.close()
            self._child.wait(60)
            self._child.stdout.close()


class _Watched:
    """The most memory that any process below another one had, looked at 20 times a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        import psutil

        while not self._end.wait(0.05):
            for each in psutil.Process(self._pid).children(recursive=True):
                try:
                    status = Path(f"/proc/{each.pid}/status").read_text()
                except OSError:
                    continue
                peak = next((line for line in status.splitlines() if line.startswith("VmHWM:")), "VmHWM: 0")
                self._most = max(self._most, int(peak.split()[1]) >> 10)

    def stop(self) -> int:
        """MiB."""
        self._end.set()
        self._thread.join()
        return self._most
