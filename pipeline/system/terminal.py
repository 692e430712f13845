"""Text that a terminal shows."""

import re

_STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""The control characters (Unicode's category Cc) but for tab and line feed."""


def steady(text: str) -> str:
    """A text of lines of which no word from outside, as a reason or the name of a file, can steer the terminal: control
    characters are written out (`\\x1b`)."""
    return _STEERS.sub(lambda found: ascii(found[0])[1:-1], text)
