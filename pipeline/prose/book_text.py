"""A book's text becomes its prose: paragraphs without headings, tables of contents, title pages, notes and page numbers."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.prose.book_headings import (
    ADVERTS,
    CONTENTS,
    NOTES,
    PUBLISHER,
    bare,
    has_number_only,
    is_end,
    is_heading,
    is_page_number,
    is_separator,
    title_like,
)
from pipeline.prose.book_layout import Block, blocks
from pipeline.prose.gutenberg import is_credit
from pipeline.prose.sentence_lines import Layout, Section, boundaries, layout

__all__ = ["BookText", "Section", "boundaries", "from_blocks", "is_heading", "paragraphs"]

FRONT_SHARE = 0.2
"""Title pages and tables of contents stand before this share of a book's characters."""
BACK_SHARE = 0.8
"""Adverts, indexes and transcriber's notes stand behind this share."""
FRONT_CHARACTERS = 3000
"""… but at least so many characters are looked at, for texts that are short."""
TITLE_CHARACTERS = 140
PROSE_CHARACTERS = 200
"""A paragraph as long as this is prose also on a title page."""
NOTE_CHARACTERS = 20_000
"""A bracketed note that is longer has lost its closing bracket."""


@dataclass(frozen=True)
class BookText:
    """The prose of a book.

    `paragraphs` hold no blank line and single spaces; "\\n" stands only between the lines of verse, or between the
    sentences of a section where `layout` is "sentence_per_line". `counts` says how many of what was dropped or repaired:
    headings, title_page, contents_lines, page_numbers, separators, illustrations, footnotes, footnote_marks, notes (of
    transcribers), back_matter (blocks behind the end), hyphens_joined; only what occurred.
    """

    paragraphs: tuple[str, ...]
    counts: dict[str, int]
    layout: Literal["paragraphs", "sentence_per_line"]
    pretokenised: bool
    lowercased: bool


