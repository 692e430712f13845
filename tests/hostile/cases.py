"""The 44 hostile inputs: what each is, how it is made, which door it comes in by, and what has to be said of it.

`refused(words)`: nothing is made of it, and the one error names the file and says these words. `dropped(reason=count)`: it is left
out and counted, and its good neighbours stay. `kept(words)`: it is taken for the plain text that it is. Numbers 30 to 35 are words
on their way through a whole run into reports, cards, pages and logs: tests/hostile/test_words.py.
"""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from tests.hostile import archives, models, xml
from tests.hostile.case import Case, Expected, beside_a_good_one, dropped, kept, put, refused
from tests.hostile.driver import Maker, Making
from tests.hostile.xml import SENTENCE, dump
from tests.pipeline.dumps import page
from tests.pipeline.epubs import epub, package
from tests.pipeline.epubs import page as leaf

# ── 1 to 14: XML ─────────────────────────────────────────────────────────────────────────────────────────────────────

DUMP = "tlwiki.xml"
A_GIB = 1 << 30


def _declared(number: int) -> Maker:
    def make(making: Making) -> None:
        _, declaration, reference = xml.entities(str(making.traps.secret), making.traps.url)[number]
        making.put(DUMP, xml.declared(declaration, reference))

    return make


def _declared_page(number: int) -> Maker:
    def make(making: Making) -> None:
        _, declaration, reference = xml.entities(str(making.traps.secret), making.traps.url)[number]
        making.put(
            "book.epub",
            epub({"good.xhtml": leaf(f"<p>{SENTENCE}</p>"), "bad.xhtml": xml.xhtml(declaration, reference)}),
        )

    return make


def _declared_package(making: Making) -> None:
    """The same in the package file of an EPUB."""
    opf = package(["a.xhtml"], "<dc:title>&x;</dc:title>")
    declaration = f'<!DOCTYPE package [<!ENTITY x SYSTEM "file://{making.traps.secret}">]>'
    making.put("book.epub", epub({"a.xhtml": leaf(f"<p>{SENTENCE}</p>")}, declaration + opf))
    making.put("good.txt", SENTENCE)


def _leaf(bad: str | bytes | Callable[[], str | bytes]) -> Maker:
    def make(making: Making) -> None:
        content = bad() if callable(bad) else bad
        making.put("book.epub", epub({"good.xhtml": leaf(f"<p>{SENTENCE}</p>"), "bad.xhtml": content}))

    return make


def _long_text(packer: Callable[[bytes], bytes]) -> Callable[[], Iterator[bytes]]:
    """A dump with one page of a GiB; packed, in streams of which each is a MiB: a few kB."""

    def parts() -> Iterator[bytes]:
        begin, end = page("Long", 2, "@").split("@")
        yield packer((xml.HEAD + xml.GOOD + begin).encode())
        each = packer(b"x " * (1 << 19))
        yield from (each for _ in range(A_GIB >> 20))
        yield packer((end + xml.END).encode())

    return parts


def _xml(number: int, name: str, content: bytes | Callable[[], bytes], expected: Expected) -> Case:
    return Case(number, f"{name}, in a dump", "dump_here", put(DUMP, content), expected)


TYPE = refused("SourceError", DUMP, "declares a document type")
NO_XML = "no valid XML"
BROKEN_PAGE = kept(SENTENCE)


def _attributes(names: Iterator[str]) -> str:
    return " ".join(f'{name}=""' for name in names)


