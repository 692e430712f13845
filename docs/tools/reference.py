"""The tables of every key in docs/recipe-reference.md and docs/settings.md, made from the models: `python -m docs.tools.reference`.

A page is written by hand. Where a table of keys belongs stands `<!-- table: MODEL -->` and `<!-- end -->`; what lies
between is written here: key, values, default and meaning of every field, from its type and from the docstring below it.
"""

import ast
import inspect
import json
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from markdown.extensions.toc import slugify
from pydantic import BaseModel, Discriminator, Tag
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pipeline.config import Comparison, Finetuning, FinetuningOverride
from pipeline.recipe import Recipe
from pipeline.recipes.refusal_words import PATTERNS
from pipeline.settings import Settings

DOCS = Path(__file__).resolve().parent.parent
PAGES: dict[str, tuple[type[BaseModel], ...]] = {
    "recipe-reference.md": (Recipe, Comparison),
    "settings.md": (Settings,),
}
"""Page → the models that it tells, with all that are inside of them."""
SAID_IN: dict[type[BaseModel], type[BaseModel]] = {FinetuningOverride: Finetuning}
"""Model → the one whose keys of the same names say what its own mean."""
TABLE = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end -->)", re.S)
HEADING = re.compile(r"^#+ (.+)$", re.M)


class Key(NamedTuple):
    """A row of a table."""

    name: str
    values: str
    default: str
    meaning: str


def page(name: str) -> str:
    """A page as it should be: its own text, with tables made anew.

    Raises ValueError where a model has no table, or a key no docstring.
    """
    text = (DOCS / name).read_text(encoding="utf-8")
    wanted = {model.__name__: model for root in PAGES[name] for model in models(root)}
    found = [match[2] for match in TABLE.finditer(text)]
    if sorted(found) != sorted(wanted):
        raise ValueError(f"{name} should have one table of each of {sorted(wanted)}; it has {sorted(found)}")
    links = {match[2]: _heading_before(text, match.start()) for match in TABLE.finditer(text)}
    return TABLE.sub(lambda match: match[1] + _table(keys(wanted[match[2]], links)) + match[4], text)


def models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """A model and all that its fields are made of, each once."""
    found: dict[type[BaseModel], None] = {root: None}
    for field in root.model_fields.values():
        for each in _leaves(field.annotation):
            if inspect.isclass(each) and issubclass(each, BaseModel):
                found.update(dict.fromkeys(models(each)))
    return list(found)


def keys(model: type[BaseModel], links: dict[str, str]) -> list[Key]:
    """Every key of a model.

    links: model → heading of its table, for keys whose value is such a model.
    """
    said = {**_of_sections(model), **meanings(SAID_IN.get(model, model)), **meanings(model)}
    unsaid = sorted(set(model.model_fields) - set(said))
    if unsaid:
        raise ValueError(f"{model.__name__}: {', '.join(unsaid)} has no docstring below it that says what it means")
    return [
        Key(
            field.alias or name,
            _words(field.annotation, field.metadata, links),
            _default(field),
            _linked(re.sub(r"\bNone\b", "left out" if field.default is None else "`null`", said[name])),
        )
        for name, field in model.model_fields.items()
    ]


@cache
def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Field → the docstring below it, here or in a class that it is made from, on one line."""
    found: dict[str, str] = {}
    for each in reversed([base for base in model.__mro__ if issubclass(base, BaseModel) and base is not BaseModel]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(tree, ast.ClassDef)
        for above, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(above, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(above.target, ast.Name):
                found[above.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def _of_sections(model: type[BaseModel]) -> dict[str, str]:
    """Field → the docstring of the model that it holds, for fields that hold one."""
    inside = {name: list(_leaves(field.annotation)) for name, field in model.model_fields.items()}
    return {
        name: " ".join((inspect.getdoc(leaves[0]) or "").split())
        for name, leaves in inside.items()
        if inspect.isclass(leaves[0]) and issubclass(leaves[0], BaseModel)
    }


def _leaves(annotation: Any) -> Iterator[Any]:
    inside = typing.get_args(annotation)
    if not inside or typing.get_origin(annotation) is Literal:
        yield annotation
    for each in inside:
        yield from _leaves(each)


def _words(annotation: Any, about: list[Any], links: dict[str, str]) -> str:
    """What may stand there, in plain words."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _words(inside[0], [*about, *inside[1:]], links)
    if origin is Literal:
        return " · ".join(f"`{json.dumps(each) if isinstance(each, bool) else each}`" for each in inside)
    if origin in (typing.Union, types.UnionType):
        told = (_words(each, about, links) for each in inside if each is not type(None))
        return " · ".join(dict.fromkeys(told))
    if origin is tuple:
        if inside[-1] is Ellipsis:
            return f"list of: {_words(inside[0], [], links)}"
        return f"list of {len(inside)}: {_words(inside[0], [], links)}"
    if origin is dict:
        if inside[1] is Any:
            return "map"
        return f"map: name → {_words(inside[1], [], links)}"
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        heading = links[annotation.__name__]
        return f"[{heading}](#{slugify(heading.replace('`', ''), '-')})"
    return _simple(annotation, _flat(about))


def _flat(about: list[Any]) -> dict[str, Any]:
    """Bounds and patterns by name; what is said last holds."""
    found: dict[str, Any] = {}
    for each in about:
        if isinstance(each, FieldInfo):
            found |= _flat(each.metadata)
        elif not isinstance(each, Tag | Discriminator):
            found |= {name: getattr(each, name) for name in ("ge", "gt", "le", "lt", "pattern") if hasattr(each, name)}
    return {name: value for name, value in found.items() if value is not None}


def _simple(kind: Any, about: dict[str, Any]) -> str:
    if kind is bool:
        return "`true` · `false`"
    if kind is str:
        rule = PATTERNS[about["pattern"]] if "pattern" in about else "must be text"
        return rule.removeprefix("must be ") if rule.startswith("must be ") else f"text; {rule}"
    bounds = [f"{word} {about[name]:,}" for name, word in (("ge", "from"), ("gt", "above")) if name in about]
    bounds += [f"{word} {about[name]:,}" for name, word in (("le", "to"), ("lt", "below")) if name in about]
    return " ".join(["whole number" if kind is int else "number", *bounds])


def _default(field: FieldInfo) -> str:
    """A default as it would be written; a dash for nothing, and for a section's own defaults."""
    if field.is_required():
        return "**needed**"
    value = None if field.default is PydanticUndefined else field.default
    if value is None or isinstance(value, BaseModel) or value in ("", (), {}):
        return "–"
    return f"`{json.dumps(value, ensure_ascii=False)}`".replace('"', "")


def _linked(meaning: str) -> str:
    """With links to the pages and files that it names."""
    meaning = re.sub(r"\bdocs/([\w-]+\.md)\b", r"[\1](\1)", meaning)
    return re.sub(r"\b((?:pipeline|model)/\w+\.py)\b", r"[\1](../\1)", meaning)


def _heading_before(text: str, place: int) -> str:
    return HEADING.findall(text[:place])[-1]


def _table(rows: list[Key]) -> str:
    head = ["| key | values | default | meaning |", "| --- | --- | --- | --- |"]
    cells = (f"| `{row.name}` | {row.values} | {row.default} | {row.meaning} |".replace("\n", " ") for row in rows)
    return "\n".join([*head, *cells]) + "\n"


if __name__ == "__main__":
    for name in PAGES:
        text = page(name)
        (DOCS / name).write_text(text, encoding="utf-8")
