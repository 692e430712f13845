"""Weights and sizes of a BERT: under our names, and as Hugging Face's BertForPreTraining has them, in which releases are
written and public models come, those of the original too once its names are Hugging Face's."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import ValidationError

from model.checkpoint import RESTORE, load_tensors
from pipeline.config import Architecture
from pipeline.errors import DataError
from pipeline.formats.checkpoint_folder import INDEX, PICKLED, SAVE_ANEW, WEIGHTS, config_file, weights_file
from pipeline.formats.foreign_json import parsed

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

_PARTS = (
    # ours, theirs; the longer name before its beginning
    ("encoder.embeddings.word.", "bert.embeddings.word_embeddings."),
    ("encoder.embeddings.position.", "bert.embeddings.position_embeddings."),
    ("encoder.embeddings.token_type.", "bert.embeddings.token_type_embeddings."),
    ("encoder.embeddings.norm.", "bert.embeddings.LayerNorm."),
    ("encoder.layers.#.attention.query.", "bert.encoder.layer.#.attention.self.query."),
    ("encoder.layers.#.attention.key.", "bert.encoder.layer.#.attention.self.key."),
    ("encoder.layers.#.attention.value.", "bert.encoder.layer.#.attention.self.value."),
    ("encoder.layers.#.attention.output.", "bert.encoder.layer.#.attention.output.dense."),
    ("encoder.layers.#.attention_norm.", "bert.encoder.layer.#.attention.output.LayerNorm."),
    ("encoder.layers.#.intermediate.", "bert.encoder.layer.#.intermediate.dense."),
    ("encoder.layers.#.output.", "bert.encoder.layer.#.output.dense."),
    ("encoder.layers.#.output_norm.", "bert.encoder.layer.#.output.LayerNorm."),
    ("encoder.pooler.", "bert.pooler.dense."),
    ("masked_words.transform.", "cls.predictions.transform.dense."),
    ("masked_words.norm.", "cls.predictions.transform.LayerNorm."),
    ("masked_words.", "cls.predictions."),
    ("next_sentence.", "cls.seq_relationship."),
)
_LAYER = re.compile(r"\.(\d+)\.")
_WORDS = "bert.embeddings.word_embeddings.weight"
_OPTIONAL = ("encoder.pooler.", "masked_words.", "next_sentence.")
"""parts that a public model may lack, each as a whole"""
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
"""what old files hold beside weights: 0, 1, 2, … and zeros"""
_GELU: dict[str, Literal["erf", "tanh"]] = {
    "gelu": "erf",
    "gelu_python": "erf",
    "gelu_new": "tanh",
    "gelu_pytorch_tanh": "tanh",
    "gelu_fast": "tanh",
}
_ASKED = {"model_type": "bert", "layer_norm_eps": 1e-12, "type_vocab_size": 2, "position_embedding_type": "absolute"}
"""what config.json has to say, or to leave at transformers' default, for this model to compute the same"""
_CODE = (
    "auto_map",
    "custom_pipelines",
    "trust_remote_code",
    "_attn_implementation_internal",
    "_experts_implementation_internal",
)
"""keys by which a config.json has another program's code loaded (CVE-2026-4372, CVE-2026-5241); a BERT needs none"""


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def to_hugging_face(weights: Mapping[str, T]) -> dict[str, T]:
    """The weights of our BertForPretraining under Hugging Face's names. Raises DataError for a name that isn't ours."""
    return {_renamed(name, 0, 1): weight for name, weight in weights.items()}


def from_hugging_face(weights: Mapping[str, T]) -> dict[str, T]:
    """The weights of a BertForPreTraining under our names. Raises DataError for a name that isn't one of its."""
    return {_renamed(name, 1, 0): weight for name, weight in weights.items()}


