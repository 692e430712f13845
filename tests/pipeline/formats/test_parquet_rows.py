"""Parquet files of others: dictionaries of large texts, files that say more than their bytes could, nested columns."""

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import DataError
from pipeline.formats import parquet_rows
from pipeline.storage.content import parquet_digest

LONG = 2_000_000


@pytest.fixture(scope="module")
def texts() -> tuple[str, str]:
    """Two texts of two million letters that nothing compresses."""
    drawn = random.Random(1)
    return tuple("".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=LONG)) for _ in range(2))  # type: ignore[return-value]


def read(path: Path, *columns: str) -> Iterator[tuple[int, dict[str, Any]]]:
    return parquet_rows.rows(path, columns or ("text",), "text", lambda _: None)


def coded(values: list[str], indices: list[int | None]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(values))


@pytest.mark.parametrize("as_dictionary", [True, False])
def test_a_few_large_texts_that_stand_in_many_rows(tmp_path: Path, texts: tuple[str, str], as_dictionary: bool) -> None:
    """1,103 references to two texts are 2.2 GB, more than 32 bits count: every row is the right one."""
    first, second = texts
    order: list[int | None] = [0] * 1100 + [1, None, 1]
    path = tmp_path / "many.parquet"
    column = coded([first, second], order) if as_dictionary else None
    if column is None:  # an ordinary column of strings, which lies in the file as a dictionary too
        with pq.ParquetWriter(path, pa.schema([("text", pa.string())]), dictionary_pagesize_limit=8 << 20) as writer:
            for start in range(0, len(order), 100):
                rows = [None if each is None else texts[each] for each in order[start : start + 100]]
                writer.write_table(pa.table({"text": rows}), row_group_size=100)
    else:
        pq.write_table(pa.table({"text": column}), path)
    assert path.stat().st_size < 60 * LONG
    found = [row["text"] for _, row in read(path)]
    assert len(found) == len(order)
    assert all(text == (None if each is None else texts[each]) for text, each in zip(found, order, strict=True))


def test_the_digest_of_large_texts_in_many_rows_is_that_of_the_rows(tmp_path: Path, texts: tuple[str, str]) -> None:
    first, second = texts
    path, plain = tmp_path / "dictionary.parquet", tmp_path / "plain.parquet"
    pq.write_table(pa.table({"text": coded([first, second], [0] * 1100 + [1])}), path)
    with pq.ParquetWriter(plain, pa.schema([("text", pa.string())]), use_dictionary=False) as writer:
        for _ in range(110):
            writer.write_table(pa.table({"text": [first] * 10}))
        writer.write_table(pa.table({"text": [second]}))
    assert parquet_digest(path) == parquet_digest(plain)


def test_dictionaries_inside_lists_and_structs_have_the_digest_of_their_values(tmp_path: Path) -> None:
    words = coded(["a", "b"], [0, 1, 1, None, 0])
    plain = pa.array(["a", "b", "b", None, "a"])
    digests = set()
    for number, values in enumerate((words, plain)):
        table = pa.table(
            {
                "list": pa.ListArray.from_arrays(pa.array([0, 2, 2, 5], pa.int32()), values),
                "struct": pa.StructArray.from_arrays([values.slice(0, 3)], ["inside"]),
            }
        )
        for use_dictionary in (True, False):
            path = tmp_path / f"{number}-{use_dictionary}.parquet"
            pq.write_table(table, path, use_dictionary=use_dictionary)
            digests.add(parquet_digest(path))
    assert len(digests) == 1


def test_fields_of_structs_nulls_and_bytes_that_are_no_utf8_come_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "mixed.parquet"
    broken = pa.array([b"a", b"\xff", None, b"a"]).view(pa.string())
    meta = pa.StructArray.from_arrays([coded(["en", "de"], [1, 0, None, 1])], ["language"])
    pq.write_table(pa.table({"text": broken, "meta": meta}), path)
    assert list(read(path, "text", "meta.language")) == [
        (1, {"text": "a", "meta.language": "de"}),
        (2, {"text": b"\xff", "meta.language": "en"}),
        (3, {"text": None, "meta.language": None}),
        (4, {"text": "a", "meta.language": "de"}),
    ]


# ── bombs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def references(path: Path) -> None:
    """94 KB that refer 2,500 times to a text of 2 MB."""
    pq.write_table(pa.table({"text": coded(["word " * (LONG // 5), "end"], [0] * 2500 + [1])}), path)


def one_page(path: Path) -> None:
    """600 MB of one letter in a page of some kilobytes."""
    each = pa.array(["a" * (30 << 20)])
    pq.write_table(pa.table({"text": pa.concat_arrays([each] * 20)}), path, compression="zstd", use_dictionary=False)


def nulls(path: Path) -> None:
    """20 million rows of nothing."""
    pq.write_table(pa.table({"text": pa.nulls(20_000_000, pa.string())}), path, row_group_size=20_000_000)


def lists(path: Path) -> None:
    """One row with a list of 30 million nothings."""
    inner = pa.ListArray.from_arrays(pa.array([0, 30_000_000], pa.int32()), pa.nulls(30_000_000, pa.string()))
    pq.write_table(pa.table({"text": ["a"], "more": inner}), path)


@pytest.mark.parametrize("bomb", [references, one_page, nulls, lists])
def test_a_file_that_says_far_more_than_its_bytes_is_refused(tmp_path: Path, bomb: Any) -> None:
    path = tmp_path / "bomb.parquet"
    bomb(path)
    for use in (lambda: list(read(path)), lambda: parquet_digest(path)):
        with pytest.raises(
            DataError, match=r"bomb.parquet has [0-9,]+ bytes and says [0-9,]+ (bytes|values) with them"
        ):
            use()


def test_a_value_beyond_any_document_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({"text": ["a", "b" * (parquet_rows.MAX_TEXT_BYTES + 1)]}), path)
    with pytest.raises(DataError, match=r"long.parquet: after row \d+ stands a value of 67,108,865 bytes"):
        list(read(path))


def test_honest_tables_that_repeat_themselves_are_read(tmp_path: Path) -> None:
    """A million rows of three labels, 7 MB of text in some hundred kilobytes."""
    path = tmp_path / "labels.parquet"
    labels = random.Random(2).choices(["positive", "negative", "neutral"], k=1_000_000)
    pq.write_table(pa.table({"text": labels}), path, compression="zstd")
    found = hashlib.sha256("".join(row["text"] for _, row in read(path)).encode()).hexdigest()
    assert found == hashlib.sha256("".join(labels).encode()).hexdigest()