XML = [
    *(
        Case(number, f"{name}, in a dump", "dump_here", _declared(number), TYPE)
        for number, (name, _, _) in xml.entities("", "").items()
    ),
    *(
        Case(number, f"{name}, in a page of an EPUB", "books", _declared_page(number), expected)
        for (number, (name, _, _)), expected in zip(
            xml.entities("", "").items(),
            (
                kept(SENTENCE, "bad.xhtml: entity_declarations"),
                kept(SENTENCE, "bad.xhtml: entity_declarations"),
                kept(SENTENCE, "bad.xhtml: entity_declarations"),
                kept(SENTENCE),
                kept(SENTENCE, "bad.xhtml: entity_declarations"),
            ),
            strict=True,
        )
    ),
    Case(
        3,
        "external entity file:///, in the package of an EPUB",
        "books",
        _declared_package,
        dropped(SENTENCE, entity_declarations=1),
    ),
    Case(
        6,
        "1 GB text node, in a dump",
        "dump",
        put(DUMP, _long_text(lambda data: data)),
        refused("SourceError", DUMP, "a page is larger than 64 Mi characters"),
    ),
    Case(
        6,
        "1 GB text node, in a .bz2 dump",
        "dump_here",
        put("tlwiki.xml.bz2", _long_text(bz2.compress)),
        refused("SourceError", "tlwiki.xml.bz2", "a page is larger than 64 Mi characters"),
    ),
    Case(
        6,
        "1 GB text node, in a .gz dump",
        "dump_here",
        put("tlwiki.xml.gz", _long_text(lambda data: gzip.compress(data, 1))),
        refused("SourceError", "tlwiki.xml.gz", "a page is larger than 64 Mi characters"),
    ),
    Case(
        6,
        "60 MB text node, in a page of an EPUB",
        "books",
        _leaf(lambda: f"<p>{'x' * (60 << 20)}</p>"),
        kept(SENTENCE, "bad.xhtml: larger_than_8_MiB"),
    ),
    _xml(
        7,
        "10 MB attribute",
        lambda: dump(page("A", 2, "text", attributes=f'bytes="{"9" * 10_000_000}"')),
        refused("SourceError", DUMP, "one tag is larger than"),
    ),
    Case(
        7,
        "10 MB attribute, in a page of an EPUB",
        "books",
        _leaf(lambda: f'<p a="{"x" * 7_000_000}">x</p>'),
        kept(SENTENCE, "bad.xhtml: compression_ratio"),
    ),
    _xml(
        8,
        "50k attributes",
        lambda: dump(page("A", 2, "text", attributes=_attributes(f"a{n}" for n in range(50_000)))),
        refused("SourceError", DUMP, "50,000 attributes"),
    ),
    Case(
        8,
        "50k attributes, in a page of an EPUB",
        "books",
        _leaf(lambda: f"<p {_attributes(f'a{n}' for n in range(50_000))}>x</p>"),
        kept(SENTENCE),
    ),
    _xml(
        8,
        "1.2 million namespaces",
        lambda: dump().replace(
            b"<namespaces>",
            b"<namespaces>" + b"".join(b'<namespace key="%d">N</namespace>' % n for n in range(1_200_000)),
            1,
        ),
        refused("SourceError", DUMP, "more than 1,000 namespaces"),
    ),
    _xml(
        9,
        "100k nesting depth",
        lambda: dump(page("A", 2, "<b>" * 100_000 + "</b>" * 100_000)),
        refused("SourceError", DUMP, "nested more than 32 deep"),
    ),
    Case(
        9,
        "100k nesting depth, in a page of an EPUB",
        "books",
        _leaf(lambda: "<i>" * 100_000 + "x"),
        kept(SENTENCE, "bad.xhtml: nested_too_deep"),
    ),
    _xml(
        10,
        "invalid UTF-8",
        dump(page("A", 2, "@")).replace(b"@", b"\xff\xfe\x80"),
        refused("SourceError", DUMP, NO_XML),
    ),
    _xml(10, "NUL", dump(page("A", 2, "a\0b")), refused("SourceError", DUMP, NO_XML)),
    _xml(10, "lone surrogate reference", dump(page("A", 2, "&#xD800;")), refused("SourceError", DUMP, NO_XML)),
    _xml(10, "NUL reference", dump(page("A", 2, "&#0;")), refused("SourceError", DUMP, NO_XML)),
    Case(
        10,
        "invalid UTF-8, NUL, lone surrogates, in a page of an EPUB",
        "books",
        _leaf(b"<p>\xff\x00&#0;&#xD800;</p>"),
        kept(SENTENCE, "bad.xhtml: not_text"),
    ),
    _xml(
        11,
        "UTF-16 declared, bytes of UTF-8",
        b'<?xml version="1.0" encoding="UTF-16"?>' + dump(page("A", 2, "text")),
        refused("SourceError", DUMP, NO_XML),
    ),
    _xml(
        11,
        "UTF-16 declared, and so it is",
        ('<?xml version="1.0" encoding="UTF-16"?>' + dump(page("A", 2, "A second text.")).decode()).encode("utf-16"),
        kept("A second text."),
    ),
    _xml(
        11,
        "UTF-7 declared",
        b'<?xml version="1.0" encoding="UTF-7"?>' + dump(page("A", 2, "+ADw-script+AD4-")),
        refused("SourceError", DUMP, NO_XML),
    ),
    _xml(
        11,
        "an encoding that there is not",
        b'<?xml version="1.0" encoding="idna"?>' + dump(page("A", 2, "text")),
        refused("SourceError", DUMP, NO_XML),
    ),
    Case(
        11,
        "UTF-7 declared, in a page of an EPUB",
        "books",
        _leaf('<?xml version="1.0" encoding="UTF-7"?><html><p>+ADw-script+AD4-alert(1)</p></html>'),
        kept(SENTENCE),
    ),
    _xml(
        12,
        "two root elements",
        dump(page("A", 2, "text")) + dump(page("B", 3, "text")),
        refused("SourceError", DUMP, NO_XML, "junk after document element"),
    ),
    _xml(
        12,
        "truncated mid-tag",
        dump(page("A", 2, "text"))[:-25],
        refused("SourceError", DUMP, "cut off", "'Good' (id 1)"),
    ),
    _xml(
        13,
        "hash-collision attribute names",
        lambda: dump(page("A", 2, "text", attributes=_attributes(iter(xml.colliding())))),
        refused("SourceError", DUMP, "1,024 attributes"),
    ),
    _xml(
        13,
        "hash-collision element names",
        lambda: dump(page("A", 2, "text", head="".join(f"<{name}/>" for name in xml.colliding()))),
        kept(SENTENCE),
    ),
    Case(
        13,
        "hash-collision attribute names, in a page of an EPUB",
        "books",
        _leaf(lambda: f"<p {_attributes(iter(xml.colliding()))}>x</p>"),
        kept(SENTENCE),
    ),
    _xml(
        14,
        "wrong export schema version",
        dump(page("A", 2, "text")).replace(b'version="0.11"', b'version="9.9"'),
        refused("SourceError", DUMP, "export schema", "9.9"),
    ),
    _xml(
        14,
        "missing ns, its title says talk",
        dump(page("Talk:A", 2, "some talk", ns="")),
        dropped(SENTENCE, other_namespace=1),
    ),
    _xml(14, "missing ns, its title says nothing", dump(page("A", 2, "An old page.", ns="")), kept("An old page.")),
    _xml(
        14,
        "missing id",
        dump(page("A", 2, "text").replace("<id>2</id>", "", 1)),
        refused("SourceError", DUMP, "page 'A' has id ''"),
    ),
    _xml(14, "missing revision", dump("<page><title>A</title><ns>0</ns><id>2</id></page>"), dropped(SENTENCE, empty=1)),
    _xml(14, "duplicate page id", dump(page("Twice", 1, SENTENCE)), dropped(SENTENCE, duplicate_page_id=1)),
]

