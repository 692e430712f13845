"""A dump in parts that can be read side by side, each by whoever has time, and the check that they fit together.

    cut            files → parts: ranges of bytes, from the size of the files alone
    PartReader     the pages that begin in a part, and where the part's first page and the page after it begin
    gaps           what these places say: parts that do not meet, and must be read as one

A part of a .bz2 file holds the pages whose first byte lies in a block that begins in its range; it reads on until the
page after its last one begins. Any file can be cut so, with one stream or many; the index of a multistream dump is not
needed. A .gz file and UTF-16 can be read only from their beginning: they are one part.
"""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pipeline.config import Frozen
from pipeline.errors import SourceError
from pipeline.selection.sampling import first_bytes
from pipeline.system.places import Place
from pipeline.wiki.bz2_blocks import BrokenBz2, blocks
from pipeline.wikipedia import BrokenDump, Enough, Heard, Page, XmlReader, broken, check_ratio, chunks, read_pages
from pipeline.wikitext import Site

CHUNK_BYTES = 1 << 20
SMALLEST, LARGEST = 4 << 20, 32 << 20
PARTS = 32
"""A dump has about 32 parts of at least 4 and at most 32 MiB of .bz2. At its end a part reads one block of the next one
too, about 0.25 MB: 6 % of the smallest part, 1 % of the largest. 32 parts divide evenly enough among a few workers
that each get a fixed share, and the largest are many (800 for the English dump) and still finish every minute or so."""
XML_PER_BZ2 = 4
"""About so many bytes of XML become one of .bz2."""
_BLOCK_SHIFT = 27  # a block's text is shorter than 2^27 bytes: 900,000 bytes, each run of 5 at most 255 long


Kind = Literal["bz2", "plain", "whole"]


class Part(Frozen):
    """A range of bytes of one file of a dump."""

    file: int
    """number of the file, in the dump's order"""
    path: Place
    start: int
    end: int
    size: int
    """of the whole file"""
    kind: Kind
    """whole: a file that must be read from its beginning"""
    trusted: bool = False
    """whether a page is known to begin where the first one is found: the parts before it led there"""

    def to(self, other: "Part") -> "Part":
        """From the beginning of this part to the end of a later one of the same file."""
        return self.model_copy(update={"end": other.end, "trusted": True})

    @property
    def work(self) -> float:
        """Size in bytes of .bz2, about."""
        return (self.end - self.start) / (XML_PER_BZ2 if self.kind == "plain" else 1)


