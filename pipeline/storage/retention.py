"""What of a store may go, and why: mark what is needed, from roots, and sweep the rest. A pure function of what was read.

Roots are what each asset of every recipe has now, whether its YAML is here or not, and the last versions that it had; the
champion of a recipe and the one before it; releases that something is attested of; what unfinished trainings read. Rehearsals
have none: what they made may be needed for another reason, or goes. What a root was made of, by its record, by that of the work that it reuses and by what a recipe took by version, is needed too.

One rule takes content although it is needed: the shards of finished trainings, once they are old. Records always stay.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipeline.recipes.rehearsal import is_rehearsal
from pipeline.settings import RetentionSettings
from pipeline.storage.record import Record

Version = tuple[str, str]
"""stage, version"""

NOW = "assets have it now"
CHAMPION = "champion or the one before"
ATTESTED = "a release with attestations"
HISTORY = "assets had it lately"
UNFINISHED = "an unfinished training reads it"
NEEDED = "what stays was made of it"
LEASED = "somebody reads it now"
RESTORED = "brought back from the trash lately"
WAITING = "accepted, and its record is not written yet"
YOUNG = "published just now"
SHARDS = "pretraining_shards"
DAY = 86_400.0


@dataclass(frozen=True)
class State:
    """What was read of a store."""

    records: Mapping[str, Record]
    """by digest, all that can be read"""
    pointers: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """(recipe, asset) → digests: what it has now, then what it had, newest first"""
    champions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """recipe → digests of the champion and of the one before"""
    attested: Collection[str] = ()
    """versions that something is said of"""
    unfinished: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    """name of a training run → digests of the records that it reads; None: not known"""
    leased: Collection[Version] = ()
    content: Mapping[Version, float] = field(default_factory=dict)
    """what is there → seconds since it was published"""
    restored: Mapping[Version, datetime] = field(default_factory=dict)
    """what was brought back from the trash, and when"""
    waiting: Collection[str] = ()
    """versions of rejected content that was accepted"""
    lease_seconds: float = 60.0
    """content that is not older may be about to get its record"""


@dataclass(frozen=True)
class Going:
    """A version that may go."""

    version: Version
    assets: tuple[str, ...]
    """`recipe/asset` of the records that name it, newest first"""
    why: str
    again: bool
    """it is needed: made again when something reads it"""


@dataclass(frozen=True)
class Verdict:
    """What may go, what stays and why; `lost`: records that are named and missing. Then nothing may go: what they need is
    not known."""

    goes: Sequence[Going]
    stays: Mapping[Version, str]
    """also of what is not there"""
    lost: Sequence[str]
    notes: Sequence[str]
    """what a person should know"""


def decide(state: State, rules: RetentionSettings, now: datetime) -> Verdict:
    """Which of the content that is there may go."""
    named: dict[Version, list[Record]] = defaultdict(list)
    for record in sorted(state.records.values(), key=lambda each: (each.body["finished"], each.digest)):
        named[_version(record)].append(record)
    stays: dict[Version, str] = {}
    lost: list[str] = []
    waiting: list[Record] = []
    for why, digest, by in _roots(state, rules, named):
        if digest in state.records:
            waiting.append(state.records[digest])
            stays.setdefault(_version(waiting[-1]), why)
        else:
            lost.append(f"{by} names record {digest[:12]}, which is missing or altered")
    _mark(state, named, waiting, stays, lost)
    for version in state.leased:
        stays.setdefault(version, LEASED)
    for version, when in state.restored.items():
        if (now - when).total_seconds() < rules.grace_days * DAY:
            stays[version] = RESTORED
    for version, age in state.content.items():
        if version not in named and version[1] in state.waiting:
            stays.setdefault(version, WAITING)
        elif version not in named and age <= state.lease_seconds:
            stays.setdefault(version, YOUNG)

    old = _old_shards(state, rules, named, stays, now)
    for version in old:
        del stays[version]
    had = {_version(state.records[d]) for digests in state.pointers.values() for d in digests if d in state.records}
    goes = [
        Going(version, _assets(named[version]), old.get(version) or _why(version, named, had), version in old)
        for version in sorted(state.content)
        if version not in stays
    ]
    return Verdict(goes, stays, sorted(set(lost)), _notes(state, rules))


def _version(record: Record) -> Version:
    return record.stage, record.version


def _roots(
    state: State, rules: RetentionSettings, named: Mapping[Version, Sequence[Record]]
) -> Iterator[tuple[str, str, str]]:
    """(why it stays, digest of a record, who names it), what counts most first."""
    pointers = {at: digests for at, digests in state.pointers.items() if not is_rehearsal(at[0])}
    for (recipe, asset), digests in pointers.items():
        yield NOW, digests[0], f"{recipe}/{asset}"
    for recipe, digests in state.champions.items():
        yield from ((CHAMPION, digest, f"the champion of {recipe}") for digest in digests)
    for (_, version), records in named.items():
        if version in state.attested:
            yield from ((ATTESTED, record.digest, "attestations") for record in records)
    for (recipe, asset), digests in pointers.items():
        yield from ((HISTORY, d, f"the history of {recipe}/{asset}") for d in _lately(state, digests, rules.history))
    for run, read in state.unfinished.items():
        yield from ((UNFINISHED, digest, f"training run {run}") for digest in read or ())


def _lately(state: State, digests: Sequence[str], count: int) -> Iterator[str]:
    """The records of the last `count` versions before the one that an asset has now: several may name one version."""
    versions = {_version(state.records[digests[0]])} if digests[0] in state.records else set()
    kept = len(versions) + count
    for digest in digests[1:]:
        record = state.records.get(digest)
        if record is None and len(versions) < kept:
            yield digest  # it may be one of them: that it is missing is told
        elif record is not None:
            versions.add(_version(record))
            if len(versions) > kept:
                return
            yield digest


def _mark(
    state: State,
    named: Mapping[Version, Sequence[Record]],
    waiting: list[Record],
    stays: dict[Version, str],
    lost: list[str],
) -> None:
    """Add to `stays` everything that the records `waiting` were made of."""
    by_name: dict[str, list[Version]] = defaultdict(list)
    for version in named:
        by_name[version[1]].append(version)
    seen: set[str] = set()
    while waiting:
        record = waiting.pop()
        if record.digest in seen:
            continue
        seen.add(record.digest)
        stays.setdefault(_version(record), NEEDED)
        for name, digest in record.inputs.items():
            if digest in state.records:
                waiting.append(state.records[digest])
            else:
                lost.append(f"record {record.digest[:12]}, input {name}, names record {digest[:12]}, which is missing")
        # The work that was reused, and what was taken from another generation: a courtesy, the chain stands without.
        root = record.body.get("statistics", {}).get("root")
        told = [record.body.get("reused"), root.get("record") if isinstance(root, dict) else None]
        waiting += [state.records[str(digest)] for digest in told if digest in state.records]
        for text in _texts(record.body.get("asked")):
            waiting += [state.records[text]] if text in state.records else []
            waiting += [named[version][0] for version in by_name.get(text.partition("/")[0], ())]


def _texts(value: Any) -> Iterator[str]:
    """Every text in a record's configuration: one may name a version, or a record (of the champion that a decision compared with)."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _old_shards(
    state: State,
    rules: RetentionSettings,
    named: Mapping[Version, Sequence[Record]],
    stays: Mapping[Version, str],
    now: datetime,
) -> dict[Version, str]:
    """Shards that are needed and may go all the same → why: every training that reads them is finished, and they are old."""
    if rules.shards_days is None or None in state.unfinished.values():
        return {}
    kept = {NOW, CHAMPION, ATTESTED, HISTORY, NEEDED}
    shards = {version for version, why in stays.items() if version[0] == SHARDS and why in kept}
    held = {_version(state.records[d]) for read in state.unfinished.values() for d in read or () if d in state.records}
    shards -= held | set(state.leased)
    readers: dict[Version, list[Record]] = defaultdict(list)
    for record in state.records.values():
        read = [state.records[digest] for digest in record.inputs.values() if digest in state.records]
        for version in {_version(each) for each in read} & shards:
            readers[version].append(record)
    current = {d[0] for d in state.pointers.values()}
    found = {}
    for version in shards:
        trained = {record.recipe for record in readers[version] if record.digest in current}
        wanted = {record.recipe for record in named[version] if record.digest in current}
        used = max(datetime.fromisoformat(r.body["finished"]) for r in [*named[version], *readers[version]])
        days = (now - used).total_seconds() / DAY
        if readers[version] and wanted <= trained and days > rules.shards_days:
            found[version] = f"its trainings are finished, the last use was {days:.0f} days ago"
    return found


