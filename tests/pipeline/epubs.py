"""EPUBs made by hand: the smallest package that holds given pages."""

import html
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.hostile.archives import zip_of

CONTAINER = (
    '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/package.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
XHTML = "application/xhtml+xml"


def page(body: str, title: str = "A page") -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">\n'
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">'
        f"<head><title>{title}</title></head><body>{body}</body></html>"
    )


def package(
    hrefs: Sequence[str],
    metadata: str = "",
    spine: str | None = None,
    extra_items: str = "",
    after: str = "",
    version: str = "3.0",
) -> str:
    items = "".join(f'<item id="i{n}" href="{href}" media-type="{XHTML}"/>' for n, href in enumerate(hrefs))
    spine = spine if spine is not None else "".join(f'<itemref idref="i{n}"/>' for n in range(len(hrefs)))
    return (
        f'<package xmlns="http://www.idpf.org/2007/opf" version="{version}" unique-identifier="id">'
        f'<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">{metadata}</metadata>'
        f"<manifest>{items}{extra_items}</manifest><spine>{spine}</spine>{after}</package>"
    )


def epub(pages: Mapping[str, str | bytes], opf: str | None = None, **more: str | bytes) -> bytes:
    """Pages below OEBPS/; `more` are other members, their names with "/" for "__"."""
    files: dict[str, bytes | str] = {"mimetype": "application/epub+zip", "META-INF/container.xml": CONTAINER}
    files["OEBPS/package.opf"] = opf if opf is not None else package(list(pages))
    files |= {f"OEBPS/{name}": content for name, content in pages.items()}
    files |= {name.replace("__", "/"): content for name, content in more.items()}
    return zip_of(files, zipfile.ZIP_DEFLATED)


def _paragraph(text: str, number: int) -> str:
    """As converters write one: wrapped lines, emphasis, drop caps, page numbers, notes."""
    verse = "\n" in text
    marked = html.escape(text, quote=False).replace("\n", "<br/>\n")
    if number % 7 == 0 and text[0].isalpha():
        marked = f'<span class="dropcap">{marked[0]}</span>{marked[1:]}'
    if number % 5 == 0:
        marked += f'<a epub:type="noteref" href="notes.xhtml#n{number}"><sup>{number}</sup></a>'
    if number % 11 == 0:
        marked = f'<span class="pagenum" id="page{number}">[{number}]</span>' + marked
    if number % 13 == 0 and " " in marked and "<" not in marked:
        first, rest = marked.split(" ", 1)
        marked = f'<i class="calibre1">{first}</i> \n   {rest}'
    return f'<div class="poem"><p>{marked}</p></div>' if verse else f"<p>{marked}</p>"


def novel(paragraphs: Sequence[str], version: int, title: str = "A Novel") -> bytes:
    """An EPUB 2 or 3 of a novel with all that surrounds its prose in real ones."""
    size = 120
    chapters = [paragraphs[start : start + size] for start in range(0, len(paragraphs), size)]
    pages: dict[str, str] = {
        "cover.xhtml": page('<img src="cover.jpg" alt="Cover"/>'),
        "titlepage.xhtml": page(f"<p>{title}</p><p>by Somebody, who wrote it</p>"),
        "copyright.xhtml": page(
            "<p>Copyright © 1911 by Somebody. All rights reserved.</p><p>Printed in the U.S.A.</p>"
        ),
        "pg.xhtml": page(
            '<section class="pg-boilerplate pgheader" id="pg-header"><p>The Project Gutenberg eBook, for the use of anyone '
            "anywhere.</p><div>*** START OF THE PROJECT GUTENBERG EBOOK A NOVEL ***</div></section>"
        ),
    }
    links = "".join(f'<p class="x"><a href="c{n}.xhtml">Chapter {n}</a></p>' for n in range(len(chapters)))
    pages["c_list.xhtml"] = page(f"<h2>CONTENTS</h2>{links}")
    for number, chapter in enumerate(chapters):
        body = "".join(_paragraph(text, n) for n, text in enumerate(chapter, start=1))
        figure = '<div class="figcenter"><img src="a.jpg" alt=""/><p class="caption">He looked at her.</p></div>'
        pages[f"c{number}.xhtml"] = page(f"<h2>CHAPTER {number + 1}<br/>In which it goes on</h2>{body}{figure}<hr/>")
    notes = "".join(f'<aside epub:type="footnote" id="n{n}"><p>{n}. A note to it.</p></aside>' for n in range(9))
    pages["z_notes.xhtml"] = page(f"<h2>Notes</h2>{notes}")
    pages["z_footer.xhtml"] = page(
        '<section id="pg-footer"><div>*** END OF THE PROJECT GUTENBERG EBOOK A NOVEL ***</div>'
        "<p>Updated editions will replace the previous one.</p></section>"
    )
    metadata = f"<dc:title>{title}</dc:title><dc:creator>Somebody</dc:creator><dc:language>en-GB</dc:language>"
    if version == 2:
        ncx = '<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
        guide = '<guide><reference type="toc" href="c_list.xhtml"/><reference type="text" href="c0.xhtml"/></guide>'
        return epub(pages, package(list(pages), metadata, extra_items=ncx, after=guide, version="2.0"), OEBPS__toc="")
    nav = '<nav epub:type="toc"><ol><li><a href="c0.xhtml">Chapter 1</a></li></ol></nav><nav epub:type="landmarks"><ol><li><a epub:type="cover" href="cover.xhtml">Cover</a></li></ol></nav>'
    item = f'<item id="nav" href="nav.xhtml" properties="nav" media-type="{XHTML}"/>'
    spine = '<itemref idref="nav"/>' + "".join(f'<itemref idref="i{n}"/>' for n in range(len(pages)))
    opf = package(list(pages), metadata, spine, extra_items=item)
    return epub({**pages, "nav.xhtml": page(nav)}, opf)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
