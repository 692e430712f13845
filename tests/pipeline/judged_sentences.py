"""Texts with sentence ends judged by hand, and how far others are from them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Judged:
    half: str
    kind: str
    text: str
    ends: frozenset[int]
    """where a sentence ends inside the text"""
    either: frozenset[int]
    """where both readings are right"""

    def inside_quotation(self) -> set[int]:
        """Offsets between straight double quotes; the novels have no others."""
        inner: set[int] = set()
        for number, part in enumerate(self.text.split('"')):
            start = sum(len(p) + 1 for p in self.text.split('"')[:number])
            if number % 2:
                inner.update(range(start, start + len(part) + 1))
        return inner


def read_judged(path: Path) -> list[Judged]:
    """The lines of a judged file: `half TAB kind TAB text`, or a language, perhaps more columns, and the text."""
    found = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line and not line.startswith("#"):
            *labels, marked = line.split("\t")
            marked = marked.replace("\\n", "\n")
            marks = {"|": set[int](), "¦": set[int]()}
            text = ""
            for character in marked:
                if character in marks:
                    marks[character].add(len(text))
                else:
                    text += character
            found.append(Judged(labels[0], labels[-1], text, frozenset(marks["|"]), frozenset(marks["¦"])))
    return found


def errors(judged: Judged, ends: Iterable[int]) -> tuple[set[int], set[int]]:
    """(false ends, missed ends) inside the text."""
    got = {end for end in ends if end < len(judged.text)}
    return got - judged.ends - judged.either, set(judged.ends) - got
