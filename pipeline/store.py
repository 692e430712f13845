"""The store: like git, for artifacts.

A *version* names content (what a tree is to git), a *record* says how it came to be (a commit): it names a version, its
key, and the records of its inputs. Under the home folder:

    store/<stage>/<version>/   content, immutable; manifest.json lists every file with size, SHA-256 and content digest
    records/<digest>.json      provenance, immutable, named by its own digest
    memory/<key>/<digest>      which records answer to a key (empty files, append-only)
    assets/<recipe>/<asset>.json   the record that the asset has now, and those that it had
    staging/<uuid>/  rejected/<version>/  broken/  leases/  runs/<key>/<attempt>/  verified/  views/  locks/

Publishing: files are fsynced, the manifest is written last, one rename makes the version visible; then record, memory,
pointer. A reader trusts only records, so that a crash at any point leaves nothing half-visible. Content is hashed on
first read and remembered by inode, size, mtime and ctime; what is broken is set aside, and its records no longer answer.
"""

import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline import owners
from pipeline.atomic import (
    canonical_json,
    explain,
    explained,
    fsync_file,
    fsync_folder,
    rename_folder,
    write_bytes,
    write_json,
)
from pipeline.content import content_digest, file_sha256, version_of
from pipeline.errors import BertError, StoreError

MANIFEST = "manifest.json"
REFERENCES = "references.json"  # written by a stage: files that lie elsewhere and are only named
MAKE_ANEW = "It was set aside; the next `bert run` makes it anew."