# ── 15 to 20: compressed files ───────────────────────────────────────────────────────────────────────────────────────

PAGES = dump(page("A", 2, "A second text."), page("B", 3, "A third text."))


def _bomb(suffix: str) -> Iterator[bytes]:
    """A GiB of spaces out of some bytes: streams one behind the other."""
    if suffix == ".bz2":  # 45 bytes for each 45 MB
        yield bz2.compress(b" " * 45_000_000) * 24
        return
    pack = {".gz": lambda data: gzip.compress(data, 9), ".xz": lzma.compress}[suffix]
    yield pack(b" " * (1 << 24)) * 64


def _bomb_in_a_dump(making: Making) -> None:
    """Spaces between two pages."""
    begin, end = PAGES.split(b"<page><title>B")
    making.put("tlwiki.xml.bz2", b"".join((bz2.compress(begin), *_bomb(".bz2"), bz2.compress(b"<page><title>B" + end))))


def _two_streams(pack: Callable[[bytes], bytes], first: bytes, second: bytes) -> bytes:
    return pack(first) + pack(second)


def _middle_crc(data: bytes, streams: list[bytes]) -> bytes:
    """The checksum of the block of the second of three streams is wrong."""
    at = len(streams[0]) + 10
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _multistream() -> list[bytes]:
    begin, end = PAGES.split(b"<page><title>A")
    middle, last = end.split(b"<page><title>B")
    return [bz2.compress(part) for part in (begin, b"<page><title>A" + middle, b"<page><title>B" + last)]


