"""Where a model trains: one small interface, one module per kind of device. The loop does not know which it has.

A step's random numbers (dropout) come from `seed_step(seed, step)`, a pure function, so that no generator's state has
to be saved or restored for an exact resume.

A device that computes beside the host (`steps_ahead`) is not waited for at every step: what a step found stays there, and
whether its update counts is decided there too.
"""

from contextlib import AbstractContextManager
from typing import Protocol

import torch

from pipeline.errors import TrainingError
from pipeline.settings import TrainingSettings


class Device(Protocol):
    """What the loops need of a device."""

    kind: str
    """cpu, cuda or xla"""
    torch_device: torch.device
    unpadded: bool
    """batches for pretraining come without padding (model/layers/unpadded.py)"""
    fixed_shapes: bool
    """it compiles anew for every shape: batches for pretraining have fillers, so that there is one shape for each length"""
    count: int
    """devices that share every batch, a part of its rows each"""
    steps_ahead: int
    """steps of pretraining that are handed to it before the results of the first of them are read; 0: each is read at once"""

    @property
    def name(self) -> str:
        """What a person calls it: the processor's or the card's model."""
        ...

    def autocast(self, precision: str) -> AbstractContextManager[object]:
        """A block in which matrix products run in `precision`, fp32 or bf16."""
        ...

    def seed_step(self, seed: int, step: int) -> None:
        """Set the generators of dropout for this step."""
        ...

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on this device."""
        ...

    def scalar(self, value: float) -> float | torch.Tensor:
        """A number that changes from step to step, in the form that this device computes with."""
        ...

    def begin(self) -> None:
        """Begin with what was asked so far, where it is only collected until then; a step or a part of a batch ends here."""
        ...

    def wait(self) -> None:
        """Return when everything asked of the device is done."""
        ...

    def compilations(self) -> int | None:
        """Programs compiled so far; None where nothing is compiled for a shape."""
        ...

    def peak_memory_bytes(self) -> int:
        """Most memory used so far: of the process (cpu) or of the card (cuda, xla)."""
        ...


def open_device(kind: str, threads: int, local_rank: int = 0) -> Device:
    """The device `cpu`, `cuda` or `xla`; `auto` is cuda where there is one, else cpu. `threads`: CPU threads of this process;
    `local_rank`: which of the processes of one run on this host it is, and so which card it takes.

    Raises:
        TrainingError: cuda is asked for and there is none, or xla, and torch-xla can't be imported.
    """
    torch.set_num_threads(threads)
    if kind == "xla":
        try:
            from model.devices.xla import Xla
        except ImportError as error:
            raise TrainingError(
                f"settings.training.device is xla, but torch-xla can't be imported: {error}",
                "`make xla-env` makes an environment that has it; run .venv-xla/bin/bert instead of .venv/bin/bert.",
            ) from None
        return Xla()
    if kind == "cuda" or (kind == "auto" and torch.cuda.is_available()):
        if not torch.cuda.is_available():
            raise TrainingError(
                "settings.training.device is cuda, but torch sees no CUDA device",
                "Set it to cpu or auto, or install torch for this machine's CUDA.",
            )
        from model.devices.cuda import Cuda

        return Cuda(local_rank)
    from model.devices.cpu import Cpu

    return Cpu()


def open_for_many_shapes(training: TrainingSettings) -> Device:
    """The device for batches of many shapes: that of the settings, but the CPU of a host whose `device` is xla."""
    return open_device("cpu" if training.device == "xla" else training.device, training.threads)
