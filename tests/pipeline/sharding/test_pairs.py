"""Pairs worked out by hand, and what must hold of all of them. `script` hands out numbers written down beforehand."""

import numpy as np
import pytest

from pipeline.errors import DataError
from pipeline.sharding.pairs import (
    NUMBERS,
    Pool,
    Spans,
    document_spans,
    heads,
    next_sentence_pairs,
    ordered_pairs,
    target_lengths,
    truncated,
)
from pipeline.streams import stable_hash, substreams, uniform


def script(*rows):
    """Draws of one visit: the numbers of its first instance, of its second, …"""
    return lambda visits, step: np.array([(*rows[step], *[0.9] * (NUMBERS - len(rows[step])))] * len(visits))


def streams(visits, seed):
    keys = np.array([stable_hash(seed, visit) for visit in range(visits)], np.uint64)
    return lambda which, step: uniform(keys[which][:, None], step * NUMBERS + np.arange(NUMBERS))


def pool_of(*documents):
    """A pool of documents given by the lengths of their sentences."""
    bounds = np.cumsum([0, *(length for lengths in documents for length in lengths)])
    names = [f"d:{i}" for i in range(len(documents))]
    keys = np.array([stable_hash(name) for name in names], np.uint64)
    firsts = np.cumsum([0, *map(len, documents)])
    return Pool(names, keys, np.arange(bounds[-1]), bounds, firsts, np.ones(len(documents)))


def random_pool(seed, documents=300, least=1, most=60):
    rng = np.random.default_rng(seed)
    return pool_of(*(rng.integers(1, 40, size=rng.integers(least, most)).tolist() for _ in range(documents)))


def rows(spans):
    """(A, B, document of B, label, sentences of the chunk) of every instance."""
    columns = (spans.a_start, spans.a_end, spans.b_start, spans.b_end, spans.other, spans.label, spans.sentences)
    return [((a, b), (c, d), *rest) for a, b, c, d, *rest in zip(*(c.tolist() for c in columns), strict=True)]


def one(pool, document, target, *numbers, make=next_sentence_pairs, **options):
    return rows(make(pool, np.array([document]), np.array([target]), script(*numbers), **options))


POOL = pool_of([4, 3, 5, 2, 6], [3, 3], [10])
FIRST, SECOND, THIRD = (0.6, 0.7, 0, 0), (0.0, 0.2, 0.6, 0.0), (0.0, 0.9, 0.1, 0.9)


def test_pairs_by_hand():
    # 4 + 3 + 5 reach the target 10: of three sentences int(.6 · 2) + 1 = 2 are A, .7 ≥ .5 takes the third as B.
    # 2 + 6 end the document: A is the 2; .2 < .5 takes document 2 (int(.6 · 2) = 1, own one left out) up to
    # 10 - 2 tokens; the 6 is put back and stands alone. As the paper says, .9 ≥ .5 makes it follow its neighbour;
    assert one(POOL, 0, 10, FIRST, SECOND, THIRD) == [
        ((0, 7), (7, 12), 0, 0, 3),
        ((12, 14), (26, 36), 2, 1, 2),
        ((12, 14), (14, 20), 0, 0, 1),
    ]
    # the original takes a random B all the same: document 1, second sentence.
    assert one(POOL, 0, 10, FIRST, SECOND, THIRD, original=True)[2] == ((14, 20), (23, 26), 1, 1, 1)


def test_a_lone_sentence_in_the_middle_is_followed_by_the_next():
    long = pool_of([12, 5, 4], [3, 3])
    assert one(long, 0, 10, (0, 0.5), (0, 0.5)) == [((0, 12), (12, 17), 0, 0, 1), ((12, 17), (17, 21), 0, 0, 1)]


def test_unused_sentences_are_used_again():
    first, second, *_ = one(POOL, 0, 10, (0.0, 0.1, 0.0, 0.0), (0.0, 0.9), (0, 0.9), (0, 0.9))
    assert (first[0], first[3]) == ((0, 4), 1)
    assert second[:2] == ((4, 7), (7, 14))


def test_a_that_reaches_the_target_still_gets_one_sentence_of_b():
    assert one(pool_of([9, 1], [4, 4]), 0, 5, (0, 0, 0, 0), (0, 0, 0, 0))[0] == ((0, 9), (10, 14), 1, 1, 1)


