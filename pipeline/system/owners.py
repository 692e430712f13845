"""Who is at work, and who is dead: identities of processes, claims with a heartbeat, locks between processes.

Only a process on this host may be declared dead by its pid; any other only when its heartbeat is older than the lease.
So are processes of another boot or container under the same host name: their pids can't be looked up here.
"""

import fcntl
import getpass
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

import psutil

from pipeline.system.atomic import make_folder, write_bytes

POLL_SECONDS = 0.05  # between two looks at a lock that another process holds


def user() -> str:
    """Name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


@dataclass(frozen=True)
class Owner:
    """One process among all that ever ran on any host."""

    host: str
    boot: str
    """identity of the host's boot and of the pid namespace: in another one, pids mean other processes"""
    pid: int
    started: str
    """start time of the process: pids are used again"""

    @classmethod
    def of(cls, pid: int) -> "Owner":
        """The process with this pid on this host, now."""
        return cls(platform.node(), _boot(), pid, _start(pid) or "gone")

    @classmethod
    def this(cls) -> "Owner":
        """This process."""
        return cls.of(os.getpid())

    @classmethod
    def parse(cls, text: str) -> "Owner | None":
        """What `str` wrote; None for anything else."""
        parts = text.split(" ")
        if len(parts) != 4 or not parts[2].isdigit():
            return None
        return cls(parts[0], parts[1], int(parts[2]), parts[3])

    def __str__(self) -> str:
        return f"{self.host} {self.boot} {self.pid} {self.started}"

    def surely_dead(self) -> bool:
        """True only if this host can tell: it (or the container) was restarted, or the pid is free or means another
        process."""
        if self.host != platform.node():
            return False
        return self.boot != _boot() or _start(self.pid) != self.started


@cache
def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # not Linux
        boot = str(int(psutil.boot_time()))
    with suppress(OSError):
        boot += f"/{Path('/proc/self/ns/pid').stat().st_ino}"
    return boot


def _start(pid: int) -> str | None:
    """Start time of a live process; None when there is none (a zombie is dead: it can't finish anything)."""
    try:
        # Linux: clock ticks since boot, which no change of the wall clock moves; the name may hold spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except ProcessLookupError:
        return None
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.Error:
        return None


@contextmanager
def claim(path: Path, lease_seconds: float) -> Iterator[None]:
    """Hold `path`, a file that names this process and whose mtime is its heartbeat; removed at the end."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(lease_seconds / 4):
            with suppress(OSError):
                os.utime(path)

    thread = threading.Thread(target=beat, daemon=True)
    try:
        write_bytes(path, str(Owner.this()).encode())
        thread.start()
        yield
    finally:
        done.set()
        if thread.ident is not None:
            thread.join()
        with suppress(OSError):  # then it is swept with its owner's death, and hides no error of what was done under it
            path.unlink()


def is_dead(path: Path, lease_seconds: float) -> bool:
    """Whether the owner of a claim is dead: by its pid where pids mean the same as here, else by the claim's age."""
    try:
        owner = Owner.parse(path.read_text(encoding="utf-8"))
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return True
    except (OSError, UnicodeDecodeError):
        return False
    if owner is not None and (owner.host, owner.boot) == (platform.node(), _boot()):
        return owner.surely_dead()
    return age > lease_seconds


@contextmanager
def held_lock(path: Path, waiting: Callable[[str], None] | None = None, what: str = "") -> Iterator[int]:
    """Hold the lock `path` (flock: the kernel frees it when its holder dies). A second process waits; `waiting` is told
    once for whom, and may raise instead.

    Yields the file descriptor: a child process that inherits it holds the lock too, until it ends.
    """
    make_folder(path.parent)
    with path.open("a+b") as file:
        told = False
        while not _taken(file):
            if waiting is not None and not told:
                waiting(f"waiting for {_holder(path)}")
                told = True
            time.sleep(POLL_SECONDS)
        file.truncate(0)
        file.write(json.dumps({"owner": str(Owner.this()), "what": what}).encode())
        file.flush()
        try:
            yield file.fileno()
        finally:
            with suppress(OSError):  # a disk that is read-only now: who comes next writes its own name there
                file.truncate(0)


def holder(path: Path) -> str | None:
    """Who holds the lock `path` now, in words; None if nobody does, or there is no such lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(path)
    except OSError:
        return None
    return None


@contextmanager
def held_slot(paths: Sequence[Path], waiting: Callable[[], None]) -> Iterator[None]:
    """Hold one of several locks, the first that is free; `waiting` is called once if none is. No order among who waits."""
    make_folder(paths[0].parent)
    told = False
    while True:
        for path in paths:
            with path.open("a+b") as file:
                if _taken(file):
                    yield
                    return
        if not told:
            waiting()
            told = True
        time.sleep(POLL_SECONDS)


def _taken(file: IO[bytes]) -> bool:
    """Whether the lock of `file` is held by us from now on.

    Asked for again and again instead of waited for in the kernel: some libraries (polars) have signals restart system
    calls, and what waits in flock would then never hear Ctrl-C.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        owner = Owner.parse(held["owner"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    if owner is None:
        return "another process"
    gone = ", which has ended; what it started goes on" if owner.surely_dead() else ""
    return f"{held['what'] or 'another process'} (pid {owner.pid} on {owner.host}{gone})"
