"""`contamination`: how much of each task's test text stands in the corpus."""

import json
from pathlib import Path

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import numbers
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """Touched test examples per task."""
    found = json.loads((folder / "contamination.json").read_text(encoding="utf-8"))
    return {**numbers(record.body["statistics"]), "overlap": dg.MetadataValue.json(found)}


WIRING = Wiring(
    description="How many test examples of each task share a long run of words with the corpus.",
    kinds=frozenset({"json", "polars"}),
    metadata=metadata,
)
