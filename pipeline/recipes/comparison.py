"""Comparisons: one YAML file in recipes/comparisons declares a table over recipes, beside published numbers.

They are read and refused like recipes: unknown keys, recipes and tasks with file, line, rule and value.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config import Comparison, FinetuneConfig
from pipeline.errors import RecipeError
from pipeline.recipe import RESERVED, Loaded, Recipe
from pipeline.recipes import yamlfile, yamlmodel
from pipeline.recipes.names import ANSWERED_BY
from pipeline.recipes.yamlfile import KeyPath


@dataclass(frozen=True)
class Comparisons:
    """All comparisons of a folder of recipes, and what is wrong with the files that are none, both by name."""

    found: dict[str, Comparison]
    errors: dict[str, RecipeError]

    def get(self, name: str) -> Comparison:
        """One comparison. Raises its RecipeError, or one that names the comparisons that there are."""
        if name in self.errors:
            raise self.errors[name]
        if name not in self.found:
            raise RecipeError(f"there is no comparison {name}", _hint(name, self.found))
        return self.found[name]


def load_comparisons(folder: Path, recipes: Loaded) -> Comparisons:
    """Read every `comparisons/*.yaml` of a folder of recipes. One bad file does not take the others away."""
    found: dict[str, Comparison] = {}
    errors: dict[str, RecipeError] = {}
    for file in sorted((folder / RESERVED).glob("*.y*ml")):
        try:
            found[file.stem] = _comparison(file, recipes)
        except RecipeError as error:
            errors[file.stem] = error
    return Comparisons(found, errors)


def _comparison(file: Path, recipes: Loaded) -> Comparison:
    if file.suffix != ".yaml":
        raise RecipeError(f"{yamlfile.shown(file)}: comparisons end in .yaml", f"Rename it to {file.stem}.yaml.")
    tree = yamlfile.read(file)
    comparison, problems = yamlmodel.validated(Comparison, tree)
    if comparison is not None:
        problems = [
            yamlmodel.problem(tree, path, rule, value, todo)
            for path, rule, value, todo in _contradictions(comparison, file.stem, recipes)
        ]
    if problems or comparison is None:
        raise yamlmodel.refusal(problems)
    return comparison


def _contradictions(comparison: Comparison, name: str, recipes: Loaded) -> Iterator[tuple[KeyPath, str, Any, str]]:
    """(key path, rule, value, what to do)."""
    if comparison.name != name:
        todo = f"Write `name: {name}`, or rename the file."
        yield ("name",), f"is not the file's name {name}", comparison.name, todo
    columns = [column.name for column in comparison.columns]
    for index in _again(columns):
        yield ("columns", index, "name"), "stands twice", columns[index], "Rename one of the two columns."
    labels = [row.label for row in comparison.rows]
    for index in _again(labels):
        yield ("rows", index, "label"), "stands twice", labels[index], "Put its recipes into one row, or rename it."
    members: dict[str, Recipe] = {}
    for index, row in enumerate(comparison.rows):
        at: KeyPath = ("rows", index)
        if not row.everyone() and not row.published:
            yield at, "has neither recipes nor published numbers", None, "Name one, or remove the row."
        yield from _no_recipes((*at, "recipes"), row.recipes, recipes)
        for column, some in row.instead.items():
            yield from _no_recipes((*at, "instead", column), some, recipes)
        members |= {name: recipes.recipes[name] for name in row.everyone() if name in recipes.recipes}
        for key, named in (("published", row.published), ("instead", row.instead)):
            for column in named:
                if column not in columns:
                    yield (*at, key, column), "is no column", None, _hint(column, columns)
        yield from _no_combination(comparison, index, recipes.recipes)
    yield from _no_task(comparison, members)


def _no_recipes(at: KeyPath, named: tuple[str, ...], recipes: Loaded) -> Iterator[tuple[KeyPath, str, Any, str]]:
    """Names that stand twice, or are none of a recipe that can be used."""
    for place, recipe in enumerate(named):
        if recipe in named[:place]:
            yield (*at, place), "stands twice in this row", recipe, "Remove it."
        elif recipe in recipes.errors:
            rule = f"is a recipe that can't be used: {recipes.errors[recipe].what}"
            yield (*at, place), rule, recipe, f"Mend {recipe} first."
        elif recipe not in recipes.recipes:
            yield (*at, place), "is no recipe", recipe, _hint(recipe, recipes.recipes)


def _no_combination(
    comparison: Comparison, index: int, recipes: Mapping[str, Recipe]
) -> Iterator[tuple[KeyPath, str, Any, str]]:
    """Settings of a row that are not those of one combination in the grid of a task that a column asks for."""
    row = comparison.rows[index]
    for recipe in (recipes[name] for name in row.everyone() if name in recipes) if row.settings else ():
        named = {
            c.task: c.name for c in reversed(comparison.columns) if c.task is not None and recipe.name in row.of(c.name)
        }
        for task in recipe.finetuning.tasks:
            if task not in named or task in ANSWERED_BY:
                continue
            config = recipe.config_for(f"finetuned_{task}")
            assert isinstance(config, FinetuneConfig)
            _, wrong = row.fitting([variant.plain() for variant in config.variants])
            if wrong:
                rule = (
                    f"do not fit the grid of {recipe.name}'s task {task}, which column {named[task]} asks for: {wrong}"
                )
                todo = "Name one combination, or put this row into a comparison without that column."
                yield ("rows", index, "settings"), rule, None, todo


def _no_task(comparison: Comparison, members: Mapping[str, Recipe]) -> Iterator[tuple[KeyPath, str, Any, str]]:
    """Columns of tasks that no member has."""
    tasks = {task for recipe in members.values() for task in recipe.finetuning.tasks}
    for index, column in enumerate(comparison.columns):
        if column.task is not None and members and column.task not in tasks:
            rule = f"none of the recipes has the task {column.task}"
            yield ("columns", index, "metric"), rule, column.metric, _hint(column.task, tasks)


def _again(names: list[str]) -> list[int]:
    """Places of names that stand earlier too."""
    return [index for index, name in enumerate(names) if name in names[:index]]


def _hint(name: str, known: Iterable[str]) -> str:
    listed = sorted(known)
    return f"{yamlmodel.did_you_mean(name, listed)}Known: {', '.join(listed) or 'none'}."
