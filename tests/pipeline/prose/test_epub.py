"""EPUBs: the prose in reading order, equal to the same book as text; what is no prose and what is hostile is counted."""

import difflib
import io
import zipfile

import pytest

from pipeline.formats.inflate import Unreadable
from pipeline.prose.book_text import from_blocks, paragraphs
from pipeline.prose.encodings import decode
from pipeline.prose.epub import read_epub, resolved
from pipeline.prose.gutenberg import strip_gutenberg
from pipeline.prose.xhtml import prose
from tests.conftest import shared
from tests.pipeline.epubs import epub, novel, package, page


def told(body: str) -> list[str]:
    return prose(page(body).encode()).paragraphs


# ── pages ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<p>One\n  two.</p><p>Three.</p>", ["One two.", "Three."]),
        ("<div>One.<div>Two.</div>Three.</div>", ["One.", "Two.", "Three."]),
        ("Bare text<br/>\nand verse<p>Then.</p>", ["Bare text\nand verse", "Then."]),
        ("<p>One.<br/><br/>Two.</p>", ["One.", "Two."]),
        ("<blockquote><p>Quoted.</p></blockquote><p>x</p>", ["Quoted.", "x"]),
        ("<p>A&nbsp;b &eacute; &mdash; &amp;amp; &#233; &lt;b&gt; &hellip;</p>", ["A b é — &amp; é <b> …"]),
        ("<p>soft\u00adhyphen zero\u200bwidth</p>", ["softhyphen zerowidth"]),
        ('<p><span class="dropcap">T</span>he <span class="sc">End</span>.</p>', ["The End."]),
        ('<div class="dropcap">T</div><p>he end.</p>', ["The end."]),
        ('<p><img class="dropcap" alt="T" src="t.png"/>he end.</p>', ["The end."]),
        ('<p>The <a epub:type="annoref" href="#a1">Emperor’s</a> New Clothes.</p>', ["The Emperor’s New Clothes."]),
        ('<p>See it<a epub:type="noteref" href="#n1">note 1</a>.</p>', ["See it."]),
        ('<p>See<a epub:type="noteref" href="#n1">1</a> it<sup><a href="n.xhtml#fn2">[2]</a></sup>.</p>', ["See it."]),
        ('<p>See it.<a href="#footnote-1" id="back">[1]</a> So.</p>', ["See it. So."]),
        ("<p>10<sup>2</sup> is 100, H<sub>2</sub>O</p>", ["102 is 100, H2O"]),
        ('<p>A <a href="https://example.org/#top">link</a> and <a href="b.xhtml">another</a> one.</p>', ["A link and another one."]),
        ('<p>of the<span epub:type="pagebreak" title="5">5</span> page<span class="pagenum">[6]</span>s</p>', ["of the pages"]),
        ("<p><ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</rt></ruby></p>", ["漢字"]),
        ("<p>He said <q>yes</q>.</p>", ["He said “yes”."]),
        ("<p>Call <code>run</code> now.</p>", ["Call run now."]),
        ("<p>* * *</p><p>12</p><p>x</p>", ["x"]),
        ('<div class="stanza"><div>One</div><div>two<span class="lnum">10</span></div></div>', ["One\ntwo"]),
        ('<div class="poem"><div class="stanza"><span>One<br/></span><span>two<br/></span></div><div class="stanza"><p>Three</p></div></div>', ["One\ntwo", "Three"]),
        ('<div class="poem"><p>One</p><p>two</p></div>', ["One\ntwo"]),
        ('<section epub:type="z3998:verse"><p>One<br/>two</p><p>Three<br/>four</p></section>', ["One\ntwo", "Three\nfour"]),
        ("<pre>\n  Under the spreading\n  Chestnut tree it stands\n\n  A smith and his fire\n</pre>", ["Under the spreading\nChestnut tree it stands", "A smith and his fire"]),
        ('<p xml:lang="fr">Oui.<!-- no --> Si.</p>', ["Oui. Si."]),
        ("<p>One <script>var x;</script>two<style>p{}</style>.</p>", ["One two."]),
        ('<p hidden="hidden">no</p><p style="display: none">no</p><p>yes</p>', ["yes"]),
        ("<switch><case>CML</case><default><p>Water</p></default></switch>", ["Water"]),
    ],
)  # fmt: skip
def test_prose(body: str, said: list[str]) -> None:
    assert told(body) == said


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<h1>One</h1>", "headings"),
        ("<header><h6>One</h6></header>", "headings"),
        ('<p class="chapter-title">One</p>', "headings"),
        ('<p><b epub:type="bridgehead">One.</b></p>', "headings"),
        ("<table><tr><td>One</td></tr></table>", "tables"),
        ("<figure><img/><figcaption>One</figcaption></figure>", "figures"),
        ('<div class="figcenter"><p class="caption">One</p></div>', "figures"),
        ("<ul><li><p>One</p></li></ul>", "lists"),
        ("<ol><li>One</li></ol>", "lists"),
        ("<dl><dt>One</dt><dd>Two</dd></dl>", "lists"),
        ("<pre>One</pre>", "code"),
        ("<pre>Package: foo\nVersion: 1.2-3\nDepends: bar (>= 2)</pre>", "code"),
        ('<div class="highlight"><pre>Under the spreading\nChestnut tree it stands</pre></div>', "code"),
        ("<nav><p>One</p></nav>", "contents"),
        ('<div class="toc"><p>One</p></div>', "contents"),
        ('<p><a href="c1.xhtml">One</a></p>', "contents"),
        ('<section epub:type="titlepage"><p>One</p></section>', "title_pages"),
        ('<section epub:type="frontmatter copyright-page"><p>One</p></section>', "copyright_pages"),
        ("<p>Copyright © 2001 by A. All rights reserved.</p>", "copyright_pages"),
        ('<aside epub:type="footnote"><p>One</p></aside>', "notes"),
        ('<div role="doc-endnotes"><p>One</p></div>', "notes"),
        ('<div class="footnote"><p>One</p></div>', "notes"),
        ('<p><a href="#fnref1">[1]</a> One, a note without any other mark.</p>', "notes"),
        ('<div class="transnote"><p>One</p></div>', "notes"),
        ('<section epub:type="index"><p>One, 5</p></section>', "contents"),
        ('<section epub:type="bibliography"><p>One</p></section>', "bibliographies"),
        ('<section class="pg-boilerplate" id="x"><p>One</p></section>', "gutenberg"),
        ('<section id="pg-footer"><p>One</p></section>', "gutenberg"),
        ("<p>* * *</p>", "ornaments"),
    ],
)
def test_what_is_no_prose_is_left_out_and_counted(body: str, reason: str) -> None:
    found = (
        prose(page(f"<p>Before.</p>{body}<p>After.</p>").encode()) if "©" not in body else prose(page(body).encode())
    )
    assert found.paragraphs == (["Before.", "After."] if "©" not in body else [])
    assert found.left_out[reason] >= 1


