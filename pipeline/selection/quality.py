"""How much of a text is boilerplate, how much is repeated: shares of its characters.

The rules are those that corpora are commonly filtered by: Gopher's (Rae et al. 2021, appendix A.1.1 and table A1: bullet
points, ellipses, words without letters, duplicate lines, duplicate 5-grams) and C4's (Raffel et al. 2020, section 2.2: short
lines without an end of a sentence, "JavaScript", policies, curly brackets). There they drop lines or documents; here they mark
characters, so that one threshold can be set for both.
"""

import re

import numpy as np

from pipeline.selection.ngrams import NO_RUN, runs, spelled, words

REPEATED_WORDS = 5
PROSE_WORDS = 5
PROSE_CHARACTERS = 40
LETTER_WORDS = 0.8

_BULLET = re.compile(r"[•‣▪▫●○◦·*►▶»–—-]\s")
_END = re.compile(r"[.!?…。！？؟।։:;]['\")\]’”»」』]*$")
_ELLIPSIS = re.compile(r"(?:\.\.\.|…)$")
_LINK = re.compile(r"(?:https?://|www\.)\S+")
_SEPARATOR = re.compile(r"\s[|»›>•·/]\s")
_NOTICE = re.compile(
    r"\b(?:javascript|cookies?|privacy policy|terms of (?:use|service)|all rights reserved|copyright ©|lorem ipsum|"
    r"sign (?:in|up)|log ?in|subscribe|newsletter)\b",
    re.IGNORECASE,
)
_NOTICE_CHARACTERS = 200
"""A longer line that speaks of cookies is prose about them."""


def boilerplate_share(text: str) -> float:
    """Share of the characters of a text's lines that stand in lines that are no prose; 0 for a text without any."""
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    total = sum(map(len, lines))
    return sum(len(line) for line in lines if not is_prose(line)) / total if total else 0.0


def is_prose(line: str) -> bool:
    """Whether a line is running text, and not part of a menu, a list, a notice or a table."""
    tokens = line.split()
    if not _END.search(line) and len(tokens) < PROSE_WORDS and len(line) < PROSE_CHARACTERS:
        return False
    if sum(any(map(str.isalpha, token)) for token in tokens) < LETTER_WORDS * len(tokens):
        return False
    if _BULLET.match(line) or _ELLIPSIS.search(line) or "{" in line or "}" in line:
        return False
    if len(_SEPARATOR.findall(line)) >= 2 or 2 * sum(map(len, _LINK.findall(line))) > len(line):
        return False
    return len(line) > _NOTICE_CHARACTERS or not _NOTICE.search(line)


def repetition_share(text: str) -> float:
    """Share of the characters of a text's words that stand in a line, or in a run of five words, that the text holds more than
    once; every occurrence counts, and no character counts twice. Case and punctuation make no difference."""
    lines = [line for line in text.splitlines() if line.strip()]
    rows, numbers = words(lines)
    if not len(numbers):
        return 0.0
    lengths = np.array([len(word) for line in lines for word in spelled(line)])
    marked = _in_repeated_lines(lines, rows)
    found = runs(np.zeros(len(numbers), np.int64), numbers, REPEATED_WORDS)
    _, which, counts = np.unique(found, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero((counts[which] > 1) & (found != NO_RUN))
    for place in range(REPEATED_WORDS):
        marked[repeated + place] = True
    return float(lengths[marked].sum() / lengths.sum())


def _in_repeated_lines(lines: list[str], rows: np.ndarray) -> np.ndarray:
    """Which words stand in a line that occurs more than once: bool [words]; `rows` is the line of every word."""
    keys = [" ".join(spelled(line)) for line in lines]
    _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(counts[which] > 1)[rows]