def test_a_random_b_runs_on_until_it_has_enough():
    spans = one(pool_of([3, 1], [4, 4, 4, 4]), 0, 10, (0, 0, 0, 0.25), (0, 0.9))
    assert spans[0][1] == (8, 16)  # wants 10 - 3 = 7: sentences 1 and 2


def test_a_document_of_one_sentence_gives_no_pair_and_is_still_drawn():
    pool = pool_of([5], [4, 4])
    assert one(pool, 0, 10, (0, 0)) == []
    assert one(pool, 1, 10, (0, 0, 0, 0), (0, 0.9))[0][4] == 2
    assert one(pool, 1, 10, (0, 0, 0, 0), (0, 0.9))[0][2] == 0
    assert one(pool, 0, 10, (0, 0.9, 0, 0), original=True) == [((0, 5), (5, 13), 1, 1, 1)]


@pytest.mark.parametrize("original", [False, True])
def test_half_of_the_pairs_are_random_and_never_of_the_same_document(original):
    """Half of all, or with `original` of those of longer chunks; four standard errors, seeds fixed."""
    pool = random_pool(3)
    documents = np.repeat(np.arange(300), 3)
    spans = next_sentence_pairs(pool, documents, np.full(900, 125), streams(900, 3), original)
    assert ((spans.label == 1) == (spans.other != spans.document)).all()
    counted = spans.label[spans.sentences > 1] if original else spans.label
    assert counted.mean() == pytest.approx(0.5, abs=4 * 0.5 / len(counted) ** 0.5)
    assert not original or (spans.label[spans.sentences == 1] == 1).all()
    others = np.bincount(spans.other[spans.label == 1], minlength=300)
    assert ((others - others.mean()) ** 2 / others.mean()).sum() == pytest.approx(299, abs=4 * (2 * 299) ** 0.5)


@pytest.mark.parametrize("original", [False, True])
def test_a_and_following_b_cover_the_document(original):
    pool = random_pool(4, 20, 50, 51)
    targets = np.random.default_rng(4).integers(2, 126, 20)
    spans = next_sentence_pairs(pool, np.arange(20), targets, streams(20, 4), original)
    for document in range(20):
        covered = []
        for span in rows(spans[spans.document == document]):
            covered += range(*span[0])
            covered += [] if span[3] else range(*span[1])
        whole = list(range(pool.bounds[50 * document], pool.bounds[50 * document + 50]))
        assert sorted(set(covered)) == whole
        assert covered == whole or not original  # else a lone sentence takes its neighbour along


def test_ordered_pairs_by_hand():
    made = one(POOL, 0, 10, (0.6, 0.7), (0.0, 0.2), make=ordered_pairs)
    assert made == [((0, 7), (7, 12), 0, 0, 3), ((14, 20), (12, 14), 0, 1, 2)]
    assert one(POOL, 2, 10, (0, 0), make=ordered_pairs) == []
    assert one(pool_of([2, 9], [1]), 0, 2, (0, 0.9), (0, 0.9), make=ordered_pairs) == [((0, 2), (2, 11), 0, 0, 1)]


def test_half_of_the_ordered_pairs_are_swapped():
    pool = random_pool(5)
    spans = ordered_pairs(pool, np.arange(300), np.full(300, 125), streams(300, 5))
    assert spans.label.mean() == pytest.approx(0.5, abs=4 * 0.5 / len(spans) ** 0.5)
    first, second = np.where(spans.label, spans.b_start, spans.a_start), np.where(spans.label, spans.b_end, spans.a_end)
    assert (np.where(spans.label, spans.a_start, spans.b_start) == second).all()  # B begins where A ends
    assert (first < second).all()


def test_a_pool_of_one_document_has_no_random_b():
    alone = pool_of([5, 5])
    with pytest.raises(DataError, match="d:0 is the only document"):
        one(alone, 0, 10, (0, 0))
    # ten draws in a row hit the document itself, and the original takes it then
    made = one(alone, 0, 10, (0, 0, 0, 0.9, 0), (0, 0, 0, 0, 0), original=True)
    assert made == [((0, 5), (5, 10), 0, 1, 2), ((5, 10), (0, 5), 0, 1, 1)]


