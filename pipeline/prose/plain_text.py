"""Text as people's files have it → text as the tables of this project have it: paragraphs between blank lines."""

import re
import unicodedata
from itertools import pairwise

from pipeline.prose.book_layout import LONG_LINE, Joiner

LEAST_WIDTH = 40
"""Characters; nobody wraps lines to less."""

_RARE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028]")
_AT_BREAKS = ("-\n", "—\n", "\n-", "\n—")
"""Where one of these stands, a word or a dash was broken."""
_SENTENCE_END = re.compile(r"[.!?…:][\"'”’»“)\]]*$")


def tidy(text: str) -> tuple[str, int]:
    """(the text, how many characters were removed): newlines are \\n, lines are stripped, paragraphs stand apart by
    exactly one blank line, and control characters and byte order marks are gone."""
    removed = 0
    if _RARE.search(text):
        text = _LINE_ENDS.sub("\n", text).replace("\u2029", "\n\n")
        text, removed = _RARE.subn("", text)
    if "\n" in text:
        text = "\n".join(map(str.strip, text.split("\n")))
        while "\n\n\n" in text:  # a third of each run goes each time
            text = text.replace("\n\n\n", "\n\n")
    return text.strip(), removed


_LETTER = re.compile("[^\\W\u115f\u1160\u17b4\u17b5\u3164\uffa0]")
"""Nearly every text has one; those left out are fillers of no width."""
_UNSEEN = re.compile(
    "[\\s\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""White space, Unicode's Default_Ignorable_Code_Point but for categories Cc and Cf, the blank of Braille."""


def is_blank(text: str) -> bool:
    """Whether nothing of a text can be seen, as check `texts_not_empty` understands it."""
    if _LETTER.search(text):
        return False
    return all(_UNSEEN.match(character) or unicodedata.category(character) in ("Cc", "Cf") for character in set(text))


def separated(text: str) -> str:
    """The tidy text; where it has line breaks but no blank line, and lines beyond `LONG_LINE` hold most of it, every line
    is a paragraph."""
    if "\n" not in text or "\n\n" in text:
        return text
    long = sum(len(line) for line in text.split("\n") if len(line) > LONG_LINE)
    return text.replace("\n", "\n\n") if 2 * long > len(text) else text


def unwrapped(text: str) -> str:
    """The tidy text with its hard-wrapped lines joined; all other line breaks stay, as in verse, lists and letters.

    A line was wrapped if the first word of the next would not have fitted behind it; a text was, if that holds for most
    of the breaks inside its paragraphs and few of these end a sentence.
    """
    lines = text.split("\n")
    lengths = sorted(len(line) for line in lines if 0 < len(line) <= LONG_LINE)
    width = lengths[int(0.95 * (len(lengths) - 1))] if lengths else 0
    breaks = [(a, b) for a, b in pairwise(lines) if a and b]
    full = [(a, b) for a, b in breaks if _is_full(a, b, width)]
    ends = sum(bool(_SENTENCE_END.search(a)) for a, _ in full)
    if width < LEAST_WIDTH or 2 * len(full) <= len(breaks) or 2 * ends > len(full):
        return separated(text)
    joiner = Joiner(text) if any(sign in text for sign in _AT_BREAKS) else None
    other = "\n" if "\n\n" in text else "\n\n"  # without blank lines, a short line ends a paragraph
    parts: list[str] = []
    group: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if not line:
            continue
        group.append(line)
        if not (after and _is_full(line, after, width)):
            parts += [joiner.join(group) if joiner else " ".join(group), other if after else "\n\n"]
            group = []
    return "".join(parts).strip()


def _is_full(line: str, after: str, width: int) -> bool:
    return len(line) <= LONG_LINE and len(line) + 1 + len(after.split(None, 1)[0]) > width
