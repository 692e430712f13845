"""Logits of windows to answers: n-best spans, their probabilities, and when "no answer" is better.

As in google-research/bert run_squad.py: a span begins with a token that has its maximum context in the window, lies in the
document's part of one window and has at most 30 tokens; its score is the sum of two logits. [CLS] stands for "no answer",
scored by the window that is least sure of it. Two things differ, on purpose. All such spans compete, not only those between
the 20 best beginnings and ends of each window, so that there always is one. And an answer is exactly what the document
says from the first character of its first token to the last of its last, not a guess by tokenising again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model.scoring.squad_metrics import Question, scored
from model.tuning.span_windows import SpanWindows
from pipeline.errors import DataError
from pipeline.tokenizer import Located

N_BEST = 20
"""answers kept of a question; run_squad.py, as is the next"""
MAX_ANSWER_LENGTH = 30
"""tokens of an answer"""
Numbers = npt.NDArray[Any]
_Span = tuple[str, int, int, float, float]
"""text, its characters, its two logits"""


@dataclass(frozen=True)
class SpanAnswer:
    """One answer of the n-best."""

    text: str
    """`context[start:end]`; "" is "no answer" """
    start: int
    """character of the context; 0 for "no answer" """
    end: int
    start_logit: float
    end_logit: float
    probability: float
    """softmax of start_logit + end_logit over the n-best of the question"""

    @property
    def score(self) -> float:
        """What answers are ranked by."""
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class SpanPrediction:
    """What a model says to one question."""

    n_best: tuple[SpanAnswer, ...]
    """best first, no text twice; with "no answer" among them where that may be said"""
    null_score: float
    """the least sum of [CLS]'s two logits over the windows"""

    @property
    def answer(self) -> SpanAnswer | None:
        """The best answer that is one; None: the document has no token."""
        return next((each for each in self.n_best if each.text), None)

    @property
    def null_odds(self) -> float:
        """By how much "no answer" beats the best answer; the null score itself where the document has no token."""
        return self.null_score - (self.answer.score if self.answer else 0.0)

    def text(self, null_threshold: float | None) -> str:
        """The best answer, or "" where `null_odds` is above the threshold. None: every question is answered (1.1)."""
        if self.answer is None or (null_threshold is not None and self.null_odds > null_threshold):
            return ""
        return self.answer.text


