"""`pretraining_shards_L`: masked instances of one sequence length, built by Beam."""

from pathlib import Path

from assets.asset import Metadata, Wiring
from assets.shown import numbers, schema
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """Rows, lengths, padding, and the shares of masked, random and kept tokens."""
    return {**numbers(record.body["statistics"]), **schema(folder)}


WIRING = Wiring(
    description="Masked next-sentence instances of this length in Parquet shards, with a fixed held-out part.",
    kinds=frozenset({"parquet", "beam"}),
    metadata=metadata,
    pool="beam",
)
