"""SQuAD's JSON files (versions 1.1 and 2.0), and where an answer stands in its context.

`entries` is the one that knows the form of the files; training reads whole questions of it (`read_squad`), scoring only ids
and answers (model/scoring/squad_files.py).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.errors import DataError
from pipeline.formats.compressed import Stream


@dataclass(frozen=True)
class Question:
    """One question of a file."""

    place: str
    """in the file: `data[0].paragraphs[3].qas[1]`"""
    id: str
    question: str
    context: str
    title: str | None
    answers: list[tuple[str, int | None]]
    """(text, where it begins in characters of the context, as the file says)"""
    impossible: bool | None
    """None: the file has neither answers nor says that there are none"""


Placed = Literal["right", "repaired", "unplaced"]


def place(context: str, text: str, start: int | None) -> tuple[int | None, Placed]:
    """Where an answer begins: as said, if the text stands there; else where it stands, if it does only once."""
    if text and start is not None and start >= 0 and context.startswith(text, start):
        return start, "right"
    first = context.find(text) if text else -1
    if first < 0 or context.find(text, first + 1) >= 0:
        return None, "unplaced"
    return first, "repaired"


def read_squad(path: Path) -> Iterator[Question]:
    """The questions of a file in its order.

    Raises:
        DataError: no JSON, or not of SQuAD's form; the place inside is named.
    """
    try:
        with Stream(path) as stream:
            content = json.loads(stream.read().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is no JSON: {error}", "SQuAD's files are one JSON object each.") from None
    for entry in entries(path, content):
        yield _question(entry)


@dataclass(frozen=True)
class Entry:
    """One question as it stands in a file; nothing of it is checked before it is asked for."""

    path: Path
    place: str
    """`data[0].paragraphs[3].qas[1]`"""
    article_number: int
    article: Any
    paragraph: Any
    qa: Any

    def get(self, key: str, kind: Any) -> Any:
        """What the question holds under a key. DataError that names the place: missing, or of another type."""
        return _get(self.path, self.place, self.qa, key, kind)

    def texts(self) -> list[str]:
        """The text of every answer. DataError: none are listed, or not as SQuAD does."""
        return [_get(self.path, at, answer, "text", str) for at, answer in self._answers()]

    def starts(self) -> list[int | None]:
        """Where every answer begins, if that is said. DataError: a start that is no whole number."""
        return [
            None if answer.get("answer_start") is None else _get(self.path, at, answer, "answer_start", int)
            for at, answer in self._answers()
        ]

    def _answers(self) -> Iterator[tuple[str, Any]]:
        return ((f"{self.place}.answers[{n}]", each) for n, each in enumerate(self.get("answers", list)))


def entries(path: Path, content: Any) -> Iterator[Entry]:
    """The questions of a file's JSON in its order. DataError that names the place where it is not of SQuAD's form."""
    for a, article in enumerate(_get(path, "", content, "data", list)):
        at = f"data[{a}]"
        for p, paragraph in enumerate(_get(path, at, article, "paragraphs", list)):
            inner = f"{at}.paragraphs[{p}]"
            for q, qa in enumerate(_get(path, inner, paragraph, "qas", list)):
                yield Entry(path, f"{inner}.qas[{q}]", a, article, paragraph, qa)


def _question(entry: Entry) -> Question:
    article, inner = entry.place.split(".")[0], entry.place.rpartition(".")[0]
    title = _get(entry.path, article, entry.article, "title", str) if "title" in entry.article else None
    context = _get(entry.path, inner, entry.paragraph, "context", str)
    id_, question = str(entry.get("id", (str, int))), entry.get("question", str)
    said = entry.qa.get("is_impossible")
    found = [] if said or "answers" not in entry.qa else list(zip(entry.texts(), entry.starts(), strict=True))
    impossible = True if said else False if found or said is False else None
    return Question(entry.place, id_, question, context, title, found, impossible)


def _get(path: Path, at: str, value: Any, key: str, kind: Any) -> Any:
    """value[key] of a type. DataError that names the place."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(each.__name__ for each in kinds)
        raise DataError(
            f"{path} has not the form of SQuAD: {'.'.join(filter(None, (at, key)))} is "
            f"{'missing' if found is None else type(found).__name__}, not a {wanted}",
            'It must be {"data": [{"paragraphs": [{"qas": [{"id": …, "answers": [{"text": …}]}]}]}]}.',
        )
    return found
