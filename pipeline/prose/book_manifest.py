"""The manifest of a bookshelf: what a person says of each book, as a .csv or .json file.

    file,title,author,licence,url,language
    austen/emma.txt,Emma,Jane Austen,public domain,https://www.gutenberg.org/ebooks/158,en

A .json file is a list of such records, `[{"file": …, "title": …}, …]`, or one object, `{FILE: {"title": …}, …}`. `file` is
the path below the source's folder; of a member of an archive `shelf.zip!/emma.txt` or its path inside; or just the name,
where only one file has it. Every other value may be left out.
"""

import csv
import json
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pipeline.errors import DataError

_ALSO = {"path": "file", "filename": "file", "name": "file", "license": "licence", "lang": "language"}
_WRITE = "Its columns: file (needed), title, author, licence, url, language."


@dataclass(frozen=True)
class Row:
    """One book; a value that is not stated is ""."""

    file: str
    title: str = ""
    author: str = ""
    licence: str = ""
    url: str = ""
    language: str = ""


class Manifest:
    """The rows by file, and which of them found theirs."""

    def __init__(self, path: Path | None, rows: Mapping[str, Row]) -> None:
        self._path = path
        self._rows = rows
        self._found: dict[str, str] = {}

    def __bool__(self) -> bool:
        return self._path is not None

    def row(self, name: str) -> Row | None:
        """What is said of the file (or `archive!/member`). DataError where two files answer to one bare name."""
        inside = name.rpartition("!/")[2]
        for key in (name, inside, posixpath.basename(inside)):
            row = self._rows.get(key)
            if row is None:
                continue
            other = self._found.setdefault(key, name)
            if other != name:
                raise DataError(
                    f"{self._path} says {key!r}, which both {other} and {name} are", "Give the whole path of each."
                )
            return row
        return None

    @property
    def unknown(self) -> list[str]:
        """Files of rows that no file of the source answered to."""
        return sorted(set(self._rows) - set(self._found))


def read_manifest(path: Path | None) -> Manifest:
    """The manifest; None: one that says nothing. DataError, with file and line, for what can't be understood."""
    if path is None:
        return Manifest(None, {})
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise DataError(f"{path}, line {line}: not UTF-8", "Save the manifest as UTF-8.") from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}", "Correct `manifest` in the recipe.") from error
    if path.suffix.lower() == ".json":
        records = _json_records(path, text)
    elif path.suffix.lower() == ".csv":
        records = _csv_records(path, text)
    else:
        raise DataError(f"{path} is no manifest: its name must end in .csv or .json", "Rename it.")
    rows: dict[str, Row] = {}
    lines: dict[str, int] = {}
    for line, record in records:
        row = _row(path, line, record)
        if row.file in rows:
            raise DataError(
                f"{path}, line {line}: {row.file!r} stands already in line {lines[row.file]}",
                "Leave one of the two lines.",
            )
        rows[row.file], lines[row.file] = row, line
    return Manifest(path, rows)


_KNOWN = {each.name for each in fields(Row)}


def _row(path: Path, line: int, record: Mapping[str, Any]) -> Row:
    values: dict[str, str] = {}
    for key, value in record.items():
        plain = str(key).strip().lower()
        name = _ALSO.get(plain, plain)
        if name not in _KNOWN:
            raise DataError(f"{path}, line {line}: {key!r} is no column of a manifest", _WRITE)
        if name in values:
            raise DataError(f"{path}, line {line}: {name} is given twice", _WRITE)
        if value is not None and not isinstance(value, str):
            raise DataError(f"{path}, line {line}: {key} is {json.dumps(value)[:60]}, not text", "Put it in quotes.")
        values[name] = " ".join((value or "").split())
    if not values.get("file"):
        raise DataError(f"{path}, line {line}: the row names no file", _WRITE)
    values["file"] = values["file"].removeprefix("./")
    return Row(**values)


def _csv_records(path: Path, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    line = 1
    columns: list[str] | None = None
    try:
        for values in reader:
            if values and columns is None:
                columns = values
            elif values and columns is not None:
                if len(values) != len(columns):
                    raise DataError(
                        f"{path}, line {line}: {len(values)} values, but the header names {len(columns)} columns",
                        "A value that holds a comma must be quoted.",
                    )
                yield line, dict(zip(columns, values, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: {error}", "A quote inside a value must be doubled.") from error
    if columns is None:
        raise DataError(f"{path} is empty", _WRITE)


def _json_records(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Records with the line on which each begins, which `json.loads` alone would not tell."""
    decoder = json.JSONDecoder()
    at = _past_space(text, 0)
    opens = text[at : at + 1]
    if opens not in ("[", "{"):
        raise DataError(f"{path}, line 1: neither a list of records nor an object of files", _WRITE)
    at = _past_space(text, at + 1)
    line, counted = 1, 0
    try:
        while text[at : at + 1] != {"[": "]", "{": "}"}[opens]:
            name: Any = None
            begin = at
            if opens == "{":
                name, at = decoder.raw_decode(text, at)
                at = _past_space(text, at)
                if text[at : at + 1] != ":" or not isinstance(name, str):
                    raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
                at = _past_space(text, at + 1)
            value, at = decoder.raw_decode(text, at)
            line, counted = line + text.count("\n", counted, begin), begin
            if not isinstance(value, dict):
                raise DataError(f"{path}, line {line}: {json.dumps(value)[:60]} is no record", _WRITE)
            yield line, ({"file": name} if name is not None else {}) | value
            at = _past_space(text, at)
            if text[at : at + 1] == ",":
                at = _past_space(text, at + 1)
            elif text[at : at + 1] not in ("]", "}"):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: {error.msg}", "The manifest must be valid JSON.") from error
    except RecursionError as error:
        raise DataError(f"{path}: nested too deep", _WRITE) from error
    except ValueError as error:
        raise DataError(f"{path}: a number that is none: {error}", _WRITE) from error


def _past_space(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r") and at < len(text):
        at += 1
    return at
