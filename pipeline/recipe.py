"""Recipes: one YAML file declares one model, from its text, or from a checkpoint made elsewhere, to its benchmark report.

`load_recipes` reads the folder, `Recipe.asset_names` says which assets a recipe has, and `Recipe.config_for` is the
frozen configuration of one of them: the recipe reduced to the fields that its stage reads.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from pipeline.config import (
    WIKIPEDIA_LICENCE,
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
    UrlFrom,
    Vocabulary,
    VocabularyConfig,
    WheelFrom,
    WikimediaFrom,
    WikipediaTextConfig,
)
from pipeline.errors import RecipeError
from pipeline.recipes import yamlfile, yamlmodel
from pipeline.recipes.contradictions import contradictions, task_lengths
from pipeline.recipes.names import ANSWERED_BY, STORED, is_file
from pipeline.recipes.yamlfile import Node
from pipeline.stage import ROOT
from pipeline.system.atomic import canonical_digest
from pipeline.wiki.wikitext_tables import read_rules

RESERVED = "comparisons"
_OWN = ("name", "description", "extends")  # never inherited
_EXTENDS = frozenset({"extends"})  # a key that merging has used up
_SMALL_BYTES = 1 << 20  # smaller local files enter `digest_for` by content


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
        return dict(self.assets())

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

    def assets(self) -> Iterator[tuple[str, Frozen]]:
        """(asset name, configuration), in an order in which every asset stands after what it reads; a recipe in which two
        have one name is refused (pipeline/recipes/contradictions.py)."""
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
        file = PathFrom(path=named) if is_file(named) else None
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
            longest=max([*lengths, *task_lengths(self.finetuning).values()]),
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


def _model_of(named: ModelFrom) -> dict[str, Any]:
    """The field of `ImportedConfig` that says where a model lies."""
    if isinstance(named, WheelFrom):
        return {"wheel": named}
    if isinstance(named, UrlFrom):
        return {"folder": named}
    return {"version": named} if STORED.fullmatch(named) else {"folder": PathFrom(path=named)}


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
            raise RecipeError(f"there is no recipe {name}", f"{hint}bert status names all {len(self.recipes)}.")
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
            if isinstance(parent.value, (list, dict)):
                raise RecipeError(f"{parent.place()}: extends names one recipe", "Write `extends: NAME`.")
            hint = yamlmodel.did_you_mean(wanted, [each for each in trees if each != name])
            raise RecipeError(
                f"{parent.place()}: extends {wanted or 'nothing'}, which is no recipe",
                f"{hint}bert status names all {len(trees)}.",
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
            yamlmodel.problem(tree, path, rule, value, todo) for path, rule, value, todo in contradictions(recipe)
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
