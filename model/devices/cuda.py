"""One CUDA card. Deterministic kernels where torch has them, so that a resumed run repeats the run it resumes."""

import os
from contextlib import AbstractContextManager, nullcontext

import torch

from model.feeding.order import mix


class Cuda:
    """One process on the current CUDA device."""

    kind = "cuda"
    unpadded = False
    """model/layers/attention.py could (nested tensors, flash attention), but nobody has run that on a card yet"""
    fixed_shapes = False
    count = 1
    steps_ahead = 8

    def __init__(self, number: int = 0) -> None:
        # cuBLAS is deterministic only with a workspace of fixed size, read before its first call.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # Attention with a padding mask has no deterministic backward pass in every torch: warn there, don't stop.
        torch.use_deterministic_algorithms(True, warn_only=True)
        self.torch_device = torch.device("cuda", number)
        torch.cuda.set_device(self.torch_device)

    @property
    def name(self) -> str:
        """The card's model."""
        return torch.cuda.get_device_name(self.torch_device)

    def autocast(self, precision: str) -> AbstractContextManager[object]:
        """A block in which matrix products run in `precision`."""
        return torch.autocast("cuda", dtype=torch.bfloat16) if precision == "bf16" else nullcontext()

    def seed_step(self, seed: int, step: int) -> None:
        """Set the generators of dropout for this step."""
        torch.manual_seed(mix(seed, step))

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the card, made without waiting for it."""
        return tensor.pin_memory().to(self.torch_device, non_blocking=True)

    def scalar(self, value: float) -> float:
        """The number itself."""
        return value

    def begin(self) -> None:
        """It has begun already."""

    def wait(self) -> None:
        """Return when the card has done all that it was asked to."""
        torch.cuda.synchronize(self.torch_device)

    def compilations(self) -> None:
        """Nothing is compiled for a shape."""

    def peak_memory_bytes(self) -> int:
        """Most memory that torch reserved on the card so far."""
        return torch.cuda.max_memory_reserved(self.torch_device)
