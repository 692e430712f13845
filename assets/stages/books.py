"""`S_text` of kind books: one document a book."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.asset import Wiring
from assets.shown import rows, text_metadata
from pipeline.store import Record
from pipeline.system.places import opened

SHOWN = 100
COLUMNS = ("path", "title", "author", "licence", "language", "encoding", "documents", "characters", "dropped")


def metadata(record: Record, folder: Path) -> dict[str, Any]:
    """What every table of documents shows, the first files of the shelf, and those that were dropped."""
    import pyarrow.parquet as pq

    with opened(folder / "books.parquet") as file:
        books = pq.read_table(file, columns=list(COLUMNS)).to_pylist()
    dropped = [book for book in books if book["dropped"]]
    shown = text_metadata(record, folder)
    for name, table in (("books", books), ("dropped_books", dropped)):
        if table:
            shown[name] = rows([_plain(book) for book in table[:SHOWN]], COLUMNS)
    return shown


def _plain(book: Mapping[str, Any]) -> dict[str, Any]:
    return {name: "" if value is None else value for name, value in book.items()}


WIRING = Wiring(
    description="The books of this source, one document each.",
    kinds=frozenset({"parquet", "python"}),
    metadata=metadata,
)
