"""Recipes: one YAML file declares one model, from its text, or from a checkpoint made elsewhere, to its benchmark report.

`load_recipes` reads the folder, `Recipe.asset_names` says which assets a recipe has, and `Recipe.config_for` is the
frozen configuration of one of them: the recipe reduced to the fields that its stage reads.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from pipeline.config import (
    BEST_LAYERS,
    LEAST_LAYERS,
    WIKIPEDIA_LICENCE,
    WINDOWED,
    Architecture,
    BooksTextConfig,
    Checkpoint,
    Columns,
    ContaminationConfig,
    Corpus,
    DecisionConfig,
    DocumentsConfig,
    FilesConfig,
    FinetuneConfig,
    Finetuning,
    FinetuningOverride,
    Frozen,
    Gates,
    Grid,
    ImportedConfig,
    ModelFrom,
    Name,
    OwnTextConfig,
    PathFrom,
    Phase,
    PredictConfig,
    PretrainConfig,
    Pretraining,
    ReleaseConfig,
    ReportConfig,
    Retrain,
    Shards,
    ShardsConfig,
    Source,
    Start,
    TaskDataConfig,
    TaskKind,
    UrlFrom,
    Vocabulary,
    VocabularyConfig,
    WheelFrom,
    WikimediaFrom,
    WikipediaTextConfig,
)
from pipeline.errors import RecipeError
from pipeline.formats import checkpoint_folder
from pipeline.formats.kinds import ENDINGS, is_of, plain_name
from pipeline.recipes import yamlfile, yamlmodel
from pipeline.recipes.task_rules import task_faults
from pipeline.recipes.yamlfile import KeyPath, Node
from pipeline.stage import ROOT
from pipeline.system.atomic import canonical_digest
from pipeline.wiki.wikitext_tables import read_rules

BUILT_IN_TASKS: Mapping[str, TaskKind] = {
    "cola": "classification",
    "sst2": "classification",
    "mrpc": "pair_classification",
    "stsb": "regression",
    **dict.fromkeys(("qqp", "mnli", "qnli", "rte", "wnli", "ax"), "pair_classification"),
    "squad1_1": "span",
    "squad2_0": "span",
    "swag": "multiple_choice",
    "conll2003": "tagging",
    "wnut17": "tagging",
    "stsb_vectors": "sentence_similarity",
}
"""Tasks that model/task_files/known_tasks.py knows by name, and their kinds."""
ANSWERED_BY: Mapping[str, str] = {"ax": "mnli"}
"""Tasks that are a test set only → the task whose model answers them."""
RESERVED = "comparisons"
_OWN = ("name", "description", "extends")  # never inherited
_EXTENDS = frozenset({"extends"})  # a key that merging has used up
_SMALL_BYTES = 1 << 20  # smaller local files enter `digest_for` by content
_VERSION = re.compile(r"[0-9a-f]{64}")
_STORED = re.compile(r"champion|[0-9a-f]{64}(/stable)?")
CHAMPION = "champion"
"""in the place of a version: what a retrain finds in use when it begins (pipeline/retrain.py)"""


class Recipe(Frozen):
    """What a person asks for: the merged, checked content of one file in recipes/."""

    name: Name
    """the file's name without .yaml"""
    description: str = ""
    """a sentence about the model; stands on its card and in its report"""
    checkpoint: Checkpoint | None = None
    """instead of the five that follow: a model made elsewhere is only fine-tuned"""
    corpus: Corpus | None = None
    vocabulary: Vocabulary = Vocabulary()
    shards: Shards = Shards()
    architecture: Architecture = Architecture()
    pretraining: Pretraining | None = None
    finetuning: Finetuning = Finetuning()
    retrain: Retrain | None = None
    """None: it is only made when somebody asks"""
    _path: Path = PrivateAttr(default=Path())
    _templates: dict[str, dict[str, tuple[str, ...]]] = PrivateAttr(default_factory=dict)
    """source → the rules of its file `templates`"""
    _sample: float = PrivateAttr(default=1.0)
    """the share of its data that a rehearsal reads (pipeline/recipes/rehearsal.py)"""

    @property
    def path(self) -> Path:
        """The recipe's own file."""
        return self._path

    def asset_names(self) -> tuple[str, ...]:
        """Every asset of this recipe, each after what it reads."""
        return tuple(self.configs())

    def configs(self) -> dict[str, Frozen]:
        """The frozen configuration of every asset's stage, each after what it reads."""
        return dict(self._assets())

    def config_for(self, asset: str) -> Frozen:
        """The frozen configuration of one asset's stage.

        Raises RecipeError, which names the assets that there are, for any other name.
        """
        configs = self.configs()
        if asset not in configs:
            hint = yamlmodel.did_you_mean(asset, configs)
            raise RecipeError(f"recipe {self.name} has no asset {asset}", f"{hint}It has: {', '.join(configs)}.")
        return configs[asset]

    def digest_for(self, asset: str) -> str:
        """Digest of what this recipe says about one asset; it stands in Dagster's code version.

        It is made from the recipe alone, at load and without any network, so that an edit shows at once. The *key*
        under which the store remembers work is another one: it is made when the asset runs, from what every origin
        resolves to then (digests of downloads, the date behind `latest`) and from the versions of the inputs. Here an
        origin counts as it is written, but a local path only by its last name and, for a file below 1 MiB that exists,
        by its SHA-256: where files lie never matters.
        """
        return digest_of(self.config_for(asset))

    def max_predictions(self, phase: Phase) -> int:
        """`max_predictions_per_seq` of a phase; by default mask_rate × sequence_length, rounded up, but not [CLS] and
        [SEP]."""
        exact = self.shards.mask_rate * phase.sequence_length
        return phase.max_predictions_per_seq or min(math.ceil(round(exact, 9)), phase.sequence_length - 2)

    def _assets(self) -> Iterator[tuple[str, Frozen]]:
        """(asset name, configuration), in an order in which every asset stands after what it reads."""
        if self.checkpoint:
            yield "imported_checkpoint", self._fine_tuned(self.checkpoint)
            yield "wordpiece_vocab", VocabularyConfig(imported=True)
        if self.corpus and self.pretraining:
            yield from self._trained(self.corpus, self.pretraining)
        for task in self.finetuning.tasks:
            yield (
                f"task_data_{task}",
                TaskDataConfig(
                    task=task,
                    define=self.finetuning.define.get(task),
                    sample=self._sample,
                    **{"from": self.finetuning.data.get(task)},
                ),
            )
        for task in self.finetuning.tasks:
            if task not in ANSWERED_BY:
                yield f"finetuned_{task}", self._finetune(task)
        for task in self.finetuning.tasks:
            if task in ANSWERED_BY:
                yield f"predicted_{task}", PredictConfig(task=task, model=ANSWERED_BY[task])
        if self.corpus:
            yield "contamination", ContaminationConfig()
        yield (
            "benchmark_report",
            ReportConfig(recipe=self.name, description=self.description, tasks=self.finetuning.tasks),
        )
        if self.retrain and self.pretraining:
            last = self._pretrain(self.pretraining, len(self.pretraining.phases) - 1)
            policy = self.retrain
            yield (
                "promotion_decision",
                DecisionConfig(recipe=self.name, gates=policy.gates, shrink=policy.shrink, pretraining=last),
            )

    def _trained(self, corpus: Corpus, pretraining: Pretraining) -> Iterator[tuple[str, Frozen]]:
        """The assets from the text to the release."""
        if pretraining.start:
            yield "imported_checkpoint", self._imported(pretraining, pretraining.start)
        for name, source in corpus.sources.items():
            downloaded = self._sample if isinstance(source.from_, WikimediaFrom) else 1.0
            files = FilesConfig(sample=downloaded, **{"from": source.from_})
            if source.kind == "wikipedia":
                yield f"{name}_dump", files
                licence = source.licence or WIKIPEDIA_LICENCE
                yield (
                    f"{name}_text",
                    WikipediaTextConfig(
                        source=name,
                        language=source.language,
                        licence=licence,
                        templates=self._templates.get(name, {}),
                        sample=self._sample,
                    ),
                )
            else:
                yield f"{name}_files", files
                yield f"{name}_text", self._text(corpus, name, source)
        yield "documents", self._documents(corpus)
        yield "wordpiece_vocab", self._vocabulary(imported=pretraining.start is not None)
        for phase in pretraining.phases:
            yield f"pretraining_shards_{phase.sequence_length}", self._shards(phase)
        for index, phase in enumerate(pretraining.phases):
            yield f"pretrained_{phase.sequence_length}", self._pretrain(pretraining, index)
        yield "release", ReleaseConfig(recipe=self.name, description=self.description)

    def _text(self, corpus: Corpus, name: str, source: Source) -> BooksTextConfig | OwnTextConfig:
        """The configuration of the text of a source that is no wiki."""
        common: dict[str, Any] = {
            "source": name,
            "language": source.language,
            "licence": source.licence,
            "licence_required": corpus.licence_required,
            "sample": self._sample,
        }
        if source.kind == "books":
            manifest = PathFrom(path=source.manifest) if source.manifest else None
            return BooksTextConfig(**common, columns=source.columns, manifest=manifest)
        common["kind"] = source.kind
        columns = source.columns or Columns()
        return OwnTextConfig(**common, columns=columns, sentence_per_line=source.sentence_per_line)

    def _documents(self, corpus: Corpus) -> DocumentsConfig:
        return DocumentsConfig(
            weights={name: source.weight for name, source in corpus.sources.items() if source.weight != 1},
            exclude=PathFrom(path=corpus.exclude) if corpus.exclude else None,
            **{name: value for name, value in _common(corpus, DocumentsConfig).items() if name != "exclude"},
        )

    def _vocabulary(self, imported: bool) -> VocabularyConfig:
        named = self.vocabulary.from_
        file = PathFrom(path=named) if _is_file(named) else None
        compared = PathFrom(path=self.vocabulary.compare) if self.vocabulary.compare else None
        section = {**dict(self.vocabulary), "from_": "" if file else named, "compare": ""}
        at_most = self._sample < 1
        return VocabularyConfig(**section, file=file, compared=compared, imported=imported, at_most=at_most)

    def _fine_tuned(self, checkpoint: Checkpoint) -> ImportedConfig:
        return ImportedConfig(
            **_model_of(checkpoint.from_),
            mode="finetune",
            longest=0,  # a task that is too long says so itself, and the others go on
            lowercase=checkpoint.lowercase,
            strip_accents=checkpoint.strip_accents,
        )

    def _imported(self, pretraining: Pretraining, start: Start) -> ImportedConfig:
        said = {name: value for name, value in self.vocabulary if name in self.vocabulary.model_fields_set}
        stated = {name: value for name, value in self.architecture if name in self.architecture.model_fields_set}
        lengths = [phase.sequence_length for phase in pretraining.phases]
        return ImportedConfig(
            **_model_of(start.from_),
            mode=start.mode,
            architecture={name: value for name, value in stated.items() if value is not None},
            longest=max([*lengths, *_task_lengths(self.finetuning).values()]),
            sentence_task=self.shards.sentence_task,
            optimizer=pretraining.optimizer if start.mode == "continue" else None,
            lowercase=said.get("lowercase"),
            strip_accents=said.get("strip_accents"),
        )

    def _shards(self, phase: Phase) -> ShardsConfig:
        return ShardsConfig(
            **dict(self.shards),
            sequence_length=phase.sequence_length,
            max_predictions_per_seq=self.max_predictions(phase),
        )

    def _pretrain(self, whole: Pretraining, index: int) -> PretrainConfig:
        phase = whole.phases[index]
        shared = whole.schedule == "shared"
        values = _common(whole, PretrainConfig, Phase) | {
            "warmup_steps": whole.warmup_of(phase),
            "decay_power": whole.decay_power or 1.0,
            "decay_steps": whole.decay_steps_of(phase),
            "bias_correction": whole.optimizer == "lamb" if whole.bias_correction is None else whole.bias_correction,
        }
        return PretrainConfig(
            architecture=None if whole.start else self.architecture,
            start_mode=whole.start.mode if whole.start and not index else None,
            objective=self.shards.objective,
            sentence_task=self.shards.sentence_task,
            masks=self._shards(phase) if self.shards.objective == "mlm" and not self.shards.stores_masks else None,
            sequence_length=phase.sequence_length,
            steps=phase.steps,
            max_hours=phase.max_hours,
            first_step=sum(earlier.steps for earlier in whole.phases[:index]) if shared else 0,
            schedule_steps=whole.schedule_steps(phase),
            batch_size=phase.batch_size or whole.batch_size,
            learning_rate=phase.learning_rate or whole.learning_rate,
            max_predictions_per_seq=self.max_predictions(phase),
            **values,
        )

    def _finetune(self, task: str) -> FinetuneConfig:
        override = self.finetuning.overrides.get(task, FinetuningOverride())
        changed = {name: value for name, value in override if value is not None}
        if override.grid is None:
            single = {name: () for name in Grid.model_fields if name in changed}
            changed["grid"] = self.finetuning.grid.model_copy(update=single)
        if override.encoder == "trained":
            changed.setdefault("layers", ())
        values = _common(self.finetuning, FinetuneConfig) | changed
        if values["long_texts"] == "truncate":  # then it changes nothing
            values.pop("max_windows")
        return FinetuneConfig(task=task, **values)


