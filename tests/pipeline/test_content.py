"""Content digests: of Parquet files by rows and logical schema, of other files by bytes; versions and keys."""

import datetime
import hashlib
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import content
from pipeline.content import content_digest, file_sha256, key_of, version_of
from pipeline.errors import DataError

ROWS = 1000
TABLE = pa.table(
    {
        "text": pa.array([None if n % 7 == 0 else f"text {n} é" * (n % 3) for n in range(ROWS)]),
        "ids": pa.array([None if n % 11 == 0 else list(range(n % 5)) for n in range(ROWS)], pa.list_(pa.uint16())),
        "names": pa.array([[f"d{n}", None] for n in range(ROWS)], pa.list_(pa.string())),
        "label": pa.array([None if n % 13 == 0 else n % 2 for n in range(ROWS)], pa.int8()),
        "share": pa.array([n / 7 for n in range(ROWS)], pa.float32()),
        "yes": pa.array([n % 2 == 0 for n in range(ROWS)]),
        "day": pa.array([datetime.date(2026, 1, 1 + n % 28) for n in range(ROWS)]),
        "pair": pa.array([None if n % 5 == 0 else {"a": n, "b": str(n)} for n in range(ROWS)]),
    }
)


def written(table: pa.Table, path: Path, **options: object) -> str:
    pq.write_table(table, path, **options)
    return content_digest(path)


@pytest.fixture
def digest(tmp_path: Path) -> str:
    return written(TABLE, tmp_path / "table.parquet")


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd"},
        {"compression": "none", "use_dictionary": False},
        {"row_group_size": 17},
        {"data_page_version": "2.0", "write_statistics": False},
        {"store_schema": False, "version": "2.6"},
    ],
)
def test_how_it_was_written_leaves_no_trace(tmp_path: Path, digest: str, options: dict[str, object]) -> None:
    assert written(TABLE, tmp_path / "other.parquet", **options) == digest


def test_another_writer_gives_the_same_digest(tmp_path: Path, digest: str) -> None:
    frame = pl.from_arrow(TABLE)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(tmp_path / "polars.parquet")
    assert content_digest(tmp_path / "polars.parquet") == digest


def test_large_strings_and_footer_metadata_are_not_content(tmp_path: Path, digest: str) -> None:
    index = TABLE.schema.get_field_index("text")
    large = TABLE.set_column(index, "text", TABLE["text"].cast(pa.large_string()))
    assert written(large.replace_schema_metadata({"writer": "me"}), tmp_path / "large.parquet") == digest


def test_a_sliced_table_digests_like_its_copy(tmp_path: Path) -> None:
    part = TABLE.slice(123, 456)
    assert written(part, tmp_path / "slice.parquet") == written(
        pa.table(part.to_pydict(), TABLE.schema), tmp_path / "copy.parquet"
    )


def test_batch_boundaries_leave_no_trace(tmp_path: Path, digest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "BATCH_ROWS", 7)
    assert written(TABLE, tmp_path / "table.parquet") == digest


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("text", ["", *[None] * (ROWS - 1)]),
        ("label", [*[0] * ROWS]),
        ("yes", [n % 2 == 1 for n in range(ROWS)]),
        ("ids", [[] for _ in range(ROWS)]),
        ("pair", [{"a": 1, "b": None}] * ROWS),
    ],
)
def test_a_changed_value_changes_the_digest(tmp_path: Path, digest: str, name: str, values: list[object]) -> None:
    field = TABLE.schema.field(name)
    changed = TABLE.set_column(TABLE.schema.get_field_index(name), field, pa.array(values, field.type))
    assert written(changed, tmp_path / "changed.parquet") != digest


def test_what_looks_alike_differs(tmp_path: Path) -> None:
    """Null and empty, moved list boundaries, column order and names, types: each makes another digest."""
    tables = [
        pa.table({"a": ["", "x"]}),
        pa.table({"a": [None, "x"]}),
        pa.table({"a": ["x", ""]}),
        pa.table({"b": ["", "x"]}),
        pa.table({"a": [b"", b"x"]}),
        pa.table({"a": [[1, 2], [3]]}),
        pa.table({"a": [[1], [2, 3]]}),
        pa.table({"a": [[1, 2], [3]]}, schema=pa.schema({"a": pa.list_(pa.int32())})),
        pa.table({"a": [1], "b": [2]}),
        pa.table({"b": [2], "a": [1]}),
        pa.table({"a": [1], "b": [2]}, schema=pa.schema({"a": pa.int64(), "b": pa.int8()})),
        pa.table({"a": pa.array([], pa.int8())}),
        pa.table({"a": pa.array([], pa.int16())}),
    ]
    digests = [written(table, tmp_path / "t.parquet") for table in tables]
    assert len(set(digests)) == len(tables)


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(DataError, match=r"broken\.parquet"):
        content_digest(path)


def test_other_files_are_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"[PAD]\n")
    assert content_digest(path) == hashlib.sha256(b"[PAD]\n").hexdigest()


def test_versions_depend_on_names_and_digests_not_on_order() -> None:
    assert version_of({"a": "1", "b": "2"}) == version_of({"b": "2", "a": "1"})
    assert len({version_of({"a": "1"}), version_of({"a": "2"}), version_of({"b": "1"}), version_of({})}) == 4


def test_a_key_depends_on_every_part() -> None:
    parts = [("s", "1", {"x": 1}, {"i": "v"}), ("t", "1", {"x": 1}, {"i": "v"}), ("s", "2", {"x": 1}, {"i": "v"})]
    parts += [("s", "1", {"x": 2}, {"i": "v"}), ("s", "1", {"x": 1}, {"i": "w"}), ("s", "1", {"x": 1}, {"j": "v"})]
    assert len({key_of(*p) for p in parts}) == len(parts)
    assert key_of("s", "1", {"x": 1, "y": 2}, {}) == key_of("s", "1", {"y": 2, "x": 1}, {})


def test_a_remembered_hash_is_forgotten_when_the_file_changes(tmp_path: Path) -> None:
    path, cache = tmp_path / "dump.xml", tmp_path / "cache"
    path.write_text("one", encoding="utf-8")
    first = file_sha256(path, cache)
    (entry,) = cache.iterdir()
    assert file_sha256(path, cache) == first == hashlib.sha256(b"one").hexdigest()
    path.write_text("two", encoding="utf-8")
    assert file_sha256(path, cache) == hashlib.sha256(b"two").hexdigest()
    entry.write_text("nonsense", encoding="utf-8")
    assert file_sha256(path, cache) == hashlib.sha256(b"two").hexdigest()
