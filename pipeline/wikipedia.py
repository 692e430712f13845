"""Wikipedia's XML dumps: reading their pages.

    read_pages     every page of a dump file (.bz2 with any number of streams, .gz or plain; UTF-8 or UTF-16)
    read_site      what the file says of its wiki
    dump_files     the files of a folder that make up a dump

All export schemas up to 0.11 are read alike. A file that is cut off or broken gives its whole pages and then an error:
it is never taken for a shorter dump. `pipeline.wiki.dump_parts` reads one file in parallel, with the same parser.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from xml.parsers import expat

from pipeline.errors import SourceError
from pipeline.selection.sampling import FETCHED
from pipeline.wiki.bz2_blocks import BrokenBz2, blocks
from pipeline.wikitext import Site, redirect_target

CHUNK_BYTES = 1 << 20
MAX_PAGE_CHARACTERS = 64 << 20
"""Of one page; MediaWiki's own limit is 2 MiB of text."""
MAX_RATIO = 5000
"""Bytes of XML out of one byte of the file: dumps have 3 to 8, .bz2 of one sentence over and over 3,300, a bomb a million."""
FREE_BYTES = 64 << 20
"""So much may come out whatever the ratio: about one block of the strangest .bz2."""
MAX_DEPTH = 32
MAX_TOKEN_BYTES = 4 << 20
"""Of one tag with its attributes."""
MAX_ATTRIBUTES = 100
MAX_NAMESPACES = 1000
"""Of a site; Wikipedias have some thirty, Wikimedia Commons forty."""
"""Of one tag; MediaWiki writes up to a dozen."""
NEWEST_SCHEMA = 11
"""Of the export schemas 0.1, 0.2, … (mediawiki.org, "Help:Export") the last one that is known here."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page in its newest revision of the file."""

    title: str
    namespace: int
    page_id: int
    revision_id: int | None
    redirect: str | None
    """title that a redirect leads to"""
    model: str
    """content model: wikitext, or json, css, …"""
    text: str
    """wikitext of the main slot; "" where it was deleted"""
    timestamp: str
    """of the revision, ISO 8601 UTC, or "" """
    deleted: bool
    """the text was suppressed"""


Heard = Callable[[int], None]


class BrokenDump(Exception):
    """What is wrong with a dump, and where; it becomes a SourceError that names the file and its last whole page."""

    def __init__(self, what: str, todo: str = "Fetch the file again; its size and checksum stand on the dump's page."):
        super().__init__(what)
        self.todo = todo


def read_pages(path: Path | str, heard: Heard | None = None) -> Iterator[Page]:
    """Yield the pages of a dump file in the file's order.

    `heard` is told the bytes of the file read so far. SourceError, after the pages before it, for a file that is cut
    off or broken (names file, offset and last whole page), has a document type, or holds a page beyond all bounds.
    """
    path = Path(path)
    reader = XmlReader()
    last: Page | None = None
    try:
        for chunk in chunks(path, heard):
            reader.feed(chunk)
            for last in reader.take():
                yield last
        reader.close()
    except BrokenDump as error:
        for last in reader.take():
            yield last
        raise broken(path, error, last) from error


def broken(path: Path, error: BrokenDump, last: Page | None) -> SourceError:
    """The error that a person gets: file, what is wrong and where, the last whole page before it."""
    where = f"the last whole page is {last.title!r} (id {last.page_id})" if last else "no whole page comes before"
    return SourceError(f"{path.name}: {error}; {where}", error.todo)


def read_site(path: Path | str) -> Site:
    """What the file says of its wiki before its first page; an empty Site where it says nothing.

    SourceError as for `read_pages`, only for what comes before the first page.
    """
    path = Path(path)
    reader = XmlReader()
    try:
        for chunk in chunks(path, None):
            try:
                reader.feed(chunk)
            except BrokenDump:
                if not reader.began:
                    raise
            if reader.began:
                return reader.site
        reader.close()
    except BrokenDump as error:
        raise SourceError(f"{path.name}: {error}", error.todo) from error
    return reader.site


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def chunks(path: Path, heard: Heard | None) -> Iterator[bytes]:
    """The decompressed bytes, in pieces of bounded size whatever the file claims."""
    try:
        with path.open("rb") as file:
            magic = file.read(3)
            file.seek(0)
            if magic == b"BZh":
                stream = _bz2_chunks(file)
            elif magic[:2] == b"\x1f\x8b":
                stream = _gzip_chunks(file)
            else:
                stream = iter(lambda: file.read(CHUNK_BYTES), b"")
            made = 0
            for chunk in stream:
                made += len(chunk)
                check_ratio(made, file.tell())
                yield chunk
                if heard:
                    heard(file.tell())
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error.strerror or error}", "Check the file.") from error


