"""Rows by number out of several files and row groups."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import Shards as ShardsSection
from pipeline.errors import DataError
from pipeline.sharding import shard_reader
from pipeline.sharding.shard_reader import ShardReader, slice_of
from pipeline.sharding.shard_schema import shard_schema


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
    monkeypatch.setattr(shard_reader, "KEPT_ROWS", 21)
    read = []
    reader = ShardReader(folder, lambda rows, name: read.append((len(rows), name)))
    assert read == []
    for number in (0, 6, 7, 14, 21, 0):
        reader.take(np.array([number]))
    name = f"{folder.name}/shard-0.parquet, row group"
    assert read == [(7, f"{name} 0"), (7, f"{name} 1"), (7, f"{name} 2"), (7, f"{name} 3"), (7, f"{name} 0")]
    assert sum(map(len, reader._kept.values())) == 21
    monkeypatch.setattr(shard_reader, "KEPT_ROWS", 1)
    assert len(reader.take(np.array([99, 0, 50]))) == 3
    assert len(reader._kept) == 1


def test_lengths_are_kept_when_rows_are_not(folder, monkeypatch):
    monkeypatch.setattr(shard_reader, "KEPT_ROWS", 1)
    read = []
    reader = ShardReader(folder, lambda rows, name: read.append(name))
    for _ in range(3):
        wanted = np.array([99, 0, 50, 51, 0])
        assert reader.lengths(wanted).tolist() == [len(row(number)["input_ids"]) for number in wanted]
    assert len(read) == 3


def test_a_slice_is_the_rows_it_names(folder):
    rows = ShardReader(folder).take(np.arange(20, 40))
    for first, last in ((0, 20), (3, 9), (19, 20), (5, 5)):
        found, expected = slice_of(rows, first, last), rows.take(np.arange(first, last))
        assert all(np.array_equal(getattr(found, name), getattr(expected, name)) for name in vars(rows))


# ── files that are not what they should be ───────────────────────────────────────────────────────────────────────────


def chunk_of(path: Path, group: int, column: str) -> tuple[int, int]:
    """(first byte, bytes) of a column of a row group."""
    found = pq.read_metadata(path).row_group(group)
    for number in range(found.num_columns):
        chunk = found.column(number)
        if chunk.path_in_schema.split(".")[0] == column:
            return chunk.dictionary_page_offset or chunk.data_page_offset, chunk.total_compressed_size
    raise AssertionError(column)


def test_a_broken_row_group_is_named_and_what_lies_beside_it_is_read(folder):
    path = folder / "shard-0.parquet"
    start, size = chunk_of(path, 2, "input_ids")
    data = bytearray(path.read_bytes())
    data[start : start + size] = b"\xff" * size
    path.write_bytes(data)
    reader = ShardReader(folder)
    with pytest.raises(DataError, match=r"shard-0\.parquet, row group 2, can't be read") as error:
        reader.take(np.array([15]))
    assert "bert verify" in error.value.todo
    with pytest.raises(DataError, match="row group 2"):
        reader.lengths(np.array([0, 15]))
    assert len(reader.take(np.array([0, 13, 21, 99]))) == 4
    assert reader.column("next_sentence_label").tolist() == [n % 2 for n in range(100)]  # no other column is read
    assert [len(part) for part in reader.values("token_type_start")] == reader.sizes.tolist()


def test_a_flipped_byte_gives_a_message_or_rows_but_no_other_error(folder):
    """400 flips, seed 4. Parquet has no checksum of its own here; `bert verify` finds every flip."""
    path, random = folder / "shard-2.parquet", np.random.default_rng(4)
    whole = path.read_bytes()
    refused = 0
    for place in random.integers(0, len(whole), 400):
        data = bytearray(whole)
        data[place] ^= 1 << int(random.integers(8))
        path.write_bytes(data)
        try:
            ShardReader(folder).take(np.arange(100))
        except DataError as error:
            refused += 1
            assert "shard-2" in error.what
    assert 50 < refused < 400


def with_column(folder: Path, name: str, values: pa.Array) -> None:
    table = pq.read_table(folder / "shard-0.parquet")
    at = table.column_names.index(name)
    pq.write_table(table.set_column(at, name, values), folder / "shard-0.parquet", row_group_size=7)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("input_ids", [[2, None, 3]] + [[2, 3]] * 29, "row group 0: column input_ids has 1 empty values"),
        ("input_ids", [[2, 3]] * 14 + [None] + [[2, 3]] * 15, "row group 2: column input_ids has 1 empty values"),
        ("input_ids", [[0.5]] * 30, "row group 0: column input_ids has type list<.*double>"),
        ("input_ids", [7] * 30, "row group 0: column input_ids has type int64"),
        ("token_type_start", [None] + [1] * 29, "row group 0: column token_type_start has 1 empty values"),
        ("token_type_start", [[1]] * 30, "row group 0: column token_type_start has type list"),
        ("next_sentence_label", ["0"] * 30, "row group 0: column next_sentence_label has type"),
        ("masked_lm_ids", [[1]] * 30, r"masked_lm_ids differ in length \(row group 0\)"),
    ],
)  # fmt: skip
def test_a_column_of_another_kind_is_named(folder, name, values, message):
    with_column(folder, name, pa.array(values))
    with pytest.raises(DataError, match=message) as error:
        ShardReader(folder).take(np.arange(30))
    assert "shard-0.parquet" in error.value.what


def test_a_file_that_was_exchanged_or_removed_on_the_way_is_named(folder):
    reader = ShardReader(folder)
    (folder / "shard-1.parquet").write_bytes((folder / "shard-2.parquet").read_bytes())
    with pytest.raises(DataError, match=r"shard-1\.parquet, row group 0, has 7 rows; there were 1 before"):
        reader.take(np.array([30]))
    (folder / "shard-2.parquet").write_bytes((folder / "shard-0.parquet").read_bytes())
    with pytest.raises(DataError, match=r"shard-2\.parquet, row group 9"):
        reader.take(np.array([99]))
    (folder / "shard-1.parquet").unlink()
    with pytest.raises(DataError, match=r"shard-1\.parquet, row group 0"):
        reader.take(np.array([30]))


def test_a_file_that_breaks_on_the_way_is_named(folder):
    reader = ShardReader(folder)
    path = folder / "shard-2.parquet"
    path.write_bytes(path.read_bytes()[:200])
    reader.take(np.array([5]))
    with pytest.raises(DataError, match="shard-2"):
        reader.take(np.array([50]))
    with pytest.raises(DataError, match="shard-2"):
        ShardReader(folder)
