"""Read compressed bytes that nobody vouches for: bounded memory, and every way to be broken has a name.

    pieces(file, suffix)    what a .gz, .bz2 or .xz file holds, piece by piece, all of its streams

The decompressors of the standard library do the work; this module bounds what they may make of a few bytes (a 45-byte
.bz2 can hold 45 MB, and a .xz can ask for 4 GiB of memory), and refuses what they would pass over: a file that ends in
the middle of a stream, and bytes after the last one.
"""

import bz2
import lzma
import zlib
from collections.abc import Iterator
from typing import IO, Protocol

SUFFIXES = (".gz", ".bz2", ".xz")
PIECE_BYTES = 1 << 20
READ_BYTES = 1 << 16
MAX_RATIO = 200
"""Bytes made of one byte given: text comes to 3 … 10, repeated records to 50, the same page over and over to some 100;
gzip can pack zeros 1030 to 1, the others far beyond that. Of .zst too (pipeline/formats/compressed.py)."""
FREE_BYTES = 4 << 20
"""So much may be made whatever the ratio: short repetitive files are no bombs."""
XZ_MEMORY_BYTES = 128 << 20
"""`xz -9` needs 65 MiB to decompress."""
MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\x00"}


class Unreadable(Exception):
    """What is wrong with a file or a member, as one of a few fixed words that are counted (`reason`)."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def needs_input(self) -> bool: ...


class _Gzip:
    """zlib's decompressor with the interface of the other two."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(31)  # 31: a gzip header, and its CRC is checked

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail


def _decompressor(suffix: str) -> _Decompressor:
    if suffix == ".gz":
        return _Gzip()
    if suffix == ".bz2":
        return bz2.BZ2Decompressor()
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)


def pieces(file: IO[bytes], suffix: str) -> Iterator[bytes]:
    """What the compressed file holds, in pieces of at most `PIECE_BYTES`; `suffix` (of `SUFFIXES`) says how.

    Unreadable, after the pieces before it: `not_what_its_name_says` where the file does not begin as one, `truncated`,
    `broken` (a checksum, or what can't be decompressed), `trailing_garbage`, `compression_ratio` (see `MAX_RATIO`).
    """
    given = made = 0
    data = b""
    first = True
    while True:  # one stream after the other
        data = _reach(file, data, len(MAGIC[suffix]))
        if not first:
            while data and not data.strip(b"\0"):  # padding between streams, or after the last
                data = file.read(READ_BYTES)
            data = data.lstrip(b"\0")
            data = _reach(file, data, len(MAGIC[suffix]))
            if not data:
                return
        if not data.startswith(MAGIC[suffix]):
            raise Unreadable(("not_what_its_name_says" if data else "truncated") if first else "trailing_garbage")
        first = False
        inflate = _decompressor(suffix)
        given += len(data)
        while not inflate.eof:
            if not data and inflate.needs_input:
                data = file.read(READ_BYTES)
                given += len(data)
                if not data:
                    raise Unreadable("truncated")
            try:
                piece = inflate.decompress(data, PIECE_BYTES)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                raise Unreadable("broken") from error
            data = b""
            made += len(piece)
            if made > FREE_BYTES and made > MAX_RATIO * given:
                raise Unreadable("compression_ratio")
            if piece:
                yield piece
        data = inflate.unused_data
        given -= len(data)


def _reach(file: IO[bytes], data: bytes, size: int) -> bytes:
    """`data` with at least `size` bytes, if the file still has them."""
    while len(data) < size:
        more = file.read(READ_BYTES)
        if not more:
            break
        data += more
    return data
