"""The content of versions on a disk of this machine: store/<stage>/<version>/, made visible by one rename."""

import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pipeline.errors import StoreError
from pipeline.storage import manifest
from pipeline.storage.manifest import Entry
from pipeline.system import owners
from pipeline.system.atomic import explained, fsync_folder, rename_folder

MAKE_ANEW = "It was set aside; the next `bert run` makes it anew."
READ_ONLY = "The store can't be written: run `bert verify` where it can."
MISSING = "The next `bert run` makes it anew if an asset needs it."


@dataclass(frozen=True)
class Problem:
    """Something in the store that is not what its digest says."""

    what: str
    todo: str


class LocalContents:
    """Versions under the home folder."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    def _verified(self) -> Path:
        return self.home / "verified"

    def place(self, stage: str, version: str) -> Path:
        """Where the files of a version lie, unverified."""
        return self.home / "store" / stage / version

    def exists(self, stage: str, version: str) -> bool:
        """Whether a version is there, broken or not."""
        return self.place(stage, version).is_dir()

    def versions(self) -> set[tuple[str, str]]:
        """(stage, version) of all that is there."""
        stages = entries(self.home / "store")
        return {(stage.name, version.name) for stage in stages for version in entries(stage)}

    def age_seconds(self, stage: str, version: str) -> float:
        """How long ago a version was published, or something in its folder changed. Raises OSError."""
        return time.time() - self.place(stage, version).stat().st_mtime

    def manifest(self, stage: str, version: str) -> dict[str, Any]:
        """The manifest of a version. Raises StoreError when it is missing or altered."""
        place = self.place(stage, version)
        with explained(place):
            return manifest.read(place, stage, version)

    def publish(self, stage: str, staged: Path, version: str, files: Sequence[Entry]) -> None:
        """Make a staged folder with its manifest visible, or drop it where the version is there and intact."""
        place = self.place(stage, version)
        with self.changing(stage):
            if place.exists() and self._problems(stage, version, thorough=True):
                set_aside(self.home, place)
            if place.exists():
                manifest.fill(place, stage, version, staged, files)
                fsync_folder(place.parent)  # whoever published it may have died before
            else:
                rename_folder(staged, place)

    def folder(self, stage: str, version: str) -> Path:
        """The verified folder of a version. Raises StoreError that names the broken file; it is set aside."""
        place = self.place(stage, version)
        with explained(place):
            found = self.broken(stage, version)
            if found:
                raise StoreError(found[0].what, found[0].todo)
        return place

    def broken(self, stage: str, version: str, thorough: bool = False) -> list[Problem]:
        """What is wrong with a version. What is broken is set aside, after every byte was read again under the lock.

        Raises OSError when it can't be read.
        """
        place = self.place(stage, version)
        if not os.path.lexists(place):
            return [Problem(f"{stage} {version[:12]}: its content is not in the store", MISSING)]
        if not self._problems(stage, version, thorough):
            return []
        with ExitStack() as held:
            with suppress(OSError):  # a read-only store
                held.enter_context(self.changing(stage))
            found = self._problems(stage, version, thorough=True)
            return [Problem(what, todo) for todo in [away(self.home, place)] for what in found] if found else []

    def _problems(self, stage: str, version: str, thorough: bool) -> list[str]:
        if not self.place(stage, version).is_dir():
            return [f"{self.place(stage, version)} is no folder"]
        return manifest.problems(self.place(stage, version), stage, version, None if thorough else self._verified)

    def changing(self, stage: str) -> AbstractContextManager[int]:
        """Whoever adds or removes a version of `stage` holds this lock: none sets aside what another just mended."""
        return owners.held_lock(self.home / "locks" / f"content-{stage}")


# ── setting aside ────────────────────────────────────────────────────────────────────────────────────────────────────


def set_aside(home: Path, path: Path) -> None:
    """Move what is broken out of the way. Raises OSError."""
    distrust(path)
    rename_folder(path, home / "broken" / f"{path.parent.name}-{path.name}-{uuid4().hex[:8]}")


def away(home: Path, path: Path) -> str:
    """Set aside what is broken, and say what to do then; in a read-only store it stays, and readers refuse it."""
    try:
        set_aside(home, path)
    except OSError:
        return READ_ONLY
    return MAKE_ANEW


def distrust(place: Path) -> None:
    """Forget the hashes of what lies there, wherever else it lies: a kept download is the same file under another name,
    and where the disk lost bits by itself, no time stamp tells."""
    for path in place.rglob("*"):
        with suppress(OSError):
            if path.stat().st_nlink > 1:
                os.utime(path)


def entries(folder: Path) -> list[Path]:
    """Sorted entries of a folder that may not exist, without temporary files. Raises StoreError."""
    with explained(folder):
        try:
            return sorted(p for p in folder.iterdir() if not p.name.startswith("."))
        except FileNotFoundError:
            return []
