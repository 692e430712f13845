"""Questions whose answers are spans of a document: what is read of task data, taught, guessed and published.

The windows are those of model/tuning/span_windows.py, the answers those of model/tuning/span_answers.py. As in run_squad.py of
google-research/bert, one linear layer gives every token two numbers: that the answer begins there, and that it ends there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
import torch.nn.functional as F
from torch import Tensor

from model.artifact import short
from model.reporting import leaderboard
from model.scoring.squad_metrics import Question, scored
from model.tuning.examples import UNKNOWN, Examples, Questions, read_columns
from model.tuning.span_answers import SpanPrediction, null_threshold, span_predictions
from model.tuning.span_windows import DOC_STRIDE, MAX_QUERY_LENGTH, span_targets, span_windows
from pipeline.tokenizer import Tokenizer

Decided = Mapping[str, float]
"""`null_threshold`, where questions may have no answer: found on dev"""
N_BEST_PUBLISHED = 5
"""of the n-best in the table of predictions"""
_N_BEST = pa.list_(pa.struct([("text", pa.string()), ("start", pa.int32()), ("probability", pa.float32())]))


@dataclass(frozen=True)
class SpanGuesses:
    """An answer to every question."""

    texts: tuple[str, ...]
    """"" says that there is none"""
    found: tuple[SpanPrediction, ...] = ()
    """what they were chosen of; none of a constant"""


def read_spans(path: Path, tokenizer: Tokenizer, max_length: int) -> Examples:
    """Read train, dev or test.parquet of a span task. Raises DataError where it can't be read.

    With a `max_length` of 384, windows and questions are the original's; shorter inputs keep its proportions: windows begin
    every third of an input, and a question takes a quarter at most.
    """
    names = ("example_id", "question", "context", "answers", "impossible")
    ids, questions, contexts, answers, impossible = read_columns(path, *names)
    longest = min(MAX_QUERY_LENGTH, max_length // 4)
    windows = span_windows(questions, contexts, tokenizer, max_length, min(DOC_STRIDE, max_length // 3), longest)
    none = np.array([bool(said) for said in impossible], bool)
    texts = tuple(
        () if nothing else tuple(answer["text"] for answer in given)
        for given, nothing in zip(answers, none, strict=True)
    )
    placed = [
        [(a["start"], a["start"] + len(a["text"])) for a in given if a["start"] is not None] if not nothing else []
        for given, nothing in zip(answers, none, strict=True)
    ]
    known = none | np.array([len(given) > 0 for given in texts], bool)
    targets = span_targets(windows, placed)
    # What has an answer, but none at a known place, must not be taught as unanswerable.
    teachable = none | np.array([len(given) > 0 for given in placed], bool)
    taught = targets.usable & teachable[windows.question_of]
    labels = np.stack([targets.starts, targets.ends], 1)
    labels[~taught] = UNKNOWN
    return Examples(
        example_ids=tuple(ids),
        texts=(),
        input_ids=windows.input_ids,
        second_starts=windows.second_starts,
        labels=labels,
        truncated=windows.cut_questions,
        questions=Questions(windows, texts, known, none),
        counts={
            "windows": len(windows),
            "cut_questions": windows.cut_questions,
            "widened_answers": targets.widened,
            "answers_without_token": targets.without_token,
            "answers_in_no_window": targets.in_no_window,
            "untaught_windows": int((~taught).sum()),
        },
    )


def span_loss(logits: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
    """Mean over windows, and over beginning and end, of the cross entropy over the tokens of a window (run_squad.py).

    float [tokens of all windows, 2], int64 [windows, 2], int64 [windows] → a scalar. A label UNKNOWN is left out.
    """
    mask = torch.arange(int(lengths.max()), device=logits.device) < lengths[:, None]  # [windows, S]
    spread = logits.new_full((*mask.shape, 2), -torch.inf)
    spread[mask] = logits  # [windows, S, 2]
    losses = F.cross_entropy(
        spread.transpose(1, 2).flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=UNKNOWN
    )
    return losses / (labels != UNKNOWN).sum().clamp(min=1)


def decide(examples: Examples, logits: Tensor) -> Decided:
    """Of the dev part, float [outputs, 2]: the threshold of the best F1, where some questions have no answer."""
    questions = _questions(examples)
    if not questions.none.any():
        return {}
    threshold, _ = null_threshold(_gold(examples), _found(examples, logits, null=True))
    return {"null_threshold": threshold}


def span_guesses(examples: Examples, logits: Tensor, decided: Decided) -> SpanGuesses:
    """float [outputs, 2] → an answer to every question."""
    threshold = decided.get("null_threshold")
    found = _found(examples, logits, null=threshold is not None)
    return SpanGuesses(tuple(each.text(threshold) for each in found), tuple(found))


def no_answer(examples: Examples) -> SpanGuesses:
    """The guess of one who reads nothing."""
    return SpanGuesses(("",) * len(examples))


def span_scores(names: Sequence[str], examples: Examples, guesses: SpanGuesses) -> dict[str, float] | None:
    """exact_match and f1 over the questions whose answers are known, as SQuAD's scripts have them; None: there are none."""
    known = examples.known
    if not known.any():
        return None
    pair = dict(zip(("exact_match", "f1"), _scored(examples, guesses), strict=True))
    return {name: short(pair[name][known].mean()) for name in names}


