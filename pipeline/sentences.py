"""Where sentences end, by the `sentencex` library."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator

PIECE_CHARACTERS = 1 << 15
"""No longer string goes to the library at once: the time it takes can grow with the square of the length."""

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
_OTHER_WHITESPACE = re.compile(r"[^\S \n]")


def sentence_ends(text: str, language: str, abbreviations: Collection[str] = (), lines: bool = False) -> list[int]:
    """Character offset after each sentence of `text`; the last is its length, an empty text has none.

    `language` is a code such as "en"; one that the library does not know is split by its general rules. A sentence
    takes the whitespace after it along, so that the slices between the offsets join to exactly `text`; no slice is only
    whitespace, unless all of `text` is. A blank line always ends a sentence.
    """
    from sentencex import segment

    ends: list[int] = []
    start = 0
    for end in _boundaries(text, lambda piece: segment(language, piece)):
        if not text[start:end].isspace():
            ends.append(end)
        elif ends:
            ends[-1] = end
        start = end
    return ends or ([len(text)] if text else [])


def _boundaries(text: str, segment: Callable[[str], Iterable[str]]) -> Iterator[int]:
    # The library fails where a whitespace character of several bytes (U+0085, U+00A0, …) stands between an initial and
    # a period. A space in its place keeps every offset.
    plain = _OTHER_WHITESPACE.sub(" ", text)
    start = 0
    for match in _BLANK_LINES.finditer(plain):
        yield from _paragraph(plain, start, match.end(), segment)
        start = match.end()
    yield from _paragraph(plain, start, len(plain), segment)


def _paragraph(text: str, start: int, stop: int, segment: Callable[[str], Iterable[str]]) -> Iterator[int]:
    """Offsets in `text` of the ends of the sentences in text[start:stop]."""
    while start < stop:
        piece = text[start : min(stop, start + PIECE_CHARACTERS)]
        lengths = [len(sentence) for sentence in segment(piece)]
        if sum(lengths) != len(piece):
            lengths = [len(piece)]  # the library lost a character: better one long sentence than a wrong offset
        if start + len(piece) < stop and len(lengths) > 1:
            lengths.pop()  # it may go on behind the piece: let it begin the next one
        for length in lengths:
            start += length
            yield start
