"""Saves checkpoints beside the training: a copy of the tensors is taken at once, a thread writes it.

The copy is made before `save` returns, so that no later step can change what is written; one thread writes at a time, and
deletes old checkpoints only after its own was read back. What goes wrong there is raised by the next call.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from model import checkpoint


class Saver:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, keep: int, milestone_steps: int | None = None) -> None:
        """`keep`: newest checkpoints that stay. `milestone_steps`: those of a multiple of so many steps stay for good."""
        self._folder, self._keep, self._milestones = folder, keep, milestone_steps
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
        """Copy `tensors` and write them and `state` in the background as the checkpoint of `step`.

        Waits for a checkpoint that is being written, and raises what went wrong with it.
        """
        self.wait()
        copies = {
            name: {key: tensor.detach().to("cpu", copy=True) for key, tensor in part.items()}
            for name, part in tensors.items()
        }
        self._thread = threading.Thread(target=self._write, args=(step, copies, state), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Return when nothing is being written. Raises StoreError, DataError or what else went wrong meanwhile."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def check(self) -> None:
        """Raise what went wrong in the background; otherwise return at once."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _write(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
        try:
            checkpoint.save(self._folder, step, tensors, state, keep=self._keep, milestone_steps=self._milestones)
        except BaseException as error:  # raised again in the thread that trains
            self._error = error
