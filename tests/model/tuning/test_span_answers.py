"""Answers out of logits: against a search by hand through all spans, and with perfect logits on SQuAD's own questions."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.reporting.leaderboard import squad_file, squad_no_answer_file
from model.scoring import squad_metrics
from model.scoring.command import score
from model.scoring.squad_metrics import normalised
from model.task_files.squad import Question, read_squad
from model.tuning.span_answers import (
    SpanAnswer,
    SpanPrediction,
    best_null_threshold,
    null_threshold,
    span_predictions,
)
from model.tuning.span_windows import SpanWindows, span_targets, span_windows
from pipeline.errors import DataError
from pipeline.tokenizer import SPECIAL_TOKENS, make, read_vocabulary
from tests.conftest import shared

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPELLING = make((*SPECIAL_TOKENS, *LETTERS, *(f"##{each}" for each in LETTERS)), lowercase=True, strip_accents=True)
"""letter by letter: token i of "abc" is its i-th character"""
Floats = list[float]


def windows_of(*contexts: str, stride: int = 2, tokens: int = 4) -> SpanWindows:
    """Windows of so many tokens, the document from place 3, of a question of one token."""
    return span_windows(["q"] * len(contexts), contexts, SPELLING, tokens + 4, stride, 1)


def arrays(*rows: Floats) -> list[Any]:
    return [np.array(row, dtype=np.float32) for row in rows]


def test_probabilities_and_null_odds_by_hand() -> None:
    """One window, [CLS] q [SEP] a b [SEP]: spans a (1 + 0), ab (1 + 2), b (-1 + 2), no answer (0.5 + 1); a softmax of
    3, 1.5, 1, 1: e^3 = 20.0855, e^1.5 = 4.4817, e = 2.7183, together 30.0038."""
    windows = windows_of("ab")
    starts, ends = arrays([0.5, 9, 9, 1, -1, 9]), arrays([1, 9, 9, 0, 2, 9])
    (found,) = span_predictions(windows, starts, ends, null=True)
    assert [(each.text, each.score) for each in found.n_best] == [("ab", 3), ("", 1.5), ("a", 1), ("b", 1)]
    assert [each.probability for each in found.n_best] == pytest.approx([0.66943, 0.14937, 0.09060, 0.09060], abs=1e-5)
    assert (found.null_score, found.null_odds) == (1.5, -1.5)
    assert (found.n_best[0].start, found.n_best[0].end) == (0, 2)
    assert (found.n_best[0].start_logit, found.n_best[0].end_logit) == (1, 2)
    assert [found.text(threshold) for threshold in (None, 0.0, -1.5, -1.6)] == ["ab", "ab", "ab", ""]

    (only,) = span_predictions(windows, starts, ends, null=False)
    assert [each.text for each in only.n_best] == ["ab", "a", "b"]
    assert sum(each.probability for each in only.n_best) == pytest.approx(1)


def test_no_answer_is_scored_by_the_window_that_is_least_sure_of_it() -> None:
    windows = windows_of("abcdef")  # tokens 0-3 and 2-5
    rows = [[5, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]]
    (found,) = span_predictions(windows, arrays(*rows), arrays(*rows), null=True)
    assert found.null_score == 4
    assert (found.n_best[0].text, found.n_best[0].start_logit, found.n_best[0].end_logit) == ("", 2, 2)


def test_a_span_begins_where_its_token_has_most_context_and_ends_in_the_same_window() -> None:
    """Windows abcd and cdef. c belongs to the first and d to the second: a c that only the second likes does not count, and
    none that begins with c ends behind d."""
    windows = windows_of("abcdef")
    starts = arrays([0, 0, 0, 0, 0, 3, 9, 0], [0, 0, 0, 9, 4, 0, 0, 0])
    ends = arrays([0, 0, 0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0, 2, 0])
    (found,) = span_predictions(windows, starts, ends, null=False)
    assert [(each.text, each.score) for each in found.n_best[:3]] == [("def", 6), ("cd", 4), ("d", 4)]


def test_the_answer_is_what_the_document_says() -> None:
    context = "a  CAFE\u0301,\n\x00 b…"
    windows = span_windows(["q"], [context], SPELLING, 20, 5, 1)
    document = windows.documents[0]
    assert SPELLING.tokens(document.ids) == ["a", "c", "##a", "##f", "##e", "[UNK]", "b", "[UNK]"]
    starts, ends = np.zeros(12), np.zeros(12)
    starts[3 + 1], ends[3 + 6] = 5, 5
    (found,) = span_predictions(windows, [starts], [ends], null=False)
    assert found.n_best[0].text == "CAFE\u0301,\n\x00 b" == context[found.n_best[0].start : found.n_best[0].end]


@pytest.mark.parametrize("context", ["", " \n", "\x00"])
def test_a_document_without_tokens_has_no_answer(context: str) -> None:
    windows = windows_of(context, "ab")
    logits = arrays([1, 0, 0, 0], [0, 0, 0, 0, 0, 0])
    found, other = span_predictions(windows, logits, logits, null=True)
    assert found.n_best == (SpanAnswer("", 0, 0, 1, 1, 1.0),)
    assert (found.answer, found.null_odds, found.text(None), found.text(5.0)) == (None, 2, "", "")
    assert other.text(None) == "a", "of equal spans the first, and of these the shortest"
    (never,) = span_predictions(windows_of(context), logits[:1], logits[:1], null=False)
    assert (never.n_best, never.text(None)) == ((), "")


def test_logits_that_are_none() -> None:
    windows = windows_of("ab", "cd")
    good = arrays([0] * 6, [0] * 6)
    with pytest.raises(DataError, match="end logits of 1 of 2 windows are not finite"):
        span_predictions(windows, good, arrays([0] * 6, [0, 0, math.nan, 0, 0, 0]), null=True)
    with pytest.raises(DataError, match="2 rows of start logits are not those of 2 windows"):
        span_predictions(windows, arrays([0] * 6, [0] * 8), good, null=True)
    with pytest.raises(DataError, match="1 rows of start logits"):
        span_predictions(windows, good[:1], good, null=True)


def by_hand(windows: SpanWindows, starts: list[Any], ends: list[Any], null: bool, n: int, longest: int) -> list[Any]:
    """google-research/bert run_squad.py, step by step, for one question: (text, score), best first; every pair is tried."""
    document = windows.documents[0]
    spans: list[tuple[float, int, int, str]] = []
    for window in range(len(windows)):
        first, at = int(windows.first_tokens[window]), int(windows.second_starts[window])
        for start in range(at, at + int(windows.counts[window])):
            token = start - at + first
            if not windows.context_starts[window] <= token < windows.context_ends[window]:
                continue
            for end in range(start, min(at + int(windows.counts[window]), start + longest)):
                text = document.text[document.starts[token] : document.ends[end - at + first]]
                spans.append((float(starts[window][start]) + float(ends[window][end]), token, end - start, text))
    spans.sort(key=lambda span: (-span[0], span[1], span[2]))
    ranked = [(text, value) for value, _, _, text in spans]
    nothing = ("", min(float(s[0]) + float(e[0]) for s, e in zip(starts, ends, strict=True)))
    if null:
        ranked = sorted([*ranked, nothing], key=lambda each: -each[1])  # stable: behind its equals
    kept: dict[str, float] = {}
    for text, value in ranked:
        if len(kept) < n:
            kept.setdefault(text, value)
    if null:
        kept.setdefault(*nothing)
    return list(kept.items())


@settings(deadline=None)
@given(
    context=st.text("ab 中", max_size=25) | st.text(LETTERS, max_size=25),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 8)),
    limits=st.tuples(st.integers(1, 25), st.integers(1, 9)),
    seed=st.integers(0, 1 << 20),
    coarse=st.booleans(),
    null=st.booleans(),
)
def test_the_n_best_are_those_of_a_search_through_all_spans(
    context: str, shape: tuple[int, int], limits: tuple[int, int], seed: int, coarse: bool, null: bool
) -> None:
    stride, tokens = shape
    n_best, longest = limits
    windows = windows_of(context, stride=stride, tokens=tokens)
    random = np.random.default_rng(seed)
    starts, ends = (
        [random.integers(-2, 3, n).astype(np.float32) if coarse else random.normal(size=n) for n in windows.lengths]
        for _ in range(2)
    )
    (found,) = span_predictions(windows, starts, ends, null, n_best, longest)
    expected = by_hand(windows, starts, ends, null, n_best, longest)
    assert [(each.text, each.score) for each in found.n_best] == expected
    assert all(each.text == context[each.start : each.end] for each in found.n_best)
    total = sum(math.exp(value) for _, value in expected)
    assert [each.probability for each in found.n_best] == pytest.approx([math.exp(v) / total for _, v in expected])
    spans = [value for text, value in expected if text]
    if spans:
        assert found.null_odds == found.null_score - spans[0]


def test_twenty_answers_of_up_to_thirty_tokens() -> None:
    windows = span_windows(["q"], ["a" * 60], SPELLING)
    logits = [np.arange(64.0), np.arange(64.0)]
    logits[0][:] = 0
    logits[0][3] = 100
    (found,) = span_predictions(windows, logits[:1], logits[1:], null=True)
    assert [len(each.text) for each in found.n_best[:-1]] == list(range(30, 10, -1))
    assert found.n_best[-1].text == ""  # behind a full list, as there


# ── perfect logits on real questions ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "version", "questions", "inside_words", "too_long"),
    [("dev-v1.1.json", "1.1", 10_570, 16, 7), ("dev-v2.0.json", "2.0", 11_873, 8, 7)],
)
def test_perfect_logits_answer_what_tokens_can(
    tmp_path: Path, name: str, version: str, questions: int, inside_words: int, too_long: int
) -> None:
    """All but the questions whose answers all begin or end inside a token, as "gold" at an offset in "golden" (the file's
    own offsets), and those whose target has more than 30 tokens."""
    gold = shared(f"data/finetune/squad/{name}")
    vocabulary = read_vocabulary(shared("data/reference/vocab-bert-base-uncased.txt"))
    asked = list(read_squad(gold))
    windows = span_windows(
        [each.question for each in asked],
        [each.context for each in asked],
        make(vocabulary, lowercase=True, strip_accents=True),
    )
    targets = span_targets(windows, [_characters(each) for each in asked])
    assert targets.usable.all()
    assert (targets.without_token, targets.in_no_window) == (0, 0)
    starts, ends = (
        [10.0 * (np.arange(length) == place) for length, place in zip(windows.lengths, places, strict=True)]
        for places in (targets.starts, targets.ends)
    )
    found = span_predictions(windows, starts, ends, null=version == "2.0")
    texts = [each.text(0.0 if version == "2.0" else None) for each in found]

    wrong = [
        number
        for number, (question, text) in enumerate(zip(asked, texts, strict=True))
        if normalised(text) not in {normalised(answer) for answer, _ in question.answers or [("", 0)]}
    ]
    lengths = np.maximum.reduceat(targets.ends - targets.starts + 1, windows.bounds[:-1])
    long = [number for number in wrong if lengths[number] > 30]
    assert len(asked) == questions
    assert (len(wrong) - len(long), len(long)) == (inside_words, too_long)
    for number in set(wrong) - set(long):
        assert not any(answer in set(_on_borders(asked[number])) for answer, _ in asked[number].answers)

    predictions, no_answer = tmp_path / "predictions.json", tmp_path / "null_odds.json"
    ids = [each.id for each in asked]
    predictions.write_text(squad_file(dict(zip(ids, texts, strict=True))))
    no_answer.write_text(squad_no_answer_file({i: each.null_odds for i, each in zip(ids, found, strict=True)}))
    scored = score(f"squad{version}", gold, predictions, no_answer if version == "2.0" else None)
    points = {(row["part"], row["metric"]): row["points"] for row in scored["scores"]}
    assert points["", "exact_match"] == pytest.approx(100 * (1 - len(wrong) / questions))
    if version == "2.0":
        assert points["no answer", "exact_match"] == 100


def _characters(question: Question) -> list[tuple[int, int]]:
    return [(start, start + len(text)) for text, start in question.answers if start is not None]


def _on_borders(question: Question) -> list[str]:
    """The answers with neither a letter nor a digit right beside a letter or digit of theirs."""
    found = []
    for text, start in question.answers:
        assert start is not None
        before = question.context[start - 1 : start]
        after = question.context[start + len(text) : start + len(text) + 1]
        if not (before.isalnum() and text[0].isalnum()) and not (after.isalnum() and text[-1].isalnum()):
            found.append(text)
    return found


# ── the threshold ────────────────────────────────────────────────────────────────────────────────────────────────────

UNIT = st.sampled_from([0.0, 0.25, 0.5, 1.0])


@settings(deadline=None)
@given(rows=st.lists(st.tuples(UNIT, UNIT, st.integers(-3, 3) | st.floats(-1e6, 1e6)), min_size=1, max_size=30))
def test_the_threshold_is_the_best_of_all(rows: list[tuple[float, float, float]]) -> None:
    answered, unanswered, odds = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))

    def mean(threshold: float) -> float:
        return float(np.where(odds > threshold, unanswered, answered).mean())

    value, best = best_null_threshold(answered, unanswered, odds)
    everywhere = [mean(at) for at in [-math.inf, math.inf, *odds]]
    assert best == pytest.approx(max(everywhere))
    assert mean(value) == pytest.approx(best)
    assert all(mean(lower) < best - 1e-9 or lower >= value for lower in odds), "the lowest of equals"


def test_thresholds_by_hand() -> None:
    """q1 gains 1 when answered, q2 loses 1, q3 gains 1; q2 and q3 can't be told apart."""
    answered, unanswered = np.array([1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0])
    assert best_null_threshold(answered, unanswered, np.array([-5.0, -2.0, -2.0])) == (-5.0, 2 / 3)
    assert best_null_threshold(answered, unanswered, np.array([-5.0, -1.0, -2.0])) == (-2.0, 1.0)
    assert best_null_threshold(unanswered, answered, np.array([-5.0, 3.0, -2.0])) == (-6.0, 2 / 3)
    with pytest.raises(DataError, match="a threshold needs questions"):
        best_null_threshold(np.empty(0), np.empty(0), np.empty(0))


