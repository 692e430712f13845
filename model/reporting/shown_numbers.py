"""How scores and intervals are written for people, the same on every page, card and terminal."""

from typing import Any


def decimal(value: float, digits: int = 1) -> str:
    """`12.3`, `−4.5`, and `0.0` without a sign."""
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")


def interval(low: float, high: float, digits: int = 1) -> str:
    """`79.1–83.2`; `−65.6 to −24.6` where a dash would stand beside a minus sign."""
    first, last = decimal(low, digits), decimal(high, digits)
    return f"{first} to {last}" if "−" in first + last else f"{first}–{last}"


def number(value: Any) -> str:
    """A setting or a measured number in characters."""
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(number, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
