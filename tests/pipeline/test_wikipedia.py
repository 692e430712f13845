import bz2
import gzip
import json

import pyarrow.parquet as pq
import pytest

from pipeline import wikipedia
from pipeline.config import WikipediaTextConfig
from pipeline.errors import SourceError
from pipeline.wikipedia import extract_text, read_pages, read_site
from tests.conftest import shared

SITEINFO = """<siteinfo><sitename>Wikipedia</sitename><dbname>tlwiki</dbname>
<base>https://tl.wikipedia.org/wiki/Unang_Pahina</base><namespaces><namespace key="-2">Midya</namespace>
<namespace key="0" /><namespace key="6">Talaksan</namespace><namespace key="14">Kategorya</namespace></namespaces></siteinfo>"""


def page(title, page_id, text, ns="<ns>0</ns>", head="", attributes='xml:space="preserve"', model="wikitext"):
    return (
        f"<page><title>{title}</title>{ns}<id>{page_id}</id>{head}<revision><id>{page_id}00</id>"
        f"<parentid>5</parentid><timestamp>2024-02-29T23:59:59Z</timestamp><contributor><username>U</username><id>7</id>"
        f"</contributor><model>{model}</model><format>text/x-wiki</format><text {attributes}>{text}</text></revision></page>"
    )


def dump(*pages, siteinfo=SITEINFO, version="0.11", end="</mediawiki>"):
    start = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-{version}/" version="{version}" xml:lang="tl">'
    return (start + siteinfo + "".join(pages) + end).encode()


def write(folder, data, name="tlwiki-pages-articles.xml"):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    return path


def extract(tmp_path, *datas, **config):
    """(rows, statistics) of a folder of dumps"""
    for number, data in enumerate(datas):
        write(tmp_path / "dump", data, f"part{number}.xml")
    out = tmp_path / "out"
    out.mkdir()
    statistics = extract_text({"dump": tmp_path / "dump"}, WikipediaTextConfig(source="wiki", **config), out)
    assert json.loads((out / "dropped.json").read_text())["dropped"] == statistics["dropped"]
    return pq.read_table(out / "part-00000.parquet").to_pylist(), statistics


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_page_and_its_site(tmp_path):
    path = write(tmp_path, dump(page("A &amp; B", 12, "x &amp;lt; y", head='<redirect title="C" />')))
    (read,) = read_pages(path)
    assert (read.title, read.page_id, read.namespace, read.revision_id) == ("A & B", 12, 0, 1200)
    assert (read.redirect, read.model, read.text, read.timestamp) == (
        "C",
        "wikitext",
        "x &lt; y",
        "2024-02-29T23:59:59Z",
    )
    site = read_site(path)
    assert (site.name, site.language, site.base) == ("tlwiki", "tl", "https://tl.wikipedia.org/wiki/Unang_Pahina")
    assert site.namespaces == ((-2, "Midya"), (0, ""), (6, "Talaksan"), (14, "Kategorya"))


@pytest.mark.parametrize("pack", [bytes, bz2.compress, gzip.compress])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_compression_is_told_by_content_and_encoding_by_the_mark(tmp_path, pack, encoding):
    data = dump(page("Ñ", 1, "日本")).decode().encode(encoding)
    (read,) = read_pages(write(tmp_path, pack(data), "dump.bin"))
    assert (read.title, read.text) == ("Ñ", "日本")


def test_every_stream_of_a_multistream_file_is_read(tmp_path):
    whole = dump(page("A", 1, "a"), page("B", 2, "b"))
    cut = whole.index(b"<page><title>B")
    path = write(tmp_path, bz2.compress(whole[:cut]) + bz2.compress(whole[cut:]))
    assert [read.title for read in read_pages(path)] == ["A", "B"]


