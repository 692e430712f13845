"""JSON Lines: one JSON object a line, in UTF-8; files may be compressed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.formats.compressed import lines

_MARK = b"\xef\xbb\xbf"


def rows(path: Path, report: Callable[[int], None]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """(line, object) of every line that is not blank, or (line, why it can't be read): `line_too_long`, `not_utf8`,
    `broken_line`, `not_an_object`.

    DataError for compressed data that can't be used.
    """
    decode = json.JSONDecoder().decode
    for number, line in lines(path, report):
        if line is None:
            yield number, "line_too_long"
            continue
        try:
            text = line.removeprefix(_MARK if number == 1 else b"").decode("utf-8")
        except UnicodeDecodeError:
            yield number, "not_utf8"
            continue
        if text.isspace() or not text:
            continue
        try:
            value = decode(text)
        except (ValueError, RecursionError):  # nested thousands deep, or a number of thousands of digits
            yield number, "broken_line"
        else:
            yield number, value if isinstance(value, dict) else "not_an_object"