def span_predictions(
    windows: SpanWindows,
    start_logits: Sequence[Numbers],
    end_logits: Sequence[Numbers],
    null: bool,
    n_best: int = N_BEST,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> list[SpanPrediction]:
    """A prediction of every question.

    start_logits, end_logits: [windows] of [tokens], as long as the windows' `input_ids`. null: "no answer" may be said (2.0).

    Raises:
        DataError: logits that are not finite numbers, or not as many as the windows have tokens.
    """
    for name, logits in (("start", start_logits), ("end", end_logits)):
        _check(windows, name, logits)
    return [
        _predicted(windows, question, start_logits, end_logits, null, n_best, max_answer_length)
        for question in range(len(windows.document_of))
    ]


def _check(windows: SpanWindows, name: str, logits: Sequence[Numbers]) -> None:
    if [len(each) for each in logits] != windows.lengths.tolist():
        raise DataError(
            f"{len(logits):,} rows of {name} logits are not those of {len(windows):,} windows, token by token",
            "Give the logits of every window in order, without those of padding.",
        )
    broken = sum(not np.isfinite(each).all() for each in logits)
    if broken:
        raise DataError(
            f"{name} logits of {broken:,} of {len(windows):,} windows are not finite",
            "The model has diverged; train it with a lower learning rate.",
        )


def _predicted(
    windows: SpanWindows,
    question: int,
    start_logits: Sequence[Numbers],
    end_logits: Sequence[Numbers],
    null: bool,
    n_best: int,
    max_answer_length: int,
) -> SpanPrediction:
    document = windows.documents[windows.document_of[question]]
    # Every token begins spans in one window alone, and the windows' tokens follow each other: two tables of the document.
    starts, ends = np.empty(len(document)), np.empty((len(document), max_answer_length))
    null_starts, null_ends = [], []
    for window in range(int(windows.bounds[question]), int(windows.bounds[question + 1])):
        at, first, count = (int(each[window]) for each in (windows.second_starts, windows.first_tokens, windows.counts))
        begin, past = int(windows.context_starts[window]), int(windows.context_ends[window])
        starts[begin:past] = start_logits[window][at + begin - first : at + past - first]
        tail = np.full(past - begin + max_answer_length, -np.inf)
        seen = end_logits[window][at + begin - first : at + count][: len(tail)]
        tail[: len(seen)] = seen
        following = np.lib.stride_tricks.sliding_window_view(tail, max_answer_length)
        ends[begin:past] = following[: past - begin]
        null_starts.append(float(start_logits[window][0]))
        null_ends.append(float(end_logits[window][0]))
    least = int(np.argmin(np.add(null_starts, null_ends)))
    best = _best_spans(document, starts, ends, n_best)
    if null:
        nothing = ("", 0, 0, null_starts[least], null_ends[least])
        better = sum(a + b >= nothing[3] + nothing[4] for *_, a, b in best)
        # As there, it takes the place of the last answer, but stands behind a full list of better ones.
        best = [*best[:better], nothing, *best[better : n_best - 1]]
    scores = np.array([a + b for *_, a, b in best])
    weights = np.exp(scores - scores.max(initial=-np.inf))
    return SpanPrediction(
        tuple(SpanAnswer(*each, float(p)) for each, p in zip(best, weights / weights.sum(), strict=True)),
        null_starts[least] + null_ends[least],
    )


def _best_spans(document: Located, starts: Numbers, ends: Numbers, n_best: int) -> list[_Span]:
    """The n best spans, no text twice; of equal scores the earlier, then the shorter.

    starts: [tokens]; ends: [tokens, max_answer_length], -inf where a span may not end.
    """
    scores = (starts[:, None] + ends).ravel()
    allowed = int(np.isfinite(scores).sum())
    wanted = min(n_best, allowed)
    while True:
        # With all that equal the last, so that which of them come first is not left to the partition.
        least = scores[np.argpartition(scores, -wanted)[-wanted]] if 0 < wanted < allowed else -np.finfo(np.float64).max
        chosen = np.flatnonzero(scores >= least)
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
        token, more = np.divmod(chosen, ends.shape[1])
        columns = (document.starts[token], document.ends[token + more], starts[token], ends[token, more])
        texts: dict[str, _Span] = {}
        for start, end, *logits in zip(*(column.tolist() for column in columns), strict=True):
            texts.setdefault(document.text[start:end], (document.text[start:end], start, end, *logits))
            if len(texts) == n_best:
                break
        if len(texts) == n_best or len(chosen) == allowed:
            return list(texts.values())
        wanted = min(4 * len(chosen), allowed)


# ── when "no answer" is better ───────────────────────────────────────────────────────────────────────────────────────


def best_null_threshold(answered: Numbers, unanswered: Numbers, null_odds: Numbers) -> tuple[float, float]:
    """(the threshold of the highest mean score, this mean). Of equal ones the lowest: it answers fewest.

    answered, unanswered: float64 [questions], the score (F1, say) of the best answer and of "no answer". A question whose
    `null_odds` [questions] are above the threshold is not answered. Questions of equal odds go together, as a threshold
    can't tell them apart; that which answers none is 1 below the lowest odds.

    Raises:
        DataError: no question, or odds that are not finite.
    """
    if not len(null_odds) or not np.isfinite(null_odds).all():
        raise DataError("a threshold needs questions, and odds that are finite numbers", "Predict the dev set first.")
    order = np.argsort(null_odds, kind="stable")
    odds = null_odds[order]
    sums = unanswered.sum() + np.concatenate([[0.0], np.cumsum((answered - unanswered)[order])])
    ends = np.concatenate([[0], np.flatnonzero(np.diff(odds)) + 1, [len(odds)]])  # questions that are answered
    best = int(ends[np.argmax(sums[ends])])
    return float(odds[best - 1] if best else odds[0] - 1.0), float(sums[best] / len(odds))


def null_threshold(questions: Sequence[Question], predictions: Sequence[SpanPrediction]) -> tuple[float, float]:
    """The threshold of the highest F1 (SQuAD 2.0's) on questions and their predictions, and this F1 as a fraction of 1."""
    ids = [question.question_id for question in questions]
    texts = [{i: p.text(None) for i, p in zip(ids, predictions, strict=True)}, dict.fromkeys(ids, "")]
    answered, unanswered = (scored(questions, each, "2.0")[1] for each in texts)
    return best_null_threshold(answered, unanswered, np.array([each.null_odds for each in predictions]))
