"""SQuAD's exact match and F1, versions 1.1 and 2.0, as the official scripts calculate them.

An answer is compared after it is normalised. Of several gold answers the best counts, for each of the two scores by itself.
The versions differ: in 2.0 gold answers that normalise to nothing are dropped, a question without gold answers wants the
empty string, and two empty answers agree. In 1.1 answers without a word in common have F1 0, two empty ones too.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]

OFFICIAL_THRESHOLD = 1.0
"""The official script's default: a no-answer probability above it makes the prediction "no answer"."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@dataclass(frozen=True)
class Question:
    """One question with its gold answers; none where it can't be answered (2.0)."""

    question_id: str
    article: int
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Threshold:
    """The no-answer threshold that gives the best score: above it, a question counts as not answered."""

    value: float
    score: float
    """fraction of 1"""
    reached: float
    """the score with exactly this threshold; less than `score` where questions share the probability `value`, or where
    none should be answered, which the search calls 0.0, and some probabilities are below 0"""


def normalised(text: str) -> str:
    """Lower case, without ASCII punctuation and the words a, an, the; runs of white space are one space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def scores_1_1(answers: Sequence[str], prediction: str) -> tuple[float, float]:
    """(exact match, F1) of a prediction, each the best over at least one gold answer."""
    predicted = normalised(prediction)
    gold = [normalised(answer) for answer in answers]
    return float(predicted in gold), max(_f1(answer.split(), predicted.split()) for answer in gold)


def scores_2_0(answers: Sequence[str], prediction: str) -> tuple[float, float]:
    """(exact match, F1) of a prediction; "" says that there is no answer."""
    predicted = normalised(prediction)
    gold = [answer for answer in map(normalised, answers) if answer] or [""]
    if not predicted or gold == [""]:
        agree = float(predicted in gold)
        return agree, agree
    return float(predicted in gold), max(_f1(answer.split(), predicted.split()) for answer in gold)


def _f1(gold: list[str], predicted: list[str]) -> float:
    """Of words, each counted as often as it occurs in both."""
    same = sum((Counter(gold) & Counter(predicted)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(predicted), same / len(gold)
    return 2 * precision * recall / (precision + recall)


def thresholded(scores: Numbers, has_answer: Numbers, probabilities: Numbers, threshold: float) -> Numbers:
    """Scores, float64 [questions], where a no-answer probability above `threshold` replaces the predicted answer."""
    return np.where(probabilities > threshold, (~has_answer).astype(np.float64), scores)


def answering_steps(scores: Numbers, has_answer: Numbers, answered: Numbers) -> Numbers:
    """What each question adds to the sum of scores when it no longer counts as "no answer", float64 [questions].

    `answered`, bool [questions]: the prediction is not empty.
    """
    return np.where(has_answer, scores, np.where(answered, -1.0, 0.0))


def rising(questions: Sequence[Question], probabilities: Mapping[str, float]) -> Numbers:
    """The places of the questions by rising probability, int [questions]; equal ones in the order of `probabilities`."""
    places = {question.question_id: place for place, question in enumerate(questions)}
    return np.array([places[key] for key in sorted(probabilities, key=probabilities.__getitem__)])


def best_threshold(
    scores: Numbers, has_answer: Numbers, steps: Numbers, probabilities: Numbers, order: Numbers
) -> Threshold:
    """The best no-answer threshold on these questions, as the official script searches it.

    All count as "no answer" first; then one question after another is answered, in the `order` of `rising`. 0.0 where
    that is never better.
    """
    points = np.cumsum(np.concatenate([[float((~has_answer).sum())], steps[order]]))
    at = int(points.argmax())
    value = float(probabilities[order[at - 1]]) if at else 0.0
    reached = thresholded(scores, has_answer, probabilities, value)
    return Threshold(value, float(points[at]) / len(scores), float(reached.sum()) / len(scores))


def scored(
    questions: Sequence[Question], predictions: Mapping[str, str], version: str
) -> tuple[Numbers, Numbers, list[str]]:
    """(exact match, F1, ids without a prediction): float64 [questions] each; a question without a prediction scores 0."""
    score = {"1.1": scores_1_1, "2.0": scores_2_0}[version]
    pairs, missing = np.zeros((len(questions), 2)), []
    for number, question in enumerate(questions):
        if question.question_id in predictions:
            pairs[number] = score(question.answers, predictions[question.question_id])
        else:
            missing.append(question.question_id)
    return pairs[:, 0], pairs[:, 1], missing
