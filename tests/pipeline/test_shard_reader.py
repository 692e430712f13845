"""Rows by number out of several files and row groups."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import shard_reader
from pipeline.config import Shards as ShardsSection
from pipeline.errors import DataError
from pipeline.shard_reader import ShardReader
from pipeline.shard_schema import shard_schema


def row(number):
    """A row that tells its number in every column."""
    return {
        "input_ids": [2, *[number] * (number % 4 + 1), 3, 9, 3],
        "token_type_start": number % 4 + 3,
        "masked_lm_positions": list(range(1, number % 3 + 2)),
        "masked_lm_ids": [number] * (number % 3 + 1),
        "next_sentence_label": number % 2,
        "documents": [f"d:{number}"],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rows 0 … 99 in three files, 7 to a row group."""
    for file, (first, last) in enumerate([(0, 30), (30, 31), (31, 100)]):
        table = pa.Table.from_pylist([row(n) for n in range(first, last)], shard_schema(1000, ShardsSection()))
        pq.write_table(table, tmp_path / f"shard-{file}.parquet", row_group_size=7)
    return tmp_path


def test_rows_come_in_the_order_that_was_asked_for(folder):
    reader = ShardReader(folder)
    assert len(reader) == 100
    assert reader.sizes.tolist() == [7, 7, 7, 7, 2, 1, *[7] * 9, 6]
    for wanted in ([5], [99, 0], [3, 3, 3], [30, 29, 31, 0, 99, 30], list(range(100))[::-1]):
        rows = reader.take(np.array(wanted))
        assert len(rows) == len(wanted)
        for i, number in enumerate(wanted):
            found, expected = rows.row(i), row(number)
            assert found.input_ids.tolist() == expected["input_ids"]
            assert found.masked_positions.tolist() == expected["masked_lm_positions"]
            assert found.masked_ids.tolist() == expected["masked_lm_ids"]
            assert (found.token_type_start, found.label) == (expected["token_type_start"], number % 2)


def test_a_column_is_read_alone(folder):
    reader = ShardReader(folder)
    assert reader.column("next_sentence_label").tolist() == [n % 2 for n in range(100)]
    assert reader.column("masked_lm_ids").tolist() == [n for n in range(100) for _ in range(n % 3 + 1)]


def test_few_row_groups_stay_in_memory_and_each_is_checked_when_it_is_read(folder, monkeypatch):
    read = []
    reader = ShardReader(folder, lambda rows, name: read.append((len(rows), name)))
    assert read == []
    for number in (0, 6, 7, 14, 21, 0):
        reader.take(np.array([number]))
    name = f"{folder.name}/shard-0.parquet, row group"
    assert read == [(7, f"{name} 0"), (7, f"{name} 1"), (7, f"{name} 2"), (7, f"{name} 3"), (7, f"{name} 0")]
    assert len(reader._kept) == shard_reader.KEPT_GROUPS


def test_a_file_that_breaks_on_the_way_is_named(folder):
    reader = ShardReader(folder)
    path = folder / "shard-2.parquet"
    path.write_bytes(path.read_bytes()[:200])
    reader.take(np.array([5]))
    with pytest.raises(DataError, match="shard-2"):
        reader.take(np.array([50]))
    with pytest.raises(DataError, match="shard-2"):
        ShardReader(folder)
