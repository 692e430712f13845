"""`comparisons/NAME`: a table over several recipes in Markdown, HTML and JSON."""

from pathlib import Path

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import numbers
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """The table, and the file to open."""
    return {
        "comparison": dg.MetadataValue.md((folder / "comparison.md").read_text(encoding="utf-8")),
        **numbers(record.body["statistics"]),
        "html": dg.MetadataValue.path(str(folder / "comparison.html")),
    }


WIRING = Wiring(
    description="Numbers of several recipes beside published ones. It reads what they have now and trains nothing.",
    kinds=frozenset({"report", "json"}),
    metadata=metadata,
)
