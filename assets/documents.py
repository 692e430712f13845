"""`documents`: one table of all text."""

from pathlib import Path

from assets.asset import Metadata, Wiring
from assets.shown import text_metadata
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """Counts by source and split, what was dropped and why, sample rows, lengths."""
    return text_metadata(record.body["statistics"], folder)


WIRING = Wiring(
    description="All text in one table: deduplicated, split into sentences, train and held-out documents.",
    kinds=frozenset({"parquet", "polars"}),
    metadata=metadata,
)
