"""The room that a run's checkpoints need and have on the disk."""

import shutil
from pathlib import Path

from pipeline import units
from pipeline.config import TrainConfig
from pipeline.errors import StoreError
from pipeline.settings import TrainingSettings

CHECKPOINT_BYTES = 12
"""of a parameter: itself and two moments, fp32"""


def needed_bytes(parameters: int, config: TrainConfig, training: TrainingSettings) -> int:
    """What all checkpoints take that lie there at once: those that are kept, one being written, and the result."""
    milestones = config.steps // training.milestone_steps if training.milestone_steps else 0
    return parameters * CHECKPOINT_BYTES * (training.keep_checkpoints + 2 + milestones)


def room_bytes(folder: Path) -> int:
    """What checkpoints of a run folder can have: what is free, and what those of this run take already."""
    there = sum(path.stat().st_size for path in (folder / "checkpoints").rglob("*.safetensors"))
    return shutil.disk_usage(folder).free + there


def check_room(folder: Path, parameters: int) -> None:
    """Raise StoreError where not even two checkpoints fit: the newest stays until another one is whole."""
    least, free = parameters * CHECKPOINT_BYTES * 2, room_bytes(folder)
    if free < least:
        raise StoreError(
            f"{folder} has room for {units.size(free)}, two checkpoints of this model take {units.size(least)}",
            "Free space, or set `home` in settings.yaml to a folder on another disk.",
        )
