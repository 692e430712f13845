"""The TF-IDF baseline on texts whose class a word gives away."""

import numpy as np

from model.reporting import tfidf

TRAIN = [f"{noun} number {n} is {kind}" for n in range(10) for noun, kind in (("river", "wet"), ("rock", "dry"))]
LABELS = [0, 1] * 10


def test_words_decide_whatever_their_case_and_order() -> None:
    dev, test = tfidf.predict(TRAIN, LABELS, ["WET is 77", "dry, so dry!"], ["rock of old", "a river"])
    assert dev.tolist() == [0, 1]
    assert test.tolist() == [1, 0]


def test_the_same_twice_and_nothing_for_nothing() -> None:
    tests = [f"{a} {b}" for a in ("river", "rock", "is", "3") for b in ("wet", "dry", "nine")]
    first, none = tfidf.predict(TRAIN, LABELS, tests, [])
    second, _ = tfidf.predict(TRAIN, LABELS, tests, [])
    assert np.array_equal(first, second)
    assert none.shape == (0,)


def test_one_letter_words_count() -> None:
    (found,) = tfidf.predict(["a b", "c d"] * 3, [0, 1] * 3, ["a", "d"])
    assert found.tolist() == [0, 1]
