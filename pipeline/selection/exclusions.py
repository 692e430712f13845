"""`corpus.exclude`: documents that were withdrawn, a .csv file of columns doc_id, url or title, and reason.

A line means the documents that have its doc_id; where that is empty, those with its url; else those with its title, in any
source. All columns but these are for people.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import DataError
from pipeline.formats.tables import read_table

COLUMNS = ("doc_id", "url", "title")
REASON = "reason"


@dataclass(frozen=True)
class Exclusions:
    """What was withdrawn."""

    lines: Mapping[int, str]
    """number of the line → what it names, for a person"""
    reasons: Mapping[int, str]
    places: Mapping[tuple[str, str], int]
    """(column, value) → number of the first line that names it"""

    def line_of(self, doc_id: str, url: str | None, title: str | None) -> int | None:
        """The line that withdraws a document, None where there is none."""
        for column, value in zip(COLUMNS, (doc_id, url, title), strict=True):
            if value and (line := self.places.get((column, _plain(value)))) is not None:
                return line
        return None


NOTHING = Exclusions({}, {}, {})


def read_exclusions(path: Path) -> Exclusions:
    """Read the file.

    Raises:
        DataError: a file that can't be read or is no .csv, one without column reason or without any of doc_id, url and title,
            and, by line, one that names no document or gives no reason.
    """
    if not path.is_file():
        raise DataError(f"{path}, the file of withdrawn documents, is not there", "Correct `exclude` in the recipe.")
    if path.suffix.lower() != ".csv":
        raise DataError(f"{path}: a list of withdrawn documents is a .csv file", "Save it as CSV, in UTF-8.")
    table = read_table(path)
    columns = [name for name in COLUMNS if name in table.columns]
    if not columns:
        raise DataError(
            f"{path}, line 1: no column {', '.join(COLUMNS)}; it has {', '.join(map(repr, table.columns))}",
            "The first line must name the columns: one of these three, and reason.",
        )
    if REASON not in table.columns:
        raise DataError(f"{path}, line 1: no column 'reason'", "Every withdrawal needs its reason, for audits.")
    lines: dict[int, str] = {}
    reasons: dict[int, str] = {}
    places: dict[tuple[str, str], int] = {}
    for number, row in table.rows:
        column = next((name for name in columns if row[name].strip()), None)
        if column is None:
            raise DataError(f"{path}, line {number}: names no document", f"Fill one of {', '.join(columns)}.")
        if not row[REASON].strip():
            raise DataError(f"{path}, line {number}: no reason", "Every withdrawal needs its reason, for audits.")
        lines[number] = f"{column} {row[column].strip()}"
        reasons[number] = row[REASON].strip()
        places.setdefault((column, _plain(row[column])), number)
    return Exclusions(lines, reasons, places)


def _plain(value: str) -> str:
    return unicodedata.normalize("NFC", value).strip()