STREAMS = _multistream()
LINE = (json.dumps({"id": "a", "title": "t", "text": SENTENCE}) + "\n").encode()
BOOK = SENTENCE.encode()
THREE = [bz2.compress(BOOK), bz2.compress(b" He waited for years."), bz2.compress(b" The end.")]


def _zstd_bomb() -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=19).compress(b" " * (256 << 20))


COMPRESSED = [
    Case(
        15,
        "bomb of 45-byte streams, a dump",
        "dump",
        _bomb_in_a_dump,
        refused("SourceError", "tlwiki.xml.bz2", "times as many"),
    ),
    *(
        Case(
            15,
            f"bomb, a book in {suffix}",
            "books",
            beside_a_good_one(f"bomb.txt{suffix}", lambda suffix=suffix: _bomb(suffix)),
            dropped("bomb.txt", SENTENCE, compression_ratio=1),
        )
        for suffix in (".bz2", ".gz", ".xz")
    ),
    Case(
        15,
        "bomb, JSON Lines in .gz",
        "jsonl",
        put("bomb.jsonl.gz", lambda: _bomb(".gz")),
        refused("DataError", "bomb.jsonl.gz", "unpacks to more than"),
    ),
    Case(
        15,
        "bomb, JSON Lines in .zst",
        "jsonl",
        put("bomb.jsonl.zst", _zstd_bomb),
        refused("DataError", "bomb.jsonl.zst", "unpacks to more than"),
    ),
    Case(
        15,
        "bomb, text in .gz",
        "text",
        beside_a_good_one("bomb.txt.gz", lambda: _bomb(".gz")),
        dropped("bomb.txt.gz", SENTENCE, larger_than_64_MiB=1),
    ),
    Case(
        16,
        "multistream with a wrong CRC in the middle, a dump",
        "dump_here",
        put("tlwiki.xml.bz2", _middle_crc(b"".join(STREAMS), STREAMS)),
        refused("SourceError", "tlwiki.xml.bz2", "'Good' (id 1)"),
    ),
    Case(
        16,
        "multistream with a wrong CRC in the middle, a book",
        "books",
        beside_a_good_one("bad.txt.bz2", _middle_crc(b"".join(THREE), THREE)),
        dropped(SENTENCE, broken=1),
    ),
    Case(
        17,
        "first stream only, a dump",
        "dump_here",
        put("tlwiki.xml.bz2", STREAMS[0]),
        refused("SourceError", "tlwiki.xml.bz2", "cut off"),
    ),
    Case(
        17,
        "all of three streams, a book",
        "books",
        put("three.txt.bz2", b"".join(THREE)),
        kept("He waited for years. The end."),
    ),
    Case(
        17,
        "two streams, JSON Lines",
        "jsonl",
        put("two.jsonl.gz", _two_streams(gzip.compress, LINE, LINE.replace(b'"a"', b'"b"'))),
        kept("mine:a", "mine:b"),
    ),
    Case(
        18,
        "trailing garbage, a dump",
        "dump_here",
        put("tlwiki.xml.bz2", bz2.compress(PAGES) + b"garbage"),
        refused("SourceError", "tlwiki.xml.bz2", "no bzip2 stream"),
    ),
    Case(
        18,
        "trailing garbage, a .gz dump",
        "dump_here",
        put("tlwiki.xml.gz", gzip.compress(PAGES) + b"garbage"),
        refused("SourceError", "tlwiki.xml.gz", "damaged"),
    ),
    Case(
        18,
        "trailing garbage, a book",
        "books",
        beside_a_good_one("bad.txt.gz", gzip.compress(BOOK) + b"garbage"),
        dropped(SENTENCE, trailing_garbage=1),
    ),
    Case(
        18,
        "trailing garbage, JSON Lines",
        "jsonl",
        put("a.jsonl.gz", gzip.compress(LINE) + b"garbage"),
        refused("DataError", "a.jsonl.gz"),
    ),
    Case(
        19,
        "truncated last byte, a dump",
        "dump_here",
        put("tlwiki.xml.bz2", bz2.compress(PAGES)[:-1]),
        refused("SourceError", "tlwiki.xml.bz2", "cut off"),
    ),
    Case(
        19,
        "truncated last byte, a .gz dump",
        "dump_here",
        put("tlwiki.xml.gz", gzip.compress(PAGES)[:-1]),
        refused("SourceError", "tlwiki.xml.gz", "cut off"),
    ),
    *(
        Case(
            19,
            f"truncated last byte, a book in {suffix}",
            "books",
            beside_a_good_one(f"bad.txt{suffix}", pack(BOOK)[:-1]),
            dropped(SENTENCE, truncated=1),
        )
        for suffix, pack in ((".bz2", bz2.compress), (".gz", gzip.compress), (".xz", lzma.compress))
    ),
    Case(
        19,
        "truncated last byte, JSON Lines",
        "jsonl",
        put("a.jsonl.gz", gzip.compress(LINE)[:-1]),
        refused("DataError", "a.jsonl.gz", "breaks off or is broken"),
    ),
    Case(
        20,
        "name says .bz2, content gzip, a dump",
        "dump_here",
        put("tlwiki.xml.bz2", gzip.compress(PAGES)),
        kept("A second text."),
    ),
    Case(
        20,
        "name says .bz2, content gzip, a book",
        "books",
        beside_a_good_one("bad.txt.bz2", gzip.compress(BOOK)),
        dropped(SENTENCE, not_what_its_name_says=1),
    ),
    Case(
        20,
        "name says .gz, content plain, JSON Lines",
        "jsonl",
        put("a.jsonl.gz", LINE),
        refused("DataError", "a.jsonl.gz"),
    ),
]