def paragraphs(text: str) -> BookText:
    """The prose of one book (without Project Gutenberg's header: `pipeline.prose.gutenberg.strip_gutenberg`) in any layout.

    A text with a sentence a line gives one paragraph for each section that `boundaries` finds, its lines kept.
    Takes linear time in the length of the text, whatever it holds.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    found = layout(text)
    if found.sentence_per_line:
        lines = text.split("\n")
        sections = list(boundaries(lines))
        kept = sum(len(section.lines) for section in sections)
        headings = Counter(headings=sum(bool(line.strip()) for line in lines) - kept)
        return _book(["\n".join(section.lines) for section in sections], headings, found)
    counts: Counter[str] = Counter()
    parts, joiner = blocks(_without_marks(text, counts))
    prose = _Rules(parts, counts).prose()
    counts["hyphens_joined"] += joiner.hyphens_removed
    return _book(prose, counts, found)


def from_blocks(texts: Sequence[str]) -> BookText:
    """The same rules for paragraphs that are known already (an EPUB's blocks); "\\n" in one is a line of verse."""
    # Blank lines separate them, and none was wrapped by hand: one space for each line break that is no verse.
    counts: Counter[str] = Counter()
    parts: list[Block] = []
    for text in texts:
        lines = [" ".join(line.split()) for line in _without_marks(text, counts).split("\n")]
        lines = [line for line in lines if line]
        if lines:
            kept = tuple(lines) if 1 < len(lines) <= 12 else ()
            parts.append(Block("\n".join(lines), 1, 0, kept))
    prose = _Rules(parts, counts).prose()
    found = layout("\n".join(prose))
    return _book(prose, counts, replace(found, sentence_per_line=False))


def _book(kept: Sequence[str], counts: Counter[str], found: Layout) -> BookText:
    return BookText(
        tuple(kept),
        {key: count for key, count in sorted(counts.items()) if count},
        "sentence_per_line" if found.sentence_per_line else "paragraphs",
        found.pretokenised,
        found.lowercased,
    )


# --- marks inside the text ---------------------------------------------------------------------------------------------

_NOTE = re.compile(
    r"\[ ?_?(?P<what>illustration|illustrations|illustrated|footnote|footnotes|sidenote|side-?note|headnote|picture|image|music"
    r"|decoration|frontispiece|cover|map|plate|blank page|transcriber|transcribers|transcriber'?s|transcription note|redactor'?s"
    r"|editor's note|note\s*:|proofreader|errata|greek|tr\.? note|tn|t\.n|abbildung|fußnote|anmerkung der transkription|note de"
    r" transcri|note du transcri|ilustración|nota del? transcri|illustrazione|handwritten|hand-?written)\b",
    re.I,
)
_BRACKETS = re.compile(r"[\[\]]")
_ILLUSTRATIONS = ("illus", "pict", "imag", "musi", "deco", "fron", "cove", "map", "plat", "blan", "abbi", "ilus")
_FOOTNOTES = ("foot", "side", "head", "fußn")
_KEPT_NOTES = ("gree", "hand", "note:")
# These begin with the one character that is rare: a search looks for it alone.
_INLINE_PAGES = {
    "[": re.compile(r"\[(?:Pg|pg|Page|p\.|S\.)\s?(?:\d{1,4}|[ivxlc]{1,8})\]\s?"),
    "{": re.compile(r"\{(?:p\. ?)?(?:\d{1,4}|[ivxlc]{1,7})\}"),
}
_FOOTNOTE_MARK = re.compile(r"(?<=[^\s\[])[^\S\n]?\[(?:\d{1,3}|[A-Z]|\*{1,3}|[†‡§])\](?![(\w])")
_FOOTNOTE_BODY = re.compile(
    r"\s*(?:\[(?P<mark>\d{1,3}|[A-Z]|\*{1,3}|[†‡§])\] |(?:Footnote|FOOTNOTE|Fußnote) (?P<mark2>\w{1,4})[:.] )\S"
)
_ITALICS = re.compile(r"_(?:(?<![_\w]_)(?=[^_\s])|(?<=[^_\s]_)(?![_\w]))")
_PAIRED = re.compile(
    r"(?<![\w=~])([=~])(?=[^\s=~])([^\n=~]{1,200}(?:\n(?!\n)[^\n=~]{1,200}){0,3})(?<=[^\s=~])\1(?![\w=~])"
)
_TAGS = re.compile(r"</?(?:i|b|em|strong|sc|small|u|big)>", re.I)
_POETRY_MARKS = re.compile(r"^/[*#$Pp]+(?:\[[^\]\n]{0,20}\])?$|^[*#$Pp]/$", re.M)


def _without_marks(text: str, counts: Counter[str]) -> str:
    """Without bracketed notes, page numbers and footnote marks inside lines, and the signs of italics and bold."""
    if "[" in text:
        text = _without_notes(text, counts)
    for bracket, page in _INLINE_PAGES.items():
        if bracket in text:
            text, pages = page.subn("", text)
            counts["page_numbers"] += pages
    if "_" in text:
        text = _ITALICS.sub("", text)
    if "=" in text or "~" in text:
        text = _PAIRED.sub(r"\2", text)
    if "<" in text:
        text = _TAGS.sub("", text)
    if "\n/" in text or "/\n" in text:
        text = _POETRY_MARKS.sub("", text)
    return text


def _without_notes(text: str, counts: Counter[str]) -> str:
    starts = list(_NOTE.finditer(text))
    if not starts:
        return text
    closing: dict[int, int] = {}
    opened: list[int] = []
    for bracket in _BRACKETS.finditer(text):
        if bracket[0] == "[":
            opened.append(bracket.start())
        elif opened:
            closing[opened.pop()] = bracket.end()
    parts: list[str] = []
    done = paragraph_end = 0
    for note in starts:
        if note.start() < done:
            continue
        what = note["what"].lower()
        if what.startswith(_KEPT_NOTES):
            continue
        end = closing.get(note.start(), -1)
        if end < 0 or end - note.start() > NOTE_CHARACTERS:
            if paragraph_end < note.end():
                paragraph_end = text.find("\n\n", note.end())
                paragraph_end = len(text) if paragraph_end < 0 else paragraph_end
            end = paragraph_end
            if end - note.start() > NOTE_CHARACTERS:
                continue
        kind = (
            "illustrations"
            if what.startswith(_ILLUSTRATIONS)
            else "footnotes"
            if what.startswith(_FOOTNOTES)
            else "notes"
        )
        counts[kind] += 1
        parts.append(text[done : note.start()])
        done = end
    return "".join([*parts, text[done:]])


# --- rules on blocks ---------------------------------------------------------------------------------------------------

_TERMINAL = re.compile(r".*?(?:[.!?…:;][\"'”’»)\]]*(?: ?\[\w{1,3}\])?|[—\"”»]|--)\Z", re.S)
_SENTENCE_END = re.compile(r".*?[.!?…][\"'”’»)\]]*\Z", re.S)
TAIL = 40
"""So many last characters tell how a paragraph ends."""
_QUOTES = '"“”«»„‘'
_SPEECH = _QUOTES + "'"
"""Begin no heading, page number or separator."""
_PAGE_AT_END = re.compile(r"(?:\s{2,}|\.{2,}|(?: \.){2,}|\s|…|_|—)(?:\d{1,4}|[ivxlc]{1,7})\.?$")
_LEADERS = re.compile(
    r"\s{3,}\d{1,4}\.?$|(?:\. ?){3,} ?(?:\d{1,4}|[ivxlc]+)?\.?$|\s{2,}(?:_?Frontispiece_?|facing|To face)", re.I
)
_CONTENTS_ITEM = re.compile(
    r"\s*(?:(?:chapter|chap\.?|book|part|act|scene|kapitel|chapitre|livre|cap[íi]tulo|capitolo|letter)\b|[IVXLC]{1,8}[.:—\s-]|\d{1,3}[.:)—\s-])",
    re.I,
)
_BY_LINE = re.compile(r"(?:by|von|par|por|di|edited by|translated by)(?: [A-Z].{0,80})?|(?i:by|and|or|oder|ou|to)")
_DATE_LINE = re.compile(r"(?:[A-Z][\w.'’ ]{1,40}, ?){0,3}(?:[A-Z][a-z]+\.? )?(?:\d{1,2},? )?\d{4}\.?")
_LOWER_START = re.compile(r"[\"'“‘(—-]{0,2}[a-zà-öø-ÿ]")


_CREDITED = ("gutenberg", "pgdp", "proofread", "etext", "e-text", "archive.org", "internet archive")


class _Rules:
    """Decides for each block in turn what it is; prose stays."""

    def __init__(self, parts: list[Block], counts: Counter[str]) -> None:
        self.parts = parts
        self.counts = counts
        self.keys: list[str | None] = [None] * len(parts)
        """Of each block: why it is dropped; None for prose."""
        self.total = sum(len(part.text) for part in parts)
        self.offsets = _offsets(parts)

    def prose(self) -> list[str]:
        """The paragraphs that stay; what is dropped is counted."""
        self._simple()
        front = self._contents()
        self._titles()
        self._listed_titles(front)
        self._capitals()
        self._front()
        self._back()
        self._notes()
        for key in self.keys:
            if key:
                self.counts[key] += 1
        return self._joined()

    def _simple(self) -> None:
        """Blocks that their own text decides."""
        keys = self.keys
        for number, part in enumerate(self.parts):
            text = part.text
            if text[0] in _SPEECH or (len(text) > 160 and not text.startswith(("[", "Footnote", "FOOTNOTE"))):
                continue
            if is_separator(text):
                keys[number] = "separators"
            elif is_end(text):
                keys[number] = "headings"
            elif is_heading(text) and not self._in_sentence(number):
                alone = text.strip(" .[]()-")
                keys[number] = "page_numbers" if self._is_page(number, alone) else "headings"
            elif is_page_number(text):
                keys[number] = "page_numbers"
            elif part.lines and all(is_heading(line) or is_page_number(line) for line in part.lines):
                keys[number] = "headings"

    def _is_page(self, number: int, alone: str) -> bool:
        return alone.isdigit() and int(alone) > 99

    def _in_sentence(self, number: int) -> bool:
        """Whether the block is the next half of a sentence or a list: an item "2. Bread" behind "… as follows:"."""
        if not number:
            return False
        before = self.parts[number - 1].text
        return (
            before[-1] in ":,"
            and len(before) > 30
            and len(self.parts[number].text) > 12
            and self.keys[number - 1] is None
        )

    def _contents(self) -> set[str]:
        """Drops tables of contents and lists of illustrations; returns the titles that they list."""
        titles: set[str] = set()
        number = 0
        while number < len(self.parts):
            lines = self._raw(number)
            if self._late(number):
                number += 1
            elif len(lines[0]) < 60 and lines[0][0] not in _SPEECH and CONTENTS.fullmatch(bare(lines[0]).rstrip(".:")):
                number = self._list(number, titles)
            elif len(lines) > 2 and sum(map(_has_leaders, lines)) > 0.5 * len(lines):
                self._drop_item(number, titles)
                number += 1
            else:
                number += 1
        return titles

    def _front_characters(self) -> float:
        return max(FRONT_SHARE * self.total, FRONT_CHARACTERS)

    def _raw(self, number: int) -> Sequence[str]:
        return self.parts[number].lines or (self.parts[number].text,)

    def _late(self, number: int) -> bool:
        return self._front_characters() < self.offsets[number] < BACK_SHARE * self.total

    def _list(self, number: int, titles: set[str]) -> int:
        """Drops the items behind the heading at `number`; returns the number of the first block behind them."""
        self.keys[number] = "headings"
        known = frozenset(titles)  # of lists before this one
        for line in self._raw(number)[1:]:
            _note_title(line, titles)
        if len(self._raw(number)) > 1:
            known = frozenset(titles)
        seen: list[str] = []
        last = number
        stop = min(len(self.parts), number + 400)
        for item in range(number + 1, stop):
            text = self.parts[item].text
            flat = bare(text)
            if (flat.lower() in seen[:3] and len(seen) > 2) or _title_key(flat) in known:
                break  # the first chapter itself
            if not self._is_item(item):
                break
            if self.keys[item] is None or len(text) < 12:
                last = item
            if flat:
                seen.append(flat.lower())
        for item in range(number + 1, last + 1):
            self._drop_item(item, titles)
        return last + 1

    def _is_item(self, number: int) -> bool:
        if self.keys[number]:
            return True
        part = self.parts[number]
        text = part.text
        flat = text.replace("\n", " ")
        if _PAGE_AT_END.search(flat[-TAIL:]) and len(flat) < 1000:
            return True
        if part.lines and sum(
            bool(_PAGE_AT_END.search(line[-TAIL:]) or _CONTENTS_ITEM.match(line)) for line in part.lines
        ) > 0.5 * len(part.lines):
            return True
        if _CONTENTS_ITEM.match(flat) and (len(flat) < 120 or flat.count("--") + flat.count("—") > 2):
            return True
        if flat.lower().strip(" .") in (
            "page",
            "chap. page",
            "chapter page",
            "chapter",
            "chap",
            "facing page",
            "seite",
        ):
            return True
        if len(flat) > 100 and not part.lines:
            return False
        if part.lines:
            return all(len(line) < 80 and (line.isupper() or title_like(line)) for line in part.lines)
        if flat[0] in _QUOTES and _TERMINAL.match(flat[-TAIL:]):
            return flat.isupper()
        return flat.isupper() or title_like(flat) or (not _TERMINAL.match(flat[-TAIL:]) and len(flat) < 60)

    def _drop_item(self, number: int, titles: set[str]) -> None:
        self.keys[number] = "contents_lines"
        for line in self._raw(number):
            _note_title(line, titles)

    def _titles(self) -> None:
        """Drops the titles that follow the numbers of chapters, where they are on a line of their own."""
        parts, keys = self.parts, self.keys
        numbers = [
            n
            for n, key in enumerate(keys)
            if key == "headings" and n + 1 < len(parts) and has_number_only(parts[n].text)
        ]
        after = [n + 1 for n in numbers if keys[n + 1] is None]
        short = [
            n
            for n in after
            if len(parts[n].text) < 90 and len(parts[n].text.split("\n")) <= 3 and parts[n].text[0] not in _QUOTES
        ]
        usual = len(short) >= 3 and len(short) > 0.6 * len(after)
        for n in after:
            text = parts[n].text
            if self._is_title(text, usual):
                keys[n] = "headings"
                # A second line of the title, or a subtitle in capitals.
                following = n + 1
                while (
                    following < len(parts)
                    and following < n + 3
                    and keys[following] is None
                    and parts[following].text.isupper()
                    and len(parts[following].text) < TITLE_CHARACTERS
                ):
                    keys[following] = "headings"
                    following += 1

    def _is_title(self, text: str, usual: bool) -> bool:
        flat = text.replace("\n", " ")
        if len(flat) > TITLE_CHARACTERS or flat[0].islower():
            return False
        if flat.isupper():
            return True
        if flat[0] in _QUOTES and not (flat[-1] in _QUOTES and title_like(flat) and flat[-2] not in ".!?,"):
            return False
        if not _TERMINAL.match(flat[-TAIL:]) and flat[-1] not in ",-—":
            return len(flat) < 100 and (title_like(flat) or usual or len(flat) < 60)
        if flat[-1] in ",:;—":
            return False
        return len(flat) < 90 and (title_like(flat) or usual) and flat[0] not in _QUOTES

    def _listed_titles(self, titles: set[str]) -> None:
        """Drops blocks that repeat a title of the table of contents."""
        if not titles:
            return
        for number, part in enumerate(self.parts):
            if self.keys[number] is None and len(part.text) < TITLE_CHARACTERS:
                for line in (part.text.replace("\n", " "), *(part.lines[:1] if len(part.lines) < 4 else ())):
                    if _title_key(line) in titles and not (line[0] in _QUOTES and _SENTENCE_END.match(line[-TAIL:])):
                        self.keys[number] = "headings"
                        break

    def _capitals(self) -> None:
        """Drops titles in capitals: with more space before them than paragraphs have, or beside another heading."""
        parts, keys = self.parts, self.keys
        spaced = sum(part.gap > 1 for part in parts) < 0.25 * len(parts)
        candidates = [
            n
            for n, part in enumerate(parts)
            if keys[n] is None
            and len(part.text) <= TITLE_CHARACTERS
            and part.text.isupper()
            and _is_capital_title(part.text)
        ]
        repeated = Counter(parts[n].text for n in candidates)
        for n in candidates:
            before = n > 0 and keys[n - 1] in ("headings", "contents_lines", "separators")
            after = n + 1 < len(parts) and keys[n + 1] in ("headings",)
            text = parts[n].text
            open_before = n > 0 and keys[n - 1] is None and parts[n - 1].text[-1] in ":,;-—"
            gap = spaced and parts[n].gap > 1
            if not self._ended(n):
                continue  # a word in capitals at the beginning of a sentence, or one that a sentence names
            alone = text[-1] not in ".!?,:;" or (text[-1] == "." and (text.count(" ") >= 3 or repeated[text] > 2))
            if before or after or gap or (alone and not open_before):
                keys[n] = "headings"

    def _ended(self, number: int) -> bool:
        """Whether the block before ended its sentence, and the next one does not go on with it."""
        ended = (
            number == 0
            or self.keys[number - 1] is not None
            or bool(_SENTENCE_END.match(self.parts[number - 1].text[-TAIL:]))
        )
        goes_on = number + 1 < len(self.parts) and _LOWER_START.match(self.parts[number + 1].text)
        apart = number > 0 and self.parts[number].gap > 2
        return (ended or apart) and not goes_on

    def _front(self) -> None:
        """Drops title page, dedication and imprint: what stands before the first heading or paragraph of prose and is
        no sentence."""
        stop = self._front_end()
        first = next((n for n in range(stop) if self.keys[n] is None and _is_prose(self.parts[n])), stop)
        for n in range(stop):
            if self.keys[n] is not None:
                continue
            part = self.parts[n] = _without_title_lines(self.parts[n])
            text = part.text.replace("\n", " ")
            if not text:
                self.keys[n] = "title_page"
                continue
            if len(text) >= PROSE_CHARACTERS and not (n < first and PUBLISHER.search(text) and len(text) < 600):
                continue
            if n > first and not self._front_line(part, text):
                continue
            if n <= first and _is_sentence(part) and not PUBLISHER.search(text):
                continue
            self.keys[n] = "title_page"

    def _front_end(self) -> int:
        """The number of the last heading before the book's prose begins, or of its first paragraph where no heading comes.

        An epigraph or a dedication is prose as well: what stands before the first heading of a chapter is the book's
        beginning only if it is long.
        """
        limit = self._front_characters()
        heading = characters = 0
        first: int | None = None
        chapter = False
        for n, part in enumerate(self.parts):
            if self.offsets[n] > limit:
                break
            if self.keys[n] in ("headings", "contents_lines"):
                if is_end(part.text):
                    break
                heading = n
                chapter = chapter or (self.keys[n] == "headings" and is_heading(part.text))
            elif self.keys[n] is None and "\n" not in part.text and (_is_prose(part) or _is_sentence(part)):
                if len(part.text) < 600 and PUBLISHER.search(part.text):
                    continue
                first = n if first is None else first
                characters += len(part.text)
                if chapter or characters > FRONT_CHARACTERS:
                    break
        return heading or first or 0

    def _front_line(self, part: Block, text: str) -> bool:
        if PUBLISHER.search(text) and not _is_prose(part):
            return True
        if text.isupper() or _BY_LINE.fullmatch(text) or _DATE_LINE.fullmatch(text):
            return len(text) < TITLE_CHARACTERS
        return False

    def _back(self) -> None:
        """Drops what stands behind the last "THE END", and adverts, indexes and notes at the end of the book."""
        parts = self.parts
        limit = self.total * BACK_SHARE
        first = len(parts)
        while first and self.offsets[first - 1] > limit:
            first -= 1
        end = None
        for n in range(first, len(parts)):
            text = parts[n].text
            if len(text) > 90:
                continue
            flat = bare(text)
            if is_end(text) and re.match(r"(?:the )?(?:end|finis|fin|fine|ende|fim|einde|slut)\W*$", flat, re.I):
                end = n
            elif flat.isupper() or self.keys[n]:
                name = flat.strip(".:")
                late = self.total - self.offsets[n] < 0.15 * self.total
                if late and (ADVERTS.fullmatch(name) or NOTES.fullmatch(name)) and self._is_back(n + 1):
                    self._drop_back(n)
                    break
        if end is not None and (self.total - self.offsets[end] < 0.08 * self.total or self._is_back(end + 1)):
            self._drop_back(end + 1)

    def _is_back(self, number: int) -> bool:
        """Whether few of the blocks from here on are paragraphs of prose."""
        rest = self.parts[number:]
        prose = sum(
            len(part.text)
            for part in rest
            if _is_prose(part) and not PUBLISHER.search(part.text) and not _numbered(part.text)
        )
        return prose < 0.5 * sum(len(part.text) for part in rest) or not rest

    def _drop_back(self, number: int) -> None:
        for n in range(number, len(self.parts)):
            self.keys[n] = "back_matter"

    def _notes(self) -> None:
        """Drops credits, transcriber's notes and the bodies of footnotes."""
        parts, keys = self.parts, self.keys
        marks = {
            match[0].strip(" []") for part in parts if "[" in part.text for match in _FOOTNOTE_MARK.finditer(part.text)
        }
        n = 0
        in_footnotes = False
        while n < len(parts):
            text = parts[n].text
            near_end = n < 60 or n >= len(parts) - 60
            if keys[n] is None and (body := _FOOTNOTE_BODY.match(text)):
                mark = body["mark"] or body["mark2"]
                if mark in marks or body["mark2"] or in_footnotes:
                    keys[n] = "footnotes"
            elif keys[n] is None and in_footnotes and _numbered(text):
                keys[n] = "footnotes"
            elif (
                near_end
                and len(text) < 3000
                and keys[n] is None
                and any(word in text.lower() for word in _CREDITED)
                and is_credit(text)
            ):
                keys[n] = "notes"
            elif near_end and len(text) < 3000 and NOTES.match(text.lstrip(" *[_+-|")):
                n = self._drop_notes(n)
            if len(text) < 20:
                in_footnotes = bare(text).lower().strip(".:") in (
                    "footnotes",
                    "footnote",
                    "notes",
                    "fußnoten",
                    "notas",
                    "note",
                )
                if in_footnotes and keys[n] is None:
                    keys[n] = "headings"
            n += 1

    def _drop_notes(self, number: int) -> int:
        """Drops a transcriber's note, with the blocks that follow its title up to a wider gap or a heading."""
        self.keys[number] = "notes"
        late = self.offsets[number] > 0.9 * self.total
        title_only = len(self.parts[number].text) < 60
        last = number
        for n in range(number + 1, min(len(self.parts), number + (10_000 if late else 12))):
            part = self.parts[n]
            if not late and (not title_only or (part.gap > 2 and n > number + 1) or self.keys[n] == "headings"):
                break
            if (
                not late
                and n > number + 1
                and part.gap <= 1
                and not re.search(r"transcri|spelling|punctuation|hyphen|typograph|original|error", part.text, re.I)
            ):
                break
            self.keys[n] = "notes"
            last = n
        return last

    def _joined(self) -> list[str]:
        """The prose; halves of a sentence that a page break or a note had parted are joined."""
        kept: list[list[str]] = []
        before: str | None = None
        """The text that the next block may go on with; None behind a heading."""
        aside = False
        for part, key in zip(self.parts, self.keys, strict=True):
            if key in ("page_numbers", "footnotes", "illustrations"):
                continue
            if key:
                before, aside = None, False
                continue
            text = self._unmarked(part.text)
            if not text:
                continue
            if before is not None and _goes_on(before, text):
                if aside:
                    kept.pop()
                    self.counts["footnotes"] += 1
                kept[-1].append(text if text[0] in ",.;:!?" else f" {text}")
                before, aside = text, False
                continue
            # A short line set in between the halves of a sentence is a note, if the other half comes.
            aside = not aside and before is not None and part.indent > 0 and len(text) < 80 and _is_open(before)
            aside = aside and not part.lines
            before = before if aside else text
            kept.append([text])
        return ["".join(texts) for texts in kept]

    def _unmarked(self, text: str) -> str:
        if "[" not in text:
            return text
        text, marks = _FOOTNOTE_MARK.subn("", text)
        self.counts["footnote_marks"] += marks
        return text.strip()


def _has_leaders(line: str) -> bool:
    """Whether dots or wide space lead from the end of a line to the number of a page."""
    end = line[-TAIL:]
    # What every such end holds, looked for before the expression: no line of prose does.
    return ("  " in end or ".." in end or ". ." in end) and _LEADERS.search(end) is not None


def _is_open(text: str) -> bool:
    """Whether a paragraph breaks off in the middle of a sentence: it ends with a word or a comma."""
    return "\n" not in text and (text[-1].isalnum() or text[-1] == ",")


def _goes_on(before: str, text: str) -> bool:
    return (
        _is_open(before) and "\n" not in text and (text[0].islower() or (text[0] in ",;.!?" and before[-1] != text[0]))
    )


def _offsets(parts: Sequence[Block]) -> list[int]:
    offsets: list[int] = []
    total = 0
    for part in parts:
        offsets.append(total)
        total += len(part.text)
    return offsets


def _is_prose(part: Block) -> bool:
    text = part.text
    return (
        len(text) >= PROSE_CHARACTERS
        and "\n" not in text
        and bool(_TERMINAL.match(text[-TAIL:]))
        and not _LEADERS.search(text[-TAIL:])
    )


def _is_sentence(part: Block) -> bool:
    """Whether a short block reads like a sentence of prose or is verse of some length."""
    text = part.text
    if "\n" in text:
        return text.count("\n") >= 3 and not text.isupper() and not any(map(str.isupper, text.split("\n")))
    if text.startswith((*_QUOTES, "--", "—", "–")) and _SENTENCE_END.match(text[-TAIL:]):
        return True
    words = text.split()
    lower = sum(word[0].islower() for word in words)
    return len(words) >= 5 and lower >= 0.5 * len(words) and bool(_TERMINAL.match(text[-TAIL:]))


def _without_title_lines(part: Block) -> Block:
    """A stanza without the lines of a title page above it, where no blank line parts them."""
    lines = part.text.split("\n")
    titles = [n for n, line in enumerate(lines[:12]) if line.isupper() or _BY_LINE.fullmatch(line)]
    if len(lines) == 1 or not titles:
        return part
    rest = lines[titles[-1] + 1 :]
    return part._replace(text="\n".join(rest) if len(rest) > 2 else "", lines=())


def _is_capital_title(text: str) -> bool:
    letters = sum(map(str.isalpha, text))
    whole = text[0] not in _QUOTES and text[-1] not in '"”!'
    return letters >= 3 and letters > 0.5 * len(text.replace(" ", "")) and whole


def _numbered(text: str) -> bool:
    return bool(re.match(r"\[?(?:\d{1,3}|[A-Z*†‡])\]?[.):]? ", text))


_TITLE_NUMBER = re.compile(
    r"(?:chapter|book|part|chap\.?|kapitel|chapitre|cap[íi]tulo|capitolo)?\s*(?:[ivxlc]{1,8}|\d{1,3})(?:[.:)—–\s-]+|$)",
    re.I,
)


def _title_key(line: str) -> str:
    """A title without its number, page and punctuation, to compare a table of contents with headings."""
    line = _PAGE_AT_END.sub("", bare(line))
    line = _TITLE_NUMBER.sub("", line, count=1) if _TITLE_NUMBER.match(line) else line
    return "".join(char for char in line.lower() if char.isalnum())


def _note_title(line: str, titles: set[str]) -> None:
    key = _title_key(line)
    if len(key) >= 3:
        titles.add(key)
