"""What our Beam pipelines share: files that appear whole, and errors that reach a person."""

import ctypes
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.atomic import explained
from pipeline.beam_process import leave_note
from pipeline.errors import BertError


@contextmanager
def reported(scratch: Path, out: Path) -> Iterator[None]:
    """Errors that a person can act on reach the stage. `out` is named where the disk is full.

    Stands around the work on one element, whose memory goes back to the system at the end: a worker lives as long as the
    pipeline, and what its allocators keep of one kind of work is of no use to the next.
    """
    try:
        with explained(out):
            yield
    except BertError as error:
        leave_note(scratch, error)
        raise
    finally:
        pa.default_memory_pool().release_unused()
        if _TRIM is not None:
            _TRIM(0)


_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""of glibc; other libraries have none"""


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A temporary name in the same folder; afterwards the file has its own, or is gone if there was an error."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a file that appears whole."""
    with replaced(path) as temporary:
        temporary.write_text(json.dumps(value), encoding="utf-8")


class Counting:
    """Writes a growing number into a file, about once a second, for the process that waits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = time.monotonic()

    def __call__(self, done: int, final: bool = False) -> None:
        """`done` so far; a `final` one is always written."""
        now = time.monotonic()
        if final or now - self._last >= 1:
            self._last = now
            with replaced(self._path) as temporary:
                temporary.write_text(str(done), encoding="ascii")
