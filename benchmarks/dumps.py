"""Large dumps out of small ones: the same pages again under other ids and titles."""

import bz2
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pipeline.wiki.bz2_blocks import BrokenBz2, blocks

_ID = re.compile(rb"<id>(\d+)</id>")
_TITLE = re.compile(rb"</title>")


def _source(path: Path) -> tuple[bytes, list[bytes]]:
    """(what comes before the pages, the whole pages) of a small .bz2 dump, even of one that is cut off."""
    data = b""
    try:
        with path.open("rb") as file:
            for block in blocks(file):
                data += b"".join(block.pieces)
    except BrokenBz2:
        pass
    head, *pages = re.split(rb"(?=<page>)", data)
    return head, [page[: page.index(b"</page>") + 7] + b"\n" for page in pages if b"</page>" in page]


def _pages(pages: list[bytes], copies: int) -> Iterator[bytes]:
    step = 1 + max(int(found.group(1)) for page in pages if (found := _ID.search(page)))
    for copy in range(copies):
        for page in pages:
            page = _ID.sub(lambda found, copy=copy: b"<id>%d</id>" % (int(found.group(1)) + copy * step), page, count=1)
            yield _TITLE.sub(b" (%d)</title>" % copy, page, count=1) if copy else page


def write(source: Path, target: Path, copies: int, pages_per_stream: int | None) -> None:
    """Write `copies` times the pages of `source` as .bz2: so many pages to a stream, or None: one stream."""
    head, pages = _source(source)

    def pieces(file: IO[bytes]) -> None:
        if pages_per_stream is None:
            compressor = bz2.BZ2Compressor()
            for piece in (head, *_pages(pages, copies), b"</mediawiki>\n"):
                file.write(compressor.compress(piece))
            file.write(compressor.flush())
            return
        file.write(bz2.compress(head))
        held: list[bytes] = []
        for page in _pages(pages, copies):
            held.append(page)
            if len(held) == pages_per_stream:
                file.write(bz2.compress(b"".join(held)))
                held = []
        file.write(bz2.compress(b"".join(held)) + bz2.compress(b"</mediawiki>\n"))

    with target.open("wb") as file:
        pieces(file)
