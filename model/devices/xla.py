"""The XLA devices of one host, TPUs above all, through torch-xla: one process, every batch split over all of them (SPMD).

Operations are collected; `begin` compiles what was collected, unless a computation of the same form is known, and starts
it. So all shapes are fixed, and whatever changes from step to step is an input of its own.

torch-xla 2.9.0, its last release, works beside torch 2.9 only: `make xla-env` (docs/devices.md).
"""

import resource
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.debug import metrics

from model.feeding.order import mix


class Xla:
    """All XLA devices of this host, as one. To be opened before anything is differentiated on the CPU: torch's autograd
    counts its devices once."""

    kind = "xla"
    unpadded = False
    fixed_shapes = True
    steps_ahead = 8

    def __init__(self) -> None:
        self.count: int = xr.global_runtime_device_count()
        self._mesh: xs.Mesh | None = None
        if self.count > 1:
            xr.use_spmd()
            self._mesh = xs.Mesh(np.arange(self.count), (self.count,), ("data",))
        self.torch_device: torch.device = torch_xla.device()

    @property
    def name(self) -> str:
        """Kind and number of the devices: "4 × XLA TPU"."""
        kind = f"XLA {xr.device_type()}"
        return kind if self.count == 1 else f"{self.count} × {kind}"

    def autocast(self, precision: str) -> AbstractContextManager[object]:
        """A block in which matrix products run in `precision`."""
        return torch.autocast("xla", dtype=torch.bfloat16) if precision == "bf16" else nullcontext()

    def seed_step(self, seed: int, step: int) -> None:
        """Set the generator of dropout for this step."""
        xm.set_rng_state(mix(seed, step), self.torch_device)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy, its first dimension split over the devices."""
        there = tensor.to(self.torch_device)
        if self._mesh is not None:
            xs.mark_sharding(there, self._mesh, ("data", *[None] * (tensor.ndim - 1)))
        return there

    def scalar(self, value: float) -> torch.Tensor:
        """A float32 scalar on every device.

        It is sent as a vector: of plain numbers and scalars torch-xla makes constants where they are 0 or 1, and one input
        of two that are equal, and each of these is another program.
        """
        return torch.tensor([value], dtype=torch.float32).to(self.torch_device)[0]

    def begin(self) -> None:
        """Compile what was collected, where that is new, and start it."""
        torch_xla.sync()

    def wait(self) -> None:
        """Return when all that was collected is done."""
        torch_xla.sync(wait=True)
        xm.wait_device_ops()

    def compilations(self) -> int:
        """Programs compiled so far."""
        return metrics.counter_value("UncachedCompile") or 0

    def peak_memory_bytes(self) -> int:
        """Most memory used on the first device so far; of the process where that is its memory."""
        if xr.device_type() == "CPU":
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        found: int = xm.get_memory_info("xla:0")["peak_bytes_used"]
        return found
