"""Small UTF-8 files of lines or JSON, whole; what can't be read is an error with file, line and column."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import DataError

Lines = list[tuple[int, str]]
"""(number from 1, line without its end)"""

_NAMED = 5


def read(path: Path) -> str:
    """The text of a file, without a byte order mark. DataError: missing, a folder, not UTF-8, nothing in it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}", "Name an existing file.") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8", "Convert the file to UTF-8.") from error
    if not text.strip():
        raise DataError(f"{path} is empty", "Name a file that was written to its end.")
    return text


def lines(path: Path) -> Lines:
    """The lines of a file up to the last one that is not blank. They end in LF or CRLF, nothing else ends one."""
    found = [line.removesuffix("\r") for line in read(path).split("\n")]
    while not found[-1].strip():
        found.pop()
    return list(enumerate(found, 1))


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file. DataError: broken JSON, another kind of value, a key that stands twice."""
    text = read(path)
    try:
        value = json.loads(text, object_pairs_hook=lambda pairs: _distinct(path, pairs))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}, line {error.lineno}, column {error.colno}: no JSON ({error.msg})",
            "Write the file again; a file that breaks off was not written to its end.",
        ) from error
    except (RecursionError, ValueError) as error:  # nested thousands deep, or a number of thousands of digits
        raise DataError(f"{path} can't be read as JSON: {error}", "Write the file again.") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} holds a JSON {type(value).__name__}, not an object", "It must be {…}.")
    return value


def named(ids: Sequence[str]) -> str:
    """The first ids, quoted, and how many more there are."""
    shown = ", ".join(map(repr, ids[:_NAMED]))
    return shown if len(ids) <= _NAMED else f"{shown} and {len(ids) - _NAMED:,} more"


def counted(number: int, singular: str) -> str:
    """`1 id`, `2 ids`."""
    return f"{number:,} {singular}{'' if number == 1 else 's'}"


def _distinct(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise DataError(f"{path}: the key {twice!r} stands twice in one object", "Every key must stand once.")
    return found
