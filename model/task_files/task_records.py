"""Records of the files that tasks come in: .tsv, .csv, .tab, JSON Lines, Parquet; column → value.

A .tsv is read as spreadsheets write it, or, with `quotes: false`, as GLUE's files are: a line is a record, a tab ends a
value, and a quotation mark is a character like any other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config import TaskForm
from pipeline.errors import DataError
from pipeline.formats import compressed, jsonl
from pipeline.formats.kinds import ENDINGS, is_of
from pipeline.formats.tables import read_table

MALFORMED = "malformed record"
BATCH_ROWS = 4096


@dataclass(frozen=True)
class Records:
    """The records of one file, read while they are iterated."""

    path: Path
    columns: tuple[str, ...] | None
    """None: every record says itself which it has (JSON Lines)"""
    rows: Iterator[tuple[int, dict[str, Any] | None]]
    """(line or row from 1, column → value; None for a line of another number of values than there are columns)"""

    def require(self, columns: Sequence[str]) -> None:
        """DataError naming the first column that the file lacks, and those that it has."""
        for column in columns if self.columns is not None else ():
            if column not in (self.columns or ()):
                raise DataError(
                    f"{self.path} has no column {column!r}; it has {', '.join(map(repr, self.columns or ()))}",
                    "Name one of these columns in the recipe.",
                )


def is_table(name: str) -> bool:
    """Whether a file is one of records, by its name."""
    return any(is_of(kind, name) for kind in ("csv", "jsonl", "parquet"))


def read_records(path: Path, form: TaskForm, header: Sequence[str] = ()) -> Records:
    """Open a file by its suffix; header: the columns of one that has no line of names.

    Raises DataError, also while rows are read: a file or line that can't be read, named with the line.
    """
    if is_of("parquet", path.name):
        return _parquet(path)
    if is_of("jsonl", path.name):
        return Records(path, None, _json_lines(path))
    if not form.quotes:
        return _raw(path, header, {form.text, form.text_b})
    table = read_table(path, header)
    return Records(path, table.columns, iter(table.rows))


def _raw(path: Path, header: Sequence[str], texts: set[str]) -> Records:
    found = _raw_lines(path)
    columns = tuple(header)
    if not columns:
        _, first = next(found, (0, ""))
        columns = tuple(name.strip() for name in first.split("\t"))
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice or not any(columns):
        what = f"column {twice[0]!r} is named twice" if twice else "no line of column names"
        raise DataError(f"{path}, line 1: {what}", "Name the columns of a file without a line of names as `header`.")
    return Records(path, columns, ((line, _record(text, columns, texts)) for line, text in found))


def _record(text: str, columns: tuple[str, ...], texts: set[str]) -> dict[str, Any] | None:
    values = text.split("\t")
    if len(values) > len(columns) and columns[-1] in texts:  # tabs inside a text that stands last
        values[len(columns) - 1 :] = ["\t".join(values[len(columns) - 1 :])]
    return dict(zip(columns, values, strict=True)) if len(values) == len(columns) else None


def _raw_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, text) of every line that is not blank, without its end; only LF and CR LF end lines."""
    for number, line in compressed.lines(path, lambda _: None):
        text = decoded(path, number, line).removesuffix("\n").removesuffix("\r")
        if text.strip(" "):
            yield number, text


def decoded(path: Path, number: int, line: bytes | None) -> str:
    """A line as text, without a byte order mark. DataError where it is too long, or not UTF-8."""
    if line is None:
        raise DataError(f"{path}, line {number}: more than {compressed.LINE_BYTES:,} bytes", "Is it text at all?")
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path}, line {number}: not UTF-8", "Convert the file to UTF-8.") from None


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, value in jsonl.rows(path, lambda _: None):
        if isinstance(value, str):
            raise DataError(
                f"{path}, line {line}: {value.replace('_', ' ')}", "Every line must be one JSON object in UTF-8."
            )
        yield line, value


def _parquet(path: Path) -> Records:
    try:
        columns = tuple(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}", "Make the file again, or restore it.") from error
    return Records(path, columns, _parquet_rows(path))


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                for number, row in enumerate(batch.to_pylist(), number + 1):  # noqa: B020 counts on over batches
                    yield number, row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}", "Make the file again, or restore it.") from error


SUFFIXES = tuple(ending for kind in ("csv", "jsonl", "parquet") for ending in ENDINGS[kind])
"""How files of records end."""
