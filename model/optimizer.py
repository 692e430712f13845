"""AdamW as google-research/bert optimization.py computes it, what it shares with LAMB, and clipping by the global norm."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Scale all gradients so that their global norm is at most `max_norm`; returns the norm before that.

    It is the norm of the whole batch's gradient: called once a step, after the gradients of all its parts and of all
    replicas are summed. A norm that is not finite leaves the gradients as they are: the caller skips the step.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))
    if math.isfinite(norm) and norm > max_norm:
        torch._foreach_mul_(gradients, max_norm / norm)
    return norm


class Group(NamedTuple):
    """Parameters that are updated alike, each with its gradient and moments."""

    parameters: list[Tensor]
    gradients: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]


class Optimizer(ABC):
    """What AdamW and LAMB share: both moments of every parameter, and which parameters are decayed.

    One-dimensional parameters (biases, LayerNorm gains) are not decayed; embeddings are. Moments have the type of their
    parameters: fp32.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = False,
    ) -> None:
        """`parameters` with their names, as `Module.named_parameters()` gives them."""
        self.parameters = {name: parameter for name, parameter in parameters if parameter.requires_grad}
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.weight_decay = weight_decay
        self.bias_correction = bias_correction
        self.updates = 0
        """updates made so far, for the bias correction"""
        self.first = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in self.parameters.items()}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update every parameter that has a gradient, the decayed ones first."""
        self.updates += 1
        for decayed in (True, False):
            names = [n for n, p in self.parameters.items() if p.grad is not None and (p.ndim > 1) == decayed]
            if names:
                self._update(self._group(names), rate, decayed)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def forget(self) -> None:
        """Begin anew: both moments and the count of updates are zero."""
        for _, part in self._moments():
            for moment in part.values():
                moment.zero_()
        self.updates = 0

    def state(self) -> dict[str, Tensor]:
        """Both moments by parameter name, as checkpoints hold them; `updates` is kept beside them."""
        return {f"{kind}.{name}": t for kind, part in self._moments() for name, t in part.items()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor], updates: int) -> None:
        """Continue from `state()` after `updates` updates. Raises KeyError where a moment is missing."""
        for kind, part in self._moments():
            for name, moment in part.items():
                moment.copy_(state[f"{kind}.{name}"])
        self.updates = updates

    @abstractmethod
    def _update(self, group: Group, rate: float, decayed: bool) -> None:
        """Update these parameters."""

    def _group(self, names: list[str]) -> Group:
        parameters: list[Tensor] = [self.parameters[name] for name in names]
        gradients = [p.grad for p in parameters if p.grad is not None]
        return Group(parameters, gradients, [self.first[name] for name in names], [self.second[name] for name in names])

    def _moments(self) -> tuple[tuple[str, dict[str, Tensor]], ...]:
        return ("first", self.first), ("second", self.second)


class AdamW(Optimizer):
    """Adam with decoupled weight decay: p −= rate · (m / (√v + ε) + decay · p).

    Without bias correction that is the original. With it, m and v are divided by 1 − β₁ᵗ and 1 − β₂ᵗ as in Kingma & Ba
    (torch.optim.AdamW).
    """

    def _update(self, group: Group, rate: float, decayed: bool) -> None:
        # The fused kernel always corrects; after endlessly many updates its correction is 1.
        counted = float(self.updates) if self.bias_correction else 1e9
        torch._fused_adamw_(
            *group,
            [],
            [torch.tensor(counted, device=p.device) for p in group.parameters],
            lr=rate,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=self.weight_decay if decayed else 0.0,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
        )
