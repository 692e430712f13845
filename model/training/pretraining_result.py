"""What a run of pretraining publishes: weights and optimizer, the model's shape, and held-out scores."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from model import checkpoint
from model.feeding.batches import held_out_rows
from model.feeding.targets import Targets
from model.processes import lines
from model.training.baselines import baselines
from model.training.pretraining_job import METRICS, STABLE
from pipeline.config import TrainConfig
from pipeline.errors import TrainingError
from pipeline.sharding.shard_reader import ShardReader
from pipeline.system import atomic

WEIGHTS = ("model.safetensors", "optimizer.safetensors", "optimizer.json")


def publish(
    folder: Path,
    config: TrainConfig,
    best_step: int | None,
    weights: Callable[[Path], None],
    shape: Mapping[str, Any],
    scores: Mapping[str, Any],
) -> None:
    """Write RUN_DIR/result, with nothing in it that depends on the machine's speed.

    weights: writes WEIGHTS of the last step into a folder.
    """

    def fill(place: Path) -> None:
        if config.publish == "best":
            _copy(folder / f"best-{best_step}", place)
        else:
            weights(place)
        if config.stable_step is not None:
            (place / STABLE).mkdir()
            _copy(folder / STABLE, place / STABLE)
        atomic.write_json(place / "config.json", shape)
        atomic.write_json(place / "held_out.json", scores)
        shutil.copyfile(folder / METRICS, place / METRICS)

    checkpoint.write_verified(folder / "result", fill)


def _copy(kept: Path, place: Path) -> None:
    """Copy weights and optimizer that were kept on the way."""
    problem = checkpoint.broken(kept)
    if problem:
        raise TrainingError(f"the weights kept in {kept} are broken: {problem}", "Start the run anew with --force.")
    for name in WEIGHTS:
        shutil.copyfile(kept / name, place / name)


def published_scores(
    folder: Path,
    config: TrainConfig,
    best_step: int | None,
    train: ShardReader,
    held_out: ShardReader,
    rows: np.ndarray,
    targets: Targets | None,
) -> dict[str, Any]:
    """held_out.json: the scores of the step that is published, on `rows` of the held-out part, beside what guessing gets."""
    step = best_step if config.publish == "best" else config.steps
    found = lines.read(folder / METRICS)
    last = next(row["held_out"] for row in reversed(found) if "held_out" in row and row["step"] == step)
    return {
        "step": config.first_step + (step or 0),
        "sequences": len(rows),
        "masked_words": len(held_out_rows(held_out, rows, targets).masked_ids),
        **last,
        "baselines": baselines(train, held_out, len(rows), targets),
    }
