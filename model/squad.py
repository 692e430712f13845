"""SQuAD's JSON files (versions 1.1 and 2.0), and where an answer stands in its context."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.compressed import Stream
from pipeline.errors import DataError


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
    for a, article in enumerate(_get(path, "", content, "data", list)):
        at = f"data[{a}]"
        title = _get(path, at, article, "title", str) if isinstance(article, dict) and "title" in article else None
        for p, paragraph in enumerate(_get(path, at, article, "paragraphs", list)):
            inner = f"{at}.paragraphs[{p}]"
            context = _get(path, inner, paragraph, "context", str)
            for q, qa in enumerate(_get(path, inner, paragraph, "qas", list)):
                yield _question(path, f"{inner}.qas[{q}]", qa, context, title)


def _question(path: Path, at: str, qa: Any, context: str, title: str | None) -> Question:
    id_ = str(_get(path, at, qa, "id", (str, int)))
    said = qa.get("is_impossible")
    answers = [] if said or "answers" not in qa else _get(path, at, qa, "answers", list)
    found = [
        (_get(path, f"{at}.answers[{n}]", answer, "text", str), _start(path, f"{at}.answers[{n}]", answer))
        for n, answer in enumerate(answers)
    ]
    impossible = True if said else False if found or said is False else None
    return Question(at, id_, _get(path, at, qa, "question", str), context, title, found, impossible)


def _start(path: Path, at: str, answer: Any) -> int | None:
    return _get(path, at, answer, "answer_start", int) if answer.get("answer_start") is not None else None


def _get(path: Path, at: str, value: Any, key: str, kind: Any) -> Any:
    """value[key] of a type. DataError that names the place."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(each.__name__ for each in kinds)
        raise DataError(
            f"{path}: {'.'.join(filter(None, (at, key)))} is {'missing' if found is None else type(found).__name__}, not "
            f"a {wanted}",
            "The file is not of SQuAD's form.",
        )
    return found
