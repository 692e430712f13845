"""Own corpora: rows and files become documents, in order, with every loss counted and every broken file named."""

import gzip
import hashlib
import io
import json
import re
import tarfile
import tracemalloc
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipeline import own_text
from pipeline.config import OwnTextConfig
from pipeline.errors import DataError
from pipeline.formats import compressed, parquet_rows
from pipeline.own_text import extract_text
from pipeline.profiles.tables import BLANK
from pipeline.schemas import iter_rows, read_sentence_lines
from tests.conftest import shared


def extract(folder: Path, kind: str, **config: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    out = folder.parent / "out"
    out.mkdir()
    statistics = extract_text({"files": folder}, OwnTextConfig(source="mine", kind=kind, **config), out)
    assert json.loads((out / "dropped.json").read_text()) == {
        key: statistics[key] for key in ("read", "kept", "dropped")
    }
    rows = list(iter_rows(out))
    assert len(rows) == statistics["kept"] == statistics["read"] - sum(statistics["dropped"].values())
    lines = sorted(row["doc_id"] for row in rows) if config.get("sentence_per_line") else []
    assert sorted(read_sentence_lines(out)) == lines
    return rows, statistics


def refused(folder: Path, kind: str, **config: Any) -> str:
    out = folder.parent / "refused"
    out.mkdir(exist_ok=True)
    with pytest.raises(DataError) as caught:
        extract_text({"files": folder}, OwnTextConfig(source="mine", kind=kind, **config), out)
    assert caught.value.todo
    return str(caught.value)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def jsonl(*values: Any) -> str:
    return "".join(value if isinstance(value, str) else json.dumps(value) + "\n" for value in values)


ALL = {"id": "key", "title": "name", "url": "link", "licence": "rights", "date": "day", "language": "lang"}
FULL = [
    {"key": "a", "text": "Eins.\n\nZwei.", "name": " Der\nTitel ", "link": "https://a.example/1", "rights": "CC0-1.0",
     "day": "2024-01-31", "lang": "de"},
    {"key": 7, "text": "Seven.", "name": "", "link": None, "rights": None, "day": 2024, "lang": None},
]  # fmt: skip
WANTED = [
    {"doc_id": "mine:a", "source": "mine", "title": "Der Titel", "url": "https://a.example/1", "revision_id": None,
     "language": "de", "licence": "CC0-1.0", "date": "2024-01-31", "text": "Eins.\n\nZwei."},
    {"doc_id": "mine:7", "source": "mine", "title": None, "url": None, "revision_id": None, "language": "fr",
     "licence": "public domain", "date": "2024", "text": "Seven."},
]  # fmt: skip
RECIPE = {"language": "fr", "licence": "public domain", "columns": ALL}


# ── every column, in every kind of table ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json", "A.JSONL.GZ", "a.jsonl.zst"])
def test_columns_of_json_lines(files: Path, name: str) -> None:
    data = b"\xef\xbb\xbf" + jsonl(*FULL).replace("\n", "\r\n").encode() + b"\r\n"
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(name[-4:].lower().replace("l.gz", ".gz"), bytes)
    (files / name).write_bytes(pack(data))
    rows, statistics = extract(files, "jsonl", **RECIPE)
    assert rows == WANTED
    assert (statistics["dropped"], statistics["languages"]) == ({}, {"de": 1, "fr": 1})
    assert statistics["licences"] == {"CC0-1.0": 1, "public domain": 1}


@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_columns_of_csv(files: Path, delimiter: str, ending: str) -> None:
    header = ["lang", "text", "key", "name", "link", "rights", "day", "more"]
    quoted = [[f'"{row[name]}"' if row.get(name) else "" for name in header] for row in FULL]
    data = "".join(delimiter.join(row) + "\r\n" for row in [header, *quoted]).encode()
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(ending, bytes)
    (files / f"a.{'csv' if delimiter == ',' else 'tsv'}{ending}").write_bytes(pack(data))
    rows, _ = extract(files, "csv", **RECIPE)
    assert rows == WANTED


def strings(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value is None else str(value) for name, value in row.items()}


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_columns_of_parquet(files: Path, type_: pa.DataType) -> None:
    rows = [strings(row) for row in FULL]
    columns = {name: pa.array([row[name] for row in rows], pa.string()).cast(type_) for name in FULL[0]}
    pq.write_table(pa.table({"other": [[1], [2]], **columns}), files / "a.parquet")
    found, _ = extract(files, "parquet", **RECIPE)
    assert found == WANTED


def test_parquet_dates_numbers_and_fields_inside_structs(files: Path) -> None:
    meta = [{"title": "One", "day": date(2024, 1, 31)}, None, {"title": None, "day": None}]
    table = pa.table({"n": [1, 2, 3], "body": ["A.", "B.", "C."], "meta": meta, "score": [0.5, 1.0, 2.0]})
    pq.write_table(table, files / "a.pq", row_group_size=2)
    columns = {"text": "body", "id": "n", "title": "meta.title", "date": "meta.day", "url": "score"}
    rows, _ = extract(files, "parquet", columns=columns)
    assert [(row["doc_id"], row["title"], row["date"], row["url"]) for row in rows] == [
        ("mine:1", "One", "2024-01-31", "0.5"),
        ("mine:2", None, None, "1"),
        ("mine:3", None, None, "2"),
    ]


def test_json_fields_inside_objects(files: Path) -> None:
    (files / "a.jsonl").write_text(
        jsonl({"text": "A.", "meta": {"title": "In"}}, {"text": "B.", "meta.title": "Flat"}, {"text": "C."})
    )
    rows, _ = extract(files, "jsonl", columns={"title": "meta.title"})
    assert [row["title"] for row in rows] == ["In", "Flat", None]


# ── order, ids, text ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_order_is_by_path_then_row_and_ids_follow_the_content(files: Path) -> None:
    (files / "b").mkdir()
    (files / "b" / "x.jsonl").write_text(jsonl({"text": "Third."}, {"text": "First."}))
    (files / "a.jsonl").write_text(jsonl({"text": "First."}, {"text": "Second."}, {"text": "First."}))
    (files / "manifest.json").write_text("{}")
    rows, statistics = extract(files, "jsonl")
    assert [(row["doc_id"], row["text"]) for row in rows] == [
        (f"mine:{digest('a.jsonl', 'First.')}", "First."),
        (f"mine:{digest('a.jsonl', 'Second.')}", "Second."),
        (f"mine:{digest('b/x.jsonl', 'Third.')}", "Third."),
        (f"mine:{digest('b/x.jsonl', 'First.')}", "First."),
    ]
    assert statistics["dropped"] == {"duplicate_doc_id": 1}
    assert statistics["first_dropped"] == {"duplicate_doc_id": "a.jsonl, line 3"}


def test_ids_are_words_or_numbers_and_stand_once(files: Path) -> None:
    keys = ["x", 7, 7.0, 1.5, "", " ", None, True, [1], float("nan"), "x", "\0"]
    (files / "a.jsonl").write_text(
        jsonl(*({"text": f"Text {n}.", "id": key} for n, key in enumerate(keys)), {"text": "T."})
    )
    rows, statistics = extract(files, "jsonl", columns={"id": "id"})
    assert [row["doc_id"] for row in rows] == ["mine:x", "mine:7", "mine:1.5"]
    assert statistics["dropped"] == {"duplicate_doc_id": 2, "no_id": 8}


def test_text_is_tidied_and_what_was_removed_is_counted(files: Path) -> None:
    text = "\ufeff  One. \r\n\r\n \t \r\n\r\nTwo\x07,\x85and \u2028more.\x0c\u2029Three.\n\n\n\n"
    (files / "a.jsonl").write_text(jsonl({"text": text}))
    ((row,), statistics) = extract(files, "jsonl")
    assert row["text"] == "One.\n\nTwo,\nand\nmore.\n\nThree."
    assert statistics["control_characters_removed"] == 2


def test_long_lines_without_blank_ones_are_paragraphs(files: Path) -> None:
    long, short = "word " * 30 + "end.", "Title"
    texts = [f"{short}\n{long}\n{long}", f"{short}\n{short}\n{short}", f"{long}\n\n{short}\n{long}"]
    (files / "a.jsonl").write_text(jsonl(*({"text": text} for text in texts)))
    rows, _ = extract(files, "jsonl")
    assert [row["text"] for row in rows] == [texts[0].replace("\n", "\n\n"), *texts[1:]]


def test_sentences_by_line_keep_their_lines(files: Path) -> None:
    (files / "a.jsonl").write_text(jsonl({"text": "word " * 30 + ".\nTwo.\n\n\nThree."}))
    ((row,), _) = extract(files, "jsonl", sentence_per_line=True)
    assert row["text"] == "word " * 30 + ".\nTwo.\n\nThree."


# ── what is dropped ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_bad_lines_are_dropped_counted_and_named(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "LINE_BYTES", 200_000)
    lines = [
        b'{"text": "Good."}',
        b'{"text": "cut',
        b'["text"]',
        b'{"text": "caf\xe9"}',
        b'{"text": null}',
        b'{"other": 1}',
        b'{"text": 5}',
        b'{"text": "half \\ud83d pair"}',
        b'{"text": "nul \\u0000"}',
        b'{"text": " \\n\\t "}',
        b'{"text": "' + b"x" * 300_000 + b'"}',
        b"[" * 100_000,
        b"",
        b'{"text": "\\ud83d\\ude00 whole pair", "n": ' + b"9" * 5000 + b"}",
        b'{"text": "\\ud83d\\ude00 whole pair"}',
        b'{"text": "Last."}',
    ]
    (files / "a.jsonl").write_bytes(b"\n".join(lines))
    rows, statistics = extract(files, "jsonl")
    assert [row["text"] for row in rows] == ["Good.", "\U0001f600 whole pair", "Last."]
    assert statistics["first_dropped"] == {
        "broken_line": "a.jsonl, line 2, a.jsonl, line 12, a.jsonl, line 14",
        "empty": "a.jsonl, line 10",
        "line_too_long": "a.jsonl, line 11",
        "lone_surrogate": "a.jsonl, line 8",
        "no_text": "a.jsonl, line 5, a.jsonl, line 6",
        "not_an_object": "a.jsonl, line 3",
        "not_utf8": "a.jsonl, line 4",
        "nul_character": "a.jsonl, line 9",
        "text_not_a_string": "a.jsonl, line 7",
    }
    assert statistics["dropped"]["broken_line"] == 3


@pytest.mark.parametrize(
    "text", ["\u200b" * 50, "\u3164\u2800", "\u00ad \u2060\n\n\u200d", "\ufe0f", "\U000e0041", "\u034f", "\u17b4\u115f"]
)
def test_text_that_cannot_be_seen_is_dropped_as_empty(files: Path, text: str) -> None:
    """Check texts_not_empty calls it empty: kept, it would hold up all other documents."""
    (files / "a.jsonl").write_text(jsonl({"text": "Good."}, {"text": text}, {"text": text + "。"}))
    rows, statistics = extract(files, "jsonl")
    assert [row["text"] for row in rows] == ["Good.", text + "。"]
    assert statistics["first_dropped"] == {"empty": "a.jsonl, line 2"}
    frame = pl.DataFrame({"text": [row["text"] for row in rows] + [text]})
    assert frame.select(BLANK).to_series().to_list() == [False, False, True]


def test_a_dropped_reason_names_at_most_so_many_places(files: Path) -> None:
    (files / "a.jsonl").write_text(jsonl({"text": "Good."}, *["{\n"] * 50))
    _, statistics = extract(files, "jsonl")
    assert statistics["dropped"] == {"broken_line": 50}
    assert statistics["first_dropped"]["broken_line"].count("line") == own_text.NAMED == 20


def test_values_of_no_use_are_counted(files: Path) -> None:
    (files / "a.jsonl").write_text(
        jsonl(
            {"text": "A.", "t": ["x"], "l": "x\ud800"},
            {"text": "B.", "t": " ", "l": {"a": 1}},
            {"text": "C.", "t": "T", "l": "de"},
        )
    )
    rows, statistics = extract(files, "jsonl", columns={"title": "t", "language": "l"})
    assert [(row["title"], row["language"]) for row in rows] == [(None, "en"), (None, "en"), ("T", "de")]
    assert statistics["ignored_values"] == {"language": 2, "title": 1}


def test_a_line_that_never_ends_is_passed_over_in_bounded_memory(files: Path) -> None:
    line = b'{"text": "' + b"a" * (compressed.LINE_BYTES * 3) + b'"}\n'
    (files / "a.jsonl.zst").write_bytes(zstandard.compress(b'{"text": "x"}\n' + line + b'{"text": "y"}\n'))
    limit = compressed.LINE_BYTES * 2.5
    tracemalloc.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compressed, "MAX_RATIO", 1e9)
            rows, statistics = extract(files, "jsonl")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [row["text"] for row in rows] == ["x", "y"]
    assert statistics["dropped"] == {"line_too_long": 1}
    assert peak < limit


