"""The store: like git, for artifacts.

A *version* names content (what a tree is to git), a *record* says how it came to be (a commit): it names a version, its
key, and the records of its inputs. Under the home folder:

    store/<stage>/<version>/   content, immutable; manifest.json lists every file with size, SHA-256 and content digest
    records/<digest>.json      provenance, immutable, named by its own digest
    memory/<key>/<digest>      which records answer to a key (empty files, append-only)
    assets/<recipe>/<asset>.json   the record that the asset has now, and those that it had
    trash/<stage>/<version>/  tombstones/<stage>/<version>.json   content that `bert gc` removed, and what stays of it
    failures/<recipe>/<asset>.json   what failed the last time (`pipeline.storage.failures`)
    alerts/<name>.json  watched/<recipe>/   what was told to whom, and how runs went (`pipeline.retrains.alerts`, `pipeline.retrains.watched`)
    audits/<recipe>/<asset>-<digest>.html   pages that Dagster's asset pages name (`assets.audits.audit_page`)
    staging/<uuid>/  rejected/<version>/  broken/  leases/  runs/<key>/<attempt>/  verified/  views/  locks/

A staging folder is owned by the lease of its name: the lease is there before the folder, and goes after it.

`store:` in settings.yaml moves the first three, trash and tombstones into an object store (`pipeline.storage.object_contents`,
`pipeline.storage.ledger`, `pipeline.storage.trash`); everything else stays here, and what is read of them is kept under cache/.

Publishing: files are fsynced, the manifest is written last, one rename makes the version visible; then record, memory,
pointer. A reader trusts only records, so that a crash at any point leaves nothing half-visible. Content is hashed on
first read and remembered by inode, size, mtime and ctime; what is broken is set aside, and its records no longer answer.
"""

import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import progress
from pipeline.errors import StoreError
from pipeline.formats.foreign_json import parsed
from pipeline.settings import settings
from pipeline.storage import leftovers, manifest, views
from pipeline.storage.contents import LocalContents, Problem, away, distrust, set_aside
from pipeline.storage.contents import entries as _entries
from pipeline.storage.ledger import LocalLedger, ObjectLedger
from pipeline.storage.manifest import MANIFEST as MANIFEST
from pipeline.storage.object_contents import ObjectContents
from pipeline.storage.objects import Objects
from pipeline.storage.record import Record as Record
from pipeline.storage.record import record_of, utc_now
from pipeline.storage.tombstones import Tombstone, who
from pipeline.storage.trash import LocalTrash, ObjectTrash
from pipeline.system import owners
from pipeline.system.atomic import (
    canonical_json,
    explain,
    explained,
    fsync_folder,
    make_folder,
    rename_folder,
    write_json,
)

CHAMPION_FILE = "champion.json"  # lies beside the pointers and is none
RUN_INPUTS = "inputs.json"
"""beside the attempts of a training run: input name → digest of the record that it reads"""
PUBLISHED = "published.json"
"""in a training run's folder, once its result is published and what it needed until then is removed"""


class _Busy(Exception):
    """Another process holds the lock."""


def _refuse(who: str) -> None:
    raise _Busy(who)


@dataclass(frozen=True)
class Rejected:
    """Content that failed its validation, with the record that it would have got."""

    folder: Path
    body: Mapping[str, Any]


