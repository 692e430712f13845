"""Tables of text rows: .csv and .tsv with one header line, .tab (Orange) with three: names, types, flags.

Values of a .csv stand between commas, or, as spreadsheets write it where the comma is decimal, between semicolons: if the
line of names has semicolons and no comma.

Each may be compressed (.csv.gz, .tsv.zst, …).
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pipeline.errors import DataError
from pipeline.formats.compressed import Stream, lines
from pipeline.formats.kinds import plain_name

SUFFIXES = (".tab", ".tsv", ".csv")

_QUOTED = re.compile(r'"[^"]*"')
_DELIMITERS = {".tab": "\t", ".tsv": "\t", ".csv": ","}
_ORANGE_TYPES = {"", "c", "continuous", "d", "discrete", "s", "string", "text", "t", "time"}
_FIELD_CHARACTERS = 64 << 20  # the csv module's own limit, 128 Ki, is less than a book
_REPORT_RECORDS = 1000
MAX_COLUMNS = 10_000
"""Of a table; one with more holds measurements, or has lost its line breaks."""
_SHOWN = 20


@dataclass(frozen=True)
class Table:
    """The columns of a table in their order, and its rows, read while they are iterated (as often as one likes)."""

    path: Path
    columns: tuple[str, ...]
    header_lines: int
    """lines before the first record"""

    def require(self, columns: Iterable[str]) -> None:
        """DataError naming the first column that the table lacks, and those that it has."""
        for column in columns:
            if column not in self.columns:
                raise DataError(
                    f"{self.path} has no column {column!r}; it has {shown(self.columns)}",
                    "Name one of these columns in the recipe.",
                )

    @property
    def rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        """(number of the record's first line, column → value) of every record; blank lines are no records.

        DataError, with file and line, for a record with another number of values, open quotes, or bytes that are not
        UTF-8.
        """
        for line, values in self.records():
            if len(values) != len(self.columns):
                raise DataError(
                    f"{self.path}, line {line}: {len(values)} values, but the header names {len(self.columns):,} columns "
                    f"({shown(self.columns)})",
                    "A value that holds the delimiter, a quote or a line break must be quoted.",
                )
            yield line, dict(zip(self.columns, values, strict=True))

    def records(self, report: Callable[[int], None] = lambda _: None) -> Iterator[tuple[int, list[str]]]:
        """As `rows`, but each record's values as they stand there, however many.

        `report` hears now and then how many bytes of the file have been read.
        """
        records = _records(self.path, report)
        for _ in range(self.header_lines):
            next(records, None)
        return records


def read_table(path: Path, names: Sequence[str] = ()) -> Table:
    """Open a table by its suffix: .tab and .tsv are separated by tabs, .csv by commas or semicolons; all are UTF-8 and csv-quoted.
    names: the columns of a .csv or .tsv that has no line of names.

    DataError for another suffix, a missing file, or a header that is missing, names a column twice, or (.tab) lacks its
    lines of types and flags.
    """
    if _suffix(path) not in _DELIMITERS:
        raise DataError(f"{path} is not a table that can be read", f"Tables end in {', '.join(SUFFIXES)}.")
    if names:
        return Table(path, tuple(names), 0)
    records = _records(path)
    header = [values for _, (_, values) in zip(range(_header_lines(path)), records, strict=False)]
    if not header:
        raise DataError(
            f"{path} is empty; its first line must name the columns", "Put the table there, or correct the path."
        )
    columns = tuple(name.strip() for name in header[0])
    if len(columns) > MAX_COLUMNS:
        raise DataError(
            f"{path}, line 1 names {len(columns):,} columns, and {MAX_COLUMNS:,} is the most",
            "Is it a table of text at all?",
        )
    twice = sorted(name for name, times in Counter(columns).items() if times > 1)
    if twice:
        raise DataError(f"{path}, line 1: column {twice[0]!r} is named twice", "Give every column a name of its own.")
    if _suffix(path) == ".tab":
        types = header[1] if len(header) > 1 else []
        stray = [value for value in types if value.strip() not in _ORANGE_TYPES and " " not in value.strip()]
        if len(types) != len(columns) or stray or len(header) < 3:
            raise DataError(
                f"{path}, line 2: a .tab file (Orange) has the column names on line 1, their types (string, discrete, "
                f"continuous, …) on line 2 and flags (class, meta, …) on line 3; found {types[:5]}",
                "If it has one header line only, let its name end in .tsv.",
            )
    return Table(path, columns, _header_lines(path))


def shown(names: Sequence[str]) -> str:
    """Names of columns for a message."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name[:100]) for name in names[:_SHOWN]) + more


def _suffix(path: Path) -> str:
    return Path(plain_name(path.name)).suffix


def _delimiter(path: Path, first: str) -> str:
    names = _QUOTED.sub("", first)
    return ";" if _suffix(path) == ".csv" and ";" in names and "," not in names else _DELIMITERS[_suffix(path)]


def _header_lines(path: Path) -> int:
    return 3 if _suffix(path) == ".tab" else 1


def _records(path: Path, report: Callable[[int], None] = lambda _: None) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, values) of every record of the file, header included, blank lines left out.

    The second and third line of a .tab file are kept when they are blank: Orange writes a blank line of flags.
    """
    csv.field_size_limit(_FIELD_CHARACTERS)
    kept = _header_lines(path)
    line = 1
    try:
        with Stream(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as file:
            found = _lines(path, file)
            first = next(found, "")
            reader = csv.reader(chain([first] if first else [], found), delimiter=_delimiter(path, first), strict=True)
            for number, values in enumerate(reader):
                if values or line <= kept:
                    yield line, values
                line = reader.line_num + 1
                if number % _REPORT_RECORDS == 0:
                    report(stream.position())
    except csv.Error as error:
        raise DataError(
            f"{path}, line {line}: {error}", "A value that holds a quote must be quoted, and its quotes doubled."
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {_undecodable_line(path)}: not UTF-8", "Convert the file to UTF-8.") from error


def _lines(path: Path, file: io.TextIOWrapper) -> Iterator[str]:
    while line := file.readline(_FIELD_CHARACTERS + 1):
        if len(line) > _FIELD_CHARACTERS:
            raise DataError(
                f"{path} has a line of more than {_FIELD_CHARACTERS:,} characters", "Is it a table of text at all?"
            )
        yield line


def _undecodable_line(path: Path) -> int:
    for number, line in lines(path, lambda _: None):
        try:
            (line or b"").decode("utf-8")
        except UnicodeDecodeError:
            return number
    return 0
