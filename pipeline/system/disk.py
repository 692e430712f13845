"""Room for what a stage writes: a folder for what is on its way, and whether the disk holds what is to come."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline import units
from pipeline.errors import StoreError


def free_bytes(folder: Path) -> int:
    """Free space of the disk of a folder, which need not be there yet."""
    return shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists())).free


@contextmanager
def scratch_folder(out: Path) -> Iterator[Path]:
    """A folder below `out` for what a pipeline writes on its way, gone at the end; that of a killed run goes first."""
    for left in out.glob(".scratch-*"):
        shutil.rmtree(left)
    scratch = Path(tempfile.mkdtemp(prefix=".scratch-", dir=out)).resolve()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def check_room(out: Path, needed: float, what: str, todo: str) -> None:
    """StoreError unless the disk of `out` has room for the `needed` bytes of `what`."""
    free = free_bytes(out)
    if needed > free:
        raise StoreError(
            f"{out}: the {what} need about {units.size(needed)} on the way, {units.size(free)} are free", todo
        )