class Store:
    """The store of one home folder. Folders are made when they are first written: a read-only store can be read.

    With `url`, content, records and memory lie there, in an object store (`pipeline.storage.object_contents`).
    """

    def __init__(self, home: Path, lease_seconds: float = 60, url: str | None = None) -> None:
        self.home = home
        self.lease_seconds = lease_seconds
        self.url = url
        self._staged: dict[Path, int] = {}  # staging folders of this store, held open: their inode is nobody else's
        self._contents: LocalContents | ObjectContents = LocalContents(home)
        self._ledger: LocalLedger | ObjectLedger = LocalLedger(home)
        self._trash: LocalTrash | ObjectTrash = LocalTrash(self._contents)
        if url is not None:
            self._contents = ObjectContents(Objects(url), home, lease_seconds, self.staging)
            self._ledger = ObjectLedger(Objects(url), home)
            self._trash = ObjectTrash(self._contents)

    # ── staging, leases, runs ────────────────────────────────────────────────────────────────────────────────────────

    def _claim(self, name: str) -> Path:
        return self.home / "leases" / name

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """An empty folder for a stage to write into, owned by this process; removed at the end if it is still there."""
        name = uuid.uuid4().hex
        place = self.home / "staging" / name
        with explained(place), owners.claim(self._claim(f"staging-{name}"), self.lease_seconds):
            place.mkdir(parents=True)
            held = self._staged[place] = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                yield place
            except (OSError, StoreError):
                if place in self._staged and os.fstat(held).st_nlink == 0:
                    raise self._swept(place) from None
                raise
            finally:
                self._staged.pop(place, None)
                os.close(held)
                shutil.rmtree(place, ignore_errors=True)

    def check_ours(self, staged: Path) -> None:
        """That a staging folder is still the one that was made: another host may have swept it while this process stood still.
        What is written there afterwards makes it anew, and would be published as a part. Raises StoreError."""
        held = self._staged.get(staged)
        if held is not None and not (staged.exists() and os.path.samestat(os.fstat(held), staged.stat())):
            raise self._swept(staged)

    def _swept(self, staged: Path) -> StoreError:
        return StoreError(
            f"{staged} was swept: this process stood still for longer than {self.lease_seconds:g} s, and another host took "
            "this process for dead",
            "Run again; where machines may stand still for so long, raise lease_seconds in settings.yaml.",
        )

    @contextmanager
    def lease(self, stage: str, version: str) -> Iterator[None]:
        """Say that this process reads a version, so that nobody clears it away meanwhile."""
        claim = self._claim(f"{stage}-{version}-{uuid.uuid4().hex}")
        with ExitStack() as held, explained(claim):
            with self._leases():
                held.enter_context(owners.claim(claim, self.lease_seconds))
            yield

    def _leases(self) -> AbstractContextManager[int]:
        """The lock under which leases are taken, and looked at before content goes: none is taken in between."""
        return owners.held_lock(self.home / "locks" / "leases")

    def leased(self) -> set[tuple[str, str]]:
        """(stage, version) of what living processes read."""
        found = set()
        for claim in _entries(self.home / "leases"):
            stage, _, rest = claim.name.partition("-")
            version, _, _ = rest.partition("-")
            if len(version) == 64 and not owners.is_dead(claim, self.lease_seconds):
                found.add((stage, version))
        return found

    @contextmanager
    def run_folder(
        self, key: str, fresh: bool = False, waiting: Callable[[str], None] = logging.getLogger(__name__).warning
    ) -> Iterator[Path]:
        """The resumable state of a training run: its newest attempt, or a new one if that is published or a `fresh` one is
        asked for.

        A second process that wants the same run waits; `waiting` is told for whom, and may raise instead.
        """
        runs = self.home / "runs" / key
        with explained(runs), owners.held_lock(runs / "lock", waiting, f"training run {key[:12]}"):
            newest = self.attempt(key)
            if newest is None:
                folder = runs / "0"
            elif fresh or (newest / PUBLISHED).exists():
                folder = runs / str(int(newest.name) + 1)
            else:
                folder = newest
            make_folder(folder)
            yield folder

    def attempt(self, key: str) -> Path | None:
        """The newest attempt of a training run."""
        attempts = [path for path in _entries(self.home / "runs" / key) if path.name.isdigit()]
        return max(attempts, key=lambda path: int(path.name), default=None)

    def note_inputs(self, key: str, inputs: Mapping[str, str]) -> None:
        """Keep beside a training run which records it reads (input name → digest), so that they stay while it is unfinished."""
        place = self.home / "runs" / key / RUN_INPUTS
        with explained(place):
            write_json(place, dict(inputs))

    def unfinished_runs(self) -> list[Path]:
        """The newest attempts of training runs whose result is not published."""
        newest = [self.attempt(runs.name) for runs in _entries(self.home / "runs")]
        return [folder for folder in newest if folder is not None and not (folder / PUBLISHED).exists()]

    def clear_runs(self, clear: Callable[[str, Path], None], key: str | None = None) -> list[str]:
        """Remove from training runs what is not needed once their result is published: `clear(stage, folder)` does it, after
        the published version was read back. All attempts of the run `key`; else those with a result, which somebody killed
        after publishing left so. Runs that somebody works on are left alone. Returns the folders, relative to the home."""
        cleared = []
        for runs in [self.home / "runs" / key] if key else _entries(self.home / "runs"):
            waiting = [path for path in _entries(runs) if path.name.isdigit() and not (path / PUBLISHED).exists()]
            if key is None:
                waiting = [path for path in waiting if (path / "result").is_dir()]
            if not waiting:
                continue
            with suppress(_Busy), owners.held_lock(runs / "lock", _refuse, f"clearing run {runs.name[:12]}"):
                answers = self.remembered(runs.name)
                if not answers or self.verify_version(answers[-1].stage, answers[-1].version):
                    continue
                for folder in waiting:
                    with suppress(OSError):  # what could not be removed, the next run removes
                        clear(answers[-1].stage, folder)
                        write_json(folder / PUBLISHED, {"stage": answers[-1].stage, "version": answers[-1].version})
                        cleared.append(folder.relative_to(self.home).as_posix())
        return cleared

    def sweep(self) -> list[str]:
        """Remove what dead owners left behind. Returns what was removed, relative to the home."""
        gone = self.leftovers()
        for path in gone:
            if isinstance(self._contents, ObjectContents) and not self._contents.discarded(path.name):
                continue
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
        found += [path for path in old if leftovers.is_old(path, self.lease_seconds)]
        found += leftovers.temporary(self.home, self.lease_seconds)
        return found

    # ── content ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, stage: str, staged: Path, upload: "Upload | None" = None) -> str:
        """Make the files under `staged` a version of `stage`, durably, and return it.

        Where the version exists and is intact, `staged` is dropped; where it is broken, it is set aside and replaced.
        `references.json` in `staged` lists files that lie elsewhere: they are named in the manifest, not stored.
        `upload`: where workers wrote some of these files already. Raises StoreError; then nothing is visible.
        """
        with explained(self.home / "store" / stage):
            files = manifest.list_files(staged)
            version = manifest.version_in(files)
            manifest.seal(staged, stage, version, files)
            (staged / manifest.REFERENCES).unlink(missing_ok=True)
            for folder, _, _ in os.walk(staged):
                fsync_folder(Path(folder))
            self.check_ours(staged)
            if isinstance(self._contents, ObjectContents):
                self._contents.publish(stage, staged, version, files, upload.copy if upload else "")
            else:
                self._contents.publish(stage, staged, version, files)
            self._trash.forget(stage, version)
        self._staged.pop(staged, None)
        shutil.rmtree(staged, ignore_errors=True)
        return version

    def check_writable(self) -> None:
        """Write to the object store and remove it again: to be refused after hours of work would be late. Raises StoreError."""
        if isinstance(self._contents, ObjectContents):
            self._contents.there.check()

    @contextmanager
    def upload(self, stage: str) -> Iterator["Upload"]:
        """A folder of the object store for workers on other machines to write into; made when its URL is asked for, and
        removed at the end unless it was published."""
        assert isinstance(self._contents, ObjectContents)
        with ExitStack() as held:
            yield Upload(self._contents, stage, held)

    def url_of(self, stage: str, version: str) -> str:
        """URL of the files of a version in the object store, for workers on other machines. Raises StoreError."""
        assert isinstance(self._contents, ObjectContents)
        return self._contents.url(stage, version)

    def version_of(self, staged: Path) -> str:
        """The version that publishing `staged` would give."""
        with explained(staged):
            return manifest.version_in(manifest.list_files(staged))

    def manifest(self, stage: str, version: str) -> dict[str, Any]:
        """The manifest of a version: {stage, version, files}; of one whose content was removed, what its tombstone tells.

        Raises StoreError when it is missing or altered.
        """
        try:
            return self._contents.manifest(stage, version)
        except StoreError:
            stone = self.removed(stage, version)
            if stone is None:
                raise
            return {"stage": stage, "version": version, "files": list(stone.files)}

    def size_bytes(self, record: Record) -> int:
        """Bytes of the files of what a record names. Raises StoreError as `manifest` does."""
        return sum(int(file["size_bytes"]) for file in self.manifest(record.stage, record.version)["files"])

    def content(self, stage: str, version: str) -> Path:
        """Where the files of a version lie, unverified; a `pipeline.system.places` URL for what was not fetched yet."""
        return self._contents.place(stage, version)

    def folder(self, stage: str, version: str, references: Path | None = None) -> Path:
        """The verified folder of a version, to read from.

        Sizes are compared, hashes on first read. `references` is where the files lie that the manifest only names (a file, or
        the folder that holds them); the folder returned then has links to them. Raises StoreError that names the file; what
        is broken is set aside.
        """
        try:
            place = self._contents.folder(stage, version)
        except StoreError:
            stone = self.removed(stage, version)
            if stone is None:
                raise
            raise StoreError(
                f"{stage} {version[:12]}: {stone.told}",
                f"Bring it back: bert gc --restore {version}"
                if self.in_trash(stage, version)
                else "It is made again by `bert run RECIPE/ASSET`.",
            ) from None
        with explained(place):
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
            return not self._contents.broken(stage, version)
        except OSError:
            return False

    # ── what was removed ─────────────────────────────────────────────────────────────────────────────────────────────

    def removed(self, stage: str, version: str) -> Tombstone | None:
        """The tombstone of a version whose content was removed; None where the content is there, or missing by accident."""
        with explained(self.home / "tombstones"):
            stone = self._trash.tombstone(stage, version)
            return None if stone is None or stone.restored or self._contents.exists(stage, version) else stone

    def tombstone(self, stage: str, version: str) -> Tombstone | None:
        """The tombstone of a version, whether its content is there again or not."""
        return self._trash.tombstone(stage, version)

    def in_trash(self, stage: str, version: str) -> bool:
        """Whether the content of a version is in the trash."""
        return self._trash.holds(stage, version)

    def trashed(self) -> set[tuple[str, str]]:
        """(stage, version) of what is in the trash."""
        return self._trash.listed()

    def put_away(self, stage: str, version: str, reason: str, again: bool) -> Tombstone | None:
        """Put the content of a version into the trash, with a tombstone; None where somebody reads it now, or where it is
        gone already. Raises StoreError when it can't be."""
        with explained(self.home / "trash"), self._trash.changing(stage), self._leases():
            if (stage, version) in self.leased() or not self._contents.exists(stage, version):
                return None
            files = self._contents.manifest(stage, version)["files"]
            stone = Tombstone(stage, version, files, utc_now(), reason, who(), again)
            self._trash.put(stone)
        return stone

    def bring_back(self, stage: str, version: str) -> bool:
        """Bring a version back from the trash; False where it is not there. Raises StoreError when it can't be."""
        with explained(self.home / "trash"), self._trash.changing(stage):
            if not self._trash.holds(stage, version):
                return False
            self._trash.bring_back(stage, version, utc_now())
        return True

    def remove_for_good(self, stage: str, version: str) -> None:
        """Remove a version from the trash. Raises StoreError when it can't be."""
        with explained(self.home / "trash"), self._trash.changing(stage):
            self._trash.drop(stage, version)

    def sweep_trash(self) -> None:
        """Go on with removals that were killed."""
        with explained(self.home / "trash"):
            self._trash.sweep()

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
            distrust(staged)
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
            body = parsed(path.read_bytes())
            stage, key, version = body["stage"], body["key"], body["version"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not (place / "content").is_dir():
            recorded = any(record.version == version for record in self.remembered(key))
            if recorded or not self._contents.exists(stage, version):
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
            self._ledger.append(record, data)
        return record

    def record(self, digest: str) -> Record:
        """The record of this digest. Raises StoreError when it is missing, altered or unreadable."""
        with explained(self.home / "records"):
            try:
                return self._ledger.load(digest)
            except FileNotFoundError:
                raise StoreError(
                    f"record {digest[:12]} is not in the store", "Restore it from a backup, or run again."
                ) from None
            except ValueError:
                raise StoreError(
                    f"{self._ledger.place(digest)}: the record was altered",
                    "`bert verify` sets it aside; the next `bert run` records anew.",
                ) from None

    def knows(self, record: Record) -> bool:
        """Whether a record is there, whole, and remembered under its key. Raises StoreError."""
        with explained(self.home / "records"):
            try:
                self._ledger.reload(record.digest)
            except (FileNotFoundError, ValueError):
                return False
            return record.digest in self._ledger.answers(record.key)

    def records(self) -> dict[str, Record]:
        """All records that can be read, by digest. Raises StoreError."""
        found = {}
        with explained(self.home / "records"):
            for digest in self._ledger.digests():
                with suppress(FileNotFoundError, ValueError):
                    found[digest] = self._ledger.load(digest)
        return found

    def versions(self) -> set[tuple[str, str]]:
        """(stage, version) of all content that is there. Raises StoreError."""
        with explained(self.home / "store"):
            return self._contents.versions()

    def age_seconds(self, stage: str, version: str) -> float:
        """How long ago a version was published. Raises OSError."""
        return self._contents.age_seconds(stage, version)

    def records_of(self, stage: str, version: str) -> list[Record]:
        """Records that name a version, oldest first; every record of the store is looked at. Raises StoreError."""
        found = [each for each in self.records().values() if (each.stage, each.version) == (stage, version)]
        return sorted(found, key=lambda record: (record.body["finished"], record.digest))

    def remembered(self, key: str) -> list[Record]:
        """Records that answer to a key and whose content is intact, oldest first. Raises StoreError."""
        return self._answering(key, lambda record: self.intact(record.stage, record.version))

    def removed_answers(self, key: str) -> list[Record]:
        """Records that answer to a key and whose content was removed, oldest first. Raises StoreError."""
        return self._answering(key, lambda record: self.removed(record.stage, record.version) is not None)

    def _answering(self, key: str, wanted: Callable[[Record], bool]) -> list[Record]:
        found = []
        with explained(self.home / "memory" / key):
            for digest in self._ledger.answers(key):
                with suppress(FileNotFoundError, ValueError):
                    record = self._ledger.load(digest)
                    if record.key == key and wanted(record):
                        found.append(record)
        return sorted(found, key=lambda record: (record.body["finished"], record.digest))

    def point(self, recipe: str, asset: str, record: Record) -> None:
        """Make `record` what the asset is now; what it was goes into its history. Raises StoreError."""
        path = self._pointer(recipe, asset)
        with explained(path), owners.held_lock(self.home / "locks" / f"pointer-{recipe}-{asset}"):
            had = pointed_in(path)
            if not had and path.exists():
                set_aside(self.home, path)
            if not had or had[0] != record.digest:
                known = [digest for digest in had if self._ledger.exists(digest)]  # a flipped bit names none
                write_json(path, {"record": record.digest, "history": known})

    def pointer(self, recipe: str, asset: str) -> Record | None:
        """The record that the asset has now; None if it has none, or if pointer or record is broken. Raises StoreError
        when they can't be read."""
        path = self._pointer(recipe, asset)
        with explained(path), suppress(FileNotFoundError, ValueError):
            pointed = pointed_in(path)
            return self._ledger.load(pointed[0]) if pointed else None
        return None

    def lost(self, recipe: str, asset: str) -> str:
        """What is broken of an asset that has no record for this alone; empty where nothing is. Raises StoreError."""
        path = self._pointer(recipe, asset)
        with explained(path):
            pointed = pointed_in(path)
            if not pointed:
                return f"{path} is damaged" if path.exists() else ""
            try:
                self._ledger.load(pointed[0])
            except FileNotFoundError:
                return f"{self._ledger.place(pointed[0])} is missing"
            except ValueError:
                return f"{self._ledger.place(pointed[0])} was altered"
        return ""

    def history(self, recipe: str, asset: str) -> list[str]:
        """Digests of the records that the asset has and had, newest first."""
        path = self._pointer(recipe, asset)
        with explained(path):
            return pointed_in(path)

    def pointers(self) -> dict[tuple[str, str], Path]:
        """(recipe, asset) → the file of its pointer, of all that there are."""
        files = sorted((self.home / "assets").glob("*/*.json"))
        return {(file.parent.name, file.stem): file for file in files if file.name != CHAMPION_FILE}

    def _pointer(self, recipe: str, asset: str) -> Path:
        return self.home / "assets" / recipe / f"{asset}.json"

    # ── verification ─────────────────────────────────────────────────────────────────────────────────────────────────

    def verify(self) -> list[Problem]:
        """Read every byte of every record, pointer and version again, and follow what assets have now back to its
        sources. What is broken is set aside and reported."""
        problems, records = [], {}
        with explained(self.home):
            for digest in self._ledger.digests():
                try:
                    records[digest] = self._ledger.reload(digest)
                except ValueError:
                    what = f"{self._ledger.place(digest)}: the record was altered"
                    problems.append(Problem(what, self._ledger.away(digest)))
            current: dict[str, str] = {}  # digest → who names it
            for path in self.pointers().values():
                try:
                    pointed = pointed_in(path)
                except IsADirectoryError:
                    pointed = []
                if pointed:
                    current.setdefault(pointed[0], str(path))
                    problems += self._lost_history(path, pointed, set(records))
                else:
                    problems.append(Problem(f"{path}: not a pointer", away(self.home, path)))
            versions = self._contents.versions()
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
                        current[source] = f"{self._ledger.place(digest)}, input {name},"
                        waiting.append(source)
            altered = self._trash.altered()
        problems += [Problem(f"{path}: the tombstone was altered", todo) for path, todo in altered.items()]
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
        """Read every byte of one version again. What is broken is set aside; what `bert gc` removed is not missing."""
        if self.removed(stage, version) is not None:
            return []
        try:
            return self._contents.broken(stage, version, thorough=True)
        except OSError as error:
            told = explain(error, self._contents.place(stage, version))
            return [Problem(told.what, told.todo)]


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def open_store() -> Store:
    """The store that the settings name."""
    chosen = settings()
    return Store(chosen.home_path, lease_seconds=chosen.lease_seconds, url=chosen.store)


class Upload:
    """A copy that workers write; see `Store.upload`."""

    def __init__(self, contents: ObjectContents, stage: str, held: ExitStack) -> None:
        self.copy = ""
        """its name, once its URL was asked for"""
        self._contents, self._stage, self._held = contents, stage, held

    def url(self) -> str:
        """Where to write."""
        if not self.copy:
            self.copy = self._held.enter_context(self._contents.writing(self._stage))
        return self._contents.copy_url(self._stage, self.copy)


def pointed_in(path: Path) -> list[str]:
    """Digests in a pointer file, newest first; empty when there is none, or when it is broken. Raises OSError."""
    try:
        found = parsed(path.read_bytes())
        digests = [found["record"], *found["history"]]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []
    return digests if all(isinstance(d, str) and len(d) == 64 for d in digests) else []
