"""What came from what, from the store's records alone: ancestry, the one-chain rule, the audit of an artifact."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.errors import ChainError, StoreError
from pipeline.storage.tombstones import Tombstone
from pipeline.store import Record, Store


def ancestors(store: Store, record: Record, roots: bool = False) -> Iterator[Record]:
    """The record and everything it came from, each once, inputs after what they went into; with `roots` also the models that
    training began from, where the store has their records.

    Raises StoreError where a record is missing or altered.
    """
    seen = set()
    waiting = [record]
    while waiting:
        current = waiting.pop()
        if current.digest not in seen:
            seen.add(current.digest)
            yield current
            root = root_of(store, current) if roots else None
            waiting.extend([root] if root else [])
            waiting.extend(store.record(digest) for _, digest in sorted(current.inputs.items(), reverse=True))


def reuses(store: Store, record: Record) -> Iterator[Record]:
    """The record, the one whose work it reuses, and so on down to that of the run which made the content. Raises StoreError where
    one of them is missing or altered."""
    yield record
    while record.body.get("reused"):
        record = store.record(str(record.body["reused"]))
        yield record


def root_of(store: Store, record: Record) -> Record | None:
    """The record of the model of our own that an imported one is, if the store has it."""
    told = (record.body.get("statistics") or {}).get("root")
    digest = told.get("record") if isinstance(told, Mapping) else None
    try:
        return store.record(str(digest)) if digest else None
    except StoreError:
        return None


def check_one_chain(store: Store, recipe: str, asset: str, inputs: Mapping[str, Record]) -> None:
    """Refuse inputs whose ancestries name two versions of one asset (DESIGN: one chain, not a mixture).

    Raises ChainError that names the asset, both versions and what to rerun.
    """
    named: dict[str, tuple[str, str]] = {}  # asset name → (version, the input whose ancestry names it)
    for name, record in inputs.items():
        for ancestor in ancestors(store, record):
            version, by = named.setdefault(ancestor.asset, (ancestor.version, name))
            if version != ancestor.version:
                stale = _oldest_below(store, {by: inputs[by], name: record}, ancestor.asset)
                raise ChainError(
                    f"{recipe}/{asset}: its inputs come from two generations of {ancestor.asset}: {inputs[by].asset} from "
                    f"{version[:12]}, {record.asset} from {ancestor.version[:12]}",
                    f"Rerun what lies behind: bert run {recipe}/{stale}",
                )


def _oldest_below(store: Store, inputs: Mapping[str, Record], asset: str) -> str:
    """The input whose copy of `asset` was finished first: it is the one that lies behind."""

    def finished(record: Record) -> str:
        return max(a.body["finished"] for a in ancestors(store, record) if a.asset == asset)

    return min(inputs.values(), key=finished).asset


@dataclass(frozen=True)
class Step:
    """One artifact of an audited chain."""

    record: Record
    manifest: Mapping[str, Any] | None
    """None: its content is missing; the record still stands"""
    removed: Tombstone | None = None
    """of content that `bert gc` removed; the manifest is known all the same"""

    def plain(self) -> dict[str, Any]:
        """As JSON values: the record's body, its digest, every file with size and SHA-256, and when and why the content was
        removed, if it was."""
        removed = self.removed.plain() if self.removed else None
        return {"record": self.record.digest, **self.record.body, "files": self.files(), "removed": removed}

    def files(self) -> list[dict[str, Any]]:
        """Name, size and digests of every file; empty where they are not known."""
        return list(self.manifest["files"]) if self.manifest else []


def body_of(step: Mapping[str, Any]) -> dict[str, Any]:
    """The record's body from what `Step.plain` told."""
    return {name: value for name, value in step.items() if name not in ("record", "files", "removed")}


def audit(store: Store, record: Record) -> list[Step]:
    """The exact chain behind a record, the artifact itself first, down to the bytes of the dump.

    Raises StoreError where a record is missing or altered: then the chain can't be proven.
    """

    def manifest(of: Record) -> Mapping[str, Any] | None:
        try:
            return store.manifest(of.stage, of.version)
        except StoreError:
            return None

    return [Step(a, manifest(a), store.removed(a.stage, a.version)) for a in ancestors(store, record)]
