"""What our Beam pipelines share: errors and counts that reach a person; files are those of `places`."""

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from pipeline.beam.beam_process import leave_note
from pipeline.errors import BertError
from pipeline.storage import objects
from pipeline.system import places
from pipeline.system.atomic import explained


@contextmanager
def reported(scratch: Path, out: Path) -> Iterator[None]:
    """Errors that a person can act on reach the stage. `out` is named where the disk is full.

    Stands around the work on one element, whose memory goes back to the system at the end: a worker lives as long as the
    pipeline, and what its allocators keep of one kind of work is of no use to the next.
    """
    try:
        with objects.told(str(out)) if places.is_url(out) else explained(out):
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


class Counting:
    """Writes a growing number into a file, about once a second, for the process that waits; into an object store less
    often."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds = places.REMOTE_SECONDS if places.is_url(path) else 1
        self._last = time.monotonic()

    def __call__(self, done: int, final: bool = False) -> None:
        """`done` so far; a `final` one is always written."""
        now = time.monotonic()
        if final or now - self._last >= self._seconds:
            self._last = now
            places.write_json(self._path, done)