def _is_file(vocabulary: str) -> bool:
    """Whether `vocabulary.from` names a file, and not a version."""
    return bool(vocabulary) and vocabulary != CHAMPION and not _VERSION.fullmatch(vocabulary)


def _model_of(named: ModelFrom) -> dict[str, Any]:
    """The field of `ImportedConfig` that says where a model lies."""
    if isinstance(named, WheelFrom):
        return {"wheel": named}
    if isinstance(named, UrlFrom):
        return {"folder": named}
    return {"version": named} if _STORED.fullmatch(named) else {"folder": PathFrom(path=named)}


def _common(section: Frozen, config: type[Frozen], without: type[Frozen] | None = None) -> dict[str, Any]:
    """The section's fields that the config has too, but for those of `without`."""
    skipped = without.model_fields if without else {}
    return {name: value for name, value in section if name in config.model_fields and name not in skipped}


def digest_of(config: Frozen) -> str:
    """Digest of what a recipe says about one asset, from its configuration (`Recipe.digest_for`)."""
    return canonical_digest(_declared(config))


def _declared(value: Any) -> Any:
    """What a recipe says, as JSON values: without what stands at its default, and without where local files lie."""
    if isinstance(value, PathFrom):
        path = Path(value.path)
        known: dict[str, Any] = {"path": path.name}
        if path.is_file() and path.stat().st_size < _SMALL_BYTES:
            known["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        return known
    if isinstance(value, Frozen):
        fields = type(value).model_fields
        return {
            fields[name].alias or name: _declared(part)
            for name, part in value
            if part != fields[name].get_default(call_default_factory=True)
        }
    if isinstance(value, Mapping):
        return {name: _declared(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_declared(part) for part in value]
    return value


# ── reading the folder ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Loaded:
    """All recipes of a folder, and what is wrong with the files that are none, both by name."""

    recipes: dict[str, Recipe]
    errors: dict[str, RecipeError]

    def get(self, name: str) -> Recipe:
        """One recipe. Raises its RecipeError, or one that names the recipes that there are."""
        if name in self.errors:
            raise self.errors[name]
        if name not in self.recipes:
            hint = yamlmodel.did_you_mean(name, self.recipes)
            raise RecipeError(f"there is no recipe {name}", f"{hint}Known: {', '.join(self.recipes) or 'none'}.")
        return self.recipes[name]


def load_recipes(folder: Path = ROOT / "recipes") -> Loaded:
    """Read every recipe under `folder` (all `*.yaml` but those of its subfolder `comparisons`).

    One bad file does not take the others away: its RecipeError stands in `errors` under its file's name.
    """
    files: dict[str, list[Path]] = {}
    for file in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
        if file.relative_to(folder).parts[0] != RESERVED:
            files.setdefault(file.stem, []).append(file)
    trees: dict[str, Node] = {}
    errors: dict[str, RecipeError] = {}
    for name, same in sorted(files.items()):
        try:
            _check_name(name, same)
            trees[name] = yamlfile.read(same[0])
        except RecipeError as error:
            errors[name] = error
    recipes: dict[str, Recipe] = {}
    for name, tree in trees.items():
        try:
            recipes[name] = _recipe(name, _merged(name, trees, errors), tree.file)
        except RecipeError as error:
            errors[name] = error
    return Loaded(recipes, dict(sorted(errors.items())))


def _check_name(name: str, files: list[Path]) -> None:
    file = yamlfile.shown(files[0])
    if len(files) > 1:
        raise RecipeError(
            f"two files make a recipe {name}: {', '.join(map(yamlfile.shown, files))}", "Rename one; names are unique."
        )
    if files[0].suffix != ".yaml":
        raise RecipeError(f"{file}: recipes end in .yaml", f"Rename it to {name}.yaml.")
    if name == RESERVED:
        raise RecipeError(f"{file}: the name {RESERVED} is reserved", "Rename the file and its `name`.")
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise RecipeError(
            f"{file}: {name} can't be a recipe's name", "Use letters, digits and _ in the file's name and in `name`."
        )


def _merged(name: str, trees: Mapping[str, Node], broken: Mapping[str, RecipeError]) -> Node:
    """The tree of a recipe laid over those that it extends, without `extends`."""
    chain = [name]
    while (parent := trees[chain[-1]].value.get("extends")) is not None:
        wanted = parent.text if parent.value is not None else ""
        if wanted in chain:
            circle = " → ".join([*chain[chain.index(wanted) :], wanted])
            raise RecipeError(f"{parent.place()}: extends goes in a circle: {circle}", "Break the circle.")
        if wanted in broken and wanted not in trees:
            raise RecipeError(
                f"{parent.place()}: extends {wanted}, which can't be read: {broken[wanted].what}",
                f"Mend {wanted} first.",
            )
        if wanted not in trees:
            hint = yamlmodel.did_you_mean(wanted, trees)
            raise RecipeError(
                f"{parent.place()}: extends {wanted or 'nothing'}, which is no recipe",
                f"{hint}Known: {', '.join(trees)}.",
            )
        chain.append(wanted)
    merged = _without(trees[chain[-1]], _OWN if len(chain) > 1 else ("extends",))
    for position, each in reversed(list(enumerate(chain[:-1]))):
        merged = yamlfile.merge(merged, _without(trees[each], _OWN if position else ("extends",)))
    return merged


def _without(tree: Node, keys: Iterable[str]) -> Node:
    return Node({key: value for key, value in tree.value.items() if key not in keys}, tree.file, tree.line)


def _recipe(name: str, tree: Node, file: Path) -> Recipe:
    recipe, problems = yamlmodel.validated(Recipe, tree, _EXTENDS)
    if recipe is not None:
        recipe._path = file
        problems = [
            yamlmodel.problem(tree, path, rule, value, todo) for path, rule, value, todo in _contradictions(recipe)
        ]
        if recipe.name != name:
            todo = f"Write `name: {name}`, or rename the file."
            problems.insert(0, yamlmodel.problem(tree, ("name",), f"is not the file's name {name}", recipe.name, todo))
        problems += _read_templates(recipe, tree)
    if problems or recipe is None:
        raise yamlmodel.refusal(problems)
    return recipe


def _read_templates(recipe: Recipe, tree: Node) -> Iterator[tuple[str, str]]:
    """Read the files of template rules that the sources name into the recipe; (what is wrong, what to do) of each."""
    for name, source in recipe.corpus.sources.items() if recipe.corpus else ():
        if not source.templates or source.kind != "wikipedia":
            continue
        file = Path(source.templates)
        if not file.is_file():
            at = ("corpus", "sources", name, "templates")
            yield yamlmodel.problem(
                tree, at, "there is no such file", yamlfile.shown(file), "Correct the path, or put the file there."
            )
            continue
        try:
            recipe._templates[name] = read_rules(file, yamlfile.shown(file))
        except RecipeError as error:
            yield error.what, error.todo


# ── what can't be ────────────────────────────────────────────────────────────────────────────────────────────────────


def _contradictions(recipe: Recipe) -> Iterator[tuple[KeyPath, str, Any, str]]:
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
    twice = [name for name, count in Counter(name for name, _ in recipe._assets()).items() if count > 1]
    if twice:
        yield ("corpus", "sources"), f"two assets are named {', '.join(twice)}", None, "Rename the source or the task."


def _checkpoint_contradictions(recipe: Recipe, checkpoint: Checkpoint) -> Iterator[tuple[KeyPath, str, Any, str]]:
    for key in ("corpus", "vocabulary", "shards", "architecture", "pretraining", "retrain"):
        if key in recipe.model_fields_set:
            rule = "does not go with checkpoint: that model is only fine-tuned, as it is"
            yield (key,), rule, None, "Remove one of the two."
    if not recipe.finetuning.tasks:
        at: KeyPath = ("finetuning", "tasks")[: 1 + ("finetuning" in recipe.model_fields_set)]
        yield at, "lists no task, and a checkpoint is there to be fine-tuned", None, "List one under finetuning.tasks."
    yield from _model_contradictions(("checkpoint", "from"), checkpoint.from_, "finetune", "")


def _training_contradictions(
    recipe: Recipe, corpus: Corpus, pretraining: Pretraining
) -> Iterator[tuple[KeyPath, str, Any, str]]:
    yield from _source_contradictions(corpus.sources)
    yield from _corpus_contradictions(corpus)
    if _is_file(recipe.vocabulary.from_):
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


def _retrain_contradictions(recipe: Recipe, pretraining: Pretraining) -> Iterator[tuple[KeyPath, str, Any, str]]:
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


def _gate_contradictions(recipe: Recipe, gates: Gates) -> Iterator[tuple[KeyPath, str, Any, str]]:
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
    recipe: Recipe, pretraining: Pretraining, start: Start
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
    if not isinstance(named, str) or _STORED.fullmatch(named):
        return
    for rule, todo in checkpoint_folder.faults(Path(named), mode, optimizer):
        yield at, rule, yamlfile.shown(Path(named)), todo


def _positions(recipe: Recipe) -> float:
    """Most tokens of a sequence, as far as the recipe tells."""
    return recipe.architecture.max_positions if _states(recipe, "max_positions") else math.inf


def _states(recipe: Recipe, field: str) -> bool:
    """Whether the recipe tells this of its architecture; an imported model says it itself."""
    imported = recipe.checkpoint or (recipe.pretraining and recipe.pretraining.start)
    return not imported or field in recipe.architecture.model_fields_set


def _objective_contradictions(recipe: Recipe) -> Iterator[tuple[KeyPath, str, Any, str]]:
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


def _phase_contradictions(recipe: Recipe, pretraining: Pretraining) -> Iterator[tuple[KeyPath, str, Any, str]]:
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
    for key, length in _task_lengths(finetuning).items():
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


def _encoder_contradictions(recipe: Recipe) -> Iterator[tuple[KeyPath, str, Any, str]]:
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


def _task_lengths(finetuning: Finetuning) -> dict[KeyPath, int]:
    """The longest sequences of the tasks, by the key that says so; empty without tasks."""
    if not finetuning.tasks:
        return {}
    lengths: dict[KeyPath, int] = {("finetuning", "max_length"): finetuning.max_length}
    for task, override in finetuning.overrides.items():
        lengths["finetuning", "overrides", task, "max_length"] = override.max_length or 0
    return lengths