def check_ratio(made: int, given: int) -> None:
    """BrokenDump where so many bytes of XML came out of so few of the file that it is no dump, but a bomb."""
    if made > FREE_BYTES and made > MAX_RATIO * given:
        raise BrokenDump(
            f"its first {given:,} bytes unpack to {made:,}, more than {MAX_RATIO:,} times as many, as bombs do",
            "This is no dump that MediaWiki wrote. If you trust it, unpack the file yourself.",
        )


def _bz2_chunks(file: IO[bytes]) -> Iterator[bytes]:
    try:
        for block in blocks(file):
            yield from block.pieces
    except BrokenBz2 as error:
        raise BrokenDump(str(error)) from error


def _gzip_chunks(file: IO[bytes]) -> Iterator[bytes]:
    done = 0
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            while chunk := stream.read1(CHUNK_BYTES):  # read() would keep back what comes before the damage
                done += len(chunk)
                yield chunk
    except EOFError as error:
        raise BrokenDump(
            f"cut off: its compressed data ends at byte {file.tell():,}, byte {done:,} of the XML"
        ) from error
    except (OSError, zlib.error) as error:
        raise BrokenDump(f"damaged: {error}, before byte {file.tell():,}, after byte {done:,} of the XML") from error


# ── XML ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Enough(Exception):
    """A page begins at or after the reader's limit."""


