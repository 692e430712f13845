"""`bert new`: a recipe for somebody's text, measured, sized and written with comments."""

import difflib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import Columns
from pipeline.errors import RecipeError, SourceError
from pipeline.prose.languages import base_code, known_languages
from pipeline.recipe import RESERVED, load_recipes
from pipeline.recipes.yamlfile import shown
from pipeline.starting.recipe_sizes import Sizes, Text, casing, sizes
from pipeline.starting.recipe_writing import recipe_text
from pipeline.starting.table_columns import columns_of
from pipeline.starting.text_measure import Source, measure
from pipeline.starting.text_survey import TABLES, Found, survey
from pipeline.system.atomic import explained, write_bytes

WRONG_LANGUAGE = 0.5
"""Share of documents in the language that was said, below which `documents` would not be published."""


@dataclass(frozen=True)
class Written:
    """A recipe that was written, and what it is made for."""

    path: Path
    sources: tuple[Source, ...]
    left: tuple[Path, ...]
    """files that no source reads"""
    text: Text
    sizes: Sizes


def new_recipe(name: str, path: Path, language: str, recipes: Path, say: Callable[[str], None]) -> Written:
    """Measure the text at `path` and write `recipes/NAME.yaml` for it, whole or not at all.

    Args:
        language: a code such as "de".
        recipes: the folder of the recipes.
        say: hears what is being done.

    Raises:
        RecipeError: a name that can't be or that a recipe has, a language that is not known or is not the text's.
        SourceError, DataError: no text, or none that a recipe could train on; they say what is there.
        StoreError: the file can't be written.
    """
    _check_name(name, recipes)
    _check_language(language)
    path = Path(os.path.normpath(path.expanduser().absolute()))
    how = casing(language)
    try:
        found = survey(path)
        sources = _named(found.taken)
        text = measure(sources, language, how, say)
    except OSError as error:
        what = f"{error.filename or path}: {error.strerror or error}"
        raise SourceError(
            what, "Make it readable, or take it away; a sample of the text is laid out in TMPDIR."
        ) from error
    if text.language_share < WRONG_LANGUAGE:
        raise RecipeError(
            f"only {text.language_share:.0%} of the documents are in {language}, by the language detector; most are in {text.detected}",
            f"Name the language that the text is in: --language {text.detected}.",
        )
    made = sizes(text)
    file = recipes / f"{name}.yaml"
    with explained(file):
        write_bytes(file, recipe_text(name, sources, language, how, text, made, recipes).encode())
    return Written(file, sources, found.left, text, made)


def _check_name(name: str, recipes: Path) -> None:
    if name == RESERVED:
        raise RecipeError(f"{name!r} is the name of what compares recipes", "Take another name.")
    if not re.fullmatch(r"[A-Za-z0-9_]{1,100}", name):
        raise RecipeError(
            f"{name[:200]!r} can't be a recipe's name", "Use letters, digits and _, as in my_model, 100 at most."
        )
    loaded = load_recipes(recipes)
    there = {known.casefold(): known for known in (*loaded.recipes, *loaded.errors)}
    if name.casefold() in there:
        known = there[name.casefold()]
        file = shown(loaded.recipes[known].path) if known in loaded.recipes else f"{known}.yaml, which can't be used"
        raise RecipeError(f"there is a recipe {known} already: {file}", "Take another name, or remove that file first.")


def _check_language(language: str) -> None:
    if base_code(language) in known_languages() and re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*", language):
        return
    import pycld2

    names = {name.lower(): base_code(code) for name, code in pycld2.LANGUAGES if base_code(code) in known_languages()}
    close = difflib.get_close_matches(language.lower(), [*names, *known_languages()], n=1)
    hint = f"Did you mean {names.get(close[0], close[0])}? " if close else ""
    raise RecipeError(
        f"{language!r} is no code of a language", f"{hint}Write two or three letters, as de, en or zh (ISO 639)."
    )


def _named(taken: Sequence[Found]) -> tuple[Source, ...]:
    """A source of each kind, with a name of its own: that of its file or folder."""
    sources: dict[str, Source] = {}
    for found in taken:
        stem = re.sub(r"[^A-Za-z0-9]+", "_", found.path.name.partition(".")[0]).strip("_").lower() or found.kind
        name = stem if stem not in sources else f"{stem}_{found.kind}"
        first = next((file for file in found.files if file.stat().st_size), found.files[0])
        columns = columns_of(found.kind, first) if found.kind in TABLES else None
        sources[name] = Source(name, found, None if columns == Columns() else columns)
    return tuple(sources.values())
