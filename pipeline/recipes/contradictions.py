"""What a recipe can't be, though each of its sections may be as it is."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import (
    BEST_LAYERS,
    LEAST_LAYERS,
    WINDOWED,
    Checkpoint,
    Corpus,
    Finetuning,
    FinetuningOverride,
    Gates,
    Grid,
    ModelFrom,
    PathFrom,
    Phase,
    Pretraining,
    Source,
    Start,
    UrlFrom,
    WikimediaFrom,
)
from pipeline.formats import checkpoint_folder
from pipeline.formats.kinds import ENDINGS, is_of, plain_name
from pipeline.recipes import yamlfile, yamlmodel
from pipeline.recipes.names import ANSWERED_BY, BUILT_IN_TASKS, CHAMPION, STORED, is_file
from pipeline.recipes.task_rules import task_faults
from pipeline.recipes.yamlfile import KeyPath

if TYPE_CHECKING:
    from pipeline.recipe import Recipe


def contradictions(recipe: "Recipe") -> Iterator[tuple[KeyPath, str, Any, str]]:
    """What each section allows but not all of them together: (key path, rule, value, what to do)."""
    if recipe.checkpoint:
        yield from _checkpoint_contradictions(recipe, recipe.checkpoint)
    elif recipe.corpus and recipe.pretraining:
        yield from _training_contradictions(recipe, recipe.corpus, recipe.pretraining)
    else:
        for key in (key for key in ("corpus", "pretraining") if getattr(recipe, key) is None):
            todo = f"Write `{key}:`; null or a typo may have removed it. A recipe that only fine-tunes has `checkpoint:` instead."
            yield (key,), "is missing", None, todo
        return
    yield from _task_contradictions(recipe.finetuning, _positions(recipe))
    yield from _encoder_contradictions(recipe)
    twice = [name for name, count in Counter(name for name, _ in recipe.assets()).items() if count > 1]
    if twice:
        yield ("corpus", "sources"), f"two assets are named {', '.join(twice)}", None, "Rename the source or the task."


def _checkpoint_contradictions(recipe: "Recipe", checkpoint: Checkpoint) -> Iterator[tuple[KeyPath, str, Any, str]]:
    for key in ("corpus", "vocabulary", "shards", "architecture", "pretraining", "retrain"):
        if key in recipe.model_fields_set:
            rule = "does not go with checkpoint: that model is only fine-tuned, as it is"
            yield (key,), rule, None, "Remove one of the two."
    if not recipe.finetuning.tasks:
        at: KeyPath = ("finetuning", "tasks")[: 1 + ("finetuning" in recipe.model_fields_set)]
        yield at, "lists no task, and a checkpoint is there to be fine-tuned", None, "List one under finetuning.tasks."
    yield from _model_contradictions(("checkpoint", "from"), checkpoint.from_, "finetune", "")


def _training_contradictions(
    recipe: "Recipe", corpus: Corpus, pretraining: Pretraining
) -> Iterator[tuple[KeyPath, str, Any, str]]:
    yield from _source_contradictions(corpus.sources)
    yield from _corpus_contradictions(corpus)
    if is_file(recipe.vocabulary.from_):
        yield from _no_file(("vocabulary", "from"), recipe.vocabulary.from_)
    yield from _no_file(("vocabulary", "compare"), recipe.vocabulary.compare)
    yield from _retrain_contradictions(recipe, pretraining)
    if pretraining.start:
        yield from _start_contradictions(recipe, pretraining, pretraining.start)
    yield from _phase_contradictions(recipe, pretraining)
    yield from _schedule_contradictions(pretraining)
    yield from _objective_contradictions(recipe)
    if recipe.vocabulary.layout == "bert" and recipe.vocabulary.size <= 104:
        yield ("vocabulary", "size"), "layout bert needs more than 104 entries", recipe.vocabulary.size, "Raise it."


def _retrain_contradictions(recipe: "Recipe", pretraining: Pretraining) -> Iterator[tuple[KeyPath, str, Any, str]]:
    retrain = recipe.retrain
    if recipe.vocabulary.from_ == CHAMPION and not retrain:
        todo = "Write a section retrain, or name a vocab.txt or a version."
        yield ("vocabulary", "from"), "only a recipe that is retrained has a champion", CHAMPION, todo
    if pretraining.start and pretraining.start.from_ == CHAMPION:
        todo = "Write retrain.start: warm (or continue) instead."
        yield ("pretraining", "start", "from"), "is named in the section retrain", CHAMPION, todo
    if not retrain:
        return
    if retrain.start != "scratch" and pretraining.start:
        todo = "Keep one of the two."
        yield ("retrain", "start"), "pretraining.start says what weights it begins with", retrain.start, todo
    if retrain.start == "continue" and pretraining.decay != "wsd":
        todo = "Write pretraining.decay: wsd, or retrain.start: warm."
        yield ("retrain", "start"), "only a schedule with decay: wsd has a stable phase", retrain.start, todo
    if retrain.start == "scratch" and retrain.scratch_every is not None:
        yield ("retrain", "scratch_every"), "every retrain begins from scratch", retrain.scratch_every, "Remove it."
    sources = recipe.corpus.sources.values() if recipe.corpus else ()
    if not any(isinstance(s.from_, PathFrom) or getattr(s.from_, "dump", None) == "latest" for s in sources):
        todo = "Write `dump: latest` of a wiki, or name a folder that changes; else remove the section."
        yield ("retrain",), "every source is fixed, so that no retrain would see anything new", None, todo
    yield from _gate_contradictions(recipe, retrain.gates)


HELD_OUT_FLOORS = ("mlm_accuracy", "sentence_accuracy")
"""what `retrain.gates.floors` names beside tasks"""


def _gate_contradictions(recipe: "Recipe", gates: Gates) -> Iterator[tuple[KeyPath, str, Any, str]]:
    tasks = recipe.finetuning.tasks
    named = {"by_task": tasks, "floors": (*tasks, *HELD_OUT_FLOORS)}
    for key, known in named.items():
        for name in getattr(gates, key):
            if name not in known:
                todo = f"Name one of {', '.join(known) or 'the tasks, once there are some'}."
                yield ("retrain", "gates", key, name), "is no score of this recipe", name, todo
    if "sentence_accuracy" in gates.floors and recipe.shards.sentence_task == "none":
        at = ("retrain", "gates", "floors", "sentence_accuracy")
        yield at, "no sentence pairs are learned (sentence_task: none)", None, "Remove the key."
    for task in tasks:
        own = recipe.finetuning.overrides.get(task, FinetuningOverride())
        seeds = own.seeds or recipe.finetuning.seeds
        if task not in ANSWERED_BY and seeds < gates.seeds:
            where: KeyPath = ("finetuning", "overrides", task, "seeds") if own.seeds else ("finetuning", "seeds")
            todo = f"Write {gates.seeds} seeds, or retrain.gates.seeds: {seeds}."
            yield where, f"{task} has fewer seeds than the gates of retrains compare ({gates.seeds})", seeds, todo
            return


def _source_contradictions(sources: Mapping[str, Source]) -> Iterator[tuple[KeyPath, str, Any, str]]:
    for name, source in sources.items():
        at = ("corpus", "sources", name)
        if source.kind != "wikipedia" and isinstance(source.from_, WikimediaFrom):
            yield (*at, "from"), f"a wiki's dump is no source of kind {source.kind}", None, "Write kind: wikipedia."
        for key, kinds in _KINDS_WITH.items():
            if source.kind not in kinds and getattr(source, key):
                yield (*at, key), f"a source of kind {source.kind} has no {key}", None, "Remove the key."
        yield from _no_file((*at, "manifest"), source.manifest)
        for key, column in source.columns or ():
            if column is not None and not column.strip():
                yield (*at, "columns", key), "is the name of no column", None, "Name a column, or remove the key."
        place = next((key for key in ("path", "url", "member") if hasattr(source.from_, key)), "")
        file = str(getattr(source.from_, place, "")).partition("?")[0]
        for ending, kind in _other_kinds(source.kind, file)[:1]:
            rule = f"a source of kind {source.kind} reads no file that ends in {ending}"
            yield (*at, "from", place), rule, file, f"Write kind: {kind}, or name another file."


def _other_kinds(kind: str, file: str) -> list[tuple[str, str]]:
    """(ending, kind) where a file named for a source of one kind is of another by its ending."""
    if kind not in ENDINGS or is_of(kind, file) or Path(file).is_dir():
        return []
    return [(end, other) for other, ends in ENDINGS.items() for end in ends if plain_name(file).endswith(end)]


_KINDS_WITH = {
    "columns": ("books", "jsonl", "parquet", "csv"),
    "sentence_per_line": ("text", "jsonl", "parquet", "csv"),
    "manifest": ("books",),
    "templates": ("wikipedia",),
}
"""Key of a source → the kinds that it belongs to."""


def _corpus_contradictions(corpus: Corpus) -> Iterator[tuple[KeyPath, str, Any, str]]:
    yield from _no_file(("corpus", "exclude"), corpus.exclude)
    for language, file in corpus.abbreviations.items():
        yield from _no_file(("corpus", "abbreviations", language, "path"), file.path)


def _no_file(at: KeyPath, path: str) -> Iterator[tuple[KeyPath, str, Any, str]]:
    if path and not Path(path).is_file():
        yield at, "there is no such file", yamlfile.shown(Path(path)), "Correct the path, or put the file there."


def _start_contradictions(
    recipe: "Recipe", pretraining: Pretraining, start: Start
) -> Iterator[tuple[KeyPath, str, Any, str]]:
    vocabulary = recipe.vocabulary
    for key in ("from_", "size", "layout", "min_frequency", "alphabet_limit"):
        if key in vocabulary.model_fields_set:
            rule = "pretraining.start brings the vocabulary that its model was trained with"
            at = ("vocabulary", key.removesuffix("_"))
            yield at, rule, getattr(vocabulary, key), "Remove the key; `compare` may stay."
    yield from _model_contradictions(("pretraining", "start", "from"), start.from_, start.mode, pretraining.optimizer)


def _model_contradictions(
    at: KeyPath, named: ModelFrom, mode: str, optimizer: str
) -> Iterator[tuple[KeyPath, str, Any, str]]:
    """What is wrong with a folder or .zip on this machine; a wheel, a download or a version of the store is looked into when it is
    imported."""
    if isinstance(named, UrlFrom) and not named.url.partition("?")[0].lower().endswith(".zip"):
        yield (*at, "url"), "names no .zip", named.url, "A model has several files."
    if not isinstance(named, str) or STORED.fullmatch(named):
        return
    for rule, todo in checkpoint_folder.faults(Path(named), mode, optimizer):
        yield at, rule, yamlfile.shown(Path(named)), todo


def _positions(recipe: "Recipe") -> float:
    """Most tokens of a sequence, as far as the recipe tells."""
    return recipe.architecture.max_positions if _states(recipe, "max_positions") else math.inf


def _states(recipe: "Recipe", field: str) -> bool:
    """Whether the recipe tells this of its architecture; an imported model says it itself."""
    imported = recipe.checkpoint or (recipe.pretraining and recipe.pretraining.start)
    return not imported or field in recipe.architecture.model_fields_set


def _objective_contradictions(recipe: "Recipe") -> Iterator[tuple[KeyPath, str, Any, str]]:
    clm, causal = recipe.shards.objective == "clm", recipe.architecture.attention == "causal"
    if clm and not causal:
        todo = "Write architecture.attention: causal."
        yield ("shards", "objective"), "bidirectional attention would see the next word", "clm", todo
    if causal and not clm:
        todo = "Write shards.objective: clm, or attention: bidirectional."
        yield ("architecture", "attention"), "masked words need what stands behind them", "causal", todo
    if clm and recipe.shards.sentence_task != "none":
        todo = "Write shards.sentence_task: none."
        yield ("shards", "sentence_task"), "left to right, [CLS] sees no sentence", recipe.shards.sentence_task, todo


def _phase_contradictions(recipe: "Recipe", pretraining: Pretraining) -> Iterator[tuple[KeyPath, str, Any, str]]:
    limit = _positions(recipe)
    for index, phase in enumerate(pretraining.phases):
        at = ("pretraining", "phases", index)
        if phase.sequence_length > limit:
            yield (
                (*at, "sequence_length"),
                f"is above architecture.max_positions {limit}",
                phase.sequence_length,
                "Lower it, or raise max_positions.",
            )
        if recipe.max_predictions(phase) > phase.sequence_length - 2:
            yield (
                (*at, "max_predictions_per_seq"),
                f"more than a sequence of {phase.sequence_length} has tokens beside [CLS] and [SEP]",
                recipe.max_predictions(phase),
                "Lower it.",
            )


def _schedule_contradictions(section: Pretraining) -> Iterator[tuple[KeyPath, str, Any, str]]:
    for key, kind in (("decay_power", "polynomial"), ("decay_share", "wsd")):
        value = getattr(section, key)
        if section.decay == kind and value is None:
            yield ("pretraining", "decay"), f"needs {key}", kind, f"Write {key}, or another decay."
        elif section.decay != kind and value is not None:
            todo = f"Write decay: {kind}, or remove the key."
            yield ("pretraining", key), f"decay {section.decay} has none", value, todo
    parts: dict[KeyPath, Pretraining | Phase] = {("pretraining",): section}
    parts |= {("pretraining", "phases", index): phase for index, phase in enumerate(section.phases)}
    for at, part in parts.items():
        if part.warmup_steps is not None and part.warmup_ratio is not None:
            todo = "Remove one of the two; `warmup_steps: null` deletes an inherited one."
            yield (*at, "warmup_ratio"), "stands beside warmup_steps", None, todo
    for index, phase in enumerate(section.phases[:1] if section.schedule == "shared" else section.phases):
        steps, warmup, falling = section.schedule_steps(phase), section.warmup_of(phase), section.decay_steps_of(phase)
        of = "of all phases" if section.schedule == "shared" else "of the phase"
        own = phase.warmup_steps is not None or phase.warmup_ratio is not None
        at = ("pretraining", "phases", index) if own else ("pretraining",)
        if warmup >= steps:
            yield (
                (*at, "warmup_steps"),
                f"is not below the {steps} steps {of}",
                warmup,
                "Lower it, or write warmup_ratio.",
            )
        elif falling is not None and warmup + falling >= steps:
            rule = f"a warm-up of {warmup} steps and a decay over {falling} leave none of the {steps} {of} between them"
            yield ("pretraining", "decay_share"), rule, section.decay_share, "Lower it, or the warm-up."


def _task_contradictions(finetuning: Finetuning, limit: float) -> Iterator[tuple[KeyPath, str, Any, str]]:
    for index, task in enumerate(finetuning.tasks):
        if task not in BUILT_IN_TASKS and task not in finetuning.define:
            known = [*BUILT_IN_TASKS, *finetuning.define]
            hint = yamlmodel.did_you_mean(task, known)
            todo = f"{hint}Define it under finetuning.define, or name one of {', '.join(known)}."
            yield ("finetuning", "tasks", index), "is no task", task, todo
        own = finetuning.overrides.get(task, FinetuningOverride())
        for name in Grid.model_fields if own.grid else ():
            if getattr(own, name) is not None and getattr(own.grid, name):
                at: KeyPath = ("finetuning", "overrides", task, name)
                yield at, "stands in the grid beside it too", getattr(own, name), "Keep one of the two."
        model = ANSWERED_BY.get(task, task)
        if model not in finetuning.tasks:
            todo = f"List {model} too, or leave {task} out."
            yield (
                ("finetuning", "tasks", index),
                f"is answered by the model of {model}, which is not listed",
                task,
                todo,
            )
    for task in finetuning.define:
        if task in BUILT_IN_TASKS:
            yield ("finetuning", "define", task), "is the name of a built-in task", None, "Choose another name."
    for name, defined in finetuning.define.items():
        for at, rule, value, todo in task_faults(defined):
            yield ("finetuning", "define", name, *at), rule, value, todo
    for task in finetuning.overrides:
        if task in ANSWERED_BY:
            rule = f"changes nothing: {task} is answered by the model of {ANSWERED_BY[task]}, and not trained"
            yield ("finetuning", "overrides", task), rule, None, f"Write it of {ANSWERED_BY[task]}, or remove it."
    for task in finetuning.data:
        if task not in BUILT_IN_TASKS:
            todo = "Name its files under finetuning.define."
            yield ("finetuning", "data", task), "is no built-in task", None, todo
    for key, length in task_lengths(finetuning).items():
        if length > limit:
            yield key, f"is above architecture.max_positions {limit}", length, "Lower it, or raise max_positions."
    yield from _window_contradictions(finetuning)
    yield from _epoch_contradictions(finetuning)


def _window_contradictions(finetuning: Finetuning) -> Iterator[tuple[KeyPath, str, Any, str]]:
    kinds = {**BUILT_IN_TASKS, **{task: define.kind for task, define in finetuning.define.items()}}
    windowed = []
    for task in finetuning.tasks:
        own = finetuning.overrides.get(task, FinetuningOverride())
        at: KeyPath = ("finetuning", "overrides", task) if own.long_texts else ("finetuning",)
        if (own.long_texts or finetuning.long_texts) == "truncate":
            if own.max_windows is not None:
                rule = "changes nothing where long_texts is truncate"
                place = ("finetuning", "overrides", task, "max_windows")
                yield place, rule, own.max_windows, "Remove it, or write long_texts: windows."
            continue
        windowed.append(task)
        if (own.encoder or finetuning.encoder) == "frozen":
            rule = "is for an encoder that is trained"
            yield (*at, "long_texts"), rule, "windows", "Write long_texts: truncate, or encoder: trained."
        if task in kinds and kinds[task] not in WINDOWED:
            rule = f"is not for {task}, a task of kind {kinds[task]}, but for {', '.join(WINDOWED)}"
            todo = "Remove it." if own.long_texts else f"Write `overrides: {{{task}: {{long_texts: truncate}}}}`."
            yield (*at, "long_texts"), rule, "windows", todo
    if finetuning.tasks and not windowed and "max_windows" in finetuning.model_fields_set:
        rule = "changes nothing where long_texts is truncate"
        yield ("finetuning", "max_windows"), rule, finetuning.max_windows, "Remove it, or write long_texts: windows."


def _epoch_contradictions(finetuning: Finetuning) -> Iterator[tuple[KeyPath, str, Any, str]]:
    """early_exit, where no run is longer."""
    most = max((_most_epochs(finetuning, task) for task in finetuning.tasks if task not in ANSWERED_BY), default=0)
    if finetuning.early_exit is not None and most and finetuning.early_exit >= most:
        rule = f"ends no run: after {most} epoch{'s' if most > 1 else ''} the longest has ended by itself"
        yield ("finetuning", "early_exit"), rule, finetuning.early_exit, f"Write less than {most}, or remove the key."


def _most_epochs(finetuning: Finetuning, task: str) -> int:
    own = finetuning.overrides.get(task, FinetuningOverride())
    grid = finetuning.grid if own.grid is None else own.grid
    return own.epochs or max(grid.epochs, default=finetuning.epochs)


def _encoder_contradictions(recipe: "Recipe") -> Iterator[tuple[KeyPath, str, Any, str]]:
    section = recipe.finetuning
    if section.tasks and section.pooling == "cls" and recipe.architecture.attention == "causal":
        rule = "with architecture.attention causal, [CLS] sees nothing but itself"
        todo = "Write pooling: last (that token sees all others, as in GPT) or pooling: mean."
        yield ("finetuning", "pooling"), rule, "cls", todo
    limit = recipe.architecture.layers if _states(recipe, "layers") else math.inf
    parts: dict[KeyPath, Finetuning | FinetuningOverride] = {("finetuning",): section}
    parts |= {("finetuning", "overrides", task): override for task, override in section.overrides.items()}
    for at, part in parts.items():
        if part.layers and (part.encoder or section.encoder) != "frozen":
            todo = "Write encoder: frozen, or remove the key."
            yield (*at, "layers"), "only a frozen encoder is read by layers", list(part.layers), todo
        elif part.layers:
            for number, choice in enumerate(part.layers):
                if LEAST_LAYERS.get(choice, 1) > limit:
                    rule = f"needs {LEAST_LAYERS[choice]} layers, architecture.layers is {limit}"
                    yield (*at, "layers", number), rule, choice, "Name another choice, or take a deeper model."
        elif part.encoder == "frozen" and not section.layers and LEAST_LAYERS[BEST_LAYERS] > limit:
            rule = f"reads {BEST_LAYERS} unless layers says otherwise, and architecture.layers is {limit}"
            yield (*at, "encoder"), rule, "frozen", "Write layers: [last], or take a deeper model."
    kinds = {**BUILT_IN_TASKS, **{task: define.kind for task, define in section.define.items()}}
    for task in section.tasks:
        own = section.overrides.get(task, FinetuningOverride())
        if kinds.get(task) == "sentence_similarity" and (
            (own.encoder or section.encoder) == "frozen" or own.bilstm or section.bilstm
        ):
            rule = "is a task of sentence vectors, which are those of an encoder that is trained, and of nothing on top of it"
            yield ("finetuning", "tasks", section.tasks.index(task)), rule, task, "Put it into a recipe of its own."


def task_lengths(finetuning: Finetuning) -> dict[KeyPath, int]:
    """The longest sequences of the tasks, by the key that says so; empty without tasks."""
    if not finetuning.tasks:
        return {}
    lengths: dict[KeyPath, int] = {("finetuning", "max_length"): finetuning.max_length}
    for task, override in finetuning.overrides.items():
        lengths["finetuning", "overrides", task, "max_length"] = override.max_length or 0
    return lengths
