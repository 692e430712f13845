"""Numbers as people read them."""

from datetime import UTC, datetime

_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def size(count: float) -> str:
    """A number of bytes in the largest decimal unit that it fills: 1,234,567 → `1.2 MB`."""
    name, unit = next(((name, unit) for name, unit in _UNITS if count >= unit), ("bytes", 1))
    return f"{count:,.0f} {name}" if unit == 1 else f"{count / unit:,.1f} {name}"


def short_size(size_bytes: int) -> str:
    """The same where columns are narrow: 512 → `512 B`, 1,234,567 → `1.2 MB`."""
    number = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def duration(seconds: float) -> str:
    """Seconds as people read them: 3h05m, 4m10s, 7s."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def age(finished: str | None) -> str:
    """How long ago a time of a record was, in the largest unit that it fills: `3 d`, `5 h`, `2 min`, `7 s`; "" for None."""
    if finished is None:
        return ""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(finished)).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
