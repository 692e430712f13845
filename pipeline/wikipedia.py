"""Wikipedia's XML dumps: reading pages, and the stage that turns articles into plain documents.

    read_pages     every page of a dump file (.bz2 with any number of streams, .gz or plain; UTF-8 or UTF-16)
    read_site      what the file says of its wiki
    extract_text   the stage behind `S_text` of kind wikipedia

All export schemas (0.3–0.11) are read alike. A file that is cut off or broken gives its whole pages and then an error:
it is never taken for a shorter dump.
"""

import bz2
import gzip
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlsplit
from xml.parsers import expat

from pipeline import progress
from pipeline.config import WikipediaTextConfig
from pipeline.errors import SourceError
from pipeline.schemas import TEXT_SCHEMA, describe_lengths, write_dropped, write_parts
from pipeline.stage import Stage
from pipeline.wikitext import Site, is_disambiguation, redirect_target, to_text

STAGE = Stage(
    name="wikipedia_text",
    function="pipeline.wikipedia:extract_text",
    version="2",
    sources=("pipeline/wikipedia.py", "pipeline/wikitext*.py", "pipeline/templates/*.toml", "pipeline/schemas.py"),
)

LICENCE = "CC-BY-SA-4.0"
CHUNK_BYTES = 1 << 20
MAX_PAGE_CHARACTERS = 64 << 20
"""Of one page; MediaWiki's own limit is 2 MiB of text."""
MAX_DEPTH = 32
MAX_TOKEN_BYTES = 32 << 20
"""Of one tag with its attributes."""


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


def read_pages(path: Path | str, heard: Heard | None = None) -> Iterator[Page]:
    """Yield the pages of a dump file in the file's order.

    `heard` is told the bytes of the file read so far. SourceError, after the pages before it, for a file that is cut
    off or broken (names file, offset and last whole page), has a document type, or holds a page beyond all bounds.
    """
    path = Path(path)
    reader = _Reader(path)
    last: Page | None = None
    try:
        for chunk in _chunks(path, heard):
            reader.feed(chunk)
            for last in reader.take():
                yield last
        reader.close()
    except _Broken as error:
        for last in reader.take():
            yield last
        where = f"the last whole page is {last.title!r} (id {last.page_id})" if last else "no whole page comes before"
        raise SourceError(f"{path.name}: {error}; {where}", error.todo) from error


def read_site(path: Path | str) -> Site:
    """What the file says of its wiki before its first page; an empty Site where it says nothing.

    SourceError as for `read_pages`, only for what comes before the first page.
    """
    path = Path(path)
    reader = _Reader(path)
    try:
        for chunk in _chunks(path, None):
            try:
                reader.feed(chunk)
            except _Broken:
                if not reader.began:
                    raise
            if reader.began:
                return reader.site
        reader.close()
    except _Broken as error:
        raise SourceError(f"{path.name}: {error}", error.todo) from error
    return reader.site


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Broken(Exception):
    def __init__(self, what: str, todo: str = "Fetch the file again; its size and checksum stand on the dump's page."):
        super().__init__(what)
        self.todo = todo


def _chunks(path: Path, heard: Heard | None) -> Iterator[bytes]:
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
            for chunk in stream:
                yield chunk
                if heard:
                    heard(file.tell())
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error.strerror or error}", "Check the file.") from error


def _bz2_chunks(file: IO[bytes]) -> Iterator[bytes]:
    """All streams of the file; what lies between or after them must be a stream too."""
    decompressor = bz2.BZ2Decompressor()
    data = b""
    while True:
        if decompressor.eof:
            data = decompressor.unused_data or file.read(CHUNK_BYTES)
            if not data:
                return
            if len(data) < 4:
                data += file.read(CHUNK_BYTES)
            if not data.startswith(b"BZh"):
                raise _Broken(f"no bzip2 stream, but something else, at byte {file.tell() - len(data):,}")
            decompressor = bz2.BZ2Decompressor()
        elif decompressor.needs_input:
            data = file.read(CHUNK_BYTES)
            if not data:
                raise _Broken(f"cut off: its compressed data ends at byte {file.tell():,} in the middle of a stream")
        else:
            data = b""
        try:
            chunk = decompressor.decompress(data, CHUNK_BYTES)
        except (OSError, ValueError) as error:
            raise _Broken(f"damaged: {error}, before byte {file.tell():,}") from error
        if chunk:
            yield chunk