def test_the_threshold_is_that_of_the_official_search(tmp_path: Path) -> None:
    """bert score searches as the official script does, by the files that we write."""
    random = np.random.default_rng(7)
    ids = [f"q{n}" for n in range(60)]
    gold_texts = [["red dog"] if n % 2 else [] for n in range(60)]
    texts = [["red dog", "red", "cat"][n] for n in random.integers(0, 3, 60)]
    odds = random.normal(size=60) - np.arange(60) % 2
    gold, predictions, no_answer = (tmp_path / f"{name}.json" for name in ("gold", "predictions", "odds"))
    questions = [{"id": i, "answers": [{"text": t} for t in g]} for i, g in zip(ids, gold_texts, strict=True)]
    gold.write_text(json.dumps({"data": [{"paragraphs": [{"qas": questions}]}]}))
    predictions.write_text(squad_file(dict(zip(ids, texts, strict=True))))
    no_answer.write_text(squad_no_answer_file(dict(zip(ids, odds.tolist(), strict=True))))
    official = score("squad2.0", gold, predictions, no_answer)

    said = [
        SpanPrediction((SpanAnswer(text, 0, len(text), 0, 0, 1),), null) for text, null in zip(texts, odds, strict=True)
    ]
    asked = [squad_metrics.Question(i, 0, tuple(given)) for i, given in zip(ids, gold_texts, strict=True)]
    value, best = null_threshold(asked, said)
    assert value == official["thresholds"]["f1"]
    predictions.write_text(squad_file({i: each.text(value) for i, each in zip(ids, said, strict=True)}))
    assert score("squad2.0", gold, predictions, None)["scores"][0]["points"] == pytest.approx(100 * best)
    points = {(row["part"], row["metric"]): row["points"] for row in official["scores"]}
    assert points["best threshold", "f1"] == pytest.approx(100 * best)
