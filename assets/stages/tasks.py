"""`task_data_T`: the files of one task, checked."""

from pathlib import Path

from assets.asset import Metadata, Wiring
from assets.shown import numbers, schema, tables
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """Counts by part and label, and what was dropped; or which files are missing."""
    statistics = record.body["statistics"]
    return {**numbers(statistics), **tables(statistics), **schema(folder)}


WIRING = Wiring(
    description="The examples of this task, read and checked; `not_run` with the files it wants where there are none.",
    kinds=frozenset({"parquet"}),
    metadata=metadata,
)
