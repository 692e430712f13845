"""The list of withdrawn documents."""

from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.selection.exclusions import read_exclusions


def listed(folder: Path, text: str | bytes, name: str = "withdrawn.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_line_means_its_doc_id_else_its_url_else_its_title(tmp_path: Path) -> None:
    path = listed(
        tmp_path,
        "doc_id,url,title,reason,who\nwiki:1,https://a.test/1,Index,asked for,me\n,https://a.test/2,Index,court,me\n"
        ',," Cafe\u0301 ","spam, mostly",me\n',
    )
    found = read_exclusions(path)
    assert dict(found.lines) == {2: "doc_id wiki:1", 3: "url https://a.test/2", 4: "title Cafe\u0301"}
    assert found.reasons[4] == "spam, mostly"
    assert found.line_of("wiki:1", None, None) == 2
    assert found.line_of("wiki:2", "https://a.test/2", "Other") == 3
    assert found.line_of("wiki:3", None, "Café") == 4, "compared in NFC, without white space around"
    assert found.line_of("wiki:4", "https://a.test/1", "Index") is None, "the line named a doc_id"
    assert found.line_of("", "", "") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("doc_id\nx\n", "line 1: no column 'reason'"),
        ("id,reason\nx,y\n", "line 1: no column doc_id, url, title"),
        ("doc_id,reason\nx,y\n ,z\n", "line 3: names no document"),
        ("title,reason\nx, \n", "line 2: no reason"),
        ("title,reason\nx\n", "line 2: 1 values"),
        (b"title,reason\n\xe9,x\n", "line 2: not UTF-8"),
        ("", "is empty"),
    ],
)
def test_errors_name_file_and_line(text: str | bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"withdrawn.csv.*{said}"):
        read_exclusions(listed(tmp_path, text))


def test_it_is_a_csv_file_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not there"):
        read_exclusions(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"is a \.csv file"):
        read_exclusions(listed(tmp_path, "title\nx\n", "list.txt"))
