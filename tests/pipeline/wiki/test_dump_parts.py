"""A dump read in parts gives the pages of the dump read in one go, however it is packed and cut."""

import bz2
import gzip
import random
from pathlib import Path

import pytest

from pipeline.errors import SourceError
from pipeline.wiki import dump_parts
from pipeline.wiki.dump_parts import (
    DOUBTFUL,
    Doubtful,
    Part,
    PartReader,
    Seam,
    cut,
    gaps,
)
from pipeline.wikipedia import read_pages, read_site
from pipeline.wikitext import Site
from tests.conftest import shared
from tests.pipeline.dumps import dump, multistream, page, write
from tests.pipeline.wiki.test_bz2_blocks import FALSE_BLOCKS, FALSE_STREAMS


def pages(count, seed=1):
    """Pages of very different length; every tenth or so is a template."""
    source = random.Random(seed)
    for number in range(1, count + 1):
        text = " ".join(str(source.random()) for _ in range(int(source.expovariate(1 / 40))))
        template = source.random() < 0.1
        yield page(f"{'Suleras:' if template else ''}T{number}", number, text, f"<ns>{10 * template}</ns>")


SITEINFO = (
    """<siteinfo><dbname>tlwiki</dbname><namespaces><namespace key="10">Suleras</namespace></namespaces></siteinfo>"""
)
XML = dump(*pages(500), siteinfo=SITEINFO)
PACKED = {
    "one stream": bz2.compress(XML, 1),
    "multistream": b"".join(multistream(XML, 20)),
    "streams cut anywhere": b"".join(bz2.compress(XML[i : i + 5001]) for i in range(0, len(XML), 5001)),
    "plain": XML,
    "gzip": gzip.compress(XML),
    "utf-16": bz2.compress(XML.decode().encode("utf-16")),
}


def small_parts(monkeypatch, number):
    monkeypatch.setattr(dump_parts, "PARTS", number)
    monkeypatch.setattr(dump_parts, "SMALLEST", 1)


def read(parts, site):
    """(pages, seams) of all parts"""
    found, seams = [], []
    for part in parts:
        reader = PartReader(part, site)
        try:
            found += reader.pages()
        except Doubtful:
            seams.append(DOUBTFUL)
        else:
            seams.append(Seam(reader.first, reader.following))
    return found, seams


@pytest.mark.parametrize("number", [1, 2, 7, 30, 300])
@pytest.mark.parametrize("packing", PACKED)
def test_parts_together_hold_every_page_once(tmp_path, monkeypatch, packing, number):
    path = write(tmp_path, PACKED[packing], "dump.xml")
    site = read_site(path)
    small_parts(monkeypatch, number)
    parts = cut([path])
    assert len(parts) == (1 if packing in ("gzip", "utf-16") else number)
    found, seams = read(parts, site)
    assert found == list(read_pages(path))
    assert gaps(parts, seams) == []


def test_streams_of_three_bytes_cut_every_tag(tmp_path, monkeypatch):
    xml = dump(*pages(8), siteinfo=SITEINFO)
    path = write(tmp_path, b"".join(bz2.compress(xml[i : i + 3]) for i in range(0, len(xml), 3)))
    for number in (2, 9, 100):
        small_parts(monkeypatch, number)
        parts = cut([path])
        found, seams = read(parts, read_site(path))
        assert found == list(read_pages(path)) and gaps(parts, seams) == []


@pytest.mark.parametrize("text", [FALSE_BLOCKS, FALSE_STREAMS], ids=["block", "stream header"])
def test_what_looks_like_a_block_or_a_stream_inside_data_loses_no_page(tmp_path, monkeypatch, text):
    xml = dump(page("A", 1, "a"), page("B", 2, text.decode()), *(page("C", number, "c") for number in range(3, 300)))
    path = write(tmp_path, bz2.compress(xml, 1))
    small_parts(monkeypatch, 9)
    parts = cut([path])
    found, seams = read(parts, read_site(path))
    assert [p.page_id for p in found] == list(range(1, 300)) and gaps(parts, seams) == []


