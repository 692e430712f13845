import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import Shards
from pipeline.errors import DataError
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import shard_schema
from tests.model.tiny import read_shards

PAIRS = [
    {
        "input_ids": [2, 7, 4, 3, 9, 3],
        "token_type_start": 4,
        "masked_lm_positions": [2],
        "masked_lm_ids": [8],
        "next_sentence_label": 0,
        "documents": ["wiki:1"],
    },
    {
        "input_ids": [2, 4, 3, 10, 11, 12, 3],
        "token_type_start": 3,
        "masked_lm_positions": [1, 4],
        "masked_lm_ids": [60_001, 11],
        "next_sentence_label": 1,
        "documents": ["wiki:2", "wiki:3"],
    },
]


def write(rows, path, vocab_size=65_536, sentence_task="nsp", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.Table.from_pylist(rows, shard_schema(vocab_size, Shards(sentence_task=sentence_task, **options))),
        path,
        row_group_size=1,
    )


def test_rows_come_back_in_the_order_of_the_files(tmp_path):
    write(PAIRS[1:], tmp_path / "shard-00001-of-00002.parquet")
    write(PAIRS[:1] * 2, tmp_path / "shard-00000-of-00002.parquet")
    shards = read_shards(tmp_path)
    assert len(shards) == 3
    assert shards.input_ids.dtype == np.uint16
    assert shards.lengths.tolist() == [6, 6, 7]
    for i, expected in enumerate([PAIRS[0], PAIRS[0], PAIRS[1]]):
        row = shards.row(i)
        assert row.input_ids.tolist() == expected["input_ids"]
        assert row.masked_positions.tolist() == expected["masked_lm_positions"]
        assert row.masked_ids.tolist() == expected["masked_lm_ids"]
        assert (row.token_type_start, row.label) == (expected["token_type_start"], expected["next_sentence_label"])


def test_ids_above_two_bytes_get_four(tmp_path):
    row = PAIRS[0] | {"input_ids": [2, 70_000, 3]}
    write([row], tmp_path / "shard.parquet", vocab_size=65_537)
    assert read_shards(tmp_path).row(0).input_ids.tolist() == [2, 70_000, 3]
    with pytest.raises(pa.ArrowInvalid):
        write([row], tmp_path / "small.parquet", vocab_size=65_536)


def test_without_a_sentence_task_every_token_has_type_0(tmp_path):
    row = {key: PAIRS[0][key] for key in ("input_ids", "masked_lm_positions", "masked_lm_ids", "documents")}
    write([row], tmp_path / "shard.parquet", sentence_task="none")
    shards = read_shards(tmp_path)
    assert (shards.token_type_start, shards.label) == (None, None)
    assert shards.row(0).token_type_start == 6
    assert shards.row(0).label is None


def test_a_shard_without_rows_is_readable(tmp_path):
    write([], tmp_path / "shard.parquet")
    assert len(ShardReader(tmp_path)) == 0


@pytest.mark.parametrize("content", [None, b"PAR1 but not really", "other columns", "mixed"])
def test_what_is_no_set_of_shards_is_refused_by_name(tmp_path, content):
    path = tmp_path / "shard.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "other columns":
        pq.write_table(pa.table({"text": ["a"], "documents": [["x"]]}), path)
    elif content == "mixed":
        write(PAIRS, tmp_path / "a.parquet")
        write([], path, sentence_task="none")
    with pytest.raises(DataError, match=str(tmp_path)):
        read_shards(tmp_path)
