"""The folder of a training run, between and after its processes.

Once the result is published, the store has its own copy: checkpoints, kept weights and the result go, which are many times
the size of the model. What tells how the training went stays: config.json, metrics.jsonl, timing.jsonl, the logs, the
TensorBoard files, and the checkpoints that `milestone_steps` asks to keep for good.
"""

import json
import shutil
from pathlib import Path

from model import checkpoint
from model.checkpoint import REPLACED, TEMPORARY
from model.processes import launcher
from model.processes.child import LAUNCHER

CHECKPOINTS = "checkpoints"
RESULT = "result"
FEATURES = "features"
"""what a frozen encoder says: features/NETWORK/PART"""
WORK = ("runs", "weights", "current", FEATURES)
"""what fine-tuning goes on with until its result is there"""


def follow(folder: Path, who: str) -> None:
    """Report how far the process `who` is that trains in `folder`."""
    launcher.follow(folder, who)


def clear(folder: Path) -> None:
    """Remove what nobody needs once the result is published, the result last: while it is there, the next run goes on with it.
    Raises OSError."""
    kept = {path.name for path in _milestones(folder)}
    large = [
        folder / "stable",
        *(folder / name for name in WORK),
        *folder.glob("best-*"),
        *folder.glob(f"{TEMPORARY}*"),
    ]
    large += folder.glob(f"{REPLACED}*")
    if kept:
        large += [path for path in (folder / CHECKPOINTS).iterdir() if path.is_dir() and path.name not in kept]
    else:
        large.append(folder / CHECKPOINTS)
    for path in (*large, folder / RESULT):
        if path.exists():
            shutil.rmtree(path)
    (folder / LAUNCHER).unlink(missing_ok=True)  # of one that was killed, while the process went on to the end


def _milestones(folder: Path) -> list[Path]:
    try:
        every = json.loads((folder / "config.json").read_text(encoding="utf-8"))["training"].get("milestone_steps")
    except (OSError, ValueError, KeyError):
        return []
    return [path for path in checkpoint.steps(folder / CHECKPOINTS) if checkpoint.is_milestone(path, every)]
