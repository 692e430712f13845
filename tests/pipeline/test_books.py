"""Books: files of every kind become documents, with headers gone, lines joined, and every loss counted and named."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline import books
from pipeline.books import extract_text
from pipeline.config import BooksTextConfig
from pipeline.errors import DataError
from pipeline.schemas import iter_rows, read_sentence_lines
from tests.conftest import shared
from tests.hostile.archives import entry, overlapping_zip, tar_of, zip_of
from tests.pipeline.epubs import epub, package, page

GUTENBERG = """The Project Gutenberg eBook of Alice

Title: Alice's Adventures
Author: Lewis Carroll
Language: English

*** START OF THE PROJECT GUTENBERG EBOOK ALICE ***

Produced by Somebody and
the team.

CHAPTER I

Down the rabbit-hole she went, and never once considered how in the world
she was to get out again.

*** END OF THE PROJECT GUTENBERG EBOOK ALICE ***

The licence.
"""
PROSE = "Down the rabbit-hole she went, and never once considered how in the world she was to get out again."
STORY = "Once upon a time there was a king, and he lived in a castle by the sea."


def extract(folder: Path, **config: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    out = folder.parent / "out"
    out.mkdir()
    statistics = extract_text({"files": folder}, BooksTextConfig(source="shelf", **config), out)
    assert json.loads((out / "dropped.json").read_text()) == {
        key: statistics[key] for key in ("read", "kept", "dropped")
    }
    assert statistics["read"] == statistics["kept"] + sum(statistics["dropped"].values())
    return list(iter_rows(out)), statistics


def shelf(folder: Path) -> dict[str, dict[str, Any]]:
    """books.parquet by path."""
    return {row["path"]: row for row in pq.read_table(folder.parent / "out" / "books.parquet").to_pylist()}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_book_a_file(files: Path) -> None:
    (files / "b.txt").write_bytes(GUTENBERG.replace("\n", "\r\n").encode())
    (files / "a").mkdir()
    (files / "a" / "plain.epub.TXT").write_bytes(b"\xef\xbb\xbf" + STORY.encode())
    (files / "c.txt").write_bytes(f"{STORY} \u201cNa\u00efve quotes,\u201d he said.".encode("cp1252"))
    (files / "d.txt").write_bytes(b" \n ")
    (files / "e.txt").write_bytes(b"\x00\x01binary")
    (files / "f.pdf").write_bytes(b"%PDF")
    (files / "g.txt").write_text(f"{STORY} It was the kingâ€™s cafÃ©.", encoding="utf-8")
    (files / "manifest.json").write_text("{}")
    rows, statistics = extract(files, language="en", licence="public domain")
    assert [(row["doc_id"], row["title"], row["text"]) for row in rows] == [
        (f"shelf:{digest('a/plain.epub.TXT')}", "plain", STORY),
        (f"shelf:{digest('b.txt')}", "Alice's Adventures", PROSE),
        (f"shelf:{digest('c.txt')}", "c", f"{STORY} “Naïve quotes,” he said."),
        (f"shelf:{digest('g.txt')}", "g", f"{STORY} It was the king’s café."),
    ]
    assert {(row["source"], row["language"], row["licence"], row["url"]) for row in rows} == {
        ("shelf", "en", "public domain", None)
    }
    assert statistics["dropped"] == {"empty": 1, "not_text": 1, "unknown_file_type": 1}
    assert statistics["dropped_files"] == ["d.txt: empty", "e.txt: not_text", "f.pdf: unknown_file_type"]
    assert statistics["encodings"] == {"cp1252": 1, "utf-8": 3}
    assert statistics["gutenberg_headers_removed"] == 1
    assert statistics["mojibake_repaired"] == 1
    found = shelf(files)
    assert found["b.txt"] | {"bytes": 0} == {
        "path": "b.txt",
        "format": "txt",
        "bytes": 0,
        "encoding": "utf-8",
        "mojibake_repaired": False,
        "layout": "paragraphs",
        "pretokenised": False,
        "lowercased": False,
        "title": "Alice's Adventures",
        "author": "Lewis Carroll",
        "licence": "public domain",
        "rights": None,
        "url": None,
        "language": "en",
        "identifiers": None,
        "documents": 1,
        "characters": len(PROSE),
        "left_out": "headings 1",
        "unread": None,
        "dropped": None,
    }
    assert {name: row["dropped"] for name, row in found.items() if row["dropped"]} == {
        "d.txt": "empty",
        "e.txt": "not_text",
        "f.pdf": "unknown_file_type",
    }


def test_compressed_texts(files: Path) -> None:
    for suffix, pack in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)):
        (files / f"a.txt{suffix}").write_bytes(pack(f"{STORY} {suffix}".encode()))
    (files / "b.txt.gz").write_bytes(gzip.compress(STORY.encode())[:-1])
    (files / "c.txt.gz").write_bytes(STORY.encode())
    (files / "d.gz").write_bytes(gzip.compress(STORY.encode()))
    (files / "e.txt.gz").write_bytes(gzip.compress(bytes(16 << 20)))
    rows, statistics = extract(files)
    assert [(row["title"], row["text"]) for row in rows] == [
        ("a", f"{STORY} .bz2"),
        ("a", f"{STORY} .gz"),
        ("a", f"{STORY} .xz"),
    ]
    assert statistics["dropped_files"] == [
        "b.txt.gz: truncated",
        "c.txt.gz: not_what_its_name_says",
        "d.gz: unknown_file_type",
        "e.txt.gz: compression_ratio",
    ]


def test_a_book_that_is_too_large(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "MAX_BOOK_BYTES", 1 << 20)
    (files / "a.txt").write_text(STORY * 20_000)
    (files / "b.txt").write_text(STORY)
    rows, statistics = extract(files)
    assert [row["title"] for row in rows] == ["b"]
    assert statistics["dropped"] == {"larger_than_1_MiB": 1}


def sentences(book: int, count: int) -> list[str]:
    return [f"the {n}th thing that happened in book {book} was that somebody opened a door ." for n in range(count)]


def test_a_sentence_a_line(files: Path) -> None:
    lines = ["a title", "chapter one", *sentences(1, 60), "chapter two", *sentences(2, 60)]
    (files / "books_large_p1.txt").write_text("\n".join(lines) + "\n")
    rows, statistics = extract(files)
    assert [row["text"].split("\n") for row in rows][-1] == sentences(2, 60)
    assert sum(row["text"].count("\n") + 1 for row in rows) in (120, 121)  # the title may count as a sentence
    assert [row["doc_id"] for row in rows] == [f"shelf:{digest('books_large_p1.txt', row['text'])}" for row in rows]
    assert read_sentence_lines(files.parent / "out") == {row["doc_id"] for row in rows}
    assert (statistics["layouts"], statistics["pretokenised"], statistics["lowercased"]) == (
        {"sentence_per_line": 1},
        1,
        1,
    )
    assert shelf(files)["books_large_p1.txt"]["documents"] == len(rows)


def test_a_file_of_sentences_may_be_larger_than_a_book(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BookCorpus's own files have 2 GB; what comes out does not depend on how the file was cut while reading."""
    lines: list[str] = []
    for book in range(200):
        lines += ["the end .", "chapter one", *sentences(book, 200)]
    (files / "a.txt").write_text("\n".join(lines) + "\n")
    whole, _ = extract(files)
    (files.parent / "out").rename(files.parent / "first")
    monkeypatch.setattr(books, "MAX_BOOK_BYTES", 1 << 20)
    monkeypatch.setattr(books, "HEAD_BYTES", 200_000)
    monkeypatch.setattr(books, "LINES_BYTES", 30_000)
    assert (files / "a.txt").stat().st_size > 2 << 20
    again, statistics = extract(files)
    assert again == whole
    assert len(whole) >= 200
    assert statistics["dropped"] == {}
    assert shelf(files)["a.txt"]["bytes"] == (files / "a.txt").stat().st_size


