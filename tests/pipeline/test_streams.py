import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import chisquare

from pipeline.streams import below, drawn, mixed, stable_hash, substreams, uniform

KEYS = np.array([stable_hash(f"enwiki:{i}") for i in range(2000)], np.uint64)


def test_the_hash_is_splitmix64():
    """The first numbers of SplitMix64 from seed 1234567 (Vigna's splitmix64.c)."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    states = np.uint64(1234567) + golden * np.arange(5, dtype=np.uint64)
    assert mixed(states).tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821
    ]  # fmt: skip


def test_names_do_not_run_into_each_other():
    assert stable_hash("ab", "c") != stable_hash("a", "bc")
    assert stable_hash("1") != stable_hash(1)


def test_a_number_depends_on_key_name_and_counter_alone():
    whole = drawn(KEYS[:, None], np.arange(50))
    assert len(np.unique(whole)) == whole.size
    assert drawn(KEYS[7:8], 31)[0] == whole[7, 31]
    others = substreams(KEYS, "masks", 1), substreams(KEYS, "masks", 2), substreams(KEYS, "pairs", 1), KEYS
    assert len(np.unique(np.concatenate(others))) == 4 * len(KEYS)


def test_numbers_are_equal_in_another_process():
    code = "from pipeline.streams import *; print(*drawn(np.array([stable_hash('ä')], np.uint64), np.arange(3)))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert other == [str(n) for n in drawn(np.array([stable_hash("ä")], np.uint64), np.arange(3))]


def test_hashes_spread_evenly():
    # seeds are the document names; χ² of 10,000 hashes over 16 pools has mean 15, standard deviation 5.5
    counts = np.bincount([stable_hash("pool", f"enwiki:{i}") % 16 for i in range(10_000)], minlength=16)
    assert ((counts - 625) ** 2 / 625).sum() == pytest.approx(15, abs=5 * 5.5)


@pytest.mark.parametrize("keys", [KEYS, np.arange(2000, dtype=np.uint64)], ids=["hashed", "1, 2, 3"])
def test_numbers_are_uniform_along_streams_and_across_them(keys):
    """χ² of 200,000 numbers; each is wrong once in a thousand keys, and these are fixed."""
    numbers = uniform(keys[:, None], np.arange(100))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    cells = (numbers * 64).astype(int)
    assert chisquare(np.bincount(cells.ravel(), minlength=64)).pvalue > 1e-3
    for pairs in (cells[:, :-1] * 64 + cells[:, 1:], cells[:-1] * 64 + cells[1:]):  # neighbours in both directions
        assert chisquare(np.bincount(pairs.ravel(), minlength=64 * 64)).pvalue > 1e-3
    bits = drawn(keys[:, None], np.arange(100))[..., None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)
    share = bits.reshape(-1, 64).mean(axis=0)
    assert np.abs(share - 0.5).max() < 5 * 0.5 / np.sqrt(bits.size / 64)


def test_below_reaches_every_number_and_no_other():
    numbers = below(7, uniform(KEYS, 0))
    assert sorted(set(numbers.tolist())) == list(range(7))
    assert chisquare(np.bincount(numbers)).pvalue > 1e-3
    assert below(np.array([1, 3]), np.array([0.999, 0.999])).tolist() == [0, 2]
