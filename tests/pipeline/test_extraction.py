"""The stage on small dumps, in Beam's own processes where that is what a test is about."""

import bz2
import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline import extraction, progress
from pipeline.config import WikipediaTextConfig
from pipeline.errors import SourceError, StoreError
from pipeline.extraction import extract_text, useful_workers
from pipeline.settings import BeamSettings
from pipeline.wiki import dump_parts
from pipeline.wiki.dump_parts import Part
from tests.conftest import shared
from tests.pipeline.dumps import dump, index, multistream, page, write
from tests.pipeline.killing import kill_a_worker
from tests.tiny import paragraphs


@pytest.fixture
def same_process(monkeypatch):
    """Spares the seconds that it takes to start a process, where a test is about something else."""
    from pipeline.beam import extraction_beam

    monkeypatch.setattr(
        "pipeline.beam.beam_process.run", lambda _, plan, scratch, poll: (extraction_beam.run(plan), poll())
    )


def small_parts(monkeypatch, number):
    monkeypatch.setattr(dump_parts, "PARTS", number)
    monkeypatch.setattr(dump_parts, "SMALLEST", 1)


def beam_workers(monkeypatch, folder, workers):
    """As many worker processes as this, however small the dump is."""
    settings = folder / f"settings-{workers}.yaml"
    settings.write_text(f"beam: {{workers: {workers}}}\n")
    monkeypatch.setenv("BERT_SETTINGS", str(settings))
    monkeypatch.setattr(extraction, "WORK_PER_WORKER", 1)


def run(tmp_path, files, name="out", **config):
    """(bytes of all files, statistics) of a dump of {name: bytes}"""
    folder = tmp_path / f"dump of {name}"
    for file, data in files.items():
        write(folder, data, file)
    out = tmp_path / name
    out.mkdir()
    statistics = extract_text({"dump": folder}, WikipediaTextConfig(source="wiki", **config), out)
    written = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert set(written) >= {"dropped.json", "part-00000.parquet"}
    assert json.loads(written["dropped.json"])["dropped"] == statistics["dropped"]
    return written, statistics


def extract(tmp_path, *datas, **config):
    """(rows, statistics) of files of a dump"""
    _, statistics = run(tmp_path, {f"part{number}.xml": data for number, data in enumerate(datas)}, **config)
    return pq.read_table(tmp_path / "out" / "part-00000.parquet").to_pylist(), statistics


# ── what becomes an article ──────────────────────────────────────────────────────────────────────────────────────────


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
def test_shared_cases(same_process, tmp_path, identity, dropped):
    data, expected = case(identity)
    rows, statistics = extract(tmp_path, data)
    assert "\n".join(f"{row['title']}\t{row['text']}" for row in rows) == expected
    assert statistics["dropped"] == dropped


def test_rows_of_articles(same_process, tmp_path):
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
    assert statistics["sample"] == ["A & B/C", "Zweite Seite?"]
    assert statistics["row_count"] == 2 and statistics["characters_millions"] == pytest.approx(20e-6)


def test_pages_of_nothing_that_can_be_seen_are_dropped(same_process, tmp_path):
    unseen = ["&#8203;", "\u200b\ufeff\u2060\u00ad", "\u3164", "\u2800\ufe0f", "\u115f\u1160\uffa0"]
    markup = ["'''\u3164'''", "{{x}}\u200b", "<br>\uffa0", "&amp;#12644;"]
    pages = [page(f"T{number}", number, text.replace("<", "&lt;")) for number, text in enumerate([*unseen, *markup])]
    rows, statistics = extract(tmp_path, dump(*pages, page("Seen", 90, "\u200bא\u3164.")))
    assert [row["doc_id"] for row in rows] == ["tlwiki:90"]
    assert statistics["dropped"] == {"empty": 5, "no_prose": 4}


