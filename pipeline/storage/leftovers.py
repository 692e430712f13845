"""What processes that were killed have left below the home, apart from staging and leases: temporary files and folders, and what
the server said of downloads that are finished.

A temporary file lives for moments (`atomic.write_bytes`); one that is older than the lease, or comes from the future because
the clock was set back, belongs to nobody.
"""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pipeline.system import owners

_FOLDERS = (
    *("staging", "records", "cache/*", "leases", "trash", "tombstones/*", "verified", "views", "memory/*", "assets/*"),
    *("assets/*/retrains", "rejected/*"),
)
_SHARED = (".", "alerts", "attestations", "audits/*", "downloads/*", "failures/*", "runs/*", "runs/*/*", "watched/*")
"""where other hidden files may lie"""
_WRITTEN = re.compile(r"\..+\.[0-9a-f]{32}")
"""a name that `atomic.write_bytes` gives"""
_HALF = ".partial-"
"""how folders begin that `downloads.kept` fills"""


def temporary(home: Path, lease_seconds: float) -> Iterator[Path]:
    """All of them."""
    for folder in _FOLDERS:
        yield from (path for path in home.glob(f"{folder}/.*") if path.name != ".lock" and is_old(path, lease_seconds))
    for folder in _SHARED:
        yield from (p for p in home.glob(f"{folder}/.*") if _WRITTEN.fullmatch(p.name) and is_old(p, lease_seconds))
    for kept in sorted((home / "downloads").glob("*")):
        notes = kept / "partial.json"
        if not (kept / "partial").exists() and notes.exists() and is_old(notes, lease_seconds):
            yield notes
        half = sorted(kept.glob(f"{_HALF}*"))
        if half and _is_free(kept / ".lock"):  # else somebody fills one
            yield from half


def is_old(path: Path, lease_seconds: float) -> bool:
    """Whether a file that lives for moments belongs to nobody any more."""
    try:
        return abs(time.time() - path.lstat().st_mtime) > lease_seconds
    except FileNotFoundError:
        return False


def _is_free(lock: Path) -> bool:
    def refuse(holder: str) -> None:
        raise BlockingIOError(holder)

    with suppress(OSError), owners.held_lock(lock, refuse):
        return True
    return False