def span_table(examples: Examples, guesses: SpanGuesses, decided: Decided) -> pa.Table:
    """A row for every question: example_id, answers, prediction, exact_match, f1 (null where the answer is not known),
    null_odds (where there may be none) and the n_best."""
    exact, f1 = _scored(examples, guesses)
    unknown = ~examples.known
    odds = {"null_odds": pa.array([each.null_odds for each in guesses.found], pa.float32())} if decided else {}
    best = [
        [{"text": a.text, "start": a.start, "probability": a.probability} for a in each.n_best[:N_BEST_PUBLISHED]]
        for each in guesses.found
    ]
    return pa.table(
        {
            "example_id": pa.array(examples.example_ids, pa.string()),
            "answers": pa.array(_questions(examples).answers, pa.list_(pa.string())),
            "prediction": pa.array(guesses.texts, pa.string()),
            "exact_match": pa.array(exact, pa.float32(), mask=unknown),
            "f1": pa.array(f1, pa.float32(), mask=unknown),
            **odds,
            "n_best": pa.array(best, _N_BEST),
        }
    )


def span_files(examples: Examples, guesses: SpanGuesses, decided: Decided) -> dict[str, str]:
    """Ending → text of the files that SQuAD's scripts and its leaderboard take."""
    files = {"json": leaderboard.squad_file(dict(zip(examples.example_ids, guesses.texts, strict=True)))}
    if decided:
        odds = (each.null_odds for each in guesses.found)
        files["null_odds.json"] = leaderboard.squad_no_answer_file(dict(zip(examples.example_ids, odds, strict=True)))
    return files


def _questions(examples: Examples) -> Questions:
    assert examples.questions is not None
    return examples.questions


def _gold(examples: Examples) -> list[Question]:
    """By number: files may give an id twice."""
    return [Question(str(number), 0, answers) for number, answers in enumerate(_questions(examples).answers)]


def _scored(examples: Examples, guesses: SpanGuesses) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """(exact match, F1) of every question; where the answer is not known, of no meaning."""
    version: Literal["1.1", "2.0"] = "2.0" if _questions(examples).none.any() else "1.1"
    exact, f1 = np.zeros(len(examples)), np.zeros(len(examples))
    known = np.flatnonzero(examples.known)
    gold = _gold(examples)
    texts = {question.question_id: text for question, text in zip(gold, guesses.texts, strict=True)}
    exact[known], f1[known], _ = scored([gold[number] for number in known], texts, version)
    return exact, f1


def _found(examples: Examples, logits: Tensor, null: bool) -> list[SpanPrediction]:
    windows = _questions(examples).windows
    ends_of = np.cumsum(windows.lengths)
    starts, ends = (np.split(column, ends_of)[:-1] for column in logits.double().numpy().T)
    return span_predictions(windows, starts, ends, null)