def cut(files: Sequence[Path]) -> list[Part]:
    """The parts of a dump, in its order; they follow from the files alone."""
    kinds = [_kind(path) for path in files]
    sizes = [path.stat().st_size for path in files]
    work = sum(size / (XML_PER_BZ2 if kind == "plain" else 1) for kind, size in zip(kinds, sizes, strict=True))
    each = int(min(max(work / PARTS, SMALLEST), LARGEST))
    parts = []
    for number, (path, kind, size) in enumerate(zip(files, kinds, sizes, strict=True)):
        step = each * XML_PER_BZ2 if kind == "plain" else each
        count = 1 if kind == "whole" else max(1, round(size / step))
        bounds = [size * i // count for i in range(count + 1)]
        parts += [Part(file=number, path=path, start=a, end=b, size=size, kind=kind) for a, b in pairwise(bounds)]
    return parts


def beginning(parts: Sequence[Part], share: float) -> Sequence[Part]:
    """The first parts of a dump that hold `share` of it; at least one."""
    return first_bytes(parts, [part.work for part in parts], share)


def _kind(path: Path) -> Kind:
    with path.open("rb") as file:
        magic = file.read(3)
    try:
        begin = next(chunks(path, None), b"")[:1000]
    except BrokenDump:
        begin = b""
    if magic[:2] == b"\x1f\x8b" or not _is_utf8(begin):
        return "whole"
    return "bz2" if magic == b"BZh" else "plain"


def _is_utf8(begin: bytes) -> bool:
    """Whether the XML is UTF-8 as far as its beginning says."""
    declared = re.match(rb"[\xef\xbb\xbf\s]*<\?xml[^>]*?encoding\s*=\s*[\"']([\w.-]+)", begin)
    return b"\0" not in begin and (not declared or declared.group(1).lower() in (b"utf-8", b"us-ascii", b"ascii"))


# ── pages of a part ──────────────────────────────────────────────────────────────────────────────────────────────────


def _places(part: Part) -> Iterator[tuple[int, bytes, bool]]:
    """(place, bytes, whether a .bz2 stream ends here) from the first block of the part to the end of the file.

    A place is a number that ascends along the file and is the same for whoever reads it; bytes follow without a gap.
    """
    try:
        with part.path.open("rb") as file:
            if part.kind == "bz2":
                made = 0
                for block in blocks(file, part.start):
                    place = block.at << _BLOCK_SHIFT
                    made += sum(map(len, block.pieces))
                    check_ratio(made, file.tell() - part.start)
                    for index, piece in enumerate(block.pieces, start=1):
                        yield place, piece, block.ends_stream and index == len(block.pieces)
                        place += len(piece)
            else:
                place = file.seek(part.start)
                while data := file.read(min(CHUNK_BYTES, part.end - place) if place < part.end else CHUNK_BYTES):
                    yield place, data, False
                    place += len(data)
    except BrokenBz2 as error:
        raise BrokenDump(str(error)) from error
    except OSError as error:
        raise SourceError(f"{part.path} can't be read: {error.strerror or error}", "Check the file.") from error


def _limit(part: Part) -> int:
    """The first place that is not the part's own."""
    return (8 * part.end) << _BLOCK_SHIFT if part.kind == "bz2" else part.end


def _done(part: Part, place: int) -> int:
    """Bytes of the part before a place."""
    byte = (place >> _BLOCK_SHIFT) // 8 if part.kind == "bz2" else place
    return min(max(byte - part.start, 0), part.end - part.start)


_PAGE = re.compile(rb"<page[\s>]")
_TAG_BYTES = 6
"""of `<page>`: what must be kept of the bytes before to see one that is cut in two"""


class _FirstPage:
    """Looks for the first `<page>` that begins before a limit, in bytes that come piece by piece."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail = b""
        self._places: list[int] = []  # of the bytes of the tail

    def add(self, place: int, data: bytes) -> tuple[int, bytes, bytes] | None:
        """(its place, its bytes from pieces before, the bytes from there on in this piece), or None: not yet."""
        found = _PAGE.search(self._tail + data)
        if found:
            begin = found.start() - len(self._tail)
            at = self._places[begin] if begin < 0 else place + begin
            if at < self._limit:
                return at, self._tail[begin:] if begin < 0 else b"", data[max(begin, 0) :]
        last = range(max(len(data) - _TAG_BYTES, 0), len(data))
        self._tail = (self._tail + data)[-_TAG_BYTES:]
        self._places = (self._places + [place + offset for offset in last])[-_TAG_BYTES:]
        return None


class Doubtful(Exception):
    """The XML of a part is wrong, perhaps only because no page begins where one seemed to."""


class PartReader:
    """Reads a part once.

    `pages` yields its pages; afterwards `first` is the place of the first of them, `following` that of the page after the
    last (None: there is none), and `streams` the number of .bz2 streams that end in it.
    """

    def __init__(self, part: Part, site: Site) -> None:
        self.part = part
        self.first: int | None = None if part.start else 0
        self.streams = 0
        self.following: int | None = None
        self._site = site
        self._starts: list[int] = []  # bytes fed before each piece, and the piece's place
        self._placed: list[int] = []

    def pages(self, heard: Heard | None = None, explain: bool = True) -> Iterator[Page]:
        """The pages that begin in the part. `heard` is told the bytes of it read so far.

        SourceError as `read_pages` raises it; without `explain` it may not know the last whole page. Doubtful: the XML
        is wrong, in a part that may not begin with a page.
        """
        part = self.part
        if part.kind == "whole":
            yield from read_pages(part.path, heard)
            return
        reader, last = XmlReader(self._site if part.start else None), None
        try:
            for data in self._pieces(reader, heard):
                reader.feed(data)
                for last in reader.take():
                    yield last
            if self.first is not None:
                reader.close()
        except Enough:
            yield from reader.take()
            assert reader.next_page is not None
            self.following = self._place_of(reader.next_page)
        except BrokenDump as error:
            for last in reader.take():
                yield last
            if last is None and explain:
                last = _last_page_before(part, self._site)
            if part.start and not part.trusted and not isinstance(error.__cause__, BrokenBz2):
                raise Doubtful from error
            where = (
                f", in the part that begins at byte {part.start:,} of the file"
                if part.start and "XML" in str(error)
                else ""
            )
            raise broken(part.path, BrokenDump(f"{error}{where}", error.todo), last) from error

    def _pieces(self, reader: XmlReader, heard: Heard | None) -> Iterator[bytes]:
        """What the parser is fed: from the part's first page on; nothing if there is none."""
        part, limit = self.part, _limit(self.part)
        search = _FirstPage(limit)
        for place, data, ends_stream in _places(part):
            self.streams += ends_stream and place < limit
            if self.first is None:
                found = search.add(place, data)
                if found is None and place >= limit:
                    return
                if found is None:
                    continue
                self.first, before, rest = found
                yield b"<mediawiki>"
                if before:
                    self._note(reader, self.first)
                    yield before
                place, data = place + len(data) - len(rest), rest
            if place >= limit and reader.limit is None:
                reader.limit = reader.fed
            self._note(reader, place)
            yield data
            if heard:
                heard(_done(part, place))

    def _note(self, reader: XmlReader, place: int) -> None:
        self._starts.append(reader.fed)
        self._placed.append(place)

    def _place_of(self, fed: int) -> int:
        index = bisect_right(self._starts, fed) - 1
        return self._placed[index] + fed - self._starts[index]


def _last_page_before(part: Part, site: Site) -> Page | None:
    """The last whole page before a part, for an error message."""
    step = part.end - part.start
    end = part.start
    while end > 0:
        begin = max(0, end - step)
        earlier = part.model_copy(update={"start": begin, "end": end})
        found: deque[Page] = deque(maxlen=1)
        with suppress(SourceError, Doubtful):  # it reads on into the damage
            found.extend(PartReader(earlier, site).pages(explain=False))
        if found:
            return found[0]
        end = begin
    return None


@dataclass(frozen=True)
class Seam:
    """What reading a part said of its two ends: the places of its first page and of the next part's."""

    first: int | None
    following: int | None


DOUBTFUL = Seam(first=-1, following=None)
"""Fits to nothing."""


def gaps(parts: Sequence[Part], seams: Sequence[Seam]) -> list[tuple[int, int]]:
    """(first, last) of parts that must be read as one, because a part did not end where the next page was found to begin.

    That happens where `<page>` stands in a file without beginning a page, for example in a comment. `parts` are all
    parts of the dump, in its order, or the first of them: then a page may begin behind the last.
    """
    joined: list[tuple[int, int]] = []

    def join(begin: int, end: int) -> None:
        if joined and joined[-1][1] >= begin:
            begin = joined.pop()[0]
        joined.append((begin, end))

    begin, expected = 0, None  # the last part that began where it should, and where the next one should
    for index, (part, seam) in enumerate(zip(parts, seams, strict=True)):
        if part.start == 0:
            if expected is not None:
                join(begin, index - 1)
            begin, expected = index, seam.following
        elif seam.first is not None:
            if seam.first == expected:
                begin = index
            else:
                join(begin, index)
            expected = seam.following
    if expected is not None and parts[-1].end == parts[-1].size:
        join(begin, len(parts) - 1)
    return joined