def test_sizes_of_parts_follow_from_the_dump_alone(tmp_path):
    def count(megabytes, begin=b"BZh9"):
        path = write(tmp_path, begin)
        with path.open("r+b") as file:
            file.truncate(megabytes << 20)  # sparse
        return len(cut([path]))

    assert [count(1), count(8), count(100), count(25_000)] == [1, 2, 25, 781]
    assert count(400, b"<mediawiki>" + b" " * 2000) == 25  # XML is about four times its .bz2


# ── parts that do not fit ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_page_tag_in_a_comment_or_cdata_begins_no_page(tmp_path, monkeypatch):
    """No dump holds one, but XML allows it."""
    false = "<![CDATA[" + "<page><title>No</title><id>99</id>" * 200 + "]]>"
    comment = "<!-- " + "<page><title>No</title><ns>10</ns><id>99</id></page> " * 200 + " -->"
    xml = dump(*pages(20), page("X", 400, false), comment, *pages(20, seed=2), siteinfo=SITEINFO)
    path = write(tmp_path, xml)
    site = read_site(path)
    small_parts(monkeypatch, 25)
    parts = cut([path])
    want = list(read_pages(path))
    rounds = 0
    while True:
        found, seams = read(parts, site)
        joined = dict(gaps(parts, seams))
        if not joined:
            break
        rounds += 1
        kept = [n for n in range(len(parts)) if not any(a < n <= b for a, b in joined.items())]
        parts = [parts[n].to(parts[joined[n]]) if n in joined else parts[n] for n in kept]
    assert found == want
    assert rounds and len(parts) > 5


PARTS = [Part(file=f, path=Path("x"), start=s, end=s + 1, size=3, kind="plain") for f in (0, 1) for s in range(3)]


@pytest.mark.parametrize(
    ("seams", "joined"),
    [
        ([(0, 10), (10, 20), (20, None), (0, 10), (10, None), (None, None)], []),
        ([(0, 20), (None, None), (20, None), (0, None), (None, None), (None, None)], []),
        ([(0, 10), (11, 20), (20, None), (0, 5), (5, 9), (9, None)], [(0, 1)]),
        ([(0, 10), (10, 20), (19, None), (0, 5), (5, 9), (9, None)], [(1, 2)]),
        ([(0, 10), (-1, None), (20, None), (0, 5), (5, 9), (9, None)], [(0, 2)]),
        ([(0, 10), (None, None), (None, None), (0, 5), (5, 9), (9, None)], [(0, 2)]),
        ([(0, 10), (10, 20), (20, None), (0, 5), (5, 9), (None, None)], [(4, 5)]),
    ],
)
def test_gaps(seams, joined):
    assert gaps(PARTS, [Seam(*seam) for seam in seams]) == joined


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("packing", ["one stream", "multistream"])
@pytest.mark.parametrize("share", [0.05, 0.35, 0.6, 0.98])
@pytest.mark.parametrize("what", ["cut off", "damaged"])
def test_damage_anywhere_is_named_with_the_last_whole_page(tmp_path, monkeypatch, packing, share, what):
    data = bytearray(PACKED[packing])
    place = int(len(data) * share)
    if what == "cut off":
        del data[place:]
    else:
        data[place] ^= 0x10
    path = write(tmp_path, bytes(data), "dump.xml.bz2")
    before = []
    with pytest.raises(SourceError):
        before.extend(p.title for p in read_pages(path))
    small_parts(monkeypatch, 9)
    with pytest.raises(SourceError, match=r"dump\.xml\.bz2: .*byte [\d,]+.*(last whole page|no whole page)") as raised:
        for part in cut([path]):
            list(PartReader(part, Site()).pages())
    said = str(raised.value)
    named = int(said.rpartition("(id ")[2].partition(")")[0]) if "(id" in said else 0
    assert named == len(before)


def test_a_real_multistream_dump_and_its_index(monkeypatch):
    path = shared("data/wikipedia/enwiktionary-20150224-pages-articles-multistream.xml.bz2")
    small_parts(monkeypatch, 12)
    parts = cut([path])
    found, seams = read(parts, read_site(path))
    assert found == list(read_pages(path)) and len(found) == 300 and gaps(parts, seams) == []