def _gzip_chunks(file: IO[bytes]) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk
    except EOFError as error:
        raise _Broken(f"cut off: its compressed data ends at byte {file.tell():,}") from error
    except (OSError, zlib.error) as error:
        raise _Broken(f"damaged: {error}, before byte {file.tell():,}") from error


# ── XML ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Reader:
    """Feeds an expat parser and gathers the pages that are complete."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.site = Site()
        self.began = False
        """whether the first page, and so the end of the siteinfo, was seen"""
        self._namespaces: dict[int, str] = {}
        self._language = ""
        self._prefixes: dict[str, int] = {}
        self._said: dict[str, str] = {}
        self._pages: list[Page] = []
        self._path: list[str] = []
        self._text: list[str] | None = None
        self._size = 0
        self._fed = 0
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
        self._fed += len(chunk)
        self._parse(chunk, final=False)
        if self._fed - self._parser.CurrentByteIndex > MAX_TOKEN_BYTES:
            raise _Broken(
                f"one tag is larger than {MAX_TOKEN_BYTES >> 20} MiB, at byte {self._parser.CurrentByteIndex:,}"
            )

    def close(self) -> None:
        self._parse(b"", final=True)

    def take(self) -> list[Page]:
        pages, self._pages = self._pages, []
        return pages

    def _parse(self, chunk: bytes, final: bool) -> None:
        try:
            self._parser.Parse(chunk, final)
        except expat.ExpatError as error:
            where = f"byte {self._parser.ErrorByteIndex:,} of the XML"
            if final:
                raise _Broken(f"cut off: the XML ends at {where} without </mediawiki>") from error
            raise _Broken(f"no valid XML at {where}: {expat.ErrorString(error.code)}") from error
        except (UnicodeError, LookupError, ValueError) as error:
            raise _Broken(f"no valid XML: {error}") from error

    def _broken(self, what: str) -> _Broken:
        return _Broken(
            f"{what}, at byte {self._parser.CurrentByteIndex:,} of the XML", "Check where the file comes from."
        )

    def _doctype(self, *_: Any) -> None:
        raise self._broken("it declares a document type, which no dump does")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        path = self._path
        path.append(name)
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
        elif name == "page":
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
        namespaces = {int(key): name for key, name in named if key.lstrip("-").isdecimal()}
        base = self._said.get("base", "")
        self.site = Site(
            name=self._said.get("dbname") or _wiki_of(base),
            base=base,
            language=self._language,
            namespaces=tuple(sorted(namespaces.items())),
        )
        self._prefixes = {**_PREFIXES, **{name.lower(): number for number, name in namespaces.items() if name}}

    def _finished(self) -> Page:
        said = self._page
        title = said.get("title", "")
        text = said.get("text", "")
        namespace, page_id = said.get("namespace"), said.get("page_id", "")
        if not page_id.strip().isdecimal() or not (namespace or "0").strip().lstrip("-").isdecimal():
            raise self._broken(f"page {title!r} has id {page_id!r} and namespace {namespace!r}, which are no numbers")
        revision_id = said.get("revision_id", "").strip()
        return Page(
            title=title,
            namespace=int(namespace) if namespace else self._prefixes.get(title.partition(":")[0].lower(), 0),
            page_id=int(page_id),
            revision_id=int(revision_id) if revision_id.isdecimal() else None,
            redirect=said["redirect"] if "redirect" in said else redirect_target(text),
            model=said.get("model") or "wikitext",
            text=text,
            timestamp=said.get("timestamp", ""),
            deleted=bool(said.get("deleted")),
        )


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


# ── the stage ────────────────────────────────────────────────────────────────────────────────────────────────────────


def extract_text(inputs: Mapping[str, Path], config: WikipediaTextConfig, out: Path) -> dict[str, Any]:
    """Write the articles of the dump in `inputs["dump"]`, by page id, and dropped.json.

    Articles are pages of namespace 0 that are no redirects, no disambiguation pages and have prose. SourceError for a
    broken file or a folder without a dump; then nothing is complete.
    """
    files, ignored = _dump_files(inputs["dump"])
    total = sum(path.stat().st_size for path in files)
    dropped: Counter[str] = Counter()
    seen: set[int] = set()
    rows: list[tuple[int, dict[str, Any]]] = []
    pages = characters = finished = 0
    site = Site()
    for path in files:
        site = read_site(path)
        wiki = site.name or config.source

        for page in read_pages(path, _reporter(finished, total)):
            pages += 1
            reason, text = _article(page, site)
            if not reason and page.page_id in seen:
                reason = "duplicate_page_id"
            if reason:
                dropped[reason] += 1
                continue
            seen.add(page.page_id)
            characters += len(page.text)
            rows.append((page.page_id, _row(page, text, wiki, site, config)))
        finished += path.stat().st_size
    rows.sort(key=lambda row: row[0])
    kept = write_parts((row for _, row in rows), TEXT_SCHEMA, out)
    count = write_dropped(out, pages, kept, dropped)
    return {
        **describe_lengths(array("q", (len(row["text"]) for _, row in rows))),
        **count,
        "wiki": site.name,
        "files": len(files),
        "ignored_files": ignored,
        "wikitext_characters_millions": round(characters / 1e6, 6),
        "sample": [row["title"] for _, row in rows[:5]],
    }


def _reporter(before: int, total: int) -> Heard:
    return lambda done: progress.report(before + done, total, "bytes")


def _article(page: Page, site: Site) -> tuple[str, str]:
    """(why the page is dropped, or "", its prose)"""
    if page.namespace != 0:
        return "other_namespace", ""
    if page.redirect is not None:
        return "redirect", ""
    if page.model != "wikitext":
        return "other_model", ""
    if page.deleted:
        return "deleted", ""
    if not page.text.strip():
        return "empty", ""
    if is_disambiguation(page.text, site, page.title):
        return "disambiguation", ""
    text = to_text(page.text, site)
    return ("" if text else "no_prose"), text


def _row(page: Page, text: str, wiki: str, site: Site, config: WikipediaTextConfig) -> dict[str, Any]:
    address = site.base.rpartition("/")[0]
    return {
        "doc_id": f"{wiki}:{page.page_id}",
        "source": config.source,
        "title": page.title,
        "url": f"{address}/{quote(page.title.replace(' ', '_'), safe=_URL_SAFE)}" if address else None,
        "revision_id": str(page.revision_id) if page.revision_id is not None else None,
        "language": config.language,
        "licence": config.licence or LICENCE,
        "date": page.timestamp[:10] or None,
        "text": text,
    }


_URL_SAFE = "/:@!$*(),;'~"


def _dump_files(folder: Path) -> tuple[list[Path], list[str]]:
    """(the XML files below the folder by name, numbers as numbers; names of the others)"""
    names = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    files = [path for path in names if _is_dump(path)]
    if not files:
        held = ", ".join(path.name for path in names[:5]) or "nothing"
        raise SourceError(f"there is no XML dump among the files ({held})", "Name a dump, as pages-articles.xml.bz2.")
    return files, [path.name for path in names if path not in set(files)]


def _is_dump(path: Path) -> bool:
    """Whether it looks like an XML dump: by its content, and if that is damaged, by its name."""
    try:
        start = next(_chunks(path, None), b"")[:400]
    except _Broken:
        return ".xml" in path.name
    return (
        start.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n").startswith((b"<mediawiki", b"<?xml", b"<page"))
    )
