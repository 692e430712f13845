"""Which columns hold what, in tables as people have them."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import Columns
from pipeline.errors import DataError
from pipeline.starting.table_columns import columns_of

PROSE = "The old river follows the quiet mountain. " * 5


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_usual_names_are_known(tmp_path: Path) -> None:
    rows = [
        {"id": n, "title": f"T{n}", "content": PROSE, "link": "https://a.example", "published": "2024", "lang": "en"}
        for n in range(9)
    ]
    wanted = {"text": "content", "id": "id", "title": "title", "url": "link", "date": "published", "language": "lang"}
    assert columns_of("jsonl", jsonl(tmp_path / "a.jsonl", rows)) == Columns(**wanted)
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert columns_of("csv", tmp_path / "a.csv") == Columns(**wanted)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert columns_of("parquet", tmp_path / "a.parquet") == Columns(**wanted)


def test_fields_inside_others_have_dotted_names(tmp_path: Path) -> None:
    rows = [{"meta": {"title": f"T{n}", "id": f"i{n}"}, "doc": {"body": PROSE, "words": 35}} for n in range(9)]
    wanted = Columns(text="doc.body", id="meta.id", title="meta.title")
    assert columns_of("jsonl", jsonl(tmp_path / "a.jsonl", rows)) == wanted
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert columns_of("parquet", tmp_path / "a.parquet") == wanted


def test_the_longest_by_far_is_the_text_whatever_its_name(tmp_path: Path) -> None:
    rows = [{"who": "Ann", "said": PROSE + str(n), "note": "short"} for n in range(9)]
    assert columns_of("jsonl", jsonl(tmp_path / "a.jsonl", rows)).text == "said"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"left": PROSE, "right": PROSE[:150]}] * 3, "'left' (about 210 characters), 'right' (about 150 characters)"),
        ([{"name": "Ann", "age": 7}] * 3, "'name' (about 3 characters), 'age' (no text)"),
    ],
)
def test_what_is_not_sure_is_asked_with_the_columns_that_there_are(
    rows: list[dict[str, Any]], told: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        columns_of("jsonl", jsonl(tmp_path / "a.jsonl", rows))
    assert told in caught.value.what and "columns: {text: NAME}" in caught.value.todo


def test_an_id_that_stands_twice_is_none(tmp_path: Path) -> None:
    rows = [{"id": n // 2, "text": PROSE + str(n)} for n in range(9)]
    assert columns_of("jsonl", jsonl(tmp_path / "a.jsonl", rows)).id is None
    missing = [{"id": n, "text": PROSE} if n else {"text": PROSE} for n in range(9)]
    assert columns_of("jsonl", jsonl(tmp_path / "b.jsonl", missing)).id is None


def test_a_language_that_is_no_code_is_none(tmp_path: Path) -> None:
    rows = [{"language": "English language", "text": PROSE}] * 3
    assert columns_of("jsonl", jsonl(tmp_path / "a.jsonl", rows)).language is None


def test_a_file_without_rows_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none of its first rows can be read"):
        columns_of("jsonl", jsonl(tmp_path / "a.jsonl", []))
