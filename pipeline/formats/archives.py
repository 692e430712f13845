"""Read .zip and .tar archives that nobody vouches for, without ever writing what they hold to disk.

    members(path)    the files of an archive, one at a time, in the archive's own order
    Zip(file)        the files of a .zip (an EPUB is one), by name

What an archive says of itself is not believed: sizes and ratios are measured while bytes come out, and an archive ends
after `MAX_MEMBERS` of them. A member whose path leads out of its folder, a link, a device, an encrypted member and one
that can't be read each come with a reason in place of their content. The reader of tar headers is our own: it knows plain
files and long names, the two things that archives of text need, and none of what has made other readers unsafe.
"""

import io
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipeline.formats.inflate import FREE_BYTES, MAX_RATIO, PIECE_BYTES, Unreadable, pieces

TAR_SUFFIXES = {".tar": "", ".tar.gz": ".gz", ".tgz": ".gz", ".tar.bz2": ".bz2", ".tbz2": ".bz2", ".tar.xz": ".xz"}
SUFFIXES = (".zip", *TAR_SUFFIXES)
NESTED = (*SUFFIXES, ".txz", ".7z", ".rar", ".tar.zst", ".jar", ".gz", ".bz2", ".xz", ".zst")
"""What counts as an archive inside an archive: these are never entered."""

MAX_MEMBERS = 100_000
MAX_MEMBER_BYTES = 64 << 20
MAX_NAME = 1024
MAX_DIRECTORY_BYTES = 160 * MAX_MEMBERS
"""Of a zip's table of contents, which zipfile reads at once: a name has 30 to 100 bytes, the rest of an entry 46."""
BLOCK = 512
MAX_HEADER_BYTES = 1 << 20
"""Of one extended header of a tar: a long name, or a few records."""

