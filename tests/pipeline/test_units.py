"""Numbers as people read them."""

from __future__ import annotations

import pytest

from pipeline import units


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (1_234_567, "1.2 MB"),
        (268_435_456, "268.4 MB"),
        (82.2e9, "82.2 GB"),
        (2e15, "2,000.0 TB"),
    ],
)
def test_a_size_is_told_in_the_largest_unit_that_it_fills(count: float, told: str) -> None:
    assert units.size(count) == told
