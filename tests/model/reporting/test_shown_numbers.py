"""Scores and intervals in characters."""

import pytest

from model.reporting.shown_numbers import decimal, interval


@pytest.mark.parametrize(
    ("low", "high", "digits", "told"),
    [
        (79.06, 83.24, 1, "79.1–83.2"),
        (-65.6, -24.6, 1, "−65.6 to −24.6"),
        (-3.21, 4.5, 2, "−3.21 to 4.50"),
        (-0.04, 0.0, 1, "0.0–0.0"),  # rounded to 0: no sign, no negative interval
        (0.0, 100.0, 0, "0–100"),
    ],
)
def test_an_interval_is_never_two_signs_side_by_side(low: float, high: float, digits: int, told: str) -> None:
    assert interval(low, high, digits) == told


def test_a_minus_is_no_hyphen() -> None:
    assert [decimal(value) for value in (-65.62, 12.0, -0.01)] == ["−65.6", "12.0", "0.0"]
