"""Files that may be compressed (.gz, .zst) as streams of bytes and lines, in bounded memory.

A compressed file is never trusted: what breaks off, is broken or unpacks to far too much is a DataError that names the
file and the byte. A line of more than `LINE_BYTES` is passed over without being held in memory.
"""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from pipeline.errors import DataError
from pipeline.formats.inflate import MAX_RATIO

CODECS = {".gz": "gzip", ".zst": "zstd"}
LINE_BYTES = 64 << 20
"""A longer line is no document that anybody wrote, or a file that is not made of lines."""
FREE_BYTES = 64 << 20
"""So much may be unpacked whatever the ratio: a small file of one repeated line is harmless."""

_BUFFER = 1 << 20
_REPORT_LINES = 1000


class Stream(io.BufferedReader):
    """The unpacked bytes of a file. Reading raises DataError for compressed data that can't be used."""

    def __init__(self, path: Path) -> None:
        try:
            super().__init__(cast(Any, _Raw(path)), _BUFFER)
        except OSError as error:
            raise DataError(f"{path} can't be read: {error.strerror or error}", "Check the file.") from error

    def position(self) -> int:
        """How many bytes of the file itself have been read, to show progress."""
        return cast(_Raw, self.raw).position()


class _Raw(io.RawIOBase):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._size = path.stat().st_size
        self._file = pa.OSFile(str(path))
        codec = CODECS.get(path.suffix.lower())
        # Arrow's stream, unlike that of zstandard, tells a file that breaks off from one that ends
        self._stream = pa.CompressedInputStream(self._file, codec) if codec and self._size else self._file
        self._unpacked = 0

    def readable(self) -> bool:
        return True

    def position(self) -> int:
        return self._size if self._file.closed else int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        try:
            count = int(self._stream.readinto(buffer))
        except (OSError, pa.ArrowException) as error:
            raise DataError(
                f"{self._path}: breaks off or is broken at byte {self.position():,} of {self._size:,} ({error})",
                "Copy or download the file again.",
            ) from error
        self._unpacked += count
        if self._stream is not self._file and self._unpacked > max(FREE_BYTES, MAX_RATIO * self._size):
            raise DataError(
                f"{self._path}: unpacks to more than {MAX_RATIO} times its {self._size:,} bytes (stopped at byte "
                f"{self.position():,})",
                "This is no text that anybody wrote. If you trust it, unpack the file yourself.",
            )
        return count

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._file.close()
        super().close()


def lines(path: Path, report: Callable[[int], None]) -> Iterator[tuple[int, bytes | None]]:
    """(number from 1, bytes) of every line, its end included; None for a line of more than `LINE_BYTES`.

    `report` hears now and then how many bytes of the file have been read.
    """
    with Stream(path) as stream:
        number = 0
        while line := stream.readline(LINE_BYTES + 1):
            number += 1
            if len(line) > LINE_BYTES:
                while line and not line.endswith(b"\n"):
                    line = stream.readline(_BUFFER)
                yield number, None
            else:
                yield number, line
            if number % _REPORT_LINES == 0:
                report(stream.position())
