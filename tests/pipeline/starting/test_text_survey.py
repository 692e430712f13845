"""What a folder of text is taken for, and what of it is left."""

import gzip
import json
import lzma
import zipfile
from pathlib import Path

import pytest

from pipeline.errors import DataError, SourceError
from pipeline.starting.text_survey import survey
from tests import tiny

PROSE = "\n\n".join(tiny.paragraphs(1, 6))


def row(text: str = PROSE) -> str:
    return json.dumps({"text": text}) + "\n"


def kinds(folder: Path) -> dict[str, tuple[str, ...]]:
    return {found.kind: tuple(sorted(file.name for file in found.files)) for found in survey(folder).taken}


def test_every_kind_of_a_mixed_folder_is_a_source_of_its_own_place(tmp_path: Path) -> None:
    (tmp_path / "tales").mkdir()
    for n in range(3):
        (tmp_path / "tales" / f"{n}.txt").write_text(PROSE, encoding="utf-8")
    (tmp_path / "news.jsonl.gz").write_bytes(gzip.compress(row().encode()))
    (tmp_path / "README.md").write_text("# About", encoding="utf-8")
    (tmp_path / ".hidden.txt").write_text(PROSE, encoding="utf-8")
    found = survey(tmp_path)
    assert {each.kind: each.path for each in found.taken} == {
        "jsonl": tmp_path / "news.jsonl.gz",
        "text": tmp_path / "tales",
    }
    assert [each.foreign for each in found.taken] == [0, 0], "the place of a source holds its own files alone"
    assert found.left == (tmp_path / "README.md",)


def test_files_that_a_source_would_drop_are_counted(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.txt").write_text(PROSE, encoding="utf-8")
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    (found,) = survey(tmp_path).taken
    assert (found.path, found.foreign) == (tmp_path, 1)


def test_a_json_file_that_is_one_value_is_no_json_lines(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{\n  "a": 1\n}\n', encoding="utf-8")
    (tmp_path / "list.json").write_text("[1, 2]\n", encoding="utf-8")
    (tmp_path / "rows.json").write_text("\n" + row(), encoding="utf-8")
    found = survey(tmp_path)
    assert kinds(tmp_path) == {"jsonl": ("rows.json",)}
    assert {path.name for path in found.left} == {"config.json", "list.json"}


@pytest.mark.parametrize("name", ["a.epub", "a.zip", "a.txt.xz", "gutenberg.txt", "long.txt"])
def test_what_is_read_as_books(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "a.zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("books/one.epub", b"PK")
    elif name.endswith(".xz"):
        path.write_bytes(lzma.compress(PROSE.encode()))
    elif name == "gutenberg.txt":
        path.write_text(f"The Project Gutenberg eBook of Tales\n\n{PROSE}", encoding="utf-8")
    elif name == "long.txt":
        path.write_text(PROSE * (1 + 200_000 // len(PROSE)), encoding="utf-8")
    else:
        path.write_bytes(b"PK")
    (found,) = survey(tmp_path).taken
    assert found.kind == "books" and found.why


def test_a_sentence_a_line_is_seen(tmp_path: Path) -> None:
    lines = [line + "." for line in PROSE.replace("\n\n", " ").split(". ")] * 3
    (tmp_path / "lines.txt").write_text("\n".join(lines[:40]) + "\n\n" + "\n".join(lines[40:]) + "\n", encoding="utf-8")
    (found,) = survey(tmp_path).taken
    assert (found.kind, found.sentence_per_line) == ("text", True)
    (tmp_path / "lines.txt").write_text(PROSE, encoding="utf-8")
    (found,) = survey(tmp_path).taken
    assert (found.kind, found.sentence_per_line) == ("text", False)


def test_what_there_is_no_text_in_is_refused_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no files"):
        survey(tmp_path)
    with pytest.raises(SourceError, match="does not exist") as caught:
        survey(tmp_path / "nowhere")
    assert "--text FOLDER" in caught.value.todo
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    (tmp_path / "b.docx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"its 2 files end in \.docx, \.pdf"):
        survey(tmp_path)
