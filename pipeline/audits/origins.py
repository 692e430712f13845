"""Where an artifact came from: the exact bytes from outside, the sources of text and the books with their licences."""

import hashlib
import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.attestations.chain import ORIGINS, UNKNOWN, Chain, Original, Work, originals, sources
from pipeline.errors import StoreError
from pipeline.store import Store
from pipeline.system import places

Plain = dict[str, Any]
NONE = "none"
"""what stands for the URL of a local file, the date of what is no dump, and a checksum that nobody states"""
BOOKS_TEXT, BOOKS = "books_text", "books.parquet"
_OF_A_BOOK = ("path", "title", "author", "licence", "rights", "url", "language", "documents", "dropped")


def files(chain: Chain) -> list[Plain]:
    """Every file from outside that something in the chain was made of, with its digests."""
    return [_file(work, original) for work in chain.works for original in originals(work)]


def _file(work: Work, original: Original) -> Plain:
    told = work.statistics
    origin = str(told.get("origin", ""))
    local = origin in ("path", "wheel") or not original.uri
    return {
        "asset": work.record.asset,
        "recipe": work.record.recipe,
        "name": original.name,
        "member": original.member,
        "origin": ORIGINS.get(origin, "named by the recipe"),
        "url": original.uri or (NONE if local and origin != "wikimedia" else UNKNOWN),
        "date": _date(work) if origin == "wikimedia" else NONE,
        "acquired": work.times[1][:10] if work.times else UNKNOWN,
        "size_bytes": UNKNOWN if original.size_bytes is None else original.size_bytes,
        "sha1": original.digests.get("sha1", UNKNOWN if origin == "wikimedia" else NONE),
        "sha256": original.digests.get("sha256", UNKNOWN),
    }


def _date(work: Work) -> str:
    """Of the dump, YYYY-MM-DD. Only a dump has a date of its own."""
    date = str(work.statistics.get("dump_date") or "").replace("-", "")
    return f"{date[:4]}-{date[4:6]}-{date[6:]}" if len(date) == 8 else UNKNOWN


def texts(chain: Chain) -> list[Plain]:
    """The sources of text, with their licences, and how many documents of each are trained on."""
    return [
        {
            "source": source.name,
            "kind": source.kind,
            "origin": source.origin,
            "wiki": source.wiki,
            "date": source.date or UNKNOWN,
            "url": source.url,
            "acquired": source.acquired,
            "language": source.language,
            "licences": list(source.licences) or [UNKNOWN],
            "documents_read": _number(source.read),
            "documents_kept": _number(source.kept),
            "documents_trained_on": _number(source.train),
        }
        for source in sources(chain)
    ]


def _number(count: int | None) -> int | str:
    return UNKNOWN if count is None else count


def books(store: Store, chain: Chain) -> list[Plain]:
    """Of every source of books its files with title, author and licence, from its books.parquet; why they are unknown where
    that is gone or altered."""
    return [_books(store, work) for work in chain.of(BOOKS_TEXT)]


def _books(store: Store, work: Work) -> Plain:
    told: Plain = {"asset": work.record.asset, "recipe": work.record.recipe, "version": work.record.version}
    try:
        table = _read(store.content(work.record.stage, work.record.version), _entry(work))
    except StoreError as error:
        return {**told, "licences": UNKNOWN, "why": error.what, "books": []}
    columns = [name for name in _OF_A_BOOK if name in table.column_names]
    listed = table.select(columns).to_pylist()
    licences = Counter(str(book.get("licence") or UNKNOWN) for book in listed if not book.get("dropped"))
    return {**told, "licences": dict(licences.most_common()), "why": "", "books": listed}


def _entry(work: Work) -> Mapping[str, Any]:
    found = [entry for entry in work.files or () if entry["path"] == BOOKS]
    if not found:
        raise StoreError(f"{work.record.asset}: its content is not in the store", "")
    return found[0]


def _read(folder: Path, entry: Mapping[str, Any]) -> pa.Table:
    """One file of a version, hashed as it is read: the others need not be."""
    try:
        with places.opened(folder / entry["path"]) as file:
            data = file.read()
    except OSError as error:
        raise StoreError(f"{entry['path']} is not in the store", "") from error
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise StoreError(f"{entry['path']} is not what its digest says", "")
    with pq.ParquetFile(io.BytesIO(data)) as table:  # read_table would import pandas, which takes longer than all else
        return table.read()
