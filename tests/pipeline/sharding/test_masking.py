from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare

from pipeline.config import Shards
from pipeline.sharding.masking import chosen_tokens, chosen_words, control, draw_masks, mask_counts, masked
from pipeline.streams import stable_hash
from pipeline.tokenizer import SPECIAL_TOKENS

VOCABULARY = [*SPECIAL_TOKENS, "[unused0]", "##s", "##ing", *(f"w{i}" for i in range(992))]
CONTROL = control(VOCABULARY, cls_id=2, sep_id=3, mask_id=4)
S, ING = 6, 7
"""ids of ##s and ##ing"""


def keys(n, seed=0):
    return np.array([stable_hash(seed, i) for i in range(n)], np.uint64)


def split(values, lengths):
    return [values[a:b] for a, b in pairwise(np.cumsum([0, *lengths]).tolist())]


def test_what_a_vocabulary_tells():
    assert CONTROL.words == ((6, 1000),)
    assert CONTROL.continued == ((6, 8),)
    assert CONTROL.vocab_size == 1000


def test_counts_by_hand():
    # .15 · 10 = 1.5 → 2, · 30 = 4.5 → 4, · 50 = 7.5 → 8, · 70 = 10.5 → 10: halves go to the even number
    lengths = np.array([3, 5, 6, 10, 30, 50, 70, 128, 512])
    assert mask_counts(lengths, 0.15, 80, 3).tolist() == [0, 1, 1, 2, 4, 8, 10, 19, 77]
    assert mask_counts(np.array([128, 200, 512]), 0.15, 20, 3).tolist() == [19, 20, 20]


def test_counts_are_those_of_the_formula():
    lengths = np.arange(10, 4097)
    for rate in (0.15, 0.3, 0.4):
        expected = [min(80, max(1, round(n * rate))) for n in lengths.tolist()]
        assert mask_counts(lengths, rate, 80, 3).tolist() == expected


def test_no_more_masks_than_candidates():
    assert mask_counts(np.array([5, 6]), 0.9, 20, 3).tolist() == [2, 3]


def test_exactly_so_many_tokens_are_chosen_and_no_control_token():
    lengths = np.random.default_rng(1).integers(5, 60, 500)
    candidate = np.random.default_rng(2).random(lengths.sum()) < 0.9
    counts = np.minimum([c.sum() for c in split(candidate, lengths)], np.random.default_rng(3).integers(1, 12, 500))
    chosen = chosen_tokens(lengths, candidate, counts, keys(500))
    assert [c.sum() for c in split(chosen, lengths)] == counts.tolist()
    assert not (chosen & ~candidate).any()
    # what an instance gives does not depend on those beside it
    alone = chosen_tokens(lengths[7:8], split(candidate, lengths)[7], counts[7:8], keys(500)[7:8])
    assert alone.tolist() == split(chosen, lengths)[7].tolist()


def ids_of(rows, length, seed):
    """Instances of random words: [CLS] … [SEP] … [SEP]."""
    ids = np.random.default_rng(seed).integers(8, 1000, (rows, length)).astype(np.uint16)
    ids[:, 0], ids[:, [60, -1]] = 2, 3
    return ids


