"""Words against the regular expression that defines them, runs against tuples of words."""

import itertools

import numpy as np
import polars as pl
import pytest

from pipeline.selection import ngrams

WORD = r"[\p{L}\p{M}\p{N}_]+"
TEXTS = [
    "Don't stop — it's 3.14, déjà_vu!",
    "",
    "...",
    "हिन्दी में ΣΊΣΥΦΟΣ naïve naïve Ⅻ x²",
    "今日は、東京へ。 ภาษาไทย",
    "a\u00a0b\u2003c\u200bd",
    "one two three one two three one",
]


def test_words_are_those_of_the_regular_expression() -> None:
    expected = pl.Series(TEXTS).str.to_lowercase().str.extract_all(WORD).to_list()
    assert [ngrams.spelled(text) for text in TEXTS] == expected
    rows, numbers = ngrams.words(TEXTS)
    flat = [word for words in expected for word in words]
    assert rows.tolist() == [row for row, words in enumerate(expected) for _ in words]
    for (one, a), (two, b) in itertools.combinations(zip(flat, numbers.tolist(), strict=True), 2):
        assert (one == two) == (a == b)


def test_characters_without_spaces_are_words_of_their_own_where_that_is_asked_for() -> None:
    apart = ngrams.words(["今日はabc 京x"], alone=True)[1]
    assert apart.tolist() == ngrams.words(["今 日 は abc 京 x"])[1].tolist()


@pytest.mark.parametrize("length", [1, 2, 3, 13])
def test_runs_are_equal_where_their_words_are(length: int) -> None:
    words = [ngrams.spelled(text) for text in TEXTS]
    expected = [
        tuple(text[i : i + length]) if i + length <= len(text) else () for text in words for i in range(len(text))
    ]
    found = ngrams.runs(*ngrams.words(TEXTS), length).tolist()
    assert [bool(run) for run in found] == [bool(words) for words in expected]
    for (one, a), (two, b) in itertools.combinations(zip(expected, found, strict=True), 2):
        assert (one == two) == (a == b)


def test_a_text_in_pieces_has_the_same_words_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["one two " * 40 + "three", *TEXTS]
    whole = ngrams.words(texts)
    runs = ngrams.runs(*whole, 5)
    monkeypatch.setattr(ngrams, "PIECE_CHARACTERS", 17)
    pieces = ngrams.words(texts)
    assert np.array_equal(whole[0], pieces[0]) and np.array_equal(whole[1], pieces[1])
    assert np.array_equal(runs, ngrams.runs(*pieces, 5))
