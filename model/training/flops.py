"""How much arithmetic a step is, and how much a device could do: model FLOPs utilisation (MFU)."""

import numpy as np

from pipeline.config import Architecture
from pipeline.sharding.shard_schema import Shards

PEAK_BF16 = {
    "H200": 989.4e12,
    "H100": 989.4e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10": 125e12,
    "V100": 125e12,
    "T4": 65e12,
}
"""Dense bf16 (V100, T4: fp16) operations per second by the name of the card, from its maker's data sheet (SXM forms)."""


def training_flops(architecture: Architecture, vocabulary_size: int, rows: Shards) -> float:
    """Floating-point operations of forward and backward over these rows: the products and sums of matrices.

    Only what is computed for a token that is not padding counts, and in the last layer only what the heads read: keys and
    values everywhere, the rest at [CLS] and the masked positions. Backward costs twice forward. Look-ups, norms and softmax
    are not counted (as in Narayanan et al. 2021, appendix).
    """
    hidden = architecture.hidden
    widened = architecture.intermediate or 4 * hidden
    lengths, masked = rows.lengths.astype(np.float64), np.diff(rows.masked_offsets).astype(np.float64)
    tokens, asked = lengths.sum(), (masked + 1).sum()
    whole = 8 * hidden * hidden + 4 * hidden * widened  # query, key, value, output; two feed-forward matrices
    layers = (architecture.layers - 1) * (whole * tokens + 4 * hidden * (lengths**2).sum())
    last = 4 * hidden * hidden * tokens + (whole - 4 * hidden * hidden) * asked
    last += 4 * hidden * ((masked + 1) * lengths).sum()
    head = masked.sum() * (2 * hidden * hidden + 2 * hidden * vocabulary_size)
    return 3.0 * float(layers + last + head)


def peak_flops(device_name: str, precision: str) -> float | None:
    """Operations per second that the device could do at most; None where that is not known (processors, fp32)."""
    if precision != "bf16":
        return None
    return next((peak for name, peak in PEAK_BF16.items() if name in device_name.replace("-", " ").split()), None)