def _renamed(name: str, old: int, new: int) -> str:
    layer = _LAYER.search(name)
    general = _LAYER.sub(".#.", name)
    for part in _PARTS:
        # The last part of a name (weight, bias) has no dot: so `masked_words.` matches its bias only.
        if general.startswith(part[old]) and "." not in general.removeprefix(part[old]):
            return (part[new] + general.removeprefix(part[old])).replace("#", layer[1] if layer else "")
    raise DataError(f"{name} is no weight of a BERT with pretraining heads", "Name the checkpoint of a plain BERT.")


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def config_to_hugging_face(architecture: Architecture, vocabulary_size: int) -> dict[str, Any]:
    """What decides the outputs of a model, as its config.json has it for transformers."""
    return {
        "model_type": "bert",
        "vocab_size": vocabulary_size,
        "hidden_size": architecture.hidden,
        "num_hidden_layers": architecture.layers,
        "num_attention_heads": architecture.heads,
        "intermediate_size": architecture.intermediate or 4 * architecture.hidden,
        "max_position_embeddings": architecture.max_positions,
        "type_vocab_size": 2,
        "hidden_act": {"erf": "gelu", "tanh": "gelu_new"}[architecture.gelu],
        "hidden_dropout_prob": architecture.dropout,
        "attention_probs_dropout_prob": architecture.dropout,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "tie_word_embeddings": True,
        **({"is_decoder": True} if architecture.attention == "causal" else {}),
    }


def config_from_hugging_face(config: Mapping[str, Any], path: Path) -> tuple[Architecture, int]:
    """Sizes and vocabulary size out of a config.json; `path` is named in messages.

    Dropout is the hidden states'. Raises DataError where this model would compute something else, or sizes are missing.
    """
    if code := _code_in(config):
        raise DataError(
            f"{path}: {code} asks for code of the model's own to be run",
            "Remove the key if the weights are a plain BERT's.",
        )
    for key, asked in _ASKED.items():
        if config.get(key, asked) != asked:
            raise DataError(f"{path}: {key} is {config[key]!r}, not {asked!r}", "This is not a BERT that can be read.")
    activation = config.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in _GELU:
        raise DataError(f"{path}: hidden_act is {activation!r}", f"What can be read is one of {', '.join(_GELU)}.")
    todo = "Take the config.json that belongs to the weights."
    try:
        architecture = Architecture(
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            heads=config["num_attention_heads"],
            intermediate=config["intermediate_size"],
            max_positions=config["max_position_embeddings"],
            dropout=config.get("hidden_dropout_prob", 0.1),
            gelu=_GELU[activation],
            attention="causal" if config.get("is_decoder") else "bidirectional",
        )
        size = config["vocab_size"]
    except KeyError as error:
        raise DataError(f"{path} has no {error}", todo) from None
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'sizes'}: {each['msg']}" for each in error.errors())
        raise DataError(f"{path}: {wrong}", todo) from None
    if type(size) is not int or size < 1:
        raise DataError(f"{path}: vocab_size is {size!r}", todo)
    return architecture, size


def _code_in(value: Any) -> str | None:
    """The first key, at any depth, that names code to be loaded; null and false name none."""
    if isinstance(value, list):
        return next(filter(None, map(_code_in, value)), None)
    if not isinstance(value, Mapping):
        return None
    named = next((key for key in _CODE if value.get(key)), None)
    return named or _code_in(list(value.values()))


# ── a folder ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Imported:
    """A public model."""

    architecture: Architecture
    vocabulary_size: int
    weights: "dict[str, Tensor]"
    """fp32, under our names"""
    missing: tuple[str, ...]
    """of `pooler`, `masked_words`, `next_sentence`: what the model has not"""
    ignored: tuple[str, ...]
    """weights that belong to another head"""
    training_state: int = 0
    """tensors of an optimizer's state that lay beside the weights and were left out"""


def read_hugging_face(folder: Path, todo: str = RESTORE) -> Imported:
    """Read the config.json and the weights of a folder that transformers loads: BertModel or one with heads. The weights are
    those of model.safetensors; without it, those of pytorch_model.bin. `todo`: what helps where model.safetensors is broken.

    Old names (gamma, beta), missing prefixes, fp16 and bf16 weights are understood; a pooler or a pretraining head may be
    missing as a whole.

    Raises:
        DataError: the folder holds no such model, or one that this code would not compute as transformers does.
    """
    from model.foreign.pickled import load_pickled

    config, architecture, size = _described(folder)
    file = weights_file(folder)
    if file is None or file.name not in (WEIGHTS, PICKLED):
        raise DataError(f"{folder} has no {WEIGHTS} and no {PICKLED}; split weights are not read", SAVE_ANEW)
    theirs = load_tensors(file, todo) if file.name == WEIGHTS else load_pickled(file)
    return _imported(theirs, {}, file, config, architecture, size)