# ── 21 to 29: archives ───────────────────────────────────────────────────────────────────────────────────────────────

OUTSIDE = {"../a.txt": BOOK, "/a.txt": BOOK, "C:/a.txt": BOOK, "b/..\\..\\a.txt": BOOK}


def _of_both(number: int, name: str, file: str, data: bytes | Callable[[], bytes], expected: Expected) -> list[Case]:
    """As an archive of books and as one of text files."""
    return [
        Case(number, f"{name}, of books", "books", beside_a_good_one(file, data), expected),
        Case(number, f"{name}, of texts", "text", beside_a_good_one(file, data), expected),
    ]


def _links(making: Making) -> None:
    target = str(making.traps.secret.parent)
    data = archives.tar_of((archives.entry("a", tarfile.SYMTYPE, target), b""), (archives.entry("a/secret.txt"), BOOK))
    making.put("links.tar", data)
    making.put("good.txt", SENTENCE)


def _zip_link(making: Making) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        info = zipfile.ZipInfo("secret.txt")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, str(making.traps.secret))
    making.put("links.zip", data.getvalue())
    making.put("good.txt", SENTENCE)


def _link_on_disk(making: Making) -> None:
    """A link in the folder itself."""
    making.put("good.txt", SENTENCE)
    (making.folder / "in" / "linked").symlink_to(making.traps.secret.parent)


def _lying(info: zipfile.ZipInfo) -> None:
    info.file_size += 10 * (info.filename == "bad.txt")


@cache
def _many() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for number in range(100_000):
            archive.writestr(f"{number}.jpg", b"")
    return data.getvalue()


def _encrypted(info: zipfile.ZipInfo) -> None:
    info.flag_bits |= 1


def _encrypted_epub() -> bytes:
    """A page that META-INF/encryption.xml says is encrypted."""
    said = (
        '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData '
        'xmlns="http://www.w3.org/2001/04/xmlenc#"><EncryptionMethod Algorithm="aes256-cbc"/><CipherData>'
        '<CipherReference URI="OEBPS/a.xhtml"/></CipherData></EncryptedData></encryption>'
    )
    files: dict[str, str | bytes] = {"META-INF__encryption.xml": said}
    return epub({"a.xhtml": leaf(f"<p>{SENTENCE}</p>")}, **files)


