"""Templates without a rule inside the sentences of a page: what a user may want to write a rule for."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline.wiki import wikitext_names as words
from pipeline.wiki.wikitext_tables import normalised

if TYPE_CHECKING:
    from pipeline.wiki.wikitext_templates import Rules

MAX_EXAMPLE = 120
"""characters of an example"""
_BEFORE = 40  # of them before the template, at most
_OPAQUE = "nowiki|math|chem|ce|syntaxhighlight|source|ref|gallery|timeline|score|imagemap|poem|pre|templatedata|graph"
_TOKEN = re.compile(rf"<!--|<({_OPAQUE})(?=[\s/>])[^<>]*>|\{{\{{+|\}}\}}+|\[\[|\]\]|\n", re.I)
_MAX_REFERENCE = 10_000  # characters after which a tag without its end counts as never closed
_MAX_DEPTH = 50
_HEADING = re.compile(r"(={1,6})(.+?)=+\s*$")
_WORD = re.compile(r"\w")


class _Open:
    """A template or link that is not yet closed."""

    __slots__ = ("furnished", "link", "start")

    def __init__(self, start: int, link: bool, furnished: bool) -> None:
        self.start = start
        self.link = link
        self.furnished = furnished
        """whether nothing inside is a sentence: arguments of a template without a rule, captions"""


def unhandled(wikitext: str, rules: "Rules") -> Iterator[tuple[str, str]]:
    """(name, example) for each use of a template without a rule inside a line of prose.

    Left out are tables, lists, headings, captions, sections that hold references, arguments of other such templates,
    templates that stand alone on their line, and known furniture (`[furniture]` in pipeline/wiki/templates). Names are as
    rules write them; the example is the source around the template, at most 120 characters. Linear in the length of
    the page; what follows a template that is never closed is not looked at.
    """
    lines = _Lines(wikitext)
    stack: list[_Open] = []
    found: list[tuple[int, int]] = []  # (start, end) of templates on the line, inner ones too
    closing: dict[str, int] = {}
    position = 0
    while token := _TOKEN.search(wikitext, position):
        start, end = token.span()
        mark = token.group()
        if not stack and not lines.has_words:
            lines.has_words = _WORD.search(wikitext, position, start) is not None
        position = end
        furnished = bool(stack) and stack[-1].furnished
        if mark == "\n":
            if not stack:
                yield from _of_line(wikitext, lines, start, found, rules)
                found = []
                lines.begin(position)
        elif mark[0] == "<":
            position = _after_opaque(wikitext, mark, token.group(1) or "", position, closing)
        elif mark[0] == "{":
            furnished = furnished or not rules.knows(_name(wikitext, end))
            for opener in range(start, end - 1, 2):
                if len(stack) < _MAX_DEPTH:
                    stack.append(_Open(opener, False, furnished))
        elif mark == "[[":
            if len(stack) < _MAX_DEPTH:
                stack.append(_Open(start, True, furnished or _is_caption(wikitext, end)))
        elif mark == "]]":
            if stack and stack[-1].link:
                lines.has_words |= not stack.pop().furnished and not stack
        else:
            for closer in range(start, end - 1, 2):
                while stack and stack[-1].link:
                    stack.pop()
                if stack:
                    opened = stack.pop()
                    if not stack or not stack[-1].furnished:
                        found.append((opened.start, closer + 2))
    lines.has_words |= not stack and _WORD.search(wikitext, position) is not None
    yield from _of_line(wikitext, lines, len(wikitext), found, rules)


_NAME_END = re.compile(r"[|{}\[\]<]")


def _name(wikitext: str, at: int) -> str:
    """The name of the template whose opening braces end here; "" where it is no plain name."""
    end = _NAME_END.search(wikitext, at, at + 100)
    return wikitext[at : end.start()] if end and end.group() in "|}" else ""


def _is_caption(wikitext: str, at: int) -> bool:
    prefix = wikitext[at : at + 30].partition(":")[0].strip().lower()
    return prefix in words.FILE or prefix in words.CATEGORY


def _after_opaque(wikitext: str, mark: str, name: str, position: int, closing: dict[str, int]) -> int:
    """Where the content of a tag or comment ends; its start for one that is never closed.

    The next closing mark is remembered in `closing`, so that many unclosed tags stay linear.
    """
    if mark.endswith("/>"):
        return position
    closer = f"</{name}" if name else "-->"
    end = closing.get(closer, 0)
    if end < position:
        end = wikitext.find(closer, position)
        end = closing[closer] = len(wikitext) + _MAX_REFERENCE if end < 0 else end
    return position if end > position + _MAX_REFERENCE else min(end + len(closer), len(wikitext))


class _Lines:
    """What is known of the line that is being read and of the lines before it."""

    def __init__(self, wikitext: str) -> None:
        self.wikitext = wikitext
        self.start = 0
        self.has_words = False
        """whether it has words outside templates and captions"""
        self.tables = 0
        self.dropped_level = 0

    def begin(self, start: int) -> None:
        """The next line starts here."""
        self.start = start
        self.has_words = False

    def is_prose(self, end: int) -> bool:
        """Whether the line that ends here is one of sentences; to be asked once for each line, in order."""
        line = self.wikitext[self.start : min(end, self.start + 300)].strip()
        if line.startswith("{|"):
            self.tables += 1
        elif self.tables:
            self.tables -= line.startswith("|}")
        elif line.startswith("="):
            heading = _HEADING.match(line)
            if heading:
                level = len(heading[1])
                if level <= self.dropped_level:
                    self.dropped_level = 0
                if not self.dropped_level and words.is_appendix(heading[2].strip(" '=").lower(), level):
                    self.dropped_level = level
        elif not self.dropped_level and self.has_words:
            return line[:1] not in tuple("*#:;|!")
        return False


def _of_line(
    wikitext: str, lines: _Lines, end: int, found: list[tuple[int, int]], rules: "Rules"
) -> Iterator[tuple[str, str]]:
    if not lines.is_prose(end):
        return
    for start, stop in sorted(found):
        written = _name(wikitext, start + 2)
        name = normalised(written)
        if not name or ":" in name or name[0] in "#{" or rules.knows(written) or rules.is_furniture(name):
            continue
        begin = max(lines.start, start - min(_BEFORE, max(0, MAX_EXAMPLE - (stop - start))))
        yield name, " ".join(wikitext[begin : min(end, begin + MAX_EXAMPLE)].split("\n"))
