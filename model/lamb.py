"""LAMB (You et al. 2020) as NVIDIA's BERT recipe computes it: Adam whose every matrix moves in proportion to its norm."""

import torch

from model.optimizer import Group, Optimizer


class Lamb(Optimizer):
    """p −= rate · ‖p‖ / ‖u‖ · u, where u = m / (√v + ε) + decay · p, with m and v corrected for their bias if asked for.

    The trust ratio ‖p‖ / ‖u‖ has no bounds: early versions that clamped it lost quality. It is 1 where one of the norms
    is 0, and for the parameters that are not decayed, as in NVIDIA's recipe. That recipe scales the gradients down to a
    global norm of 1 before: here `clip_gradients` with max_gradient_norm 1 does.
    """

    def _update(self, group: Group, rate: float, decayed: bool) -> None:
        first_correction = 1 - self.beta1**self.updates if self.bias_correction else 1.0
        second_correction = 1 - self.beta2**self.updates if self.bias_correction else 1.0
        # One after the other: updates of all parameters at once would take the memory of another model.
        for parameter, gradient, first, second in zip(*group, strict=True):
            first.lerp_(gradient, 1 - self.beta1)
            second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
            update = (first / first_correction).div_((second / second_correction).sqrt_().add_(self.epsilon))
            if decayed:
                update.add_(parameter, alpha=self.weight_decay)
                ours, its = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(update)
                update.mul_(torch.where((ours > 0) & (its > 0), ours / its, 1.0))  # on the device: nothing waits
            parameter.add_(update, alpha=-rate)
