"""The compiled scanner gives the text that the Python one gives, on real pages, on the cases, and on generated markup."""

import random
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import wikitext
from pipeline.errors import SourceError
from pipeline.wiki.wikitext_templates import rules_for
from pipeline.wikipedia import Page, read_pages, read_site
from tests.conftest import shared

compiled = pytest.importorskip("pipeline.wikitext_scan", reason="was not built: needs a C compiler at installation")
NAMES = wikitext._names(None)
RULES = rules_for()
PIECES = [
    *("[", "]", "[[", "]]", "[[[", "{", "}", "{{", "}}", "{{{", "}}}", "|", "=", ":", "#", "*", ";", "!", "'", "''", "'''"),
    *("'''''", "''''", "\n", "\n\n", " ", "  ", "\t", "----", "== H ==", "=== See also ===\n", "== References ==\n", "{|", "|}"),
    *("|-", "-{", "}-", "zh-hans:a;zh-hant:b", "<", ">", "/>", "<!--", "-->", "<ref>", "<ref name=a />", "</ref>", "<ref name='x\">"),
    *("<nowiki>", "</nowiki>", "<math>x</math>", "<br>", "<br/>", "</br>", "<b>", "</b>", "<b x='<i>'>", "<div>", "</div >", "<p"),
    *("<li>", "<table>", "</table>", "<noinclude>", "<gallery>a\n</gallery>", "<ruby-rt>", "<small>", "<''b>", "<x y>", "<1>"),
    *("&amp;", "&nbsp;", "&#39;&#39;", "&#x1;", "&lt;b&gt;", "&am", "p;", "&bogus;", "__TOC__", "__", "_", "http://x.org a"),
    *("[http://x.org a]", "[//x b]", "[mailto:a c]", "File:a.jpg", "[[File:a.jpg|thumb|b [[c]] d]]", "[[Category:X]]", "[[:de:y|]]"),
    *("[[a|b]]", "[[a#b|c]]", "[[a_b]]", "[[ |x]]", "[[x| ]]", "{{nbsp}}", "{{convert|5|km}}", "{{cite}}", "{{lang|de|Haus}}"),
    *("(", ")", "（", "）", "(; ", " ,", "、", "。", "「", "」", "“", "”", "«", "»", "·", "–", ".", "..", ".5", "?", "!", "-", "/"),
    *("\x01", "\x02", "\xa0", "\u2009", "\u200b", "\ufdd0", "\ufeff", "\u3000", "字", "ア", "é", "ſ", "İ", "𝔘", "a", "Word", "1"),
]  # fmt: skip


def same(text: str) -> None:
    assert compiled.prose(text, NAMES, RULES) == wikitext.prose(text, NAMES, RULES), repr(text)


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_on_generated_markup(text: str) -> None:
    same(text)


@pytest.mark.parametrize(
    "text",
    [
        "<x&nbsp;>",
        "<p[// b]\ni>",
        "<p\x02[[''>",
        "<''b>",
        "&am<b>p;",
        "<!-->",
        "<b <br> x>",
        "(\x01; a)",
        "[[a|\u3000]]",
        "\u3164\n\n&#12644;\n\n\uffa0\u115f\u1160 x\n\n\u2800",
    ],
)
def test_what_was_different_once_or_might_be(text: str) -> None:
    same(text)
    same(f"Words {text} and more.\n")


def test_on_long_generated_markup() -> None:
    chosen = random.Random(20261129)
    for size in (100, 1000, 10_000):
        for _ in range(30):
            same("".join(chosen.choices(PIECES, k=size)))


@pytest.mark.parametrize(
    "name", ["enwiki-20220720-head.xml.bz2", "jawiki-20220720-head.xml.bz2", "minidumps/ru_wiki.xml.bz2"]
)
def test_on_real_pages_and_on_broken_ones(name: str) -> None:
    path = shared("data") / "wikipedia" / name
    names = wikitext._names(read_site(path))
    chosen = random.Random(5)
    pages = [page.text for page in _whole(path)]
    assert pages
    for text in pages[:60]:
        assert compiled.prose(text, names, RULES) == wikitext.prose(text, names, RULES)
        broken = list(text[:20_000])
        for _ in range(len(broken) // 100):
            broken[chosen.randrange(len(broken))] = chosen.choice(["", "[", "}", "<", "'", "\n", "|"])
        same("".join(broken))


def _whole(path: Path) -> list[Page]:
    """The articles before the place where the sample is cut off."""
    pages = []
    with suppress(SourceError):
        pages.extend(page for page in read_pages(path) if page.namespace == 0)
    return pages


def test_to_text_takes_the_compiled_one_unless_it_is_older_than_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wikitext._scanner.__wrapped__() is compiled.prose, "rebuild it: make env"
    monkeypatch.setattr(compiled, "SOURCES", "0" * 64)
    with pytest.warns(UserWarning, match="older than its source"):
        assert wikitext._scanner.__wrapped__() is wikitext.prose
