"""The CPU of this machine. Results are equal byte for byte on one processor type with one number of threads."""

import ctypes
import platform
import resource
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path

import torch

from model.feeding.order import mix

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""of malloc.h"""


class Cpu:
    """One process on the CPU."""

    kind = "cpu"
    torch_device = torch.device("cpu")
    unpadded = True
    fixed_shapes = False
    count = 1
    steps_ahead = 0

    def __init__(self) -> None:
        _keep_freed_memory()

    @cached_property
    def name(self) -> str:
        """The processor's model, from /proc/cpuinfo."""
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return models[0] if models else platform.machine()

    def autocast(self, precision: str) -> AbstractContextManager[object]:
        """bf16 is emulated, hence many times slower, on processors without AVX512_BF16 or AMX."""
        return torch.autocast("cpu", dtype=torch.bfloat16) if precision == "bf16" else nullcontext()

    def seed_step(self, seed: int, step: int) -> None:
        """Set the generator of dropout for this step."""
        torch.default_generator.manual_seed(mix(seed, step))

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor itself."""
        return tensor

    def scalar(self, value: float) -> float:
        """The number itself."""
        return value

    def begin(self) -> None:
        """It has begun already."""

    def wait(self) -> None:
        """Nothing runs behind one's back here."""

    def compilations(self) -> None:
        """Nothing is compiled for a shape."""

    def peak_memory_bytes(self) -> int:
        """Largest resident size of this process so far."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _keep_freed_memory() -> None:
    """Let large arrays come from the heap of glibc, which keeps what was freed, instead of from the system each time.

    Every step allocates the same arrays, and pages that are new to a process are cleared first: a tenth of a step. In
    other C libraries nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
