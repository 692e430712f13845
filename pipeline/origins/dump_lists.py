"""What lies beside the files of a dump and says what they have to be: lists of checksums, indexes of multistream dumps.

    lists_in        what SHA256SUMS, …-sha1sums.txt and the like say
    wrong_digests   files that are something else
    not_there       files of the same dump that are missing
    index_of        the index of a multistream dump
    wrong_index     where a multistream dump and its index do not agree

What is wrong is said in words for a person. Lists and indexes are the outside: nothing in them is trusted.
"""

import bz2
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pipeline import progress
from pipeline.wiki.bz2_blocks import BLOCK_MARK

MAX_LIST_BYTES = 64 << 20
MAX_LINE_BYTES = 1 << 16
CHUNK_BYTES = 1 << 20
STREAMS_AFTER_LAST_OFFSET = 2
"""The last pages, and the end of the XML."""

_LIST = re.compile(r"(?:.*[._-])?(sha512|sha256|sha1|md5)sums?(?:\.txt)?", re.I)
_LINE = re.compile(r"([0-9a-fA-F]{32,128}) [ *]?(.+)")
_DIGITS = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}
_MULTISTREAM = re.compile(r"(.*-multistream)(\d*)\.xml((?:-p\d+p\d+)?)\.bz2")
_NUMBER_IN_SERIES = re.compile(r"(?<=[a-z])\d+(?=\.(?:xml|txt)\b)|(?<=-)p\d+p\d+\b")

DigestOf = Callable[[Path, str], str]
"""(file, algorithm) → hex digest"""


# ── lists of checksums ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Listed:
    """A line of a list."""

    source: str
    """the list's name"""
    name: str
    algorithm: str
    digest: str
    """"" where the line holds none"""


def lists_in(folders: Iterable[Path]) -> dict[Path, list[Listed]]:
    """What the lists of checksums in these folders say: file, by where it is said to lie → lines about it."""
    listed: dict[Path, list[Listed]] = {}
    for folder in dict.fromkeys(folders):
        for path in sorted(folder.iterdir()):
            kind = _LIST.fullmatch(path.name)
            if kind and path.is_file():
                for line in _lines(path, kind[1].lower()):
                    listed.setdefault(Path(os.path.normpath(folder / line.name)), []).append(line)
    return listed


def _lines(path: Path, algorithm: str) -> Iterator[Listed]:
    with path.open("rb") as file:
        text = file.read(MAX_LIST_BYTES).decode("utf-8", "replace")
    for line in filter(None, map(str.strip, text.split("\n"))):
        found = _LINE.fullmatch(line)
        digest, name = found.groups() if found else ("", line.rpartition(" ")[2])
        yield Listed(path.name, name, algorithm, digest.lower())


def wrong_digests(paths: Sequence[Path], listed: Mapping[Path, Sequence[Listed]], digest_of: DigestOf) -> list[str]:
    """What the lists say of files that are something else: the list's name and both digests."""
    wrong = []
    for path in paths:
        for line in listed.get(Path(os.path.normpath(path)), ()):
            if len(line.digest) != _DIGITS[line.algorithm]:
                wrong.append(f"{path.name}: its line in {line.source} holds no {line.algorithm}")
                break
            got = digest_of(path, line.algorithm)
            if got != line.digest:
                wrong.append(f"{path.name}: {line.source} says {line.algorithm} {line.digest}, the file has {got}")
                break
    return wrong


def not_there(paths: Sequence[Path], listed: Iterable[Path]) -> list[str]:
    """Names in the lists that differ from a file that is there only in the numbers of its part, and are missing.

    A list of Wikimedia's names the files of all jobs of a date; the other jobs are not missed.
    """
    there = {path.name for path in paths}
    series = {_series(name) for name in there} - there
    return sorted({path.name for path in listed if path.name not in there and _series(path.name) in series})


def _series(name: str) -> str:
    """The same for all parts of a dump; the name itself for what is no part."""
    return _NUMBER_IN_SERIES.sub("#", name)


