"""Templates that stand for words of the sentence: `rules_for(language).expand("convert|5|km")` → "5 km".

What a template shows is data: pipeline/wiki/templates/*.toml, one file per language, in the pattern language of
`pipeline.wiki.wikitext_rules`; docs/templates.md says how to add to it. Policy of the rules: the source's own value and unit,
no computed conversion; no pronunciation, no coordinates, nothing that depends on today's date. What has no rule is
dropped by `pipeline.wikitext` and listed by `unhandled`.

    rules_for        the rules of one wiki: the user's, its language's, all others', and the dump's own templates
    read_templates   redirects and simple wrappers among a dump's template pages
    unhandled        templates without a rule in the sentences of a page
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pipeline.wiki import wikitext_names as words
from pipeline.wiki import wikitext_wrappers as wrappers
from pipeline.wiki.wikitext_functions import Arguments, Handler
from pipeline.wiki.wikitext_rules import compile_rule
from pipeline.wiki.wikitext_tables import Names, by_name, furniture, normalised, shipped
from pipeline.wiki.wikitext_unhandled import unhandled

if TYPE_CHECKING:
    from pipeline.wikitext import Site

__all__ = ("DumpTemplates", "Rules", "read_templates", "rules_for", "unhandled")

_NOTHING: Mapping[str, Any] = MappingProxyType({})


# ── the rules of one wiki ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class DumpTemplates:
    """What a dump's own template pages say, as far as it helps: names are `normalised`."""

    redirects: Mapping[str, str] = field(default_factory=dict)
    """name → the name that it leads to in the end"""
    wrappers: Mapping[str, str] = field(default_factory=dict)
    """name → body of a simple wrapper, wikitext with {{{parameters}}}"""


_FUNCTIONS: Mapping[str, Any] = {
    "formatnum": str,
    "lc": str.lower,
    "uc": str.upper,
    "lcfirst": lambda text: text[:1].lower() + text[1:],
    "ucfirst": lambda text: text[:1].upper() + text[1:],
    "padleft": str,
    "nowrap": str,
}
"""Parser functions whose first argument is what is read."""


def _of_function(name: str) -> str | None:
    """`formatnum:12` → "12"; None for what is no such parser function."""
    function, colon, first = name.partition(":")
    change = _FUNCTIONS.get(function.strip().lower()) if colon else None
    return change(first.strip()) or None if change else None


_KNOWN_LIMIT = 100_000
_MAX_DEPTH = 10  # of wrappers that call wrappers
_STEPS = 1_000  # nodes and characters of wrappers' bodies that one template may lead to, and ten times its own length
_MAX_SIZE = 200  # nodes of a wrapper with those that it calls
_GROWTH = 300  # characters that an expansion may be longer than its source, so that nesting can't multiply

_Wrapper = tuple[wrappers.Node, ...]


