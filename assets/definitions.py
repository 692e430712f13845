"""Everything that Dagster loads: for each recipe a group of assets and a job, and one for all comparisons. Read this first.

A recipe or comparison that can't be used shows as a single asset with its error; it takes no other recipe away.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from assets import graph, retraining, watching
from assets.asset import RECIPE, Wiring, asset_of, key_of, safe_name
from assets.executor import EXECUTOR
from assets.stages import (
    books,
    comparison,
    contamination,
    decision,
    documents,
    files,
    finetuned,
    imported,
    own_text,
    predicted,
    pretrained,
    release,
    report,
    shards,
    tasks,
    vocabulary,
    wikipedia,
)
from pipeline import retrain
from pipeline.build import Node
from pipeline.errors import RecipeError
from pipeline.recipe import RESERVED, Loaded
from pipeline.recipes import rehearsal
from pipeline.recipes.comparison import Comparisons

WIRING: dict[str, Wiring] = {
    "files": files.WIRING,
    "wikipedia_text": wikipedia.WIRING,
    "books_text": books.WIRING,
    "own_text": own_text.WIRING,
    "documents": documents.WIRING,
    "wordpiece_vocab": vocabulary.WIRING,
    "pretraining_shards": shards.WIRING,
    "imported_checkpoint": imported.WIRING,
    "pretrained": pretrained.WIRING,
    "release": release.WIRING,
    "task_data": tasks.WIRING,
    "finetuned": finetuned.WIRING,
    "predicted": predicted.WIRING,
    "contamination": contamination.WIRING,
    "benchmark_report": report.WIRING,
    "promotion_decision": decision.WIRING,
    "comparison": comparison.WIRING,
}


def definitions(only: str = "") -> dg.Definitions:
    """All recipes and comparisons as they stand on disk now, or only the group of this name: what a step needs."""
    loaded = Loaded({only: graph.recipe_of(only)}, {}) if rehearsal.is_rehearsal(only) else graph.load()
    compared = graph.load_compared(loaded) if only in ("", RESERVED) else Comparisons({}, {})
    shown = {n: retrain.widest(recipe) for n, recipe in sorted(loaded.recipes.items()) if only in ("", n, RESERVED)}
    groups = {name: graph.nodes(recipe) for name, recipe in shown.items()}
    retrained = {name: recipe for name, recipe in loaded.recipes.items() if recipe.retrain is not None}
    told = {name: recipe.description for name, recipe in loaded.recipes.items()}
    if compared.found:
        groups[RESERVED] = {c.name: graph.comparison_node(c, groups.__getitem__) for c in compared.found.values()}
        told[RESERVED] = "Every comparison, from what its members have now; it trains nothing."
    assets, jobs = [], []
    for name, nodes in groups.items():
        if only in ("", name):
            again = retrained.get(name)
            assets += [
                asset_of(
                    node, WIRING[node.stage.name], retraining.settled(again, node.name) if again else None, told[name]
                )
                for node in nodes.values()
            ]
            jobs.append(_job(name, told[name] or f"Everything that recipe {name} declares.", nodes))
    if not only:
        assets += [_broken(name, "recipe_error", error) for name, error in sorted(loaded.errors.items())]
        assets += [_broken(RESERVED, safe_name(name), error) for name, error in sorted(compared.errors.items())]
    automated = [] if only else list(retrained.values())
    told_of = [] if only else [watching.watch_runs]
    return dg.Definitions(
        assets=assets,
        jobs=jobs,
        sensors=[*told_of, *(sensor for recipe in automated if (sensor := retraining.new_dump_sensor(recipe)))],
        schedules=[retraining.monthly(recipe) for recipe in automated],
        executor=EXECUTOR,
    )


def _job(name: str, description: str, nodes: Mapping[str, Node]) -> Any:
    keys = [key_of(node) for node in nodes.values()]
    selection = dg.AssetSelection.assets(*keys)
    return dg.define_asset_job(safe_name(name), selection=selection, tags={RECIPE: name}, description=description)


def _broken(name: str, asset: str, error: RecipeError) -> dg.AssetsDefinition:
    safe = safe_name(name)

    @dg.asset(
        key=[safe, asset],
        group_name=safe,
        description=f"This file can't be used: {error}",
        check_specs=[dg.AssetCheckSpec("recipe_loads", asset=dg.AssetKey([safe, asset]))],
    )
    def body() -> Iterator[dg.AssetCheckResult]:
        yield dg.AssetCheckResult(passed=False, metadata={"error": str(error)})
        raise dg.Failure(str(error), allow_retries=False)

    return body


@dg.definitions
def defs() -> dg.Definitions:
    """What Dagster asks for; not made when this module is only imported."""
    return definitions()
