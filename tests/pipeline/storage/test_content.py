"""Content digests: of Parquet files by rows and logical schema, of other files by bytes; versions and keys."""

import datetime
import hashlib
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import DataError
from pipeline.formats import parquet_rows
from pipeline.storage import content
from pipeline.storage.content import content_digest, file_sha256, key_of, version_of

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
    monkeypatch.setattr(parquet_rows, "BATCH_ROWS", 7)
    assert written(TABLE, tmp_path / "table.parquet") == digest
    monkeypatch.setattr(parquet_rows, "BATCH_BYTES", 1)
    assert written(TABLE.slice(0, 50), tmp_path / "by_one.parquet") == written(
        TABLE.slice(0, 50), tmp_path / "by_one.parquet", row_group_size=3
    )


def test_memory_is_bounded_whatever_the_row_groups(tmp_path: Path) -> None:
    """64 MB of text in one row group that hardly compresses are digested in a few batches' memory."""
    text = [os.urandom(1000).hex() for _ in range(32_000)]
    pq.write_table(pa.table({"text": text}), tmp_path / "t.parquet", use_dictionary=False, compression="none")
    code = (
        "import sys, pathlib, pyarrow; from pipeline.storage.content import content_digest;"
        "content_digest(pathlib.Path(sys.argv[1])); print(pyarrow.default_memory_pool().max_memory())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "t.parquet")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 48 << 20


KINDS = {
    "dictionary": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "string_view": pa.array(["a", "b", None, "a"], pa.string_view()),
    "large_string": pa.array(["a", "b", None, "a"], pa.large_string()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_text_are_one_logical_type(tmp_path: Path, kind: str) -> None:
    plain = written(pa.table({"a": ["a", "b", None, "a"]}), tmp_path / "plain.parquet")
    assert written(pa.table({"a": KINDS[kind]}), tmp_path / "other.parquet") == plain


@pytest.mark.parametrize("type_", [pa.large_list(pa.int32()), pa.list_(pa.int32(), 2)])
def test_kinds_of_lists_are_one_logical_type(tmp_path: Path, type_: pa.DataType) -> None:
    rows = [[1, 2], [None, 5], [3, 4]]
    plain = written(pa.table({"a": pa.array(rows, pa.list_(pa.int32()))}), tmp_path / "plain.parquet")
    assert written(pa.table({"a": pa.array(rows, type_)}), tmp_path / "other.parquet") == plain


CELLS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5))
TABLES = st.lists(
    st.tuples(CELLS, st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=3))), max_size=12
)


def as_table(rows: list[tuple[object, object]]) -> pa.Table:
    text, numbers = [row[0] for row in rows], [row[1] for row in rows]
    return pa.table({"text": pa.array(text, pa.string()), "numbers": pa.array(numbers, pa.list_(pa.int8()))})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(left=TABLES, right=TABLES, group=st.integers(1, 5), dictionary=st.booleans())
def test_digests_are_equal_exactly_where_rows_are(
    tmp_path: Path, left: list[Any], right: list[Any], group: int, dictionary: bool
) -> None:
    first = written(as_table(left), tmp_path / "left.parquet")
    second = written(as_table(right), tmp_path / "right.parquet", row_group_size=group, use_dictionary=dictionary)
    assert (first == second) == (left == right)
    assert written(as_table(left), tmp_path / "a.parquet", row_group_size=group, use_dictionary=dictionary) == first


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        pa.array([Decimal("1.50"), None, Decimal("2.25")], pa.decimal128(10, 2)),
        pa.array([b"ab", None, b"cd"], pa.binary(2)),
        pa.array([datetime.datetime(2026, 1, 1), None, datetime.datetime(2026, 1, 2)], pa.timestamp("us", "UTC")),
        pa.array([None, None, None]),
        pa.array([[[1], []], None, [None]], pa.list_(pa.list_(pa.float64()))),
    ],
    ids=lambda array: str(array.type),
)
def test_other_types(tmp_path: Path, array: pa.Array) -> None:
    whole = written(pa.table({"a": array}), tmp_path / "a.parquet")
    assert written(pa.table({"a": array}), tmp_path / "b.parquet", row_group_size=1, compression="gzip") == whole
    assert written(pa.table({"a": array.slice(1)}), tmp_path / "c.parquet") != whole
    swapped = array.take(pa.array([1, 0, 2]))
    if array.null_count < 3:
        assert written(pa.table({"a": swapped}), tmp_path / "d.parquet") != whole


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


def test_a_remembered_hash_is_forgotten_when_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "SETTLED_SECONDS", -1.0)
    path, cache = tmp_path / "dump.xml", tmp_path / "cache"
    path.write_text("one", encoding="utf-8")
    first = file_sha256(path, cache)
    (entry,) = cache.iterdir()
    entry.write_bytes(entry.read_bytes().replace(first.encode(), b"f" * 64))
    assert file_sha256(path, cache) == "f" * 64, "it was not read again"
    path.write_text("three", encoding="utf-8")
    assert file_sha256(path, cache) == hashlib.sha256(b"three").hexdigest()
    entry.write_text("nonsense", encoding="utf-8")
    assert file_sha256(path, cache) == hashlib.sha256(b"three").hexdigest()


def test_the_hash_of_a_file_that_was_just_written_is_not_remembered(tmp_path: Path) -> None:
    """Its next change may fall into the same tick of the clock of the file system."""
    path, cache = tmp_path / "dump.xml", tmp_path / "cache"
    for text in ("one", "two", "six"):
        path.write_text(text, encoding="utf-8")
        assert file_sha256(path, cache) == hashlib.sha256(text.encode()).hexdigest()
    assert not cache.exists()


def test_a_reference_describes_a_file_like_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path)
    described = content.reference(path, "books/t.parquet")
    assert described["path"] == "books/t.parquet"
    assert described["size_bytes"] == len(path.read_bytes())
    assert described["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert described["digest"] == content_digest(path)


def test_the_rows_of_a_file_are_digested_once_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "SETTLED_SECONDS", -1.0)
    path, cache = tmp_path / "t.parquet", tmp_path / "cache"
    pq.write_table(TABLE, path)
    first = content.reference(path, "t.parquet", cache)
    monkeypatch.setattr(content, "parquet_digest", lambda path: pytest.fail("digested again"))
    assert content.reference(path, "t.parquet", cache) == first