@dataclass(frozen=True)
class Record:
    """One immutable record; `digest` is the SHA-256 of its canonical JSON and its name."""

    digest: str
    body: Mapping[str, Any]

    @property
    def recipe(self) -> str:
        """The recipe that it was made for."""
        return str(self.body["recipe"])

    @property
    def asset(self) -> str:
        """Name of the asset, without the recipe."""
        return str(self.body["asset"])

    @property
    def stage(self) -> str:
        """Name of the stage: the folder of the content."""
        return str(self.body["stage"])

    @property
    def key(self) -> str:
        """What was asked for."""
        return str(self.body["key"])

    @property
    def version(self) -> str:
        """What came out."""
        return str(self.body["version"])

    @property
    def inputs(self) -> Mapping[str, str]:
        """Input name → digest of its record."""
        return dict(self.body["inputs"])

    @property
    def seconds(self) -> float:
        """How long it took."""
        taken = datetime.fromisoformat(self.body["finished"]) - datetime.fromisoformat(self.body["started"])
        return round(taken.total_seconds(), 2)


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

    # ── staging ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """An empty folder for a stage to write into, owned by this process; removed at the end if it is still there."""
        place = self.home / "staging" / uuid.uuid4().hex
        content = place / "content"
        try:
            with explained(place):
                content.mkdir(parents=True)
                with owners.claim(place / "owner", self.lease_seconds):
                    yield content
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def sweep(self) -> list[str]:
        """Remove staging folders and leases whose owner is dead. Returns what was removed, relative to the home."""
        gone = self.leftovers()
        for path in gone:
            with suppress(OSError):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
        return [path.relative_to(self.home).as_posix() for path in gone]

    def leftovers(self) -> list[Path]:
        """Staging folders, half-made views and leases whose owner is dead."""
        found = [p for p in _entries(self.home / "staging") if owners.is_dead(p / "owner", self.lease_seconds)]
        return found + [p for p in _entries(self.home / "leases") if owners.is_dead(p, self.lease_seconds)]

    @contextmanager
    def lease(self, stage: str, version: str) -> Iterator[None]:
        """Say that this process reads a version, so that nobody clears it away meanwhile."""
        with (
            explained(self.home),
            owners.claim(self.home / "leases" / f"{stage}-{version}-{uuid.uuid4().hex}", self.lease_seconds),
        ):
            yield

    @contextmanager
    def run_folder(self, key: str, fresh: bool = False) -> Iterator[Path]:
        """The resumable state of a training run: its newest attempt, or a `fresh` one. A second process waits."""
        with explained(self.home), owners.held_lock(self.home / "locks" / f"run-{key}"):
            attempts = sorted(
                (int(p.name) for p in _entries(self.home / "runs" / key) if p.name.isdigit()), reverse=True
            )
            number = attempts[0] + fresh if attempts else 0
            folder = self.home / "runs" / key / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            yield folder

    # ── content ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _place(self, stage: str, version: str) -> Path:
        return self.home / "store" / stage / version

    def publish(self, stage: str, staged: Path) -> str:
        """Make the files under `staged` a version of `stage`, durably, and return it.

        Where the version exists and is intact, `staged` is dropped; where it is broken, it is set aside and replaced.
        `references.json` in `staged` lists files that lie elsewhere: they are named in the manifest, not stored.
        Raises StoreError; then nothing is visible.
        """
        with explained(self._place(stage, "")):
            files = _list_files(staged)
            version = version_of({file["path"]: file["digest"] for file in files})
            body = {"stage": stage, "version": version, "files": files}
            (staged / REFERENCES).unlink(missing_ok=True)
            write_bytes(staged / MANIFEST, _sealed(body))
            for folder, _, _ in os.walk(staged):
                fsync_folder(Path(folder))
            place = self._place(stage, version)
            while True:
                if place.exists() and not self._replaceable(stage, version, files):
                    shutil.rmtree(staged)
                    return version
                try:
                    rename_folder(staged, place)
                    return version
                except OSError:
                    if not place.exists():  # not another writer who was first
                        raise

    def version_of(self, staged: Path) -> str:
        """The version that publishing `staged` would give."""
        with explained(staged):
            return version_of({file["path"]: file["digest"] for file in _list_files(staged)})

    def _replaceable(self, stage: str, version: str, files: list[dict[str, Any]]) -> bool:
        """Whether an existing version has to make place: it is broken (then it is set aside), or it only names files
        that `files` holds."""
        if self._problems(stage, version, thorough=True):
            self._set_aside(self._place(stage, version))
            return True
        named = {f["path"] for f in self.manifest(stage, version)["files"] if f.get("referenced")}
        held = {f["path"] for f in files if not f.get("referenced")}
        if named & held:
            self._set_aside(self._place(stage, version))
            return True
        return False

    def manifest(self, stage: str, version: str) -> dict[str, Any]:
        """The manifest of a version. Raises StoreError when it is missing or altered."""
        path = self._place(stage, version) / MANIFEST
        try:
            found = json.loads(path.read_bytes())
            body = {name: found[name] for name in ("stage", "version", "files")}
            sealed = _sealed(body) == path.read_bytes()
        except FileNotFoundError:
            raise StoreError(
                f"{stage} {version[:12]}: its content is not in the store", "The next `bert run` makes it anew."
            ) from None
        except OSError as error:
            raise explain(error, path) from error
        except (ValueError, KeyError, TypeError):
            sealed = False
        if not sealed or body["version"] != version or body["stage"] != stage:
            raise StoreError(
                f"{path}: the manifest was altered", "`bert verify` sets it aside; the next `bert run` makes it anew."
            )
        return body

    def folder(self, stage: str, version: str, references: Path | None = None) -> Path:
        """The verified folder of a version, to read from.

        Sizes are compared, hashes on first read. `references` is where the files lie that the manifest only names (a file, or
        the folder that holds them); the folder returned then has links to them. Raises StoreError that names the file; what
        is broken is set aside.
        """
        problems = self._problems(stage, version, thorough=False)
        if problems:
            self._set_aside(self._place(stage, version))
            raise StoreError(problems[0], MAKE_ANEW)
        files = self.manifest(stage, version)["files"]
        named = [file for file in files if file.get("referenced")]
        if not named:
            return self._place(stage, version)
        if references is None:
            raise StoreError(
                f"{stage} {version[:12]}: {named[0]['path']} is only referenced, and this recipe does not say where it lies",
                "Name its path in the recipe.",
            )
        return self._view(stage, version, files, references)

    def _view(self, stage: str, version: str, files: list[dict[str, Any]], references: Path) -> Path:
        """A folder of links to stored and referenced files, the latter verified."""
        links = {}
        for file in files:
            stored = self._place(stage, version) / file["path"]
            links[file["path"]] = stored if not file.get("referenced") else self.referenced(file, references)
        name = hashlib.sha256(canonical_json(sorted((path, str(target)) for path, target in links.items()))).hexdigest()
        view = self.home / "views" / name
        if view.is_dir():
            return view
        try:
            view.parent.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=".", dir=view.parent))
        except OSError:  # a read-only store
            made = view = Path(tempfile.mkdtemp(prefix="bertworks-"))
        for path, target in links.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).symlink_to(target.resolve())
        if made != view:
            try:
                made.rename(view)
            except OSError:  # another process was first
                shutil.rmtree(made, ignore_errors=True)
        return view

    def referenced(self, file: Mapping[str, Any], references: Path) -> Path:
        """Where a referenced file lies, verified by size and SHA-256. Raises StoreError when it is gone or changed."""
        path = references if references.is_file() else references / file["path"]
        if not path.is_file():
            raise StoreError(
                f"{path}: the file that the recipe references is gone",
                "Put it back, or name its new place in the recipe.",
            )
        with explained(path):
            if path.stat().st_size != file["size_bytes"] or file_sha256(path, self.verified) != file["sha256"]:
                raise StoreError(
                    f"{path}: the file changed since it was read", "Run again: what depends on it is made anew."
                )
        return path

    @property
    def verified(self) -> Path:
        """Where hashes of files are remembered."""
        return self.home / "verified"

    def content(self, stage: str, version: str) -> Path:
        """Where the files of a version lie, unverified."""
        return self._place(stage, version)

    def intact(self, stage: str, version: str) -> bool:
        """Whether a version is there and is what its digests say. What is broken is set aside."""
        if not self._place(stage, version).exists():
            return False
        if self._problems(stage, version, thorough=False):
            self._set_aside(self._place(stage, version))
            return False
        return True

    def _problems(self, stage: str, version: str, thorough: bool) -> list[str]:
        """What is wrong with a version. `thorough` reads every byte again; otherwise a file that was hashed before and has
        not been written since is trusted."""
        place = self._place(stage, version)
        try:
            files = self.manifest(stage, version)["files"]
        except StoreError as error:
            return [error.what]
        problems = []
        if version_of({file["path"]: file["digest"] for file in files}) != version:
            problems.append(f"{place / MANIFEST}: its digests don't make this version")
        listed = {file["path"]: file for file in files if not file.get("referenced")}
        present = {p.relative_to(place).as_posix() for p in place.rglob("*") if not p.is_dir()} - {MANIFEST}
        problems += [f"{place / name}: missing" for name in sorted(set(listed) - present)]
        problems += [f"{place / name}: not in the manifest" for name in sorted(present - set(listed))]
        for name in sorted(set(listed) & present):
            path = place / name
            try:
                same = path.stat().st_size == listed[name]["size_bytes"]
                same = same and file_sha256(path, None if thorough else self.verified) == listed[name]["sha256"]
            except OSError as error:
                problems.append(f"{path}: can't be read ({error.strerror})")
                continue
            if not same:
                problems.append(f"{path}: its bytes are not those that were published")
        return problems

    def _set_aside(self, path: Path) -> None:
        """Move what is broken out of the way; on a read-only store it stays, and readers refuse it each time."""
        with suppress(OSError):
            target = self.home / "broken" / f"{path.name}-{uuid.uuid4().hex[:8]}"
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, target)

    # ── what failed its validation ───────────────────────────────────────────────────────────────────────────────────

    def reject(self, staged: Path, body: Mapping[str, Any]) -> str:
        """Keep content that failed its validation, with its results, under `rejected/`. Returns its version."""
        with explained(self.home):
            files = _list_files(staged)
            version = version_of({file["path"]: file["digest"] for file in files})
            place = self.home / "rejected" / version
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            os.rename(staged, place / "content")
            write_json(place / "record.json", {**body, "version": version})
            return version

    def rejections(self, stage: str) -> list[Rejected]:
        """What was rejected of a stage and is still there."""
        found = []
        for place in _entries(self.home / "rejected"):
            with suppress(OSError, ValueError):
                body = json.loads((place / "record.json").read_bytes())
                if body["stage"] == stage and (place / "content").is_dir():
                    found.append(Rejected(place, body))
        return found

    def note_waiver(self, rejected: Rejected, body: Mapping[str, Any]) -> None:
        """Keep `body`, with one more waiver, beside the rejected content."""
        with explained(rejected.folder):
            write_json(rejected.folder / "record.json", dict(body))

    def accept(self, rejected: Rejected) -> str:
        """Publish rejected content. Raises StoreError when it is no longer what was rejected."""
        with self.staging() as staged:
            staged.rmdir()
            os.rename(rejected.folder / "content", staged)
            version = self.publish(str(rejected.body["stage"]), staged)
        if version != rejected.body["version"]:
            raise StoreError(
                f"{rejected.folder}: its content was changed since it was rejected", "Run the asset again."
            )
        shutil.rmtree(rejected.folder, ignore_errors=True)
        return version

    # ── records, memory, pointers ────────────────────────────────────────────────────────────────────────────────────

    def append(self, body: Mapping[str, Any]) -> Record:
        """Write a record and remember it under its key: from now on its result is published. Raises StoreError."""
        data = canonical_json(dict(body))
        record = _record_of(data)
        with explained(self.home / "records"):
            write_bytes(self.home / "records" / f"{record.digest}.json", data)
            write_bytes(self.home / "memory" / record.key / record.digest, b"")
        return record

    def record(self, digest: str) -> Record:
        """The record of this digest. Raises StoreError when it is missing, altered or unreadable."""
        path = self.home / "records" / f"{digest}.json"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreError(
                f"record {digest[:12]} is not in the store", "Restore it from a backup, or run again."
            ) from None
        except OSError as error:
            raise explain(error, path) from error
        try:
            found = _record_of(data)
        except (ValueError, KeyError, TypeError):
            found = None
        if found is None or found.digest != digest:
            raise StoreError(
                f"{path}: the record was altered", "`bert verify` sets it aside; the next `bert run` records anew."
            )
        return found

    def remembered(self, key: str) -> list[Record]:
        """Records that answer to a key and whose content is intact, oldest first."""
        found = []
        for entry in _entries(self.home / "memory" / key):
            with suppress(StoreError):
                record = self.record(entry.name)
                if self.intact(record.stage, record.version):
                    found.append(record)
        return sorted(found, key=lambda record: (record.body["finished"], record.digest))

    def point(self, recipe: str, asset: str, record: Record) -> None:
        """Make `record` what the asset is now; what it was goes into its history. Raises StoreError."""
        path = self._pointer(recipe, asset)
        with explained(path), owners.held_lock(self.home / "locks" / f"pointer-{recipe}-{asset}"):
            had = _pointed(path)
            if not had or had[0] != record.digest:
                write_json(path, {"record": record.digest, "history": had})

    def pointer(self, recipe: str, asset: str) -> Record | None:
        """The record that the asset has now; None if it has none, or if pointer or record is broken."""
        pointed = _pointed(self._pointer(recipe, asset))
        if not pointed:
            return None
        try:
            return self.record(pointed[0])
        except StoreError:
            return None

    def history(self, recipe: str, asset: str) -> list[str]:
        """Digests of the records that the asset has and had, newest first."""
        return _pointed(self._pointer(recipe, asset))

    def _pointer(self, recipe: str, asset: str) -> Path:
        return self.home / "assets" / recipe / f"{asset}.json"

    # ── verification ─────────────────────────────────────────────────────────────────────────────────────────────────

    def verify(self) -> list[Problem]:
        """Read every byte of every record, version and pointer again. What is broken is set aside and reported."""
        problems, versions = [], set()
        for path in _entries(self.home / "records"):
            if path.suffix != ".json":
                continue
            try:
                record = self.record(path.stem)
                versions.add((record.stage, record.version))
            except BertError as error:
                problems.append(Problem(error.what, "It was set aside; the next `bert run` records anew."))
                self._set_aside(path)
        for stage in _entries(self.home / "store"):
            versions |= {(stage.name, version.name) for version in _entries(stage)}
        for stage_name, version in sorted(versions):
            problems += self.verify_version(stage_name, version)
        for path in sorted((self.home / "assets").glob("*/*.json")):
            pointed = _pointed(path)
            if not pointed:
                problems.append(
                    Problem(f"{path}: not a pointer", "It was set aside; the next `bert run` finds the record again.")
                )
                self._set_aside(path)
            elif not (self.home / "records" / f"{pointed[0]}.json").exists():
                problems.append(
                    Problem(f"{path}: its record {pointed[0][:12]} is missing", "The next `bert run` records anew.")
                )
        return problems

    def verify_version(self, stage: str, version: str) -> list[Problem]:
        """Read every byte of one version again."""
        if not self._place(stage, version).exists():
            return [
                Problem(
                    f"{stage} {version[:12]}: its content is not in the store",
                    "The next `bert run` makes it anew if an asset needs it.",
                )
            ]
        found = self._problems(stage, version, thorough=True)
        if found:
            self._set_aside(self._place(stage, version))
        return [Problem(what, MAKE_ANEW) for what in found]


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _record_of(data: bytes) -> Record:
    record = Record(hashlib.sha256(data).hexdigest(), json.loads(data))
    if not isinstance(record.body, dict) or not record.key:
        raise ValueError("not a record")
    return record


