"""The curves of a run as TensorBoard event files: `tensorboard --logdir RUN_DIR/tensorboard`."""

from pathlib import Path
from typing import Any

from torch.utils.tensorboard.writer import SummaryWriter


class Curves:
    """Event files of one process; a resumed run hides what an earlier one wrote beyond its checkpoint."""

    def __init__(self, folder: Path, step: int) -> None:
        """`step`: of the schedule, where this process begins."""
        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None, flush_secs=10)

    def add(self, row: dict[str, Any], first_step: int) -> None:
        """Add the numbers of a row of metrics.jsonl; its steps are those of a phase that begins at `first_step`."""
        step = first_step + row["step"]
        for name, value in row.items():
            if name == "held_out":
                for score, number in value.items():
                    self._add(f"held_out/{score}", number, step)
            elif name != "step":
                self._add(f"training/{name}", value, step)

    def _add(self, name: str, value: Any, step: int) -> None:
        if isinstance(value, int | float):
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is waiting and close the file."""
        self._writer.close()
