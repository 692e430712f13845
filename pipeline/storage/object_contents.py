"""The content of versions in an object store, where nothing is renamed and other machines write too.

    store/<stage>/data/<copy>/{files…, manifest.json}   a copy of a version, the manifest written last
    store/<stage>/<version>/<copy>                      an empty object: this copy holds this version (append-only)
    broken/<stage>/<version>/<copy>                     an empty object: this copy is broken and was set aside

A version is there if one of its copies is whole. Two that publish the same at once make two copies; either will do. What a
writer leaves that dies is a copy that nothing names: its lease, under the home folder, says which, and `sweep` removes it.

Files are read from a folder of this machine, `cache/<stage>/<version>`: fetched once, verified by size and SHA-256, and
visible by one rename. It may be removed whenever nothing runs.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from pipeline import progress, units
from pipeline.errors import StoreError
from pipeline.storage import manifest
from pipeline.storage.content import file_sha256
from pipeline.storage.contents import MAKE_ANEW, MISSING, READ_ONLY, Problem
from pipeline.storage.manifest import MANIFEST, Entry
from pipeline.storage.objects import Objects
from pipeline.system import owners, places
from pipeline.system.atomic import explained, fsync_folder, rename_folder, write_bytes

DATA = "data"
UPLOAD = "upload-"
"""Beginning of the name of a writer's lease: upload-STAGE-COPY."""
ANOTHER_IS_WHOLE = "It was set aside; another copy of this version is whole."


