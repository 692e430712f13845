"""The tables of text (`S_text`, `documents`): their schemas, and how they are written and read in bounded memory."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import DataError

TEXT_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("url", pa.string()),
        pa.field("revision_id", pa.string()),
        pa.field("language", pa.string()),
        pa.field("licence", pa.string()),
        pa.field("date", pa.string()),
        pa.field("text", pa.string(), nullable=False),
    ]
)
"""`S_text`: one document a row, in the source's own order; paragraphs of `text` are separated by a blank line."""

DOCUMENTS_SCHEMA = pa.schema(
    [
        *TEXT_SCHEMA,
        pa.field("split", pa.string(), nullable=False),
        pa.field("sentence_ends", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False),
        pa.field("repeat", pa.float32(), nullable=False),
    ]
)
"""`documents`: the same, with the split (train, held_out), the character offset after each sentence, and the number of
passes over the document."""

GROUP_ROWS = 4096
GROUP_BYTES = 16 << 20
PART_BYTES = 512 << 20
"""Bounds of a row group and of a file, the bytes before compression."""


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes)) else 4 * len(value) if isinstance(value, (list, tuple)) else 8


def to_batches(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Gather rows (column → value; a nullable column may be left out) into record batches of bounded size."""
    gathered: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        gathered.append(row)
        size += sum(map(_size, row.values()))
        if len(gathered) >= GROUP_ROWS or size >= GROUP_BYTES:
            yield _batch(gathered, schema)
            gathered, size = [], 0
    if gathered:
        yield _batch(gathered, schema)


def _batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    known = set(schema.names)
    for row in rows:
        if not known.issuperset(row):
            raise DataError(
                f"columns {sorted(set(row) - known)} are not in the schema {schema.names}",
                "This is a fault of the stage.",
            )
        for field in schema:
            if not field.nullable and row.get(field.name) is None:
                raise DataError(
                    f"document {row.get('doc_id')!r} has no value in column {field.name}",
                    "This is a fault of the stage.",
                )
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def write_parts(items: Iterable[Mapping[str, Any]] | Iterable[pa.RecordBatch], schema: pa.Schema, out: Path) -> int:
    """Write rows or record batches to `out/part-00000.parquet`, `part-00001.parquet`, … and return the number of rows.

    Row groups and files are of bounded size; there is always at least one file, so that an empty table has a schema.
    """
    number, size, rows = 0, 0, 0
    writer = _writer(out, number, schema)
    try:
        for batch in _batches(items, schema):
            if size >= PART_BYTES:
                writer.close()
                number, size = number + 1, 0
                writer = _writer(out, number, schema)
            writer.write_batch(batch)
            size += batch.nbytes
            rows += batch.num_rows
    finally:
        writer.close()
    return rows


def _batches(items: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    stream = iter(items)
    first = next(stream, None)
    if first is None:
        return
    if isinstance(first, pa.RecordBatch):
        yield first
        yield from stream
    else:
        yield from to_batches(chain([first], stream), schema)


def _writer(out: Path, number: int, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(out / f"part-{number:05d}.parquet", schema, compression="zstd")


def part_files(folder: Path) -> list[Path]:
    """The `part-*.parquet` of a folder in order; DataError where there is none."""
    files = sorted(folder.glob("part-*.parquet"))
    if not files:
        raise DataError(f"{folder} holds no part-*.parquet", "Materialize the asset that writes it again.")
    return files


def iter_batches(folder: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Read the record batches of all parts in order, optionally only some columns.

    At most one row group is in memory. A file that is broken or lacks a column is a DataError that names it.
    """
    for path in part_files(folder):
        with readable(path), pq.ParquetFile(path) as file:
            missing = sorted(set(columns or ()) - set(file.schema_arrow.names))
            if missing:
                raise DataError(
                    f"{path} has no column {', '.join(missing)}; it has {file.schema_arrow.names}",
                    "Run what made it again: bert run.",
                )
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group, columns=list(columns) if columns else None).to_batches()


