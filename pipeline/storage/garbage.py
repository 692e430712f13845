"""`bert gc`: read what the store holds, decide (`pipeline.storage.retention`), and move what may go into the trash.

    found = look(store, retention)         what would go, what stays, what is in the trash; writes nothing
    collect(store, retention)              the same, done
    restore(store, prefix)                 bring a version back from the trash

Killed at any point it leaves a whole store: a tombstone is written before its content goes, and content counts wherever
it is there. What goes by mistake (a record was written while this looked) comes back: by the next look, or as soon as an
asset needs it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipeline import progress
from pipeline.errors import StoreError
from pipeline.settings import RetentionSettings
from pipeline.storage import champion, retention
from pipeline.storage.contents import entries
from pipeline.storage.retention import Going, State, Verdict, Version
from pipeline.storage.tombstones import Tombstone, held_bytes
from pipeline.store import RUN_INPUTS, Store, pointed_in
from pipeline.system.atomic import explained
from pipeline.system.owners import held_lock

VERSION = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Trashed:
    """A version in the trash."""

    version: Version
    stone: Tombstone | None
    """None where it was lost"""
    expires: datetime | None
    """from when on a `bert gc` removes it for good; None where it is not known"""
    comes_back: bool
    """something that stays needs it; or its tombstone was lost, and it is judged anew next time"""


@dataclass(frozen=True)
class Found:
    """What `bert gc` finds."""

    verdict: Verdict
    sizes: Mapping[Version, int]
    """bytes of the content that is there and of what is in the trash"""
    trash: Sequence[Trashed]
    there: Mapping[Version, int]
    """of the content that is there alone"""
    broken: Sequence[str]
    """content whose manifest can't be read: it is left alone"""
    now: datetime

    @property
    def due(self) -> list[Trashed]:
        """What goes for good now."""
        return [each for each in self.trash if each.expires and each.expires <= self.now and not each.comes_back]


@dataclass(frozen=True)
class Done:
    """What `bert gc` did."""

    moved: Sequence[Going]
    """into the trash"""
    busy: Sequence[Going]
    """that somebody began to read meanwhile"""
    removed: Sequence[Trashed]
    """for good"""
    returned: Sequence[Trashed]
    """brought back from the trash, because something that stays needs it"""


def look(store: Store, settings: RetentionSettings) -> Found:
    """What would go, what stays and what is in the trash. Writes nothing.

    Raises StoreError where a pointer or a champion's file can't be read: what it names is not known.
    """
    now = datetime.now(UTC)
    there = sorted(version for version in store.versions() if VERSION.fullmatch(version[1]))
    sizes: dict[Version, int] = {}
    broken = []
    for version in progress.track(there, len(there), "manifests read"):
        try:
            sizes[version] = held_bytes(store.manifest(*version)["files"])
        except StoreError as error:
            broken.append(f"{error.what} → {error.todo}")
    verdict = retention.decide(_state(store, list(sizes)), settings, now)
    trash = [_trashed(store, each, settings, verdict, sizes) for each in sorted(store.trashed())]
    trashed = {each.version: each.stone.size_bytes for each in trash if each.stone}
    return Found(verdict, {**trashed, **sizes}, trash, sizes, broken, now)


def _trashed(
    store: Store, version: Version, settings: RetentionSettings, verdict: Verdict, sizes: Mapping[Version, int]
) -> Trashed:
    stone = store.tombstone(*version)
    expires = datetime.fromisoformat(stone.time) + timedelta(days=settings.grace_days) if stone else None
    return Trashed(version, stone, expires, stone is None or (version in verdict.stays and version not in sizes))


def _state(store: Store, there: Sequence[Version]) -> State:
    stones = {version: store.tombstone(*version) for version in there}
    restored = {v: datetime.fromisoformat(s.restored) for v, s in stones.items() if s is not None and s.restored}
    return State(
        records=store.records(),
        pointers=_pointers(store),
        champions=champions(store),
        attested={path.name for path in entries(store.home / "attestations")},
        unfinished={run.parent.name: _read_by(run.parent / RUN_INPUTS) for run in store.unfinished_runs()},
        leased=store.leased(),
        content={version: _age(store, version) for version in there},
        restored=restored,
        waiting={path.name for path in entries(store.home / "rejected")},
        lease_seconds=store.lease_seconds,
    )


