"""Rows of unequal length that lie one after the other in one array."""

import numpy as np
import numpy.typing as npt


def ranges(starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """starts[0] … starts[0] + sizes[0] - 1, starts[1] … as one array."""
    ends = np.cumsum(sizes, dtype=np.int64)
    return np.repeat(starts - ends + sizes, sizes) + np.arange(int(ends[-1]) if len(ends) else 0)


def places(sizes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """0 … sizes[0] - 1, 0 … sizes[1] - 1, … as one array."""
    return ranges(np.zeros(len(sizes), np.int64), sizes)
