"""Checkpoints of the original BERT (google-research/bert), under Hugging Face's names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from model.foreign.tensor_bundle import entries, value

if TYPE_CHECKING:
    from torch import Tensor

_OURS = ("bert/", "cls/predictions/", "cls/seq_relationship/")
"""scopes of modeling.py and run_pretraining.py; other names are those of fine-tuning's heads"""
_TRAINING = ("adam_m", "adam_v", "global_step")
"""last parts of the names that optimization.py adds"""
_RENAMED = (
    (re.compile(r"/layer_(\d+)/"), r"/layer/\1/"),
    (re.compile(r"_embeddings$"), "_embeddings/weight"),
    (re.compile(r"/(kernel|output_weights)$"), "/weight"),
    (re.compile(r"/output_bias$"), "/bias"),
)


@dataclass(frozen=True)
class Original:
    """The weights of an original checkpoint, and what else it holds."""

    weights: "dict[str, Tensor]"
    """under the names that Hugging Face's files had at first, [outputs, inputs] as theirs"""
    names: Mapping[str, str]
    """those names → the original's"""
    ignored: tuple[str, ...]
    """weights that belong to another head, which are not read"""
    training_state: int
    """how many moments of the optimizer and counts of steps were left out"""


def read(index: Path) -> Original:
    """The weights of a checkpoint by the path of its index. Raises DataError as `model.foreign.tensor_bundle` does."""
    import torch

    weights, names, ignored, training = {}, {}, [], 0
    for name, entry in entries(index).items():
        if name.rpartition("/")[2] in _TRAINING:
            training += 1
        elif not name.startswith(_OURS):
            ignored.append(name)
        else:
            renamed = hugging_face_name(name)
            tensor = torch.from_numpy(value(entry).copy())
            # There a dense layer computes x·kernel, here x·weightᵀ.
            transposed = name.endswith("/kernel") and tensor.ndim == 2
            weights[renamed] = tensor.T.contiguous() if transposed else tensor
            names[renamed] = f"{name}, transposed," if transposed else name
    return Original(weights, names, tuple(ignored), training)


def hugging_face_name(name: str) -> str:
    """The name of a variable of the original as Hugging Face's first files had it (gamma and beta stay)."""
    for pattern, to in _RENAMED:
        name = pattern.sub(to, name)
    return name.replace("/", ".")
