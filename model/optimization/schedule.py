"""The learning rate of a step: linear warm-up, then decay. Nothing is kept, so that a resumed run can't miscount."""


def learning_rate(
    step: int,
    peak: float,
    warmup_steps: int,
    total_steps: int,
    *,
    power: float = 1.0,
    decay_steps: int | None = None,
) -> float:
    """Learning rate of update `step`, counted from 0; above 0 for every step below `total_steps`.

    Warm-up: peak · (step + 1) / warmup_steps, so that the first rate is not the original's 0.

    Decay as in google-research/bert optimization.py (tf.train.polynomial_decay): peak · (1 − step / total_steps)^power,
    counted from step 0, so that the end of the warm-up drops by about power · warmup_steps / total_steps. Power 1 is the
    original's line, 0.5 NVIDIA's recipe for LAMB. With `decay_steps` (warmup-stable-decay, Hu et al. 2024, with a line at
    the end): peak up to the last `decay_steps` steps, then peak · (total_steps − step) / decay_steps.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    left = max(0, total_steps - step)
    if decay_steps is not None:
        return peak * min(1.0, left / decay_steps)
    return peak * float(max(0.0, 1 - step / total_steps) ** power)