def _strange_pages(making: Making) -> None:
    hrefs = ["a.xhtml", f"file://{making.traps.secret}", f"{making.traps.url}/a"]
    spine = '<itemref idref="i0"/>' * 500 + '<itemref idref="i1"/><itemref idref="i2"/>'
    making.put("book.epub", epub({"a.xhtml": leaf(f"<p>{SENTENCE}</p>")}, package(hrefs, "", spine)))


def _devices() -> bytes:
    kinds = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE)
    return archives.tar_of(*((archives.entry(f"{n}.txt", kind, "/dev/null"), b"") for n, kind in enumerate(kinds)))


def _fifo_on_disk(making: Making) -> None:
    """A named pipe in the folder: who opens it waits for ever."""
    import os

    making.put("good.txt", SENTENCE)
    os.mkfifo(making.folder / "in" / "pipe.txt")


ARCHIVES = [
    *_of_both(
        21,
        "`../`, absolute and drive-letter entries, .zip",
        "bad.zip",
        archives.zip_of(OUTSIDE),
        dropped(SENTENCE, unsafe_path=4),
    ),
    *_of_both(
        21,
        "`../`, absolute and drive-letter entries, .tar",
        "bad.tar",
        archives.tar_of(*((archives.entry(n), BOOK) for n in OUTSIDE)),
        dropped(SENTENCE, unsafe_path=4),
    ),
    Case(22, "symlink entry then file through it, .tar of books", "books", _links, dropped(SENTENCE, link=1)),
    Case(22, "symlink entry then file through it, .tar of texts", "text", _links, dropped(SENTENCE, link=1)),
    Case(22, "symlink entry, .zip of books", "books", _zip_link, dropped(SENTENCE, link=1)),
    Case(22, "a linked folder beside books", "books", _link_on_disk, kept(SENTENCE)),
    *_of_both(
        23,
        "overlapped-entry bomb",
        "bad.zip",
        lambda: archives.overlapping_zip(2000, 4 << 20),
        dropped(SENTENCE, overlapping_entries=1),
    ),
    *_of_both(
        24,
        "lying sizes",
        "bad.zip",
        archives.patched_zip({"bad.txt": BOOK, "fine.txt": b"Another text."}, _lying),
        dropped("Another text.", SENTENCE, lying_size=1),
    ),
    Case(
        25,
        "100k entries, of books",
        "books",
        beside_a_good_one("many.zip", _many),
        dropped(SENTENCE, unknown_file_type=100_000),
    ),
    Case(
        25,
        "100k entries, of texts",
        "text",
        beside_a_good_one("many.zip", _many),
        dropped(SENTENCE, unknown_file_type=100_000),
    ),
    Case(
        26,
        "nested epub in epub",
        "books",
        put("book.epub", epub({"a.xhtml": leaf(f"<p>{SENTENCE}</p>"), "b.epub": epub({"a.xhtml": leaf("<p>x</p>")})})),
        kept(SENTENCE, "archive_in_archive"),
    ),
    Case(
        26,
        "nested archive in an archive",
        "books",
        beside_a_good_one("a.zip", archives.zip_of({"b.zip": archives.zip_of({"a.txt": BOOK})})),
        dropped(SENTENCE, archive_in_archive=1),
    ),
    *_of_both(
        27,
        "encrypted entry",
        "bad.zip",
        archives.patched_zip({"a.txt": BOOK}, _encrypted),
        dropped(SENTENCE, encrypted=1),
    ),
    Case(
        27,
        "encrypted page of an EPUB",
        "books",
        beside_a_good_one("bad.epub", _encrypted_epub()),
        dropped(SENTENCE, encrypted=1),
    ),
    Case(
        28,
        "OPF spine loop, href to file:// and http://",
        "books",
        _strange_pages,
        kept(SENTENCE, "repeated_in_spine 499", "outside_the_archive"),
    ),
    *_of_both(29, "device, FIFO and hard link in a .tar", "bad.tar", _devices(), dropped(SENTENCE, device=3, link=1)),
    Case(29, "a FIFO in the folder of books", "books", _fifo_on_disk, kept(SENTENCE)),
    Case(29, "a FIFO in the folder of texts", "text", _fifo_on_disk, kept(SENTENCE)),
]

