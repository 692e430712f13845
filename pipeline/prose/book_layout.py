"""The lines of a book become blocks: paragraphs with their hard-wrapped lines joined, verse with its lines kept.

Four layouts are told apart by counting lines: paragraphs wrapped and separated by blank lines; the same double-spaced;
wrapped without blank lines (an indented first line or a short last one bounds a paragraph); one paragraph a line.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pipeline.prose.book_headings import is_end, is_heading, is_page_number, is_separator

LONG_LINE = 100
"""Characters; a longer line was not wrapped by hand."""
WRAPPED_LINE = 80
"""Columns; nobody wraps the lines of a letter wider."""
FLOW_LINES = 20
"""Where runs of lines between blank lines are longer than this on average, blank lines do not separate paragraphs."""

_TERMINAL = re.compile(r"[.!?:;…][\"'”’»)\]_*]*$|[\"”»]$|—$|--$| [-–]$")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]_]*$")
_SPEECH = "\"'“‘«„"
"""Begin no heading, page number or separator."""


class Block(NamedTuple):
    """A paragraph, a stanza (its lines separated by "\\n"), or a line that stands alone."""

    text: str
    gap: int = 1
    """Blank lines before it."""
    indent: int = 0
    """Of its first line, in spaces from the book's margin."""
    lines: tuple[str, ...] = ()
    """What it was joined from, where that was more than one line and is short enough to be a heading."""


class Joiner:
    """Joins the halves of words and sentences at line ends, by what stands elsewhere in the book."""

    def __init__(self, text: str) -> None:
        # "word--\nnext": with a space only where the book writes "word -- next" inside its lines.
        self.dash = "" if _count(text, _TIGHT_DASHES) >= _count(text, _LOOSE_DASHES) else " "
        self.hyphens_removed = 0
        self._words: Counter[str] = Counter()
        self._keep = True
        """Whether the book's lines were broken only at hyphens that belong to their words."""
        halves = [*_halves(text, _AFTER_LINE_END), *_halves(text, _AFTER_SPACE)]
        if halves:
            self._learn(text, halves)

    def _learn(self, text: str, halves: list[tuple[str, str]]) -> None:
        # A word holds no white space: each string between spaces needs to be looked into only once.
        lowered = text.lower()
        for string, count in Counter((lowered.translate(_SPACED) if text.isascii() else lowered).split()).items():
            if string.isalpha():
                self._words[string] += count
            else:
                for word in _WORD.findall(string):
                    self._words[word] += count
        for left, right in halves:
            self._words.subtract((left.lower(), right.lower()))  # halves are no words
        decided = [self._evidence(left, right) for left, right in halves]
        self._keep = decided.count(True) >= 4 * decided.count(False)

    def _evidence(self, left: str, right: str) -> bool | None:
        """True if the hyphen belongs to the word, False if it only divides it, None if the book does not tell."""
        words, left, right = self._words, left.lower(), right.lower()
        if left[-1].isdigit() or left[-2:-1] in ("", "-") or right[1:2] in ("", "-"):
            return True  # "1914-18", "g-l-o-r-y"
        compound, joined = words[f"{left}-{right}"], words[left.rpartition("-")[2] + right.partition("-")[0]]
        if compound != joined:
            return compound > joined
        return None

    def _are_words(self, left: str, right: str) -> bool:
        words = self._words
        return words[left.lower().rpartition("-")[2]] > 0 and words[right.lower().partition("-")[0]] > 0

    def _is_adjective(self, left: str, right: str) -> bool:
        """Whether it may be an English compound of which no other stands in the book: "three-cornered"."""
        known = self._words[left.lower().rpartition("-")[2]]
        return known > 2 and len(left) > 2 and len(right) > 4 and right.endswith(("ed", "edly", "edness", "like"))

    def hyphen(self, left: str, right: str) -> str:
        """The word of which `left` ended a line with a hyphen and `right` began the next."""
        keep = self._evidence(left, right)
        if keep is None:
            if right in _SUSPENDED:
                return f"{left}- {right}"
            keep = right[0].isupper() or self._keep or self._are_words(left, right) or self._is_adjective(left, right)
        if keep:
            return f"{left}-{right}"
        self.hyphens_removed += 1
        return left + right

    def join(self, lines: Sequence[str]) -> str:
        """One string with single spaces of the hard-wrapped lines of a paragraph."""
        text = "\n".join(lines)
        if "-\n" in text or "\n-" in text or (not text.isascii() and ("—\n" in text or "\n—" in text)):
            text = self._whole_words(text)
            if not self.dash:
                text = _DASH_AT_BREAK.sub(lambda match: match[1], text)
        return self.inline(_single_spaces(text))

    def _whole_words(self, text: str) -> str:
        """The text with the words that hyphens at line ends had parted."""
        parts: list[str] = []
        done = 0
        for match in _AFTER_LINE_END.finditer(text):
            if left := _last_word(text, done, match.start()):
                parts.extend((text[done : left.start()], self.hyphen(left[0], match[1])))
                done = match.end()
        return "".join([*parts, text[done:]])

    def inline(self, text: str) -> str:
        """Repairs "undoubt- edly": lines that someone else joined without looking at the hyphen."""
        if "- " in text and self._words and _PARTED.search(text):
            return _INLINE_HYPHEN.sub(lambda match: self._inline(match[1], match[2]), text)
        return text

    def _inline(self, left: str, right: str) -> str:
        keep = self._evidence(left, right)
        if keep is None and (right in _SUSPENDED or self._are_words(left, right)):
            return f"{left}- {right}"  # perhaps a dash
        if keep is None:
            keep = len(right) > 5 and self._is_adjective(left, right)
        self.hyphens_removed += not keep
        return f"{left}-{right}" if keep else left + right


