"""Books: files and tables become documents, with headers gone, lines joined, and every loss counted."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.books import decode, extract_text, strip_gutenberg, unwrap
from pipeline.config import BooksTextConfig
from pipeline.errors import DataError
from pipeline.schemas import iter_rows
from tests.conftest import shared

GUTENBERG = """The Project Gutenberg eBook of Alice

Title: Alice's Adventures
Author: Lewis Carroll

*** START OF THE PROJECT GUTENBERG EBOOK ALICE ***

Produced by Somebody and
the team.

CHAPTER I

Down the rabbit-hole.

*** END OF THE PROJECT GUTENBERG EBOOK ALICE ***

The licence.
"""


def extract(folder: Path, **config: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    out = folder.parent / "out"
    out.mkdir()
    statistics = extract_text({"files": folder}, BooksTextConfig(source="shelf", **config), out)
    assert json.loads((out / "dropped.json").read_text()) == {
        key: statistics[key] for key in ("read", "kept", "dropped")
    }
    assert statistics["read"] == statistics["kept"] + sum(statistics["dropped"].values())
    return list(iter_rows(out)), statistics


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def test_one_book_a_file(files: Path) -> None:
    (files / "b.txt").write_bytes(GUTENBERG.replace("\n", "\r\n").encode())
    (files / "a").mkdir()
    (files / "a" / "plain.TXT").write_bytes(b"\xef\xbb\xbfPlain text.")
    (files / "c.txt").write_bytes("Na\u00efve \u201cquotes\u201d".encode("cp1252"))
    (files / "d.txt").write_bytes(b" \n ")
    (files / "e.txt").write_bytes(b"\x00\x01binary")
    (files / "f.pdf").write_bytes(b"%PDF")
    (files / "manifest.json").write_text("{}")
    rows, statistics = extract(files, language="en", licence="public domain")
    assert [(row["doc_id"], row["title"], row["text"]) for row in rows] == [
        (f"shelf:{digest('a/plain.TXT')}", "plain", "Plain text."),
        (f"shelf:{digest('b.txt')}", "Alice's Adventures", "CHAPTER I\n\nDown the rabbit-hole."),
        (f"shelf:{digest('c.txt')}", "c", "Naïve “quotes”"),
    ]
    assert {(row["source"], row["language"], row["licence"], row["url"]) for row in rows} == {
        ("shelf", "en", "public domain", None)
    }
    assert statistics["dropped"] == {"empty": 1, "not_text": 1, "unknown_file_type": 1}
    assert statistics["dropped_files"] == ["e.txt: not_text", "f.pdf: unknown_file_type"]
    assert statistics["encodings"] == {"cp1252": 1, "utf-8": 3}
    assert statistics["gutenberg_headers_removed"] == 1


def test_one_document_a_row(files: Path) -> None:
    (files / "tales.tab").write_text(
        "Title\tContent\nstring\tstring\n\t\nA\tOnce upon a time.\nB\tOnce upon a time.\nC\t \nD\tThe end.\n"
    )
    rows, statistics = extract(files, columns={"text": "Content", "title": "Title"})
    assert [(row["doc_id"], row["title"]) for row in rows] == [
        (f"shelf:{digest('tales.tab', 'Once upon a time.')}", "A"),
        (f"shelf:{digest('tales.tab', 'The end.')}", "D"),
    ]
    assert statistics["dropped"] == {"duplicate_doc_id": 1, "empty": 1}


def test_an_id_column_names_the_documents(files: Path) -> None:
    (files / "a.csv").write_text("id,text\n7,Seven.\n8,Eight.\n7,Seven again.\n")
    rows, statistics = extract(files, columns={"id": "id"})
    assert [row["doc_id"] for row in rows] == ["shelf:7", "shelf:8"]
    assert statistics["dropped"] == {"duplicate_doc_id": 1}


def test_tables_need_their_columns(files: Path) -> None:
    path = files / "a.csv"
    path.write_text("id,body\n,Text.\n")
    for config, message in [
        ({}, "does not say which column is the text"),
        ({"columns": {"text": "text"}}, "no column 'text'; it has 'id', 'body'"),
        ({"columns": {"text": "body", "id": "id"}}, "line 2: column 'id' is empty"),
    ]:
        with pytest.raises(DataError, match=message):
            extract_text({"files": files}, BooksTextConfig(source="shelf", **config), files.parent)


def test_an_empty_folder_is_refused(files: Path) -> None:
    with pytest.raises(DataError, match="holds no files"):
        extract(files)


def test_encodings() -> None:
    assert decode("Grüße\r\n".encode()) == ("Grüße\n", "utf-8")
    assert decode("Grüße".encode("utf-16")) == ("Grüße", "utf-16")
    assert decode(b"caf\xe9 \x93x\x94") == ("café “x”", "cp1252")
    assert decode(b"caf\xe9 \x81") == ("café \x81", "latin-1")
    assert decode(b"PK\x03\x04\x00") == (None, "")


def test_gutenberg_without_its_marks_is_left_alone() -> None:
    assert strip_gutenberg("Produced by hand.\n\nText.") == ("Produced by hand.\n\nText.", "")
    old = "Etext #1\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04*END*\nText.\nEnd of Project Gutenberg's X\n"
    assert strip_gutenberg(old) == ("Text.\n", "")


def test_wrapped_lines_are_joined_and_verse_is_not() -> None:
    wrapped = """