# ── 36 to 39: text that stalls or deceives ───────────────────────────────────────────────────────────────────────────

MANY = 50_000


def _article(text: str) -> Callable[[], bytes]:
    return lambda: dump(page("Bad", 2, text.replace("&", "&amp;").replace("<", "&lt;")))


STALLING: Mapping[str, str] = {
    "unbalanced {{{{{ x 50k": "{{{{{" * MANY,
    "unbalanced {{ x 50k": "{{a|" * MANY,
    "unbalanced }}}}} x 50k": "}}}}}" * MANY,
    "nested links x 50k": "[[a|" * MANY + "]]" * MANY,
    "unclosed links x 50k": "[http://a " * MANY,
    "nested tags x 50k": "<div>" * MANY + "</div>" * MANY,
    "unclosed tags x 50k": "<ref>" * MANY,
    "unclosed comments x 50k": "<!--" * MANY,
    "unclosed tables x 50k": "{|\n|-\n" * MANY,
    "quotes x 250k": "'" * 250_000,
    "lists 50k deep": "*" * MANY + " a",
    "headings of 50k signs": "=" * MANY + " a " + "=" * MANY,
    "unclosed nowiki x 50k": "<nowiki>" * MANY,
    "entities x 50k": "&amp;" * MANY + "&" * MANY,
}

NO_PROSE = dropped(SENTENCE, no_prose=1)

TEXTS = [
    *(
        Case(
            36,
            f"{name}, in a dump",
            "dump_here",
            put(DUMP, _article(text)),
            kept(SENTENCE) if "links" in name else NO_PROSE,
        )
        for name, text in STALLING.items()
    ),
    Case(
        36,
        "nested tags that are not closed, in a page of an EPUB",
        "books",
        _leaf(lambda: f"<p>{'<b><i>' * 200}{SENTENCE}</p>" * 20),
        kept(SENTENCE),
    ),
    Case(
        36,
        "brackets nested 100k deep, JSON Lines",
        "jsonl",
        put("a.jsonl", LINE + b"[" * 100_000 + b"\n"),
        dropped(SENTENCE, broken_line=1),
    ),
    Case(
        36,
        "quotes that are not closed x 1M, CSV",
        "csv",
        put("a.csv", 'text\n"' + '""' * 1_000_000),
        refused("DataError", "a.csv", "line 2"),
    ),
    Case(
        37,
        "one 50 MB line with no space, a book",
        "books",
        beside_a_good_one("long.txt", lambda: b"x" * (50 << 20)),
        kept(SENTENCE),
    ),
    Case(
        37,
        "one 50 MB line with no space, a text",
        "text",
        beside_a_good_one("long.txt", lambda: b"x" * (50 << 20)),
        kept(SENTENCE),
    ),
    Case(
        37,
        "one 50 MB line with no space, JSON Lines",
        "jsonl",
        put("a.jsonl", lambda: LINE + b'{"id": "b", "text": "' + b"x" * (50 << 20) + b'"}\n'),
        kept(SENTENCE),
    ),
    Case(
        37,
        "one 50 MB line with no space, in a dump",
        "dump_here",
        put(DUMP, lambda: dump(page("Bad", 2, "x" * (50 << 20)))),
        kept(SENTENCE),
    ),
    Case(
        38,
        "control tokens [CLS] [MASK] ##, a text",
        "text",
        put("a.txt", f"{SENTENCE} [CLS] [MASK] [SEP] ##ing [unused1]"),
        kept("[CLS] [MASK] [SEP] ##ing [unused1]"),
    ),
    Case(
        39,
        "one base and 100k combining marks, a text",
        "text",
        beside_a_good_one("a.txt", "a" + "\u0301" * 100_000),
        kept(SENTENCE),
    ),
    Case(
        39,
        "one base and 100k combining marks, a book",
        "books",
        beside_a_good_one("a.txt", "a" + "\u0301" * 100_000),
        kept(SENTENCE),
    ),
    Case(
        39,
        "one base and 100k combining marks, in a dump",
        "dump_here",
        put(DUMP, dump(page("Bad", 2, "a" + "\u0301" * 100_000))),
        kept(SENTENCE),
    ),
    Case(
        39,
        "100k zero-width characters, a text",
        "text",
        beside_a_good_one("a.txt", "\u200b\u200d\ufeff\u2060" * 25_000),
        dropped(SENTENCE, empty=1),
    ),
    Case(
        39,
        "100k zero-width characters, in a dump",
        "dump_here",
        put(DUMP, dump(page("Bad", 2, "\u200b\u200d\ufeff\u2060" * 25_000))),
        dropped(SENTENCE, empty=1),
    ),
]

