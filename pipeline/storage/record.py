"""Records: how content came to be. Immutable, and named by their own digest."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipeline.formats.foreign_json import parsed

NEEDED = frozenset({"recipe", "asset", "stage", "key", "version", "inputs", "started", "finished"})


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
    def path(self) -> str:
        """`recipe/asset`, as people write it."""
        return f"{self.recipe}/{self.asset}"

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


def record_of(data: bytes) -> Record:
    """The record whose bytes these are. Raises ValueError for what is no record."""
    body = parsed(data)
    if not isinstance(body, dict) or not set(body) >= NEEDED:
        raise ValueError("not a record")
    return Record(hashlib.sha256(data).hexdigest(), body)


def utc_now() -> str:
    """The time as records hold it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