# ── indexes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def index_of(dump: Path, folders: Iterable[Path]) -> Path | None:
    """The index of a multistream dump, beside it or in another of the folders: MediaWiki's own names, packed or not."""
    named = _MULTISTREAM.fullmatch(dump.name)
    if not named:
        return None
    name = f"{named[1]}-index{named[2]}.txt{named[3]}"
    candidates = (folder / each for folder in (dump.parent, *folders) for each in (f"{name}.bz2", name))
    return next(filter(Path.is_file, candidates), None)


def wrong_index(dump: Path, index: Path) -> str:
    """Where a multistream dump and its index do not agree; "" if they do.

    Every offset of the index must be the beginning of a bz2 stream, and what follows the last one must be the pages
    that the index names there and the end of the XML. So a stream that was removed, added or cut off is noticed, except
    where others moved to exactly its place. Reads ten bytes at each offset and the last stream.
    """
    size, last, pages = dump.stat().st_size, -1, 0
    with ExitStack() as stack:
        file = stack.enter_context(dump.open("rb", buffering=0))
        for number, line in enumerate(_index_lines(index), start=1):
            offset = _offset(line)
            if offset is None:
                return f"{index.name}: line {number:,} is no offset:id:title ({line[:80].decode('utf-8', 'replace')!r})"
            if offset < last:
                return f"{index.name}: line {number:,} goes back from offset {last:,} to {offset:,}"
            pages = pages + 1 if offset == last else 1
            if offset != last and not _begins_stream(os.pread(file.fileno(), 10, offset)):
                found = "the file ends before it" if offset >= size else "no bz2 stream begins there"
                return f"{dump.name}: {index.name} names offset {offset:,} (line {number:,}), and {found}"
            if offset != last:
                progress.report(offset, size, "bytes of the index's offsets")
            last = offset
        if last < 0:
            return f"{index.name} names no page"
        file.seek(last)
        return _wrong_end(dump, index, iter(lambda: file.read(CHUNK_BYTES), b""), last, pages)


def _index_lines(index: Path) -> Iterator[bytes]:
    """Lines of a bounded length. What is damaged in a packed index ends in a line that is none."""
    with bz2.open(index) if index.suffix == ".bz2" else index.open("rb") as file:
        try:
            while line := file.readline(MAX_LINE_BYTES):
                yield line.rstrip(b"\n")
        except (OSError, EOFError, ValueError) as error:
            yield f"the bz2 file is cut off or damaged: {error}".encode()


def _offset(line: bytes) -> int | None:
    found = re.match(rb"(\d{1,18}):\d+:", line)
    return int(found[1]) if found else None


def _begins_stream(data: bytes) -> bool:
    return data[:3] == b"BZh" and b"1" <= data[3:4] <= b"9" and data[4:] == BLOCK_MARK.to_bytes(6, "big")


def _wrong_end(dump: Path, index: Path, pieces: Iterator[bytes], last: int, pages: int) -> str:
    """What is wrong with the streams from the index's last offset on."""
    where = f"{dump.name}: after offset {last:,}, the last one of {index.name},"
    streams = found = 0
    tail = b""
    decompressor, data = bz2.BZ2Decompressor(), next(pieces, b"")
    try:
        while data or not decompressor.needs_input:
            text = decompressor.decompress(data, CHUNK_BYTES)
            found += (tail + text).count(b"<page>")
            tail = (tail + text)[-5:]
            if found > pages:
                return f"{where} stand more pages than the {pages} that it names there"
            if decompressor.eof:
                streams += 1
                data = decompressor.unused_data or next(pieces, b"")
                if data and streams == STREAMS_AFTER_LAST_OFFSET:
                    return f"{where} stand more streams than that of the last pages and that of the end"
                decompressor = bz2.BZ2Decompressor()
            else:
                data = next(pieces, b"") if decompressor.needs_input else b""
                if not data and decompressor.needs_input:
                    return f"{where} a stream is cut off"
    except (OSError, ValueError):
        return f"{where} follows something that is no bz2 stream"
    return "" if found == pages else f"{where} stand {found} pages instead of the {pages} that it names there"
