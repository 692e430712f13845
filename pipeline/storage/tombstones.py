"""Tombstones: what stays of a version whose content was removed: every file with its digests, when, why and by whom.

A tombstone proves itself: its files make the version, and it is sealed as a manifest is. Where the content is there, it says
nothing.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.formats import foreign_json
from pipeline.storage import manifest
from pipeline.storage.manifest import Entry
from pipeline.system.owners import user


@dataclass(frozen=True)
class Tombstone:
    """Of one version."""

    stage: str
    version: str
    files: Sequence[Entry]
    """as the manifest lists them"""
    time: str
    """when the content was put into the trash, ISO 8601 with zone"""
    reason: str
    by: str
    """user@host"""
    again: bool
    """taken by a rule although it is needed: the asset counts as settled, and is made again when something reads it"""
    restored: str = ""
    """when the content was brought back from the trash; then it was not removed, whether it is there or not"""

    @property
    def size_bytes(self) -> int:
        """Of the files that the store held itself."""
        return held_bytes(self.files)

    @property
    def told(self) -> str:
        """`its content was removed on 2026-01-31 by ann@gpu1: REASON`."""
        return f"its content was removed on {self.time[:10]} by {self.by}: {self.reason}"

    def plain(self) -> dict[str, Any]:
        """As JSON values, without the files."""
        return {"time": self.time, "reason": self.reason, "by": self.by, "made_again_when_needed": self.again}

    def data(self) -> bytes:
        """As it is stored."""
        body = {"stage": self.stage, "version": self.version, "files": list(self.files), **self.plain()}
        return manifest.sealed({**body, "restored": self.restored})


def held_bytes(files: Sequence[Entry]) -> int:
    """Bytes of the files of a manifest that the store holds itself."""
    return sum(int(file["size_bytes"]) for file in files if not file.get("referenced"))


def parsed(data: bytes, stage: str, version: str) -> Tombstone | None:
    """The tombstone of a version from its bytes; None when it was altered."""
    try:
        body = foreign_json.parsed(data)
        body.pop("seal")
        tombstone = Tombstone(
            body["stage"],
            body["version"],
            body["files"],
            body["time"],
            body["reason"],
            body["by"],
            body["made_again_when_needed"],
            body["restored"],
        )
        whole = tombstone.data() == data and manifest.version_in(tombstone.files) == version
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return tombstone if whole and (tombstone.stage, tombstone.version) == (stage, version) else None


def who() -> str:
    """user@host of this process."""
    return f"{user()}@{platform.node()}"