def test_the_original_takes_the_same_document_once_in_n_to_the_tenth():
    pool = pool_of([5, 5], [7])
    assert one(pool, 0, 10, (0, 0, 0, 0, 0.9 * 2**-10), (0, 0), original=True)[0][2] == 0
    assert one(pool, 0, 10, (0, 0, 0, 0, 1.1 * 2**-10), (0, 0), original=True)[0][2] == 1


def test_target_lengths():
    numbers = np.random.default_rng(5).random((9000, 2))
    assert set(target_lengths(numbers, 125, 0.0).tolist()) == {125}
    short = target_lengths(numbers, 10, 1.0)
    assert sorted(set(short.tolist())) == list(range(2, 11))
    counts = np.bincount(short)[2:]
    assert ((counts - 1000) ** 2 / 1000).sum() == pytest.approx(8, abs=5 * 4)  # χ², 8 degrees of freedom
    drawn = target_lengths(numbers, 125, 0.1)
    assert (drawn < 125).mean() == pytest.approx(0.1 * 123 / 124, abs=4 * 0.0032)


def spans_of_lengths(pairs):
    a, b = np.array(pairs).T
    n, zero = len(pairs), np.zeros(len(pairs), np.int64)
    keys = substreams(np.arange(n, dtype=np.uint64), "test")
    return Spans(zero, zero, zero, zero + 100, a + 100, zero + 1, zero + 500, b + 500, zero, zero + 2), keys


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
    spans, keys = spans_of_lengths([(a, b)])
    cut = truncated(spans, limit, keys)
    assert (cut.a_end - cut.a_start, cut.b_end - cut.b_start) == left
    assert 100 <= cut.a_start <= cut.a_end <= 100 + a
    assert 500 <= cut.b_start <= cut.b_end <= 500 + b


def test_truncation_takes_what_the_rule_takes_token_by_token():
    pairs = np.random.default_rng(6).integers(1, 300, size=(2000, 2))
    spans, keys = spans_of_lengths(pairs)
    cut = truncated(spans, 125, keys)
    left = np.stack([cut.a_end - cut.a_start, cut.b_end - cut.b_start], axis=1).tolist()
    for (a, b), found in zip(pairs.tolist(), left, strict=True):
        while a + b > 125:
            a, b = (a - 1, b) if a > b else (a, b - 1)
        assert found == [a, b]
    gone = pairs[:, 0] - (cut.a_end - cut.a_start)
    front = cut.a_start - 100
    assert front.sum() / gone.sum() == pytest.approx(0.5, abs=4 * 0.5 / gone.sum() ** 0.5)
    once = front[gone == 1]
    assert 0 < once.mean() < 1  # a coin for every token, not one rule for all


@pytest.mark.parametrize("tosses", [1, 2, 63, 64, 65, 200])
def test_heads_are_binomial(tosses):
    """Mean and variance of 20,000 draws, five standard errors."""
    n = 20_000
    counted = heads(substreams(np.arange(n, dtype=np.uint64), "coins"), np.full(n, tosses))
    assert counted.min() >= 0
    assert counted.max() <= tosses
    variance = tosses / 4
    assert counted.mean() == pytest.approx(tosses / 2, abs=5 * (variance / n) ** 0.5)
    assert counted.var() == pytest.approx(variance, rel=5 * (2 / n) ** 0.5 + 1e-3)


def test_no_coins_show_no_heads():
    keys = np.arange(4, dtype=np.uint64)
    assert heads(keys, np.array([0, 3, 0, 70]))[[0, 2]].tolist() == [0, 0]
    assert heads(keys, np.zeros(4, np.int64)).tolist() == [0, 0, 0, 0]


def texts(pool, target, limit):
    spans = document_spans(pool, np.array([0]), np.array([target]), limit)
    return list(zip(spans.a_start.tolist(), spans.a_end.tolist(), strict=True))


def test_spans_without_pairs_by_hand():
    assert texts(POOL, 10, 10) == [(0, 7), (7, 14), (14, 20)]
    assert texts(POOL, 2, 10) == [(0, 4), (4, 7), (7, 12), (12, 14), (14, 20)]
    assert texts(pool_of([3, 25, 2]), 10, 10) == [(0, 3), (3, 13), (13, 23), (23, 30)]
