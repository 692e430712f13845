"""`documents`: one table of all text."""

from assets.asset import Wiring
from assets.shown import text_metadata

WIRING = Wiring(
    description="All text in one table: deduplicated, split into sentences, train and held-out documents.",
    kinds=frozenset({"parquet", "polars"}),
    metadata=text_metadata,
)