class XmlReader:
    """Feeds an expat parser and gathers the pages that are complete.

    To read pages from the middle of a dump, give the site and feed `<mediawiki>` first.
    """

    def __init__(self, site: Site | None = None) -> None:
        self.site = site or Site()
        self.began = site is not None
        """whether the first page, and so the end of the siteinfo, was seen"""
        self.fed = 0
        """bytes so far"""
        self.limit: int | None = None
        """a page that begins at this byte or later ends the reading: `feed` raises Enough"""
        self.next_page: int | None = None
        """where the page begins that did so"""
        self._language = ""
        self._prefixes = _prefixes(self.site)
        self._said: dict[str, str] = {}
        self._pages: list[Page] = []
        self._path: list[str] = []
        self._text: list[str] | None = None
        self._size = 0
        self._page: dict[str, str] = {}
        self._slot: dict[str, str] = {}
        self._key = ""
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.buffer_size = 1 << 16
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._doctype

    def feed(self, chunk: bytes) -> None:
        """Parse more bytes. Raises BrokenDump, or Enough at the limit; pages that are whole by then can be taken."""
        self.fed += len(chunk)
        self._parse(chunk, final=False)
        if self.fed - self._parser.CurrentByteIndex > MAX_TOKEN_BYTES:
            raise BrokenDump(
                f"one tag is larger than {MAX_TOKEN_BYTES >> 20} MiB, at byte {self._parser.CurrentByteIndex:,}"
            )

    def close(self) -> None:
        """The file ends here. Raises BrokenDump where the XML does not."""
        self._parse(b"", final=True)

    def take(self) -> list[Page]:
        """The pages that became whole since the last call."""
        pages, self._pages = self._pages, []
        return pages

    def _parse(self, chunk: bytes, final: bool) -> None:
        try:
            self._parser.Parse(chunk, final)
        except expat.ExpatError as error:
            where = f"byte {max(0, self._parser.ErrorByteIndex):,} of the XML"
            if final and not self.fed:
                raise BrokenDump("cut off: there is nothing in it") from error
            if final:
                raise BrokenDump(f"cut off: the XML ends at {where} without </mediawiki>") from error
            raise BrokenDump(f"no valid XML at {where}: {expat.ErrorString(error.code)}") from error
        except (UnicodeError, LookupError, ValueError) as error:
            raise BrokenDump(f"no valid XML: {error}") from error

    def _broken(self, what: str) -> BrokenDump:
        return BrokenDump(
            f"{what}, at byte {self._parser.CurrentByteIndex:,} of the XML", "Check where the file comes from."
        )

    def _doctype(self, *_: Any) -> None:
        raise self._broken("it declares a document type, which no dump does")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if len(attributes) > MAX_ATTRIBUTES:
            raise self._broken(f"a tag has {len(attributes):,} attributes")
        path = self._path
        path.append(name)
        if len(path) == 1 and name not in ("mediawiki", "page"):
            raise self._broken(f"its root is <{name[:40]}>, and a dump's is <mediawiki>")
        if len(path) > MAX_DEPTH:
            raise self._broken(f"its elements are nested more than {MAX_DEPTH} deep")
        parent = path[-2] if len(path) > 1 else ""
        key = _KEYS.get((parent, name))
        if key:
            self._key = key
            self._text = []
            self._size = 0
            if name == "text":
                (self._slot if parent == "content" else self._page)["deleted"] = attributes.get("deleted", "")
            elif name == "namespace":
                self._key = f"namespace {attributes.get('key', '')}"
                if len(self._said) > MAX_NAMESPACES:
                    raise self._broken(f"it names more than {MAX_NAMESPACES:,} namespaces")
        elif name == "page":
            if self.limit is not None and parent == "mediawiki" and self._parser.CurrentByteIndex >= self.limit:
                self.next_page = self._parser.CurrentByteIndex
                raise Enough
            self._page = {}
            self._describe_site()
        elif name == "redirect" and parent == "page":
            self._page["redirect"] = attributes.get("title", "")
        elif name == "revision":
            for old in ("text", "model", "deleted", "timestamp", "revision_id"):
                self._page.pop(old, None)
        elif name == "content":
            self._slot = {}
        elif name == "mediawiki":
            self._language = attributes.get("xml:lang", "")
            schema = _SCHEMA.fullmatch(attributes.get("version", "0.1"))
            if not schema or int(schema[1]) > NEWEST_SCHEMA:
                raise self._broken(
                    f"it is of export schema {attributes['version'][:40]!r}, and 0.1 to 0.{NEWEST_SCHEMA} are known here"
                )

    def _characters(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)
            self._size += len(data)
            if self._size > MAX_PAGE_CHARACTERS:
                raise self._broken(f"a page is larger than {MAX_PAGE_CHARACTERS >> 20} Mi characters")

    def _end(self, name: str) -> None:
        path = self._path
        path.pop()
        parent = path[-1] if path else ""
        if self._text is not None and self._key:
            value = "".join(self._text)
            self._text = None
            if parent == "siteinfo" or parent == "namespaces":
                self._said[self._key] = value
            elif parent == "content":
                self._slot[self._key] = value
            else:
                self._page[self._key] = value
            self._key = ""
        elif name.endswith("content") and self._slot.get("role") == "main":
            self._page.update({key: value for key, value in self._slot.items() if key != "role"})
        elif name.endswith("page") and parent == "mediawiki":
            self._pages.append(self._finished())
        elif name.endswith("siteinfo"):
            self._describe_site()

    def _describe_site(self) -> None:
        if self.began:
            return
        self.began = True
        named = (
            (key.removeprefix("namespace "), value) for key, value in self._said.items() if key.startswith("namespace ")
        )
        namespaces = {int(key): name for key, name in named if _NAMESPACE.fullmatch(key)}
        base = self._said.get("base", "")
        self.site = Site(
            name=self._said.get("dbname") or _wiki_of(base),
            base=base,
            language=self._language,
            namespaces=tuple(sorted(namespaces.items())),
        )
        self._prefixes = _prefixes(self.site)

    def _finished(self) -> Page:
        said = self._page
        title = said.get("title", "")
        text = said.get("text", "")
        namespace, page_id = said.get("namespace"), said.get("page_id", "")
        if not _ID.fullmatch(page_id) or not _ID.fullmatch(namespace or "0"):
            raise self._broken(
                f"page {title!r} has id {page_id[:40]!r} and namespace {(namespace or '')[:40]!r}, which are no numbers"
            )
        revision_id = said.get("revision_id", "").strip()
        revision_id = revision_id if _ID.fullmatch(revision_id) else ""
        if max(int(page_id), int(revision_id or 0)) >= 2**63:
            raise self._broken(
                f"page {title!r} has id {page_id[:40]!r} and revision {revision_id[:40]!r}, beyond all bounds"
            )
        return Page(
            title=title,
            namespace=int(namespace) if namespace else self._prefixes.get(title.partition(":")[0].lower(), 0),
            page_id=int(page_id),
            revision_id=int(revision_id) if revision_id else None,
            redirect=said["redirect"] if "redirect" in said else redirect_target(text),
            model=said.get("model") or "wikitext",
            text=text,
            timestamp=said.get("timestamp", ""),
            deleted=bool(said.get("deleted")),
        )


