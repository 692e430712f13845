import bz2
import html
import json
import random
import re

import pytest

from pipeline.wikitext import Site, is_disambiguation, redirect_target, to_text
from tests.conftest import shared


def test_all_shared_cases():
    """Cases from the issue trackers of other extractors; white space between words is free."""
    lines = shared("cases/wikitext.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [case for case in map(json.loads, lines) if case["id"].startswith("w")]
    wrong = {
        case["id"]: (case["symptom"], got)
        for case in cases
        if (got := to_text(case["wikitext"])).split() != case["expect"].split()
    }
    assert len(cases) == 57 and not wrong


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        # holes: repaired beside what was removed, and nowhere else
        ("Angola ({{IPAc-en|æ}}) is large.", "Angola is large."),
        ("A river ({{coord|1|2}}; {{lang|pt|rio}}, {{IPA|x}}) flows.", "A river (rio) flows."),
        (
            "It ended{{citation needed|date=May 2012}} , but ( x + y ) stays ; so.",
            "It ended, but ( x + y ) stays ; so.",
        ),
        ("A (b ({{x}})) c.", "A (b) c."),
        ("(({{x}})) start.", "start."),
        ("{{x}}, he said.", "he said."),
        ("Caliber {{x}} .40 and more {{x}} ... yes.", "Caliber .40 and more ... yes."),
        ("Word<!-- a --> word, word <!-- b --> word.", "Word word, word word."),
        ("音声「ファ」（{{IPA|ɸa}}）である。", "音声「ファ」である。"),
        # templates that stand for words
        ("A {{convert|5|ft|6|in|m|abbr=on}} wall of {{cvt|10|to|20|km|mi}}.", "A 5 ft 6 in wall of 10 to 20 km."),
        (
            "{{As of|2012|3|lc=y}} it had {{formatnum:12345}} {{nowrap|big [[tree]]s}}.",
            "as of March 2012 it had 12345 big trees.",
        ),
        (
            "From {{circa|1230|1250}}, {{frac|3|1|2}} {{val|5.1|0.2|e=3|u=kg}}.",
            "From c. 1230 – c. 1250, 3 1/2 5.1±0.2×10^3 kg.",
        ),
        (
            "The {{lang-de|Stadt}} or {{transl|ar|DIN|madīna}}{{snd}}{{ill|Foo|de|lt=town}}.",
            "The Stadt or madīna – town.",
        ),
        ("Water is {{chem|H|2|O}}; {{abbr|approx.|approximately}} {{US$|5|long=no}}.", "Water is H2O; approx. US$5."),
        ("Au {{XIXe siècle}} et au {{s|XX|e}}, {{1er}} mai.", "Au XIXe siècle et au XXe siècle, 1er mai."),
        ("彼は{{仮リンク|町|en|Town|label=町村}}と{{読み仮名|漢字|かんじ}}。", "彼は町村と漢字（かんじ）。"),
        ("{{small|{{nowrap|{{lang|fr|mot}}}}}} is {{template:LANG|fr|deux}}.", "mot is deux."),
        ("Said he:\n{{quote|To be.|Hamlet}}\nAnd left.", "Said he:\n\nTo be.\n\nAnd left."),
        ("The default {{{1|value}}} stays.", "The default value stays."),
        # links
        ("[[w:en:Foo|]] [[:de:Haus|house]] [[Dog (animal)|]] [[bus]]es [[A#B]].", "Foo house Dog buses A#B."),
        ("[[Detroit: Become Human]] and [[c:File:X.jpg|a picture]].", "Detroit: Become Human and a picture."),
        ("See [[:Category:Music]], [[:File:A.jpg]] and [[:Category:Art|art]].", "See Music, A.jpg and art."),
        ("Text.[[Soubor:x.jpg|náhled|popis]] More. [[Ukjent:X.PNG|mini|tekst]]", "Text. More."),
        ("[[File:A.jpg|thumb|See [[B]]]]Prose [[File:C.jpg|[http://x y]]] here.", "Prose here."),
        ("See [http://example.org/a?b=c the site] and [http://example.org].", "See the site and."),
        # quotes
        ("L'''amour'' et '''''gras''''' d''''un'''.", "L'amour et gras d'un."),
        # tags, entities, literal text
        (
            "H<sub>2</sub>O<br />is <span style='x'>wet</span> &amp; &lt;b&gt; &eacute;&#8211;&nbsp;x.",
            "H2O is wet & <b> é– x.",
        ),
        ("A <math>x</math> and <math>\\frac{a}{b}</math> b.", "A x and b."),
        ("Use <nowiki>{{x|''y''}} [[z]] <b></nowiki> and <code>if</code>.", "Use {{x|''y''}} [[z]] <b> and if."),
        ("1 < 2 and a <b and c > d.", "1 < 2 and a d."),
        ("x<ref name=a>One\n\ntwo</ref> y<ref group='n' name=\"b>c\" /> z.", "x y z."),
        ("One<ref>never closed\nTwo<ref>fine</ref> three.", "One Two three."),
        (
            "The macros __FILE__ and __VA_ARGS__ stay. __KEIN_INHALTSVERZEICHNIS__",
            "The macros __FILE__ and __VA_ARGS__ stay.",
        ),
        ("At No. {{unheard of}}. Then.", "At No. Then."),
        ("[[Zzz:b.mpg|y]] [[Zzz:c.jp2|z]] More.", "More."),
        ("B<ref name = 'q' / > C.", "B C."),
        # blocks
        ("He said {{quote|hello}} and left.", "He said\n\nhello\n\nand left."),
        ("A <ul><li>x</ul> B.", "A\n\nB."),
        ("Prose.\n*{|\n| x\ncell text.\n|}\nP2.", "Prose.\n\nP2."),
        ("<div>In a box.</div>Out of it.", "In a box.\n\nOut of it."),
        ("* item <div>still the item</div>\nProse.", "Prose."),
        ("<ul><li>item</li></ul>Prose.<table><tr><td>cell</td></tr></table>", "Prose."),
        ("Before.\n:{|\n| a\n{|\n| b\n|}\n| c\n|}\nAfter.", "Before.\n\nAfter."),
        ("Before.\n{| never closed\n| a\n\nlost\n\n== Next ==\nAfter.", "Before.\n\nAfter."),
        ("'''!Kung''' is a language.\n!Xóõ is another.", "!Kung is a language. !Xóõ is another."),
        (" typewriter text\n\nProse.", "Prose."),
        ("A.\n\n== ''See also'' ==\nX.\n=== Sub ===\nY.\n== Later ==\nB.", "A.\n\nB."),
        ("Ein Satz.\n\n== Einzelnachweise ==\n<references />\nRest.", "Ein Satz."),
        ("行一\n行二。\n\n行三。", "行一行二。\n\n行三。"),
        ("__NOTOC__ __KEIN_INHALTSVERZEICHNIS__\nText __目次非表示__ here.", "Text here."),
        (
            "A.\n\n== Literatur ==\nB.\n== Kultur ==\n=== Literatur ===\nC.\n== Quellen ==\n=== Literatur ===\nD.",
            "A.\n\nC.",
        ),
        ("文。{{IPA|x}}。次。", "文。次。"),
        ("One\u2028two\u2029three.", "One two three."),
        (
            "See [[http://example.org the site]], [[https://example.org|that]], [[http://example.org]].",
            "See the site, that.",
        ),
        ("-{H|zh-cn:a;zh-tw:b}-这是-{R|字}-。", "这是字。"),
    ],
)
def test_prose(wikitext, expected):
    assert to_text(wikitext) == expected


