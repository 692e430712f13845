"""The processes that train one model together: each takes a part of every batch, gradients are summed, and all do the same.

Started by torchrun they find each other by the environment (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT); a
process that was started alone is the only replica. What is decided (to stop, to skip a step) is decided by all from the same
sums, so that no replica waits for one that has left.

What hosts know (counts, decisions) goes from host to host, by gloo, whatever the devices are: no card is waited for. What
devices hold (gradients, sums of losses) goes from device to device.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipeline.errors import TrainingError

BUCKET_ELEMENTS = 32 << 20
"""gradients are summed in pieces of at least so many numbers: few calls, bounded memory"""


class Replicas:
    """The group that this process is one of."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        """number of this process, from 0"""
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        """how many there are"""
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        """number of this process on its host"""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def join(self, device: torch.device, timeout_seconds: float) -> None:
        """Meet the others; every replica calls this once its device is open. `timeout_seconds`: how long one may wait for
        another before it ends with an error."""
        if self.count > 1:
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            with _explained():
                dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))

    def leave(self) -> None:
        """Tell the others that this one is done."""
        if self.count > 1 and dist.is_initialized():
            with suppress(RuntimeError):  # the others are gone already
                dist.destroy_process_group()

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make every replica's gradients the sum of all replicas'."""
        if self.count == 1:
            return
        waiting: list[Tensor] = []
        for parameter in parameters:
            if parameter.grad is not None:
                waiting.append(parameter.grad)
            if sum(map(Tensor.numel, waiting)) >= BUCKET_ELEMENTS:
                _sum_together(waiting)
                waiting = []
        if waiting:
            _sum_together(waiting)

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum of each of `values`, which the hosts know, over all replicas, in double precision."""
        if self.count == 1:
            return list(values)
        found: list[float] = self.sum_on_device(torch.tensor(values, dtype=torch.float64)).tolist()
        return found

    def sum_on_device(self, values: Tensor) -> Tensor:
        """Make `values` the sum of all replicas' and return it, where it lies."""
        if self.count > 1:
            _sum(values)
        return values

    def told(self, value: Any) -> Any:
        """What the first replica says: a plain value, the same on all."""
        if self.count == 1:
            return value
        box = [value if self.first else None]
        with _explained():
            dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]


def _sum_together(tensors: list[Tensor]) -> None:
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    _sum(flat)
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


def _sum(values: Tensor) -> None:
    with _explained():
        dist.all_reduce(values)


@contextmanager
def _explained() -> Iterator[None]:
    """What torch says where another process is gone, as a TrainingError."""
    try:
        yield
    except RuntimeError as error:  # torch's DistError is one
        raise TrainingError(
            f"another process of this run has ended or can't be reached: {str(error).splitlines()[0]}",
            "Its own message says why; run the asset again to go on from the last checkpoint.",
        ) from None
