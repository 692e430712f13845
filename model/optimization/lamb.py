"""LAMB (You et al. 2020) as NVIDIA's BERT recipe computes it: Adam whose every matrix moves in proportion to its norm."""

import torch

from model.optimization.optimizer import Group, Optimizer, Step, made_if, move


class Lamb(Optimizer):
    """p −= rate · ‖p‖ / ‖u‖ · u, where u = m / (√v + ε) + decay · p, with m and v corrected for their bias if asked for.

    The trust ratio ‖p‖ / ‖u‖ has no bounds: early versions that clamped it lost quality. It is 1 where one of the norms
    is 0, and for the parameters that are not decayed, as in NVIDIA's recipe. That recipe scales the gradients down to a
    global norm of 1 before: here `clip_gradients` with max_gradient_norm 1 does.
    """

    def _update(self, group: Group, step: Step) -> None:
        # One after the other: updates of all parameters at once would take the memory of another model.
        for parameter, gradient, first, second in zip(*group, strict=True):
            with made_if(step.finite, parameter, first, second):
                update = self._direction(gradient, first, second, step.number)
                if step.decayed:
                    update.add_(parameter, alpha=self.weight_decay)
                    ours, its = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(update)
                    # on the device: nothing waits
                    update.mul_(torch.where((ours > 0) & (its > 0), ours / its, 1.0))
                move(parameter, update, step.rate)
