"""Reading dumps: every notation and packing gives the same pages, and what is broken is named."""

import bz2
import gzip
import re
import zlib

import pytest

from pipeline import wikipedia
from pipeline.errors import SourceError
from pipeline.wikipedia import dump_files, read_pages, read_site
from tests.conftest import shared
from tests.pipeline.dumps import dump, page, write

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


@pytest.mark.parametrize("cut", [0.9, 0.5])
def test_a_small_gzip_file_that_is_cut_off_names_its_last_page_and_both_offsets(tmp_path, cut):
    texts = ["".join(chr(97 + (seed * i * i + i // 7) % 26) for i in range(3000)) for seed in range(1, 11)]
    whole = dump(*(page(f"T{number}", number, text) for number, text in enumerate(texts, start=1)))
    data = gzip.compress(whole)[: int(len(gzip.compress(whole)) * cut)]
    assert len(data) < 1 << 20
    there = zlib.decompressobj(wbits=31).decompress(data)
    last = there.count(b"</page>")
    assert 0 < last < 10
    read = []
    with pytest.raises(SourceError) as raised:
        for each in read_pages(write(tmp_path, data, "dump.gz")):
            read.append(each.page_id)
    assert read == list(range(1, last + 1))
    assert raised.value.what == (
        f"dump.gz: cut off: its compressed data ends at byte {len(data):,}, byte {len(there):,} of the XML; "
        f"the last whole page is 'T{last}' (id {last})"
    )


def test_damage_in_a_small_gzip_file_is_placed(tmp_path):
    whole = dump(page("A", 1, "a" * 100), page("B", 2, "b"))
    data = bytearray(gzip.compress(whole))
    data[-6] ^= 0xFF  # of the checksum
    with pytest.raises(SourceError, match=rf"damaged: CRC.*, after byte {len(whole):,} of the XML; .*'B' \(id 2\)"):
        list(read_pages(write(tmp_path, bytes(data), "dump.gz")))
    with pytest.raises(
        SourceError, match=rf"damaged: Not a gz.*, after byte {len(whole):,} of the XML; .*'B' \(id 2\)"
    ):
        list(read_pages(write(tmp_path, gzip.compress(whole) + b"more", "dump.gz")))


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
        (dump(page("A", 1, "a"), version="0.12"), r"export schema '0\.12', and 0\.1 to 0\.11 are known"),
        (dump(page("A", 1, "a"), version="1.0"), r"export schema '1\.0'"),
        (dump(page("A", 1, "a", attributes=" ".join(f'a{n}=""' for n in range(101)))), "a tag has 101 attributes"),
        (dump(page("A", 1, "a", attributes=f'a="{"y" * 6_000_000}"')), "one tag is larger than 4 MiB"),
        (bz2.compress(dump(page("A", 1, "a"), end=" " * 99_000_000)), "unpack to .*, more than 5,000 times as many"),
    ],
)  # fmt: skip
def test_broken_files_are_named(tmp_path, data, message):
    with pytest.raises(SourceError, match=f"dump.xml: .*{message}"):
        list(read_pages(write(tmp_path, data, "dump.xml")))


@pytest.mark.parametrize("version", ["0.1", "0.3", "0.10", "0.11"])
def test_every_export_schema_is_read(tmp_path, version):
    assert [each.title for each in read_pages(write(tmp_path, dump(page("A", 1, "a"), version=version)))] == ["A"]


def test_text_that_packs_well_is_no_bomb(tmp_path):
    """One sentence over and over: 3,300 times smaller."""
    text = "The old river crosses the small bridge near the north. " * 1_100_000
    assert [each.title for each in read_pages(write(tmp_path, bz2.compress(dump(page("A", 1, text)))))] == ["A"]


def test_pages_and_tags_have_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(wikipedia, "MAX_PAGE_CHARACTERS", 100_000)
    monkeypatch.setattr(wikipedia, "MAX_TOKEN_BYTES", 1 << 20)
    with pytest.raises(SourceError, match="a page is larger"):
        list(read_pages(write(tmp_path, dump(page("A", 1, "x" * 200_000)))))
    with pytest.raises(SourceError, match="one tag is larger"):
        list(read_pages(write(tmp_path, dump(page("A", 1, "x", attributes=f'a="{"y" * (4 << 20)}"')))))


def test_a_site_has_some_namespaces_and_their_keys_are_short_numbers(tmp_path):
    def with_namespaces(keys):
        named = "".join(f'<namespace key="{key}">N</namespace>' for key in keys)
        return re.sub(b"(?s)<namespace .*</namespace>", named.encode(), dump(page("A", 1, "a")), count=1)

    path = write(tmp_path, with_namespaces(["-2", "0", "--5", "9" * 5000, "x"]))
    assert [each.title for each in read_pages(path)] == ["A"]
    assert read_site(path).namespaces == ((-2, "N"), (0, "N"))
    with pytest.raises(SourceError, match="names more than 1,000 namespaces"):
        list(read_pages(write(tmp_path, with_namespaces(range(1_200_000)))))


def test_a_damaged_stream_in_the_middle(tmp_path):
    good, bad = (
        bz2.compress(dump(page("A", 1, "a"), end="")),
        bytearray(bz2.compress(page("B", 2, "b" * 9000).encode())),
    )
    bad[len(bad) // 2] ^= 0xFF
    with pytest.raises(SourceError, match=r"damaged: .*'A' \(id 1\)"):
        list(read_pages(write(tmp_path, good + bytes(bad) + bz2.compress(b"</mediawiki>"))))


def test_files_of_a_dump_stand_in_numeric_order_and_others_are_told_apart(tmp_path):
    for name in ("wiki2-p9p10.xml", "wiki1-p1p8.xml", "wiki10-p100p200.xml"):
        write(tmp_path, dump(page("A", 1, "a")), name)
    for name, data in {"SHA256SUMS": b"0 *wiki", "_SUCCESS": b"", "index.txt.bz2": bz2.compress(b"600:1:A\n")}.items():
        write(tmp_path, data, name)
    files, others = dump_files(tmp_path)
    assert [path.name for path in files] == ["wiki1-p1p8.xml", "wiki2-p9p10.xml", "wiki10-p100p200.xml"]
    assert sorted(path.name for path in others) == ["SHA256SUMS", "_SUCCESS", "index.txt.bz2"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<html>404</html>", "its root is <html>, and a dump's is <mediawiki>"),
        (b"<!DOCTYPE mediawiki><mediawiki/>", "it declares a document type"),
        (b"", "cut off"),
        (bz2.compress(b""), "cut off"),
        (b"\x00\x00\x00\x00", "no valid XML"),
    ],
)
def test_what_calls_itself_a_dump_and_is_none_is_not_left_out(tmp_path, data, said):
    write(tmp_path, dump(page("A", 1, "a")), "wiki1.xml")
    write(tmp_path, data, "wiki2.xml.bz2" if data[:2] == b"BZ" else "wiki2.xml")
    files, others = dump_files(tmp_path)
    assert len(files) == 2 and not others
    with pytest.raises(SourceError, match=rf"wiki2\.xml.*{said}"):
        list(read_pages(files[1]))


def test_a_comment_before_the_root_and_a_prefix_are_xml(tmp_path):
    text = dump(page("A", 1, "a"))
    plain = text if isinstance(text, str) else text.decode()
    path = write(tmp_path, ("<!-- made by x -->" + plain.replace('<?xml version="1.0"?>', "")).encode(), "wiki.xml")
    assert [each.title for each in read_pages(path or tmp_path / "wiki.xml")] == ["A"]


def test_an_id_beyond_all_bounds_is_named(tmp_path):
    write(tmp_path, dump(page("A", 2**63, "a")), "wiki.xml")
    with pytest.raises(SourceError, match="page 'A' has id '9223372036854775808'.*beyond all bounds"):
        list(read_pages(tmp_path / "wiki.xml"))


def test_a_folder_without_a_dump(tmp_path):
    write(tmp_path, b"no", "notes.txt")
    with pytest.raises(SourceError, match=r"no XML dump among the files \(notes.txt\)"):
        dump_files(tmp_path)


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
