"""Read an EPUB 2 or 3 from memory: its prose in reading order, and what it says of itself.

The container names the package file (OPF), whose manifest lists the files and whose spine puts them in order (EPUB 3.3,
sections 4 and 5; OPF 2.0.1). Of the spine, pages outside the main order (linear="no"), contents, covers, title pages,
copyright pages, indexes and notes are left out: by the manifest's `nav`, the guide, the landmarks, and names of files;
what is left out inside a page is said in pipeline/prose/xhtml.py. Nothing is fetched, and no path leaves the archive.
"""

import io
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from pipeline.formats.archives import MAX_MEMBER_BYTES, NESTED, Zip
from pipeline.formats.inflate import Unreadable
from pipeline.prose.xhtml import MAX_PAGE_BYTES, local_name, parse_xml, prose

MAX_PAGES = 10_000
MAX_METADATA = 300
"""Characters of a title or a name that are kept."""

_PAGE_TYPES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document")
_FONT_METHODS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_NO_PROSE = {
    "contents": "toc nav contents tableofcontents loi lot landmarks index genindex listofillustrations",
    "title_pages": "cover coverpage titlepage title halftitle halftitlepage frontcover backcover",
    "copyright_pages": "copyright copyrightpage copyrightpg imprint colophon legal credits uncopyright",
    "notes": "notes footnotes endnotes rearnotes footnote endnote",
    "bibliographies": "bibliography glossary",
}
_BY_NAME = {name: reason for reason, names in _NO_PROSE.items() for name in names.split()}
_BY_TYPE = _BY_NAME | {"title-page": "title_pages", "copyright-page": "copyright_pages"}
_LICENCE = re.compile(r"public domain|creative commons|\bcc[ -](?:by|0|zero)|licen[cs]e|\bG?FDL\b|\bGPL\b", re.I)


@dataclass
class Epub:
    """What an EPUB holds; texts it does not state are ""."""

    title: str = ""
    author: str = ""
    language: str = ""
    """as it says: a language tag (BCP 47)"""
    rights: str = ""
    licence: str = ""
    """its rights, where they name a licence and do not just claim a copyright; or the licence's URL"""
    identifiers: tuple[str, ...] = ()
    paragraphs: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """by reason: elements, paragraphs and pages that are no prose"""
    unread: dict[str, str] = field(default_factory=dict)
    """page → why it could not be read"""


def read_epub(data: bytes) -> Epub:
    """The prose of an EPUB. Unreadable where the archive is broken, encrypted, or has no package file."""
    archive = Zip(io.BytesIO(data))
    path = _package_path(archive)
    package = _part(archive, path)
    folder = posixpath.dirname(path)
    book = _described(package)
    items = {item.get("id"): item for item in _all(package, "item") if item.get("id")}
    pages = _pages(package, items, folder, book)
    _refuse_encrypted(archive, pages)
    skipped = _guide(package, folder) | _landmarks(archive, items, folder)
    size = 0  # of all markup that was read
    for name in pages:
        reason = skipped.get(name) or _reason_by_name(name)
        if reason:
            book.left_out[reason] += 1
            continue
        try:
            content = archive.read(name, MAX_PAGE_BYTES)
            if content is None:
                raise Unreadable("missing")
            size += len(content)
            page = prose(content) if size <= MAX_MEMBER_BYTES else None
        except Unreadable as error:
            book.unread[name] = error.reason
            continue
        if page is None:
            raise Unreadable(f"larger_than_{MAX_MEMBER_BYTES >> 20}_MiB")
        book.left_out += page.left_out
        book.paragraphs += page.paragraphs
    return book


def _all(element: Any, name: str) -> Iterator[Any]:
    return (each for each in element.iter() if local_name(each) == name)


def _part(archive: Zip, name: str) -> Any:
    content = archive.read(name, MAX_PAGE_BYTES)
    if content is None:
        raise Unreadable("no_package_file")
    return parse_xml(content)


def _package_path(archive: Zip) -> str:
    """Of the OPF: as the container says, else the only one there is."""
    if "META-INF/container.xml" in archive.by_name:
        for root in _all(_part(archive, "META-INF/container.xml"), "rootfile"):
            path = resolved("", root.get("full-path") or "")
            if path in archive.by_name:
                return str(path)
    found = [name for name in archive.by_name if name.lower().endswith(".opf")]
    if len(found) != 1:
        raise Unreadable("no_package_file")
    return found[0]


def resolved(folder: str, href: str) -> str | None:
    """The path inside the archive that `href`, in a file of `folder`, leads to; None where it leads out of it."""
    try:
        parts = urlsplit(href.strip())
    except ValueError:
        return None
    path = unquote(parts.path)
    if parts.scheme or parts.netloc or path.startswith("/") or "\\" in path or "\0" in path or not path:
        return None
    joined = posixpath.normpath(posixpath.join(folder, path))
    return None if joined.startswith("../") or joined == ".." else joined


