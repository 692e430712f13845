"""Column files as of the CoNLL shared tasks: a word a line with its columns, sentences separated by blank lines.

Columns stand between tabs, or, in lines without one, between spaces. A line of white space only is blank too. A line whose
word is -DOCSTART- begins a document and is no sentence; conlleval would count it as a word that is O. As for conlleval,
all lines have the same number of columns.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from model.scoring.entities import entities
from model.task_files.task_records import decoded
from pipeline.errors import DataError
from pipeline.formats.compressed import lines

DOCUMENT = "-DOCSTART-"
_SPACES = re.compile(" +")


@dataclass
class Sentence:
    """One sentence of a column file."""

    line: int
    """of its first word; the others follow, a line each"""
    document: int
    """number of its document from 1; 0: the file names none"""
    words: list[str] = field(default_factory=list)
    tags: list[str] | None = None
    """None: the file has words only"""


def read_sentences(path: Path, word: int = 0, tag: int = -1) -> Iterator[Sentence]:
    """The sentences of a file; word, tag: which columns hold them (0: the first, −1: the last).

    Raises:
        DataError: a line that is not UTF-8, has another number of columns than the first, or no word.
    """
    document, width = 0, 0
    sentence: Sentence | None = None
    for number, raw in lines(path, lambda _: None):
        line = decoded(path, number, raw)
        columns = _columns(line)
        if not columns or columns[0] == DOCUMENT:
            if sentence:
                yield sentence
            sentence = None
            document += bool(columns)
            continue
        width = width or len(columns)
        if len(columns) != width:
            raise DataError(
                f"{path}, line {number}: {len(columns)} columns, but the lines before have {width}: {line.strip()!r}",
                "Every word needs the same columns; a blank line ends a sentence.",
            )
        if not -width <= min(word, tag) or max(word, tag) >= width:
            raise DataError(f"{path}, line {number}: {width} columns, fewer than `header` names", "Correct `header`.")
        if not columns[word]:
            raise DataError(f"{path}, line {number}: no word", "A blank line ends a sentence.")
        sentence = sentence or Sentence(number, document, tags=[] if width > 1 else None)
        sentence.words.append(columns[word])
        if sentence.tags is not None:
            sentence.tags.append(columns[tag].strip())
    if sentence:
        yield sentence


def _columns(line: str) -> list[str]:
    """The columns of a line; none for a blank one."""
    line = line.removesuffix("\n").removesuffix("\r")
    if not line.strip():
        return []
    return line.split("\t") if "\t" in line else _SPACES.split(line.strip(" "))


def iob2(tags: Sequence[str]) -> list[str]:
    """IOB1 or IOB2 as IOB2 (Tjong Kim Sang and Veenstra 1999): the same entities, each beginning with B-."""
    made = ["O"] * len(tags)
    for entity in entities(tags):
        made[entity.start : entity.end] = [f"I-{entity.type}"] * (entity.end - entity.start)
        made[entity.start] = f"B-{entity.type}"
    return made