def test_a_cut_off_file_gives_its_whole_pages_and_then_an_error(tmp_path):
    text = "".join(chr(0x4E00 + (7 * i * i + i) % 20000) for i in range(100_000))
    data = bz2.compress(dump(page("A", 1, text), page("B", 2, text[::-1]), page("C", 3, "c")), 1)  # blocks of 100 kB
    read = []
    with pytest.raises(
        SourceError, match=r"dump\.bz2: cut off: .*ends at byte [\d,]+ .*last whole page is 'A' \(id 1\)"
    ):
        for each in read_pages(write(tmp_path, data[: int(len(data) * 0.9)], "dump.bz2")):
            read.append(each.title)
    assert read == ["A"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (dump(page("A", 1, "a"), end=""), r"cut off: the XML ends at byte \d+.*'A' \(id 1\)"),
        (dump(page("A", 1, "a"), end="<page><title>B</title></mediawiki>"), "no valid XML at byte .*mismatched tag"),
        (bz2.compress(dump(page("A", 1, "a"))) + b"garbage", r"no bzip2 stream.*at byte [\d,]+.*'A'"),
        (bz2.compress(dump(page("A", 1, "a")))[:-1], "cut off"),
        (gzip.compress(dump(page("A", 1, "a")))[:-9], "cut off"),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]>" + dump(page("A", 1, "&a;")), "declares a document type"),
        (b"<!DOCTYPE x SYSTEM 'http://127.0.0.1:9/x.dtd'>" + dump(page("A", 1, "a")), "declares a document type"),
        (dump(page("A", "x", "a")), "page 'A' has id 'x'"),
        (dump(page("A", 1, "a", ns="<ns>zero</ns>")), "namespace 'zero'"),
        (dump(page("A", 1, "<b>" * 60 + "</b>" * 60)), "nested more than 32 deep"),
        (dump(page("A", 1, "\0")), "no valid XML"),
        (b"", "cut off"),
    ],
)  # fmt: skip
def test_broken_files_are_named(tmp_path, data, message):
    with pytest.raises(SourceError, match=f"dump.xml: .*{message}"):
        list(read_pages(write(tmp_path, data, "dump.xml")))


def test_pages_and_tags_have_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(wikipedia, "MAX_PAGE_CHARACTERS", 100_000)
    monkeypatch.setattr(wikipedia, "MAX_TOKEN_BYTES", 1 << 20)
    with pytest.raises(SourceError, match="a page is larger"):
        list(read_pages(write(tmp_path, dump(page("A", 1, "x" * 200_000)))))
    with pytest.raises(SourceError, match="one tag is larger"):
        list(read_pages(write(tmp_path, dump(page("A", 1, "x", attributes=f'a="{"y" * (4 << 20)}"')))))


