"""The prose of one XHTML page of an e-book.

    parse_xml(data)     a tree, of bytes that nobody vouches for
    prose(data)         the page's paragraphs, and what was left out of it

What is prose is told by markup: paragraphs, divisions and quotations are; headings, tables, figures, lists, code,
contents, notes and page numbers are not, by element, epub:type (EPUB Structural Semantics), role (DPUB-ARIA), or the
class names that Project Gutenberg, Sphinx and the common converters write. Verse keeps its lines.
"""

import codecs
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from html.entities import html5
from itertools import islice
from typing import Any

from lxml import etree

from pipeline.formats.inflate import Unreadable
from pipeline.prose.encodings import decode

MAX_PAGE_BYTES = 8 << 20
"""Of one page; its tree takes up to 40 times as much memory. "War and Peace" on one page has 3.5 MB."""
SMALL_NODES = 200
"""A stanza has no more elements than this, a heading a quarter, a mark a few: so every page takes linear time."""
MARK_NODES = 8
LONGEST_POEM = 20_000
"""Characters of a poem in one piece of preformatted text."""
LONGEST_HEADING = 200
"""Characters. A longer paragraph is no heading, whatever its class says."""
SHORT_PAGE = 4000
"""Characters. A longer page is no copyright page, whatever it says."""

_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
_DOCTYPE = re.compile(r"<!DOCTYPE[^>\[]*(?:\[[^\]]*\]\s*)?>", re.I)
_ENTITY = re.compile(r"&([A-Za-z][A-Za-z0-9]{1,31});")
_DECLARED = re.compile(rb"(?:encoding|charset)\s*=\s*[\"']?\s*([A-Za-z0-9._-]{2,30})")
_XML_ENTITIES = {"amp", "lt", "gt", "quot", "apos"}
_UNICODE = ("utf", "ascii")


def _text(data: bytes) -> str:
    """The page as text, by the encoding that it declares unless that is Unicode, which is seen from the bytes."""
    declared = _DECLARED.search(data[:1024])
    if declared:
        try:
            codec = codecs.lookup(declared[1].decode())
            if codec._is_text_encoding and not codec.name.startswith(_UNICODE):
                return data.decode(codec.name, "replace")
        except LookupError:
            pass
    text = decode(data).text
    if text is None:
        raise Unreadable("not_text")
    return text


def _prepared(data: bytes) -> bytes:
    """UTF-8 without declarations, named characters of HTML (&nbsp;) as themselves. Unreadable for a page with entities
    of its own: they are how a small page becomes a huge one, or reads a file of the machine that parses it."""
    if len(data) > MAX_PAGE_BYTES:
        raise Unreadable(f"larger_than_{MAX_PAGE_BYTES >> 20}_MiB")
    text = _text(data)
    if "<!ENTITY" in text:
        raise Unreadable("entity_declarations")
    text = _DOCTYPE.sub("", _DECLARATION.sub("", text), count=1)

    def character(match: re.Match[str]) -> str:
        return match[0] if match[1] in _XML_ENTITIES else html5.get(f"{match[1]};", match[0])

    return _ENTITY.sub(character, text).encode("utf-8", "replace")


def _parser(kind: Any, **options: Any) -> Any:
    return kind(no_network=True, huge_tree=False, remove_comments=True, remove_pis=True, encoding="utf-8", **options)


def _xml(prepared: bytes) -> Any:
    parser = _parser(etree.XMLParser, resolve_entities=False, load_dtd=False, dtd_validation=False)
    return etree.fromstring(prepared, parser)


def parse_xml(data: bytes) -> Any:
    """The root element. Nothing is expanded, fetched or loaded. Unreadable: not_xml, entity_declarations, …"""
    try:
        return _xml(_prepared(data))
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Unreadable("not_xml") from error