_DRIVE = re.compile(r"^[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Member:
    """One file of an archive. Read it before the next one is asked for."""

    name: str
    """path inside the archive, parts separated by "/"; "" where the archive itself can't be read further"""
    dropped: str
    """why it can't be read, "" where it can: unsafe_path, hidden, link, device, encrypted, unsupported_compression, …"""
    pieces: Callable[[], Iterator[bytes]]
    """its content piece by piece; Unreadable where that turns out to be broken, or more than its archive can hold"""

    def read(self, most: int = MAX_MEMBER_BYTES) -> bytes:
        """All of its content. Unreadable(reason) also where it is `dropped` or has more than `most` bytes."""
        if self.dropped:
            raise Unreadable(self.dropped)
        return gathered(self.pieces(), most)


def gathered(parts: Iterator[bytes], most: int = MAX_MEMBER_BYTES) -> bytes:
    """The pieces as one; Unreadable("larger_than_N_MiB") as soon as there are more than `most` bytes."""
    whole = bytearray()
    for part in parts:
        whole += part
        if len(whole) > most:
            raise Unreadable(f"larger_than_{most >> 20}_MiB")
    return bytes(whole)


def suffix_of(name: str) -> str:
    """The suffix of an archive (.zip, .tar.gz, …) that the name ends in, "" for other names."""
    lower = name.lower()
    return next((suffix for suffix in SUFFIXES if lower.endswith(suffix)), "")


def members(path: Path) -> Iterator[Member]:
    """The files of the .zip or .tar(.gz, .bz2, .xz) archive, in its own order; folders are no files.

    Nothing is raised for a bad archive: what can't be read comes as a member with `dropped`, and where the archive
    ends too early, or its members are too many, the last member has no name. Reading a member may raise Unreadable; the
    ones after it still come.
    """
    with path.open("rb") as file:
        try:
            if suffix_of(path.name) == ".zip":
                yield from _zip_members(file)
            else:
                compressed = TAR_SUFFIXES[suffix_of(path.name)]
                yield from _tar_members(
                    pieces(file, compressed) if compressed else iter(lambda: file.read(PIECE_BYTES), b"")
                )
        except Unreadable as error:
            yield _refused("", error.reason)


def _refused(name: str, reason: str) -> Member:
    return Member(name, reason, lambda: iter(()))


def safe_name(name: str) -> str | None:
    """The path in its plain form ("./a//b" → "a/b"); None where it leads out of its folder or is no path at all."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    unsafe = (
        not parts
        or name.startswith("/")
        or "\\" in name
        or ".." in parts
        or _DRIVE.match(name)
        or _CONTROL.search(name)
        or len(name) > MAX_NAME
    )
    return None if unsafe else "/".join(parts)


def checked_name(name: str) -> tuple[str, str]:
    """(name to show, reason why its member is not read or ""): unsafe_path, hidden."""
    safe = safe_name(name)
    if safe is None:
        return name[:MAX_NAME], "unsafe_path"
    parts = safe.split("/")
    return safe, "hidden" if any(part.startswith(".") for part in parts) or parts[0] == "__MACOSX" else ""


# ── zip ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Bounded(io.RawIOBase):
    """A file that refuses to read very much at once: zipfile reads a whole table of contents, whatever its size."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size > MAX_DIRECTORY_BYTES:
            raise Unreadable("too_many_members")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True


_ENTRY = b"PK\3\4"


class Zip:
    """The files of a zip by name. Unreadable where it is none, has too many members or entries that overlap."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            self._zip = zipfile.ZipFile(_Bounded(file))
        except (zipfile.BadZipFile, NotImplementedError, struct.error, ValueError, OSError, OverflowError) as error:
            raise Unreadable("broken_archive") from error
        infos = self._zip.infolist()
        if len(infos) > MAX_MEMBERS:
            raise Unreadable("too_many_members")
        self._refuse_overlaps(infos)
        file.seek(0)
        if min((info.header_offset for info in infos), default=0) and file.read(4) == _ENTRY:
            # The table of contents was cut off, and that of a zip inside this one was found in its place.
            raise Unreadable("truncated")
        self.infos = [info for info in infos if not info.is_dir()]
        self.by_name = {info.filename: info for info in self.infos}

    def _refuse_overlaps(self, infos: list[zipfile.ZipInfo]) -> None:
        """Entries that share bytes make a bomb out of one small kernel (D. Fifield, "A better zip bomb", 2019).

        A local header has 30 bytes and the name; zipfile itself looks for this only in later versions of Python.
        """
        placed = sorted(infos, key=lambda info: info.header_offset)
        ends = [*(info.header_offset for info in placed[1:]), self._zip.start_dir]
        for info, end in zip(placed, ends, strict=bool(placed)):
            name = len(info.filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437", "replace"))
            if info.header_offset + 30 + name + info.compress_size > end:
                raise Unreadable("overlapping_entries")

    def refusal(self, info: zipfile.ZipInfo) -> str:
        """Why a member is not read; "" where it is."""
        kind = info.external_attr >> 16 & 0o170000
        if kind == 0o120000:
            return "link"
        if kind not in (0, 0o100000):
            return "device"
        if info.flag_bits & 0x1:
            return "encrypted"
        return "" if info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) else "unsupported_compression"

    def pieces(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """The content of a member. Unreadable: refused, broken, lying_size, compression_ratio."""
        if reason := self.refusal(info):
            raise Unreadable(reason)
        made = 0
        try:
            with self._zip.open(info) as file:
                while piece := file.read(PIECE_BYTES):
                    made += len(piece)
                    if made > FREE_BYTES and made > MAX_RATIO * info.compress_size:
                        raise Unreadable("compression_ratio")
                    yield piece
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            RuntimeError,
            NotImplementedError,
            struct.error,
            ValueError,
        ) as error:
            raise Unreadable("broken") from error
        if made != info.file_size:
            raise Unreadable("lying_size")

    def read(self, name: str, most: int = MAX_MEMBER_BYTES) -> bytes | None:
        """The content of the member of this name; None where there is none. Unreadable as `pieces`."""
        info = self.by_name.get(name)
        return None if info is None else gathered(self.pieces(info), most)


def _zip_members(file: IO[bytes]) -> Iterator[Member]:
    archive = Zip(file)
    for info in archive.infos:
        name, reason = checked_name(info.filename)
        yield Member(name, reason or archive.refusal(info), lambda info=info: archive.pieces(info))  # type: ignore[misc]


# ── tar ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Stream:
    """Bytes that come in pieces, read forward only."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def some(self, most: int) -> bytes:
        """At least one byte and at most `most`, if there are any left."""
        if not self._rest:
            self._rest = next(self._parts, b"")
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece

    def exactly(self, size: int) -> Iterator[bytes]:
        """The next `size` bytes. Unreadable("truncated") where there are fewer."""
        while size:
            piece = self.some(min(size, PIECE_BYTES))
            if not piece:
                raise Unreadable("truncated")
            size -= len(piece)
            yield piece

    def block(self) -> bytes:
        """The next block of a tar; b"" at the end of the stream."""
        first = self.some(BLOCK)
        return first + b"".join(self.exactly(BLOCK - len(first))) if first else b""


_LINKS = (tarfile.LNKTYPE, tarfile.SYMTYPE)
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)


