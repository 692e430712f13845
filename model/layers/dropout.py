"""Dropout whose random bits are cheap on a CPU, where torch's own takes a tenth of a training step.

On a CPU the bits are numpy's SFC64, 16 of them for every value, seeded with one number from torch's generator: equal
states of that generator give equal masks, for any number of threads. Elsewhere it is torch's dropout.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 1 << 16
"""A share is rounded to a multiple of 1 / LEVELS; what is kept is scaled by exactly what that is, so no mean moves."""


def drawn_seed() -> int:
    """A seed from torch's generator on the CPU."""
    return int(torch.randint(1 << 62, ()))


def scale_of(share: float) -> float:
    """By what the kept values are multiplied: 1 / (share that is kept)."""
    return LEVELS / (LEVELS - round(share * LEVELS))


def kept(shape: tuple[int, ...], share: float, bits: np.random.SFC64, dtype: torch.dtype) -> Tensor:
    """1 with probability 1 − `share`, else 0, from the next bits of a stream."""
    count = int(np.prod(shape))
    drawn = np.asarray(bits.random_raw(-(-count // 4))).view(np.uint16)[:count]
    return torch.from_numpy(drawn >= round(share * LEVELS)).view(shape).to(dtype)


class Dropout(nn.Module):
    """As nn.Dropout. On a CPU half precision comes out as fp32: bf16 can't hold 1 / 0.9 to better than 0.2 %."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, values: Tensor) -> Tensor:
        """Any shape → the same shape."""
        if not self.training or self.share == 0 or values.device.type != "cpu":
            return F.dropout(values, self.share, self.training)
        wide = torch.promote_types(values.dtype, torch.float32)
        factors = kept(tuple(values.shape), self.share, np.random.SFC64(drawn_seed()), wide)
        return values * factors.mul_(scale_of(self.share))

    def extra_repr(self) -> str:
        """For print(model)."""
        return str(self.share)
