"""SQuAD 1.1 and 2.0: exact match and F1, of all questions and by whether they have an answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model.reporting.bootstrap import Statistic
from model.reporting.weighted_metrics import ratio
from model.scoring import squad_metrics
from model.scoring.result import Entry, result
from model.scoring.squad_files import read_no_answer, read_predictions, read_questions
from model.scoring.text import counted, named
from pipeline.errors import DataError

Numbers = npt.NDArray[Any]


_SCORES = ("f1", "exact_match")


def scores_of_squad(version: str, gold: Path, predictions: Path, no_answer: Path | None) -> dict[str, Any]:
    """Version `1.1` or `2.0`. Questions without a prediction score 0; they are named in `missing`."""
    questions = read_questions(gold, version)
    texts = read_predictions(predictions, questions)
    exact, f1, missing = squad_metrics.scored(questions, texts, version)
    scores = dict(zip(_SCORES, (f1, exact), strict=True))
    has_answer = np.array([bool(question.answers) for question in questions])
    notes = _notes_of_texts(texts, missing)
    best: list[Entry] = []
    thresholds: dict[str, float] = {}
    if no_answer is not None:
        if missing:
            raise DataError(
                f"{predictions}: {counted(len(missing), 'question')} without a prediction: {named(missing)}",
                "The search for a threshold needs a prediction of every question.",
            )
        values = read_no_answer(no_answer, questions)
        best, thresholds, of_search = _searched(questions, texts, scores, has_answer, values)
        probabilities = np.array([values[question.question_id] for question in questions])
        scores = {
            name: squad_metrics.thresholded(each, has_answer, probabilities, squad_metrics.OFFICIAL_THRESHOLD)
            for name, each in scores.items()
        }
        notes += [*of_search, *_notes_above(probabilities)]
    parts = {"": np.ones(len(questions), bool)}
    if version == "2.0":
        parts |= {"has answer": has_answer, "no answer": ~has_answer}
    entries = [
        Entry(name, part, int(mask.sum()), _points(each[mask]), _mean_of_part(each, mask))
        for part, mask in parts.items()
        if mask.any()
        for name, each in scores.items()
    ]
    articles = np.array([question.article for question in questions])
    found = result(len(questions), "questions", [*entries, *best], notes, ("articles", articles))
    return {**found, "missing": missing, **({"thresholds": thresholds} if thresholds else {})}


def _searched(
    questions: Sequence[squad_metrics.Question],
    texts: Mapping[str, str],
    scores: Mapping[str, Numbers],
    has_answer: Numbers,
    values: Mapping[str, float],
) -> tuple[list[Entry], dict[str, float], list[str]]:
    """(best scores over all no-answer thresholds, these thresholds, notes)."""
    answered = np.array([bool(texts[question.question_id]) for question in questions])
    probabilities = np.array([values[question.question_id] for question in questions])
    order = squad_metrics.rising(questions, values)
    entries, thresholds, notes = [], {}, []
    for name, each in scores.items():
        steps = squad_metrics.answering_steps(each, has_answer, answered)
        found = squad_metrics.best_threshold(each, has_answer, steps, probabilities, order)
        statistic = _best(has_answer, steps, order)
        entries.append(Entry(name, "best threshold", len(questions), 100 * found.score, statistic))
        thresholds[name] = found.value
        if found.reached < found.score - 1e-9:
            notes.append(
                f"the threshold {found.value:g} reaches {name} {100 * found.reached:.4f}, not the {100 * found.score:.4f} that "
                "the official search says (equal probabilities, or ones below 0)"
            )
    return entries, thresholds, notes


def _notes_above(probabilities: Numbers) -> list[str]:
    above = int((probabilities > squad_metrics.OFFICIAL_THRESHOLD).sum())
    if not above:
        return []
    return [
        f"no-answer probabilities above {squad_metrics.OFFICIAL_THRESHOLD:g}, the official script's threshold: {above:,}; "
        'there the prediction counts as "no answer", except for "best threshold"'
    ]


def _notes_of_texts(texts: Mapping[str, str], missing: Sequence[str]) -> list[str]:
    notes = []
    if missing:
        said = (
            "question has no prediction and scores" if len(missing) == 1 else "questions have no prediction and score"
        )
        notes.append(f"{len(missing):,} {said} 0: {named(missing)}")
    if len(set(texts.values())) == 1:
        notes.append(f"every prediction is {next(iter(texts.values()))[:80]!r}")
    return notes


def _points(values: Numbers) -> float:
    """100 × the mean, added up one by one, so that it has the official script's last digit too."""
    return 100.0 * sum(values.tolist()) / len(values)


def _mean_of_part(values: Numbers, mask: Numbers) -> Statistic:
    chosen, counted = np.where(mask, values, 0.0), mask.astype(np.float64)
    return lambda weights: ratio(weights @ chosen, weights @ counted)


def _best(has_answer: Numbers, steps: Numbers, order: Numbers) -> Statistic:
    """The best threshold's score, searched anew in every resample."""
    unanswerable, ordered = (~has_answer).astype(np.float64), steps[order]

    def statistic(weights: Numbers) -> Numbers:
        gained = np.cumsum(weights[:, order] * ordered, axis=1).max(axis=1)
        return (weights @ unanswerable + np.maximum(gained, 0.0)) / weights.sum(axis=1)

    return statistic