_SCHEMA = re.compile(r"0\.([0-9]{1,4})")
_NAMESPACE = re.compile(r"-?[0-9]{1,9}")
_ID = re.compile(r"\s*-?[0-9]{1,40}\s*")
_KEYS = {
    ("siteinfo", "dbname"): "dbname",
    ("siteinfo", "base"): "base",
    ("namespaces", "namespace"): "namespace",
    ("page", "title"): "title",
    ("page", "ns"): "namespace",
    ("page", "id"): "page_id",
    ("revision", "id"): "revision_id",
    ("revision", "timestamp"): "timestamp",
    ("revision", "model"): "model",
    ("revision", "text"): "text",
    ("content", "role"): "role",
    ("content", "model"): "model",
    ("content", "text"): "text",
}
"""(parent, element) → what its text is."""

_PREFIXES = {
    "media": -2, "special": -1, "talk": 1, "user": 2, "user talk": 3, "wikipedia": 4, "wikipedia talk": 5, "project": 4,
    "file": 6, "image": 6, "file talk": 7, "image talk": 7, "mediawiki": 8, "mediawiki talk": 9, "template": 10,
    "template talk": 11, "help": 12, "help talk": 13, "category": 14, "category talk": 15, "portal": 100, "module": 828,
}  # fmt: skip
"""English namespaces, for old dumps whose pages and siteinfo name none."""


def _prefixes(site: Site) -> dict[str, int]:
    return {**_PREFIXES, **{name.lower(): number for number, name in site.namespaces if name}}


def _wiki_of(base: str) -> str:
    """https://bg.wikipedia.org/wiki/… → bgwiki; "" for any other address."""
    parts = (urlsplit(base).hostname or "").split(".")
    if len(parts) < 3 or parts[-2] not in (
        "wikipedia",
        "wiktionary",
        "wikibooks",
        "wikiquote",
        "wikisource",
        "wikinews",
    ):
        return ""
    return parts[-3].replace("-", "_") + ("wiki" if parts[-2] == "wikipedia" else parts[-2])


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def dump_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """(the XML files below the folder by name, numbers as numbers; the other files). SourceError: there is no dump."""
    ours = ("manifest.json", FETCHED)
    names = [path for path in folder.rglob("*") if path.is_file() and path.name not in ours]
    names.sort(key=lambda path: (numeric_order(path.relative_to(folder).as_posix()), path.as_posix()))
    files = [path for path in names if _is_dump(path)]
    if not files:
        held = ", ".join(path.name for path in names[:5]) or "nothing"
        raise SourceError(f"there is no XML dump among the files ({held})", "Name a dump, as pages-articles.xml.bz2.")
    return files, [path for path in names if path not in set(files)]


def numeric_order(name: str) -> list[tuple[int, str]]:
    """Sorts names by their numbers: …-multistream2.xml-p9 comes before …-multistream10.xml-p10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _is_dump(path: Path) -> bool:
    """Whether it is to be read as an XML dump: by its name, because what calls itself one and is none must be said, else
    by its content."""
    if re.search(r"\.xml(?:[-.]p\d+p\d+)?(?:\.(?:bz2|gz))?$", path.name, re.I):
        return True
    try:
        start = next(chunks(path, None), b"")[:400]
    except BrokenDump:
        return ".xml" in path.name
    return (
        start.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n").startswith((b"<mediawiki", b"<?xml", b"<page"))
    )
