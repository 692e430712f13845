"""`S_text` of kind wikipedia: articles as prose."""

from pathlib import Path

from assets.asset import Metadata, Wiring
from assets.shown import text_metadata
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """Counts, what was dropped and why, sample rows, lengths."""
    return text_metadata(record.body["statistics"], folder)


WIRING = Wiring(
    description="Articles of the dump as prose: lists, tables, references and markup are gone.",
    kinds=frozenset({"parquet", "python"}),
    metadata=metadata,
)
