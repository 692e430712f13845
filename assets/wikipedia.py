"""`S_text` of kind wikipedia: articles as prose."""

from assets.asset import Wiring
from assets.shown import text_metadata

WIRING = Wiring(
    description="Articles of the dump as prose: lists, tables, references and markup are gone.",
    kinds=frozenset({"parquet", "python"}),
    metadata=text_metadata,
)
