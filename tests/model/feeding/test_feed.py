"""Which rows each rank and micro-batch gets, in the order of samples; memory."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model.feeding.batches import training_rows
from model.feeding.feed import Feed, Place
from model.feeding.order import BLOCK, mix, part, permuted, rows_at, rows_of
from model.feeding.targets import drawn_masks
from pipeline.config import ShardsConfig
from pipeline.errors import TrainingError
from pipeline.sharding.masking import control
from pipeline.sharding.shard_reader import ShardReader, joined
from pipeline.sharding.shard_schema import Shards, shard_schema
from tests.conftest import ROOT
from tests.model.tiny import VOCABULARY

# ── parts of a batch ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_parts_of_ranks_and_micro_batches_are_the_batch_in_its_order() -> None:
    for batch, ranks, micros in product(range(1, 14), range(1, 6), range(1, 5)):
        for step in (0, 3):
            parts = [part(step, batch, rank, ranks, micro, micros) for rank in range(ranks) for micro in range(micros)]
            assert [sample for each in parts for sample in each] == list(range(step * batch, (step + 1) * batch))
            sizes = {len(each) for each in parts}
            assert max(sizes) - min(sizes) <= 1
            assert batch % (ranks * micros) or len(sizes) == 1
            of_ranks = [part(step, batch, rank, ranks) for rank in range(ranks)]  # micro-batches don't move their edges
            assert [parts[rank * micros].start for rank in range(ranks)] == [each.start for each in of_ranks]


def test_parts_by_hand() -> None:
    assert [part(2, 10, rank, 4) for rank in range(4)] == [range(20, 22), range(22, 25), range(25, 27), range(27, 30)]
    assert [part(0, 8, 1, 2, micro, 2) for micro in range(2)] == [range(4, 6), range(6, 8)]
    for rank, ranks, micro, micros in ((2, 2, 0, 1), (-1, 2, 0, 1), (0, 1, 3, 3)):
        with pytest.raises(ValueError, match=f"rank {rank} of {ranks}"):
            part(0, 8, rank, ranks, micro, micros)


# ── the order, far away ──────────────────────────────────────────────────────────────────────────────────────────────


def test_blocks_of_a_large_group_are_its_permutation() -> None:
    size = 3 * BLOCK + 17
    key = mix(8, 0)
    assert rows_at(0, size, np.array([size]), seed=8).tolist() == permuted(np.arange(size), size, key).tolist()


def test_far_positions_equal_those_of_a_walk_from_the_start() -> None:
    groups = np.array([5000, 1, 9000, 300, 4097])
    rows = int(groups.sum())
    walk = np.concatenate([rows_at(first, 997, groups, seed=2) for first in range(0, 4 * rows, 997)])
    for epoch in range(4):
        assert np.array_equal(np.sort(walk[epoch * rows : (epoch + 1) * rows]), np.arange(rows))
    far = np.random.default_rng(0).integers(0, 4 * rows, 500)
    assert rows_of(far, groups, seed=2).tolist() == walk[far].tolist()
    assert [int(rows_at(int(sample), 1, groups, seed=2)[0]) for sample in far[:50]] == walk[far[:50]].tolist()


# ── rows of steps ────────────────────────────────────────────────────────────────────────────────────────────────────

LENGTH = 24
MASKS = ShardsConfig(sequence_length=LENGTH, max_predictions_per_seq=4, masking="dynamic")
DRAW = drawn_masks(MASKS, control(VOCABULARY, cls_id=2, sep_id=3, mask_id=4), seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """900 rows of 5 to 24 tokens in three files, 130 to a row group; ids tell a row from any other."""
    folder = tmp_path_factory.mktemp("train")
    random = np.random.default_rng(1)
    schema = shard_schema(len(VOCABULARY), MASKS)
    for file in range(3):
        rows = []
        for _ in range(300):
            length = int(random.integers(5, LENGTH + 1))
            ids = [2, *random.integers(5, len(VOCABULARY), length - 4).tolist(), 3, 7, 3]
            rows.append(
                {"input_ids": ids, "token_type_start": length - 2, "next_sentence_label": 1, "documents": ["d"]}
            )
        pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"shard-{file}.parquet", row_group_size=130)
    return folder


def same(found: Shards, expected: Shards) -> bool:
    return all(np.array_equal(getattr(found, name), getattr(expected, name)) for name in vars(expected))


@pytest.mark.parametrize(("ranks", "micros"), [(1, 1), (2, 1), (5, 1), (1, 3), (3, 2), (7, 2)])
def test_all_ranks_together_get_the_same_batch(folder: Path, ranks: int, micros: int) -> None:
    """Also masks, which are drawn rank by rank. Steps 37 and 38 lie on the edge of the first epoch."""
    alone = Feed(ShardReader(folder), 24, 5, LENGTH, DRAW)
    feeds = [Feed(ShardReader(folder), 24, 5, LENGTH, DRAW, Place(rank, ranks, micros)) for rank in range(ranks)]
    for step in (0, 1, 37, 38, 2, 100_000):
        parts = [feed.rows(step, micro) for feed in feeds for micro in range(micros)]
        assert same(joined(parts), alone.rows(step))
        assert same(alone.rows(step), training_rows(ShardReader(folder), step, 24, 5, DRAW))


def test_ranks_pad_a_micro_batch_alike(folder: Path) -> None:
    feeds = [Feed(ShardReader(folder), 24, 5, LENGTH, None, Place(rank, 3, 2)) for rank in range(3)]
    for step, micro in product(range(30), range(2)):
        (shape,) = {feed.padded_length(step, micro) for feed in feeds}
        longest = max(int(feed.rows(step, micro).lengths.max()) for feed in feeds)
        assert shape == -(-longest // 6) * 6


def test_a_batch_that_cannot_be_split_is_refused(folder: Path) -> None:
    with pytest.raises(TrainingError, match="a batch of 24 rows can't be split into 25 parts"):
        Feed(ShardReader(folder), 24, 5, LENGTH, place=Place(0, 25, 1))


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────

WALK = """
import json, sys
from pathlib import Path
from model.feeding.batches import batch_of
from model.feeding.feed import Feed
from pipeline.sharding.shard_reader import ShardReader
reader = ShardReader(Path(sys.argv[1]))
feed = Feed(reader, 256, 1, 128)
tokens = sum(batch_of(feed.rows(step), 128).tokens for step in range(len(reader) // 256))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([tokens, int(peak.split()[1])]))
"""


def test_memory_does_not_grow_with_the_shards(tmp_path: Path) -> None:
    """Eight times the rows, read to the end: the peak stays within 8 MB; the rows alone would add 89 MB.

    With one thread in Arrow: how the heaps of more fill, differs by 15 MB from run to run.
    """
    random = np.random.default_rng(1)
    rows = 16_384
    lengths = random.integers(64, 129, rows)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    ids = pa.ListArray.from_arrays(offsets, pa.array(random.integers(0, 30_000, int(lengths.sum())).astype(np.uint16)))
    ones = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32)), pa.array(np.ones(rows, np.uint16)))
    documents = pa.array([["d"]] * rows, pa.list_(pa.string()))
    columns = [ids, pa.array(np.full(rows, 9, np.int32)), ones, ones, pa.array(np.ones(rows, np.int8)), documents]
    table = pa.Table.from_arrays(
        columns, schema=shard_schema(30_522, ShardsConfig(sequence_length=128, max_predictions_per_seq=20))
    )
    peaks = []
    for files in (4, 32):
        folder = tmp_path / f"{files}"
        folder.mkdir()
        pq.write_table(table, folder / "shard-00.parquet", compression="zstd")
        for number in range(1, files):
            os.link(folder / "shard-00.parquet", folder / f"shard-{number:02}.parquet")
        ran = subprocess.run(
            [sys.executable, "-c", WALK, str(folder)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        tokens, peak = json.loads(ran.stdout)
        assert tokens > 0.99 * files * int(lengths.sum())
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 8 * 1024
