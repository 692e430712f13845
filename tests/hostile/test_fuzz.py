"""Any bytes, and any change of a valid file, give the parsers of foreign files a value or an error that a person can act on: never
another error, never a hang.

    FUZZ_EXAMPLES=20000 python -m pytest tests/hostile/test_fuzz.py     much more, and other examples each time
"""

import bz2
import gzip
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from model.checkpoint import load_tensors
from pipeline.errors import DataError, RecipeError, SourceError
from pipeline.formats import archives, jsonl, tfrecord
from pipeline.formats.inflate import Unreadable
from pipeline.prose.book_manifest import read_manifest
from pipeline.prose.epub import Epub, read_epub
from pipeline.prose.xhtml import prose
from pipeline.recipe import load_recipes
from pipeline.recipes import yamlfile
from pipeline.storage import manifest
from pipeline.wikipedia import read_pages, read_site
from pipeline.wikitext import to_text
from tests.hostile.archives import tar_of, zip_of
from tests.hostile.models import joined
from tests.hostile.xml import SENTENCE
from tests.pipeline.dumps import dump, page
from tests.pipeline.epubs import epub, package
from tests.pipeline.epubs import page as leaf
from tests.pipeline.formats.test_tfrecord import GOOD
from tests.tiny import RECIPE

SECONDS = 20
"""that one example may take; the slowest takes less than one"""
ASKED = os.environ.get("FUZZ_EXAMPLES")
fuzz = settings(
    max_examples=int(ASKED or 60),
    deadline=None,
    derandomize=ASKED is None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@contextmanager
def ends() -> Iterator[None]:
    """Fails what hangs."""

    def late(_: int, __: FrameType | None) -> None:
        raise AssertionError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@st.composite
def changed(draw: st.DrawFn, whole: bytes, words: tuple[bytes, ...]) -> bytes:
    """A valid file with some bytes cut out, put in or doubled; or any bytes at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 5))):
        place, gone = draw(st.integers(0, len(data))), draw(st.sampled_from((0, 0, 1, 2, 8, 50, 1000)))
        piece = draw(st.one_of(st.sampled_from(words), st.binary(max_size=8), st.just(bytes(data[place : place + 40]))))
        data[place : place + gone] = piece * draw(st.sampled_from((1, 1, 1, 2, 50)))
    return bytes(data)


XML_WORDS = (
    *(b"<page>", b"</page>", b"<text", b"</text>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<!DOCTYPE a [", b"&#0;"),
    *(
        b"&amp;",
        b"&x;",
        b"<?xml version='1.1'?>",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"<id>",
        b"-1",
        b"9" * 50,
        b"<ns>",
        b'"',
    ),
    *(
        b"<siteinfo>",
        b"<namespace key='x'>",
        b"<redirect title=''/>",
        b"<content>",
        b"xmlns:a='b'",
        b"<revision>",
        b"\0",
    ),
)
PAGES = dump(
    page("A", 1, "First [[link|text]].\n\n{{t|a=b}} Second."), page("Template:T", 2, "{{{1}}}", ns="<ns>10</ns>")
)


@pytest.mark.parametrize("pack", [bytes, bz2.compress, gzip.compress], ids=["plain", "bz2", "gz"])
def test_dumps(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    file = tmp_path / "dump.xml"

    @fuzz
    @given(st.one_of(changed(PAGES, XML_WORDS).map(pack), changed(pack(PAGES), (b"BZh9", b"\x1f\x8b\x08", b"1AY&SY"))))
    @example(b"")
    @example(pack(b'<?xml version="1.0" encoding="utf-7"?>' + PAGES))
    def look(data: bytes) -> None:
        file.write_bytes(data)
        with ends():
            for read in (lambda: list(read_pages(file)), lambda: read_site(file)):
                try:
                    read()
                except SourceError as error:
                    assert "dump.xml" in error.what and error.todo

    look()


MARKUP = (
    *(
        "{{",
        "}}",
        "{{{",
        "}}}",
        "[[",
        "]]",
        "[",
        "]",
        "{|",
        "|}",
        "|-",
        "|",
        "||",
        "!",
        "''",
        "'''",
        "==",
        "=",
        "\n",
        "*",
    ),
    *(
        "#",
        ":",
        ";",
        "----",
        "<ref>",
        "</ref>",
        "<nowiki>",
        "</nowiki>",
        "<!--",
        "-->",
        "<math>",
        "<br/>",
        "<div",
        ">",
        "&lt;",
    ),
    *(
        "&#x110000;",
        "http://a.b",
        "File:",
        "Kategorya:",
        "#REDIRECT",
        "#if:",
        "lang|de|",
        "convert|1|km",
        "__TOC__",
        "\u202e",
    ),
    *("a word ", "A sentence. ", "\x00", "\x7f", "\ue000", "\U0010ffff", "\u0301", " ", "\t", "~~~~", "<", "/", "_"),
)


@fuzz
@given(st.lists(st.one_of(st.sampled_from(MARKUP), st.text(max_size=4)), max_size=60).map("".join))
@example("{{{{{" * 500)
@example("\ud800")
def test_wikitext(text: str) -> None:
    with ends():
        assert isinstance(to_text(text), str)


PAGE = leaf(f"<h2>Chapter</h2><p>{SENTENCE}</p><p>Second <i>one</i>.</p>")
OPF = package(["a.xhtml", "b.xhtml"], "<dc:title>T</dc:title><dc:creator>C</dc:creator>")
PAGE_WORDS = (
    *XML_WORDS,
    b"<p>",
    b"</p>",
    b"<svg>",
    b"<table>",
    b"&nbsp;",
    b"<body>",
    b"epub:type='toc'",
    b"<aside>",
    b"<br/>",
)


@fuzz
@given(
    st.one_of(
        changed(PAGE.encode(), PAGE_WORDS).map(lambda data: epub({"a.xhtml": data, "b.xhtml": PAGE})),
        changed(
            OPF.encode(), (b"<itemref idref='i0'/>", b"href='../../x'", b"fallback='i0'", b"%2e%2e/", *XML_WORDS)
        ).map(
            lambda data: (
                epub({"a.xhtml": PAGE, "b.xhtml": PAGE}, data.decode("utf-8", "surrogateescape"))
                if _is_utf8(data)
                else data
            )
        ),
        changed(
            epub({"a.xhtml": PAGE, "b.xhtml": PAGE}), (b"PK\1\2", b"PK\3\4", b"PK\5\6", b"\xff\xff\xff\xff", b"../")
        ),
    )
)
def test_epubs(data: bytes) -> None:
    with ends():
        try:
            assert isinstance(read_epub(data), Epub)
        except Unreadable as error:
            assert error.reason


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@fuzz
@given(changed(PAGE.encode(), PAGE_WORDS))
def test_pages_of_epubs(data: bytes) -> None:
    with ends():
        try:
            assert all(prose(data).paragraphs)
        except Unreadable as error:
            assert error.reason


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_tfrecords(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"a.tfrecord{ending}"
    whole = gzip.compress(GOOD * 2, mtime=0) if ending else GOOD * 2

    @fuzz
    @given(changed(whole, (b"\xff" * 8, bytes(8), GOOD[:12], b"\x1f\x8b")))
    def look(data: bytes) -> None:
        file.write_bytes(data)
        with ends():
            try:
                list(tfrecord.records(file))
            except DataError as error:
                assert str(file) in error.what

    look()


SHELF_JSON = json.dumps([{"file": "a.txt", "title": "A"}, {"file": "b.txt", "author": "B", "licence": None}]).encode()
SHELF_CSV = b'file,title,author\na.txt,"A, or B",C\n./b.txt,,\n'


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_manifests_of_bookshelves(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"shelf.{ending}"
    words = (
        b'"',
        b",",
        b"\n",
        b"\r",
        b"[",
        b"{",
        b"}",
        b"]",
        b":",
        b"null",
        b"1e999",
        b"\xff",
        b"\0",
        b"file",
        b"[" * 5000,
    )

    @fuzz
    @given(changed(SHELF_JSON if ending == "json" else SHELF_CSV, words))
    @example(b"[" * 100_000)
    @example(b'{"a": ' + b"9" * 10_000 + b"}")
    @example(b'[{"file": ' + b'"x' * 3)
    @example(b'[{"file": "\\ud800"}]')
    def look(data: bytes) -> None:
        file.write_bytes(data)
        with ends():
            try:
                read_manifest(file).row("a.txt")
            except DataError as error:
                assert str(file) in error.what

    look()


SEALED = manifest.sealed(
    {"stage": "s", "version": "v", "files": [{"path": "a", "size_bytes": 1, "sha256": "0", "digest": "0"}]}
)


@fuzz
@given(changed(SEALED, (b'"', b"{", b"[", b"null", b"files", b"seal", b"[" * 5000, b"\xff", b"1e999", b"NaN")))
@example(b"[" * 100_000)
@example(b"9" * 10_000)
@example(b'{"stage": "s", "version": "\\ud800", "files": []}')
def test_manifests_of_the_store(data: bytes) -> None:
    with ends():
        found = manifest.parsed(data, "s", "v")
        assert found is None or manifest.sealed(found) == data
        assert isinstance(manifest.version_told(data), str)


YAML_WORDS = (
    *(
        b"&a",
        b"*a",
        b"<<: *a",
        b"!!python/object/apply:os.system ['true']",
        b"? ",
        b"- ",
        b": ",
        b"{",
        b"}",
        b"[",
        b"]",
        b"|\n",
    ),
    *(
        b"---\n",
        b"...\n",
        b"%YAML 1.1\n",
        b"\t",
        b"\xff",
        b"\0",
        b"~",
        b"null",
        b".nan",
        b"1e999",
        b"0x",
        b"'",
        b'"',
        b"\\x",
    ),
    *(
        b"extends: tiny\n",
        b"name: x\n",
        b"\xef\xbb\xbf",
        b"[" * 200,
        b"{a: " * 200,
        b"!!binary x",
        b"9" * 5000,
        b"\xc2\x85",
    ),
)


def test_recipes(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"

    @fuzz
    @given(changed(RECIPE.encode(), YAML_WORDS))
    @example(b"a: &a [*a]\n")
    @example(b"? [a]\n: b\n")
    @example(b"name: tiny\nextends: tiny\n")
    @example(b"name: !!timestamp 2026-99-99\n")
    @example(b"name: !!int x\n")
    @example(b"name: !!float\n")
    @example(b"name: !!bool maybe\n")
    @example(b'name: "\\ud800"\n')
    def look(data: bytes) -> None:
        file.write_bytes(data)
        with ends():
            try:
                yamlfile.plain(yamlfile.read(file))
            except RecipeError as error:
                assert "tiny.yaml" in error.what
            loaded = load_recipes(tmp_path)
            assert set(loaded.recipes) | set(loaded.errors) == {"tiny"}

    look()


ARCHIVE = {"a.txt": SENTENCE, "b/c.txt": "more"}


@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz"])
def test_archives(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"a.{ending}"
    plain = zip_of(ARCHIVE) if ending == "zip" else tar_of(*_entries())
    whole = gzip.compress(plain, mtime=0) if ending == "tar.gz" else plain

    @fuzz
    @given(
        changed(whole, (b"PK\1\2", b"PK\3\4", b"PK\5\6", b"\xff" * 4, b"ustar", b"0" * 11, bytes(512), b"../", b"7"))
    )
    def look(data: bytes) -> None:
        file.write_bytes(data)
        with ends():
            for member in archives.members(file):
                try:
                    member.read()
                except Unreadable as error:
                    assert error.reason

    look()


def _entries() -> list[tuple]:
    from tests.hostile.archives import entry

    return [(entry(name), text.encode()) for name, text in ARCHIVE.items()]


def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    whole = b"".join(json.dumps({"text": SENTENCE, "id": n}).encode() + b"\n" for n in range(3))

    @fuzz
    @given(changed(whole, (b'"', b"{", b"}", b"\n", b"\xff", b"[" * 5000, b"9" * 5000, b"\\ud800", b"NaN", b"\r")))
    def look(data: bytes) -> None:
        file.write_bytes(data)
        with ends():
            for _, row in jsonl.rows(file, lambda _: None):
                assert isinstance(row, dict | str)

    look()


def test_safetensors(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    header = {
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F16", "shape": [], "data_offsets": [8, 10]},
    }

    @fuzz
    @given(
        st.one_of(
            changed(
                json.dumps(header).encode(), (b'"F64"', b"[0, 8]", b"-1", b"18446744073709551616", b'"a"', b"[" * 500)
            ).map(lambda text: joined(text, bytes(10))),
            changed(joined(header, bytes(10)), (b"\xff" * 8, bytes(8))),
        )
    )
    def look(data: bytes) -> None:
        file.write_bytes(data)
        with ends():
            try:
                load_tensors(file)
            except DataError as error:
                assert str(file) in error.what

    look()
