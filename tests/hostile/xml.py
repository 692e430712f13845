"""XML that somebody built to do harm: as the page of a dump, and as a page of an EPUB.

Numbers are those of the list in tests/hostile/cases.py.
"""

import random
from functools import cache

from tests.pipeline.dumps import SITEINFO, page

SENTENCE = "The king lived in a castle by the sea, and nobody ever came to see him there."
HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="tl">' + SITEINFO
LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "ha" * 10}">' for n in range(10))
GOOD = page("Good", 1, SENTENCE)
END = "</mediawiki>"


def dump(*parts: str) -> bytes:
    """A dump with a good page before what is bad."""
    return (HEAD + GOOD + "".join(parts) + END).encode()


def declared(declaration: str, reference: str = "&x;") -> bytes:
    """A dump that begins with a document type."""
    return f'<?xml version="1.0"?>\n<!DOCTYPE mediawiki {declaration}>\n{HEAD}{page("A", 2, reference)}{END}'.encode()


def xhtml(declaration: str, body: str = "&x;") -> str:
    """A page of a book that begins with a document type."""
    return f'<?xml version="1.0"?><!DOCTYPE html {declaration}><html><body><p>{SENTENCE} {body}</p></body></html>'


def entities(secret: str, url: str) -> dict[int, tuple[str, str, str]]:
    """Number → (name, declaration, what refers to it)."""
    return {
        1: ("billion laughs", f"[{LAUGHS}]", "&a9;"),
        2: ("quadratic blowup", f'[<!ENTITY a "{"x" * 100_000}">]', "&a;" * 20_000),
        3: ("external entity file:///", f'[<!ENTITY x SYSTEM "file://{secret}">]', "&x;"),
        4: ("external DTD http://127.0.0.1", f'SYSTEM "{url}/x.dtd"', "and so on"),
        5: (
            "parameter entity",
            f'[<!ENTITY % p SYSTEM "file://{secret}"> %p; <!ENTITY % q SYSTEM "{url}/q"> %q;]',
            "x",
        ),
    }


@cache
def colliding(count: int = 1024) -> list[str]:
    """Names that expat's hash without a salt (before 2.1.0: h = h * 1000003 xor c, on 32 bits) gives one value: blocks of
    letters of which two lead from one value to one other, 2^n names of n blocks."""
    random_ = random.Random(13)
    state, blocks = 0, []
    while 2 ** len(blocks) < count:
        seen: dict[int, str] = {}
        while True:
            block = "".join(random_.choices("abcdefghijklmnopqrstuvwxyz", k=7))
            value = state
            for character in block:
                value = (value * 1000003 ^ ord(character)) & 0xFFFFFFFF
            if seen.setdefault(value, block) != block:
                blocks.append((seen[value], block))
                state = value
                break
    names = [""]
    for pair in blocks:
        names = [name + block for name in names for block in pair]
    return names