def _count(text: str, patterns: Mapping[str, re.Pattern[str]]) -> int:
    return sum(len(pattern.findall(text)) for start, pattern in patterns.items() if start in text)


def _single_spaces(text: str) -> str:
    """`" ".join(text.split())`, which a text of single spaces need not go through word by word."""
    flat = text.replace("\n", " ").strip(" ")
    # No other white space is printable.
    return flat if "  " not in flat and flat.isprintable() else " ".join(text.split())


def _halves(text: str, after: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """(left, right) of each word that a hyphen and white space part."""
    for match in after.finditer(text):
        if left := _last_word(text, 0, match.start()):
            yield left[0], match[1]


def _last_word(text: str, start: int, stop: int) -> re.Match[str] | None:
    """The word that ends at `stop`."""
    start = max(start, stop - 60)
    return _LAST_WORD.search(text, max(start, text.rfind(" ", start, stop), text.rfind("\n", start, stop)), stop)


_SPACED = "".join(char if char.isalpha() or char == "-" else " " for char in map(chr, range(128)))
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
# These begin with what is rare, for speed: a search for a word that a hyphen follows looks at every word.
_AFTER_LINE_END = re.compile(r"-\n[^\S\n]*([^\W_]+(?:-[^\W_]+)*)")
_AFTER_SPACE = re.compile(r"- (?=[^\W\d_])([^\W\d_A-Z]{2,})")
_LAST_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*\Z")
_PARTED = re.compile(r"- (?<=[^\W\d_]- )(?=[^\W\d_])[^\W\d_A-Z]{2}")
"""What each match of `_INLINE_HYPHEN` holds."""
_INLINE_HYPHEN = re.compile(r"(?<![\w-])([^\W\d_]{2,}(?:-[^\W\d_]+)*)- (?=[^\W\d_])([^\W\d_A-Z]{2,})")
_TIGHT_DASHES = {dash: re.compile(rf"{dash}\b") for dash in ("--", "—")}
_LOOSE_DASHES = {f"{dash} ": re.compile(rf"{dash} \b") for dash in ("--", "—")}
_DASH_AT_BREAK = re.compile(r"(?<=[^\W_])(--+|—)\n[^\S\n]*(?=\w)")
_SUSPENDED = frozenset("and or to nor und oder bis et ou y o e ed".split())  # noqa: SIM905


def blocks(text: str) -> tuple[list[Block], Joiner]:
    """The blocks of a text with "\\n" newlines, and the joiner that counted the hyphens."""
    text = (
        text.replace("\t", "    ")
        .replace("\u00ad\n", "")
        .replace("\u00ad", "")
        .replace("\f", "\n\n")
        .replace("\v", "\n")
    )
    lines = [line.rstrip() for line in text.split("\n")]
    joiner = Joiner("\n".join(lines))
    filled = [line for line in lines if line]
    if not filled:
        return [], joiner
    lengths = list(map(len, filled))
    long = sum(length for length in lengths if length > LONG_LINE)
    short = sorted(length for length in lengths if length <= LONG_LINE)
    width = short[int(0.95 * (len(short) - 1))] if short else 0
    runs = list(_runs(lines))
    if long < 0.05 * sum(lengths) and _is_poem(runs):
        return list(_stanzas(runs, joiner)), joiner
    if long > 0.5 * sum(lengths):
        return list(_a_paragraph_a_line(runs, joiner)), joiner
    if _is_double_spaced(runs, width):
        runs = list(_runs(list(_single_spaced(lines))))
    if len(filled) > FLOW_LINES * len(runs):
        return list(_flow(runs, joiner, width)), joiner
    if share_indented(runs) > 0.3:
        return list(_flow(runs, joiner, width)), joiner
    return list(_separated(runs, joiner, width)), joiner


class _Run(NamedTuple):
    lines: list[str]
    gap: int


def _runs(lines: Sequence[str]) -> Iterator[_Run]:
    """The lines between blank lines, with the number of the blank lines before."""
    run: list[str] = []
    gap = blank = 0
    for line in lines:
        if line:
            if not run:
                gap, blank = blank, 0
            run.append(line)
        else:
            if run:
                yield _Run(run, gap)
                run = []
            blank += 1
    if run:
        yield _Run(run, gap)


def _is_poem(runs: Sequence[_Run]) -> bool:
    """Whether hardly a line in the whole text goes on with a small letter, as lines of prose do."""
    later = [line.lstrip("\"'“‘ (_")[:1] for run in runs for line in run.lines[1:]]
    return len(later) > 100 and sum(map(str.isupper, later)) > 0.85 * len(later)


def _begin_large(lines: Sequence[str]) -> bool:
    """Whether most lines behind the first begin with a capital; those of a preface do not."""
    return sum(line.lstrip("\"'“‘ (_")[:1].isupper() for line in lines[1:]) >= 0.6 * (len(lines) - 1)


def _stanzas(runs: Sequence[_Run], joiner: Joiner) -> Iterator[Block]:
    """Every line of a poem stays one; stanzas end at blank lines and before an indented line that lines at the margin
    surround (a paragraph of blank verse)."""
    for run in runs:
        gap = run.gap
        for piece in _pieces(run):
            lines = piece.lines
            starts = [
                number
                for number, (before, line) in enumerate(pairwise(lines), 1)
                if _indent(line) > 1 and not _indent(before) and _SENTENCE_END.search(before)
            ]
            several = 3 * len(starts) < len(lines)  # else every other line is set in: one stanza
            for start, stop in pairwise([0, *(starts if several else []), len(lines)]):
                part = tuple(" ".join(line.split()) for line in lines[start:stop])
                yield Block(
                    "\n".join(map(joiner.inline, part)) if _begin_large(part) else joiner.join(part),
                    gap,
                    _indent(lines[start]),
                    part if 1 < len(part) <= 12 else (),
                )
                gap = 0


def _is_double_spaced(runs: Sequence[_Run], width: int) -> bool:
    """Whether a blank line follows every line, so that single blank lines stand inside sentences."""
    if width < 30 or len(runs) < 8:
        return False
    if sum(len(run.lines) > 1 for run in runs) > 0.05 * len(runs):
        return False
    pairs = [(a, b) for a, b in pairwise(runs) if b.gap == 1]
    inside = sum(len(a.lines[-1]) > 0.6 * width and not _TERMINAL.search(a.lines[-1]) for a, _ in pairs)
    return inside > 0.3 * len(runs)


def _single_spaced(lines: Sequence[str]) -> Iterator[str]:
    blank = 0
    for line in lines:
        if not line:
            blank += 1
            continue
        yield from [""] * (blank // 2)
        blank = 0
        yield line


def share_indented(runs: Sequence[_Run]) -> float:
    """The share of the runs in which a later line is indented by 1 to 8 spaces and the first or the one before is not:
    where it is large, indented lines begin paragraphs even though there are blank lines."""
    several = [run for run in runs if len(run.lines) > 2]
    if not several:
        return 0.0
    return sum(_begins_inside(run.lines) for run in several) / len(several)


def _begins_inside(lines: Sequence[str]) -> bool:
    return any(
        second[0] == " " and first[0] != " " and _SENTENCE_END.search(first) and _indent(second) <= 8
        for first, second in pairwise(lines)
    )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line[0].isspace() else 0


def _alone(line: str) -> bool:
    """Whether a line is a block of its own, whatever stands around it."""
    return len(line) < LONG_LINE and (
        is_separator(line.strip()) or (is_heading(line) and _surely(line)) or is_end(line)
    )


_SURE = re.compile(
    r"\s*_?(?:\[?(?:Pg|Page) |(?:chapter|kapitel|chapitre|cap[íi]tulo|capitolo|book|part|buch|teil|livre|libro|act|scene|stave"
    r"|volume|canto)\b|[IVXLC]+\.?_?$|\d{1,3}\.?$)|.*\b(?:kapitel|part|partie|parte|chapter|book|buch|teil)\.?$",
    re.I,
)


def _surely(line: str) -> bool:
    return bool(_SURE.match(line))


def _pieces(run: _Run) -> Iterator[_Run]:
    """The run, with headings, separators and page numbers that stand directly above or below text as runs of their own."""
    if len(run.lines) == 1:
        yield run
        return
    maybe, maybe_short = _MAYBE.match, _MAYBE_SHORT.match
    alone = [
        number
        for number, line in enumerate(run.lines)
        if len(line) < 80
        and line[0] not in _SPEECH
        and not (len(line) > 32 and line[0].islower())
        and (maybe(line) or ((len(line) <= 40 or line[0] == " ") and maybe_short(line)))
        and (_alone(line) or (line[0] in "[{" and is_page_number(line)))
    ]
    if not alone:
        yield run
        return
    first = 0
    gap = run.gap
    for number in alone:
        if number > first:
            yield _Run(run.lines[first:number], gap)
            gap = 0
        yield _Run([run.lines[number]], gap)
        gap = 0
        first = number + 1
    if first < len(run.lines):
        yield _Run(run.lines[first:], gap)


_MAYBE = re.compile(
    r"\s*(?:[\W_]|\d{1,3}\.?$|[IVXLC]+\.?$|[CcKBPALSTVFUE](?:HAP|hap|AP|ap|OO|oo|AR|ar|ct|CT|iv|IV|ib|IB|ei|EI|ta|TA|ce|CE|uc|UC|ol"
    r"|OL|IN|in|ND|nd|an|AN))"
)
_MAYBE_SHORT = re.compile(
    r"\s*.{3,24}(?:apitel|APITEL|hapter|HAPTER|art|ART|artie|ARTIE|arte|ARTE|ook|OOK|EIL|eil|END)\.?$"
)
"""At most 40 characters behind the indent."""


def _separated(runs: Sequence[_Run], joiner: Joiner, width: int) -> Iterator[Block]:
    """Paragraphs between blank lines."""
    margin, first = _margins(runs)
    for whole in runs:
        for run in _pieces(whole):
            lines = run.lines
            if first > margin and _indent(lines[0]) == first and all(_indent(line) <= margin for line in lines[1:]):
                lines = [lines[0][first - margin :], *lines[1:]]
            if len(lines) == 1:
                yield Block(joiner.join([lines[0].strip()]), run.gap, _indent(lines[0]) - margin)
                continue
            yield from _set(lines, run.gap, margin, width, joiner)


def _set(lines: list[str], gap: int, margin: int, width: int, joiner: Joiner) -> Iterator[Block]:
    """The block of a run of several lines; verse that stands inside a paragraph's run on its own."""
    indents = [_indent(line) for line in lines] if lines[0][0] == " " or "\n " in "\n".join(lines) else None
    stripped = [line.strip() for line in lines] if indents else lines
    kept = tuple(stripped) if len(lines) <= 12 and sum(map(len, stripped)) <= 800 else ()
    if indents and min(indents) <= margin < max(indents) and len(lines) > 3:
        # Lines set in by four or more in the middle of a paragraph are verse or a letter of their own.
        inner = [indent >= margin + 4 for indent in indents]
        if inner[0] is False and any(inner[i] and inner[i + 1] for i in range(len(inner) - 1)):
            start = 0
            for stop in range(1, len(lines) + 1):
                if stop == len(lines) or inner[stop] != inner[start]:
                    yield from _set(
                        lines[start:stop], gap if not start else 0, margin if not inner[start] else -1, width, joiner
                    )
                    start = stop
            return
    if is_verse(stripped, min(indents) - max(margin, 0) if indents else 0, width):
        yield Block(
            "\n".join(joiner.inline(" ".join(line.split())) for line in stripped),
            gap,
            indents[0] - max(margin, 0) if indents else 0,
            kept,
        )
    else:
        yield Block(joiner.join(stripped), gap, indents[0] - max(margin, 0) if indents else 0, kept)


def _margins(runs: Sequence[_Run]) -> tuple[int, int]:
    """(The indent that most lines have, the one that most first lines of paragraphs have)."""
    several = [run.lines for run in runs if len(run.lines) > 2]
    if not several:
        return 0, 0
    first = Counter([_indent(lines[0]) for lines in several])
    later = Counter([len(line) - len(line.lstrip()) for lines in several for line in lines[1:]])
    return later.most_common(1)[0][0], first.most_common(1)[0][0]


def is_verse(lines: Sequence[str], indent: int, width: int) -> bool:
    """Whether the lines (stripped) were broken on purpose: they are not filled to the width of the longest, and they are
    set in or short and begin with capitals. `indent` is counted from the book's margin."""
    if len(lines) < 2:
        return False
    longest = max(map(len, lines))
    if not indent and (longest > 0.85 * width or len(lines) < 3):
        return False
    begins = sum(not after[0].islower() for after in lines[1:])
    capitals = begins / (len(lines) - 1)
    if capitals == 1 and (begins > 3 or (begins > 1 and longest < 0.8 * width)):
        return True  # lines of one metre look filled, but no prose breaks before capitals only
    room = max(longest, min(width - 2 * indent, 60)) if len(lines) == 2 else longest
    wrapped = sum(len(line) + 1 + len(after.split(None, 1)[0]) > room - 1 for line, after in pairwise(lines))
    if wrapped >= 0.75 * (len(lines) - 1):
        return False
    return capitals >= (0.4 if indent > 0 else 0.75)


def _flow(runs: Sequence[_Run], joiner: Joiner, width: int) -> Iterator[Block]:
    """Paragraphs that no blank line separates: by indented first lines where the book has them, else by short last ones."""
    lines = [line for run in runs for line in run.lines]
    margin = Counter(_indent(line) for line in lines).most_common(1)[0][0]
    deeper = Counter(indent for line in lines if margin < (indent := _indent(line)) <= margin + 10)
    by_indent = sum(deeper.values()) > 0.03 * len(lines)
    first_indent = deeper.most_common(1)[0][0] if by_indent else -1
    for run in runs:
        gap = run.gap
        for piece in _pieces(run):
            parts = (
                _by_indent(piece.lines, margin, first_indent)
                if by_indent
                else _by_short_lines(piece.lines, width, piece.gap)
            )
            for part, verse in parts:
                stripped = [line.strip() for line in part]
                text = (
                    "\n".join(joiner.inline(" ".join(line.split())) for line in stripped)
                    if verse
                    else joiner.join(stripped)
                )
                kept = tuple(stripped) if 1 < len(stripped) <= 12 and len(text) <= 800 else ()
                indent = 0 if by_indent and not verse else _indent(part[0]) - margin
                yield Block(text, gap, indent, kept)
                gap = 0


def _by_indent(lines: list[str], margin: int, first_indent: int) -> Iterator[tuple[list[str], bool]]:
    """(lines, whether verse) of each paragraph; one begins at each line with the indent of first lines; deeper ones are verse."""
    start = 0
    for stop in range(1, len(lines) + 1):
        if stop == len(lines):
            break
        indent = _indent(lines[stop])
        deep, was_deep = indent > first_indent, _indent(lines[stop - 1]) > first_indent
        if deep != was_deep or (indent > margin and not deep):
            part = lines[start:stop]
            yield part, was_deep and len(part) > 1
            start = stop
    if start < len(lines):
        yield lines[start:], _indent(lines[-1]) > first_indent and len(lines) - start > 1


def _by_short_lines(lines: list[str], width: int, gap: int) -> Iterator[tuple[list[str], bool]]:
    """A line ends a paragraph if the next word would have fitted behind it and it ends a sentence; short lines that end
    none and stand together are verse."""
    part: list[str] = []
    verse: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        text = line.strip()
        following = after.split(None, 1)
        spoken = after.lstrip().startswith(('"', "“"))
        # The width is an estimate: three columns of doubt, but not where somebody begins to speak.
        short = not following or len(line) + 1 + len(following[0]) <= width - (0 if spoken else 3)
        part.append(line)
        if short and len(part) == 1 and len(line) < 0.8 * width and (not _TERMINAL.search(text) or verse):
            verse.append(line)
            part = []
            if _SENTENCE_END.search(text) and (not following or len(after) > 0.8 * width or after.lstrip()[0] in '"“'):
                yield verse, len(verse) > 1
                verse = []
            continue
        if verse:
            yield verse, len(verse) > 1
            verse = []
        ends = short and (bool(_TERMINAL.search(text)) or len(line) < 0.6 * width) and not after.lstrip()[:1].islower()
        quoted = spoken and text[-1:] in '"”' and _SENTENCE_END.search(text)
        if ends or quoted:
            yield part, False
            part = []
    if part:
        yield part, False
    if verse:
        yield verse, len(verse) > 1


def _a_paragraph_a_line(runs: Sequence[_Run], joiner: Joiner) -> Iterator[Block]:
    """Each line is a paragraph, but for lines that stand together and were wrapped (a letter) or set in (verse)."""
    for run in _locally_single_spaced(runs):
        gap = run.gap
        group: list[str] = []
        for line in [*run.lines, ""]:
            if line and len(line) <= LONG_LINE:
                group.append(line)
                continue
            if group:
                for block in _group(group, joiner):
                    yield block._replace(gap=gap)
                    gap = 0
                group = []
            if line:
                yield Block(joiner.join([line.strip()]), gap, _indent(line))
                gap = 0


def _locally_single_spaced(runs: Sequence[_Run]) -> Iterator[_Run]:
    """The runs; wrapped lines that blank lines part (a letter in a book of a paragraph a line) are one run."""
    group: list[_Run] = []
    for run in [*runs, _Run([], 0)]:
        line = run.lines[0] if len(run.lines) == 1 else ""
        fits = 0 < len(line) <= WRAPPED_LINE and not _alone(line)
        if group and not (fits and run.gap == 1):
            yield from _merged(group)
            group = []
        if fits:
            group.append(run)
        elif run.lines:
            yield run


def _merged(group: list[_Run]) -> Iterator[_Run]:
    lines = [run.lines[0].strip() for run in group]
    # A wrapped line ends open and is about as long as the longest of its letter.
    start = 0
    for stop in range(1, len(lines) + 1):
        if stop < len(lines) and not _SENTENCE_END.search(lines[stop - 1]):
            continue
        part = lines[start:stop]
        full = len(part[-1]) > 0.8 * max(map(len, part)) if len(part) > 1 else len(part[0]) > 40
        if stop < len(lines) and full:
            continue
        if len(part) > 1 and _is_wrapped(part):
            yield _Run(part, group[start].gap)
        else:
            yield from group[start:stop]
        start = stop
    yield from group[start:]


def _is_wrapped(lines: Sequence[str]) -> bool:
    longest = max(map(len, lines))
    open_lines = sum(not _TERMINAL.search(line) for line in lines[:-1])
    wrapped = sum(len(a) + 1 + len(b.split(None, 1)[0]) > 0.9 * longest for a, b in pairwise(lines))
    # Verse has about one length of line as well, but begins its lines with capitals.
    goes_on = sum(b[0].islower() or a[-1] == "-" for a, b in pairwise(lines))
    most = 0.6 * (len(lines) - 1)
    return longest > 40 and wrapped >= 1.2 * most and open_lines >= most and goes_on >= 0.4 * most


def _group(lines: list[str], joiner: Joiner) -> Iterator[Block]:
    stripped = [line.strip() for line in lines]
    if len(lines) > 1 and _is_wrapped(stripped) and not any(map(_alone, stripped)):
        yield Block(joiner.join(stripped), 0, _indent(lines[0]))
        return
    start = 0
    for stop in range(1, len(lines) + 1):
        together = stop < len(lines) and lines[stop][0] == " " and lines[stop - 1][0] == " "
        if not together:
            part = [" ".join(line.split()) for line in stripped[start:stop]]
            kept = tuple(part) if 1 < len(part) <= 12 else ()
            text = "\n".join(map(joiner.inline, part)) if is_verse(part, 1, LONG_LINE) else joiner.join(part)
            yield Block(text, 0, _indent(lines[start]), kept)
            start = stop
