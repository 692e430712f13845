"""The store: like git, for artifacts.

A *version* names content (what a tree is to git), a *record* says how it came to be (a commit): it names a version, its
key, and the records of its inputs. Under the home folder:

    store/<stage>/<version>/   content, immutable; manifest.json lists every file with size, SHA-256 and content digest
    records/<digest>.json      provenance, immutable, named by its own digest
    memory/<key>/<digest>      which records answer to a key (empty files, append-only)
    assets/<recipe>/<asset>.json   the record that the asset has now, and those that it had
    staging/<uuid>/  rejected/<version>/  broken/  leases/  runs/<key>/<attempt>/  verified/  views/  locks/

A staging folder is owned by the lease of its name: the lease is there before the folder, and goes after it.

Publishing: files are fsynced, the manifest is written last, one rename makes the version visible; then record, memory,
pointer. A reader trusts only records, so that a crash at any point leaves nothing half-visible. Content is hashed on
first read and remembered by inode, size, mtime and ctime; what is broken is set aside, and its records no longer answer.
"""

import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import manifest, owners, progress, views
from pipeline.atomic import (
    canonical_json,
    explain,
    explained,
    fsync_folder,
    make_folder,
    rename_folder,
    write_bytes,
    write_json,
)
from pipeline.errors import StoreError
from pipeline.manifest import MANIFEST as MANIFEST
from pipeline.record import Record as Record
from pipeline.record import record_of

MAKE_ANEW = "It was set aside; the next `bert run` makes it anew."
CHAMPION = "champion.json"  # lies beside the pointers and is none


@dataclass(frozen=True)
class Problem:
    """Something in the store that is not what its digest says."""

    what: str
    todo: str


@dataclass(frozen=True)
class Rejected:
    """Content that failed its validation, with the record that it would have got."""

    folder: Path
    body: Mapping[str, Any]


