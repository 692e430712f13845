"""What differs between two chains of records, asset by asset: `bert diff`. A pure function of records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.storage.record import Record

Pair = tuple[Any, Any]
_CIRCUMSTANCES = ("accelerator_hours", "tokens_per_second", "mfu", "peak_memory_bytes", "resume_count", "device_name")
"""numbers of a record that tell of the machine and not of the artifact"""


@dataclass(frozen=True)
class Difference:
    """One asset that is not the same in both chains."""

    asset: str
    versions: tuple[str | None, str | None]
    """None where a chain has no such asset"""
    code: Pair | None = None
    """code versions of the stage"""
    commits: Pair | None = None
    """of the repository; only where the code versions are equal too, they may not matter"""
    config: Mapping[str, Pair] | None = None
    """key → values, of what was asked for"""
    libraries: Mapping[str, Pair] | None = None
    numbers: Mapping[str, Pair] | None = None
    """name → values of the statistics"""

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        told: dict[str, Any] = {"asset": self.asset, "versions": list(self.versions)}
        told |= {name: pair and list(pair) for name, pair in (("code", self.code), ("commits", self.commits))}
        for name in ("config", "libraries", "numbers"):
            told[name] = {key: list(pair) for key, pair in (getattr(self, name) or {}).items()}
        return told


@dataclass(frozen=True)
class Compared:
    """Two chains, side by side."""

    same: Sequence[str]
    """assets with one version in both"""
    differ: Sequence[Difference]
    """inputs before what was made of them"""


def compare(a: Sequence[Record], b: Sequence[Record]) -> Compared:
    """a, b: chains as `lineage.ancestors` gives them, what was made before what it was made of.

    Assets are matched by their names; what has no counterpart differs as a whole.
    """
    left, right = ({record.asset: record for record in chain} for chain in (a, b))
    names = list(dict.fromkeys([*reversed(list(left)), *reversed(list(right))]))
    same, differ = [], []
    for name in names:
        one, other = left.get(name), right.get(name)
        if one is not None and other is not None and one.version == other.version:
            same.append(name)
        elif one is None or other is None:
            differ.append(Difference(name, (one.version if one else None, other.version if other else None)))
        else:
            differ.append(_difference(name, one, other))
    return Compared(same, differ)


def _difference(name: str, a: Record, b: Record) -> Difference:
    before, after = (dict(_numbers(each.body["statistics"])) for each in (a, b))
    return Difference(
        name,
        (a.version, b.version),
        _pair(a.body["code_version"], b.body["code_version"]),
        _pair(_commit(a), _commit(b)),
        _changed(dict(_leaves(a.body["asked"])), dict(_leaves(b.body["asked"])), "default"),
        _changed(a.body.get("libraries", {}), b.body.get("libraries", {}), None),
        _changed(before, after, None),
    )


def _pair(a: Any, b: Any) -> Pair | None:
    return None if a == b else (a, b)


def _commit(record: Record) -> str:
    git = record.body.get("git") or {}
    return f"{git.get('commit') or 'unknown'}{' with changes' if git.get('dirty') else ''}"


def _changed(a: Mapping[str, Any], b: Mapping[str, Any], missing: Any) -> dict[str, Pair]:
    """Keys whose values differ; `missing` stands for a value that is not there."""
    keys = dict.fromkeys([*a, *b])
    return {key: (a.get(key, missing), b.get(key, missing)) for key in keys if a.get(key) != b.get(key)}


def _leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key → value that is no map."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, f"{at}.{name}" if at else str(name))
    else:
        yield at, value


def _numbers(statistics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The numbers and short texts among statistics, but those of the machine."""
    for key, value in _leaves(statistics):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and key.split(".")[0] not in _CIRCUMSTANCES:
            yield key, value
