"""Pairs worked out by hand, and what must hold of all of them. `Script` hands out numbers written down beforehand."""

import numpy as np
import pytest

from pipeline.errors import DataError
from pipeline.pairs import Pool, Span, document_spans, next_sentence_pairs, target_length, truncated


class Script:
    def __init__(self, *rows):
        self.rows = rows

    def random(self, shape):
        return np.array([*self.rows, *[(0.5,) * shape[1]] * shape[0]])[: shape[0]]


def pool_of(*documents):
    """A pool of documents given by the lengths of their sentences."""
    bounds, start = [], 0
    for lengths in documents:
        bounds.append(np.cumsum([start, *lengths]).tolist())
        start = bounds[-1][-1]
    return Pool([f"d:{i}" for i in range(len(bounds))], np.arange(start), bounds, [1.0] * len(bounds))


POOL = pool_of([4, 3, 5, 2, 6], [3, 3], [10])


def test_pairs_by_hand():
    # 4 + 3 + 5 reach the target 10: of three sentences int(.6 · 2) + 1 = 2 are A, .7 ≥ .5 takes the third as B.
    # 2 + 6 end the document: A is the 2; .2 < .5 takes document 2 (int(.6 · 2) = 1, own one left out) up to
    # 10 - 2 tokens; the 6 is put back. Alone, it must take a random B though .9 ≥ .5: document 1, second sentence.
    draws = Script((0.6, 0.7, 0, 0), (0.0, 0.2, 0.6, 0.0), (0.0, 0.9, 0.1, 0.9))
    assert next_sentence_pairs(POOL, 0, 10, draws) == [
        Span(0, 0, 7, 0, 7, 12, random=0, sentences=3),
        Span(0, 12, 14, 2, 26, 36, random=1, sentences=2),
        Span(0, 14, 20, 1, 23, 26, random=1, sentences=1),
    ]


def test_unused_sentences_are_used_again():
    draws = Script((0.0, 0.1, 0.0, 0.0), (0.0, 0.9, 0.0, 0.0), (0, 0.9, 0, 0))
    first, second, *_ = next_sentence_pairs(POOL, 0, 10, draws)
    assert (first.a_start, first.a_end, first.random) == (0, 4, 1)
    assert (second.a_start, second.a_end, second.b_end, second.random) == (4, 7, 14, 0)


def test_a_that_reaches_the_target_still_gets_one_sentence_of_b():
    spans = next_sentence_pairs(pool_of([9], [4, 4]), 0, 5, Script((0, 0, 0, 0)))
    assert spans == [Span(0, 0, 9, 1, 9, 13, random=1, sentences=1)]


def test_a_random_b_runs_on_until_it_has_enough():
    spans = next_sentence_pairs(pool_of([3], [4, 4, 4, 4]), 0, 10, Script((0, 0, 0, 0.25)))
    assert (spans[0].b_start, spans[0].b_end) == (7, 15)  # wants 10 - 3 = 7: sentences 1 and 2


def test_random_b_never_comes_from_the_same_document_and_half_of_the_longer_chunks_have_one():
    rng = np.random.default_rng(3)
    pool = pool_of(*(rng.integers(1, 40, size=rng.integers(1, 60)).tolist() for _ in range(300)))
    spans = [
        span
        for document in range(300)
        for passed in range(3)
        for span in next_sentence_pairs(pool, document, 125, np.random.default_rng([document, passed]))
    ]
    assert all(span.random == (span.other != span.document) for span in spans)
    longer = np.array([span.random for span in spans if span.sentences > 1])
    assert longer.mean() == pytest.approx(0.5, abs=4 * 0.5 / len(longer) ** 0.5)  # four standard errors
    assert all(span.random for span in spans if span.sentences == 1)
    others = np.bincount([span.other for span in spans if span.random], minlength=300)
    assert ((others - others.mean()) ** 2 / others.mean()).sum() == pytest.approx(299, abs=4 * (2 * 299) ** 0.5)