@pytest.mark.parametrize(
    ("wikitext", "target"),
    [
        ("#REDIRECT [[Ziel]]", "Ziel"),
        ("\n# redirect: [[Ziel#Teil|x]]", "Ziel"),
        ("#перенаправление [[Цель]]", "Цель"),
        ("#転送[[目標]]", "目標"),
        ("# A list of [[things]]", None),
        ("Text #REDIRECT [[X]]", None),
    ],
)
def test_redirects(wikitext, target):
    assert redirect_target(wikitext) == target
    assert target is None or to_text(wikitext) == ""


@pytest.mark.parametrize(
    ("wikitext", "site", "expected"),
    [
        ("X may be:\n* a\n{{Disambiguation|geo}}", None, True),
        ("X kann sein:\n{{Begriffsklärung}}", Site(language="en"), True),
        ("{{Human_name\n disambiguation}}", None, False),
        ("{{Human_name disambiguation}}", None, True),
        ("Text.{{disambiguation needed|date=May 2012}}", None, False),
        ("{{dp}}", Site(language="nl"), True),
        ("{{dp}}", Site(language="en"), False),
    ],
)
def test_disambiguation(wikitext, site, expected):
    assert is_disambiguation(wikitext, site) is expected


def test_disambiguation_by_title():
    assert is_disambiguation("Text.", None, "Merkur (Begriffsklärung)")