def _parse_page(data: bytes) -> Any:
    """As XML, or, since many books are not well formed, as browsers read them."""
    prepared = _prepared(data)
    try:
        return _xml(prepared)
    except etree.XMLSyntaxError as error:
        if "depth" in str(error):
            raise Unreadable("nested_too_deep") from error
    parser = _parser(etree.HTMLParser, recover=True)
    try:
        root = etree.fromstring(prepared, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Unreadable("not_xhtml") from error
    if root is None:
        raise Unreadable("not_xhtml")
    if any("depth" in entry.message for entry in parser.error_log):
        raise Unreadable("nested_too_deep")
    return root


def local_name(element: Any) -> str:
    """The tag without its namespace, in lower case."""
    return _local(element.tag)


@lru_cache(maxsize=1024)
def _local(tag: Any) -> str:
    return str(tag).rpartition("}")[2].rpartition(":")[2].lower()


# ── what is no prose ─────────────────────────────────────────────────────────────────────────────────────────────────

_TAGS = {
    "headings": "h1 h2 h3 h4 h5 h6 hgroup",
    "tables": "table",
    "figures": "figure figcaption caption",
    "lists": "ul ol dl menu dir",
    "code": "pre listing xmp plaintext",
    "contents": "nav",
    "": "head script style title svg math canvas audio video object iframe embed form button input select textarea noscript "
    "template img image map rt rp rtc case",
}
_TYPES = {  # epub:type and, with "doc-" before it, role
    "headings": "title subtitle fulltitle halftitle bridgehead ordinal label",
    "contents": "toc toc-brief landmarks page-list pagelist lot loi lov loa index index-group index-entry-list",
    "title_pages": "cover titlepage halftitlepage seriespage",
    "copyright_pages": "copyright-page imprint imprimatur colophon other-credits credits credit",
    "notes": "footnote footnotes endnote endnotes rearnote rearnotes note noteref backlink annoref annotation",
    "bibliographies": "bibliography biblioentry glossary",
    "page_numbers": "pagebreak",
    "figures": "figure figcaption",
    "tables": "table",
    "lists": "list",
}
_CLASSES = {
    "contents": "toc tableofcontents table-of-contents tocpage contents pginternal-toc",
    "title_pages": "titlepage title-page tpage halftitle halftitlepage half-title cover coverpage",
    "copyright_pages": "copyright copyright-page copyrightpage colophon",
    "notes": "footnote footnotes endnote endnotes rearnote noteref footnote-ref footnote-reference fnanchor fnref "
    "footnoteref footnotes-list footnote-list sidenote transnote tnote tn transcriber-note transcribers-note transcribernote",
    "page_numbers": "pagenum pageno pagebreak page-number pagenumber page-break-number lnum linenum linenumber line-number",
    "figures": "figcenter figleft figright figure caption illustration illus illustcap figcaption wp-caption",
    "headings": "chapter-title chaptertitle chap-title chaptitle chapter-number chapternumber chapnum chapter-head "
    "chapterhead heading subheading subhead section-title sectiontitle part-title parttitle title-sub",
    "gutenberg": "pg-boilerplate pgheader pgfooter pg-header pg-footer",
}
_IDS = {
    "title_pages": "titlepage title-page halftitle cover coverpage",
    "copyright_pages": "copyright copyright-page",
    "contents": "toc tableofcontents",
    "gutenberg": "pg-header pg-footer pg-machine-header pg-start-separator pg-end-separator",
}


def _reasons(table: dict[str, str]) -> dict[str, str]:
    return {word: reason for reason, words in table.items() for word in words.split()}


_TAG_REASONS = _reasons(_TAGS)
_TYPE_REASONS = _reasons(_TYPES)
_CLASS_REASONS = _reasons(_CLASSES)
_ID_REASONS = _reasons(_IDS)
_BLOCKS = frozenset(
    """
p div blockquote section article aside header footer main body html address center hr li dd dt details summary
fieldset td th tr switch default
""".split()  # noqa: SIM905
)
_STANZA = re.compile(r"(?:^|[ _:-])(?:stanza|linegroup|line-group|lg)s?(?:$|[ _-])")
_POEM = re.compile(r"(?:^|[ _:-])(?:poem|poetry|verse|lines?-?block)(?:$|[ _-])")
_CODE_CLASS = re.compile(r"code|highlight|literal|listing|screen|source|console|example", re.I)
_CODE = re.compile(r"[{}<>=$#|\\_@~^/]|::|\w\(|\d\.\d")
_NOTE_MARK = re.compile(r"[\[({]?(?:\d{1,4}|[*†‡§¶‖]{1,4}|[a-zA-Z])[\])}]?")
_THREE_LETTERS = re.compile(r"[^\W\d_]{3}")
_NOTE_TARGET = re.compile(r"fn|foot|note|nref|back|^ref|ftn", re.I)
_DROP_CAP = re.compile(r"drop|initial|versal|(?:^|[ _-])cap(?:$|[ _-]|ital)")


def _types(element: Any) -> list[str]:
    said = element.get("{http://www.idpf.org/2007/ops}type") or element.get("epub:type") or ""
    roles = [role.removeprefix("doc-") for role in (element.get("role") or "").split() if role.startswith("doc-")]
    return [word.rpartition(":")[2].lower() for word in said.split()] + roles


def _left_out(element: Any, tag: str) -> str | None:
    """Why the element and all that is in it is no prose; "" for what nobody would count; None where it is."""
    if tag in _TAG_REASONS and not (tag == "pre" and _is_verse(element)):
        return _TAG_REASONS[tag]
    if not element.attrib:
        return "notes" if tag == "sup" and _is_note_mark(element, tag) else None
    for word in _types(element):
        if word in _TYPE_REASONS and not (word in ("annoref", "noteref") and _is_word(element)):
            return _TYPE_REASONS[word]
    for word in (element.get("class") or "").lower().split():
        if word in _CLASS_REASONS and (
            _CLASS_REASONS[word] != "headings" or _small(element, LONGEST_HEADING, SMALL_NODES // 4) is not None
        ):
            return _CLASS_REASONS[word]
    reason = _ID_REASONS.get((element.get("id") or "").lower())
    if reason:
        return reason
    if element.get("hidden") is not None or "display:none" in (element.get("style") or "").replace(" ", "").lower():
        return ""
    return "notes" if tag in ("a", "sup") and _is_note_mark(element, tag) else None


def _small(element: Any, characters: int, nodes: int) -> str | None:
    """Its text; None where it has more characters or elements."""
    size = 0
    for number, each in enumerate(element.iter()):
        size += len(each.text or "") + (len(each.tail or "") if each is not element else 0)
        if size > characters or number > nodes:
            return None
    return "".join(element.itertext())


def _is_verse(pre: Any) -> bool:
    """Whether preformatted text is a poem, as older books of Project Gutenberg have it: lines of words, none of code."""
    parent = pre.getparent()
    text = _small(pre, LONGEST_POEM, SMALL_NODES)
    words = f"{pre.get('class') or ''} {(parent.get('class') or '') if parent is not None else ''}"
    if text is None or _CODE_CLASS.search(words):
        return False
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return (
        len(lines) > 1
        and not any(_CODE.search(line) for line in lines)
        and sum(line.lstrip("\"'“‘«(—")[:1].isupper() for line in lines) >= 0.7 * len(lines)
        and sum(len(line.split()) for line in lines) >= 3 * len(lines)
    )


def _is_word(element: Any) -> bool:
    """Whether a link to a note is a word of the text and no mark: "The <a>Emperor's</a> New Clothes"."""
    text = _small(element, LONGEST_HEADING, SMALL_NODES)
    if text is None:
        return True
    said = _THREE_LETTERS.search(text) is not None and not any(map(str.isdigit, text))
    return said and "note" not in text.lower()


def _is_note_mark(element: Any, tag: str) -> bool:
    """A short link such as [1] or * to a note, or a raised one."""
    text = _small(element, 12, MARK_NODES)
    if text is None:
        return False
    link = element if tag == "a" else next((each for each in element.iter() if local_name(each) == "a"), None)
    mark = "".join(text.split())
    target = (link.get("href") or "") if link is not None else ""
    if "#" not in target or not _NOTE_MARK.fullmatch(mark):
        return False
    return tag == "sup" or mark[0] in "[({*†‡§¶‖" or bool(_NOTE_TARGET.search(target.partition("#")[2]))


# ── paragraphs ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Page:
    """The paragraphs of a page (lines of verse separated by "\\n"), and how many of what was left out."""

    paragraphs: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def prose(data: bytes) -> Page:
    """The prose of an XHTML or HTML page. Unreadable where it is none, too large, nested too deep or has entities."""
    walk = _Walk()
    walk.read(_parse_page(data))
    page = walk.page
    size = sum(map(len, page.paragraphs))
    if 0 < size < SHORT_PAGE and _is_imprint("\n".join(page.paragraphs)):
        return Page([], page.left_out + Counter({"copyright_pages": 1}))
    return page


_IMPRINT = re.compile(
    r"all rights reserved|\bISBN\b|library of congress|first published (?:in |by )|copyright (?:©|\(c\)|\d{4})|©\s*\d{4}|"
    r"printed in (?:the )?(?:U|great)|no part of this (?:book|publication)|cataloguing|tous droits réservés|"
    r"alle rechte vorbehalten|depósito legal|dépôt légal",
    re.I,
)


def _is_imprint(text: str) -> bool:
    return len({match.lower() for match in _IMPRINT.findall(text)}) >= (1 if len(text) < SHORT_PAGE // 8 else 2)


_SPACE = re.compile(r"\s+")
_SPACE_IN_LINE = re.compile(r"[^\S\n]+")
_INVISIBLE = dict.fromkeys([0x00AD, 0x200B, 0x2060, 0xFEFF])
"""Soft hyphen, zero-width space, word joiner, byte order mark; joiners stay: Persian and Hindi are spelt with them."""


class _Walk:
    """One pass over the tree, in document order."""

    def __init__(self) -> None:
        self.page = Page()
        self._buffer: list[str] = []
        self._links = 0
        self._linked = 0  # characters of the buffer that stand in links within the book
        self._verse = 0
        self._preformatted = 0
        self._initial = False  # the buffer holds an initial whose paragraph is still to come
        self._note = False  # the paragraph begins with the mark of a note

    def read(self, root: Any) -> None:
        walk = etree.iterwalk(root, events=("start", "end"))
        left: list[Any] = []  # the element whose content is skipped
        for event, element in walk:
            tag = local_name(element)
            if event == "start":
                reason = _left_out(element, tag)
                if reason is not None:
                    self._leave_out(element, tag, reason)
                    left.append(element)
                    walk.skip_subtree()
                else:
                    self._enter(element, tag)
                    self._add(element.text)
            else:
                if left and left[-1] is element:
                    left.pop()
                    if tag in _BLOCKS or _TAG_REASONS.get(tag):
                        self._end_block()
                else:
                    self._leave(element, tag)
                self._add(element.tail)
        self._flush()

    def _leave_out(self, element: Any, tag: str, reason: str) -> None:
        if (
            tag == "img"
            and _DROP_CAP.search((element.get("class") or "").lower())
            and len(element.get("alt") or "") == 1
        ):
            self._buffer.append(element.get("alt"))
        if reason:
            self.page.left_out[reason] += 1
            if tag in _BLOCKS or tag in _TAG_REASONS:
                self._end_block()
            elif reason == "notes" and not "".join(self._buffer).strip():
                self._note = True

    def _enter(self, element: Any, tag: str) -> None:
        if tag == "br":
            self._buffer.append("\n")
        elif tag == "q":
            self._buffer.append("“")
        elif tag == "a":
            self._links += _within(element)
        elif tag == "pre":
            self._end_block()
            self._preformatted += 1
        elif tag in _BLOCKS:
            if not self._initial and not _is_initial(element):
                self._end_block()
            self._initial = False
            if self._verse or _is_stanza(element):
                if not self._verse:
                    self._flush()
                self._verse += 1

    def _leave(self, element: Any, tag: str) -> None:
        if tag == "q":
            self._buffer.append("”")
        elif tag == "a":
            self._links -= _within(element)
        elif tag == "pre":
            self._preformatted -= 1
            self._end_block()
        elif tag in _BLOCKS:
            if self._verse:
                self._verse -= 1
                if not self._verse:
                    self._flush()
            self._initial = _is_initial(element)
            if not self._initial:
                self._end_block()

    def _add(self, text: str | None) -> None:
        if text:
            self._buffer.append((_SPACE_IN_LINE if self._preformatted else _SPACE).sub(" ", text))
            self._linked += len(text.strip()) if self._links else 0

    def _end_block(self) -> None:
        if self._verse:
            self._buffer.append("\r")  # a line of verse ends; however many blocks end there, it is one line
        else:
            self._flush()

    def _flush(self) -> None:
        text = "".join(self._buffer).translate(_INVISIBLE)
        linked, note = self._linked, self._note
        self._buffer, self._linked, self._note = [], 0, False
        text = re.sub(r" ?\r[ \r]*", "\n", text)
        for paragraph in re.split(r"\n *\n", text):
            lines = (" ".join(line.split()) for line in paragraph.split("\n"))
            plain = "\n".join(line for line in lines if line)
            if not plain:
                continue
            if note:
                self.page.left_out["notes"] += 1
            elif linked >= 0.9 * len(text.strip()):
                self.page.left_out["contents"] += 1
            elif not any(character.isalpha() for character in plain):
                self.page.left_out["ornaments"] += 1
            else:
                self.page.paragraphs.append(plain)


def _is_initial(element: Any) -> bool:
    """A block of its own for the first letter of the paragraph behind it."""
    return (
        bool(_DROP_CAP.search((element.get("class") or "").lower())) and len("".join(element.itertext()).strip()) <= 2
    )


def _within(link: Any) -> bool:
    """Whether it leads to a place in the book."""
    target = link.get("href") or ""
    return bool(target) and ":" not in target.partition("#")[0]


def _is_stanza(element: Any) -> bool:
    """Whether the blocks in it are the lines of one stanza."""
    words = _words(element)
    if not words or _STANZA.search(words):
        return bool(words)
    if not _POEM.search(words):
        return False
    within = list(islice(element.iterdescendants(), SMALL_NODES + 1))
    lines = [each for each in within if local_name(each) in _BLOCKS]
    return (
        len(within) <= SMALL_NODES
        and len(lines) > 1
        and not any(local_name(each) == "br" or _STANZA.search(_words(each)) for each in within)
    )


def _words(element: Any) -> str:
    """Class and types, by which verse is known."""
    return f"{element.get('class') or ''} {' '.join(_types(element))}".lower().strip() if element.attrib else ""
