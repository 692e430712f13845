"""SQuAD's files: the data set (`data` → `paragraphs` → `qas`), predictions {id: text}, no-answer values {id: number}."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model.scoring.squad_metrics import Question
from model.scoring.text import counted, json_object, named
from model.task_files import squad
from pipeline.errors import DataError


def read_questions(path: Path, version: str) -> list[Question]:
    """The questions of a data set in the order of the file.

    DataError, with the question's id or place: a form that is not SQuAD's, an id that stands twice, and for version 1.1
    a question without an answer.
    """
    questions = [
        Question(entry.get("id", str), entry.article_number, tuple(entry.texts()))
        for entry in squad.entries(path, json_object(path))
    ]
    if not questions:
        raise DataError(f"{path} holds no questions", "Name SQuAD's dev file, as dev-v1.1.json.")
    ids: set[str] = set()
    for question in questions:
        if question.question_id in ids:
            raise DataError(f"{path}: the question {question.question_id!r} stands twice", "Ids must be distinct.")
        ids.add(question.question_id)
        if version == "1.1" and not question.answers:
            raise DataError(
                f"{path}: the question {question.question_id!r} has no answer, as in SQuAD 2.0 or a test set",
                "Score SQuAD 2.0 as squad2.0; a test set's answers are not public.",
            )
    return questions


def read_predictions(path: Path, questions: Sequence[Question]) -> dict[str, str]:
    """Question id → predicted text. DataError: an id that no question has, a text that is none, no id of the gold file."""
    predictions = json_object(path)
    for key, text in predictions.items():
        if not isinstance(text, str):
            raise DataError(
                f"{path}: the prediction of {key!r} is {text!r}, not a text",
                'Write {"id": "text", …}, with "" where there is no answer.',
            )
    known = {question.question_id for question in questions}
    if not known & predictions.keys():
        raise DataError(
            f"{path}: the gold file has {counted(len(known), 'question')} of other ids, and none of these "
            f"({counted(len(predictions), 'id')})",
            "Name the gold file that was predicted, and predictions as {id: text}.",
        )
    _refuse_extra(path, predictions, known)
    return predictions


def read_no_answer(path: Path, questions: Sequence[Question]) -> dict[str, float]:
    """Question id → probability (or score) of "no answer", in the order of the file. DataError: ids that lack or are
    not the gold file's, a value that is no finite number.
    """
    values = json_object(path)
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(
                f"{path}: the no-answer probability of {key!r} is {value!r}, not a finite number",
                'Write {"id": 0.25, …}.',
            )
    known = {question.question_id for question in questions}
    _refuse_extra(path, values, known)
    if lacking := [question.question_id for question in questions if question.question_id not in values]:
        raise DataError(
            f"{path}: {counted(len(lacking), 'question')} without a no-answer probability: {named(lacking)}",
            "Give one for every question of the gold file.",
        )
    return {key: float(value) for key, value in values.items()}


def _refuse_extra(path: Path, values: dict[str, Any], known: set[str]) -> None:
    if extra := [key for key in values if key not in known]:
        raise DataError(
            f"{path}: {counted(len(extra), 'id')} not in the gold file: {named(extra)}",
            "Remove what the gold file does not have, or name the gold file that was predicted.",
        )