class Rules:
    """What templates show on one wiki. Made by `rules_for`."""

    def __init__(self, language: str, added: Mapping[str, str], dump: DumpTemplates) -> None:
        self._shipped = shipped(language)
        self._language = language
        self._added = Names(added)
        self._dump = dump
        self.known: dict[str, Handler | _Wrapper | Literal[False]] = {}
        """what names mean that were looked up, as pages write them; False: nothing"""

    def expand(self, content: str) -> str | None:
        """The wikitext that `{{content}}` stands for, arguments already expanded; None if it has no words to read."""
        name, bar, rest = content.partition("|")
        meaning = self.known.get(name)
        if meaning is None:
            if ":" in name and (shown := _of_function(name)):
                return shown  # before the look-up: nested functions give ever new names
            meaning = self._meaning(name)
        if meaning is False:
            return _of_function(name) if ":" in name else None
        arguments = Arguments(name, rest.split("|") if bar else [])
        if callable(meaning):
            text = meaning(arguments)
        else:
            text = self._filled(meaning, arguments, [_STEPS + 10 * len(content)], _MAX_DEPTH)
        return text if text and len(text) <= len(content) + _GROWTH else None

    def knows(self, name: str) -> bool:
        """Whether there is a rule, or a simple wrapper, for a template of this name."""
        return self._meaning(name) is not False

    def is_furniture(self, name: str) -> bool:
        """Whether a template of this (normalised) name belongs to the page and not to its sentences."""
        target = self._dump.redirects.get(name, name)
        known = furniture(self._language)
        return known.find(name) is not None or known.find(target) is not None

    def _meaning(self, name: str) -> Handler | _Wrapper | Literal[False]:
        known = self.known.get(name)
        if known is None:
            known = self._find(normalised(name))
            if len(self.known) >= _KNOWN_LIMIT:
                self.known.clear()
            if len(name) < 100:
                self.known[name] = known
        return known

    def _find(self, name: str) -> Handler | _Wrapper | Literal[False]:
        rule = self._rule(name)
        if rule is None:
            target = self._dump.redirects.get(name, name)
            rule = self._rule(target)
            if rule is None:
                body = self._dump.wrappers.get(target)
                return wrappers.parse(body) or False if body else False
        return compile_rule(rule)

    def _rule(self, name: str) -> str | None:
        rule = self._added.find(name)
        return self._shipped.find(name) if rule is None else rule

    def _called(self, content: str, steps: list[int], depth: int) -> str:
        """As `expand`, for a template inside the body of a wrapper."""
        name, bar, rest = content.partition("|")
        meaning = self._meaning(name)
        if meaning is False:
            return _of_function(name) or ""
        arguments = Arguments(name, rest.split("|") if bar else [])
        return meaning(arguments) if callable(meaning) else self._filled(meaning, arguments, steps, depth)

    def _filled(self, nodes: _Wrapper, arguments: Arguments, steps: list[int], depth: int) -> str:
        """The body of a wrapper with these arguments; "" once it takes too many steps or calls too deep."""
        out: list[str] = []
        for node in nodes:
            steps[0] -= 1
            if steps[0] < 0 or depth < 0:
                return ""
            if isinstance(node, str):
                out.append(node)
            elif isinstance(node, wrappers.Parameter):
                value = _value(arguments, node.name)
                steps[0] -= len(value or "")
                out.append(self._filled(node.default or (), arguments, steps, depth) if value is None else value)
            elif isinstance(node, wrappers.If):
                given = self._filled(node.condition, arguments, steps, depth).strip()
                out.append(self._filled(node.then if given else node.other, arguments, steps, depth))
            else:
                filled = [self._filled(each, arguments, steps, depth) for each in node.arguments]
                content = f"{node.name}{filled[0]}" if node.name.endswith(":") else _call(node, filled)
                out.append(self._called(content, steps, depth - 1))
        return "".join(out)


def _value(arguments: Arguments, name: str) -> str | None:
    """An argument, which may be empty; None where the template was called without it."""
    if name.isdecimal():
        index = int(name[:3]) - 1
        return arguments.positional[index] if 0 <= index < len(arguments.positional) else None
    return arguments.named.get(name)


def _call(node: wrappers.Call, filled: list[str]) -> str:
    """`name|1=first|key=value`: numbered, because a value may hold an equals sign."""
    parts = [node.name]
    position = 0
    for nodes, text in zip(node.arguments, filled, strict=True):
        if nodes and isinstance(nodes[0], str) and "=" in nodes[0]:
            parts.append(text)
        else:
            position += 1
            parts.append(f"{position}={text}")
    return "|".join(parts)


def rules_for(
    language: str = "", added: Mapping[str, Sequence[str]] = _NOTHING, dump: DumpTemplates | None = None
) -> Rules:
    """The rules for a wiki of this language ("": unknown).

    `added` are a user's own rules, {rule: names}, and come first; then the language's own, core, English and all
    others; then what the dump's redirects lead to, and its simple wrappers last.
    """
    language = language.partition("-")[0]
    return Rules(language, by_name(added), dump or DumpTemplates()) if added or dump else _plain(language)


