"""The graph of a recipe: which assets it has, which stage makes each, and what each reads. Knows nothing of Dagster, so
that `bert status` and `bert audit` need not load it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from model import comparison, contamination, finetuning, imported, predicting, pretraining, release, report, tasks
from model.promotion import decision
from pipeline import books, documents, extraction, own_text, retrain, shards, sources, vocabulary
from pipeline.build import Node
from pipeline.config import Comparison, ComparisonConfig, Corpus
from pipeline.errors import RecipeError, SourceError
from pipeline.recipe import RESERVED, Loaded, Recipe, digest_of, load_recipes
from pipeline.recipes import rehearsal, yamlmodel
from pipeline.recipes.comparison import Comparisons, load_comparisons
from pipeline.recipes.names import ANSWERED_BY
from pipeline.settings import settings
from pipeline.stage import Stage
from pipeline.storage import champion
from pipeline.store import Store, open_store

STAGES: tuple[Stage, ...] = (
    sources.STAGE,
    extraction.STAGE,
    books.STAGE,
    own_text.STAGE,
    documents.STAGE,
    vocabulary.STAGE,
    shards.STAGE,
    imported.STAGE,
    pretraining.STAGE,
    release.STAGE,
    tasks.STAGE,
    finetuning.STAGE,
    predicting.STAGE,
    contamination.STAGE,
    report.STAGE,
    decision.STAGE,
    comparison.STAGE,
)


def clear_run(stage: str, folder: Path) -> None:
    """Remove of a training run of the stage called so what nobody needs once its result is published."""
    for known in STAGES:
        if known.name == stage:
            known.clear(folder)


def nodes(recipe: Recipe, shown: Recipe | None = None) -> dict[str, Node]:
    """All assets of a recipe by name, each after what it reads. `shown`: the recipe as Dagster has it, where that is another
    (pipeline/retrain.py): its digests are declared."""
    made: dict[str, Node] = {}
    configs = recipe.configs()
    declared = shown.configs() if shown else configs

    def add(name: str, stage: Stage, **inputs: str) -> str:
        read = {k: made[v] for k, v in inputs.items()}
        made[name] = Node(recipe.name, name, stage, configs[name], digest_of(declared[name]), read)
        return name

    # What a phase, or fine-tuning, goes on with, under the input name that the phase gives it.
    last: dict[str, str] = {}
    corpus: dict[str, str] = {}
    if recipe.checkpoint or (recipe.pretraining and recipe.pretraining.start):
        last = {"imported_checkpoint": add("imported_checkpoint", imported.STAGE)}
    if recipe.corpus:
        corpus = {"documents": _documents(recipe.corpus, add)}
    words = add("wordpiece_vocab", vocabulary.STAGE, **corpus, **last)
    for phase in recipe.pretraining.phases if recipe.pretraining else ():
        length = phase.sequence_length
        pairs = add(f"pretraining_shards_{length}", shards.STAGE, wordpiece_vocab=words, **corpus)
        read = {"pretraining_shards": pairs, "wordpiece_vocab": words, **last}
        last = {"previous": add(f"pretrained_{length}", pretraining.STAGE, **read)}
    (pretrained,) = last.values()
    if recipe.pretraining:
        add("release", release.STAGE, pretrained=pretrained, wordpiece_vocab=words)
    data, tuned = {}, {}
    for task in recipe.finetuning.tasks:
        data[f"task_data_{task}"] = add(f"task_data_{task}", tasks.STAGE)
    for task in recipe.finetuning.tasks:
        if task in ANSWERED_BY:
            continue
        tuned[f"finetuned_{task}"] = add(
            f"finetuned_{task}",
            finetuning.STAGE,
            task_data=f"task_data_{task}",
            pretrained=pretrained,
            wordpiece_vocab=words,
        )
    for task in recipe.finetuning.tasks:
        if task in ANSWERED_BY:
            model = f"finetuned_{ANSWERED_BY[task]}"
            read = {"task_data": f"task_data_{task}", "finetuned": model, "wordpiece_vocab": words}
            tuned[f"finetuned_{task}"] = add(f"predicted_{task}", predicting.STAGE, **read)
    overlap = {"contamination": add("contamination", contamination.STAGE, **corpus, **data)} if corpus else {}
    add("benchmark_report", report.STAGE, pretrained=pretrained, **overlap, **tuned, **data)
    if recipe.retrain and recipe.pretraining:
        phases = [phase.sequence_length for phase in recipe.pretraining.phases]
        read = {f"pretrained_{length}": f"pretrained_{length}" for length in phases}
        shown_by = {name: name for name in ("release", "benchmark_report")}
        rows = {"pretraining_shards": f"pretraining_shards_{phases[-1]}"}
        add("promotion_decision", decision.STAGE, **shown_by, **corpus, **rows, **read, **overlap, **tuned, **data)
    return made


def _documents(corpus: Corpus, add: Callable[..., str]) -> str:
    """Add the assets of a corpus, from every source to the documents; the name of the last."""
    texts = {}
    for name, source in corpus.sources.items():
        if source.kind == "wikipedia":
            texts[name] = add(f"{name}_text", extraction.STAGE, dump=add(f"{name}_dump", sources.STAGE))
        else:
            stage = books.STAGE if source.kind == "books" else own_text.STAGE
            texts[name] = add(f"{name}_text", stage, files=add(f"{name}_files", sources.STAGE))
    return add("documents", documents.STAGE, **texts)


def comparison_node(compared: Comparison, graph_of: Callable[[str], Mapping[str, Node]]) -> Node:
    """The asset of a comparison: it reads the last `pretrained_L`, and every `finetuned_T` that its columns name, or under that
    name the `predicted_T` of a task that another one's model answers.

    graph_of: recipe → its nodes.
    """
    tasks = {column.task for column in compared.columns}
    read: dict[str, Node] = {}
    only_fine_tune = []
    for recipe in compared.recipes():
        graph = graph_of(recipe)
        trained = [node for node in graph.values() if node.stage == pretraining.STAGE]
        if None in tasks and trained:
            read[f"{recipe}/pretrained"] = trained[-1]
        elif None in tasks:
            only_fine_tune.append(recipe)
        for task in sorted(task for task in tasks if task is not None):
            name = f"{'predicted' if task in ANSWERED_BY else 'finetuned'}_{task}"
            if name in graph:
                read[f"{recipe}/finetuned_{task}"] = graph[name]
    config = ComparisonConfig.model_validate({**dict(compared), "only_fine_tune": tuple(only_fine_tune)})
    return Node(RESERVED, compared.name, comparison.STAGE, config, config.digest(), read, gathers=True)


def load() -> Loaded:
    """Every recipe of the folder that the settings name."""
    return load_recipes(settings().recipes_path)


def recipe_of(name: str, sample: float | None = None) -> Recipe:
    """A recipe, or its rehearsal `R@sample` with the share `sample`, or the one that was asked for last. RecipeError for what can't
    be used, or was never rehearsed."""
    base = load().get(rehearsal.base_of(name))
    return rehearsal_of(base, sample) if rehearsal.is_rehearsal(name) else base


def rehearsal_of(recipe: Recipe, sample: float | None = None) -> Recipe:
    """The rehearsal of a recipe, as `recipe_of` gives it."""
    share = rehearsal.share_of(settings().home_path, recipe.name) if sample is None else sample
    return rehearsal.sampled(recipe, share)


def load_compared(recipes: Loaded) -> Comparisons:
    """Every comparison of that folder."""
    return load_comparisons(settings().recipes_path, recipes)


def comparison_nodes(name: str = "") -> dict[str, Node]:
    """The asset of one comparison, or of all that can be used. Raises RecipeError naming what exists, its own error, or those of
    all where none can be used."""
    recipes = load()
    compared = load_compared(recipes)
    graphs: dict[str, Mapping[str, Node]] = {}

    def graph_of(recipe: str) -> Mapping[str, Node]:
        if recipe not in graphs:
            graphs[recipe] = at_moment(recipes.recipes[recipe])
        return graphs[recipe]

    chosen = [compared.get(name)] if name else list(compared.found.values())
    if not chosen and compared.errors:
        raise yamlmodel.refusal([(error.what, error.todo) for error in compared.errors.values()])
    if not chosen:
        raise RecipeError("there are no comparisons", f"Write {RESERVED}/NAME.yaml in the folder of recipes.")
    return {each.name: comparison_node(each, graph_of) for each in chosen}


def find(path: str, dump: str | None = None, sample: float | None = None) -> tuple[dict[str, Node], Node | None]:
    """The graph of `RECIPE` or `RECIPE/ASSET`, and that asset; of `comparisons` or `comparisons/NAME` likewise. Of a recipe that
    is retrained: as the retrain `dump` has it, or the newest that is known here. `sample`: see `recipe_of`.

    Raises RecipeError naming what exists, or with the recipe's own error; SourceError where no dump is known yet.
    """
    name, slash, asset = path.partition("/")
    if name == RESERVED:
        compared = comparison_nodes(asset)
        return compared, compared.get(asset)
    if slash and not asset:  # what a script makes of a variable that is not set
        raise RecipeError(f"{path!r} names no asset", f"Write {name} for all of them, or {name}/ASSET.")
    graph = at_moment(recipe_of(name, sample), dump)
    if not asset:
        return graph, None
    if asset not in graph:
        hint = yamlmodel.did_you_mean(asset, graph)
        raise RecipeError(f"recipe {name} has no asset {asset!r}", f"{hint}Its assets: {', '.join(graph)}.")
    return graph, graph[asset]


def at_moment(recipe: Recipe, dump: str | None = None) -> dict[str, Node]:
    """The assets of a recipe; where it is retrained, with what its retrain `dump` (or the newest known) settled."""
    if recipe.retrain is None:
        return nodes(recipe)
    store = open_store()
    try:
        moment = retrain.now(store, recipe, dump)
    except SourceError:
        if dump is not None:
            raise
        return nodes(retrain.widest(recipe))  # no dump is known yet: the asset that asks for it says so itself
    return of_moment(store, recipe, moment)


def of_moment(store: Store, recipe: Recipe, moment: retrain.Moment) -> dict[str, Node]:
    """The assets of one retrain. Raises StoreError where a record of the champion is missing."""
    made = nodes(retrain.resolved(store, recipe, moment), retrain.widest(recipe))
    known = {"champion": moment.champion, "scored": moment.scored, "barred": tuple(sorted(champion.barred(store)))}
    decided = made["promotion_decision"]
    made["promotion_decision"] = replace(decided, config=decided.config.model_copy(update=known))
    return made


def settled(path: str, dump: str | None = None) -> str | None:
    """Settle what the next run of this recipe (or asset) is a retrain of, by asking its wikis, and return its name; None for what
    is not retrained. Raises as `pipeline.retrain.settle` does."""
    name = path.partition("/")[0]
    recipe = None if name == RESERVED or rehearsal.is_rehearsal(name) else load().get(name)
    if recipe is None or recipe.retrain is None:
        if dump is not None:
            raise RecipeError(f"{name} is not retrained: --dump means nothing", "Give the recipe a section retrain.")
        return None
    return retrain.settle(open_store(), recipe, dump).dump


def upstream(node: Node) -> Mapping[str, Node]:
    """The node and everything that it needs, by name, inputs first. A comparison needs nothing: it takes what there is."""
    found: dict[str, Node] = {}

    def visit(current: Node) -> None:
        for source in () if current.gathers else current.inputs.values():
            visit(source)
        found.setdefault(current.name, current)

    visit(node)
    return found