def _assets(records: Sequence[Record]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(record.path for record in reversed(records)))


def _why(version: Version, named: Mapping[Version, Sequence[Record]], had: Collection[Version]) -> str:
    records = named.get(version)
    if not records:
        return "no record names it: a crash left it"
    if all(is_rehearsal(record.recipe) for record in records):
        return f"made {records[0].body['finished'][:10]} by a rehearsal"
    if version in had:
        return f"made {records[0].body['finished'][:10]}; newer versions took its place"
    return f"made {records[0].body['finished'][:10]}; nothing that stays was made of it"


def _notes(state: State, rules: RetentionSettings) -> list[str]:
    """What keeps the rule for shards from being applied."""
    unknown = [run for run, read in state.unfinished.items() if read is None]
    if not unknown or rules.shards_days is None:
        return []
    return [
        f"no shards go by their age: {len(unknown)} unfinished training(s) do not say what they read "
        f"({', '.join(sorted(unknown)[:3])}); `bert run` finishes them, or remove their folders"
    ]


def sums(sizes: Mapping[Version, int], stays: Mapping[Version, str]) -> list[tuple[str, int, int]]:
    """(why, number of versions, bytes) of the content that is there (`sizes`) and stays, the most bytes first."""
    counts, sizes_ = Counter[str](), Counter[str]()
    for version, size in sizes.items():
        if version in stays:
            counts[stays[version]] += 1
            sizes_[stays[version]] += size
    return sorted(((why, counts[why], sizes_[why]) for why in counts), key=lambda each: (-each[2], each[0]))