def test_old_dumps_without_namespaces(same_process, tmp_path):
    data = dump(
        page("A", 1, "Text {{x}}.", ns=""), page("Kategorya:X", 2, "Text.", ns=""), page("User talk:X", 3, "T.", ns=""),
        page("Template:X", 4, "word", ns=""), version="0.3",
    )  # fmt: skip
    rows, statistics = extract(tmp_path, data)
    assert [row["title"] for row in rows] == ["A"] and statistics["dropped"] == {"other_namespace": 3}
    assert statistics["template_pages"] == 1


# ── the same table, whatever the packing and the workers ─────────────────────────────────────────────────────────────


def articles(count, first=1):
    """Articles with templates in them, and the pages of these templates."""
    for number in range(first, first + count):
        text = (
            "\n\n".join(paragraphs(number, 3))
            + f" It was {{{{t{number % 7}|soft{number % 3}}}}} there, {{{{unknown|{number}}}}}."
        )
        yield page(f"Article {number}", number, text)
        if number % 50 < 7:
            yield page(f"Template:T{number % 7}", 10_000 + number, "''{{{1}}}''", ns="<ns>10</ns>")


XML = dump(*articles(300))
TITLES = [(n, part.partition("</title>")[0]) for n, part in enumerate(XML.decode().split("<title>")[1:], 1)]
STREAMS = multistream(XML, 10)
MULTI = b"".join(STREAMS)
NAME, INDEX = "w-multistream.xml.bz2", "w-multistream-index.txt.bz2"
GOOD_INDEX = index(STREAMS, TITLES, 10).decode()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What one worker makes of the plain XML in one part."""
    from pipeline.beam import extraction_beam

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.beam.beam_process.run", lambda _, plan, scratch, poll: extraction_beam.run(plan))
        return run(tmp_path_factory.mktemp("expected"), {"w.xml": XML})


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_same_bytes(expected, tmp_path, monkeypatch, workers):
    small_parts(monkeypatch, 9)
    beam_workers(monkeypatch, tmp_path, workers)
    heard = []
    with progress.listen(lambda p: heard.append((p.unit, p.done, p.total))):
        written, statistics = run(tmp_path, {NAME: MULTI, INDEX: bz2.compress(GOOD_INDEX.encode())})
    assert written == expected[0]
    assert statistics["parts"] == 9 and statistics["streams"] == len(STREAMS)
    same = ("row_count", "dropped", "unhandled_templates", "sample", "template_pages", "wikitext_characters_millions")
    assert {name: statistics[name] for name in same} == {name: expected[1][name] for name in same}
    assert ("bytes extracted", len(MULTI), len(MULTI)) in heard


INDEXES = {
    "a right index": GOOD_INDEX,
    "an index beside the streams": GOOD_INDEX.replace("1:", "4:"),
    "an index of another dump": "600:1:A\n99999999:2:Template:B\n",
}


@pytest.mark.parametrize("packing", ["one stream", "multistream", "cut anywhere", "gzip", "utf-16", *INDEXES])
def test_packing_and_index_make_no_difference(expected, same_process, tmp_path, monkeypatch, packing):
    small_parts(monkeypatch, 7)
    if packing in INDEXES:
        files = {NAME: MULTI, INDEX: bz2.compress(INDEXES[packing].encode())}
    else:
        packed = {
            "one stream": bz2.compress(XML, 1),
            "multistream": MULTI,
            "cut anywhere": b"".join(bz2.compress(XML[i : i + 3001]) for i in range(0, len(XML), 3001)),
            "gzip": gzip.compress(XML),
            "utf-16": XML.decode().encode("utf-16"),
        }
        files = {NAME: packed[packing]}
    written, statistics = run(tmp_path, files)
    assert written == expected[0]
    assert statistics["unhandled_templates"] == expected[1]["unhandled_templates"]


def test_templates_without_a_rule_are_counted_in_one_page_of_eight(expected):
    (first,) = [each for each in expected[1]["unhandled_templates"] if each["name"] == "unknown"]
    assert (first["count"], first["pages"]) == (37, 37)  # ids 8, 16, … 296
    assert "{{unknown|8}}" in first["example"]


def test_wrappers_and_redirects_that_stand_anywhere_in_the_dump_are_used(same_process, tmp_path, monkeypatch):
    small_parts(monkeypatch, 4)
    filler = list(articles(40, first=100))
    rows, statistics = extract(
        tmp_path,
        dump(
            page("A", 1, "The {{old name|quick|slow}} fox jumps."),
            *filler,
            page("Template:Old name", 2, "#REDIRECT [[Template:Strong word]]", ns="<ns>10</ns>"),
            *articles(40, first=200),
            page("Template:Strong word", 3, "&lt;noinclude>{{doc}}&lt;/noinclude>'''{{{1}}}'''", ns="<ns>10</ns>"),
        ),
    )
    assert statistics["parts"] == 4
    assert rows[0]["text"] == "The quick fox jumps."


def test_a_page_tag_that_begins_no_page_is_seen_through(same_process, tmp_path, monkeypatch):
    comment = "<!-- " + "<page><title>No</title><ns>0</ns><id>9</id>" * 300 + " -->"
    data = dump(*articles(20), comment, *articles(20, first=100))
    small_parts(monkeypatch, 15)
    rows, statistics = extract(tmp_path, data)
    assert len(rows) == 40 and 1 < statistics["parts"] < 15


# ── several files, order, repeated ids ───────────────────────────────────────────────────────────────────────────────


def test_files_are_one_dump_in_numeric_order_and_of_equal_ids_the_first_stays(same_process, tmp_path, monkeypatch):
    small_parts(monkeypatch, 12)
    files = {
        "w10-p1p400.xml.bz2": bz2.compress(dump(*articles(200), page("Last file", 55, "Lost."))),
        "w9-p90p600.xml": dump(*articles(200, first=90), page("First file", 55, "Kept.")),
        "SHA256SUMS": b"0 *w9",
        "index.txt.bz2": bz2.compress(b"600:1:A\n"),
    }
    _, statistics = run(tmp_path, files)
    rows = pq.read_table(tmp_path / "out" / "part-00000.parquet").to_pylist()
    ids = [int(row["doc_id"].partition(":")[2]) for row in rows]
    assert ids == list(range(1, 290))
    assert rows[54]["title"] == "First file"
    assert statistics["dropped"]["duplicate_page_id"] == 111 + 2  # 90 … 200 twice, 55 three times
    assert statistics["files"] == 2 and statistics["ignored_files"] == ["SHA256SUMS", "index.txt.bz2"]


def test_pages_in_any_order_come_out_by_id(same_process, tmp_path, monkeypatch):
    small_parts(monkeypatch, 10)
    made = list(articles(60))
    rows, _ = extract(tmp_path, dump(*reversed(made)), dump(*made[::2], *made[1::2]))
    assert [row["doc_id"] for row in rows] == [f"tlwiki:{number}" for number in range(1, 61)]


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.7, 0.99])
def test_a_truncated_dump_is_not_a_shorter_dump(same_process, tmp_path, monkeypatch, share):
    small_parts(monkeypatch, 7)
    with pytest.raises(SourceError, match=rf"{NAME}: cut off.*byte [\d,]+"):
        run(tmp_path, {NAME: MULTI[: int(len(MULTI) * share)]})
    assert list((tmp_path / "out").iterdir()) == []


def test_a_dump_that_ends_between_two_streams_is_cut_off(same_process, tmp_path, monkeypatch):
    small_parts(monkeypatch, 7)
    with pytest.raises(SourceError, match=r"cut off: the XML ends.*last whole page is 'Article 80'"):
        run(tmp_path, {NAME: b"".join(multistream(dump(*articles(80, first=8)), 20)[:-2])})


def test_an_error_in_a_worker_reaches_the_stage(tmp_path, monkeypatch):
    small_parts(monkeypatch, 7)
    beam_workers(monkeypatch, tmp_path, 2)
    damaged = bytearray(MULTI)
    damaged[len(MULTI) * 2 // 3] ^= 1
    with pytest.raises(SourceError, match=rf"{NAME}: damaged.*last whole page is '\w+ \d+"):
        run(tmp_path, {NAME: bytes(damaged)})
    assert list((tmp_path / "out").iterdir()) == []


EXTRACT = """
import sys
from pathlib import Path
from pipeline import extraction
from pipeline.wiki import dump_parts
from pipeline.config import WikipediaTextConfig
dump_parts.PARTS, dump_parts.SMALLEST, extraction.WORK_PER_WORKER = 400, 1, 1
extraction.extract_text({"dump": Path(sys.argv[1])}, WikipediaTextConfig(source="wiki"), Path(sys.argv[2]))
"""


def start(tmp_path):
    """A run of some seconds with two workers, of which some parts are done."""
    write(tmp_path / "dump", dump(*articles(6000)), "w.xml")
    out = tmp_path / "out"
    out.mkdir()
    child = subprocess.Popen([sys.executable, "-c", EXTRACT, tmp_path / "dump", out], stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    while not list(out.glob(".scratch-*/extracted/*")):
        assert child.poll() is None and time.monotonic() < limit, child.stderr.read()
        time.sleep(0.005)
    return child, out


def test_a_worker_that_dies_ends_the_run_and_leaves_nothing(tmp_path):
    child, out = start(tmp_path)
    kill_a_worker(child, out)


def test_what_a_killed_run_left_is_swept_by_the_next(same_process, tmp_path):
    child, out = start(tmp_path)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stderr.close()
    assert list(out.glob(".scratch-*"))
    write(tmp_path / "dump", XML, "w.xml")
    extract_text({"dump": tmp_path / "dump"}, WikipediaTextConfig(source="wiki"), out)
    assert sorted(path.name for path in out.iterdir()) == ["dropped.json", "part-00000.parquet"]


def test_too_small_a_disk_is_refused_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(extraction, "DISK_PER_BZ2", 1e15)
    with pytest.raises(StoreError, match="need about .* are free"):
        run(tmp_path, {NAME: MULTI})
    assert list((tmp_path / "out").iterdir()) == []


# ── plan ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_small_dumps_get_one_worker():
    def parts(megabytes, count):
        size = megabytes << 20
        return [Part(file=0, path=Path("x"), start=0, end=size // count, size=size, kind="bz2")] * count

    many = BeamSettings(workers=16)
    assert [useful_workers(many, parts(mb, n)) for mb, n in ((3, 1), (11, 3), (13, 3), (100, 25), (30, 1))] == [
        1, 1, 2, 9, 1,
    ]  # fmt: skip
    assert useful_workers(many, parts(25_000, 781)) == 16


def test_the_stage_module_is_light():
    code = "import sys, pipeline.extraction; print({'apache_beam', 'tokenizers', 'polars'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"


# ── real dumps ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_real_multistream_dump_with_and_without_its_index(same_process, tmp_path, monkeypatch):
    name = "enwiktionary-20150224-pages-articles-multistream"
    data = shared(f"data/wikipedia/{name}.xml.bz2").read_bytes()
    listed = shared(f"data/wikipedia/{name}-index.txt.bz2").read_bytes()
    whole, statistics = run(tmp_path, {f"{name}.xml.bz2": data}, "whole")
    assert statistics["read"] == 300
    small_parts(monkeypatch, 8)
    indexed, statistics = run(tmp_path, {f"{name}.xml.bz2": data, f"{name}-index.txt.bz2": listed}, "indexed")
    single, _ = run(tmp_path, {"single.xml.bz2": bz2.compress(bz2.decompress(data))}, "single")
    assert whole == indexed == single
    assert statistics["ignored_files"] == [f"{name}-index.txt.bz2"] and statistics["parts"] == 8