def test_prose_that_looks_like_something_else_stays() -> None:
    long = "A paragraph of a converter that calls everything a heading. " * 5
    assert told(f'<p class="heading">{long}</p>') == [long.strip()]
    essay = "The history of copyright, in which all rights reserved themselves, is long. " * 100
    assert told(f"<p>{essay}</p>") == [essay.strip()]
    assert told('<p><a id="page5"/>An anchor is no note.</p>') == ["An anchor is no note."]


def test_a_page_that_is_not_well_formed_is_read_as_browsers_do() -> None:
    assert prose(b"<html><body><p>One<p>Two &copy; &unknown; <br>three</body>").paragraphs == [
        "One",
        "Two © &unknown;\nthree",
    ]
    assert prose(b"<p>plain").paragraphs == ["plain"]


@pytest.mark.parametrize(
    "data",
    [
        '<?xml version="1.0" encoding="ISO-8859-1"?><p>caf\xe9</p>'.encode("latin-1"),
        '<?xml version="1.0" encoding="windows-1252"?><p>caf\xe9</p>'.encode("cp1252"),
        '<?xml version="1.0" encoding="utf-8"?><p>café</p>'.encode(),
        '<?xml version="1.0" encoding="utf-8"?><p>café</p>'.encode("cp1252"),
        '\ufeff<?xml version="1.0"?><p>café</p>'.encode("utf-16-le"),
        '<?xml version="1.0" encoding="UTF-7"?><p>café</p>'.encode(),
        '<?xml version="1.0" encoding="hex"?><p>café</p>'.encode(),
        '<?xml version="1.0" encoding="no-such-thing"?><p>café</p>'.encode(),
    ],
)
def test_encodings_of_pages(data: bytes) -> None:
    assert prose(data).paragraphs == ["café"]


