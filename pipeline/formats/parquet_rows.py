"""Rows of a Parquet file that somebody else wrote, in bounded memory, only the columns that are asked for.

A file of a hundred kilobytes can hold a text of two megabytes once and refer to it a million times. So strings that lie there
as a dictionary stay one (`batches`) until pieces of a few megabytes are decoded (`pieces`), and a file that says far more
than its bytes could is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import DataError
from pipeline.formats.tables import MAX_COLUMNS, shown

BATCH_BYTES = 16 << 20  # about what is decoded at once
BATCH_ROWS = 4096
READ_BYTES = 1 << 20  # of a column, so that a file of one huge row group is not read at once
MAX_RATIO = 1000
"""Bytes of decoded values for one byte of the file; tables of text, a label in every row, come to some tens."""
FREE_BYTES = 256 << 20
"""So much may be decoded whatever the ratio."""
MAX_VALUES = 64
"""Values of a column, nulls among them, for one byte of the file."""
FREE_VALUES = 1_000_000
"""So many there may be whatever the ratio."""
MAX_TEXT_BYTES = 64 << 20
"""Of one value; a longer text is no document that anybody wrote (as pipeline/formats/compressed.py)."""


def rows(
    path: Path, columns: Iterable[str], text: str, report: Callable[[int], None]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number of the row from 1, column → value) of every row.

    A column inside a struct is named with dots (`meta.title`). DataError for a file that can't be read or says far more than
    its bytes could, a column that it lacks, a column `text` that holds no strings, and a value above MAX_TEXT_BYTES.
    """
    wanted = list(dict.fromkeys(columns))
    done, size = 0, 0
    try:
        with opened(path) as file:
            types = {name: _type_of(file.schema_arrow, name) for name in wanted}
            _check(path, types, text, file.schema_arrow)
            total, size = file.metadata.num_rows, path.stat().st_size
            for batch in batches(path, file, wanted):
                values = [_values(_column(batch, name), path, done) for name in wanted]
                for number, row in enumerate(zip(*values, strict=True), done + 1):
                    yield number, dict(zip(wanted, row, strict=True))
                done += batch.num_rows
                report(size * done // total)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}", "Make the file again, or restore it.") from error


def opened(path: Path) -> pq.ParquetFile:
    """The file, with every string that it has in a dictionary left in one. pa.ArrowException, OSError: it can't be read."""
    metadata = pq.read_metadata(path)
    coded = _coded(metadata)
    return pq.ParquetFile(path, metadata=metadata, buffer_size=READ_BYTES, pre_buffer=False, read_dictionary=coded)


def batches(
    path: Path, file: pq.ParquetFile, columns: Sequence[str] | None = None, at_once: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """All rows of an `opened` file, `at_once` at the most; strings may be dictionaries. `path` is how messages call it.

    DataError where the file says more than MAX_RATIO and MAX_VALUES allow.
    """
    metadata, size = file.metadata, path.stat().st_size
    if metadata.num_columns > MAX_COLUMNS:
        raise DataError(
            f"{path} has {metadata.num_columns:,} columns, and {MAX_COLUMNS:,} is the most", "Take some out."
        )
    groups = range(metadata.num_row_groups)
    _within(path, "values", max((_values_of(metadata, c) for c in range(metadata.num_columns)), default=0), size)
    _within(path, "bytes", sum(metadata.row_group(group).total_byte_size for group in groups), size)
    fixed = sum(_width(field.type) for field in file.schema_arrow)
    decoded = 0
    for group in groups:
        most = min(at_once, rows_at_once(metadata.row_group(group), fixed))
        for batch in file.iter_batches(batch_size=most, row_groups=[group], columns=columns, use_threads=False):
            decoded += sum(map(decoded_bytes, batch.columns))
            _within(path, "bytes", decoded, size)
            yield batch


def pieces(array: pa.DictionaryArray) -> Iterator[pa.Array]:
    """The values of a dictionary array, of about BATCH_BYTES or one value at a time: all of them at once can be more than
    their offsets count."""
    ends = np.cumsum(_lengths(array))
    start = 0
    while start < len(array):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + BATCH_BYTES, "right")))
        yield array.slice(start, stop - start).dictionary_decode()
        start = stop