def test_a_and_following_b_cover_the_document_once():
    rng = np.random.default_rng(4)
    pool = pool_of(*(rng.integers(1, 40, size=50).tolist() for _ in range(20)))
    for document in range(20):
        covered = []
        for span in next_sentence_pairs(pool, document, int(rng.integers(2, 126)), rng):
            covered += range(span.a_start, span.a_end)
            covered += [] if span.random else range(span.b_start, span.b_end)
        assert covered == list(range(pool.bounds[document][0], pool.bounds[document][-1]))


def test_a_pool_of_one_document_has_no_random_b():
    with pytest.raises(DataError, match="d:0 is the only document"):
        next_sentence_pairs(pool_of([5, 5]), 0, 10, np.random.default_rng(0))


def test_target_length():
    rng = np.random.default_rng(5)
    assert {target_length(rng, 125, 0.0) for _ in range(50)} == {125}
    short = [target_length(rng, 10, 1.0) for _ in range(9000)]
    assert sorted(set(short)) == list(range(2, 11))
    counts = np.bincount(short)[2:]
    assert ((counts - 1000) ** 2 / 1000).sum() == pytest.approx(8, abs=5 * 4)  # χ², 8 degrees of freedom
    drawn = np.array([target_length(rng, 125, 0.1) for _ in range(9000)])
    assert (drawn < 125).mean() == pytest.approx(0.1 * 123 / 124, abs=4 * 0.0032)


def spans_of_lengths(pairs):
    return np.array([(0, 100, 100 + a, 1, 500, 500 + b, 1, 2) for a, b in pairs], np.int64)


@pytest.mark.parametrize(
    ("a", "b", "limit", "left"),
    [
        (3, 4, 10, (3, 4)),  # fits
        (10, 4, 10, (6, 4)),  # all from the longer
        (4, 10, 10, (4, 6)),
        (5, 5, 7, (4, 3)),  # B on a tie, then A, then B
        (9, 5, 8, (4, 4)),  # four from A, then B and A
        (1, 200, 5, (1, 4)),
    ],
)
def test_truncation_by_hand(a, b, limit, left):
    span = truncated(spans_of_lengths([(a, b)]), limit, np.random.default_rng(0))[0]
    assert (span[2] - span[1], span[5] - span[4]) == left
    assert 100 <= span[1] <= span[2] <= 100 + a
    assert 500 <= span[4] <= span[5] <= 500 + b


def test_truncation_takes_what_the_rule_takes_token_by_token():
    rng = np.random.default_rng(6)
    pairs = rng.integers(1, 300, size=(2000, 2))
    spans = truncated(spans_of_lengths(pairs), 125, rng)
    for (a, b), span in zip(pairs.tolist(), spans.tolist(), strict=True):
        while a + b > 125:
            a, b = (a - 1, b) if a > b else (a, b - 1)
        assert (span[2] - span[1], span[5] - span[4]) == (a, b)
    cut = np.maximum(pairs[:, 0] - (spans[:, 2] - spans[:, 1]), 0)
    front = spans[:, 1] - 100
    assert front.sum() / cut.sum() == pytest.approx(0.5, abs=4 * 0.5 / cut.sum() ** 0.5)
    once = front[cut == 1]
    assert 0 < once.mean() < 1  # a coin for every token, not one rule for all


def test_spans_without_pairs_by_hand():
    assert [(s.a_start, s.a_end) for s in document_spans(POOL, 0, 10, 10)] == [(0, 7), (7, 14), (14, 20)]
    assert [(s.a_start, s.a_end) for s in document_spans(POOL, 0, 2, 10)] == [
        (0, 4),
        (4, 7),
        (7, 12),
        (12, 14),
        (14, 20),
    ]
    long = pool_of([3, 25, 2])
    assert [(s.a_start, s.a_end) for s in document_spans(long, 0, 10, 10)] == [(0, 3), (3, 13), (13, 23), (23, 30)]
