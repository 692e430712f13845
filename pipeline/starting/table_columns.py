"""Which columns of somebody's table hold what, guessed from their names and their first rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.config import Columns
from pipeline.errors import DataError
from pipeline.formats import jsonl, parquet_rows
from pipeline.formats.tables import read_table
from pipeline.prose.languages import base_code, known_languages

ROWS = 500
"""So many rows are looked at."""
LEAST_CHARACTERS = 100
"""A column whose values are shorter, on average, is taken for the text by its name alone."""
SURELY = 2.0
"""The longest column is the text if it is so many times as long as the next."""
SHOWN = 20
_NAMES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "content", "body", "article", "document", "abstract"),
    "id": ("id", "doc_id", "_id"),
    "title": ("title", "headline"),
    "url": ("url", "link"),
    "licence": ("licence", "license"),
    "date": ("date", "published"),
    "language": ("language", "lang"),
}
"""What columns are called, the likeliest first; also as the last part of a field inside others: meta.title."""


def columns_of(kind: str, file: Path) -> Columns:
    """The columns of a table of kind jsonl, parquet or csv, from its first rows.

    Raises:
        DataError: the file can't be read, has no row, or no column that is surely the text; it names those that there are.
    """
    rows = [row for row in islice(_rows(kind, file), ROWS) if row]
    if not rows:
        raise DataError(f"{file}: none of its first rows can be read", "Mend the file, or take it away.")
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    lengths = {name: _mean_characters(some) for name, some in values.items() if any(isinstance(v, str) for v in some)}
    text = _text(lengths)
    if text is None:
        told = ", ".join(
            f"{name!r} ({f'about {lengths[name]:,.0f} characters' if name in lengths else 'no text'})"
            for name in list(values)[:SHOWN]
        )
        raise DataError(
            f"{file}: no column is surely the text; it has {told}",
            "Rename the column of the text to `text`, or write the recipe by hand with `columns: {text: NAME}` "
            "(docs/own-text.md).",
        )
    roles = {role: _named(role, values, len(rows)) for role in _NAMES if role != "text"}
    return Columns(text=text, **{role: name for role, name in roles.items() if name not in (None, text)})


def _rows(kind: str, file: Path) -> Iterator[dict[str, Any]]:
    """The first rows, with fields inside others under their dotted names."""
    if kind == "jsonl":
        found: Iterator[Any] = (row for _, row in jsonl.rows(file, lambda _: None))
    elif kind == "csv":
        table = read_table(file)
        found = (
            dict(zip(table.columns, values, strict=True))
            for _, values in table.records()
            if len(values) == len(table.columns)
        )
    else:
        found = _of_parquet(file)
    return (dict(_flat(row)) for row in found if isinstance(row, dict))


def _of_parquet(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with parquet_rows.opened(file) as opened:
            for batch in parquet_rows.batches(file, opened, at_once=50):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} can't be read as Parquet: {error}", "Make the file again, or restore it.") from error


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _mean_characters(values: Sequence[Any]) -> float:
    texts = [len(value) for value in values if isinstance(value, str)]
    return sum(texts) / len(texts) if texts else 0.0


def _last(name: str) -> str:
    return name.rpartition(".")[2].strip().lower()


def _text(lengths: Mapping[str, float]) -> str | None:
    """The column of the text: of the usual names the likeliest, else the longest by far."""
    for wanted in _NAMES["text"]:
        named = [name for name in lengths if _last(name) == wanted]
        if named:
            return max(named, key=lambda name: lengths[name])
    longest, *others = sorted(lengths, key=lambda name: -lengths[name]) or [""]
    second = lengths[others[0]] if others else 0.0
    return longest if lengths.get(longest, 0.0) >= max(LEAST_CHARACTERS, SURELY * second) else None


def _named(role: str, values: Mapping[str, Sequence[Any]], rows: int) -> str | None:
    """The column of a role beside the text, by its name, if its values will do: ids stand in every row, none twice."""
    will_do: Callable[[Sequence[Any]], bool] = {
        "id": lambda some: len(some) == rows and all(map(_is_short, some)) and len(set(map(str, some))) == rows,
        "language": lambda some: all(isinstance(v, str) and base_code(v) in known_languages() for v in some if v),
    }.get(role, lambda some: all(_is_short(value) for value in some if value is not None))
    for wanted in _NAMES[role]:
        for name in sorted(values, key=len):
            if _last(name) == wanted and will_do(values[name]):
                return name
    return None


def _is_short(value: Any) -> bool:
    return value is not None and not isinstance(value, (list, dict, bool)) and 0 < len(str(value).strip()) <= 1000
