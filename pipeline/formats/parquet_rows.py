"""Rows of a Parquet file that somebody else wrote, in bounded memory, only the columns that are asked for."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import DataError

BATCH_BYTES = 16 << 20  # about what is decoded at once
BATCH_ROWS = 4096
READ_BYTES = 1 << 20  # of a column, so that a file of one huge row group is not read at once


def rows(
    path: Path, columns: Iterable[str], text: str, report: Callable[[int], None]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number of the row from 1, column → value) of every row.

    A column inside a struct is named with dots (`meta.title`). DataError for a file that can't be read, a column that
    it lacks, and a column `text` that holds no strings. `report` hears how many bytes of the file are done, about.
    """
    wanted = list(dict.fromkeys(columns))
    try:
        with pq.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False) as file:
            types = {name: _type_of(file.schema_arrow, name) for name in wanted}
            _check(path, types, text, file.schema_arrow)
            total, size = file.metadata.num_rows, path.stat().st_size
            done = 0
            for batch in file.iter_batches(batch_size=rows_at_once(file.metadata), columns=wanted, use_threads=False):
                values = [_values(batch, name) for name in wanted]
                for number, row in enumerate(zip(*values, strict=True), done + 1):
                    yield number, dict(zip(wanted, row, strict=True))
                done += batch.num_rows
                report(size * done // total)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}", "Make the file again, or restore it.") from error


def rows_at_once(metadata: pq.FileMetaData) -> int:
    """Rows of a file that are about BATCH_BYTES when they are decoded; BATCH_ROWS at most."""
    decoded = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    return min(BATCH_ROWS, max(1, BATCH_BYTES * metadata.num_rows // max(decoded, 1)))


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
                f"{path} has no column {name!r}; it has {', '.join(_names(schema))}",
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
            yield repr(f"{before}{field.name}")


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """A column as Python values: dates and decimals as they are written; a string that is not UTF-8 stays bytes."""
    if batch.schema.get_field_index(name) >= 0:
        array = batch.column(name)
    else:
        first, *rest = name.split(".")
        array = batch.column(first)
        for part in rest:  # flatten() takes along where the struct itself is null
            array = array.flatten()[array.type.get_field_index(part)]
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if pa.types.is_temporal(array.type) or pa.types.is_decimal(array.type):
        array = array.cast(pa.string())
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:  # writers need not check
        return [_decoded(value) for value in array.cast(pa.large_binary()).to_pylist()]


def _decoded(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return value
