"""`max_hours`: how many steps a budget of hours leaves, decided once for a run folder and kept there, in plan.json."""

import json
import sys
from pathlib import Path

from model import checkpoint
from model.processes import child
from pipeline.config import TrainConfig
from pipeline.errors import TrainingError
from pipeline.system import atomic

LEAST_STEPS = 2
"""one to warm up, one to train"""


def steps_of(folder: Path, config: TrainConfig, seconds_per_step: float) -> int:
    """The steps that were planned in this run folder before, else as many as `max_hours` leaves, written down.

    A plan that was lost, or can't be read, is that of the newest checkpoint: what it trained towards must not change.
    `seconds_per_step`: with its share of evaluating.

    Raises:
        TrainingError: the budget leaves less than two steps; nothing is written then.
    """
    assert config.max_hours is not None
    path = folder / child.PLAN
    planned = _kept(path)
    if planned is not None:
        return planned
    saved = checkpoint.newest(folder / "checkpoints")
    steps = int(config.max_hours * 3600 / seconds_per_step) if saved is None else int(saved.state["identity"]["steps"])
    steps = min(config.steps, steps)
    if steps < LEAST_STEPS:
        raise TrainingError(
            f"max_hours {config.max_hours:g} leaves {steps} steps of {seconds_per_step:.3g} s",
            "Raise it, or train on something faster.",
        )
    atomic.write_json(path, {"steps": steps, "seconds_per_step": seconds_per_step})
    return steps


def fitted(config: TrainConfig, steps: int) -> TrainConfig:
    """The configuration with so many steps, warm-up and decay in proportion."""
    share = steps / config.steps
    return config.model_copy(
        update={
            "steps": steps,
            "schedule_steps": steps,
            "warmup_steps": min(int(config.warmup_steps * share), steps - 1),
            "decay_steps": None if config.decay_steps is None else max(1, round(config.decay_steps * share)),
        }
    )


def _kept(path: Path) -> int | None:
    if not path.exists():
        return None
    try:
        steps: int = json.loads(path.read_text(encoding="utf-8"))["steps"]
        if isinstance(steps, int) and steps >= LEAST_STEPS:
            return steps
        problem = f"it plans {steps!r} steps"
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = repr(error)
    print(f"{path} can't be used ({problem}): the plan is made anew", file=sys.stderr, flush=True)
    return None