# ── 44: Wikimedia's site ─────────────────────────────────────────────────────────────────────────────────────────────

STATUS = "tlwiki/20260101/dumpstatus.json"
PART = "tlwiki-20260101-pages-articles1.xml-p1p9.bz2"


def _site(
    changed: Mapping[str, Any] = {}, status: str = "done", name: str = PART, to: str = "", data: bytes = b""
) -> Maker:
    import hashlib

    def make(making: Making) -> None:
        real = bz2.compress(PAGES)
        entry = {"size": len(real), "sha1": hashlib.sha1(real).hexdigest(), **changed}
        jobs = {"articlesdump": {"status": status, "files": {name: entry}}}
        making.put(STATUS, json.dumps({"version": "0.8", "jobs": jobs}))
        making.put(f"tlwiki/20260101/{PART}", data or real)
        making.put("redirects.json", json.dumps({f"/tlwiki/20260101/{PART}": to or making.traps.url} if to else {}))

    return make


SITES = [
    Case(
        44,
        "dumpstatus.json: status in-progress",
        "site",
        _site(status="in-progress"),
        refused("SourceError", "20260101 of tlwiki is not finished yet"),
    ),
    Case(
        44,
        "dumpstatus.json: file name containing /",
        "site",
        _site(name="tlwiki-20260101-a/../../b.xml.bz2"),
        refused("SourceError", "dumpstatus.json of tlwiki 20260101", "the file 'tlwiki-20260101-a/../../b.xml.bz2'"),
    ),
    Case(
        44,
        "redirect to 169.254.169.254",
        "site",
        _site(to="http://169.254.169.254/latest/meta-data"),
        refused("SourceError", "leads to another host: http://169.254.169.254"),
    ),
    Case(
        44,
        "redirect to another port of this machine",
        "site",
        lambda making: _site(to=f"{making.traps.url}/x".replace("127.0.0.1", "localhost"))(making),
        refused("SourceError", "leads to another host: http://localhost"),
    ),
    Case(
        44,
        "dumpstatus.json: size mismatch, larger than the file",
        "site",
        _site(changed={"size": 10**6}),
        refused(PART),
    ),
    Case(
        44,
        "dumpstatus.json: size mismatch, smaller than the file",
        "site",
        _site(changed={"size": 10}),
        refused(PART),
    ),
    Case(
        44,
        "other bytes than the checksum says",
        "site",
        _site(data=b"x" * len(bz2.compress(PAGES))),
        refused(PART),
    ),
    Case(
        44,
        "dumpstatus.json of another form",
        "site",
        _site(changed={"size": "many"}),
        refused("SourceError", "has size 'many'"),
    ),
]

RECIPES = [
    Case(
        34,
        "!!python/object in a recipe",
        "recipes",
        lambda making: making.put(
            "a.yaml", f"name: a\ndescription: !!python/object/apply:os.system ['touch {making.traps.ran}']\n"
        ),
        refused("RecipeError", "a.yaml:2", "tag tag:yaml.org,2002:python/object/apply:os.system is not allowed"),
    ),
    Case(
        34,
        "aliases that grow without end in a recipe",
        "recipes",
        put(
            "a.yaml",
            "name: a\na: &a [x, x]\n"
            + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        ),
        refused("RecipeError", "a.yaml", "more than 100,000 values"),
    ),
]

CASES: tuple[Case, ...] = (*XML, *COMPRESSED, *ARCHIVES, *TEXTS, *models.CASES, *SITES, *RECIPES)
