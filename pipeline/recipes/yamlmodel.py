"""A YAML tree as a checked model of `pipeline.config`, and what is wrong with it said with file, line, key, rule and value."""

import difflib
import typing
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, TypeAlias, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipeline.config import Frozen
from pipeline.errors import RecipeError
from pipeline.recipes import refusal_words, yamlfile
from pipeline.recipes.yamlfile import KeyPath, Node

Problem: TypeAlias = tuple[str, str]
"""(`file:line: key.path: what is wrong`, what to do)"""
Known: TypeAlias = Callable[..., set[str]]
"""(key path, key of a member of a union or "") → the keys that the map around the path may have"""
Model = TypeVar("Model", bound=Frozen)


def validated(model: type[Model], tree: Node, more: Set[str] = frozenset()) -> tuple[Model | None, list[Problem]]:
    """The tree as `model`, or None and everything that is wrong with it. more: further keys that the top may have."""

    def known(path: KeyPath, member: str = "") -> set[str]:
        return _known_keys(model, path, more, member)

    problems = [
        problem(tree, path, "there is no such key, so null deletes nothing", None, _suggestion(path, known(path)))
        for path in yamlfile.nulls(tree)
        if path[-1] not in known(path)
    ]
    found: Model | None = None
    as_text: set[KeyPath] = set()
    while found is None and not problems:
        try:
            found = model.model_validate(yamlfile.plain(tree, as_text), strict=True)
        except ValidationError as error:
            details = error.errors(include_url=False)
            texts = {path for detail in details if (path := _written_text(tree, detail))} - as_text
            as_text |= texts
            if not texts:
                problems = [_explain(tree, detail, known) for detail in details if not _follows(detail, details)]
    return found, problems


def _written_text(tree: Node, detail: ErrorDetails) -> KeyPath | None:
    """Of an error `this is no text`: the path of a scalar that can be taken as it was written; else None."""
    path, node, found = yamlfile.find(tree, detail["loc"])
    scalar = found and node.value is not None and not isinstance(node.value, dict | tuple)
    return path if detail["type"] == "string_type" and scalar else None


def _explain(tree: Node, detail: ErrorDetails, known: Known) -> Problem:
    of_key = detail["loc"][-1] == refusal_words.KEY
    path, node, found = yamlfile.find(tree, detail["loc"][:-1] if of_key else detail["loc"])
    value = node.text if found and not isinstance(node.value, dict | tuple) else None
    if detail["type"] == "extra_forbidden":
        chosen = detail["loc"][-2] if len(detail["loc"]) > 1 else ""
        if path[-1] in known(path) and len(path) > 1:  # of another member of the union
            todo = f"Remove one of the two; `{chosen}: null` deletes an inherited one."
            return problem(tree, path, f"does not go with {chosen}", None, todo)
        member = "" if path[-2:-1] == (chosen,) else chosen  # of the union: a step that is no key of the tree
        return problem(tree, path, "unknown key", None, _suggestion(path, known(path, member)))
    if detail["type"] == "missing":
        if isinstance(path[-1], int):
            return problem(tree, path[:-1], f"has no value number {path[-1] + 1}", None, "Write all of them.")
        return problem(tree, path, "is missing", None, f"Write `{path[-1]}:`; null or a typo may have removed it.")
    keys = known((*path, "")) if detail["type"] == "model_type" else set[str]()
    todo = refusal_words.advice_of(detail, path[-1], node, keys)
    return problem(tree, path, refusal_words.rule_of(detail), None if of_key else value, todo)


def _follows(detail: ErrorDetails, details: Iterable[ErrorDetails]) -> bool:
    """Pydantic also calls a list too short whose items it has refused."""
    at = detail["loc"]
    return detail["type"] == "too_short" and any(
        other["loc"][: len(at)] == at and len(other["loc"]) > len(at) for other in details
    )


def refusal(problems: list[Problem]) -> RecipeError:
    """All problems of a file as one error."""
    if len(problems) == 1:
        return RecipeError(*problems[0])
    return RecipeError("\n".join(f"{what}. {todo}" for what, todo in problems), "Correct each of these lines.")


def problem(tree: Node, path: KeyPath, rule: str, value: Any, todo: str) -> Problem:
    """What is wrong at a key path of the tree: the line that it was written on, the rule, and the value unless it is None."""
    path, node, found = yamlfile.find(tree, path)
    got = "" if value in (None, "") or isinstance(value, dict | tuple) else f" (it is {value})"
    dotted = ".".join(map(str, path))
    inherited = f" {dotted} is inherited; `null` deletes it." if found and node.file != tree.file else ""
    return f"{node.place()}: {dotted}: {rule}{got}", f"{todo}{inherited}".strip()


def _suggestion(path: KeyPath, known: set[str]) -> str:
    return did_you_mean(str(path[-1]), sorted(known)).strip() or f"Known keys here: {', '.join(sorted(known))}."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name that is most like a wrong one, as a question with a blank behind it; "" where none is."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]}? " if close else ""


def _known_keys(model: type[Frozen], path: KeyPath, more: Set[str], member: str) -> set[str]:
    """Keys that the map around `path` may have, by the models (more than one where `from` has a choice: then of those with the key
    `member`, unless it is empty); `more` at the top."""
    models: set[type[Frozen]] = {model}
    for step in path[:-1]:
        fields = [f for m in models for n, f in m.model_fields.items() if (f.alias or n) == step]
        if fields:  # else a name or an index inside a dict or tuple of the same models
            models = {model for field in fields for model in _models_in(field.annotation, *field.metadata)}
    keys = [{field.alias or name for name, field in model.model_fields.items()} for model in models]
    known = set[str]().union(*(each for each in keys if not member or member in each))
    return known | more if len(path) == 1 else known


def _models_in(*annotations: Any) -> Iterator[type[Frozen]]:
    for annotation in annotations:
        if isinstance(annotation, type) and issubclass(annotation, Frozen):
            yield annotation
        else:
            yield from _models_in(*typing.get_args(annotation))
