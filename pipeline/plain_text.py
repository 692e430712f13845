"""Text as people's files have it → text as the tables of this project have it."""

import re

_RARE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028]")
_BLANK_LINES = re.compile(r"\n{3,}")


def tidy(text: str) -> tuple[str, int]:
    """(the text, how many characters were removed): newlines are \\n, lines are stripped, paragraphs stand apart by
    exactly one blank line, and control characters and byte order marks are gone."""
    removed = 0
    if _RARE.search(text):
        text = _LINE_ENDS.sub("\n", text).replace("\u2029", "\n\n")
        text, removed = _RARE.subn("", text)
    if "\n" in text:
        text = "\n".join(map(str.strip, text.split("\n")))
        if "\n\n\n" in text:
            text = _BLANK_LINES.sub("\n\n", text)
    return text.strip(), removed
