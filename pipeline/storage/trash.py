"""Content that was removed: first out of sight, in the trash, from where it comes back in one step; later for good.

On a disk: trash/<stage>/<version>/, by one rename. In an object store nothing is renamed: the copies stay where they are,
trash/<stage>/<version>/<copy> (empty) says that they are in the trash, and the object that made them the version goes.

tombstones/<stage>/<version>.json is written before the content goes, and stays. Whoever changes any of this holds the
lock of the stage's content, so that nothing is removed while another process publishes it.
"""

import os
import shutil
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from pipeline.errors import StoreError
from pipeline.storage import tombstones
from pipeline.storage.contents import LocalContents, away, entries
from pipeline.storage.object_contents import DATA, ObjectContents
from pipeline.storage.tombstones import Tombstone
from pipeline.system import owners
from pipeline.system.atomic import fsync_folder, rename_folder, write_bytes

Version = tuple[str, str]
"""stage, version"""


class LocalTrash:
    """Of versions under the home folder."""

    def __init__(self, contents: LocalContents) -> None:
        self.contents = contents
        self.home = contents.home

    def _place(self, stage: str, version: str) -> Path:
        return self.home / "trash" / stage / version

    def _stone(self, stage: str, version: str) -> Path:
        return self.home / "tombstones" / stage / f"{version}.json"

    def listed(self) -> set[Version]:
        """What is in the trash."""
        stages = entries(self.home / "trash")
        return {(stage.name, version.name) for stage in stages for version in entries(stage)}

    def holds(self, stage: str, version: str) -> bool:
        """Whether a version is in the trash."""
        return self._place(stage, version).is_dir()

    def tombstone(self, stage: str, version: str) -> Tombstone | None:
        """The tombstone of a version, whether its content is there or not; None where there is none that is whole."""
        try:
            return tombstones.parsed(self._stone(stage, version).read_bytes(), stage, version)
        except OSError:
            return None

    def altered(self) -> dict[str, str]:
        """Tombstones that are not what was written, by path, each with what was done about it: they are set aside."""
        found = sorted((self.home / "tombstones").glob("*/[!.]*.json"))
        broken = [path for path in found if self.tombstone(path.parent.name, path.stem) is None]
        return {str(path): away(self.home, path) for path in broken}

    def changing(self, stage: str) -> AbstractContextManager[int]:
        """The lock under which versions of a stage come and go."""
        return self.contents.changing(stage)

    def put(self, stone: Tombstone) -> None:
        """Put the content of a version into the trash. The caller holds the lock."""
        source, target = self.contents.place(stone.stage, stone.version), self._place(stone.stage, stone.version)
        self._inside(source.parent)
        self._inside(target.parent)
        write_bytes(self._stone(stone.stage, stone.version), stone.data())
        self.drop(stone.stage, stone.version)  # an older copy of the same
        rename_folder(source, target)

    def bring_back(self, stage: str, version: str, time: str) -> None:
        """Make what is in the trash the version again, at `time`. The caller holds the lock."""
        source, target = self._place(stage, version), self.contents.place(stage, version)
        self._inside(source.parent)
        self._inside(target.parent)
        if target.is_dir():
            self.drop(stage, version)
        else:
            rename_folder(source, target)
        stone = self.tombstone(stage, version)
        if stone is not None:
            write_bytes(self._stone(stage, version), replace(stone, restored=time).data())

    def drop(self, stage: str, version: str) -> None:
        """Remove what is in the trash for good. The caller holds the lock."""
        place = self._place(stage, version)
        if not os.path.lexists(place):
            return
        self._inside(place.parent)
        gone = self.home / "trash" / f".{uuid4().hex}"  # out of sight in one step: no half of it comes back
        os.rename(place, gone)
        fsync_folder(place.parent)
        self._remove(gone)

    def forget(self, stage: str, version: str) -> None:
        """Remove the tombstone of a version that is there again."""
        path = self._stone(stage, version)
        if path.exists():
            with self.changing(stage):
                if self.contents.exists(stage, version):
                    path.unlink(missing_ok=True)
                    fsync_folder(path.parent)

    def sweep(self) -> None:
        """Go on with removals that were killed."""
        for left in (self.home / "trash").glob(".*"):
            self._remove(left)

    def _remove(self, path: Path) -> None:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path, ignore_errors=True)  # what is left, the next `bert gc` removes

    def _inside(self, folder: Path) -> None:
        """Refuse a folder that a link leads out of the home: what lies there is not ours to move."""
        if not folder.resolve().is_relative_to(self.home.resolve()):
            raise StoreError(
                f"{folder} lies outside of {self.home}: it leads to {folder.resolve()}",
                "`bert gc` moves nothing there. To keep the store on another disk, set `home` in settings.yaml.",
            )