def test_a_file_of_sentences_that_breaks_off(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "HEAD_BYTES", 10_000)
    monkeypatch.setattr(books, "LINES_BYTES", 10_000)
    lines: list[str] = []
    for book in range(50):
        lines += ["the end .", "chapter one", *sentences(book, 200)]
    packed = gzip.compress("\n".join(lines).encode())
    (files / "a.txt.gz").write_bytes(packed[: len(packed) // 2])
    rows, statistics = extract(files)
    assert rows
    assert statistics["dropped"] == {"truncated": 1}
    assert shelf(files)["a.txt.gz"]["dropped"] == "truncated"


# ── EPUBs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_epub_is_one_document_with_what_it_says_of_itself(files: Path) -> None:
    metadata = (
        "<dc:title>Le Roi</dc:title><dc:creator>A. Uteur</dc:creator><dc:language>fr-FR</dc:language>"
        "<dc:rights>Licence Creative Commons BY</dc:rights><dc:identifier>urn:isbn:1</dc:identifier>"
    )
    pages = {"a.xhtml": page(f"<h1>I</h1><p>{STORY}</p>"), "b.xhtml": page(f"<p>CHAPTER II</p><p>{PROSE}</p>")}
    opf = package(["a.xhtml", "b.xhtml", "gone.xhtml"], metadata)
    (files / "a.epub").write_bytes(epub(pages, opf))
    (files / "b.epub").write_bytes(b"no epub")
    rows, statistics = extract(files)
    assert rows == [
        {
            **dict.fromkeys(("url", "revision_id", "date")),
            "doc_id": f"shelf:{digest('a.epub')}",
            "source": "shelf",
            "title": "Le Roi",
            "language": "fr",
            "licence": "Licence Creative Commons BY",
            "text": f"{STORY}\n\n{PROSE}",
        }
    ]
    assert statistics["dropped_files"] == ["b.epub: broken_archive"]
    found = shelf(files)["a.epub"]
    assert (found["author"], found["identifiers"], found["unread"]) == (
        "A. Uteur",
        "urn:isbn:1",
        "OEBPS/gone.xhtml: missing",
    )
    assert "headings 2" in found["left_out"]


# ── archives ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_archives_of_books(files: Path) -> None:
    book = epub({"a.xhtml": page(f"<p>{STORY}</p>")})
    (files / "b.zip").write_bytes(
        zip_of(
            {"z.txt": f"{STORY} Z.", "a/x.epub": book, "cover.jpg": b"\xff\xd8", "inner.zip": zip_of({"a.txt": STORY})}
        )
    )
    (files / "a.tar.gz").write_bytes(
        gzip.compress(
            tar_of(
                (entry("./one.txt"), f"{STORY} One.".encode()),
                (entry("../two.txt"), STORY.encode()),
                (entry("link.txt", tarfile.SYMTYPE, "/etc/passwd"), b""),
                (entry("three.txt"), f"{STORY} Three.".encode()),
            )
        )
    )
    (files / "c.zip").write_bytes(overlapping_zip())
    rows, statistics = extract(files)
    assert [(row["doc_id"], row["title"], row["text"]) for row in rows] == [
        (f"shelf:{digest('a.tar.gz!/one.txt')}", "one", f"{STORY} One."),
        (f"shelf:{digest('a.tar.gz!/three.txt')}", "three", f"{STORY} Three."),
        (f"shelf:{digest('b.zip!/z.txt')}", "z", f"{STORY} Z."),
        (f"shelf:{digest('b.zip!/a/x.epub')}", "x", STORY),
    ]
    assert statistics["dropped_files"] == [
        "a.tar.gz!/../two.txt: unsafe_path",
        "a.tar.gz!/link.txt: link",
        "b.zip!/cover.jpg: unknown_file_type",
        "b.zip!/inner.zip: archive_in_archive",
        "c.zip: overlapping_entries",
    ]
    assert shelf(files)["c.zip"]["format"] == "archive"


def test_a_folder_and_an_archive_of_it_give_the_same_texts(files: Path) -> None:
    (files / "sub").mkdir()
    for name in ("a.txt", "sub/b.txt", "c.epub"):
        content = epub({"a.xhtml": page(f"<p>{STORY} {name}</p>")}) if name == "c.epub" else f"{STORY} {name}".encode()
        (files / name).write_bytes(content)
    loose, _ = extract(files)
    packed = files.parent / "packed"
    (packed / "files").mkdir(parents=True)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name in ("a.txt", "c.epub", "sub/b.txt"):
            archive.add(files / name, name)
    (packed / "files" / "shelf.tar.xz").write_bytes(data.getvalue())
    rows, _ = extract(packed / "files")
    assert [(row["title"], row["text"]) for row in rows] == [(row["title"], row["text"]) for row in loose]


def test_two_members_of_one_name(files: Path) -> None:
    (files / "a.tar").write_bytes(tar_of((entry("a.txt"), STORY.encode()), (entry("./a.txt"), PROSE.encode())))
    rows, statistics = extract(files)
    assert [row["text"] for row in rows] == [STORY]
    assert statistics["dropped"] == {"duplicate_doc_id": 1}
    assert statistics["dropped_files"] == ["a.tar!/a.txt: duplicate_doc_id"]


# ── the manifest ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_manifest_says_what_is_known_of_each_book(files: Path) -> None:
    (files / "a.txt").write_text(GUTENBERG)
    (files / "b.txt").write_text(STORY)
    (files / "z.zip").write_bytes(zip_of({"c.txt": f"{STORY} C.", "d.txt": f"{STORY} D."}))
    manifest = files / "shelf.csv"  # beside the books, where it is no table of texts
    manifest.write_text(
        "file,title,author,licence,url,language\n"
        "a.txt,Alice,,CC0-1.0,https://example.org/11,\n"
        "z.zip!/c.txt,Tale,Grimm,,,de\n"
        "e.txt,Gone,,,,\n"
    )
    rows, statistics = extract(files, licence="public domain", language="en", manifest={"path": str(manifest)})
    assert [tuple(row[name] for name in ("title", "licence", "url", "language")) for row in rows] == [
        ("Alice", "CC0-1.0", "https://example.org/11", "en"),
        ("b", "public domain", None, "en"),
        ("Tale", "public domain", None, "de"),
        ("d", "public domain", None, "en"),
    ]
    assert statistics["manifest_unknown_files"] == ["e.txt"]
    assert (statistics["manifest_unknown"], statistics["without_manifest_row"]) == (1, 2)
    found = shelf(files)
    assert [found[path]["author"] for path in ("a.txt", "z.zip!/c.txt")] == ["Lewis Carroll", "Grimm"]
    assert "shelf.csv" not in found


def test_a_manifest_that_is_wrong_writes_nothing(files: Path) -> None:
    (files / "a.txt").write_text(STORY)
    (files.parent / "m.json").write_text('[\n{"file": "a.txt",\n"year": "1900"}]')
    out = files.parent / "out"
    out.mkdir()
    config = BooksTextConfig.model_validate({"source": "shelf", "manifest": {"path": str(files.parent / "m.json")}})
    with pytest.raises(DataError, match=r"m\.json, line 2: 'year' is no column"):
        extract_text({"files": files}, config, out)
    assert list(out.iterdir()) == []


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


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
    assert shelf(files)["tales.tab"]["documents"] == 2


def test_columns_of_a_table(files: Path) -> None:
    (files / "a.csv").write_text(
        "id,text,url,rights,day,lang\n7,Seven.,u:7,CC0-1.0,1900-01-01,de\n8,Eight.,,,,\n7,Seven again.,,,,\n"
    )
    columns = {"id": "id", "url": "url", "licence": "rights", "date": "day", "language": "lang"}
    rows, statistics = extract(files, columns=columns, licence="public domain")
    assert [tuple(row[c] for c in ("doc_id", "url", "licence", "date", "language")) for row in rows] == [
        ("shelf:7", "u:7", "CC0-1.0", "1900-01-01", "de"),
        ("shelf:8", None, "public domain", None, "en"),
    ]
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
            extract_text({"files": files}, BooksTextConfig.model_validate({"source": "shelf", **config}), files.parent)


def test_an_empty_folder_is_refused(files: Path) -> None:
    with pytest.raises(DataError, match="holds no files"):
        extract(files)


# ── real books ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_real_books_of_every_kind(files: Path) -> None:
    for path in ("novels/Morris_Wood_1894.txt", "epub/wasteland.epub", "layouts/books_large_p1.txt"):
        (files / Path(path).name).symlink_to(shared(f"data/books/{path}"))
    (files / "layouts.zip").write_bytes(
        zip_of({path.name: path.read_bytes() for path in shared("data/books/layouts/epubtxt").glob("burnett*")})
    )
    rows, statistics = extract(files)
    assert statistics["dropped"] == {}
    assert statistics["encodings"] == {"utf-8": 4}
    assert statistics["layouts"] == {"paragraphs": 3, "sentence_per_line": 1}
    found = shelf(files)
    assert found["wasteland.epub"]["author"] == "T.S. Eliot"
    assert found["books_large_p1.txt"]["pretokenised"] and found["books_large_p1.txt"]["lowercased"]
    assert found["layouts.zip!/burnett-lord-1886.epub.txt"]["title"] == "burnett-lord-1886"
    for row in rows:
        if row["doc_id"] not in read_sentence_lines(files.parent / "out") and row["title"] != "The Waste Land":
            assert row["text"].count("\n\n") > 500
            breaks = row["text"].replace("\n\n", "").count("\n")
            assert breaks < 0.05 * len(row["text"]) / 65, "of the line breaks of a book wrapped at 65 characters"


def test_the_output_is_the_same_for_any_number_of_workers(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        (files / f"{number}.txt").write_text(f"CHAPTER {number}\n\n{STORY} It was the year {number}.\n")
    (files / "3-empty.txt").write_text("\n")
    (files / "4-data.txt").write_bytes(bytes(range(256)) * 10)
    (files / "5-lines.txt").write_text("The king saw the sea.\n" * 20 + "THE END\n" + "He was old by then.\n" * 20)
    (files / "5-same.tar").write_bytes(tar_of((entry("a.txt"), PROSE.encode()), (entry("./a.txt"), b"Another.")))
    (files / "6-gutenberg.txt").write_text(GUTENBERG)
    (files / "7.epub").write_bytes(epub({"1.xhtml": page(f"<p>{PROSE}</p>")}))
    manifest = files.parent / "shelf.csv"
    manifest.write_text("file,author\n8.txt,Somebody\n3-empty.txt,Nobody\n4-data.txt,Nobody\nmissing.txt,Nobody\n")
    monkeypatch.setattr(books, "TASK_BYTES", 200)
    monkeypatch.setattr(books, "WORK_PER_WORKER", 1)
    found = []
    for count in (1, 3):
        (files.parent / "settings.yaml").write_text(f"beam: {{workers: {count}}}\n")
        monkeypatch.setenv("BERT_SETTINGS", str(files.parent / "settings.yaml"))
        _, statistics = extract(files, manifest={"path": str(manifest)})
        out = files.parent / "out"
        found.append(({path.name: path.read_bytes() for path in out.iterdir()}, statistics))
        out.rename(files.parent / f"out{count}")
    assert found[0] == found[1]
    statistics = found[0][1]
    assert statistics["manifest_unknown_files"] == ["4-data.txt", "missing.txt"]
    assert statistics["dropped"] == {"duplicate_doc_id": 1, "empty": 1, "not_text": 1}
    assert statistics["gutenberg_headers_removed"] == 1


def test_two_files_of_one_name_in_a_manifest_are_noticed_between_workers(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        (files / folder).mkdir()
        (files / folder / "book.txt").write_text(STORY)
    manifest = files.parent / "shelf.csv"
    manifest.write_text("file,author\nbook.txt,Somebody\n")
    monkeypatch.setattr(books, "TASK_BYTES", 1)
    monkeypatch.setattr(books, "WORK_PER_WORKER", 1)
    with pytest.raises(DataError, match=r"which both a/book\.txt and b/book\.txt are"):
        extract(files, manifest={"path": str(manifest)})


def test_golden_rows(files: Path) -> None:
    (files / "alice.txt").write_text(GUTENBERG)
    (files / "b.epub").write_bytes(epub({"a.xhtml": page(f"<h1>I</h1><p>{STORY}</p>")}))
    (files / "tale.tsv").write_text("text\tname\nOnce upon a time.\tTale\n")
    rows, _ = extract(files, language="en", licence="CC0-1.0", columns={"title": "name"})
    # If this changes, raise STAGE.version of pipeline/books.py
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] == "3db3f31e5e145978"