def _described(package: Any) -> Epub:
    book = Epub()
    metadata = next(_all(package, "metadata"), None)
    if metadata is None:
        return book
    texts: dict[str, list[str]] = {}
    for each in metadata.iter():
        text = " ".join((each.text or "").split())[:MAX_METADATA]
        if text:
            texts.setdefault(local_name(each), []).append(text)
    book.title = next(iter(texts.get("title", [])), "")
    book.author = "; ".join(texts.get("creator", []))[:MAX_METADATA]
    book.language = next(iter(texts.get("language", [])), "")
    book.rights = next(iter(texts.get("rights", [])), "")
    book.identifiers = tuple(texts.get("identifier", []))
    links = [
        link.get("href")
        for link in _all(metadata, "link")
        if "license" in (link.get("rel") or "") and not link.get("refines")
    ]
    book.licence = book.rights if _LICENCE.search(book.rights) else next((link for link in links if link), "")
    return book


def _pages(package: Any, items: dict[str, Any], folder: str, book: Epub) -> list[str]:
    """Paths of the pages of the spine, each once."""
    pages: list[str] = []
    seen: set[str] = set()
    for number, reference in enumerate(_all(package, "itemref")):
        if number >= MAX_PAGES:
            book.unread["spine"] = "too_many_pages"
            break
        item = _page_item(items, reference.get("idref") or "")
        if item is None:
            book.unread[(reference.get("idref") or "?")[:MAX_METADATA]] = "not_in_manifest"
            continue
        href = item.get("href") or ""
        path = resolved(folder, href)
        if path is None:
            book.unread[href[:MAX_METADATA]] = "outside_the_archive"
        elif path in seen:
            book.left_out["repeated_in_spine"] += 1
        elif path.lower().endswith((".epub", *NESTED)):
            book.unread[path] = "archive_in_archive"
        elif (item.get("media-type") or "").lower() not in _PAGE_TYPES:
            book.unread[path] = "no_page"
        elif (reference.get("linear") or "").lower() == "no":
            book.left_out["not_linear"] += 1
        elif "nav" in (item.get("properties") or "").split():
            book.left_out["contents"] += 1
        else:
            pages.append(path)
        seen.add(path or "")
    return pages


def _page_item(items: dict[str, Any], identity: str) -> Any:
    """The manifest's item, or the first page among its fallbacks."""
    first = item = items.get(identity)
    seen = set()
    while item is not None and (item.get("media-type") or "").lower() not in _PAGE_TYPES:
        seen.add(item.get("id"))
        item = items.get(item.get("fallback") or "")
        if item is not None and item.get("id") in seen:
            return first
    return item if item is not None else first


def _refuse_encrypted(archive: Zip, pages: list[str]) -> None:
    """Fonts may be obfuscated; a book with a page that is encrypted can't be read at all."""
    name = "META-INF/encryption.xml"
    if name not in archive.by_name:
        return
    for block in _all(_part(archive, name), "encrypteddata"):
        method = next((each.get("Algorithm") for each in _all(block, "encryptionmethod")), "")
        for reference in _all(block, "cipherreference"):
            if method not in _FONT_METHODS and resolved("", reference.get("URI") or "") in pages:
                raise Unreadable("encrypted")


def _guide(package: Any, folder: str) -> dict[str, str]:
    """Page → why it is left out, by the guide of EPUB 2; a place inside a page says nothing of the page."""
    found: dict[str, str] = {}
    for guide in _all(package, "guide"):
        for reference in _all(guide, "reference"):
            _note(found, reference.get("type") or "", reference.get("href") or "", folder)
    return found


def _landmarks(archive: Zip, items: dict[str, Any], folder: str) -> dict[str, str]:
    """The same by the landmarks of EPUB 3, which stand in its `nav` page."""
    found: dict[str, str] = {}
    for item in items.values():
        path = resolved(folder, item.get("href") or "")
        if "nav" not in (item.get("properties") or "").split() or path is None:
            continue
        try:
            content = archive.read(path, MAX_PAGE_BYTES)
            navigation = parse_xml(content) if content is not None else None
        except Unreadable:
            continue  # what it would have left out may be left out by name
        for nav in _all(navigation, "nav") if navigation is not None else ():
            if "landmarks" in (nav.get("{http://www.idpf.org/2007/ops}type") or ""):
                for link in _all(nav, "a"):
                    kind = link.get("{http://www.idpf.org/2007/ops}type") or ""
                    _note(found, kind, link.get("href") or "", posixpath.dirname(path))
    return found


def _note(found: dict[str, str], kind: str, href: str, folder: str) -> None:
    path = resolved(folder, href)
    for word in kind.lower().split():
        if path is not None and word in _BY_TYPE and "#" not in href:
            found[path] = _BY_TYPE[word]


def _reason_by_name(path: str) -> str:
    """By the file's name, numbers and separators aside: `03_copyright.xhtml`, `Title-Page.html`."""
    stem = posixpath.basename(path).rpartition(".")[0].lower()
    return _BY_NAME.get(re.sub(r"[^a-z]", "", stem), "")
