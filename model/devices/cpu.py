"""The CPU of this machine. Results are equal byte for byte on one processor type with one number of threads."""

import platform
import resource
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path

import torch

from model.order import mix


class Cpu:
    """One process on the CPU."""

    kind = "cpu"
    torch_device = torch.device("cpu")

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

    def wait(self) -> None:
        """Nothing runs behind one's back here."""

    def peak_memory_bytes(self) -> int:
        """Largest resident size of this process so far."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
