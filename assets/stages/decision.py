"""`promotion_decision`: every gate with its numbers."""

from pathlib import Path

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.commands import promoting
from assets.shown import numbers
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """The verdict and its table."""
    return {
        **numbers(record.body["statistics"]),
        "decision": dg.MetadataValue.md((folder / "decision.md").read_text(encoding="utf-8")),
    }


WIRING = Wiring(
    description="Whether the release may take the place of the champion, with every number that says so.",
    kinds=frozenset({"report", "json"}),
    metadata=metadata,
    pool="accelerator",
    after=promoting.follow,
)
