"""The order of samples, and batches by hand."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from model.batches import batch_of, check, training_batch
from model.order import mix, permuted, rows_at
from pipeline.errors import DataError
from pipeline.shard_schema import Shards, read_shards
from tests.model.tiny import VOCABULARY, rows_of, write_rows


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097])
def test_every_epoch_is_a_permutation(rows: int) -> None:
    for key in (0, 1, 2**62):
        assert sorted(permuted(np.arange(rows), rows, key).tolist()) == list(range(rows))


def test_epochs_and_seeds_have_their_own_order() -> None:
    orders = {tuple(rows_at(epoch * 50, 50, 50, seed)) for epoch in range(20) for seed in range(20)}
    assert len(orders) == 400
    assert tuple(range(50)) not in orders


def test_every_row_once_per_epoch_whatever_the_batch() -> None:
    whole = rows_at(0, 300, 100, seed=9).tolist()
    for size in (1, 7, 32, 150):
        parts = [rows_at(start, min(size, 300 - start), 100, seed=9).tolist() for start in range(0, 300, size)]
        assert [row for part in parts for row in part] == whole
    for epoch in range(3):
        assert sorted(whole[epoch * 100 : epoch * 100 + 100]) == list(range(100))


def test_the_order_looks_random() -> None:
    """Where rows land is uniform: chi-square over 20 × 20 cells of (position, image), 361 degrees of freedom."""
    cells = np.zeros((20, 20))
    for epoch in range(50):
        image = permuted(np.arange(1000), 1000, mix(3, epoch))
        np.add.at(cells, (np.arange(1000) // 50, image // 50), 1)
    statistic = ((cells - 125) ** 2 / 125).sum()
    assert 361 - 5 * np.sqrt(2 * 361) < statistic < 361 + 5 * np.sqrt(2 * 361)
    # neighbours are not kept together
    assert np.mean(np.abs(np.diff(image)) == 1) < 0.02


def test_a_seek_far_into_a_large_corpus_needs_no_memory() -> None:
    rows = 3_000_000_000
    far = rows_at(7 * rows - 2, 4, rows, seed=1)
    assert far.tolist()[:2] == rows_at(7 * rows - 2, 2, rows, seed=1).tolist()
    assert ((far >= 0) & (far < rows)).all()


def test_the_order_is_frozen() -> None:
    """Another order would change every resumed run: raise the version of the pretrained stage with this digest."""
    order = rows_at(0, 10_000, 3333, seed=12345).astype("<i8").tobytes()
    assert hashlib.sha256(order).hexdigest() == "44a5f510bc73f029f0413f7f59751567d494cc663ec35bf0329ef7e843412f21"
    assert rows_at(0, 8, 3333, seed=12345).tolist() == [1925, 1966, 3028, 441, 105, 2661, 2266, 365]


@pytest.fixture
def by_hand(tmp_path: Path) -> Shards:
    rows = [
        {"input_ids": [2, 4, 6, 3, 7, 3], "token_type_start": 4, "masked_lm_positions": [1], "masked_lm_ids": [9],
         "next_sentence_label": 0, "documents": ["a"]},
        {"input_ids": [2, 5, 3, 4, 4, 8, 3], "token_type_start": 3, "masked_lm_positions": [3, 4],
         "masked_lm_ids": [6, 7], "next_sentence_label": 1, "documents": ["a", "b"]},
        {"input_ids": [2, 4, 3], "token_type_start": 2, "masked_lm_positions": [1], "masked_lm_ids": [5],
         "next_sentence_label": 0, "documents": ["b"]},
    ]  # fmt: skip
    return read_shards(write_rows(tmp_path / "train", rows, len(VOCABULARY)))


def test_a_batch_by_hand(by_hand: Shards) -> None:
    batch = batch_of(by_hand, np.array([1, 0]), 16)
    assert batch.input_ids.tolist() == [[2, 5, 3, 4, 4, 8, 3, 0], [2, 4, 6, 3, 7, 3, 0, 0]]
    assert batch.token_type_ids.tolist() == [[0, 0, 0, 1, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1, 0, 0]]
    assert batch.attention_mask.tolist() == [[True] * 7 + [False], [True] * 6 + [False] * 2]
    assert batch.positions.tolist() == [[0, 3, 4], [0, 1, 0]]
    assert batch.positions.flatten()[batch.masked_places].tolist() == [3, 4, 1]
    assert batch.masked_places.tolist() == [1, 2, 4]
    assert batch.masked_ids.tolist() == [6, 7, 9]
    assert batch.labels is not None and batch.labels.tolist() == [1, 0]
    assert (batch.tokens, batch.padding_share) == (13, 3 / 16)


@pytest.mark.parametrize(
    ("row", "sequence_length", "padded"), [(2, 16, 4), (0, 16, 8), (0, 6, 6), (1, 7, 7), (0, 100, 25)]
)
def test_padded_lengths_are_quarters(by_hand: Shards, row: int, sequence_length: int, padded: int) -> None:
    assert batch_of(by_hand, np.array([row]), sequence_length).input_ids.shape == (1, padded)


def test_training_batches_follow_the_order(by_hand: Shards) -> None:
    order = rows_at(0, 12, 3, seed=5)
    firsts = [training_batch(by_hand, step, 2, 16, seed=5).masked_ids[0].item() for step in range(6)]
    assert firsts == [{0: 9, 1: 6, 2: 5}[row] for row in order[::2].tolist()]


def test_without_sentence_task(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "train", rows_of(3, 16, 1, "none"), len(VOCABULARY), "none")
    shards = read_shards(folder)
    batch = batch_of(shards, np.arange(3), 16)
    assert batch.labels is None and torch.count_nonzero(batch.token_type_ids) == 0
    check(shards, "train", len(VOCABULARY), 16, "none")
    with pytest.raises(DataError, match="no next_sentence_label"):
        check(shards, "train", len(VOCABULARY), 16, "nsp")


def test_shards_that_do_not_fit_are_refused(by_hand: Shards, tmp_path: Path) -> None:
    check(by_hand, "train", 10, 7, "nsp")
    with pytest.raises(DataError, match="row 1 of the train shards has 7 tokens, more than 6"):
        check(by_hand, "train", 10, 6, "nsp")
    with pytest.raises(DataError, match="hold id 9, the vocabulary has 9 tokens"):
        check(by_hand, "train", 9, 7, "nsp")
    unmasked = rows_of(2, 16, 1)
    unmasked[1] |= {"masked_lm_positions": [], "masked_lm_ids": []}
    with pytest.raises(DataError, match="row 1 of the train shards has no masked position"):
        check(read_shards(write_rows(tmp_path / "unmasked", unmasked, 20)), "train", 20, 16, "nsp")
    with pytest.raises(DataError, match="hold no rows"):
        check(read_shards(write_rows(tmp_path / "empty", [], 20)), "train", 20, 16, "nsp")
