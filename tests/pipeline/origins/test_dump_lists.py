"""Lists of checksums and indexes that lie beside dump files, in the checks of files from a local path."""

import bz2
import hashlib
import shutil

import pytest

from pipeline.config import FilesConfig
from pipeline.sources import fetch_files
from pipeline.suites import DOES_NOT_APPLY, profile, validate
from tests.conftest import shared
from tests.pipeline.dumps import dump, index, multistream, page

DUMP, INDEX = (
    "tlwiki-20260101-pages-articles-multistream.xml.bz2",
    "tlwiki-20260101-pages-articles-multistream-index.txt",
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "dump"
    path.mkdir()
    return path


def failed(path, tmp_path):
    """The checks that a local path fails, and what they say."""
    out = tmp_path / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    config = FilesConfig.model_validate({"from": {"path": str(path)}})
    statistics = fetch_files({}, config, out)
    results = validate("files", out, config, statistics)
    return {each.name: each.observed for each in results if not each.passed}


# ── lists of checksums ───────────────────────────────────────────────────────────────────────────────────────────────


LISTS = {
    "SHA256SUMS": "sha256",
    "tlwiki-20260101-sha1sums.txt": "sha1",
    "tlwiki-20260101-md5sums.txt": "md5",
    "sha512sum.txt": "sha512",
}


@pytest.mark.parametrize(("name", "algorithm"), LISTS.items())
@pytest.mark.parametrize("named", ["folder", "file"])
def test_a_list_beside_a_file_is_believed(folder, tmp_path, name, algorithm, named):
    data = bz2.compress(dump(page("A", 1, "a")))
    (folder / "a.xml.bz2").write_bytes(data)
    right = hashlib.new(algorithm, data).hexdigest()
    path = folder if named == "folder" else folder / "a.xml.bz2"
    (folder / name).write_text(f"{right}  a.xml.bz2\n{'0' * len(right)}  of-another-job.sql.gz\n")
    assert failed(path, tmp_path) == {}
    (folder / name).write_text(f"{'0' * len(right)} *./a.xml.bz2\n")
    assert failed(path, tmp_path) == {
        "checksums_as_declared": f"1 (wrong_digests a.xml.bz2: {name} says {algorithm} {'0' * len(right)}, the file has {right})"
    }


def test_a_list_of_the_folder_names_files_below_it(folder, tmp_path):
    for name in ("x", "y"):
        (folder / name).mkdir()
        (folder / name / "1.txt").write_text(name)
    x, y = (hashlib.sha256(each).hexdigest() for each in (b"x", b"y"))
    (folder / "SHA256SUMS").write_text(f"{x}  x/1.txt\n{y}  y/1.txt\n")
    assert failed(folder, tmp_path) == {}
    (folder / "SHA256SUMS").write_text(f"{x}  x/1.txt\n{x}  y/1.txt\n")
    assert failed(folder, tmp_path).keys() == {"checksums_as_declared"}


@pytest.mark.parametrize("line", ["a.xml.bz2", "0123456789abcdef0123456789abcdef  a.xml.bz2", "xyz  a.xml.bz2"])
def test_a_line_without_its_checksum_is_no_reason_to_pass(folder, tmp_path, line):
    (folder / "a.xml.bz2").write_bytes(bz2.compress(b"a"))
    (folder / "SHA256SUMS").write_text(f"-----BEGIN PGP SIGNED MESSAGE-----\n\n{line}\n")
    said = "1 (wrong_digests a.xml.bz2: its line in SHA256SUMS holds no sha256)"
    assert failed(folder, tmp_path) == {"checksums_as_declared": said}


def test_what_is_no_list_says_nothing(folder, tmp_path):
    (folder / "a.xml.bz2").write_bytes(bz2.compress(b"a"))
    (folder / "SHA256SUMS").write_bytes(b"\xff\xfe\0\n\n" + b"x" * 100_000)
    (folder / "my-sums.txt").write_text(f"{'0' * 64}  a.xml.bz2\n")
    assert failed(folder, tmp_path) == {}


@pytest.mark.parametrize(
    ("have", "listed", "missing"),
    [
        (
            "tlwiki-2026-01-01-p1p9.xml.bz2",
            ["tlwiki-2026-01-01-p10p19.xml.bz2", "tlwiki-2026-01-01-p20p29.xml.bz2"],
            "2 (missing_names tlwiki-2026-01-01-p10p19.xml.bz2, tlwiki-2026-01-01-p20p29.xml.bz2)",
        ),
        (
            "tlwiki-20260101-pages-articles1.xml-p1p9.bz2",
            [
                "tlwiki-20260101-pages-articles2.xml-p10p19.bz2",
                "tlwiki-20260101-pages-articles.xml.bz2",
                "tlwiki-20260101-pages-meta-current2.xml-p10p19.bz2",
                "tlwiki-20260101-pages-articles-multistream2.xml-p10p19.bz2",
                "tlwiki-20260201-pages-articles2.xml-p10p19.bz2",
            ],
            "1 (missing_names tlwiki-20260101-pages-articles2.xml-p10p19.bz2)",
        ),
        ("tlwiki-20260101-pages-articles.xml.bz2", ["tlwiki-20260101-pages-articles1.xml-p1p9.bz2"], None),
        ("tlwiki-20260101-pages-articles.xml.bz2", ["tlwiki-20260201-pages-articles.xml.bz2"], None),
    ],
)
def test_parts_that_are_listed_and_missing_are_said(folder, tmp_path, have, listed, missing):
    data = bz2.compress(dump(page("A", 1, "a")))
    (folder / have).write_bytes(data)
    lines = [f"{hashlib.sha1(data).hexdigest()}  {have}", *(f"{'0' * 40}  {name}" for name in listed)]
    (folder / "tlwiki-sha1sums.txt").write_text("\n".join(lines))
    assert failed(folder, tmp_path) == ({"files_as_listed": missing} if missing else {})
    assert failed(folder / have, tmp_path) == {}, "whoever names one file wants one file"


# ── indexes ──────────────────────────────────────────────────────────────────────────────────────────────────────────

PAGES = [(number, f"Title {number}") for number in range(1, 11)]
STREAMS = multistream(
    dump(
        *(
            page(title, number, " ".join(f"word{each * number}" for each in range(10 * number)))
            for number, title in PAGES
        )
    )
)
LINES = index(STREAMS, PAGES)
OFFSETS = [sum(map(len, STREAMS[:number])) for number in range(len(STREAMS) + 1)]


def test_an_index_that_agrees(folder, tmp_path):
    (folder / DUMP).write_bytes(b"".join(STREAMS))
    (folder / INDEX).write_bytes(LINES)
    assert failed(folder, tmp_path) == failed(folder / DUMP, tmp_path) == {}
    (folder / INDEX).rename(folder / "elsewhere.txt")
    out = tmp_path / "out"
    config = FilesConfig.model_validate({"from": {"path": str(folder)}})
    assert profile("files", out, config, {"size_bytes": 1})["wrong_indexes"] == DOES_NOT_APPLY


@pytest.mark.parametrize(
    ("streams", "said"),
    [
        (STREAMS[:2] + STREAMS[3:], "names offset {3} (line 5), and no bz2 stream begins there"),
        (STREAMS[:1] + STREAMS[2:], "names offset {2} (line 3), and no bz2 stream begins there"),
        (STREAMS[:4], "names offset {4} (line 7), and the file ends before it"),
        (STREAMS[:2] + STREAMS[1:], "names offset {3} (line 5), and no bz2 stream begins there"),
        ([*STREAMS[:2], STREAMS[2][:-20], *STREAMS[3:]], "names offset {3} (line 5), and no bz2 stream begins there"),
        ([*STREAMS[:5], STREAMS[5][:-20]], "after offset {5}, the last one of {index}, a stream is cut off"),
        (STREAMS[:5], "names offset {5} (line 9), and the file ends before it"),
        (
            [*STREAMS[:6], STREAMS[5], STREAMS[6]],
            "after offset {5}, the last one of {index}, stand more pages than the 2",
        ),
        ([*STREAMS, bz2.compress(b" ")], "after offset {5}, the last one of {index}, stand more streams than"),
        ([*STREAMS, b"BZh9 no"], "after offset {5}, the last one of {index}, stand more streams than"),
        (
            [*STREAMS[:6], b"garbage"],
            "after offset {5}, the last one of {index}, follows something that is no bz2 stream",
        ),
        (
            [*STREAMS[:5], bz2.compress(b"<page></page>"), STREAMS[6]],
            "stand 1 pages instead of the 2 that it names there",
        ),
    ],
)
def test_streams_that_are_not_where_the_index_says(folder, tmp_path, streams, said):
    (folder / DUMP).write_bytes(b"".join(streams))
    (folder / f"{INDEX}.bz2").write_bytes(bz2.compress(LINES))
    offsets = [f"{offset:,}" for offset in OFFSETS]
    told = failed(folder, tmp_path)
    assert told.keys() == {"index_agrees"}
    assert told["index_agrees"].startswith(f"1 (index_problems {DUMP}: ")
    assert said.format(*offsets, index=f"{INDEX}.bz2") in told["index_agrees"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (INDEX, LINES + b"no line\n", "line 11 is no offset:id:title ('no line')"),
        (INDEX, b"9" * 400 + b":1:A\n", "line 1 is no offset:id:title"),
        (INDEX, b"x" * 1_000_000, "line 1 is no offset:id:title"),
        (INDEX, LINES[50:], "is no offset:id:title"),
        (INDEX, LINES + LINES, "line 11 goes back from offset"),
        (INDEX, b"", "names no page"),
        (
            f"{INDEX}.bz2",
            bz2.compress(LINES)[:-10],
            "line 11 is no offset:id:title ('the bz2 file is cut off or damaged",
        ),
        (f"{INDEX}.bz2", b"BZh9 no bz2 at all", "'the bz2 file is cut off or damaged"),
    ],
)
def test_an_index_that_can_not_be_read(folder, tmp_path, name, data, said):
    (folder / DUMP).write_bytes(b"".join(STREAMS))
    (folder / name).write_bytes(data)
    assert said in failed(folder / DUMP, tmp_path)["index_agrees"]


