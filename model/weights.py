"""Names of weights: ours, and those of Hugging Face's BertForPreTraining, in which releases are written."""

import re
from collections.abc import Mapping
from typing import TypeVar

from pipeline.errors import DataError

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
    raise DataError(f"{name} is no weight of a BERT with pretraining heads")