def read_original(folder: Path) -> Imported:
    """Read the bert_config.json and the weights of a TensorFlow checkpoint of google-research/bert, with or without the
    moments of its optimizer; heads and errors as for `read_hugging_face`."""
    from model.foreign import original

    config, architecture, size = _described(folder)
    index = weights_file(folder)
    if index is None or index.suffix != INDEX:
        raise DataError(f"{folder} has no bert_model.ckpt{INDEX}", "Name a folder of google-research/bert's.")
    found = original.read(index)
    whole = _imported(found.weights, found.names, index, config, architecture, size)
    return replace(whole, ignored=(*found.ignored, *whole.ignored), training_state=found.training_state)


def _described(folder: Path) -> tuple[Path, Architecture, int]:
    """The file that tells a model's sizes, and these."""
    path = config_file(folder)
    todo = "Name a folder that transformers loads, or one as google-research/bert released them."
    try:
        config = parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} can't be read: {error}", todo) from None
    if not isinstance(config, dict):
        raise DataError(f"{path} is not a JSON object", todo)
    return path, *config_from_hugging_face(config, path)


def _imported(
    loaded: "Mapping[str, Tensor]",
    called: Mapping[str, str],
    file: Path,
    config: Path,
    architecture: Architecture,
    size: int,
) -> Imported:
    """The model whose weights were read from `file`; `called` are their names there, where these are others."""
    import torch

    theirs = {_full(name): tensor for name, tensor in loaded.items()}
    names = {_full(name): called.get(name, name) for name in loaded}
    for copy, original in (("weight", _WORDS), ("bias", "cls.predictions.bias")):
        decoder = theirs.pop(f"cls.predictions.decoder.{copy}", None)
        if decoder is not None and not torch.equal(decoder, theirs.setdefault(original, decoder)):
            raise DataError(f"{file}: cls.predictions.decoder.{copy} is not {original}", "Only tied weights are read.")
    weights, told, ignored = {}, {}, []
    for name, tensor in theirs.items():
        if name in _BUFFERS:
            continue
        if not name.startswith(("bert.", "cls.")):
            ignored.append(name)
            continue
        try:
            ours = _renamed(name, 1, 0)
        except DataError:
            what = f"{file}: {names.get(name, name)} is no weight of a BERT with pretraining heads"
            raise DataError(what, "Take a BERT as the paper describes it.") from None
        weights[ours], told[ours] = tensor, names.get(name, name)
    missing = _checked(weights, told, architecture, size, file, config)
    return Imported(
        architecture, size, {name: tensor.float() for name, tensor in weights.items()}, missing, tuple(ignored)
    )


def _full(name: str) -> str:
    """The name that BertForPreTraining gives a weight today."""
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _checked(
    weights: "Mapping[str, Tensor]",
    told: Mapping[str, str],
    architecture: Architecture,
    size: int,
    file: Path,
    config: Path,
) -> tuple[str, ...]:
    """The parts that are missing as a whole. Raises DataError for anything else that is missing or misshapen; `told` are the
    names for messages."""
    import torch

    from model.bert import BertForPretraining

    with torch.device("meta"):
        expected = BertForPretraining(architecture, size, "nsp").state_dict()
    todo = f"Take {config.name} and {file.name} from one model."
    for name, weight in weights.items():
        if name not in expected or weight.shape != expected[name].shape:
            says = f"{config.name} says {list(expected[name].shape)}" if name in expected else "there is no such layer"
            raise DataError(f"{file}: {told[name]} has shape {list(weight.shape)}, {says}", todo)
        if not weight.is_floating_point():
            raise DataError(f"{file}: {told[name]} has values of type {weight.dtype}, not floats", todo)
    missing = [part for part in _OPTIONAL if not any(name.startswith(part) for name in weights)]
    lacking = [name for name in expected if name not in weights and not name.startswith(tuple(missing))]
    if lacking:
        more = f" and {len(lacking) - 3} more weights" if len(lacking) > 3 else ""
        raise DataError(f"{file} has no {', '.join(_renamed(name, 0, 1) for name in lacking[:3])}{more}", todo)
    return tuple(part.removesuffix(".").rpartition(".")[2] for part in missing)
