"""Bring deleted records back from what `bert audit --json` printed, or from the lineage.json of an export.

A record is named by the digest of its own bytes, so an audit proves each of its records: a changed one is refused.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import DataError
from pipeline.formats.foreign_json import parsed
from pipeline.lineage import body_of
from pipeline.storage.record import Record, record_of
from pipeline.store import Store
from pipeline.system.atomic import canonical_json, explained

NAMES = ("stage", "key", "version", "recipe", "asset")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
TODO = "Take another audit: bert audit RECIPE/ASSET --json, or the lineage.json of an export."


def restore(store: Store, file: Path) -> dict[str, Any]:
    """Write the records of the audit in `file` that the store lacks, each under its key too.

    Returns how many it names, and which were written. Raises DataError for a file that is no audit, or where a record is not
    what its digest says; then nothing was written.
    """
    records = list(_records(file))
    missing = [record for record in records if not store.knows(record)]
    for record in reversed(missing):  # what others were made of comes first
        store.append(record.body)
    return {
        "file": str(file),
        "records": len(records),
        "written": [{"asset": record.path, "record": record.digest} for record in missing],
        "without_content": sum(not store.intact(record.stage, record.version) for record in missing),
    }


def _records(file: Path) -> Iterator[Record]:
    try:
        with explained(file):
            told = parsed(file.read_text(encoding="utf-8"))
        chain = told["chain"]
        steps = [(str(step["record"]), step) for step in chain]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is no audit: {error!r}", TODO) from None
    for digest, step in steps:
        yield _record(file, digest, step)


def _record(file: Path, digest: str, step: Mapping[str, Any]) -> Record:
    try:
        record = record_of(canonical_json(body_of(step)))
        whole = record.digest == digest
    except (ValueError, TypeError, AttributeError):
        raise DataError(f"{file}: {digest[:12]} is no record", TODO) from None
    if not whole:
        raise DataError(
            f"{file}: record {digest[:12]} ({record.path}) was changed: its digest is {record.digest[:12]} now",
            f"Nothing was written. {TODO}",
        )
    for name in NAMES:
        if not isinstance(record.body[name], str) or not _NAME.fullmatch(record.body[name]):
            raise DataError(f"{file}: record {digest[:12]} has no {name} that can be: {record.body[name]!r}", TODO)
    return record
