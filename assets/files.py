"""`S_dump` and `S_files`: the exact bytes that a source was read from."""

from pathlib import Path

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import numbers
from pipeline.build import open_store
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """Every file with its size and digest, and whether it is stored or only referenced."""
    listed = open_store().manifest(record.stage, record.version)["files"]
    table = [
        dg.TableRecord(
            {
                "file": file["path"],
                "megabytes": round(file["size_bytes"] / 1e6, 3),
                "sha256": file["sha256"],
                "kept": "referenced" if file.get("referenced") else "stored",
            }
        )
        for file in listed
    ]
    return {**numbers(record.body["statistics"]), "files": dg.MetadataValue.table(table)}


WIRING = Wiring(
    description="The exact bytes of this source: downloaded, or a local path referenced by size and SHA-256.",
    kinds=frozenset({"file"}),
    metadata=metadata,
    retry=dg.RetryPolicy(max_retries=2, delay=5),
)
