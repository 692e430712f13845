"""The faults: a library between libc and every process of a cell (fault.c), compiled where there is a compiler."""

import os
import shutil
import struct
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fault.c")
_STATE = struct.Struct("iiii4096s")


@cache
def library(folder: Path) -> Path:
    """The compiled library in `folder`; skips the test where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs gcc: the faults are made by a small library in C")
    made = folder / "fault.so"
    command = [compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return made


@dataclass(frozen=True)
class Fired:
    """What became of a fault."""

    pid: int
    """of the process that it happened in; 0: it never happened"""
    path: str
    count: int
    """calls that it was waited for at"""


class Fault:
    """One fault in one folder: at the `number`-th `operation` on a path like `pattern` (fnmatch), `kind` happens."""

    def __init__(self, folder: Path, home: Path, operation: str, pattern: str, number: int, kind: str) -> None:
        self._state = folder / "fault-state"
        self._state.write_bytes(bytes(_STATE.size))
        self.environment = {
            "CRASH_STATE": str(self._state),
            "CRASH_HOME": str(home),
            "CRASH_POINT": f"{operation} {pattern} {number}",
            "CRASH_FAULT": kind,
        }

    @property
    def fired(self) -> Fired:
        """Whether it has happened, and where."""
        count, fired, pid, _, path = _STATE.unpack(self._state.read_bytes())
        return Fired(pid if fired else 0, os.fsdecode(path.partition(b"\0")[0]), count)
