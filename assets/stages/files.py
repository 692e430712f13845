"""`S_dump` and `S_files`: the exact bytes that a source was read from."""

from pathlib import Path

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import numbers
from pipeline.store import Record, open_store


def metadata(record: Record, folder: Path) -> Metadata:
    """Where the files come from, how fast they came, and every file with its size and digests."""
    statistics = record.body["statistics"]
    listed = open_store().manifest(record.stage, record.version)["files"]
    declared = {file["name"]: file for file in statistics["files"]}
    checksum = statistics.get("checksum", "")
    table = [
        dg.TableRecord(
            {
                "file": file["path"],
                "megabytes": round(file["size_bytes"] / 1e6, 3),
                "sha256": file["sha256"],
                "declared": f"{checksum} {declared[file['path']][checksum]}" if checksum else "",
                "kept": "referenced" if file.get("referenced") else "stored",
            }
        )
        for file in listed
    ]
    shown = {**numbers(statistics), "files": dg.MetadataValue.table(table)}
    if "url" in statistics:
        shown["url"] = dg.MetadataValue.url(statistics["url"])
    return shown


WIRING = Wiring(
    description="The exact bytes of this source: downloaded, or a local path referenced by size and SHA-256.",
    kinds=frozenset({"file"}),
    metadata=metadata,
    retry=dg.RetryPolicy(max_retries=2, delay=5),
)
