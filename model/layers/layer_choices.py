"""Which layers' hidden states a model reads from a frozen encoder: the six choices of Devlin et al. 2019, Table 7.

A BERT of L layers has L + 1 hidden states of every token: number 0 is the embeddings', number L the last layer's.
"""

from collections.abc import Collection, Mapping
from typing import get_args

import torch
from torch import Tensor, nn

from pipeline.config import LEAST_LAYERS, LayerChoice
from pipeline.errors import DataError

LAST = 4
"""layers of the choices that end in `last_four`"""


def numbers_of(choice: LayerChoice, layers: int) -> tuple[int, ...]:
    """The hidden states that a choice reads of an encoder with so many layers, from below.

    `weighted_all` is of all layers (12 in the paper's row), without the embeddings.

    Raises:
        DataError: the encoder has too few layers for it.
    """
    least = LEAST_LAYERS.get(choice, 1)
    if layers < least:
        fits = [name for name in get_args(LayerChoice) if LEAST_LAYERS.get(name, 1) <= layers]
        raise DataError(
            f"layers {choice} needs an encoder of at least {least} layers, this one has {layers}",
            f"Choose among {', '.join(fits)}, or take a deeper model.",
        )
    match choice:
        case "embeddings":
            return (0,)
        case "second_to_last":
            return (layers - 1,)
        case "last":
            return (layers,)
        case "weighted_all":
            return tuple(range(1, layers + 1))
        case "weighted_last_four" | "concat_last_four":
            return tuple(range(layers - LAST + 1, layers + 1))


def needed(choices: Collection[LayerChoice], layers: int) -> tuple[int, ...]:
    """The hidden states that any of some choices reads, from below. Raises DataError as `numbers_of`."""
    return tuple(sorted({number for choice in choices for number in numbers_of(choice, layers)}))


def width(choice: LayerChoice, hidden: int) -> int:
    """Values of every token that a choice gives, for hidden states of `hidden` values."""
    return LAST * hidden if choice == "concat_last_four" else hidden


def combined(states: list[Tensor], weights: Tensor | None) -> Tensor:
    """Hidden states, float [T, H] each, side by side, float [T, k · H]; with `weights` float [k] their sum, float [T, H],
    each weighted with its share: the softmax of the weights."""
    if weights is None:
        return torch.cat(states, 1)
    return torch.einsum("k,kth->th", torch.softmax(weights, 0).to(states[0].dtype), torch.stack(states))


class ChosenLayers(nn.Module):
    """What one choice makes of the hidden states, with the weights that it learns, if any.

    The paper does not say whose weights its weighted sums have. They are learned here, and go through a softmax, as in
    ELMo (Peters et al. 2018, section 3.2), whose use of a frozen encoder this is. ELMo's γ, a factor for the whole sum, is
    left out: the sum goes into a matrix, which takes any factor in. Weights begin at 0, a plain mean; that is what
    `model.bert.initialize` sets them to.
    """

    def __init__(self, choice: LayerChoice, layers: int) -> None:
        super().__init__()
        self.numbers = numbers_of(choice, layers)
        self.weights = nn.Parameter(torch.zeros(len(self.numbers))) if choice.startswith("weighted_") else None

    def forward(self, states: Mapping[int, Tensor]) -> Tensor:
        """Hidden states by their numbers, float [T, H] each, others than this choice's too → float [T, width]."""
        return combined([states[number] for number in self.numbers], self.weights)
