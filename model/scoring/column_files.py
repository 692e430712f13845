"""Column files of CoNLL: a token a line, its tag in the last column, blank lines between sentences.

Columns stand between spaces or tabs. A line that begins with -DOCSTART- begins a document and is no token; conlleval
would count it as a token that is O.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.scoring.entities import TAG
from model.scoring.text import lines
from pipeline.errors import DataError

DOCUMENT = "-DOCSTART-"
_BETWEEN = re.compile(r"[ \t]+")


@dataclass
class Sentence:
    """Tokens with their tags, lines and document."""

    document: int
    tokens: list[str]
    tags: list[str]
    line_numbers: list[int]


def read_sentences(path: Path, types: Sequence[str] = ()) -> list[Sentence]:
    """The sentences of a file. DataError, with the line: a token without a tag, a tag that is not IOB, a type that is not
    among `types` (if there are any), no token at all.
    """
    sentences: list[Sentence] = []
    document, open_ = 0, False
    for number, line in lines(path):
        columns = _BETWEEN.split(line.strip(" \t"))
        if columns[0] in ("", DOCUMENT):
            document += columns[0] == DOCUMENT
            open_ = False
            continue
        if not open_:
            sentences.append(Sentence(document, [], [], []))
            open_ = True
        sentence = sentences[-1]
        sentence.tokens.append(columns[0])
        sentence.tags.append(_tag(path, number, columns, types))
        sentence.line_numbers.append(number)
    if not sentences:
        raise DataError(f"{path} holds no tokens", "It must hold a token and its tag a line.")
    return sentences


def _tag(path: Path, number: int, columns: list[str], types: Sequence[str]) -> str:
    if len(columns) < 2:
        raise DataError(
            f"{path}, line {number}: {columns[0]!r} has no tag",
            "A line is a token, …, its tag, between spaces or tabs.",
        )
    tag = columns[-1]
    if not TAG.fullmatch(tag):
        raise DataError(
            f"{path}, line {number}: the tag {tag!r} is not O, B-TYPE or I-TYPE",
            "Convert the tags to IOB1 or IOB2.",
        )
    if types and tag != "O" and tag[2:] not in types:
        raise DataError(f"{path}, line {number}: {tag[2:]!r} is no type", f"Types are {', '.join(types)}.")
    return tag


def require_same_tokens(gold_path: Path, gold: Sequence[Sentence], path: Path, predicted: Sequence[Sentence]) -> None:
    """DataError at the first place where predictions have another token or another end of sentence than the gold file."""
    for wanted, given in zip(gold, predicted, strict=False):
        pairs = zip(wanted.tokens, given.tokens, wanted.line_numbers, given.line_numbers, strict=False)
        for token, other, gold_line, line in pairs:
            if token != other:
                raise DataError(
                    f"{path}, line {line}: the token {other!r}, but {gold_path}, line {gold_line}, has {token!r}",
                    "Predict every token of the gold file, in its order, also beyond the model's longest input.",
                )
        if len(wanted.tokens) != len(given.tokens):
            raise DataError(
                f"{path}, line {given.line_numbers[0]}: a sentence of {len(given.tokens)} tokens, but in {gold_path}, "
                f"line {wanted.line_numbers[0]}, it has {len(wanted.tokens)}",
                "Predict every token of the gold file and keep its blank lines, also beyond the model's longest input.",
            )
    if len(gold) != len(predicted):
        raise DataError(
            f"{path} has {len(predicted):,} sentences, {gold_path} has {len(gold):,}",
            "Predict every sentence of the gold file and keep its blank lines.",
        )
