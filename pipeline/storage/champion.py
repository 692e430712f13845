"""Which release of a recipe is in use: its champion, the one before, and who changed that, when and why.

    assets/<recipe>/champion.json   {champion, previous: digests of release records, history: [Change, newest first]}
    barred.json                     [Ban, newest first]: release versions that must not be promoted

A change replaces one file, so that a reader sees the old champion or the new one. A version that is rolled back is barred
first: a process that dies between the two leaves the old champion, and rolling back again goes on.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pipeline.errors import StoreError
from pipeline.store import CHAMPION_FILE, Record, Store
from pipeline.system.atomic import damaged, explained, read_kept, write_json
from pipeline.system.owners import held_lock

BARRED = "barred.json"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Change:
    """One change of a champion."""

    did: Literal["promoted", "rolled back"]
    champion: str
    """digest of the release record that came into use"""
    instead_of: str | None
    """digest of the one that went"""
    decision: str | None
    """digest of the record of the promotion decision"""
    who: str
    why: str
    time: str


@dataclass(frozen=True)
class Champion:
    """What is in use, and how that came."""

    champion: str | None = None
    """digest of a release record"""
    previous: str | None = None
    """what `rollback` goes back to"""
    history: tuple[Change, ...] = ()
    """newest first"""


@dataclass(frozen=True)
class Ban:
    """One entry of the list of barred versions."""

    did: Literal["barred", "unbarred"]
    version: str
    """of a release"""
    who: str
    why: str
    time: str


def read(store: Store, recipe: str) -> Champion:
    """The champion of a recipe; one without any where nothing was ever promoted. Raises StoreError when the file is damaged."""
    path = _path(store, recipe)
    found = read_kept(path)
    if found is None:
        return Champion()
    try:
        history = tuple(Change(**change) for change in found["history"])
        named = [found["champion"], found["previous"], *(c.instead_of for c in history), *(c.decision for c in history)]
        wrong = [each for each in named if each is not None and not (isinstance(each, str) and _DIGEST.fullmatch(each))]
        if wrong or not all(isinstance(c.champion, str) and _DIGEST.fullmatch(c.champion) for c in history):
            raise ValueError("it names no record")
        if found["champion"] is None:
            raise ValueError("it names no champion")
        if not history or history[0].champion != found["champion"]:
            raise ValueError("its history does not begin with its champion")
        return Champion(found["champion"], found["previous"], history)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from None


def recipes(store: Store) -> list[str]:
    """Those of which a release was ever promoted."""
    return sorted(path.parent.name for path in (store.home / "assets").glob(f"*/{CHAMPION_FILE}"))


def report_of(store: Store, release: Record) -> Record | None:
    """The newest benchmark report of the weights of a release, by records; None where there is none, or none is known any more."""
    weights = store.record(release.inputs["pretrained"]).version
    for digest in store.history(release.recipe, "benchmark_report"):
        try:
            report = store.record(digest)
            if store.record(report.inputs["pretrained"]).version == weights:
                return report
        except (StoreError, KeyError):
            continue  # a lost record can't be compared with; `bert verify` tells of it
    return None


def promote(store: Store, recipe: str, record: Record, decision: str | None, who: str, why: str, time: str) -> Champion:
    """Make a release the champion; the one that was it becomes `previous`. Nothing happens where it is champion already.

    Raises StoreError where its version is barred, where its content is not whole, or where the file can't be written; then
    the champion stays.
    """
    _whole(store, record)
    with explained(_path(store, recipe)), held_lock(_lock(store, recipe)):
        now = read(store, recipe)
        if now.champion == record.digest:
            return now
        ban = barred(store).get(record.version)
        if ban is not None:
            raise StoreError(
                f"{recipe}: version {record.version[:12]} is barred since {ban.time[:10]} by {ban.who}: {ban.why}",
                f'If that no longer holds: bert bar {record.version[:12]} --lift --reason "…"',
            )
        change = Change("promoted", record.digest, now.champion, decision, who, why, time)
        return _write(store, recipe, Champion(record.digest, now.champion, (change, *now.history)))


def rollback(store: Store, recipe: str, who: str, why: str, time: str, to: str | None = None) -> Champion:
    """Bar the champion's version, and make `previous` the champion, or an earlier one: `to`, the beginning of its version.

    Raises StoreError where there is none, or where its content is not whole; then everything stays.
    """
    with explained(_path(store, recipe)), held_lock(_lock(store, recipe)):
        now = read(store, recipe)
        if now.champion is None:
            raise StoreError(f"{recipe} has no champion", f"Promote one first: bert promote {recipe}")
        if to == "":
            raise StoreError("--to names no version", f"Leave it out, or name one: bert status {recipe}")
        earlier = _earlier(store, now)
        chosen = [record for record in earlier if record.version.startswith(to or "")]
        if not chosen:
            known = ", ".join(record.version[:12] for record in earlier)
            raise StoreError(
                f"{recipe} has no earlier champion{f' of version {to}' if to else ''} that is not barred",
                f"It has {known}." if known else "Its champion stays.",
            )
        target = chosen[0]
        _whole(store, target)
        gone = store.record(now.champion)
        if gone.version not in barred(store):
            bar(store, gone.version, who, f"rolled back: {why}", time)
        change = Change("rolled back", target.digest, now.champion, None, who, why, time)
        left = [r.digest for r in _earlier(store, Champion(target.digest, None, now.history))]
        return _write(store, recipe, Champion(target.digest, left[0] if left else None, (change, *now.history)))


def bar(store: Store, version: str, who: str, why: str, time: str, lift: bool = False) -> Ban:
    """Never promote a release version again, or (`lift`) allow it again. Raises StoreError where that is so already."""
    path = store.home / BARRED
    with explained(path), held_lock(store.home / "locks" / "barred"):
        is_barred = version in barred(store)
        if is_barred != lift:
            raise StoreError(
                f"version {version[:12]} is {'barred already' if is_barred else 'not barred'}", "Nothing to do."
            )
        ban = Ban("unbarred" if lift else "barred", version, who, why, time)
        write_json(path, [asdict(each) for each in (ban, *_bans(store))])
    return ban


def barred(store: Store) -> dict[str, Ban]:
    """What must not be promoted, by release version. Raises StoreError when the list is damaged."""
    newest: dict[str, Ban] = {}
    for ban in _bans(store):
        newest.setdefault(ban.version, ban)
    return {version: ban for version, ban in newest.items() if ban.did == "barred"}


def _bans(store: Store) -> Sequence[Ban]:
    path = store.home / BARRED
    found = read_kept(path)
    try:
        if not isinstance(found, list | None):
            raise TypeError("it is no list")
        return [Ban(**each) for each in found or ()]
    except TypeError as error:
        raise damaged(path, error) from None


def lost_bans(store: Store, known: Champion) -> list[str]:
    """Versions that were rolled back, which bars them, and of which the list says nothing at all: it was lost, or is an older one."""
    told = {ban.version for ban in _bans(store)}
    gone = [c.instead_of for c in known.history if c.did == "rolled back" and c.instead_of is not None]
    return sorted({store.record(digest).version for digest in gone} - told)


def _earlier(store: Store, now: Champion) -> list[Record]:
    """Releases that were champion before the one that is, the last first, without those that are barred."""
    bans, found = barred(store), dict[str, Record]()
    for change in now.history:
        for digest in (change.champion, change.instead_of):
            if digest is not None and digest != now.champion and digest not in found:
                record = store.record(digest)
                if record.version not in bans:
                    found[digest] = record
    return list(found.values())


def _whole(store: Store, record: Record) -> None:
    if not store.intact(record.stage, record.version):
        raise StoreError(
            f"the content of {record.path} {record.version[:12]} is missing or broken",
            "bert verify; then make it again, or take another version.",
        )


def _write(store: Store, recipe: str, champion: Champion) -> Champion:
    write_json(_path(store, recipe), asdict(champion))
    return champion


def _path(store: Store, recipe: str) -> Path:
    return store.home / "assets" / recipe / CHAMPION_FILE


def _lock(store: Store, recipe: str) -> Path:
    return store.home / "locks" / f"champion-{recipe}"
