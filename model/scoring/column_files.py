"""Gold and prediction files of tags: column files (model/task_files/conll.py) whose last column is IOB tags."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.task_files import conll
from pipeline.errors import DataError
from pipeline.formats.iob import TAG


@dataclass(frozen=True)
class Tagged:
    """A sentence of which every word has a tag."""

    line: int
    """of its first word; the others follow, a line each"""
    document: int
    words: list[str]
    tags: list[str]


def read_tagged(path: Path, types: Sequence[str] = ()) -> list[Tagged]:
    """The sentences of a file. DataError, with the line: a word without a tag, a tag that is not IOB, a type that is not
    among `types` (if there are any), no word at all.
    """
    sentences = []
    for sentence in conll.read_sentences(path):
        if sentence.tags is None:
            raise DataError(
                f"{path}, line {sentence.line}: {sentence.words[0]!r} has no tag",
                "A line is a token, …, its tag, between spaces or tabs.",
            )
        for line, tag in enumerate(sentence.tags, sentence.line):
            _check(path, line, tag, types)
        sentences.append(Tagged(sentence.line, sentence.document, sentence.words, sentence.tags))
    if not sentences:
        raise DataError(f"{path} holds no tokens", "It must hold a token and its tag a line.")
    return sentences


def _check(path: Path, line: int, tag: str, types: Sequence[str]) -> None:
    if not TAG.fullmatch(tag):
        raise DataError(
            f"{path}, line {line}: the tag {tag!r} is not O, B-TYPE or I-TYPE",
            "Convert the tags to IOB1 or IOB2.",
        )
    if types and tag != "O" and tag[2:] not in types:
        raise DataError(f"{path}, line {line}: {tag[2:]!r} is no type", f"Types are {', '.join(types)}.")


def require_same_tokens(gold_path: Path, gold: Sequence[Tagged], path: Path, predicted: Sequence[Tagged]) -> None:
    """DataError at the first place where predictions have another token or another end of sentence than the gold file."""
    for wanted, given in zip(gold, predicted, strict=False):
        for number, (token, other) in enumerate(zip(wanted.words, given.words, strict=False)):
            if token != other:
                raise DataError(
                    f"{path}, line {given.line + number}: the token {other!r}, but {gold_path}, line "
                    f"{wanted.line + number}, has {token!r}",
                    "Predict every token of the gold file, in its order, also beyond the model's longest input.",
                )
        if len(wanted.words) != len(given.words):
            raise DataError(
                f"{path}, line {given.line}: a sentence of {len(given.words)} tokens, but in {gold_path}, "
                f"line {wanted.line}, it has {len(wanted.words)}",
                "Predict every token of the gold file and keep its blank lines, also beyond the model's longest input.",
            )
    if len(gold) != len(predicted):
        raise DataError(
            f"{path} has {len(predicted):,} sentences, {gold_path} has {len(gold):,}",
            "Predict every sentence of the gold file and keep its blank lines.",
        )