It was the best of times, it was the worst of times, it was the age of
wisdom, it was the age of foolishness, it was the epoch of belief, a well-
known one.

    O Captain! my Captain!
    our fearful trip is done,
    The ship has weather'd

It was the epoch of incredulity, it was the season of Light, and it was
the season of Darkness.
"""
    assert unwrap(wrapped) == (
        "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, "
        "it was the epoch of belief, a well-known one.\n\n"
        "O Captain! my Captain!\nour fearful trip is done,\nThe ship has weather'd\n\n"
        "It was the epoch of incredulity, it was the season of Light, and it was the season of Darkness."
    )


def test_without_blank_lines_a_short_line_ends_a_paragraph() -> None:
    lines = ["x" * 34 + " " + "y" * 35, "z" * 68 + ".", "short end."] * 30
    paragraphs = unwrap("\n".join(lines)).split("\n\n")
    assert len(paragraphs) == 30
    assert paragraphs[0] == " ".join(lines[:3])


def test_a_paragraph_a_line() -> None:
    long = "word " * 60 + "end."
    assert unwrap(f"{long}\n{long}\n\n{long}\n") == "\n\n".join([long] * 3)


def test_real_novels_have_no_wrapped_lines_left(files: Path) -> None:
    for name in ("Morris_Wood_1894", "Kipling_Captains_1896", "Doyle_Hound_1902"):
        (files / f"{name}.txt").symlink_to(shared(f"data/books/novels/{name}.txt"))
    rows, statistics = extract(files)
    assert [row["title"] for row in rows] == ["Doyle_Hound_1902", "Kipling_Captains_1896", "Morris_Wood_1894"]
    assert statistics["encodings"] == {"utf-8": 3}
    for row in rows:
        breaks = row["text"].replace("\n\n", "").count("\n")
        assert breaks < 0.05 * len(row["text"]) / 65, "of the line breaks of a book wrapped at 65 characters"
        paragraphs = row["text"].split("\n\n")
        assert 500 < len(paragraphs) < 2000


def test_golden_rows(files: Path) -> None:
    (files / "alice.txt").write_text(GUTENBERG + GUTENBERG)
    (files / "tale.tsv").write_text("text\tname\nOnce upon a time.\tTale\n")
    rows, _ = extract(files, language="en", licence="CC0-1.0", columns={"title": "name"})
    # If this changes, raise STAGE.version of pipeline/books.py
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] == "a98deb5d4ba20213"
