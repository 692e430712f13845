"""AdamW as google-research/bert optimization.py computes it, its learning rate, and clipping by the global norm."""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn


def learning_rate(step: int, peak: float, warmup_steps: int, total_steps: int) -> float:
    """Learning rate of update `step`, counted from 0: a pure function, so that a resumed run can't miscount.

    Linear warm-up, then the original's line from `peak` at step 0 to 0 at `total_steps`, so that the end of the warm-up
    drops by warmup_steps / total_steps. Unlike there, the first rate is not 0 but peak / warmup_steps.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * max(0.0, 1 - step / total_steps)


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Scale all gradients so that their global norm is at most `max_norm`; returns the norm before that.

    A norm that is not finite leaves the gradients as they are: the caller skips the step.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))
    if math.isfinite(norm) and norm > max_norm:
        torch._foreach_mul_(gradients, max_norm / norm)
    return norm


class AdamW:
    """Adam with decoupled weight decay: p −= rate · (m / (√v + ε) + decay · p).

    Without bias correction that is the original. With it, m and v are divided by 1 − β₁ᵗ and 1 − β₂ᵗ as in Kingma & Ba
    (torch.optim.AdamW). One-dimensional parameters (biases, LayerNorm gains) are not decayed; embeddings are.
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
        """Update every parameter that has a gradient."""
        self.updates += 1
        names = [name for name, parameter in self.parameters.items() if parameter.grad is not None]
        decayed = [name for name in names if self.parameters[name].ndim > 1]
        self._update(decayed, rate, self.weight_decay)
        self._update([name for name in names if self.parameters[name].ndim <= 1], rate, 0.0)

    def _update(self, names: Sequence[str], rate: float, decay: float) -> None:
        if not names:
            return
        parameters: list[Tensor] = [self.parameters[name] for name in names]
        gradients = [g for name in names if (g := self.parameters[name].grad) is not None]
        first, second = [self.first[name] for name in names], [self.second[name] for name in names]
        # The fused kernel always corrects; after endlessly many updates its correction is 1.
        counted = float(self.updates) if self.bias_correction else 1e9
        steps = [torch.tensor(counted, device=p.device) for p in parameters]
        torch._fused_adamw_(
            parameters,
            gradients,
            first,
            second,
            [],
            steps,
            lr=rate,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=decay,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
        )

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

    def _moments(self) -> tuple[tuple[str, dict[str, Tensor]], ...]:
        return ("first", self.first), ("second", self.second)
