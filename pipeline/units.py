"""Numbers as people read them."""

from __future__ import annotations

_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def size(count: float) -> str:
    """A number of bytes in the largest decimal unit that it fills: 1,234,567 → `1.2 MB`."""
    name, unit = next(((name, unit) for name, unit in _UNITS if count >= unit), ("bytes", 1))
    return f"{count:,.0f} {name}" if unit == 1 else f"{count / unit:,.1f} {name}"


def duration(seconds: float) -> str:
    """Seconds as people read them: 3h05m, 4m10s, 7s."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