def _age(store: Store, version: Version) -> float:
    try:
        return store.age_seconds(*version)
    except OSError:
        return 0.0  # it goes or changes just now


def _pointers(store: Store) -> dict[tuple[str, str], list[str]]:
    """(recipe, asset) → digests, of every recipe that the store knows. Raises StoreError for a file that is no pointer."""
    found = {}
    for at, path in store.pointers().items():
        with explained(path):
            found[at] = pointed_in(path)
        if not found[at] and path.exists():
            raise StoreError(
                f"{path} is not a pointer: what its asset needs is not known, so nothing goes",
                "`bert verify` sets it aside, `bert run` writes it anew.",
            )
    return found


def champions(store: Store) -> dict[str, list[str]]:
    """Recipe → digests of the records of its champion and the one before, and of the decisions that made them so. Raises StoreError
    where a file of them is damaged: what it needs is not known."""
    found = {}
    for recipe in champion.recipes(store):
        known = champion.read(store, recipe)
        in_use = [digest for digest in (known.champion, known.previous) if digest is not None]
        found[recipe] = in_use + [c.decision for c in known.history if c.decision and c.champion in in_use]
    return found


def _read_by(path: Path) -> list[str] | None:
    """The records that a training run reads; None where it does not say so."""
    try:
        told = json.loads(path.read_bytes())
        return [str(digest) for digest in told.values()]
    except (OSError, ValueError, AttributeError):
        return None


# ── doing it ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def collect(store: Store, settings: RetentionSettings) -> tuple[Found, Done]:
    """Bring back what is needed, remove for good what was in the trash long enough, and put away what may go.

    Raises StoreError where it can't be known what may go; then nothing was touched.
    """
    with explained(store.home), held_lock(store.home / "locks" / "gc", progress.tell, "bert gc"):
        found = look(store, settings)
        if (why := refusal(store, settings, found.verdict)) is not None:
            raise why
        returned = [each for each in found.trash if each.comes_back and store.bring_back(*each.version)]
        removed = found.due
        for each in removed:
            store.remove_for_good(*each.version)
        store.sweep_trash()
        moved: list[Going] = []
        busy: list[Going] = []
        for going in progress.track(found.verdict.goes, len(found.verdict.goes), "versions put away"):
            put = store.put_away(*going.version, going.why, going.again)
            (moved if put else busy).append(going)
    return found, Done(moved, busy, removed, returned)


def refusal(store: Store, settings: RetentionSettings, verdict: Verdict) -> StoreError | None:
    """Why nothing may go now."""
    if verdict.lost:
        more = f" and {len(verdict.lost) - 1} more" if len(verdict.lost) > 1 else ""
        return StoreError(
            f"{verdict.lost[0]}{more}: what they need is not known, so nothing goes",
            "Restore them from an audit (bert restore FILE); `bert verify` takes them out of histories, `bert run` records anew "
            "what assets have now.",
        )
    if store.url is not None and not settings.sole_home:
        return StoreError(
            f"{store.url}: what other machines have there is not seen from here, so nothing goes",
            "If no other home uses this object store: retention: {sole_home: true} in settings.yaml.",
        )
    return None


def restore(store: Store, prefix: str) -> Version:
    """Bring a version back from the trash, named by its beginning; it stays for the grace time at least.

    Raises StoreError where none or several begin so, or where what was in the trash is broken.
    """
    found = [v for v in sorted(store.trashed()) if prefix and v[1].startswith(prefix)]
    if not found:
        raise StoreError(f"nothing in the trash begins with {prefix!r}", "`bert gc --dry-run` lists what is there.")
    if len(found) > 1:
        named = ", ".join(f"{stage} {version[:20]}" for stage, version in found[:4])
        raise StoreError(f"{prefix!r} is the beginning of several versions: {named}", "Write more of it.")
    stage, version = found[0]
    if not store.bring_back(stage, version) and not store.intact(stage, version):
        raise StoreError(f"{stage} {version[:12]} is no longer in the trash", "`bert run` makes it anew.")
    problems = store.verify_version(stage, version)
    if problems:
        raise StoreError(problems[0].what, problems[0].todo)
    return found[0]


def trash_of(store: Store) -> tuple[int, int]:
    """Number and bytes of the versions in the trash."""
    stones = [store.tombstone(*version) for version in store.trashed()]
    return len(stones), sum(stone.size_bytes for stone in stones if stone)
