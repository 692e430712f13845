"""AdamW as google-research/bert optimization.py computes it, what it shares with LAMB, and clipping by the global norm."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
    norm = float(_global_norm(gradients))
    if math.isfinite(norm) and norm > max_norm:
        torch._foreach_mul_(gradients, max_norm / norm)
    return norm


@torch.no_grad()
def clip_gradients_ahead(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """`clip_gradients`, to the same bits, for a device that is not waited for: the norm, a float64 scalar, stays there."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = _global_norm(gradients).double()
    scale = torch.where(norm.isfinite() & (norm > max_norm), max_norm / norm, 1.0)
    torch._foreach_mul_(gradients, scale.to(gradients[0].dtype))
    return norm


def _global_norm(gradients: list[Tensor]) -> Tensor:
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))


FUSED = frozenset({"cpu", "cuda"})
"""devices for which torch has AdamW as one kernel"""


class Group(NamedTuple):
    """Parameters that are updated alike, each with its gradient and moments."""

    parameters: list[Tensor]
    gradients: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]


class Step(NamedTuple):
    """What an update needs besides."""

    rate: float | Tensor
    """learning rate"""
    number: int | Tensor
    """which update it is, from 1, for the bias correction; float64 where it is on the device"""
    decayed: bool
    """whether these parameters are decayed"""
    finite: Tensor | None
    """bool scalar on the device: False leaves everything as it is; None: the update is made"""


@contextmanager
def made_if(finite: Tensor | None, *tensors: Tensor) -> Iterator[None]:
    """What is done to these tensors in the block is undone where `finite` is False; the device alone knows whether it is."""
    before = [] if finite is None else [tensor.clone() for tensor in tensors]
    yield
    if finite is not None:
        for tensor, old in zip(tensors, before, strict=True):
            tensor.copy_(torch.where(finite, tensor, old))


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
        self._updates: int | Tensor = 0
        """float64 [1] once a step was made that the device may have left out"""
        self.first = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in self.parameters.items()}

    @property
    def updates(self) -> int:
        """Updates made so far. Waits for the device where only that knows."""
        return int(self._updates)

    @torch.no_grad()
    def step(self, rate: float | Tensor, finite: Tensor | None = None) -> None:
        """Update every parameter that has a gradient, the decayed ones first.

        `finite`: a bool scalar on the device of the parameters. Where it is False the step changes nothing and does not
        count, and nobody waits to know. The results are those, to the last bit, of asking first.
        """
        if finite is not None and not isinstance(self._updates, Tensor):
            self._updates = torch.tensor([self._updates], dtype=torch.float64).to(finite.device)
        number = self._updates[0] + 1 if isinstance(self._updates, Tensor) else self._updates + 1
        for decayed in (True, False):
            names = [n for n, p in self.parameters.items() if p.grad is not None and (p.ndim > 1) == decayed]
            if names:
                self._update(self._group(names), Step(rate, number, decayed, finite))
        self._updates = self._updates + 1 if finite is None else torch.where(finite, self._updates + 1, self._updates)

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
        self._updates = 0

    def state(self) -> dict[str, Tensor]:
        """Both moments by parameter name, as checkpoints hold them; `updates` is kept beside them."""
        return {f"{kind}.{name}": t for kind, part in self._moments() for name, t in part.items()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor], updates: int) -> None:
        """Continue from `state()` after `updates` updates. Raises KeyError where a moment is missing."""
        for kind, part in self._moments():
            for name, moment in part.items():
                moment.copy_(state[f"{kind}.{name}"])
        self._updates = updates

    @abstractmethod
    def _update(self, group: Group, step: Step) -> None:
        """Update these parameters."""

    def _direction(self, gradient: Tensor, first: Tensor, second: Tensor, number: int | Tensor) -> Tensor:
        """m / (√v + ε), corrected for their bias if asked for, after both moments have taken in the gradient."""
        first_correction = 1 - self.beta1**number if self.bias_correction else 1.0
        second_correction = 1 - self.beta2**number if self.bias_correction else 1.0
        first.lerp_(gradient, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        return (first / first_correction).div_((second / second_correction).sqrt_().add_(self.epsilon))

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

    def _update(self, group: Group, step: Step) -> None:
        weight_decay = self.weight_decay if step.decayed else 0.0
        if group.parameters[0].device.type not in FUSED:
            for parameter, gradient, first, second in zip(*group, strict=True):
                with made_if(step.finite, parameter, first, second):
                    update = self._direction(gradient, first, second, step.number)
                    move(parameter, update.add_(parameter, alpha=weight_decay), step.rate)
            return
        # The fused kernel always corrects; after endlessly many updates its correction is 1.
        number = step.number if self.bias_correction else 1e9
        if not isinstance(number, Tensor):
            number = torch.full((), number, device=group.parameters[0].device)
        torch._fused_adamw_(
            *group,
            [],
            [number.float()] * len(group.parameters),
            lr=step.rate,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=weight_decay,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
            found_inf=None if step.finite is None else step.finite.logical_not().float(),
        )


def move(parameter: Tensor, update: Tensor, rate: float | Tensor) -> None:
    """p −= rate · update, which is overwritten."""
    if isinstance(rate, Tensor):
        parameter.sub_(update.mul_(rate))
    else:
        parameter.add_(update, alpha=-rate)