class Store:
    """The store of one home folder. Folders are made when they are first written: a read-only store can be read."""

    def __init__(self, home: Path, lease_seconds: float = 60) -> None:
        self.home = home
        self.lease_seconds = lease_seconds

    # ── staging, leases, runs ────────────────────────────────────────────────────────────────────────────────────────

    def _place(self, stage: str, version: str) -> Path:
        return self.home / "store" / stage / version

    def _claim(self, name: str) -> Path:
        return self.home / "leases" / name

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """An empty folder for a stage to write into, owned by this process; removed at the end if it is still there."""
        name = uuid.uuid4().hex
        place = self.home / "staging" / name
        with explained(place), owners.claim(self._claim(f"staging-{name}"), self.lease_seconds):
            place.mkdir(parents=True)
            try:
                yield place
            finally:
                shutil.rmtree(place, ignore_errors=True)

    @contextmanager
    def lease(self, stage: str, version: str) -> Iterator[None]:
        """Say that this process reads a version, so that nobody clears it away meanwhile."""
        claim = self._claim(f"{stage}-{version}-{uuid.uuid4().hex}")
        with explained(claim), owners.claim(claim, self.lease_seconds):
            yield

    @contextmanager
    def run_folder(
        self, key: str, fresh: bool = False, waiting: Callable[[str], None] = logging.getLogger(__name__).warning
    ) -> Iterator[Path]:
        """The resumable state of a training run: its newest attempt, or a `fresh` one.

        A second process that wants the same run waits; `waiting` is told for whom, and may raise instead.
        """
        runs = self.home / "runs" / key
        with explained(runs), owners.held_lock(runs / "lock", waiting, f"training run {key[:12]}"):
            attempts = [int(path.name) for path in _entries(runs) if path.name.isdigit()]
            folder = runs / str(max(attempts) + fresh if attempts else 0)
            make_folder(folder)
            yield folder

    def sweep(self) -> list[str]:
        """Remove what dead owners left behind. Returns what was removed, relative to the home."""
        gone = self.leftovers()
        for path in gone:
            with suppress(OSError):
                if path.is_dir():
                    # First out of sight in one step: an owner that lives after all fails, and can't publish a part.
                    dead = path.with_name(f".{uuid.uuid4().hex}")
                    os.rename(path, dead)
                    shutil.rmtree(dead)
                else:
                    path.unlink(missing_ok=True)
        return [path.relative_to(self.home).as_posix() for path in gone]

    def leftovers(self) -> list[Path]:
        """Staging folders, leases and temporary files whose owner is dead, views whose files are gone, and what is left of
        rejected content that was accepted."""
        found = [
            place
            for place in _entries(self.home / "staging")
            if owners.is_dead(self._claim(f"staging-{place.name}"), self.lease_seconds)
        ]
        found += [claim for claim in _entries(self.home / "leases") if owners.is_dead(claim, self.lease_seconds)]
        found += [place for place in _entries(self.home / "views") if views.dangling(place)]
        old = [
            place
            for place in _entries(self.home / "rejected")
            if not (place / "content").is_dir() and not any(map(self._rejected, place.glob("*.json")))
        ]
        for folder in ("staging", "records", "leases", "verified", "views", "memory/*", "assets/*", "rejected/*"):
            old += [path for path in self.home.glob(f"{folder}/.*") if path.name != ".lock"]
        for path in old:
            with suppress(FileNotFoundError):
                if time.time() - path.lstat().st_mtime > self.lease_seconds:
                    found.append(path)
        return found

    # ── content ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, stage: str, staged: Path) -> str:
        """Make the files under `staged` a version of `stage`, durably, and return it.

        Where the version exists and is intact, `staged` is dropped; where it is broken, it is set aside and replaced.
        `references.json` in `staged` lists files that lie elsewhere: they are named in the manifest, not stored.
        Raises StoreError; then nothing is visible.
        """
        with explained(self.home / "store" / stage):
            files = manifest.list_files(staged)
            version = manifest.version_in(files)
            manifest.seal(staged, stage, version, files)
            (staged / manifest.REFERENCES).unlink(missing_ok=True)
            for folder, _, _ in os.walk(staged):
                fsync_folder(Path(folder))
            place = self._place(stage, version)
            with self._changing(stage):
                if place.exists() and self._problems(stage, version, thorough=True):
                    self._set_aside(place)
                if place.exists():
                    manifest.fill(place, stage, version, staged, files)
                    fsync_folder(place.parent)  # whoever published it may have died before
                else:
                    rename_folder(staged, place)
        shutil.rmtree(staged, ignore_errors=True)
        return version

    def version_of(self, staged: Path) -> str:
        """The version that publishing `staged` would give."""
        with explained(staged):
            return manifest.version_in(manifest.list_files(staged))

    def manifest(self, stage: str, version: str) -> dict[str, Any]:
        """The manifest of a version: {stage, version, files}. Raises StoreError when it is missing or altered."""
        place = self._place(stage, version)
        with explained(place):
            return manifest.read(place, stage, version)

    def content(self, stage: str, version: str) -> Path:
        """Where the files of a version lie, unverified."""
        return self._place(stage, version)

    def folder(self, stage: str, version: str, references: Path | None = None) -> Path:
        """The verified folder of a version, to read from.

        Sizes are compared, hashes on first read. `references` is where the files lie that the manifest only names (a file, or
        the folder that holds them); the folder returned then has links to them. Raises StoreError that names the file; what
        is broken is set aside.
        """
        place = self._place(stage, version)
        with explained(place):
            found = self._broken(stage, version)
            if found:
                raise StoreError(found[0].what, found[0].todo)
            files = self.manifest(stage, version)["files"]
            named = [file for file in files if file.get("referenced")]
            if not named:
                return place
            if references is None:
                raise StoreError(
                    f"{stage} {version[:12]}: {named[0]['path']} is only referenced, and this recipe does not say where it lies",
                    "Name its path in the recipe.",
                )
            links = {file["path"]: place / file["path"] for file in files}
            links |= {file["path"]: manifest.locate(file, references, self.verified) for file in named}
            return views.view(self.home / "views", {path: target.resolve() for path, target in links.items()})

    @property
    def verified(self) -> Path:
        """Where hashes of files are remembered."""
        return self.home / "verified"

    def intact(self, stage: str, version: str) -> bool:
        """Whether a version is there, can be read, and is what its digests say. What is broken is set aside."""
        try:
            return not self._broken(stage, version)
        except OSError:
            return False

    def _problems(self, stage: str, version: str, thorough: bool) -> list[str]:
        return manifest.problems(self._place(stage, version), stage, version, None if thorough else self.verified)

    def _changing(self, stage: str) -> AbstractContextManager[int]:
        """Whoever adds or removes a version of `stage` holds this lock: none sets aside what another just mended."""
        return owners.held_lock(self.home / "locks" / f"content-{stage}")

    def _broken(self, stage: str, version: str, thorough: bool = False) -> list[Problem]:
        """What is wrong with a version. What is broken is set aside, after every byte was read again under the lock.

        Raises OSError when it can't be read.
        """
        place = self._place(stage, version)
        if not os.path.lexists(place):
            what = f"{stage} {version[:12]}: its content is not in the store"
            return [Problem(what, "The next `bert run` makes it anew if an asset needs it.")]
        if not self._problems(stage, version, thorough):
            return []
        with ExitStack() as held:
            with suppress(OSError):  # a read-only store
                held.enter_context(self._changing(stage))
            found = self._problems(stage, version, thorough=True)
            return [Problem(what, todo) for todo in [self._away(place)] for what in found] if found else []

    def _set_aside(self, path: Path) -> None:
        """Move what is broken out of the way. Raises OSError."""
        _distrust(path)
        rename_folder(path, self.home / "broken" / f"{path.parent.name}-{path.name}-{uuid.uuid4().hex[:8]}")

    def _away(self, path: Path) -> str:
        """Set aside what is broken, and say what to do then; in a read-only store it stays, and readers refuse it."""
        try:
            self._set_aside(path)
        except OSError:
            return "The store can't be written: run `bert verify` where it can."
        return MAKE_ANEW

    # ── what failed its validation ───────────────────────────────────────────────────────────────────────────────────

    def reject(self, staged: Path, body: Mapping[str, Any]) -> str:
        """Keep content that failed its validation, with the record that it would have got (`body`: its stage, key and
        validation results), under `rejected/`. Returns its version."""
        with explained(self.home / "rejected"):
            version = self.version_of(staged)
            place = self.home / "rejected" / version
            if (place / "content").exists():  # an earlier run, or another recipe's, gave the same
                shutil.rmtree(place / "content")
            write_json(place / f"{body['key']}.json", {**body, "version": version})
            _distrust(staged)
            rename_folder(staged, place / "content")
            return version

    def rejections(self, stage: str) -> list[Rejected]:
        """What was rejected of a stage and no record was appended for since."""
        told = [path for place in _entries(self.home / "rejected") for path in sorted(place.glob("*.json"))]
        found = [self._rejected(path) for path in told]
        return [rejected for rejected in found if rejected is not None and rejected.body["stage"] == stage]

    def _rejected(self, path: Path) -> Rejected | None:
        """What a file KEY.json of `rejected/VERSION` tells. After `accept` moved the content away, it counts until its
        record exists."""
        place = path.parent
        try:
            body = json.loads(path.read_bytes())
            stage, key, version = body["stage"], body["key"], body["version"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not (place / "content").is_dir():
            recorded = any(record.version == version for record in self.remembered(key))
            if recorded or not self._place(stage, version).is_dir():
                return None
        return Rejected(place, body)

    def note_waiver(self, rejected: Rejected, body: Mapping[str, Any]) -> None:
        """Keep `body`, with one more waiver, beside the rejected content."""
        with explained(rejected.folder):
            write_json(rejected.folder / f"{body['key']}.json", dict(body))

    def accept(self, rejected: Rejected) -> str:
        """Publish rejected content; the caller appends its record. A crash in between loses nothing: it can be accepted
        again. Raises StoreError when it is no longer what was rejected."""
        stage, version = str(rejected.body["stage"]), str(rejected.body["version"])
        content = rejected.folder / "content"
        if not content.is_dir():
            if not self.intact(stage, version):
                raise StoreError(f"{content} is gone", "Run the asset again.")
        elif self.version_of(content) != version:
            raise StoreError(f"{content}: it was changed since it was rejected", "Run the asset again.")
        else:
            self.publish(stage, content)
        return version

    # ── records, memory, pointers ────────────────────────────────────────────────────────────────────────────────────

    def append(self, body: Mapping[str, Any]) -> Record:
        """Write a record and remember it under its key: from now on its result is published. Raises StoreError."""
        try:
            data = canonical_json(dict(body))
            record = record_of(data)
        except (ValueError, TypeError) as error:
            raise StoreError(f"the record of {body.get('stage')} can't be written: {error}", manifest.FAULT) from error
        with explained(self.home / "records"):
            write_bytes(self.home / "records" / f"{record.digest}.json", data)
            write_bytes(self.home / "memory" / record.key / record.digest, b"")
        return record

    def record(self, digest: str) -> Record:
        """The record of this digest. Raises StoreError when it is missing, altered or unreadable."""
        path = self._record(digest)
        with explained(path):
            try:
                return self._load(digest)
            except FileNotFoundError:
                raise StoreError(
                    f"record {digest[:12]} is not in the store", "Restore it from a backup, or run again."
                ) from None
            except ValueError:
                raise StoreError(
                    f"{path}: the record was altered", "`bert verify` sets it aside; the next `bert run` records anew."
                ) from None

    def _record(self, digest: str) -> Path:
        return self.home / "records" / f"{digest}.json"

    def _load(self, digest: str) -> Record:
        """A record. Raises FileNotFoundError when there is none, ValueError when it was altered, OSError."""
        record = record_of(self._record(digest).read_bytes())
        if record.digest != digest:
            raise ValueError("altered")
        return record

    def remembered(self, key: str) -> list[Record]:
        """Records that answer to a key and whose content is intact, oldest first. Raises StoreError."""
        found = []
        with explained(self.home / "memory" / key):
            for entry in _entries(self.home / "memory" / key):
                with suppress(FileNotFoundError, ValueError):
                    record = self._load(entry.name)
                    if record.key == key and self.intact(record.stage, record.version):
                        found.append(record)
        return sorted(found, key=lambda record: (record.body["finished"], record.digest))

    def point(self, recipe: str, asset: str, record: Record) -> None:
        """Make `record` what the asset is now; what it was goes into its history. Raises StoreError."""
        path = self._pointer(recipe, asset)
        with explained(path), owners.held_lock(self.home / "locks" / f"pointer-{recipe}-{asset}"):
            had = _pointed(path)
            if not had and path.exists():
                self._set_aside(path)
            if not had or had[0] != record.digest:
                known = [digest for digest in had if self._record(digest).exists()]  # a flipped bit names none
                write_json(path, {"record": record.digest, "history": known})

    def pointer(self, recipe: str, asset: str) -> Record | None:
        """The record that the asset has now; None if it has none, or if pointer or record is broken. Raises StoreError
        when they can't be read."""
        path = self._pointer(recipe, asset)
        with explained(path), suppress(FileNotFoundError, ValueError):
            pointed = _pointed(path)
            return self._load(pointed[0]) if pointed else None
        return None

    def history(self, recipe: str, asset: str) -> list[str]:
        """Digests of the records that the asset has and had, newest first."""
        path = self._pointer(recipe, asset)
        with explained(path):
            return _pointed(path)

    def _pointer(self, recipe: str, asset: str) -> Path:
        return self.home / "assets" / recipe / f"{asset}.json"

    # ── verification ─────────────────────────────────────────────────────────────────────────────────────────────────

    def verify(self) -> list[Problem]:
        """Read every byte of every record, pointer and version again, and follow what assets have now back to its
        sources. What is broken is set aside and reported."""
        problems, records = [], {}
        with explained(self.home):
            for path in sorted((self.home / "records").glob("*.json")):
                try:
                    records[path.stem] = self._load(path.stem)
                except ValueError:
                    problems.append(Problem(f"{path}: the record was altered", self._away(path)))
            current: dict[str, str] = {}  # digest → who names it
            for path in sorted((self.home / "assets").glob("*/*.json")):
                pointed = _pointed(path)
                if pointed:
                    current.setdefault(pointed[0], str(path))
                    problems += self._lost_history(path, pointed, set(records))
                elif path.name != CHAMPION:
                    problems.append(Problem(f"{path}: not a pointer", self._away(path)))
            versions = {
                (stage.name, version.name) for stage in _entries(self.home / "store") for version in _entries(stage)
            }
            waiting = list(current)
            while waiting:
                digest = waiting.pop()
                record = records.get(digest)
                if record is None:
                    what = f"{current[digest]} names record {digest[:12]}, which is missing"
                    problems.append(Problem(what, "Restore it from a backup; or the next `bert run` records anew."))
                    continue
                versions.add((record.stage, record.version))
                for name, source in record.inputs.items():
                    if source not in current:
                        current[source] = f"{self._record(digest)}, input {name},"
                        waiting.append(source)
        for stage_name, version in progress.track(sorted(versions), len(versions), "versions"):
            problems += self.verify_version(stage_name, version)
        return problems

    def _lost_history(self, path: Path, pointed: list[str], known: set[str]) -> list[Problem]:
        """Records in the history of a pointer that do not exist: they are taken out, as a flipped bit would leave one."""
        lost = [digest for digest in pointed[1:] if digest not in known]
        if not lost:
            return []
        todo = "It was taken out of the history; what the asset has now is not touched."
        try:
            write_json(path, {"record": pointed[0], "history": [d for d in pointed[1:] if d in known]})
        except (OSError, StoreError):
            todo = "What the asset has now is not touched; run this where the store can be written."
        return [Problem(f"{path}: its history names record {digest[:12]}, which is missing", todo) for digest in lost]

    def verify_version(self, stage: str, version: str) -> list[Problem]:
        """Read every byte of one version again. What is broken is set aside."""
        try:
            return self._broken(stage, version, thorough=True)
        except OSError as error:
            told = explain(error, self._place(stage, version))
            return [Problem(told.what, told.todo)]


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _distrust(place: Path) -> None:
    """Forget the hashes of what lies there, wherever else it lies: a kept download is the same file under another name,
    and where the disk lost bits by itself, no time stamp tells."""
    for path in place.rglob("*"):
        with suppress(OSError):
            if path.stat().st_nlink > 1:
                os.utime(path)


def _pointed(path: Path) -> list[str]:
    """Digests in a pointer file, newest first; empty when there is none, or when it is broken. Raises OSError."""
    try:
        found = json.loads(path.read_bytes())
        digests = [found["record"], *found["history"]]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []
    return digests if all(isinstance(d, str) and len(d) == 64 for d in digests) else []


def _entries(folder: Path) -> list[Path]:
    """Sorted entries of a folder that may not exist, without temporary files."""
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise explain(error, folder) from error
