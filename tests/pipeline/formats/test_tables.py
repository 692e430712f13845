"""Tables: quoting and header lines as their writers make them, and errors that name file, line and column."""

import gzip
from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.formats import tables
from pipeline.formats.tables import read_table

ORANGE = (
    "Topic\tTitle\tContent\r\ndiscrete\tstring\tstring\r\nclass\t\tinclude=True\r\n\r\n"
    'Magic\tA "tale"\t"Two\nlines, ""quoted"""\r\n'
)


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_orange_has_three_header_lines(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "tales.tab", ORANGE))
    assert table.columns == ("Topic", "Title", "Content")
    expected = [(5, {"Topic": "Magic", "Title": 'A "tale"', "Content": 'Two\nlines, "quoted"'})]
    assert list(table.rows) == expected
    assert list(table.rows) == expected, "rows can be read again"


def test_orange_with_short_types_and_blank_flags(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "r8.TAB", "Category\tText\nd\tstring\n\nearn\tprofit rose \nacq\tbought\n"))
    assert [row["Category"] for _, row in table.rows] == ["earn", "acq"]


def test_spreadsheets_where_the_comma_is_decimal_write_semicolons(tmp_path: Path) -> None:
    # Excel in Finnish, German, Turkish, … : "Save as CSV" separates by semicolons
    text = '\ufeffno;"teksti, pitkä";hinta\r\n1;"Yksi; kaksi, kolme.";2,5\r\n'
    table = read_table(write(tmp_path, "a.csv", text))
    assert table.columns == ("no", "teksti, pitkä", "hinta")
    assert list(table.rows) == [(2, {"no": "1", "teksti, pitkä": "Yksi; kaksi, kolme.", "hinta": "2,5"})]
    assert read_table(write(tmp_path, "b.csv", "a,b;c\n1,2;3\n")).columns == ("a", "b;c")
    assert list(read_table(write(tmp_path, "c.csv", "text\nOne; two.\n")).rows) == [(2, {"text": "One; two."})]
    assert read_table(write(tmp_path, "d.tsv", "a;b\tc\n1\t2\n")).columns == ("a;b", "c")


def test_csv_and_tsv_have_one(tmp_path: Path) -> None:
    text = '\ufefftext,label\n"a, b",x\n\nc,y\n'
    assert list(read_table(write(tmp_path, "a.csv", text)).rows) == [
        (2, {"text": "a, b", "label": "x"}),
        (4, {"text": "c", "label": "y"}),
    ]
    table = read_table(write(tmp_path, "a.tsv", text.replace(",", "\t")))
    assert next(iter(table.rows)) == (2, {"text": "a\t b", "label": "x"})


def test_a_value_may_be_as_long_as_a_book(tmp_path: Path) -> None:
    ((_, row),) = read_table(write(tmp_path, "a.tsv", "text\n" + "word " * 100_000 + "\n")).rows
    assert len(row["text"]) == 500_000


def test_tables_may_be_compressed(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a.CSV.gz", gzip.compress(b"text,n\nOne.,1\n")))
    assert list(table.rows) == [(2, {"text": "One.", "n": "1"})]
    assert list(table.records()) == [(2, ["One.", "1"])]
    with pytest.raises(DataError, match=r"b\.tsv\.gz: breaks off or is broken at byte"):
        read_table(write(tmp_path, "b.tsv.gz", gzip.compress(b"text\nOne.\n")[:-9]))


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_FIELD_CHARACTERS", 1000)
    table = read_table(write(tmp_path, "a.csv", "text\nshort\n" + "x" * 1001 + "\n"))
    with pytest.raises(DataError, match=r"a\.csv has a line of more than 1,000 characters"):
        list(table.rows)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", "", r"a\.xlsx is not a table"),
        ("a.csv", "", r"a\.csv is empty"),
        ("a.csv", "x,y,x\n", "line 1: column 'x' is named twice"),
        ("a.csv", ",".join(f"c{n}" for n in range(300_000)), "line 1 names 300,000 columns, and 10,000 is the most"),
        ("a.csv", "x,y\n1,2\n\n3\n", "line 4: 1 values, but the header names 2 columns \\('x', 'y'\\)"),
        ("a.csv", 'x,y\n1,"2\n3,4\n', "line 2: unexpected end of data"),
        ("a.csv", 'x\n"a" b\n', "line 2: ',' expected after '\"'"),
        ("a.csv", b"x\nfine\nna\xefve\n", "line 3: not UTF-8"),
        ("a.tab", "text\tlabel\nGood.\tx\nBad.\ty\n", "line 2: a .tab file"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_table(write(tmp_path, name, content)).rows)


def test_a_missing_column_or_file_is_named(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a.csv", "body,label\n"))
    table.require(["label"])
    with pytest.raises(DataError, match="no column 'text'; it has 'body', 'label'"):
        table.require(["label", "text"])
    with pytest.raises(DataError, match=r"b\.csv can't be read: No such file"):
        read_table(tmp_path / "b.csv")


def test_a_message_names_the_first_of_many_columns(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a.csv", ",".join(f"c{n}" for n in range(10_000)) + "\n1\n"))
    with pytest.raises(DataError, match="it has 'c0', 'c1'.*, 'c19' and 9,980 more\n"):
        table.require(["text"])
    with pytest.raises(DataError, match="1 values, but the header names 10,000 columns .*'c19' and 9,980 more"):
        list(table.rows)