def _tar_members(parts: Iterator[bytes]) -> Iterator[Member]:
    """A tar is headers of one block, each with the content behind it in whole blocks (POSIX 1003.1, `pax`)."""
    stream = _Stream(parts)
    said: dict[str, str] = {}  # what extended headers say of the next member
    count = headers = 0
    while True:
        block = stream.block()
        if not block and not headers:
            raise Unreadable("broken_archive")
        if not block:
            return  # some tars lack the two blocks of zeros at the end
        if block == bytes(BLOCK):
            for _ in iter(lambda: stream.some(PIECE_BYTES), b""):  # to the end: a broken stream behind must show
                pass
            return
        headers += 1
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError, UnicodeError) as error:
            raise Unreadable("broken_archive") from error
        if header.size < 0 or headers > 4 * MAX_MEMBERS:
            raise Unreadable("broken_archive")
        if header.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME):
            if header.size > MAX_HEADER_BYTES:
                raise Unreadable("broken_archive")
            content = b"".join(stream.exactly(header.size))
            said |= {"path": _plain(content)} if header.type == tarfile.GNUTYPE_LONGNAME else _records(content)
            _skip(stream, -header.size % BLOCK)
            continue
        size = int(said["size"]) if said.get("size", "").isdecimal() else header.size
        name = said.get("path") or _plain(header.name.encode("utf-8", "surrogateescape"))
        sparse = any(key.startswith("GNU.sparse") for key in said)
        said = {}
        if header.type in (*_LINKS, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
            size = 0  # whatever it says: no content follows these
        if header.type in (tarfile.DIRTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
            _skip(stream, size + -size % BLOCK)
            continue
        count += 1
        if count > MAX_MEMBERS:
            raise Unreadable("too_many_members")
        name, reason = checked_name(name)
        if header.type in _LINKS:
            reason = "link"
        elif header.type not in _PLAIN or sparse:
            reason = "sparse" if sparse or header.type == tarfile.GNUTYPE_SPARSE else "device"
        body = _Body(stream, size)
        yield Member(name, reason, body.pieces)
        body.finish()


class _Body:
    """The content of one member, and the padding behind it."""

    def __init__(self, stream: _Stream, size: int) -> None:
        self._stream = stream
        self._left = size
        self._padding = -size % BLOCK

    def pieces(self) -> Iterator[bytes]:
        for piece in self._stream.exactly(self._left):
            self._left -= len(piece)
            yield piece

    def finish(self) -> None:
        _skip(self._stream, self._left + self._padding)


def _skip(stream: _Stream, size: int) -> None:
    for _ in stream.exactly(size):
        pass


def _plain(name: bytes) -> str:
    """A name as text: UTF-8, else Latin-1, which gives every byte a letter."""
    name = name.split(b"\0", 1)[0]
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return name.decode("latin-1")


def _records(content: bytes) -> dict[str, str]:
    """The records of a pax header: "LENGTH KEY=VALUE\\n", LENGTH counting all of its record."""
    found = {}
    at = 0
    while at < len(content):
        length, _, _ = content[at : at + 20].partition(b" ")
        if not length.isdigit() or not len(length) + 1 < int(length) <= len(content) - at:
            raise Unreadable("broken_archive")
        key, _, value = content[at + len(length) + 1 : at + int(length) - 1].partition(b"=")
        found[_plain(key)] = _plain(value)
        at += int(length)
    return found