@pytest.mark.parametrize(("language", "expected"), [("es", "Rica."), ("pt", "Rica."), ("pl", "")])
def test_a_heading_means_what_the_wikis_language_says(language, expected):
    assert to_text("== Literatura ==\nRica.", Site(language=language)) == expected


def test_names_of_the_dump_count():
    site = Site(language="xx", namespaces=((6, "Grafo"), (14, "Speco")))
    assert to_text("A[[Grafo:x|thumb|caption]] b.[[Speco:Urbo]]", site) == "A b."


@pytest.mark.parametrize(
    "opener",
    ["{{a|", "[[a|", "[[File:a|", "<ref>", "<ref name=\"", "<!-- ", "{|\n", "<x><y>", "{{{", "[http://a ", "(", "''", "-{", "<div>",
     "<table>", "<math>", "<nowiki>", "}}", "]]", "({{x}};", "{{nowrap|", "<b "],
)  # fmt: skip
def test_thousands_of_openers(opener):
    """Each of these takes minutes where one step looks ahead again for every opener."""
    assert to_text("Prose stands here.\n\n" + opener * 50_000).startswith("Prose stands here.")


@pytest.mark.parametrize(
    "wikitext",
    [
        f"A [http://{'a' * 300_000}",
        f"A [[b{' ' * 300_000}c|]] d.",
        f"A -{{{' ' * 300_000}}}- b.",
        f"#REDIRECT{' ' * 300_000}x",
    ],
)
def test_long_runs_are_read_once(wikitext):
    """Each took hours, or minutes, while its length counted squared."""
    assert len(to_text(wikitext)) <= len(wikitext)


@pytest.mark.parametrize("call", ["as of|2020|{}", "start date|1|{}|2", "datum|{}|1|1", "fecha|1|{}|2", "date|1|{}|2"])
def test_numbers_beyond_all_bounds_are_words(call):
    to_text("A {{" + call.format("1" * 5000) + "}} b.", Site(language="de"))


def test_deep_nesting_that_is_closed():
    deep = 5_000
    assert to_text("A " + "{{a|" * deep + "x" + "}}" * deep + " b.") == "A b."
    assert to_text("A " + "(" * 10 + "{{x}}" + ")" * 10 + " b.") == "A b."


_PIECES = """{{ }} [[ ]] {| |} | = == ''' '' <ref> </ref> <!-- --> <nowiki> </nowiki> ( ) a b. File: Category: -{ }- &amp; &#x;
&#55357; * # ; : __TOC__ {{convert| {{lang|en| <br/> <div> </div> \ufdd0 \x00 \x01 \x02 [http://x {{{ }}} 日本 <table> </table> {{val|
{{frac| {{as of| {{chem| 1 {{s| {{ordinal| ² {{start date| {{nihongo|""".split()  # noqa: SIM905


def test_it_never_raises_and_leaves_no_stand_ins():
    chance = random.Random(7)
    for _ in range(3000):
        wikitext = "".join(chance.choice([*_PIECES, " ", "\n"]) for _ in range(chance.randint(1, 60)))
        text = to_text(wikitext)
        assert not re.search("[\x00-\x08\ufdd0-\ufdef]|\n\n\n|^\\s|\\s$", text), wikitext


def test_real_articles_leave_no_markup():
    """Of real articles; what stands literally in <nowiki> does not count."""
    dump = bz2.decompress(shared("data/wikipedia/enwiki-20220720-head.xml.bz2").read_bytes()).decode()
    pages = [html.unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", dump, re.S)]
    texts = [to_text(page) for page in pages[:80] if "<nowiki" not in page]
    text = "\n\n".join(filter(None, texts))
    left = re.findall(r"\{\{|\}\}|\[\[|\]\]|</?ref|'''|^=.*=$|\|thumb|\bFile:|colspan|__[A-Z]{3,}__|  ", text, re.M)
    assert left == []
    assert len(text) > 400_000
