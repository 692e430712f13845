"""The record that a person names: `RECIPE/ASSET`, `RECIPE/ASSET~1` (what it was before), or the digest of a record."""

from collections.abc import Sequence

from assets import graph
from pipeline.errors import RecipeError, StoreError
from pipeline.recipes import rehearsal
from pipeline.store import Record, Store


def named(store: Store, target: str) -> Record:
    """Raises RecipeError for what was never made, StoreError for a record that is missing or altered."""
    return store.record(target) if _is_digest(target) else current(store, target)


def _is_digest(target: str) -> bool:
    return len(target) == 64 and all(c in "0123456789abcdef" for c in target)


def current(store: Store, target: str) -> Record:
    """The current record of `RECIPE/ASSET`, or of `RECIPE/ASSET~2` the one that it had two before; the recipe's YAML need not
    exist any more."""
    recipe, _, asset = target.partition("/")
    asset, before, count = asset.partition("~")
    if before:
        return _earlier(store, recipe, asset, count)
    record = store.pointer(recipe, asset) if asset else None
    if record is None:
        declared = graph.load().recipes.get(rehearsal.base_of(recipe))
        if declared and asset:
            declared.config_for(asset)  # names the assets that there are, where this is none
        made = [name for of, name in store.pointers() if of == recipe]
        if asset in made:
            raise StoreError(
                f"the record of {target} is lost or was altered", "bert verify names it; bert run makes it anew."
            )
        raise RecipeError(
            f"{target}: the store has no such artifact" + (f"; {recipe} has {', '.join(made)}" if made else ""),
            f"Make it: bert run {target}"
            if asset
            else f"Name an asset, for example: bert audit {recipe}/{_example(made)}",
        )
    return record


def _earlier(store: Store, recipe: str, asset: str, count: str) -> Record:
    had = store.history(recipe, asset)
    if not count.isdecimal() or int(count) >= len(had):
        raise RecipeError(
            f"{recipe}/{asset}~{count}: the store has {len(had)} records of it",
            f"~0 is what it is now, ~{len(had) - 1} the oldest." if len(had) > 1 else "Leave ~ and the number out.",
        )
    return store.record(had[int(count)])


def _example(made: Sequence[str]) -> str:
    """Of the assets that were made, the one that people ask for most."""
    return next((name for name in ("release", "benchmark_report") if name in made), "release")