def group_runs(path: Path, least_bytes: int) -> Iterator[tuple[range, int, int]]:
    """(row groups, rows, bytes before compression) of a file, cut into runs of at least so many bytes; the last may have fewer. From
    its footer; DataError for a broken one."""
    with readable(path):
        described = pq.read_metadata(path)
    first = rows = size = 0
    for number in range(described.num_row_groups):
        rows += described.row_group(number).num_rows
        size += described.row_group(number).total_byte_size
        if size >= least_bytes or number == described.num_row_groups - 1:
            yield range(first, number + 1), rows, size
            first, rows, size = number + 1, 0, 0


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What pyarrow says of a broken file, as a DataError that names it."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read: {error}", "`bert verify` sets broken content aside.") from error


def iter_rows(folder: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Read the rows of all parts in order as column → value."""
    for batch in iter_batches(folder, columns):
        yield from batch.to_pylist()


def count_rows(folder: Path) -> int:
    """Number of rows of all parts, from their footers; DataError for a broken one."""
    rows = 0
    for path in part_files(folder):
        with readable(path):
            rows += pq.read_metadata(path).num_rows
    return rows


SENTENCE_LINES = "sentence_lines.json"
"""Stands beside the parts of an `S_text`: the doc_ids of the documents whose every line is one sentence."""


def write_sentence_lines(out: Path, doc_ids: Iterable[str]) -> None:
    """Write `out/sentence_lines.json`; without doc_ids there is no such file."""
    if found := sorted(doc_ids):
        (out / SENTENCE_LINES).write_text(json.dumps(found, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def read_sentence_lines(folder: Path) -> frozenset[str]:
    """The doc_ids of the documents of an `S_text` whose every line is one sentence."""
    path = folder / SENTENCE_LINES
    return frozenset(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else frozenset()


BINS_PER_DECADE = 8
"""Of the histogram of lengths: a bin is about a third wider than the one before."""
CHARACTERS_PER_TOKEN = 4.45
"""English prose in a vocabulary of 30,522; other languages differ (Chinese and Japanese come near 1)."""


def describe_lengths(lengths: Sequence[int]) -> dict[str, Any]:
    """What the UI shows of a table of texts, from the number of characters of every row."""
    sizes = np.asarray(lengths, dtype=np.int64)
    characters = int(sizes.sum())
    percentiles = {"p5": 5, "p25": 25, "p50": 50, "p75": 75, "p95": 95, "max": 100}
    return {
        "row_count": len(sizes),
        "characters_millions": round(characters / 1e6, 6),
        "tokens_millions": round(characters / CHARACTERS_PER_TOKEN / 1e6, 6),
        "length_percentiles": {name: round(float(np.percentile(sizes, p))) for name, p in percentiles.items()}
        if len(sizes)
        else {},
        "length_histogram": _histogram(sizes),
    }


def _histogram(sizes: np.ndarray) -> list[list[int]]:
    """[[characters from, characters below, documents]] in bins of equal width on a logarithmic scale."""
    if not len(sizes):
        return []
    bins = np.floor(np.log10(np.maximum(sizes, 1)) * BINS_PER_DECADE).astype(int)
    edges = [round(10 ** (each / BINS_PER_DECADE)) for each in range(bins.min(), bins.max() + 2)]
    counts = np.bincount(bins - bins.min())
    return [[a, b, int(count)] for a, b, count in zip(edges[:-1], edges[1:], counts, strict=True)]


def write_dropped(
    out: Path, read: int, kept: int, dropped: Mapping[str, int], sources: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Write `out/dropped.json` {read, kept, dropped: {reason: count}} and return it; DataError if it is wrong.

    sources: the same of every source, where there are several.
    """
    table: dict[str, Any] = {"read": read, "kept": kept, "dropped": dict(sorted(dropped.items()))}
    if read != kept + sum(dropped.values()):
        raise DataError(f"the documents do not add up: {table}", "This is a fault of the stage; please report it.")
    table |= {} if sources is None else {"sources": sources}
    (out / "dropped.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return table
