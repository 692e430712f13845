"""Text from data beside our own, where it may run from right to left: numbers and commas that follow it must stay where they are.

In HTML such text stands in <bdi>, elsewhere between the two characters that do the same (Unicode Standard Annex 9: first
strong isolate, pop directional isolate).
"""

import unicodedata
from typing import Any

FSI, PDI = "\u2068", "\u2069"
_OPENING = ("\u2066", "\u2067", FSI)
_FROM_RIGHT = ("R", "AL", "AN", "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
"""bidirectional classes that move what stands beside them"""


def isolated(text: str) -> str:
    """The text between FSI and PDI, if anything in it could move its neighbours; else as it is."""
    return f"{FSI}{_balanced(text)}{PDI}" if moves(text) else text


def in_page(value: Any) -> Any:
    """What a template of a page prints, in <bdi> if it could move its neighbours; markup and values as they are."""
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup) or not moves(value):
        return value
    return Markup("<bdi>{}</bdi>").format(_balanced(value))


def moves(text: str) -> bool:
    """Whether anything in a text runs from right to left, or says so."""
    return not text.isascii() and any(unicodedata.bidirectional(character) in _FROM_RIGHT for character in text)


def _balanced(text: str) -> str:
    """Without marks of isolation that do not pair up: they would end ours early, or never. They are invisible."""
    depth = 0
    for character in text:
        depth += (character in _OPENING) - (character == PDI)
        if depth < 0:
            break
    return text if depth == 0 else "".join(each for each in text if each not in (*_OPENING, PDI))
