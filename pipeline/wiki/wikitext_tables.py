"""The tables of template rules: pipeline/wiki/templates/*.toml, and a user's own file of the same kind.

shipped        the rules for one language of wiki, name → rule
read_rules     a user's file
furniture      templates that belong to the page and not to its sentences
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pipeline.errors import RecipeError
from pipeline.wiki import wikitext_names as words
from pipeline.wiki.wikitext_rules import RuleError, compile_rule

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
MOST_STARS = 2
"""In a name: looking for more would take ever longer."""
FOLDER = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class _Table:
    """One TOML file."""

    templates: Mapping[str, str]
    """name → rule"""
    only: Mapping[str, str]
    """name → rule, on wikis of this language"""
    furniture: tuple[str, ...]
    only_furniture: tuple[str, ...]
    """on wikis of this language"""


def _table(text: str) -> _Table:
    data = tomllib.loads(text)
    furniture = data.get("furniture", {})
    return _Table(
        by_name(data.get("templates", {})),
        by_name(data.get("only", {})),
        tuple(furniture.get("names", ())),
        tuple(furniture.get("only", ())),
    )


def by_name(rules: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """{rule: names} → {name: rule}"""
    return {name: rule for rule, names in rules.items() for name in names}


@lru_cache(maxsize=1)
def _tables() -> dict[str, _Table]:
    """Language → its file; "core" is for names that mean the same everywhere."""
    return {path.stem: _table(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml"))}


def read_rules(file: Path, shown: str = "") -> dict[str, tuple[str, ...]]:
    """The rules of a user's TOML file, {rule: names}, with names as they are looked up.

    RecipeError with file and line for a file that can't be read, for what is no table of rules, and for a rule that
    can't be read or a name that stands twice. `shown` is how messages call the file.
    """
    shown = shown or str(file)
    todo = "docs/templates.md says how such a file looks."
    try:
        text = file.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as error:
        raise RecipeError(f"{shown}: {error.strerror}", "Make the file readable.") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{shown}: not UTF-8 at byte {error.start}", "Save the file as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))  # none: at the end of the document
        number = line[1] if line else text.rstrip("\n").count("\n") + 1
        raise RecipeError(f"{shown}:{number}: not TOML: {error}", todo) from None
    lines = text.split("\n")

    def refuse(what: str, word: str) -> RecipeError:
        line = next((index for index, each in enumerate(lines, 1) if word in each), 1)
        return RecipeError(f"{shown}:{line}: {what}", todo)

    rules: dict[str, tuple[str, ...]] = {}
    seen: dict[str, str] = {}
    for section, table in data.items():
        if section != "templates" or not isinstance(table, dict):
            raise refuse(f"there is no section {section}; rules stand under [templates]", section)
        for rule, names in table.items():
            written = _as_written(rule, text)
            if (
                not isinstance(names, list)
                or not names
                or not all(isinstance(name, str) and name.strip() for name in names)
            ):
                raise refuse(f'rule {rule!r} wants a list of template names, as ["name"]', written)
            try:
                compile_rule(rule)
            except RuleError as error:
                raise refuse(f"rule {rule!r}: {error}", written) from None
            if _CONTROL.search(rule):
                raise refuse(f"rule {rule!r} holds a control character", names[0])
            for name in map(normalised, names):
                if name.count("*") > MOST_STARS:
                    raise refuse(f"template {name!r} has more than {MOST_STARS} stars", written)
                if seen.setdefault(name, rule) != rule:
                    raise refuse(f"template {name!r} has two rules, {seen[name]!r} and {rule!r}", written)
            rules[rule] = tuple(sorted(set(map(normalised, names))))
    return rules


def _as_written(rule: str, text: str) -> str:
    """The rule as its file writes it: between ' ' as it is, between " " with its escapes."""
    return (
        rule
        if rule in text
        else rule.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace('"', '\\"')
    )


_SPACES = re.compile(r"[\s_]+")


def normalised(name: str) -> str:
    """The name of a template as it is looked up: lower case, single spaces, without `Template:` in any language."""
    name = _SPACES.sub(" ", name).strip().lower()
    prefix, colon, rest = name.partition(":")
    return rest.strip() if colon and prefix.strip() in words.TEMPLATE else name


class Names:
    """name → rule ("": none); a * in a name stands for any characters, a # for a number."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        self.exact: dict[str, str] = dict(rules)
        patterns = [name for name in rules if "*" in name or ("#" in name and len(name) > 1)]
        self._rules = [self.exact.pop(name) for name in patterns]
        self._patterns = re.compile("|".join(map(_pattern, patterns)))

    def find(self, name: str) -> str | None:
        """The rule of a (normalised) name, or None; exact names come before patterns, of these the first."""
        rule = self.exact.get(name)
        if rule is None and self._rules and len(name) < 100:
            found = self._patterns.fullmatch(name)
            rule = self._rules[found.lastindex - 1] if found and found.lastindex else None
        return rule or None


def _pattern(name: str) -> str:
    parts = {"*": ".*", "#": r"\d{1,4}"}
    return "(" + "".join(parts.get(each) or re.escape(each) for each in name) + ")"


@lru_cache(maxsize=64)
def shipped(language: str) -> Names:
    """The rules for a wiki of this language ("": unknown): its own file, core, English, then all others.

    All languages count, because what a dump says of itself may be wrong; `[only]` is for names that would then be
    taken for something else.
    """
    tables = _tables()
    order = [language, "core", "en", *sorted(tables)]
    merged: dict[str, str] = {}
    for name in dict.fromkeys(each for each in order if each in tables):
        table = tables[name]
        own = table.only if language in ("", name) else {}
        mere = (
            dict.fromkeys((*table.furniture, *table.only_furniture), "") if language == name else {}
        )  # hides what other languages show
        merged = {**mere, **table.templates, **own, **merged}
    return Names(merged)


@lru_cache(maxsize=64)
def furniture(language: str) -> Names:
    """Names of templates that belong to the page and not to its sentences, on a wiki of this language."""
    names: list[str] = []
    for of, table in _tables().items():
        names += table.furniture
        names += table.only_furniture if language in ("", of) else ()
    return Names(dict.fromkeys(names, "nothing is shown"))
