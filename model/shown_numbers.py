"""How scores and intervals are written for people, the same on every page, card and terminal."""


def decimal(value: float, digits: int = 1) -> str:
    """`12.3`, `−4.5`, and `0.0` without a sign."""
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")


def interval(low: float, high: float, digits: int = 1) -> str:
    """`79.1–83.2`; `−65.6 to −24.6` where a dash would stand beside a minus sign."""
    first, last = decimal(low, digits), decimal(high, digits)
    return f"{first} to {last}" if "−" in first + last else f"{first}–{last}"