class ObjectTrash:
    """Of versions in an object store."""

    def __init__(self, contents: ObjectContents) -> None:
        self.contents = contents
        self.there = contents.there
        self.home = contents.home

    def listed(self) -> set[Version]:
        """What is in the trash."""
        names = self.there.names
        return {(stage, version) for stage in names("trash") for version in names(f"trash/{stage}")}

    def holds(self, stage: str, version: str) -> bool:
        """Whether a version is in the trash."""
        return bool(self.there.names(f"trash/{stage}/{version}"))

    def tombstone(self, stage: str, version: str) -> Tombstone | None:
        """The tombstone of a version, whether its content is there or not; None where there is none that is whole."""
        try:
            return tombstones.parsed(self.there.read(_stone(stage, version)), stage, version)
        except FileNotFoundError:
            return None

    def altered(self) -> dict[str, str]:
        """Tombstones that are not what was written, by name, each with what to do about it."""
        found = [(s, name.removesuffix(".json")) for s in self.there.names("tombstones") for name in self._stones(s)]
        todo = "Remove it: what it said is lost; where the content is gone, the next `bert run` makes it anew."
        return {self.there.at(_stone(*each)): todo for each in sorted(found) if self.tombstone(*each) is None}

    def _stones(self, stage: str) -> list[str]:
        return self.there.names(f"tombstones/{stage}")

    def changing(self, stage: str) -> AbstractContextManager[int]:
        """The lock under which versions of a stage come and go, among processes of this home."""
        return owners.held_lock(self.home / "locks" / f"content-{stage}")

    def put(self, stone: Tombstone) -> None:
        """Put the copies of a version into the trash. The caller holds the lock."""
        at = f"{stone.stage}/{stone.version}"
        copies = self.there.names(f"store/{at}")
        self.there.write(_stone(stone.stage, stone.version), stone.data())
        for copy in copies:
            self.there.write(f"trash/{at}/{copy}", b"")
        for copy in copies:
            self.there.remove(f"store/{at}/{copy}")
        self.contents.uncache(stone.stage, stone.version)

    def bring_back(self, stage: str, version: str, time: str) -> None:
        """Make what is in the trash the version again, at `time`. The caller holds the lock."""
        at = f"{stage}/{version}"
        copies = self.there.names(f"trash/{at}")
        for copy in copies:
            self.there.write(f"store/{at}/{copy}", b"")
        for copy in copies:
            self.there.remove(f"trash/{at}/{copy}")
        stone = self.tombstone(stage, version)
        if stone is not None:
            self.there.write(_stone(stage, version), replace(stone, restored=time).data())

    def drop(self, stage: str, version: str) -> None:
        """Remove what is in the trash for good. The caller holds the lock."""
        living = set(self.there.names(f"store/{stage}/{version}"))  # a move into the trash that was killed
        for copy in self.there.names(f"trash/{stage}/{version}"):
            if copy not in living:
                self.there.remove_all(f"store/{stage}/{DATA}/{copy}")
            self.there.remove(f"trash/{stage}/{version}/{copy}")

    def forget(self, stage: str, version: str) -> None:
        """Remove the tombstone of a version that is there again."""
        with suppress(FileNotFoundError):
            self.there.read(_stone(stage, version))
            with self.changing(stage):
                if self.contents.exists(stage, version):
                    self.there.remove(_stone(stage, version))

    def sweep(self) -> None:
        """Nothing is left half removed: what is in the trash is named there until its last object is gone."""


def _stone(stage: str, version: str) -> str:
    return f"tombstones/{stage}/{version}.json"
