"""The order of samples, and batches by hand."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import chi2_contingency

from model.feeding.batches import batch_of, check, held_out_rows, training_rows
from model.feeding.order import mix, permuted, rows_at
from model.feeding.targets import drawn_masks, next_words
from pipeline.config import ShardsConfig
from pipeline.errors import DataError
from pipeline.sharding.instances import build
from pipeline.sharding.masking import control
from pipeline.sharding.pairs import Pool
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import decoded, shard_schema
from pipeline.streams import stable_hash
from tests.model.tiny import VOCABULARY, read_shards, rows_of, write_rows


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097])
def test_every_epoch_is_a_permutation(rows: int) -> None:
    for key in (0, 1, 2**62):
        assert sorted(permuted(np.arange(rows), rows, key).tolist()) == list(range(rows))


def test_epochs_and_seeds_have_their_own_order() -> None:
    orders = {tuple(rows_at(epoch * 50, 50, np.array([50]), seed)) for epoch in range(20) for seed in range(20)}
    assert len(orders) == 400
    assert tuple(range(50)) not in orders


def test_every_row_once_per_epoch_whatever_the_batch() -> None:
    whole = rows_at(0, 300, np.array([100]), seed=9).tolist()
    for size in (1, 7, 32, 150):
        parts = [
            rows_at(start, min(size, 300 - start), np.array([100]), seed=9).tolist() for start in range(0, 300, size)
        ]
        assert [row for part in parts for row in part] == whole
    for epoch in range(3):
        assert sorted(whole[epoch * 100 : epoch * 100 + 100]) == list(range(100))


GROUPS = np.array([7, 40, 1, 40, 12])


def test_groups_of_rows_are_read_one_after_the_other_each_epoch_in_another_order() -> None:
    whole = rows_at(0, 500, GROUPS, seed=4)
    ends = np.cumsum(GROUPS)
    seen = set()
    for epoch in whole.reshape(5, 100):
        assert sorted(epoch.tolist()) == list(range(100))
        group = np.searchsorted(ends, epoch, side="right")
        changes = np.flatnonzero(np.diff(group)) + 1
        assert len(changes) == len(GROUPS) - 1  # every group stands together
        seen.add(tuple(group[[0, *changes]].tolist()))
        assert all(not np.array_equal(np.sort(epoch[group == g]), epoch[group == g]) for g in (1, 3))
    assert len(seen) > 2
    for size in (1, 32, 150):
        parts = [rows_at(start, min(size, 500 - start), GROUPS, seed=4) for start in range(0, 500, size)]
        assert np.concatenate(parts).tolist() == whole.tolist()


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
    far = rows_at(7 * rows - 2, 4, np.array([rows]), seed=1)
    assert far.tolist()[:2] == rows_at(7 * rows - 2, 2, np.array([rows]), seed=1).tolist()
    assert ((far >= 0) & (far < rows)).all()


def test_the_order_is_frozen() -> None:
    """Another order would change every resumed run: raise the version of the pretrained stage with this digest."""
    order = rows_at(0, 10_000, np.array([3333]), seed=12345).astype("<i8").tobytes()
    assert hashlib.sha256(order).hexdigest() == "44a5f510bc73f029f0413f7f59751567d494cc663ec35bf0329ef7e843412f21"
    assert rows_at(0, 8, np.array([3333]), seed=12345).tolist() == [1925, 1966, 3028, 441, 105, 2661, 2266, 365]


@pytest.fixture
def by_hand(tmp_path: Path) -> ShardReader:
    rows = [
        {"input_ids": [2, 4, 6, 3, 7, 3], "token_type_start": 4, "masked_lm_positions": [1], "masked_lm_ids": [9],
         "next_sentence_label": 0, "documents": ["a"]},
        {"input_ids": [2, 5, 3, 4, 4, 8, 3], "token_type_start": 3, "masked_lm_positions": [3, 4],
         "masked_lm_ids": [6, 7], "next_sentence_label": 1, "documents": ["a", "b"]},
        {"input_ids": [2, 4, 3], "token_type_start": 2, "masked_lm_positions": [1], "masked_lm_ids": [5],
         "next_sentence_label": 0, "documents": ["b"]},
    ]  # fmt: skip
    return ShardReader(write_rows(tmp_path / "train", rows, len(VOCABULARY)))


def test_a_batch_by_hand(by_hand: ShardReader) -> None:
    batch = batch_of(by_hand.take(np.array([1, 0])), 16)
    assert batch.input_ids.tolist() == [[2, 5, 3, 4, 4, 8, 3, 0], [2, 4, 6, 3, 7, 3, 0, 0]]
    assert batch.token_type_ids.tolist() == [[0, 0, 0, 1, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1, 0, 0]]
    assert batch.attention_mask.tolist() == [[True] * 7 + [False], [True] * 6 + [False] * 2]
    assert batch.positions.tolist() == [[0, 3, 4], [0, 1, 0]]
    assert batch.positions.flatten()[batch.masked_places].tolist() == [3, 4, 1]
    assert batch.masked_places.tolist() == [1, 2, 4]
    assert batch.masked_ids.tolist() == [6, 7, 9]
    assert batch.labels is not None and batch.labels.tolist() == [1, 0]
    assert (batch.tokens, batch.input_ids.numel()) == (13, 16)


@pytest.mark.parametrize(
    ("row", "sequence_length", "padded"), [(2, 16, 4), (0, 16, 8), (0, 6, 6), (1, 7, 7), (0, 100, 25)]
)
def test_padded_lengths_are_quarters(by_hand: ShardReader, row: int, sequence_length: int, padded: int) -> None:
    assert batch_of(by_hand.take(np.array([row])), sequence_length).input_ids.shape == (1, padded)


def test_training_batches_follow_the_order(by_hand: ShardReader) -> None:
    order = rows_at(0, 12, np.array([3]), seed=5)
    firsts = [training_rows(by_hand, step, 2, seed=5).masked_ids[0] for step in range(6)]
    assert firsts == [{0: 9, 1: 6, 2: 5}[row] for row in order[::2].tolist()]


# ── what rows without stored masks are given to predict ──────────────────────────────────────────────────────────────

WORDS_CONTROL = control(VOCABULARY, cls_id=2, sep_id=3, mask_id=4)
MASKS = ShardsConfig(sequence_length=16, max_predictions_per_seq=3, masking="dynamic", sentence_task="none")


def unmasked(tmp_path: Path, count: int) -> ShardReader:
    rows = rows_of(count, 16, 1, "none")
    for row in rows:
        for position, original in zip(row.pop("masked_lm_positions"), row.pop("masked_lm_ids"), strict=True):
            row["input_ids"][position] = original
        row["input_ids"][-1] = 3
    schema = shard_schema(len(VOCABULARY), MASKS)
    (tmp_path / "train").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "train" / "shard.parquet", row_group_size=500)
    return ShardReader(tmp_path / "train")


def test_left_to_right_every_token_is_predicted_from_the_one_before(tmp_path: Path) -> None:
    reader = unmasked(tmp_path, 5)
    rows = held_out_rows(reader, np.arange(5), next_words)
    for i in range(5):
        row = rows.row(i)
        assert row.masked_positions.tolist() == list(range(len(row.input_ids) - 1))
        assert row.masked_ids.tolist() == row.input_ids[1:].tolist()


def test_masks_that_are_drawn_are_a_function_of_seed_epoch_and_row(tmp_path: Path) -> None:
    reader = unmasked(tmp_path, 600)
    draw = drawn_masks(MASKS, WORDS_CONTROL, seed=3)
    numbers = np.arange(100, 140)
    found = draw(reader.take(numbers), numbers, np.zeros(40, np.int64))
    later = draw(reader.take(numbers), numbers, np.ones(40, np.int64))
    assert found.input_ids.tolist() != later.input_ids.tolist()
    alone = draw(reader.take(numbers[7:8]), numbers[7:8], np.zeros(1, np.int64)).row(0)
    assert alone.input_ids.tolist() == found.row(7).input_ids.tolist()
    assert alone.masked_positions.tolist() == found.row(7).masked_positions.tolist()
    again = held_out_rows(reader, np.arange(20), draw), held_out_rows(reader, np.arange(20), draw)
    assert again[0].input_ids.tolist() == again[1].input_ids.tolist()
    epochs = [training_rows(reader, step, 600, 5, draw) for step in range(2)]
    masked = [len(rows.masked_ids) for rows in epochs]
    assert masked[0] == masked[1] == sum(min(3, max(1, round(0.15 * n))) for n in reader.take(np.arange(600)).lengths)


def test_drawn_and_stored_masks_have_one_distribution(tmp_path: Path) -> None:
    """The same 3,000 texts, stored with masks by the builder and masked when loaded: counts per text are equal, and
    positions and outcomes ([MASK], kept, other) pass χ² of two samples. Seeds are fixed; each is wrong once in a
    thousand."""
    reader = unmasked(tmp_path, 3000)
    texts = reader.take(np.arange(3000))
    loaded = drawn_masks(MASKS, WORDS_CONTROL, seed=3)(texts, np.arange(3000), np.zeros(3000, np.int64))
    pool = Pool(
        [f"d{i}" for i in range(3000)],
        np.array([stable_hash(i) for i in range(3000)], np.uint64),
        np.concatenate([texts.row(i).input_ids[1:-1] for i in range(3000)]),
        np.concatenate([[0], np.cumsum(texts.lengths - 2)]),
        np.arange(3001),
        np.ones(3000),
    )
    asked = MASKS.model_copy(update={"masking": "static", "short_seq_prob": 0.0})
    table = pa.concat_tables(build(pool, asked, WORDS_CONTROL, 1, [0])).combine_chunks()
    stored = decoded(table, tmp_path)
    assert np.sort(np.diff(stored.masked_offsets)).tolist() == np.sort(np.diff(loaded.masked_offsets)).tolist()
    positions = [np.bincount(rows.masked_positions, minlength=16)[1:15] for rows in (stored, loaded)]
    assert chi2_contingency(np.array(positions)).pvalue > 1e-3
    outcomes = []
    for rows in (stored, loaded):
        now = rows.input_ids[np.repeat(rows.input_offsets[:-1], np.diff(rows.masked_offsets)) + rows.masked_positions]
        outcomes.append([(now == 4).sum(), (now == rows.masked_ids).sum(), (now != 4).sum()])
    assert chi2_contingency(np.array(outcomes)).pvalue > 1e-3


def test_without_sentence_task(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "train", rows_of(3, 16, 1, "none"), len(VOCABULARY), "none")
    shards = read_shards(folder)
    batch = batch_of(shards, 16)
    assert batch.labels is None and torch.count_nonzero(batch.token_type_ids) == 0
    check(shards, "train", len(VOCABULARY), 16, "none")
    with pytest.raises(DataError, match="train has no next_sentence_label"):
        check(shards, "train", len(VOCABULARY), 16, "nsp")


def test_shards_that_do_not_fit_are_refused(by_hand: ShardReader, tmp_path: Path) -> None:
    rows = by_hand.take(np.arange(3))
    check(rows, "train", 10, 7, "nsp")
    with pytest.raises(DataError, match="train: row 1 has 7 tokens, more than 6"):
        check(rows, "train", 10, 6, "nsp")
    with pytest.raises(DataError, match="holds id 9, the vocabulary has 9 tokens"):
        check(rows, "train", 9, 7, "nsp")
    unmasked = rows_of(2, 16, 1)
    unmasked[1] |= {"masked_lm_positions": [], "masked_lm_ids": []}
    with pytest.raises(DataError, match="train: row 1 has no masked position"):
        check(read_shards(write_rows(tmp_path / "unmasked", unmasked, 20)), "train", 20, 16, "nsp")
    for changed, message in (
        ({"masked_lm_positions": [7], "masked_lm_ids": [5]}, "row 1 has a masked position outside its 7 tokens"),
        ({"input_ids": [], "masked_lm_positions": [], "masked_lm_ids": []}, "row 1 has no tokens"),
        ({"token_type_start": 8}, "row 1 of 7 tokens has token_type_start 8, label 1"),
        ({"token_type_start": -1}, "token_type_start -1"),
        ({"next_sentence_label": 2}, "label 2"),
    ):
        row = {"input_ids": [2, 5, 3, 4, 4, 8, 3], "token_type_start": 3, "masked_lm_positions": [3],
               "masked_lm_ids": [6], "next_sentence_label": 1, "documents": ["a"]}  # fmt: skip
        found = read_shards(write_rows(tmp_path / "changed", [row, row | changed], 20))
        with pytest.raises(DataError, match=message):
            check(found, "train", 20, 16, "nsp")
    negative = read_shards(write_rows(tmp_path / "large", [row | {"input_ids": [2, -5, 3, 4, 4, 8, 3]}], 70_000))
    with pytest.raises(DataError, match="holds id -5"):
        check(negative, "train", 70_000, 16, "nsp")
