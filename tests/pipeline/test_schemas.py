"""Tables of text: what is written comes back, in bounded pieces, and broken files are named."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import schemas
from pipeline.errors import DataError
from pipeline.schemas import (
    DOCUMENTS_SCHEMA,
    TEXT_SCHEMA,
    count_rows,
    describe_lengths,
    iter_batches,
    iter_rows,
    write_dropped,
    write_parts,
)


def row(number: int, text: str = "Text.") -> dict[str, str]:
    return {"doc_id": f"s:{number}", "source": "s", "text": text}


def test_rows_come_back_in_order_with_null_for_what_was_left_out(tmp_path: Path) -> None:
    assert write_parts((row(i) for i in range(10)), TEXT_SCHEMA, tmp_path) == 10
    read = list(iter_rows(tmp_path))
    assert [r["doc_id"] for r in read] == [f"s:{i}" for i in range(10)]
    assert read[0] == {**dict.fromkeys(TEXT_SCHEMA.names), **row(0)}
    assert count_rows(tmp_path) == 10


def test_the_documents_schema_is_the_contract() -> None:
    contract = "doc_id source title url revision_id language licence date text split sentence_ends repeat"
    assert DOCUMENTS_SCHEMA.names == contract.split()
    assert DOCUMENTS_SCHEMA.field("sentence_ends").type.value_type == pa.int32()


def test_row_groups_and_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "GROUP_ROWS", 4)
    monkeypatch.setattr(schemas, "PART_BYTES", 600)
    write_parts((row(i, "x" * 100) for i in range(18)), TEXT_SCHEMA, tmp_path)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert len(files) > 1
    assert files[:2] == ["part-00000.parquet", "part-00001.parquet"]
    groups = [pq.read_metadata(tmp_path / name) for name in files]
    assert max(meta.row_group(g).num_rows for meta in groups for g in range(meta.num_row_groups)) <= 4
    assert [r["doc_id"] for r in iter_rows(tmp_path)] == [f"s:{i}" for i in range(18)]


def test_record_batches_can_be_written_too(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pylist([row(1), row(2)], schema=TEXT_SCHEMA)
    assert write_parts([batch, batch], TEXT_SCHEMA, tmp_path) == 4


def test_an_empty_table_has_a_file_and_a_schema(tmp_path: Path) -> None:
    assert write_parts([], DOCUMENTS_SCHEMA, tmp_path) == 0
    assert pq.read_schema(tmp_path / "part-00000.parquet") == DOCUMENTS_SCHEMA
    assert list(iter_rows(tmp_path)) == []


def test_a_missing_value_or_an_unknown_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"s:1.*no value in column text"):
        write_parts([{"doc_id": "s:1", "source": "s"}], TEXT_SCHEMA, tmp_path)
    with pytest.raises(DataError, match="txt"):
        write_parts([{**row(1), "txt": "x"}], TEXT_SCHEMA, tmp_path)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no part"):
        list(iter_batches(tmp_path))
    write_parts([row(1)], TEXT_SCHEMA, tmp_path)
    with pytest.raises(DataError, match="has no column split"):
        list(iter_batches(tmp_path, ["split"]))
    path = tmp_path / "part-00000.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"part-00000\.parquet can't be read"):
        list(iter_batches(tmp_path))
    with pytest.raises(DataError, match=r"part-00000\.parquet can't be read"):
        count_rows(tmp_path)


def test_lengths_by_hand() -> None:
    described = describe_lengths([100, 200, 300, 400])
    assert described["row_count"] == 4
    assert described["characters_millions"] == 0.001
    assert described["tokens_millions"] == pytest.approx(1000 / 4.45 / 1e6, abs=1e-6)
    assert described["length_percentiles"] == {"p5": 115, "p25": 175, "p50": 250, "p75": 325, "p95": 385, "max": 400}
    assert described["length_histogram"] == [[100, 133, 1], [133, 178, 0], [178, 237, 1], [237, 316, 1], [316, 422, 1]]
    assert describe_lengths([])["length_percentiles"] == {}
    assert describe_lengths([])["length_histogram"] == []


def test_a_drop_table_must_add_up(tmp_path: Path) -> None:
    assert write_dropped(tmp_path, 5, 2, {"b": 2, "a": 1})["dropped"] == {"a": 1, "b": 2}
    assert (tmp_path / "dropped.json").read_text().startswith('{\n "read": 5')
    with pytest.raises(DataError, match="do not add up"):
        write_dropped(tmp_path, 5, 2, {"a": 1})
