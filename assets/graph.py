"""The graph of a recipe: which assets it has, which stage makes each, and what each reads. Knows nothing of Dagster, so
that `bert status` and `bert audit` need not load it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from model import comparison, contamination, finetuning, imported, predicting, pretraining, release, report, tasks
from pipeline import books, documents, extraction, own_text, shards, sources, vocabulary, yamlmodel
from pipeline.build import Node
from pipeline.comparison import Comparisons, load_comparisons
from pipeline.config import Comparison, Corpus
from pipeline.errors import RecipeError
from pipeline.recipe import ANSWERED_BY, RESERVED, Loaded, Recipe, load_recipes
from pipeline.settings import settings
from pipeline.stage import Stage

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
    comparison.STAGE,
)


def clear_run(stage: str, folder: Path) -> None:
    """Remove of a training run of the stage called so what nobody needs once its result is published."""
    for known in STAGES:
        if known.name == stage:
            known.clear(folder)


def nodes(recipe: Recipe) -> dict[str, Node]:
    """All assets of a recipe by name, each after what it reads."""
    made: dict[str, Node] = {}

    def add(name: str, stage: Stage, **inputs: str) -> str:
        config, declared = recipe.config_for(name), recipe.digest_for(name)
        made[name] = Node(recipe.name, name, stage, config, declared, {k: made[v] for k, v in inputs.items()})
        return name

    last: dict[
        str, str
    ] = {}  # what a phase, or fine-tuning, goes on with, under the input name that the phase gives it
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
    """The asset of a comparison: it reads the last `pretrained_L`, or the `imported_checkpoint` of a recipe that has none, and
    every `finetuned_T` that its columns name, or `predicted_T` under that name.

    graph_of: recipe → its nodes.
    """
    tasks = {column.task for column in compared.columns}
    read: dict[str, Node] = {}
    for recipe in compared.recipes():
        graph = graph_of(recipe)
        if None in tasks:
            trained = [n for n in graph.values() if n.stage in (imported.STAGE, pretraining.STAGE)]
            read[f"{recipe}/pretrained"] = trained[-1]
        for task in sorted(task for task in tasks if task is not None):
            asset = f"{'predicted' if task in ANSWERED_BY else 'finetuned'}_{task}"
            read |= {f"{recipe}/finetuned_{task}": graph[asset]} if asset in graph else {}
    return Node(RESERVED, compared.name, comparison.STAGE, compared, compared.digest(), read, gathers=True)


def load() -> Loaded:
    """Every recipe of the folder that the settings name."""
    return load_recipes(settings().recipes_path)


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
            graphs[recipe] = nodes(recipes.recipes[recipe])
        return graphs[recipe]

    chosen = [compared.get(name)] if name else list(compared.found.values())
    if not chosen and compared.errors:
        raise yamlmodel.refusal([(error.what, error.todo) for error in compared.errors.values()])
    if not chosen:
        raise RecipeError("there are no comparisons", f"Write {RESERVED}/NAME.yaml in the folder of recipes.")
    return {each.name: comparison_node(each, graph_of) for each in chosen}


def find(path: str) -> tuple[dict[str, Node], Node | None]:
    """The graph of `RECIPE` or `RECIPE/ASSET`, and that asset; of `comparisons` or `comparisons/NAME` likewise.

    Raises RecipeError naming what exists, or with the recipe's own error.
    """
    name, _, asset = path.partition("/")
    if name == RESERVED:
        compared = comparison_nodes(asset)
        return compared, compared.get(asset)
    graph = nodes(load().get(name))
    if not asset:
        return graph, None
    if asset not in graph:
        raise RecipeError(f"recipe {name} has no asset {asset!r}", f"Its assets: {', '.join(graph)}.")
    return graph, graph[asset]


def upstream(node: Node) -> Mapping[str, Node]:
    """The node and everything that it needs, by name, inputs first. A comparison needs nothing: it takes what there is."""
    found: dict[str, Node] = {}

    def visit(current: Node) -> None:
        for source in () if current.gathers else current.inputs.values():
            visit(source)
        found.setdefault(current.name, current)

    visit(node)
    return found