def test_a_damaged_stream_in_the_middle(tmp_path):
    good, bad = (
        bz2.compress(dump(page("A", 1, "a"), end="")),
        bytearray(bz2.compress(page("B", 2, "b" * 9000).encode())),
    )
    bad[len(bad) // 2] ^= 0xFF
    with pytest.raises(SourceError, match=r"damaged: .*'A' \(id 1\)"):
        list(read_pages(write(tmp_path, good + bytes(bad) + bz2.compress(b"</mediawiki>"))))


# ── the stage ────────────────────────────────────────────────────────────────────────────────────────────────────────


def case(identity):
    lines = shared("cases/dump.jsonl").read_text(encoding="utf-8").splitlines()
    found = next(each for each in map(json.loads, lines) if each["id"] == identity)
    xml = found["wikitext"]
    return (xml if xml.startswith("<mediawiki") else f"<mediawiki>{xml}</mediawiki>").encode(), found["expect"]


@pytest.mark.parametrize(
    ("identity", "dropped"),
    [
        ("d01", {"empty": 1}),
        ("d02", {"empty": 1}),
        ("d03", {}),
        ("d04", {}),
        ("d05", {"deleted": 1}),
        ("d06", {"redirect": 1}),
        ("d08", {"other_namespace": 1}),
        ("d09", {"other_namespace": 2}),
        ("d10", {"other_model": 1}),
        ("d11", {}),
        ("d14", {}),
    ],
)
def test_shared_cases(tmp_path, identity, dropped):
    data, expected = case(identity)
    rows, statistics = extract(tmp_path, data)
    assert "\n".join(f"{row['title']}\t{row['text']}" for row in rows) == expected
    assert statistics["dropped"] == dropped


def test_rows_of_articles(tmp_path):
    data = dump(
        page("Zweite Seite?", 20, "Second.[[Talaksan:x|y]]"),
        page("A &amp; B/C", 3, "First.\n\nMore."),
        page("Kategorya:X", 4, "Text.", ns="<ns>14</ns>"),
        page("R", 5, "#REDIRECT [[A]]", head='<redirect title="A" />'),
        page("Old R", 6, "#REDIRECT [[A]]"),
        page("Mercury", 7, "It may be:\n* a\n{{disambiguation}}"),
        page("List", 8, "* a\n* b"),
        page("A again", 3, "Text."),
        page("Data", 9, "{}", model="json"),
        page("Gone", 10, "", attributes='deleted="deleted"'),
        page("Nothing", 11, " "),
    )
    rows, statistics = extract(tmp_path, data, language="tl")
    assert [row["doc_id"] for row in rows] == ["tlwiki:3", "tlwiki:20"]
    assert rows[0] == {
        "doc_id": "tlwiki:3",
        "source": "wiki",
        "title": "A & B/C",
        "url": "https://tl.wikipedia.org/wiki/A_%26_B/C",
        "revision_id": "300",
        "language": "tl",
        "licence": "CC-BY-SA-4.0",
        "date": "2024-02-29",
        "text": "First.\n\nMore.",
    }
    assert rows[1]["text"] == "Second." and rows[1]["url"].endswith("/Zweite_Seite%3F")
    assert statistics["dropped"] == {
        "deleted": 1, "disambiguation": 1, "duplicate_page_id": 1, "empty": 1, "no_prose": 1, "other_model": 1,
        "other_namespace": 1, "redirect": 2,
    }  # fmt: skip
    assert statistics["read"] == 11 == statistics["kept"] + sum(statistics["dropped"].values())


def test_several_files_and_what_is_no_dump(tmp_path):
    write(tmp_path / "dump", bz2.compress(b"600:1:A\n"), "index.txt.bz2")
    rows, statistics = extract(tmp_path, dump(page("B", 100, "b")), dump(page("A", 9, "a")))
    assert [row["title"] for row in rows] == ["A", "B"]
    assert statistics["files"] == 2 and statistics["ignored_files"] == ["index.txt.bz2"]


def test_a_folder_without_a_dump(tmp_path):
    write(tmp_path / "dump", b"no", "notes.txt")
    with pytest.raises(SourceError, match=r"no XML dump among the files \(notes.txt\)"):
        extract(tmp_path)


def test_a_truncated_dump_is_not_a_shorter_dump(tmp_path):
    with pytest.raises(SourceError, match="cut off"):
        extract(tmp_path, dump(page("A", 1, "a"), end=""))


def test_old_dumps_without_namespaces(tmp_path):
    data = dump(
        page("A", 1, "Text.", ns=""), page("Kategorya:X", 2, "Text.", ns=""), page("User talk:X", 3, "Text.", ns=""),
        version="0.3",
    )  # fmt: skip
    rows, statistics = extract(tmp_path, data)
    assert [row["title"] for row in rows] == ["A"] and statistics["dropped"] == {"other_namespace": 2}


# ── real dumps ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "wiki", "pages"),
    [
        ("aawiki-20260101-pages-meta-current", "aawiki", 507),  # schema 0.11
        ("bgwiki-latest-pages-articles-shortened", "bgwiki", 3),  # UTF-16
        ("enwiktionary-20150224-pages-articles-multistream", "enwiktionary", 300),
    ],
)
def test_real_dumps(name, wiki, pages):
    path = shared(f"data/wikipedia/{name}.xml.bz2")
    assert read_site(path).name == wiki
    assert sum(1 for _ in read_pages(path)) == pages


def test_a_real_dump_that_is_cut_off():
    read = 0
    with pytest.raises(SourceError, match=r"cut off.*last whole page is 'Alexander Graham Bell' \(id 852\)"):
        for _ in read_pages(shared("data/wikipedia/enwiki-20220720-head.xml.bz2")):
            read += 1
    assert read == 251
