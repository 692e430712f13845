"""Everything that Dagster loads: for each recipe a group of assets and a job. Read this first.

A recipe that can't be used shows as a single asset with its error; it takes no other recipe away.
"""

from collections.abc import Iterator

import dagster as dg

from assets import (
    books,
    contamination,
    documents,
    files,
    finetuned,
    graph,
    imported,
    own_text,
    pretrained,
    release,
    report,
    shards,
    tasks,
    vocabulary,
    wikipedia,
)
from assets.asset import RECIPE, Wiring, asset_of
from pipeline.errors import RecipeError

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
    "contamination": contamination.WIRING,
    "benchmark_report": report.WIRING,
}

# Steps are processes. A fork server starts one in half the time of a fresh interpreter, and loads once per run what every
# step needs: Great Expectations alone takes seconds to import.
PRELOADED = ["great_expectations", "assets.definitions"]
EXECUTOR = dg.multiprocess_executor.configured(
    {"max_concurrent": 2, "start_method": {"forkserver": {"preload_modules": PRELOADED}}}
)


def definitions() -> dg.Definitions:
    """All recipes as they stand on disk now."""
    loaded = graph.load()
    assets, jobs = [], []
    for name, recipe in sorted(loaded.recipes.items()):
        assets += [asset_of(node, WIRING[node.stage.name]) for node in graph.nodes(recipe).values()]
        jobs.append(
            dg.define_asset_job(
                name,
                selection=dg.AssetSelection.groups(name),
                tags={RECIPE: name},
                description=recipe.description or f"Everything that recipe {name} declares.",
            )
        )
    assets += [_broken(name, error) for name, error in sorted(loaded.errors.items())]
    return dg.Definitions(assets=assets, jobs=jobs, executor=EXECUTOR)


def _broken(name: str, error: RecipeError) -> dg.AssetsDefinition:
    safe = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "recipe"

    @dg.asset(
        key=[safe, "recipe_error"],
        group_name=safe,
        description=f"This recipe can't be used: {error}",
        check_specs=[dg.AssetCheckSpec("recipe_loads", asset=dg.AssetKey([safe, "recipe_error"]))],
    )
    def body() -> Iterator[dg.AssetCheckResult]:
        yield dg.AssetCheckResult(passed=False, metadata={"error": str(error)})
        raise dg.Failure(str(error), allow_retries=False)

    return body


defs = definitions()