def test_the_index_of_a_part(folder, tmp_path):
    (folder / "tlwiki-20260101-pages-articles-multistream2.xml-p5p9.bz2").write_bytes(b"".join(STREAMS))
    right = folder / "tlwiki-20260101-pages-articles-multistream-index2.txt-p5p9.bz2"
    right.write_bytes(bz2.compress(LINES))
    assert failed(folder, tmp_path) == {}
    right.write_bytes(bz2.compress(LINES.replace(str(OFFSETS[2]).encode(), str(OFFSETS[2] + 1).encode())))
    assert failed(folder, tmp_path).keys() == {"index_agrees"}


def test_a_real_dump_and_its_index(folder, tmp_path):
    name = "enwiktionary-20150224-pages-articles-multistream"
    data = shared(f"data/wikipedia/{name}.xml.bz2").read_bytes()
    shutil.copy(shared(f"data/wikipedia/{name}-index.txt.bz2"), folder)
    (folder / f"{name}.xml.bz2").write_bytes(data)
    assert failed(folder, tmp_path) == {}
    (folder / f"{name}.xml.bz2").write_bytes(data[:654] + data[261373:])
    wanted = "names offset 261,373 (line 101), and the file ends before it"
    assert wanted in failed(folder, tmp_path)["index_agrees"]