# ── the package ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_reading_order_and_what_the_package_says() -> None:
    opf = package(
        ["b.xhtml", "text/a%20b.xhtml", "c.xhtml", "d.xhtml"],
        "<dc:title>A  Title</dc:title><dc:title>Sub</dc:title><dc:creator>A. One</dc:creator><dc:creator>B. Two</dc:creator>"
        "<dc:language>en-GB</dc:language><dc:rights>CC BY-SA 4.0</dc:rights><dc:identifier>urn:isbn:1</dc:identifier>",
        '<itemref idref="i1"/><itemref idref="i0"/><itemref idref="i2" linear="no"/><itemref idref="i0"/>',
    )
    pages = {"b.xhtml": page("<p>B.</p>"), "text/a b.xhtml": page("<p>A.</p>"), "c.xhtml": page("<p>C.</p>")}
    book = read_epub(epub(pages, opf))
    assert book.paragraphs == ["A.", "B."]
    assert (book.title, book.author, book.language) == ("A Title", "A. One; B. Two", "en-GB")
    assert (book.rights, book.licence, book.identifiers) == ("CC BY-SA 4.0", "CC BY-SA 4.0", ("urn:isbn:1",))
    assert book.left_out == {"not_linear": 1, "repeated_in_spine": 1}
    assert book.unread == {}


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("<dc:rights>Copyright 2001 A. All rights reserved.</dc:rights>", ""),
        ("<dc:rights>Public domain in the USA.</dc:rights>", "Public domain in the USA."),
        ('<link rel="cc:license" href="https://example.org/by/4.0/"/>', "https://example.org/by/4.0/"),
        ('<link rel="cc:license" refines="#cover" href="https://example.org/by/4.0/"/>', ""),
    ],
)
def test_a_claim_of_copyright_is_no_licence(metadata: str, licence: str) -> None:
    assert read_epub(epub({"a.xhtml": page("<p>A.</p>")}, package(["a.xhtml"], metadata))).licence == licence


@pytest.mark.parametrize(
    ("href", "path"),
    [
        ("a.xhtml", "OEBPS/a.xhtml"),
        ("../a.xhtml#x", "a.xhtml"),
        ("a%20b.xhtml", "OEBPS/a b.xhtml"),
        ("../../a", None),
        ("/etc/passwd", None),
        ("file:///etc/passwd", None),
        ("http://127.0.0.1/a", None),
        ("//host/a", None),
        ("..\\a", None),
        ("%2e%2e/%2e%2e/a", None),
        ("a\x00b", None),
        ("", None),
        ("http://[", None),
    ],
)
def test_no_reference_leaves_the_archive(href: str, path: str | None) -> None:
    assert resolved("OEBPS", href) == path


def test_pages_that_cannot_be_read_are_named_and_the_others_stay() -> None:
    bomb = (
        '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "ha">'
        + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "&a;" * 10}">' for n in range(10))
        + "]><html><p>&a9;</p></html>"
    )
    outside = '<!DOCTYPE b [<!ENTITY x SYSTEM "file:///etc/passwd">]><html><p>&x;</p></html>'
    pages = {
        "a.xhtml": page("<p>A.</p>"),
        "bomb.xhtml": bomb,
        "outside.xhtml": outside,
        "deep.xhtml": page("<div>" * 100_000 + "x" + "</div>" * 100_000),
        "binary.xhtml": b"\x00\x01\x02" * 100,
        "inner.epub": epub({"a.xhtml": page("<p>Inner.</p>")}),
    }
    hrefs = [*pages, "gone.xhtml", "file:///etc/passwd", "http://127.0.0.1:9/a.xhtml", "../../up.xhtml"]
    spine = "".join(f'<itemref idref="i{n}"/>' for n in range(len(hrefs))) + '<itemref idref="nobody"/>'
    book = read_epub(epub(pages, package(hrefs, spine=spine)))
    assert book.paragraphs == ["A."]
    assert book.unread == {
        "OEBPS/bomb.xhtml": "entity_declarations",
        "OEBPS/outside.xhtml": "entity_declarations",
        "OEBPS/deep.xhtml": "nested_too_deep",
        "OEBPS/binary.xhtml": "not_text",
        "OEBPS/inner.epub": "archive_in_archive",
        "OEBPS/gone.xhtml": "missing",
        "file:///etc/passwd": "outside_the_archive",
        "http://127.0.0.1:9/a.xhtml": "outside_the_archive",
        "../../up.xhtml": "outside_the_archive",
        "nobody": "not_in_manifest",
    }


def test_fallbacks_that_go_round_in_a_circle() -> None:
    items = (
        "".join(f'<item id="{a}" href="{a}.svg" media-type="image/svg+xml" fallback="{b}"/>' for a, b in ("xy", "yx"))
        + '<item id="s" href="s.svg" media-type="image/svg+xml" fallback="i0"/>'
    )
    spine = '<itemref idref="x"/><itemref idref="s"/>'
    book = read_epub(epub({"a.xhtml": page("<p>A.</p>")}, package(["a.xhtml"], "", spine, items)))
    assert book.paragraphs == ["A."]
    assert book.unread == {"OEBPS/x.svg": "no_page"}


