"""`S_text` of kinds text, jsonl, parquet and csv: one document a file or row."""

from assets.asset import Wiring
from assets.shown import text_metadata

WIRING = Wiring(
    description="The documents of this source: one a file, or one a row of its tables.",
    kinds=frozenset({"parquet", "python"}),
    metadata=text_metadata,
)
