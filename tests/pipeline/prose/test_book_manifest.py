"""The manifest of a shelf: both forms, how files find their rows, and errors that name file and line."""

import json
from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.prose.book_manifest import Row, read_manifest

CSV = """file,Title,author,license,url,language
austen/emma.txt,Emma,Jane Austen,public domain,https://example.org/158,en

"shelf.zip!/a, b.txt",A and B,,CC0-1.0,,
"""


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_and_both_forms_of_json_say_the_same(tmp_path: Path) -> None:
    emma = {"title": "Emma", "author": "Jane Austen", "licence": "public domain", "url": "https://example.org/158"}
    records = {
        "austen/emma.txt": emma | {"language": "en"},
        "shelf.zip!/a, b.txt": {"title": "A and B", "licence": "CC0-1.0", "author": None},
    }
    for path in [
        written(tmp_path, "a.csv", "\ufeff" + CSV),
        written(tmp_path, "a.json", json.dumps(records)),
        written(
            tmp_path, "b.json", json.dumps([{"file": name} | record for name, record in records.items()], indent=1)
        ),
    ]:
        manifest = read_manifest(path)
        assert manifest.row("austen/emma.txt") == Row("austen/emma.txt", **emma, language="en")
        assert manifest.row("shelf.zip!/a, b.txt") == Row("shelf.zip!/a, b.txt", "A and B", licence="CC0-1.0")
        assert manifest.row("austen/persuasion.txt") is None
        assert manifest.unknown == []


def test_a_file_is_found_by_path_by_member_and_by_name(tmp_path: Path) -> None:
    manifest = read_manifest(
        written(tmp_path, "a.csv", "file,title\nb.txt,Name\na/b.txt,Member\nz.zip!/a/b.txt,Path\n")
    )
    assert [manifest.row(name).title for name in ("z.zip!/a/b.txt", "y.zip!/a/b.txt", "x/b.txt")] == [  # type: ignore[union-attr]
        "Path",
        "Member",
        "Name",
    ]
    with pytest.raises(DataError, match=r"says 'b.txt', which both x/b.txt and w/b.txt are"):
        manifest.row("w/b.txt")


def test_rows_without_a_file_are_named(tmp_path: Path) -> None:
    manifest = read_manifest(written(tmp_path, "a.csv", "file\nb.txt\na.txt\n"))
    manifest.row("a.txt")
    assert manifest.unknown == ["b.txt"]


def test_no_manifest_says_nothing() -> None:
    manifest = read_manifest(None)
    assert not manifest
    assert manifest.row("a.txt") is None
    assert manifest.unknown == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "file,year\na.txt,1815\n", "line 2: 'year' is no column"),
        ("a.csv", "file,title\na.txt\n", "line 2: 1 values, but the header names 2"),
        ("a.csv", "title\nEmma\n", "line 2: the row names no file"),
        ("a.csv", "file\na.txt\n\na.txt\n", "line 4: 'a.txt' stands already in line 2"),
        ("a.csv", 'file\n"a.txt\n', "line 2: unexpected end of data"),
        ("a.csv", "path,file\na,b\n", "line 2: file is given twice"),
        ("a.json", "{", "line 1: Expecting value"),
        ("a.json", '[\n{"file": "a.txt"},\n{"file" 3}]', "line 3: Expecting ':'"),
        ("a.json", '[\n{"file": "a.txt"}\n{"file": "b.txt"}]', "line 3: Expecting ','"),
        ("a.json", '[\n{"file": "a.txt", "title": 3}]', "line 2: title is 3, not text"),
        ("a.json", '{"a.txt":\n "Emma"}', 'line 1: "Emma" is no record'),
        ("a.json", '"a.txt"', "line 1: neither a list"),
        ("a.json", '[{"title": "Emma"}]', "line 1: the row names no file"),
        ("a.json", "[" * 100_000, "nested too deep"),
        ("a.json", '{"a": ' + "9" * 10_000 + "}", "a number that is none"),
        ("a.yaml", "a", "must end in .csv or .json"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(DataError, match=message) as error:
        read_manifest(path)
    assert str(path) in error.value.what


def test_bytes_that_are_not_utf8_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"file,title\na.txt,Caf\xe9\n")
    with pytest.raises(DataError, match="line 2: not UTF-8"):
        read_manifest(tmp_path / "a.csv")
    with pytest.raises(DataError, match="can't be read: No such file"):
        read_manifest(tmp_path / "b.csv")
