"""`S_text` of kind books: one document a book."""

from assets.asset import Wiring
from assets.shown import text_metadata

WIRING = Wiring(
    description="The books of this source, one document each.",
    kinds=frozenset({"parquet", "python"}),
    metadata=text_metadata,
)