@pytest.mark.parametrize("shares", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_other_shares(shares):
    ids = ids_of(50, 128, 4)
    config = Shards(mask_random_keep=shares)
    found = draw_masks(ids.ravel(), np.full(50, 128), keys(50), config, 20, CONTROL)
    now = found.input_ids.reshape(50, 128)[np.repeat(np.arange(50), found.counts), found.positions]
    assert (now == 4).all() == (shares[0] == 1)
    assert (now == found.ids).all() == (shares[2] == 1)


def test_distribution():
    """χ² of 190,000 masks (keys fixed); each test is wrong once in a thousand sets of keys."""
    rows, length = 10_000, 128
    ids = ids_of(rows, length, 12345)
    found = draw_masks(ids.ravel(), np.full(rows, length), keys(rows, 12345), Shards(), 20, CONTROL)
    assert set(found.counts.tolist()) == {19}
    rows_of = np.repeat(np.arange(rows), 19)
    now = found.input_ids.reshape(rows, length)[rows_of, found.positions]
    total = len(now)

    # a random word is the original or [MASK] itself once in the vocabulary's size
    chance = 1 / 1000
    share = np.array([0.8 + 0.1 * chance, 0.1 + 0.1 * chance, 0.1 * (1 - 2 * chance)])
    outcome = [(now == 4).sum(), (now == found.ids).sum()]
    assert chisquare([*outcome, total - sum(outcome)], share * total).pvalue > 1e-3
    random = now[(now != 4) & (now != found.ids)]
    assert chisquare(np.delete(np.bincount(random, minlength=1000), 4)).pvalue > 1e-3  # special tokens too
    positions = np.bincount(found.positions, minlength=length)
    assert positions[[0, 60, 127]].tolist() == [0, 0, 0]
    assert chisquare(np.delete(positions, [0, 60, 127])).pvalue > 1e-3

    assert np.diff(found.positions.reshape(rows, 19).astype(int), axis=1).min() >= 1
    untouched = found.input_ids.reshape(rows, length).copy()
    untouched[rows_of, found.positions] = found.ids
    assert np.array_equal(untouched, ids)


def test_random_words_without_special_tokens():
    ids = ids_of(3000, 128, 5)
    config = Shards(mask_random_keep=(0, 1, 0), random_words="no_specials")
    found = draw_masks(ids.ravel(), np.full(3000, 128), keys(3000), config, 20, CONTROL)
    now = found.input_ids.reshape(3000, 128)[np.repeat(np.arange(3000), found.counts), found.positions]
    assert sorted(set(now.tolist())) == list(range(6, 1000))
    assert chisquare(np.bincount(now)[6:]).pvalue > 1e-3


# ── whole words ──────────────────────────────────────────────────────────────────────────────────────────────────────


def words_chosen(ids, counts, n=200, **options):
    """The sets of positions chosen with n different keys, of one instance."""
    ids = np.array(ids)
    candidate = (ids != 2) & (ids != 3)
    begins = (ids != S) & (ids != ING)
    lengths = np.full(n, len(ids))
    chosen = chosen_words(
        lengths, np.tile(candidate, n), np.tile(begins, n), np.full(n, counts), keys(n, "words"), **options
    )
    return [tuple(np.flatnonzero(row).tolist()) for row in chosen.reshape(n, -1)]


def test_all_pieces_of_a_word_or_none():
    # [CLS] walk ##ing dog ##s cat [SEP]
    found = words_chosen([2, 10, ING, 11, S, 12, 3], 2)
    assert set(found) == {(1, 2), (3, 4), (5,)}  # cat, then no word of two fits: it stays alone
    assert set(words_chosen([2, 10, ING, 11, S, 12, 3], 3)) == {(1, 2, 5), (3, 4, 5)}


def test_what_is_too_long_is_passed_over_and_later_words_may_fit():
    assert set(words_chosen([2, 10, ING, S, 11, 12, 3], 2)) == {(4, 5)}


def test_pieces_without_a_beginning_as_in_the_original():
    # the front of A was cut off: its ##s is a word of its own; that of B goes with A's last word, across [SEP]
    assert set(words_chosen([2, S, 10, 3, ING, 11, 3], 1)) == {(1,), (5,)}
    assert set(words_chosen([2, S, 10, 3, ING, 3], 2)) == {(1,), (2, 4)}


def test_words_are_chosen_evenly():
    ids = [2, *range(10, 30), 3]
    found = words_chosen(ids, 3, n=5000)
    assert {len(chosen) for chosen in found} == {3}
    counts = np.bincount(np.array(found).ravel(), minlength=22)
    assert chisquare(counts[1:21]).pvalue > 1e-3


def test_runs_of_words():
    """One run of up to three words in a budget of three: lengths 1, 2, 3 in proportion 6 : 3 : 2 (1/n); what is left is
    filled with more runs."""
    ids = [2, *range(10, 110), 3]
    first = words_chosen(ids, 3, n=6000, max_ngram=3)
    assert {len(chosen) for chosen in first} == {3}
    rows = np.diff(np.array(first), axis=1) == 1
    whole = rows.all(axis=1).mean()  # a run of three, or of two and one that happen to touch
    assert whole == pytest.approx(2 / 11 + 2 * (3 / 11) * (1 / 100), abs=0.02)


def test_every_instance_has_a_mask_though_no_word_fits():
    ids = np.array([2, 10, ING, S, 3])
    config = Shards(whole_words=True)
    found = draw_masks(np.tile(ids, 50), np.full(50, 5), keys(50), config, 20, CONTROL)
    assert set(found.counts.tolist()) == {1}


def test_whole_words_in_bulk_are_whole_and_within_the_count():
    rng = np.random.default_rng(8)
    lengths = rng.integers(10, 129, 2000)
    ids = rng.integers(S, 20, lengths.sum())  # many pieces
    ends = np.cumsum(lengths)
    ids[ends - lengths], ids[ends - 1] = 2, 3
    for most in (1, 3):
        config = Shards(whole_words=True, max_ngram=most)
        found = draw_masks(ids, lengths, keys(2000), config, 20, CONTROL)
        limits = mask_counts(lengths, 0.15, 20, 2)
        assert (found.counts <= limits).all()
        assert found.counts.sum() > 0.95 * limits.sum()
        chosen = np.zeros(len(ids), bool)
        chosen[np.repeat(ends - lengths, found.counts) + found.positions] = True
        continues = (ids == S) | (ids == ING)
        inside = continues & (np.roll(ids, 1) != 2)
        assert (chosen[inside] == np.roll(chosen, 1)[inside]).mean() > 0.999  # but for instances where no word fits


def test_masking_what_was_chosen_by_hand():
    ids = np.array([2, 10, 11, 12, 3, 2, 20, 21, 3], np.uint16)
    chosen = np.array([0, 1, 0, 1, 0, 0, 0, 1, 0], bool)
    found = masked(ids, np.array([5, 4]), chosen, keys(2), Shards(mask_random_keep=(1, 0, 0)), CONTROL)
    assert found.positions.tolist() == [1, 3, 2]
    assert found.ids.tolist() == [10, 12, 21]
    assert found.counts.tolist() == [2, 1]
    assert found.input_ids.tolist() == [2, 4, 11, 4, 3, 2, 20, 4, 3]