class ObjectContents:
    """Versions below a URL; `staging` gives an empty folder of this machine that is removed at the end."""

    def __init__(
        self, there: Objects, home: Path, lease_seconds: float, staging: Callable[[], AbstractContextManager[Path]]
    ) -> None:
        self.there = there
        self.home = home
        self._lease_seconds = lease_seconds
        self._staging = staging

    # ── what is there ────────────────────────────────────────────────────────────────────────────────────────────────

    def _kept(self, stage: str, version: str) -> Path:
        return self.home / "cache" / stage / version

    def _copies(self, stage: str, version: str) -> list[str]:
        return self.there.names(f"store/{stage}/{version}")

    def place(self, stage: str, version: str) -> Path:
        """Where the files of a version lie, unverified: on this machine if they were fetched, else a URL."""
        kept = self._kept(stage, version)
        if kept.is_dir():
            return kept
        copies = self._copies(stage, version)
        return places.place(self.there.at(_data(stage, copies[0]) if copies else f"store/{stage}/{version}"))

    def url(self, stage: str, version: str) -> str:
        """URL of the folder of a whole copy, the one that only names the fewest files. Raises StoreError."""
        for copy in self._sorted(stage, version):
            if not self._problems(stage, version, copy, thorough=False):
                return self.there.at(_data(stage, copy))
        raise StoreError(f"{stage} {version[:12]}: its content is not in the store", MISSING)

    def copy_url(self, stage: str, copy: str) -> str:
        """URL of the folder of a copy."""
        return self.there.at(_data(stage, copy))

    def exists(self, stage: str, version: str) -> bool:
        """Whether a version is there, broken or not."""
        return bool(self._copies(stage, version))

    def versions(self) -> set[tuple[str, str]]:
        """(stage, version) of all that is there."""
        stages = self.there.names("store")
        return {(stage, name) for stage in stages for name in self.there.names(f"store/{stage}") if name != DATA}

    def age_seconds(self, stage: str, version: str) -> float:
        """How long ago the last copy of a version was published. Raises FileNotFoundError when one goes meanwhile."""
        copies = self._copies(stage, version)
        return min((self.there.age_seconds(f"store/{stage}/{version}/{copy}") for copy in copies), default=0.0)

    def manifest(self, stage: str, version: str) -> dict[str, Any]:
        """The manifest of a version. Raises StoreError when it is missing or altered."""
        kept = self._kept(stage, version)
        if kept.is_dir():
            with suppress(StoreError), explained(kept):
                return manifest.read(kept, stage, version)
        wrong = ""
        for copy in self._copies(stage, version):
            found = self._manifest(stage, version, copy)
            if isinstance(found, dict):
                return found
            wrong = found
        what = wrong or f"{stage} {version[:12]}: its content is not in the store"
        raise StoreError(what, "`bert verify` sets it aside; the next `bert run` makes it anew." if wrong else MISSING)

    def _manifest(self, stage: str, version: str, copy: str) -> dict[str, Any] | str:
        """The manifest of a copy, or what is wrong with it. Raises StoreError when it can't be read."""
        name = f"{_data(stage, copy)}/{MANIFEST}"
        try:
            data = self.there.read(name)
        except FileNotFoundError:
            return f"{self.there.at(name)}: missing"
        return manifest.parsed(data, stage, version) or f"{self.there.at(name)}: the manifest was altered"

    def _sorted(self, stage: str, version: str) -> list[str]:
        """The copies of a version, those that hold most files themselves first."""
        found = [(copy, self._manifest(stage, version, copy)) for copy in self._copies(stage, version)]
        return [copy for copy, told in sorted(found, key=lambda each: _named_only(each[1]))]

    # ── what is wrong ────────────────────────────────────────────────────────────────────────────────────────────────

    def broken(self, stage: str, version: str, thorough: bool = False) -> list[Problem]:
        """What is wrong with a version; `thorough`: with any copy, every byte read. Broken copies are set aside.

        Without `thorough` the names and sizes of files are compared, and one whole copy is enough.
        """
        found: list[tuple[str, list[str]]] = []
        whole = 0
        for copy in self._copies(stage, version):
            wrong = self._problems(stage, version, copy, thorough)
            whole += not wrong
            if wrong:
                found.append((copy, wrong))
        problems = [
            Problem(what, todo)
            for copy, wrong in found
            for todo in [self._away(stage, version, copy, whole > 0)]
            for what in wrong
        ]
        if not whole and not problems:
            return [Problem(f"{stage} {version[:12]}: its content is not in the store", MISSING)]
        return problems if thorough or not whole else []

    def _problems(self, stage: str, version: str, copy: str, thorough: bool) -> list[str]:
        folder = _data(stage, copy)
        told = self._manifest(stage, version, copy)
        if isinstance(told, str):
            return [told]
        listed = {entry["path"]: entry for entry in told["files"]}
        sizes = {name: size for name, size in self.there.sizes(folder).items() if not _hidden(name)}
        sizes.pop(MANIFEST, None)
        found = []
        if manifest.version_in(told["files"]) != version:
            found.append(f"{self.there.at(folder)}/{MANIFEST}: its digests don't make this version")
        for name in sorted({*listed, *sizes}):
            at = f"{self.there.at(folder)}/{name}"
            if name not in listed:
                found.append(f"{at}: not in the manifest")
            elif name not in sizes:
                if not listed[name].get("referenced"):
                    found.append(f"{at}: missing")
            elif sizes[name] != listed[name]["size_bytes"] or (thorough and not self._same(folder, listed[name])):
                found.append(f"{at}: its bytes are not those that were published")
        return found

    def _same(self, folder: str, entry: Entry) -> bool:
        """Whether an object has its SHA-256; read again where not, so that a fault on the way is not taken for one of the
        store."""
        with suppress(FileNotFoundError):
            return any(self.there.sha256(f"{folder}/{entry['path']}") == entry["sha256"] for _ in range(2))
        return False

    def _away(self, stage: str, version: str, copy: str, another: bool) -> str:
        """Set a broken copy aside, and say what to do then."""
        try:
            self.there.write(f"broken/{stage}/{version}/{copy}", b"")
            self.there.remove(f"store/{stage}/{version}/{copy}")
        except StoreError:
            return READ_ONLY
        return ANOTHER_IS_WHOLE if another else MAKE_ANEW

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def writing(self, stage: str) -> Iterator[str]:
        """A new copy to write; at the end it is removed unless it was published."""
        copy = uuid4().hex
        with owners.claim(self.home / "leases" / f"{UPLOAD}{stage}-{copy}", self._lease_seconds):
            try:
                yield copy
            finally:
                with suppress(StoreError):  # the error that matters is under way
                    self._discard(stage, copy)

    def discarded(self, lease: str) -> bool:
        """Remove the copy of a dead writer, by the name of its lease; True for any other lease. False where the store can't
        be written now."""
        if not lease.startswith(UPLOAD):
            return True
        stage, _, copy = lease.removeprefix(UPLOAD).rpartition("-")
        try:
            self._discard(stage, copy)
        except StoreError:
            return False
        return True

    def _discard(self, stage: str, copy: str) -> None:
        """Remove a copy unless it was published."""
        with suppress(FileNotFoundError):
            data = self.there.read(f"{_data(stage, copy)}/{MANIFEST}")
            version = manifest.version_told(data)
            if copy in self._copies(stage, version) or copy in self.there.names(f"trash/{stage}/{version}"):
                return
        self.there.remove_all(_data(stage, copy))

    def publish(self, stage: str, staged: Path, version: str, files: Sequence[Entry], copy: str = "") -> None:
        """Make a staged folder with its manifest a copy of the version, unless a whole one is there that holds as much.

        `copy`: one that workers have begun to write; what is there already with the right size is not sent again.
        """
        held = {entry["path"] for entry in files if not entry.get("referenced")}
        for there in self._copies(stage, version):
            if self._problems(stage, version, there, thorough=False):
                continue
            told = self._manifest(stage, version, there)
            if isinstance(told, dict) and held <= {e["path"] for e in told["files"] if not e.get("referenced")}:
                break
        else:
            if copy:
                self._send(stage, staged, version, files, copy)
            else:
                with self.writing(stage) as copy:
                    self._send(stage, staged, version, files, copy)
        self._keep(stage, version, staged)

    def _send(self, stage: str, staged: Path, version: str, files: Sequence[Entry], copy: str) -> None:
        folder = _data(stage, copy)
        held = {str(entry["path"]): int(entry["size_bytes"]) for entry in files if not entry.get("referenced")}
        there = self.there.sizes(folder)
        for top in {name.partition("/")[0] for name in there if name not in held}:
            if top.startswith("."):  # what workers wrote on their way
                self.there.remove_all(f"{folder}/{top}")
        for name in there:
            if name not in held and not name.startswith("."):
                self.there.remove(f"{folder}/{name}")
        missing = {name: size for name, size in held.items() if there.get(name) != size}
        sent = _Sum(sum(missing.values()), "bytes sent to the store")
        for name in missing:
            self.there.upload(staged / name, f"{folder}/{name}", sent.add)
        there = self.there.sizes(folder)
        for name, size in held.items():
            if there.get(name) != size:
                raise StoreError(f"{self.there.at(folder)}/{name}: it did not arrive whole", "Run again.")
        self.there.write(f"{folder}/{MANIFEST}", (staged / MANIFEST).read_bytes())
        self.there.write(f"store/{stage}/{version}/{copy}", b"")

    def _keep(self, stage: str, version: str, staged: Path) -> None:
        """Let a published folder be the one that is read here, where there is none as good."""
        kept = self._kept(stage, version)
        with self._fetching(stage, version):
            had = self._whole_here(stage, version)
            if had is None or _named_only(had) > _named_only(manifest.read(staged, stage, version)):
                if kept.exists():
                    shutil.rmtree(kept)
                rename_folder(staged, kept)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def folder(self, stage: str, version: str) -> Path:
        """The verified folder of a version on this machine, fetched if need be. Raises StoreError that names the broken
        file; its copy is set aside, and the next one is tried."""
        kept = self._kept(stage, version)
        had = self._whole_here(stage, version)
        if had is not None and not _named_only(had):
            return kept
        with explained(kept), self._fetching(stage, version):
            had = self._whole_here(stage, version)
            if had is not None and not (_named_only(had) and self._more_there(stage, version, had)):
                return kept
            self._fetch(stage, version, kept)
        return kept

    def uncache(self, stage: str, version: str) -> None:
        """Remove the folder of a version on this machine; it is fetched again when it is read."""
        kept = self._kept(stage, version)
        if kept.is_dir():
            with self._fetching(stage, version), explained(kept):
                gone = kept.with_name(f".{uuid4().hex}")
                os.rename(kept, gone)
                shutil.rmtree(gone, ignore_errors=True)

    def _whole_here(self, stage: str, version: str) -> dict[str, Any] | None:
        """The manifest of the folder on this machine, if that is what its digests say."""
        kept = self._kept(stage, version)
        if not kept.is_dir() or manifest.problems(kept, stage, version, self.home / "verified"):
            return None
        return manifest.read(kept, stage, version)

    def _more_there(self, stage: str, version: str, had: Mapping[str, Any]) -> bool:
        told = (self._manifest(stage, version, copy) for copy in self._copies(stage, version))
        return any(isinstance(each, dict) and _named_only(each) < _named_only(had) for each in told)

    def _fetch(self, stage: str, version: str, kept: Path) -> None:
        broken: list[tuple[str, str]] = []
        whole = False
        for copy in self._sorted(stage, version):
            with self._staging() as staged:
                wrong = self._download(stage, version, copy, staged)
                whole = not wrong
                if whole:
                    if kept.exists():
                        shutil.rmtree(kept)
                    rename_folder(staged, kept)
                    break
            broken.append((copy, wrong))
        todos = [self._away(stage, version, copy, whole) for copy, _ in broken]
        if not whole:
            missing = f"{stage} {version[:12]}: its content is not in the store"
            raise StoreError(broken[0][1], todos[0]) if broken else StoreError(missing, MISSING)

    def _download(self, stage: str, version: str, copy: str, staged: Path) -> str:
        """Fetch a copy and verify it. Returns what is wrong with it, or ""."""
        wrong = self._problems(stage, version, copy, thorough=False)
        told = self._manifest(stage, version, copy)
        if wrong or isinstance(told, str):
            return wrong[0] if wrong else str(told)
        files = [entry for entry in told["files"] if not entry.get("referenced")]
        for entry in files:
            path = PurePosixPath(entry["path"])
            if path.is_absolute() or ".." in path.parts:
                return (
                    f"{self.there.at(_data(stage, copy))}/{MANIFEST}: it names {entry['path']!r}, which lies elsewhere"
                )
        total = sum(int(entry["size_bytes"]) for entry in files)
        _check_room(staged, total)
        got = _Sum(total, "bytes fetched from the store")
        for entry in files:
            target = staged / entry["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            name = f"{_data(stage, copy)}/{entry['path']}"
            for _ in range(2):  # once more, so that a fault on the way is not taken for one of the store
                try:
                    self.there.download(name, target, got.add)
                except FileNotFoundError:
                    return f"{self.there.at(name)}: missing"
                if file_sha256(target) == entry["sha256"]:
                    break
            else:
                return f"{self.there.at(name)}: its bytes are not those that were published"
        write_bytes(staged / MANIFEST, manifest.sealed(told))
        fsync_folder(staged)
        return ""

    def _fetching(self, stage: str, version: str) -> AbstractContextManager[int]:
        """Whoever changes the folder of a version on this machine holds this lock: it is not fetched twice at once."""
        return owners.held_lock(self.home / "locks" / f"cache-{stage}-{version}")


class _Sum:
    """Reports how many bytes of all are done."""

    def __init__(self, total: int, unit: str) -> None:
        self._total, self._unit, self._done = total, unit, 0

    def add(self, size: int) -> None:
        """So many more."""
        self._done += size
        progress.report(min(self._done, self._total), self._total, self._unit)


def _data(stage: str, copy: str) -> str:
    return f"store/{stage}/{DATA}/{copy}"


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _named_only(told: Mapping[str, Any] | str) -> float:
    """How many files a manifest only names; a broken one is the worst."""
    return float("inf") if isinstance(told, str) else sum(bool(e.get("referenced")) for e in told["files"])


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StoreError(
            f"{folder}: what is fetched from the store needs {units.size(needed)} here, {units.size(free)} are free",
            "Free space (cache/ under the home folder may be removed while nothing runs), or move `home` in settings.yaml.",
        )
