"""`S_text` of kind books: one document a book."""

from pathlib import Path

from assets.asset import Metadata, Wiring
from assets.shown import text_metadata
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """Counts, what was dropped and why, sample rows, lengths."""
    return text_metadata(record.body["statistics"], folder)


WIRING = Wiring(
    description="The books of this source, one document each.",
    kinds=frozenset({"parquet", "python"}),
    metadata=metadata,
)
