import subprocess
import sys

import numpy as np
import pytest

from pipeline.streams import stable_hash, stream


def test_a_stream_depends_on_each_of_its_names():
    names = [(1, 0, "a", "pairs"), (2, 0, "a", "pairs"), (1, 1, "a", "pairs"), (1, 0, "b", "pairs"), (1, 0, "a", "x")]
    drawn = [stream(*name).random() for name in names]
    assert len(set(drawn)) == len(names)
    assert [stream(*name).random() for name in names] == drawn


def test_names_do_not_run_into_each_other():
    assert stable_hash("ab", "c") != stable_hash("a", "bc")
    assert stable_hash("1") != stable_hash(1)


def test_streams_and_hashes_are_equal_in_another_process():
    code = "from pipeline.streams import *; print(stable_hash('pool', 'ä'), stream(7, 1, 'ä', 'masks').random())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert other == [str(stable_hash("pool", "ä")), str(stream(7, 1, "ä", "masks").random())]


def test_hashes_spread_evenly():
    # seeds are the document names; χ² of 10,000 hashes over 16 pools has mean 15, standard deviation 5.5
    counts = np.bincount([stable_hash("pool", f"enwiki:{i}") % 16 for i in range(10_000)], minlength=16)
    assert ((counts - 625) ** 2 / 625).sum() == pytest.approx(15, abs=5 * 5.5)
