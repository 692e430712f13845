"""The pattern language of template rules: `compile_rule("{1}[ ({2|kanji})]")` → a function of the arguments.

    {2}  {name}       an argument by position or by name (names without regard to case)
    {-1}  {0}         the last positional argument that is not empty; the template's own name
    {alt|2|'x'}       the first that is not empty; a word in quotes is always there
    {1!}              must be there: without it the rule, or the group around it, gives nothing
    {*, }  {2*, }     all positional arguments (from the second on) that are not empty, joined by what follows the star
    [ … ]             a group: left out when everything that it refers to is empty
    \\x                the character x, read neither as part of the pattern nor as markup
    @name             a function of pipeline/wiki/wikitext_functions.py

All else is text. A rule gives nothing when all that it refers to is empty.
"""

import difflib
import re
from collections.abc import Callable

from pipeline.wiki.wikitext_functions import FUNCTIONS, HIDE, LAST_POSITION, Arguments, Handler

_MAX_GROUPS = 20  # of groups inside each other


class RuleError(ValueError):
    """A rule that can't be read; the message says where and why."""


def compile_rule(rule: str) -> Handler:
    """The function that a rule stands for. RuleError for one that can't be read."""
    if rule.startswith("@"):
        function = FUNCTIONS.get(rule[1:])
        if function is None:
            close = difflib.get_close_matches(rule[1:], FUNCTIONS, n=1)
            hint = f", did you mean @{close[0]}?" if close else f"; there are {', '.join(sorted(FUNCTIONS))}"
            raise RuleError(f"there is no function {rule}{hint}")
        return function
    if not rule:
        raise RuleError("the rule is empty; a template that shows nothing needs none, or belongs to [furniture]")
    parts, end = _parse(rule, 0, 0)
    if end < len(rule):
        raise RuleError(f"the ] at character {end + 1} closes no [; a ] of the text is written \\]")
    if len(parts) == 1 and isinstance(parts[0], _Part):
        return parts[0].value
    return _sequence(parts)


class _Part:
    """A reference or a group."""

    def __init__(self, value: Handler, required: bool = False) -> None:
        self.value = value
        self.required = required


def _sequence(parts: list[str | _Part]) -> Handler:
    if all(isinstance(part, str) for part in parts):
        text = "".join(part for part in parts if isinstance(part, str))
        return lambda arguments: text

    def value(arguments: Arguments) -> str:
        words: list[str] = []
        filled = False
        for part in parts:
            if isinstance(part, str):
                words.append(part)
            elif word := part.value(arguments):
                words.append(word)
                filled = True
            elif part.required:
                return ""
        return "".join(words) if filled else ""

    return value


_SPECIAL = re.compile(r"[\\{}\[\]]")


def _parse(rule: str, at: int, depth: int) -> tuple[list[str | _Part], int]:
    """(parts, where the closing ] or the end is)"""
    parts: list[str | _Part] = []
    while found := _SPECIAL.search(rule, at):
        start = found.start()
        if start > at:
            parts.append(rule[at:start])
        mark = found.group()
        if mark == "]":
            return parts, start
        if mark == "}":
            raise RuleError(f"the }} at character {start + 1} closes no {{; a }} of the text is written \\}}")
        if mark == "\\":
            if start + 1 == len(rule):
                raise RuleError("the rule ends with \\, which takes the character after it")
            parts.append(rule[start + 1].translate(HIDE))
            at = start + 2
        elif mark == "{":
            end = rule.find("}", start)
            if end < 0:
                raise RuleError(f"the {{ at character {start + 1} is never closed")
            parts.append(_reference(rule[start + 1 : end]))
            at = end + 1
        else:
            if depth >= _MAX_GROUPS:
                raise RuleError(f"more than {_MAX_GROUPS} groups inside each other")
            inside, end = _parse(rule, start + 1, depth + 1)
            if end == len(rule):
                raise RuleError(f"the [ at character {start + 1} is never closed")
            if all(isinstance(part, str) for part in inside):
                raise RuleError(
                    f"the group {rule[start : end + 1]} refers to no argument, so it would never be left out"
                )
            parts.append(_Part(_sequence(inside)))
            at = end + 1
    if at < len(rule):
        parts.append(rule[at:])
    return parts, len(rule)


_JOINED = re.compile(r"(\d*)\*(.*)", re.S)
_ALTERNATIVE = re.compile(r"\s*('[^']*'|[^'|!*]+?)\s*(?:\||$)")


def _reference(inside: str) -> _Part:
    joined = _JOINED.fullmatch(inside)
    if joined:
        first, by = _position(inside, joined[1] or "1", f"{{1*{joined[2]}}}, from the first one on") - 1, joined[2]
        return _Part(lambda arguments: by.join(filter(None, arguments.positional[first:])))
    required = inside.endswith("!")
    alternatives: list[Handler] = []
    rest = inside.removesuffix("!")
    at = 0
    while at < len(rest) or not alternatives:
        found = _ALTERNATIVE.match(rest, at)
        if not found:
            raise RuleError(
                f"{{{inside}}} is no reference; write for example {{1}}, {{name}}, {{2|name|'word'}} or {{*, }}"
            )
        alternatives.append(_alternative(inside, found[1]))
        at = found.end()
    if len(alternatives) == 1:
        return _Part(alternatives[0], required)
    return _Part(_first(alternatives), required)


def _first(alternatives: list[Callable[[Arguments], str]]) -> Handler:
    def value(arguments: Arguments) -> str:
        for alternative in alternatives:
            if word := alternative(arguments):
                return word
        return ""

    return value


_NUMBER = re.compile(r"-?\d+")
_NOT_IN_NAMES = '{}[]<>=\\\n"@$%?'
_SHOWN = 40


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _position(inside: str, number: str, instead: str) -> int:
    """A position from 1 on. RuleError for one that no argument has, with what to write instead."""
    digits = number.lstrip("-0")
    if number[0] == "-" or not digits:
        raise RuleError(f"{{{_short(inside)}}}: there is no argument {_short(number)}; write {instead}")
    if len(digits) > len(str(LAST_POSITION)) or int(digits) > LAST_POSITION:
        raise RuleError(f"{{{_short(inside)}}}: arguments by position are 1 to {LAST_POSITION}")
    return int(digits)


def _alternative(inside: str, written: str) -> Handler:
    if written.startswith("'"):
        text = written[1:-1].translate(HIDE)
        return lambda arguments: text
    if written == "0":
        return lambda arguments: arguments.own_name
    if written == "-1":
        return lambda arguments: next((each for each in reversed(arguments.positional) if each), "")
    if _NUMBER.fullmatch(written):
        end = "{-1} for the last one, {1}" if written[0] == "-" else "{1}"
        own = "" if written[0] == "-" else ", or {0} for the template's own name"
        index = _position(inside, written, f"{end} for the first{own}") - 1
        return lambda arguments: arguments.positional[index] if index < len(arguments.positional) else ""
    if not any(map(str.isalpha, written)) or any(mark in written for mark in _NOT_IN_NAMES):
        none_of = " ".join(_NOT_IN_NAMES.replace("\n", ""))
        raise RuleError(
            f"{{{_short(inside)}}}: {_short(written)} can't be the name of an argument, which has a letter and none of "
            f"{none_of}; write for example {{1}} or {{name}}"
        )
    name = written.lower()
    return lambda arguments: arguments.named.get(name, "")