@lru_cache(maxsize=64)
def _plain(language: str) -> Rules:
    return Rules(language, {}, DumpTemplates())


# ── the templates of a dump ──────────────────────────────────────────────────────────────────────────────────────────

_REDIRECT = re.compile(rf"\s*#\s*(?:{words.REDIRECT})\s*+:?\s*+\[\[\s*:?([^\[\]|#{{}}\n]+)", re.I)


def read_templates(
    pages: Iterable[tuple[str, str]], site: "Site | None", added: Mapping[str, Sequence[str]] = _NOTHING
) -> DumpTemplates:
    """Redirects and simple wrappers among the pages of namespace 10, given as (title with its prefix, wikitext).

    Only redirects that lead to a template with a rule (shipped or `added`), to a simple wrapper or to known furniture
    are kept, so that the result stays small. Never raises; linear in the size of the pages.
    """
    rules = rules_for(site.language if site else "", added)
    prefix = dict(site.namespaces).get(10, "").lower().replace("_", " ") if site else ""
    redirects: dict[str, str] = {}
    bodies: dict[str, str] = {}
    twice: set[str] = set()  # templates whose names differ only in case
    for title, text in pages:
        name = _of_dump(title, prefix)
        leads = _REDIRECT.match(text)
        if leads:
            target = _of_dump(leads[1], prefix)
            if target != name:
                redirects.setdefault(name, target)
            continue
        if name in bodies:
            twice.add(name)
        bodies[name] = "" if rules.is_furniture(name) else wrappers.simple_body(text) or ""
    for name in bodies:
        redirects.pop(name, None)
    final = {name: target for name in redirects if (target := _end(name, redirects))}
    simple = _callable({name: body for name, body in bodies.items() if body and name not in twice}, final, rules)
    kept = {
        name: target
        for name, target in final.items()
        if target in simple or rules.knows(target) or rules.is_furniture(target)
    }
    return DumpTemplates(kept, simple)


def _of_dump(title: str, prefix: str) -> str:
    name = normalised(title)
    first, colon, rest = name.partition(":")
    return rest.strip() if colon and first.strip() == prefix else name


def _end(name: str, redirects: Mapping[str, str]) -> str:
    """Where a chain of redirects ends; "" for a circle and for chains of more than ten."""
    for _ in range(10):
        if name not in redirects:
            return name
        name = redirects[name]
    return ""


def _callable(bodies: dict[str, str], redirects: Mapping[str, str], rules: Rules) -> dict[str, str]:
    """Those bodies that call only templates with a rule or other such bodies.

    None that come back to themselves, and none that with all that they call are larger than _MAX_SIZE.
    """
    called_by: dict[str, list[str]] = {}
    waits: dict[str, int] = {}  # for how many of its calls to be known
    sizes: dict[str, int] = {}
    ready: list[str] = []
    for name, body in bodies.items():
        tree = wrappers.parse(body)
        called = (normalised(each) for each in wrappers.calls(tree))
        called = (each if rules.knows(each) else redirects.get(each, each) for each in called)
        unknown = [each for each in called if not rules.knows(each)]
        sizes[name] = wrappers.size(tree)
        waits[name] = len(unknown)
        for each in unknown:
            called_by.setdefault(each, []).append(name)
        if not unknown:
            ready.append(name)
    simple: dict[str, str] = {}
    while ready:
        name = ready.pop()
        if sizes[name] > _MAX_SIZE:
            continue
        simple[name] = bodies[name]
        for caller in called_by.get(name, ()):
            waits[caller] -= 1
            sizes[caller] += sizes[name]
            if not waits[caller]:
                ready.append(caller)
    return dict(sorted(simple.items()))