ENCRYPTION = (
    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container" xmlns:enc="http://www.w3.org/2001/04/xmlenc#">'
    '<enc:EncryptedData><enc:EncryptionMethod Algorithm="{}"/><enc:CipherData><enc:CipherReference URI="{}"/>'
    "</enc:CipherData></enc:EncryptedData></encryption>"
)


def test_encrypted_books_and_books_with_obfuscated_fonts() -> None:
    pages = {"a.xhtml": page("<p>A.</p>")}
    aes = ENCRYPTION.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "OEBPS/a.xhtml")
    with pytest.raises(Unreadable, match="^encrypted$"):
        read_epub(epub(pages, **{"META-INF__encryption.xml": aes}))
    font = ENCRYPTION.format("http://www.idpf.org/2008/embedding", "OEBPS/a.otf")
    assert read_epub(epub(pages, **{"META-INF__encryption.xml": font})).paragraphs == ["A."]


def test_packages_that_are_missing_or_hostile() -> None:
    with pytest.raises(Unreadable, match="broken_archive"):
        read_epub(b"no epub")
    with pytest.raises(Unreadable, match="no_package_file"):
        read_epub(epub({}, "").replace(b"package.opf", b"package.xyz"))
    with pytest.raises(Unreadable, match="entity_declarations"):
        read_epub(epub({}, '<!DOCTYPE x [<!ENTITY a "a">]><package/>'))
    with pytest.raises(Unreadable, match="not_xml"):
        read_epub(epub({}, "<package><manifest>"))
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:  # no container, but one package file
        archive.writestr("a.opf", package(["a.xhtml"]))
        archive.writestr("a.xhtml", page("<p>A.</p>"))
    assert read_epub(data.getvalue()).paragraphs == ["A."]


def test_a_page_of_very_many_attributes_or_one_very_long_one() -> None:
    many = page("<p " + " ".join(f'a{n}="{n}"' for n in range(50_000)) + ">Many.</p>")
    long = page(f'<p title="{"x" * 12_000_000}">Long.</p>')
    huge = page("<p>" + "x" * (17 << 20) + "</p>")
    book = read_epub(epub({"many.xhtml": many, "long.xhtml": long, "huge.xhtml": huge}))
    assert set(book.paragraphs) <= {"Many.", "Long."}
    assert "OEBPS/huge.xhtml" in book.unread


# ── the same book as text and as EPUB ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["Doyle_Hound_1902", "Morris_Wood_1894", "Schreiner_Trooper_1897"])
def test_an_epub_has_the_paragraphs_of_the_text(name: str, version: int) -> None:
    text = decode(shared(f"data/books/novels/{name}.txt").read_bytes()).text
    assert text is not None
    wanted = list(paragraphs(strip_gutenberg(text)[0]).paragraphs)
    book = read_epub(novel(wanted, version))
    plain, _ = strip_gutenberg("\n\n".join(book.paragraphs))
    found = list(from_blocks(plain.split("\n\n")).paragraphs)
    same = sum(
        block.size for block in difflib.SequenceMatcher(None, wanted, found, autojunk=False).get_matching_blocks()
    )
    assert same >= 0.99 * max(len(wanted), len(found))
    assert (book.title, book.author, book.language) == ("A Novel", "Somebody", "en-GB")


# ── real files ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "count", "begins", "ends"),
    [
        ("trees", 8, "A tree is a plant form that occurs", "but all spruces are trees."),
        ("hefty-water", 12, "This document serves to test Reading System support for the epub:switch element.", "looks like this:"),
        ("wasteland", 36, "April is the cruellest month, breeding\nLilacs out of the dead land, mixing\n", "Shantih shantih shantih"),
        ("regime-anticancer-arabic", 136, "حسنًا! إن أردنا أن نفهم الآن", "إلى كلّ أغذيتنا."),
        ("policy", 1072, "This manual describes the policy requirements", "or on the World Wide Web at https://www.gnu.org/licenses/."),
        ("childrens-literature", 946, "The difficulties of classification are very apparent here", "The Black Brothers."),
    ],
)  # fmt: skip
def test_real_epubs(name: str, count: int, begins: str, ends: str) -> None:
    book = read_epub(shared(f"data/books/epub/{name}.epub").read_bytes())
    assert abs(len(book.paragraphs) - count) <= 0.01 * count
    assert book.paragraphs[0].startswith(begins)
    text = "\n\n".join(book.paragraphs)
    assert ends in text[-400:]
    assert book.unread == {}
    assert not any(mark in text for mark in ("<", "[1]", "&nbsp;", "\u00a0", "epub:type=")) or name in (
        "policy",
        "hefty-water",
    )
