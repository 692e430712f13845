"""Simple wrappers: templates of a dump whose own page says what they show.

`simple_body` decides by the wikitext of a template page whether the template only puts text around its parameters, and
`parse` reads such a body into a tree that `pipeline.wiki.wikitext_templates` fills with arguments.

It is decided conservatively, because a template that is taken wrongly brings furniture (a notice, an icon, a mark of
doubt) into every article that uses it, and one that is not taken leaves a hole, as all templates without a rule do:

- Only inline markup. A table, a block, a line break in the output, a reference, a file, an address, a parser function
  beyond `#if`: notices, boxes and citations are made of these.
- At least one parameter is shown, and not only a date: marks of maintenance show none or the date of the complaint.
  A template without parameters counts if it is at most 20 characters without any link, as `{{km²}}`: marks of doubt
  link to the rule that they ask for.
- No link into another namespace or within the page, for the same reason and because footnote marks are made so.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.wiki.wikitext_functions import HIDE
from pipeline.wiki.wikitext_names import CATEGORY

MAX_BODY = 2_000
"""characters of a body without its documentation"""
_MAX_PAGE = 200_000
_MAX_DEPTH = 20
_MAX_CONSTANT = 30
"""characters that a wrapper adds to its parameters; a sentence of its own is a notice"""
_MAX_BARE_CONSTANT = 20
_DATES = frozenset(("date", "datum", "fecha", "data", "дата", "日付", "日期", "time", "year", "month", "mois", "année"))


@dataclass(frozen=True)
class Parameter:
    """{{{name|default}}}; default None: without one"""

    name: str
    default: "tuple[Node, ...] | None"


@dataclass(frozen=True)
class Call:
    """{{name|argument|key=argument}}; of a parser function, `name` ends with a colon"""

    name: str
    arguments: "tuple[tuple[Node, ...], ...]"


@dataclass(frozen=True)
class If:
    """{{#if: condition | then | other}}"""

    condition: "tuple[Node, ...]"
    then: "tuple[Node, ...]"
    other: "tuple[Node, ...]"


Node = str | Parameter | Call | If
_FUNCTIONS = ("lc", "uc", "lcfirst", "ucfirst", "formatnum")


class _NotSimple(Exception):
    pass


def transcluded(page: str) -> str:
    """What of a template's page gets into the pages that use it."""
    if "<" not in page:
        return page
    page = _between(page, "<!--", "-->", "")
    if re.search(r"<onlyinclude\s*>", page, re.I):
        page = "".join(_inside(page, "<onlyinclude>", "</onlyinclude>"))
    page = _between(page, "<noinclude>", "</noinclude>", "")
    return _INCLUDE_TAG.sub("", page)


_INCLUDE_TAG = re.compile(r"</?(?:includeonly|onlyinclude|noinclude)\s*/?>", re.I)


def _between(text: str, opening: str, closing: str, instead: str) -> str:
    """The text without what stands between the marks; what is never closed goes to the end."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter that grows in lower case would move all places
        lower = text
    out: list[str] = []
    at = 0
    while (start := lower.find(opening, at)) >= 0:
        out += (text[at:start], instead)
        end = lower.find(closing, start)
        if end < 0:
            return "".join(out)
        at = end + len(closing)
    return "".join((*out, text[at:]))


def _inside(text: str, opening: str, closing: str) -> Iterator[str]:
    lower = text.lower()
    if len(lower) != len(text):
        lower = text
    at = 0
    while (start := lower.find(opening, at)) >= 0:
        end = lower.find(closing, start)
        end = len(text) if end < 0 else end
        yield text[start + len(opening) : end]
        at = end + 1


_INLINE_TAG = re.compile(
    r"</?(?:span|small|big|i|b|em|strong|sub|sup|abbr|u|s|bdi|bdo|code|kbd|samp|var|tt|font|mark|dfn|q)\b([^<>]*)>",
    re.I,
)
_NOWIKI = re.compile(r"<nowiki\s*/>|<nowiki>([^<]*)</nowiki>", re.I)
_BREAK = re.compile(r"[ \t]*<br\s*/?>[ \t]*", re.I)
_UNSEEN = re.compile(r"display\s*:\s*none|noprint|\bIPA\b|metadata|visibility|speak", re.I)  # of a tag's attributes
_BLOCK = re.compile(r"\{\||\n\s*\n|\n[*#:;|!=]|://|\[//|__[A-Z]|~~~|^[*#:;|!=]|^----")


def simple_body(page: str) -> str | None:
    """The body of a simple wrapper without tags, documentation and categories; None for every other template.

    Whether the templates that it calls are simple too is another question: `calls`.
    """
    if len(page) > _MAX_PAGE:
        return None
    body = transcluded(page).strip()
    if not body or len(body) > MAX_BODY:
        return None
    body = _NOWIKI.sub(lambda found: html.unescape(found[1] or "").translate(HIDE), body)
    body = _BREAK.sub(" ", body)
    if any(_UNSEEN.search(attributes) for attributes in _INLINE_TAG.findall(body)):
        return None
    body = _INLINE_TAG.sub("", body)
    if "<" in body or _BLOCK.search(body):
        return None
    try:
        tree = _parsed(body)
    except _NotSimple:
        return None
    text, shown, links = "", set[str](), False
    for node in _visible(tree.nodes):
        if isinstance(node, Parameter):
            shown.add(node.name)
        elif isinstance(node, str):
            text += node
    links = tree.links
    text = html.unescape(text).replace("'''", "").replace("''", "").strip()
    if shown - _DATES:
        return body if len(text) <= _MAX_CONSTANT else None
    return body if not shown and 0 < len(text) <= _MAX_BARE_CONSTANT and not links else None


def parse(body: str) -> tuple[Node, ...]:
    """The tree of a body that `simple_body` gave; () for one that can't be read."""
    try:
        return _parsed(body).nodes
    except _NotSimple:
        return ()


def calls(nodes: tuple[Node, ...]) -> Iterator[str]:
    """Names of all templates that a tree calls, as they are written."""
    for node in nodes:
        if isinstance(node, Parameter):
            yield from calls(node.default or ())
        elif isinstance(node, If):
            for part in (node.condition, node.then, node.other):
                yield from calls(part)
        elif isinstance(node, Call):
            if not node.name.endswith(":"):
                yield node.name
            for argument in node.arguments:
                yield from calls(argument)


def size(nodes: tuple[Node, ...]) -> int:
    """How many nodes a tree has."""
    count = len(nodes)
    for node in nodes:
        if isinstance(node, Parameter):
            count += size(node.default or ())
        elif isinstance(node, If):
            count += size(node.condition) + size(node.then) + size(node.other)
        elif isinstance(node, Call):
            count += sum(map(size, node.arguments))
    return count


def _visible(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Text and parameters that a reader may see."""
    for node in nodes:
        if isinstance(node, If):
            yield from _visible((*node.then, *node.other))
        elif isinstance(node, Call):
            for argument in node.arguments:
                yield from _visible(argument)
        else:
            yield node
            if isinstance(node, Parameter):
                yield from (each for each in _visible(node.default or ()) if isinstance(each, Parameter))


@dataclass
class _Tree:
    nodes: tuple[Node, ...]
    links: bool


_TOKEN = re.compile(r"\{+|\}+|\[\[|\]\]|\||[^{}\[\]|]+|.", re.S)


def _parsed(body: str) -> _Tree:
    parser = _Parser(_TOKEN.findall(body))
    parts = parser.until("", 0)
    return _Tree(tuple(node for part in _with_bars(parts) for node in part), parser.links)


def _with_bars(parts: list[tuple[Node, ...]]) -> Iterator[tuple[Node, ...]]:
    for index, part in enumerate(parts):
        if index:
            yield ("|".translate(HIDE),)
        yield part


class _Parser:
    """Reads tokens from left to right; _NotSimple where they don't fit together or stand for something else."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.links = False

    def until(self, closing: str, depth: int) -> list[tuple[Node, ...]]:
        """The parts between bars up to the closing token, or to the end for "" """
        if depth > _MAX_DEPTH:
            raise _NotSimple
        parts: list[list[Node]] = [[]]
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            if closing and token.startswith(closing):
                if token != closing:  # the other braces close what is around
                    self.at -= 1
                    self.tokens[self.at] = token[len(closing) :]
                return [tuple(part) for part in parts]
            if token == "{{{":
                parts[-1].append(self._parameter(depth))
            elif token == "{{":
                parts[-1].append(self._call(depth))
            elif token == "[[":
                parts[-1] += self._link(depth)
            elif token == "|":
                parts.append([])
            elif token[0] in "{}" or token == "]]":
                raise _NotSimple
            else:
                parts[-1].append(token)
        if closing:
            raise _NotSimple
        return [tuple(part) for part in parts]

    def _parameter(self, depth: int) -> Parameter:
        name, *default = self.until("}}}", depth + 1)
        return Parameter(_constant(name).lower(), default[0] if default else None)

    def _call(self, depth: int) -> Node:
        name, *arguments = self.until("}}", depth + 1)
        first = name[0] if name and isinstance(name[0], str) else ""
        function, colon, rest = first.partition(":")
        function = function.strip().lower()
        if colon and function == "#if":
            branches = [*(_stripped(each) for each in arguments), (), ()]
            return If((rest, *name[1:]), branches[0], branches[1])
        if colon and function in _FUNCTIONS:
            return Call(f"{function}:", ((rest, *name[1:]),))
        if ":" in _constant(name).lstrip(":") or first.strip()[:1] in ("#", ":", "/"):
            raise _NotSimple
        return Call(_constant(name), tuple(arguments))

    def _link(self, depth: int) -> tuple[Node, ...]:
        target, *label = self.until("]]", depth + 1)
        first = target[0] if target and isinstance(target[0], str) else ""
        prefix, colon, _ = first.partition(":")
        if colon and prefix.strip().lower() in CATEGORY:
            return ()
        if first.startswith("#") or any(isinstance(part, str) and ":" in part for part in target):
            raise _NotSimple
        self.links = True
        if len(label) > 1:
            raise _NotSimple
        return label[0] if label and label[0] else target


def _constant(nodes: tuple[Node, ...]) -> str:
    if not all(isinstance(node, str) for node in nodes):
        raise _NotSimple
    return "".join(node for node in nodes if isinstance(node, str)).strip()


def _stripped(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Branches of #if lose the white space around them."""
    parts = list(nodes)
    if parts and isinstance(parts[0], str):
        parts[0] = parts[0].lstrip()
    if parts and isinstance(parts[-1], str):
        parts[-1] = parts[-1].rstrip()
    return tuple(parts)