def rows_at_once(group: pq.RowGroupMetaData, fixed: int) -> int:
    """Rows that are about BATCH_BYTES as they lie in a row group, and in columns of a `fixed` width; BATCH_ROWS at most."""
    each = max(fixed, group.total_byte_size // max(1, group.num_rows))
    return min(BATCH_ROWS, max(1, BATCH_BYTES // max(1, each)))


def _coded(metadata: pq.FileMetaData) -> list[str]:
    """The columns of strings with a dictionary in the file, but not those of maps, which Arrow can't hold so."""
    chunks = [
        metadata.row_group(group).column(column)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    ]
    return sorted(
        {
            chunk.path_in_schema
            for chunk in chunks
            if chunk.has_dictionary_page
            and chunk.physical_type == "BYTE_ARRAY"
            and ".key_value." not in chunk.path_in_schema
        }
    )


def _values_of(metadata: pq.FileMetaData, column: int) -> int:
    return sum(metadata.row_group(group).column(column).num_values for group in range(metadata.num_row_groups))


def _within(path: Path, what: str, found: int, size: int) -> None:
    free, ratio = (FREE_BYTES, MAX_RATIO) if what == "bytes" else (FREE_VALUES, MAX_VALUES)
    if found > max(free, ratio * size):
        raise DataError(
            f"{path} has {size:,} bytes and says {found:,} {what} with them, as bombs do",
            "Write it again without what is repeated, or as .jsonl, if you trust it.",
        )


def _width(type_: pa.DataType) -> int:
    return type_.byte_width if pa.types.is_fixed_size_binary(type_) else 0


def _lengths(array: pa.DictionaryArray) -> np.ndarray:
    """Bytes of each value; 0 of a null, and of what has a fixed width."""
    values = array.dictionary
    if isinstance(values, (pa.BinaryArray, pa.StringArray, pa.LargeBinaryArray, pa.LargeStringArray)):
        return np.asarray(pc.take(pc.binary_length(values), array.indices).fill_null(0)).astype(np.int64)
    return np.zeros(len(array), np.int64)


def decoded_bytes(array: pa.Array) -> int:
    """What the values of an array take when dictionaries are decoded, about."""
    if isinstance(array, pa.DictionaryArray):
        return int(_lengths(array).sum())
    if pa.types.is_struct(array.type) or (pa.types.is_nested(array.type) and not pa.types.is_map(array.type)):
        parts = array.flatten()
        return sum(map(decoded_bytes, parts if isinstance(parts, list) else [parts]))
    return int(array.nbytes)


def _type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    """The type of a column, or of a field inside structs; None where there is none, or more than one of that name."""
    if schema.get_field_index(name) >= 0:
        return schema.field(name).type
    first, *rest = name.split(".")
    if schema.get_field_index(first) < 0:
        return None
    type_ = schema.field(first).type
    for part in rest:
        if not pa.types.is_struct(type_) or type_.get_field_index(part) < 0:
            return None
        type_ = type_.field(part).type
    return type_


def _check(path: Path, types: dict[str, pa.DataType | None], text: str, schema: pa.Schema) -> None:
    for name, type_ in types.items():
        if type_ is None and (twice := schema.names.count(name)) > 1:
            raise DataError(f"{path} has {twice} columns named {name!r}", "Give every column a name of its own.")
        if type_ is None:
            raise DataError(
                f"{path} has no column {name!r}; it has {shown(list(_names(schema)))}",
                "Name one of these under `columns` in the recipe.",
            )
    type_ = types[text]
    value = type_.value_type if isinstance(type_, pa.DictionaryType) else type_
    is_text = pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)
    if not is_text and not pa.types.is_null(value):
        raise DataError(
            f"{path}: column {text!r} is of type {type_}, which is no text", "Name a column of strings as `text`."
        )


def _names(fields: Iterable[pa.Field], before: str = "") -> Iterator[str]:
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _names(field.type, f"{before}{field.name}.")
        else:
            yield f"{before}{field.name}"


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if batch.schema.get_field_index(name) >= 0:
        return batch.column(name)
    first, *rest = name.split(".")
    array = batch.column(first)
    for part in rest:  # flatten() takes along where the struct itself is null
        array = array.flatten()[array.type.get_field_index(part)]
    return array


def _values(array: pa.Array, path: Path, before: int) -> list[Any]:
    """A column as Python values: dates and decimals as they are written; a string that is not UTF-8 stays bytes.

    Equal values of a dictionary are one object. `before`: rows before these, for messages.
    """
    if isinstance(array, pa.DictionaryArray):
        used, places = np.unique(np.asarray(array.indices.cast(pa.int64()).fill_null(-1)), return_inverse=True)
        known = pa.array(used, mask=used < 0)
        values = _values(array.dictionary.take(known), path, before)
        return [values[place] for place in places]
    if pa.types.is_temporal(array.type) or pa.types.is_decimal(array.type):
        array = array.cast(pa.string())
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        longest = pc.max(pc.binary_length(array)).as_py() or 0
        if longest > MAX_TEXT_BYTES:
            raise DataError(
                f"{path}: after row {before} stands a value of {longest:,} bytes, and {MAX_TEXT_BYTES:,} is the most",
                "Cut it into documents.",
            )
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:  # writers need not check
        return [_decoded(value) for value in array.cast(pa.large_binary()).to_pylist()]


def _decoded(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return value