def _sealed(body: Mapping[str, Any]) -> bytes:
    """A manifest with a digest over itself, so that any changed byte shows."""
    seal = hashlib.sha256(canonical_json(body)).hexdigest()
    return (json.dumps({**body, "seal": seal}, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _list_files(staged: Path) -> list[dict[str, Any]]:
    """Manifest entries of all files under `staged`, made durable; what `references.json` names comes without content."""
    entries = []
    references = staged / REFERENCES
    if references.exists():
        entries = [
            {**named, "digest": named["sha256"], "referenced": True} for named in json.loads(references.read_bytes())
        ]
    for path in sorted(staged.rglob("*")):
        name = path.relative_to(staged).as_posix()
        if path.is_dir() and not path.is_symlink():
            continue
        if path.is_symlink() or not path.is_file():
            raise StoreError(f"{path}: a stage may write plain files only", "This is a fault of the stage.")
        if name in (MANIFEST, REFERENCES):
            continue
        fsync_file(path)
        entries.append(
            {
                "path": name,
                "size_bytes": path.stat().st_size,
                "sha256": file_sha256(path),
                "digest": content_digest(path),
            }
        )
    if not entries:
        raise StoreError(f"{staged}: the stage wrote nothing", "This is a fault of the stage.")
    return sorted(entries, key=lambda entry: entry["path"])


def _pointed(path: Path) -> list[str]:
    """Digests in a pointer file, newest first; empty when there is none, or when it is broken."""
    try:
        found = json.loads(path.read_bytes())
        digests = [found["record"], *found["history"]]
    except (OSError, ValueError, KeyError, TypeError):
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
