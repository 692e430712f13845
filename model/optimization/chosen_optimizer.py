"""The optimizer that a recipe names."""

from collections.abc import Iterable

from torch import nn

from model.optimization.lamb import Lamb
from model.optimization.optimizer import AdamW, Optimizer
from pipeline.config import TrainConfig


def optimizer_of(config: TrainConfig, parameters: Iterable[tuple[str, nn.Parameter]]) -> Optimizer:
    """The optimizer of these named parameters, new."""
    return {"adamw": AdamW, "lamb": Lamb}[config.optimizer](
        parameters,
        beta1=config.adam_beta1,
        beta2=config.adam_beta2,
        epsilon=config.adam_epsilon,
        weight_decay=config.weight_decay,
        bias_correction=config.bias_correction,
    )