def test_parquet_strings_need_not_be_utf8_to_be_survived(files: Path) -> None:
    offsets = pa.py_buffer(bytes([0, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0]))
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ok.\xff\xfe.")])
    pq.write_table(pa.table({"text": broken}), files / "a.parquet")
    rows, statistics = extract(files, "parquet")
    assert [row["text"] for row in rows] == ["ok."]
    assert statistics["first_dropped"] == {"not_utf8": "a.parquet, row 2"}


def test_csv_rows_of_another_length_are_dropped_and_open_quotes_are_not_guessed_at(files: Path) -> None:
    (files / "a.csv").write_text('text,id\n"One, two.",1\nThree,four,2\n"Five\nsix.",3\n\nSeven\n')
    rows, statistics = extract(files, "csv", columns={"id": "id"})
    assert [(row["doc_id"], row["text"]) for row in rows] == [("mine:1", "One, two."), ("mine:3", "Five\nsix.")]
    assert statistics["first_dropped"] == {"wrong_number_of_values": "a.csv, line 3, a.csv, line 7"}
    (files / "b.csv").write_text('text,id\n"One,1\nTwo,2\n')
    assert "b.csv, line 2: unexpected end of data" in refused(files, "csv")


def test_files_of_another_kind_are_named(files: Path) -> None:
    (files / "a.jsonl").write_text(jsonl({"text": "A."}))
    (files / "b.csv").write_text("text\nB.\n")
    (files / "c.jsonl").write_text("")
    rows, statistics = extract(files, "jsonl")
    assert len(rows) == 1
    assert statistics["first_dropped"] == {"unknown_file_type": "b.csv"}
    assert (statistics["files"], statistics["empty_files"]) == (2, 1)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "content", "kind", "columns", "said"),
    [
        ("a.csv", "body,title\nx,y\n", "csv", {}, "a.csv has no column 'text'; it has 'body', 'title'"),
        ("a.jsonl", '{"body": 1}\n{"t": 2}\n', "jsonl", {}, "no row of .*a.jsonl has a column 'text'; a.jsonl, line 1 has 'body'"),
        ("a.jsonl", '{"text": "A.", "t": 2}\n', "jsonl", {"licence": "l"}, "no row of source mine has a column 'l'; .* has 'text', 't'"),
        ("a.jsonl", "[\n{}\n]\n", "jsonl", {}, "no row of .*a.jsonl has a column 'text'; a.jsonl, line 2 has no columns"),
        ("a.jsonl", "x\ny\n", "jsonl", {}, r"not one of its 2 records can be read \(a.jsonl, line 1: broken_line\)"),
        ("a.jsonl", "\ufeffx".encode("utf-16"), "jsonl", {}, "not one of its 1 records can be read"),
        ("a.jsonl.gz", "no gzip", "jsonl", {}, "a.jsonl.gz: breaks off or is broken at byte"),
        ("a.csv", b"text\ncaf\xe9\n", "csv", {}, "a.csv, line 2: not UTF-8"),
        ("a.parquet", b"PAR1 no PAR1", "parquet", {}, "a.parquet can't be read as Parquet"),
        ("a.txt", "x", "jsonl", {}, "has no file that ends in .jsonl, .ndjson, .json; it has a.txt"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    files: Path, name: str, content: str | bytes, kind: str, columns: dict[str, str], said: str
) -> None:
    (files / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert re.search(said, refused(files, kind, columns=columns))


def test_a_wrong_column_of_a_large_file_is_found_soon(files: Path) -> None:
    (files / "a.jsonl").write_text('{"body": "x"}\n' * 5000 + "no JSON\n")
    assert "line 1 has 'body'" in refused(files, "jsonl")


def test_parquet_columns_must_be_there_and_be_text(files: Path) -> None:
    pq.write_table(pa.table({"n": [1], "meta": [{"title": "x"}]}), files / "a.parquet")
    assert "has no column 'text'; it has 'n', 'meta.title'" in refused(files, "parquet")
    assert "column 'n' is of type int64, which is no text" in refused(files, "parquet", columns={"text": "n"})
    assert "no column 'meta.url'" in refused(files, "parquet", columns={"text": "meta.title", "url": "meta.url"})


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_compressed_file_that_breaks_off_is_named_with_the_byte(files: Path, ending: str) -> None:
    data = jsonl(*({"text": hashlib.sha256(str(n).encode()).hexdigest() * 9} for n in range(3000))).encode()
    packed = {".gz": gzip.compress, ".zst": zstandard.compress}[ending](data)
    (files / f"a.jsonl{ending}").write_bytes(packed[: len(packed) // 2])
    said = refused(files, "jsonl")
    assert f"a.jsonl{ending}: breaks off or is broken at byte {len(packed) // 2:,} of {len(packed) // 2:,}" in said
    (files / f"a.jsonl{ending}").write_bytes(packed + packed)  # two streams, as `cat` makes them
    rows, statistics = extract(files, "jsonl")
    assert (len(rows), statistics["dropped"]) == (3000, {"duplicate_doc_id": 3000})


def test_a_bomb_is_stopped(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "FREE_BYTES", 1 << 20)
    (files / "a.jsonl.zst").write_bytes(zstandard.compress(b'{"text": "a"}\n' * 10_000_000))
    assert "unpacks to more than 200 times" in refused(files, "jsonl")


def test_row_groups_are_read_a_little_at_a_time(files: Path) -> None:
    """120 MB of text in one row group, of which a batch is 16 MiB; Arrow's own pool says what was held. (A page is read
    whole; Arrow writes pages of at least `write_batch_size` rows.)"""
    texts = [f"{n} " + "long text " * 12_000 for n in range(1000)]
    pq.write_table(
        pa.table({"text": texts, "blob": texts}), files / "a.parquet", use_dictionary=False, write_batch_size=8
    )
    del texts
    before = pa.total_allocated_bytes()
    seen = [0]
    for number, _ in parquet_rows.rows(files / "a.parquet", ["text"], "text", lambda _: None):
        if number % 20 == 0:
            seen.append(pa.total_allocated_bytes() - before)
    assert max(seen) < 60e6


# ── text files ───────────────────────────────────────────────────────────────────────────────────────────────────────

WRAPPED = """Es war einmal ein König, der hatte eine Tochter, die war so schön, daß
die Sonne selber, die doch so vieles gesehen hat, sich verwunderte, so-
oft sie ihr ins Gesicht schien.

Zutaten:
- drei Eier
- ein Pfund Mehl

Nahe bei dem Schlosse des Königs lag ein großer dunkler Wald, und in dem
Walde unter einer alten Linde war ein Brunnen; dort saß sie, sooft sie wollte.
"""
UNWRAPPED = (
    "Es war einmal ein König, der hatte eine Tochter, die war so schön, daß die Sonne selber, die doch so vieles gesehen hat, "
    "sich verwunderte, sooft sie ihr ins Gesicht schien.\n\nZutaten:\n- drei Eier\n- ein Pfund Mehl\n\nNahe bei dem Schlosse "
    "des Königs lag ein großer dunkler Wald, und in dem Walde unter einer alten Linde war ein Brunnen; dort saß sie, sooft sie wollte."
)
VERSE = """Festgemauert in der Erden
Steht die Form, aus Lehm gebrannt.
Heute muss die Glocke werden,
Frisch, Gesellen, seid zur Hand!"""


def test_one_document_a_file(files: Path) -> None:
    (files / "b.txt").write_bytes(WRAPPED.replace("\n", "\r\n").encode())
    (files / "a").mkdir()
    (files / "a" / "Glocke.TXT").write_bytes(VERSE.encode("utf-16"))
    (files / "c.txt.gz").write_bytes(gzip.compress("Grüße".encode("cp1252")))
    (files / "d.txt").write_bytes(b" \n ")
    (files / "e.txt").write_bytes(b"\x00\x01binary\x00\x02")
    (files / "f.md").write_text("# Markdown")
    rows, statistics = extract(files, "text", language="de", licence="CC0-1.0")
    assert [(row["doc_id"], row["title"], row["text"]) for row in rows] == [
        (f"mine:{digest('a/Glocke.TXT')}", "Glocke", VERSE),
        (f"mine:{digest('b.txt')}", "b", UNWRAPPED),
        (f"mine:{digest('c.txt.gz')}", "c", "Grüße"),
    ]
    assert {(row["language"], row["licence"], row["date"]) for row in rows} == {("de", "CC0-1.0", None)}
    assert statistics["first_dropped"] == {"empty": "d.txt", "not_text": "e.txt", "unknown_file_type": "f.md"}
    assert statistics["encodings"] == {"cp1252": 1, "utf-16": 1, "utf-8": 2}


def zipped(**names: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in names.items():
            archive.writestr(name.replace("__", "/"), data)
    return file.getvalue()


def test_archives_of_text_files(files: Path) -> None:
    (files / "b.zip").write_bytes(
        zipped(**{"x__one.txt": b"One.", "..__two.txt": b"Two.", "three.pdf": b"%PDF", "in.zip": b"PK"})
    )
    with tarfile.open(files / "a.tar.gz", "w:gz") as archive:
        for name in ("z.txt", "y.txt"):
            info = tarfile.TarInfo(name)
            info.size = 5
            archive.addfile(info, io.BytesIO(f"In {name[0]}.".encode()))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    rows, statistics = extract(files, "text")
    assert [(row["doc_id"], row["title"], row["text"]) for row in rows] == [
        (f"mine:{digest('a.tar.gz!/z.txt')}", "z", "In z."),
        (f"mine:{digest('a.tar.gz!/y.txt')}", "y", "In y."),
        (f"mine:{digest('b.zip!/x/one.txt')}", "one", "One."),
    ]
    assert statistics["first_dropped"] == {
        "archive_in_archive": "b.zip!/in.zip",
        "link": "a.tar.gz!/link.txt",
        "unknown_file_type": "b.zip!/three.pdf",
        "unsafe_path": "b.zip!/../two.txt",
    }


GOOGLES = "\nFirst sentence.\n Second sentence.\n\n\nOther document.\n \nThird one.\nIts end."


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst", "a.zip"])
def test_blank_lines_separate_documents_where_lines_are_sentences(files: Path, name: str) -> None:
    data = GOOGLES.encode()
    pack = {"t": bytes, "z": gzip.compress, "s": zstandard.compress, "p": lambda d: zipped(**{"a.txt": d})}
    (files / name).write_bytes(pack[{"a.txt": "t", "a.txt.gz": "z", "a.txt.zst": "s", "a.zip": "p"}[name]](data))
    rows, _ = extract(files, "text", sentence_per_line=True)
    texts = ["First sentence.\nSecond sentence.", "Other document.", "Third one.\nIts end."]
    path = "a.zip!/a.txt" if name == "a.zip" else name
    assert [(row["doc_id"], row["text"]) for row in rows] == [(f"mine:{digest(path, t)}", t) for t in texts]


def test_files_of_sentences_may_be_of_any_size(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.prose.text_files.DOCUMENT_BYTES", 64)
    data = "\ufeffÄpfel.\nBirnen.\n\ncaf".encode() + b"\xe9.\nTwo.\n\n" + b"x" * 40 + b"\n" + b"y" * 40 + b"\n\nLast.\n"
    (files / "a.txt").write_bytes(data)
    rows, statistics = extract(files, "text", sentence_per_line=True)
    assert [row["text"] for row in rows] == ["Äpfel.\nBirnen.", "Last."]
    assert statistics["first_dropped"] == {"larger_than_64_MiB": "a.txt, line 7", "not_utf8": "a.txt, line 4"}


def test_a_file_of_a_paragraph_a_line_and_one_of_hexameters(files: Path) -> None:
    long = "Ein langer Absatz " * 12 + "endet hier."
    (files / "a.txt").write_text(f"{long}\n{long}\n")
    hexameter = (
        "Singe den Zorn, o Göttin, des Peleiaden Achilleus,\nIhn, der entbrannt den Achaiern unnennbaren Jammer erregte,\n"
        "Und viel tapfere Seelen der Heldensöhne zum Ais\nSendete, aber sie selbst zum Raub darstellte den Hunden,\n"
        "Und dem Gevögel umher. So ward Zeus Wille vollendet:"
    )
    (files / "b.txt").write_text(hexameter)
    rows, _ = extract(files, "text")
    assert [row["text"] for row in rows] == [f"{long}\n\n{long}", hexameter]


def test_a_novel_that_was_wrapped_by_hand(files: Path) -> None:
    """The words stay the same, and hardly a line break is left inside paragraphs."""
    (files / "a.txt").symlink_to(shared("data/books/novels/Doyle_Hound_1902.txt"))
    ((row,), _) = extract(files, "text")
    raw = (files / "a.txt").read_text(encoding="utf-8-sig")
    assert row["text"].replace("-", "").split()[:2000] == raw.replace("-", "").split()[:2000]
    assert row["text"].replace("\n\n", "").count("\n") < 0.05 * raw.count("\n")


def test_the_corpus_that_google_ships(files: Path) -> None:
    """sample_text.txt of google-research/bert: documents between blank lines, a sentence a line."""
    source = shared("data/reference/sample_text.txt")
    (files / "sample.txt").symlink_to(source)
    rows, _ = extract(files, "text", sentence_per_line=True)
    blocks = [
        [line.strip() for line in block.split("\n") if line.strip()] for block in source.read_text().split("\n\n")
    ]
    assert [row["text"].split("\n") for row in rows] == [block for block in blocks if block]


# ── golden ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_golden_rows(files: Path) -> None:
    (files / "a.jsonl").write_text(jsonl(*FULL, {"text": "No id.", "key": None}))
    (files / "b.jsonl").write_text(jsonl({"text": "B\x07.\n\n\n\nC.", "key": "b", "name": 5}))
    rows, _ = extract(files, "jsonl", **RECIPE)
    # If this changes, raise STAGE.version of pipeline/own_text.py
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] == "08c18fa6831a119a"


def test_a_parquet_column_of_which_there_are_two_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), folder / "a.pq")
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(DataError, match=r"a\.pq has 2 columns named 'text'"):
        extract_text({"files": folder}, OwnTextConfig(source="s", kind="parquet"), out)
