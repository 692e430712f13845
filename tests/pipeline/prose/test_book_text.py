"""Books in all layouts become paragraphs of prose: what goes, what stays, and that layout does not matter."""

import random
import re
import textwrap
from difflib import SequenceMatcher
from itertools import pairwise

import pytest

from pipeline.prose.book_headings import is_end, is_heading, is_page_number, is_separator
from pipeline.prose.book_text import BookText, Section, boundaries, from_blocks, paragraphs
from pipeline.prose.sentence_lines import MAX_LINES
from tests.conftest import shared

NOVELS = """
Barclay_Postern_1911 Burnett_Lord_1886 Chesterton_Napoleon_1904 Chesterton_Thursday_1908 Conrad_Almayer_1895
Doyle_Hound_1902 Kipling_Captains_1896 Lee_Penelope_1903 Morris_Wood_1894 Schreiner_Trooper_1897
Stevenson_Treasure_1883 Trollope_Warden_1855
""".split()  # noqa: SIM905

BOOK = """
[Transcriber's Note: Obvious printer errors have been corrected.

The author's spelling has been maintained.]


[Illustration: "I HAVE WAITED ALL
THESE YEARS" [_Page 12_]]


KATRINE

A Novel

BY

ELINOR MACARTNEY LANE

AUTHOR OF "NANCY STAIR" AND "MILLS OF GOD"


NEW YORK AND LONDON HARPER & BROTHERS PUBLISHERS

MCMIX


Copyright, 1909, by HARPER & BROTHERS.

_All rights reserved._

Published March, 1909.


CONTENTS

CHAP.                                                           PAGE
         PREFACE                                                  vii
      I. UNDER THE SOUTHERN PINES                                   1
     II. THE MEETING IN THE WOODS                                  15
    III. A KINDNESS WITH MIXED MOTIVES                             29


ILLUSTRATIONS


"I HAVE WAITED ALL THESE YEARS"                         _Frontispiece_

THE MEETING AT THE LODGE                             _Facing page_ 27


PREFACE


It is difficult to tell the story of Irish folk intimately and
convincingly, the bare truths concerning their splendid recklessness,
their unproductive ardor, sounding to another race like a pack of lies.[1]


KATRINE

I

UNDER THE SOUTHERN PINES


Ravenel Plantation occupies a singular rise of wooded land in North
Carolina, between Way-Home River, Loon Mountain, and the _Silver Fork_.
The road which leads from Charlotte toward the south branches there.[2]

[Footnote 2: So called by the people. It is told that the hollow
[as they say] was haunted.

A second paragraph of the note.]

[Pg 13]

"NO!"

Yes!

The =bold= word rang and rang again in the hall, and they heard--
those who would hear--what it said.

       *       *       *       *       *

    "The Ravenels ryde forth,
    Hyde alle ye ladyes gay;
      They take a heart,
      They break a heart,
    Then ryde away!"

He came to the gate and it was open, and there the well-
known road went on to the south, as the well-known road did ever. A man
was stand-
ing there; they were all standing.

[Illustration]

II

THE MEETING IN THE WOODS


"I," he said.

The woods were quiet when they came there in the evening, and the [Pg
14]road was dark; nobody spoke of the meeting at all, till it was past.

CHAPTER III.

A KINDNESS WITH MIXED MOTIVES

It was a kindness with motives that were mixed, as kindnesses are; and
so the thing was done.


THE END


BY THE SAME AUTHOR

    NANCY STAIR. Post 8vo, $1.50.
    MILLS OF GOD. Crown 8vo, cloth, $1.25 net.

HARPER & BROTHERS, PUBLISHERS, NEW YORK


       *       *       *       *       *

Transcriber's Notes:

Page 12: "teh" changed to "the".

[Footnote 1: Or so we are told.]
"""


def test_a_book_with_everything_around_its_prose() -> None:
    book = paragraphs(BOOK)
    assert book.paragraphs == (
        "It is difficult to tell the story of Irish folk intimately and convincingly, the bare truths concerning their "
        "splendid recklessness, their unproductive ardor, sounding to another race like a pack of lies.",
        "Ravenel Plantation occupies a singular rise of wooded land in North Carolina, between Way-Home River, Loon "
        "Mountain, and the Silver Fork. The road which leads from Charlotte toward the south branches there.",
        '"NO!"',
        "Yes!",
        "The bold word rang and rang again in the hall, and they heard--those who would hear--what it said.",
        '"The Ravenels ryde forth,\nHyde alle ye ladyes gay;\nThey take a heart,\nThey break a heart,\nThen ryde away!"',
        "He came to the gate and it was open, and there the well-known road went on to the south, as the well-known road "
        "did ever. A man was standing there; they were all standing.",
        '"I," he said.',
        "The woods were quiet when they came there in the evening, and the road was dark; nobody spoke of the meeting at "
        "all, till it was past.",
        "It was a kindness with motives that were mixed, as kindnesses are; and so the thing was done.",
    )
    assert (book.layout, book.pretokenised, book.lowercased) == ("paragraphs", False, False)
    for key in ("headings", "contents_lines", "title_page", "page_numbers", "separators", "back_matter", "notes"):
        assert book.counts[key] > 0, key
    assert book.counts["illustrations"] == 2
    assert book.counts["footnotes"] == 2
    assert book.counts["footnote_marks"] == 2
    assert book.counts["hyphens_joined"] == 1


def test_german_and_french() -> None:
    german = """FRANZ KAFKA

DIE VERWANDLUNG

KURT WOLFF VERLAG LEIPZIG

Inhalt

  Erstes Kapitel. Das Erwachen          1
  Zweites Kapitel. Der Prokurist       20

Erstes Kapitel

Das Erwachen

Als Gregor Samsa eines Morgens aus unruhigen Träumen erwachte, fand er
sich in seinem Bett zu einem ungeheueren Ungeziefer verwandelt.

Sein Zim-
mer, ein richtiges, nur etwas zu kleines Menschenzimmer, lag ruhig in
dem Zimmer der Haus- und Hoftüren.

Zweites Kapitel

Der Prokurist

»Was ist mit mir geschehen?« dachte er.

ENDE
"""
    assert paragraphs(german).paragraphs == (
        "Als Gregor Samsa eines Morgens aus unruhigen Träumen erwachte, fand er sich in seinem Bett zu einem "
        "ungeheueren Ungeziefer verwandelt.",
        "Sein Zimmer, ein richtiges, nur etwas zu kleines Menschenzimmer, lag ruhig in dem Zimmer der Haus- und Hoftüren.",
        "»Was ist mit mir geschehen?« dachte er.",
    )
    french = """LES MISÉRABLES

Tome I--FANTINE

(1862)

TABLE DES MATIÈRES

Livre premier--Un juste

Chapitre I Monsieur Myriel
Chapitre II Monsieur Myriel devient monseigneur Bienvenu

Livre premier--Un juste

Chapitre I

Monsieur Myriel

En 1815, M. Charles-François-Bienvenu Myriel était évêque de Digne.

--Oui, dit-il.

Chapitre II

Monsieur Myriel devient monseigneur Bienvenu

Le palais épiscopal de Digne était attenant à l'hôpital.

FIN DU TOME PREMIER
"""
    assert paragraphs(french).paragraphs == (
        "En 1815, M. Charles-François-Bienvenu Myriel était évêque de Digne.",
        "--Oui, dit-il.",
        "Le palais épiscopal de Digne était attenant à l'hôpital.",
    )


@pytest.mark.parametrize(
    "line",
    [
        "CHAPTER I",
        "CHAPTER THE FIRST.",
        "Chapter 12",
        "Chapter One: The Old Sea-dog",
        "CHAPTER IV--THE HUNTING OF THE HART",
        "CHAPTER VI: THE OLD MAN TELLS WALTER OF HIMSELF. WALTER SEES A SHARD",
        "PART ONE The Old Buccaneer",
        "BOOK THE FIRST",
        "Book II. continued .",
        "ACT II",
        "SCENE III.--A wood",
        "Stave One",
        "THE SECOND PART",
        "I",
        "XIV.",
        "7",
        "IV. The Problem",
        "XII.--HOW IT ENDED",
        "3. THE BLACK SPOT",
        "PREFACE",
        "Prologue",
        "AUTHOR'S NOTE",
        "Introduction by the Editor",
        "Erstes Kapitel",
        "2. Kapitel",
        "ZWEITER TEIL",
        "Chapitre premier",
        "PREMIÈRE PARTIE",
        "Capítulo primero",
        "CAPITOLO III.",
        "_CHAPTER II_",
        "PRÓLOGO",
        "EPÍLOGO",
    ],
)
def test_headings(line: str) -> None:
    assert is_heading(line)


@pytest.mark.parametrize(
    "line",
    [
        '"I."',
        "Yes!",
        "NO!",
        "I went home.",
        "I",
        "Part of the story was true.",
        "Part one of the plan was done, and nobody had seen it.",
        "The first part, of course, was easy.",
        "Book in hand, he went.",
        "Chapter and verse were given.",
        "Act now.",
        "Letter I have none.",
        "Introduction was needless.",
        "I. e., that is to say, nothing was left of it.",
        "In fact it was I who did it.",
        "The end of the affair came soon.",
        "civil",
        "mix",
        "Fine.",
        "",
    ],
)
def test_prose_is_no_heading(line: str) -> None:
    if line != "I":  # alone in a line it is the number of a chapter; in a paragraph's quotes it is not
        assert not is_heading(line)
    assert not is_end(line)


def test_other_lines() -> None:
    assert all(map(is_separator, ["* * * * *", "-----", "***", "_______", "• • •", "~"]))
    assert not any(map(is_separator, ["", "* a *", "word"]))
    assert all(map(is_page_number, ["[Pg 12]", "{xii}", "- 12 -", "12", "xiv", "Page 7", "[12]"]))
    assert not any(map(is_page_number, ["", "i", "mix", "12 men", "page"]))
    assert all(map(is_end, ["THE END", "The End.", "FINIS.", "END OF VOL. I.", "Ende", "FIN DU TOME PREMIER", "FINE"]))
    assert all(map(is_end, ["(End of volume one.)", "[The End]", "(FINIS.)"]))
    assert not any(
        map(is_end, ["the end of a little passage, her", "End of the day.", "fine", "The end justified it."])
    )
    assert not any(map(is_end, ["(the end)", "()", "The end of the story was sad.", "(The end of the book had come.)"]))


def test_prose_that_looks_like_headings_stays() -> None:
    long = "He had walked a long way by then, and the road was dark, and nobody came, and it rained as it had never rained."
    texts = [
        long * 3,
        "The sign said:",
        "NO ADMITTANCE.",
        "and it meant it.",
        "Yes!",
        '"I."',
        "NO!",
        "It did.",
        "So he went.",
        long,
    ]
    assert paragraphs("\n\n".join(texts)).paragraphs == tuple(texts)
    assert from_blocks(texts).paragraphs == tuple(texts)


def test_verse_keeps_its_lines_and_broken_prose_does_not() -> None:
    long = (
        "He had walked a long way by then, and the road was dark, and it was\n"
        "late, and nobody came, and it rained as never before in that country.\n\n"
    )
    verse = "O Captain! my Captain!\nOur fearful trip is done,\nThe ship has weather'd"
    sonnet = "    From fairest creatures we desire increase,\n    That thereby beauty's rose might never die,"
    spoken = '"Yes," he said, "a spy.\nThere is a traitor here."'
    found = paragraphs(f"{long * 5}{verse}\n\n{long}{sonnet}\n\n{long}{spoken}\n\n{long}").paragraphs
    assert verse in found
    assert "From fairest creatures we desire increase,\nThat thereby beauty's rose might never die," in found
    assert '"Yes," he said, "a spy. There is a traitor here."' in found


def test_a_book_of_blank_verse_keeps_its_lines() -> None:
    lines = (
        "Of Man's first disobedience, and the fruit\n"
        "Of that forbidden tree whose mortal taste\n"
        "Brought death into the World, and all our woe,\n"
        "With loss of Eden, till one greater Man\n"
        "Restore us, and regain the blissful seat,\n"
        "Sing, Heavenly Muse.\n"
    )
    found = paragraphs("Book I\n\n\n" + ("  " + lines) * 30 + "\nBook II\n\n\n" + lines).paragraphs
    assert found == (lines.strip(),) * 31


def test_blocks_of_an_epub_follow_the_same_rules() -> None:
    long = "He had walked a long way by then, and the road was dark, and nobody came. " * 4
    book = from_blocks(
        [
            "KATRINE",
            "CHAPTER I",
            "The Road",
            f"{long}[1]",
            "Roses are red,\nViolets are _blue_",
            "[1] A note.",
            "THE END",
        ]
    )
    assert book.paragraphs == (long.strip(), "Roses are red,\nViolets are blue")


def test_novels_hold_no_heading_and_no_table_of_contents() -> None:
    for name in NOVELS:
        book = paragraphs(shared(f"data/books/novels/{name}.txt").read_text(encoding="utf-8-sig"))
        assert 240 < len(book.paragraphs) < 1600, name
        for text in book.paragraphs:
            assert not is_heading(text), (name, text)
            assert not is_end(text) and not is_separator(text), (name, text)
            assert text == " ".join(text.replace("\n", " \n").split(" ")).replace(" \n", "\n") and "\n\n" not in text
        capitals = {text for text in book.paragraphs if text.isupper() and '"' not in text and len(text) > 3}
        # Signatures of telegrams and letters.
        assert capitals <= {"BASKERVILLE.", "MY DEAR HOLMES:"}, (name, capitals)


def test_titles_of_the_novels_are_gone() -> None:
    for name, titles in {
        "Doyle_Hound_1902": ["Three Broken Threads", "The Problem", "Mr. Sherlock Holmes"],
        "Trollope_Warden_1855": ["Hiram's Hospital", "Mount Olympus"],
        "Stevenson_Treasure_1883": ["The Black Spot", "And Last", "TREASURE ISLAND"],
        "Barclay_Postern_1911": ['"AS A DREAM, WHEN ONE AWAKETH"', "THE FIRST DAY", "146th Thousand"],
        "Chesterton_Thursday_1908": ["THE FEAST OF FEAR", "A NIGHTMARE"],
        "Chesterton_Napoleon_1904": ["THE NAPOLEON OF NOTTING HILL", "CHAPTER I--The Charter of the Cities"],
    }.items():
        kept = paragraphs(shared(f"data/books/novels/{name}.txt").read_text(encoding="utf-8-sig")).paragraphs
        assert not set(titles) & set(kept)


def test_one_book_in_two_layouts_is_the_same() -> None:
    novel = paragraphs(shared("data/books/novels/Burnett_Lord_1886.txt").read_text(encoding="utf-8-sig"))
    epub = paragraphs(shared("data/books/layouts/epubtxt/burnett-lord-1886.epub.txt").read_text(encoding="utf-8"))
    assert same(novel.paragraphs, epub.paragraphs) >= 0.99
    assert len(epub.paragraphs) == 1232


def same(left: tuple[str, ...], right: tuple[str, ...]) -> float:
    """The share of the paragraphs that are equal and in the same order."""
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks()) / max(len(left), len(right))


def wrapped(text: str, width: int, style: str, rng: random.Random) -> list[str]:
    """The lines of a paragraph in a style that plain-text books have."""
    first = {"indented": "   ", "tabs": "\t", "indented and blank": "  "}.get(style, "")
    lines = textwrap.wrap(
        text, width, break_long_words=False, break_on_hyphens=False, initial_indent=first.expandtabs(4)
    )
    if style.startswith("hyphens"):
        lines = hyphenated(text, width, rng, divide=style == "hyphens that divide")
    if style == "tabs":
        lines[0] = "\t" + lines[0][4:]
    if style == "double-spaced":
        return [part for line in lines for part in (line, "")] + ["", ""]
    if style == "trailing spaces":
        lines = [line + " " * rng.randrange(4) for line in lines]
    if style == "margin":
        lines = ["     " + line for line in lines]
    return lines if style in ("indented", "tabs") else [*lines, ""]


def hyphenated(text: str, width: int, rng: random.Random, divide: bool) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        room = width - len(lines[-1]) - 2
        if len(lines[-1]) + 1 + len(word) <= width or not lines[-1]:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
            continue
        compound = re.match(r"([A-Za-z]{2,}-)([A-Za-z]{2,}.*)", word)
        plain = re.match(r"[a-z]{7,}", word)
        cut = len(compound[1]) if compound else min(room, len(plain[0]) - 3) if plain else 0
        if compound and cut <= room + 1:
            lines[-1] += " " + word[:cut]
            lines.append(word[cut:])
        elif divide and plain and not compound and cut >= 3 and rng.random() < 0.5:
            lines[-1] += f" {word[:cut]}-"
            lines.append(word[cut:])
        else:
            lines.append(word)
    return lines


STYLES = {
    "plain": 0.995,
    "windows": 0.995,
    "trailing spaces": 0.995,
    "double-spaced": 0.995,
    "indented": 0.995,
    "tabs": 0.995,
    "indented and blank": 0.995,
    "margin": 0.995,
    "hyphens of compounds": 0.99,
    "hyphens that divide": 0.985,  # hyphens in words that stand nowhere else in the book: a guess
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ["burnett-lord-1886", "anon-clara-1864"])
def test_layout_does_not_change_the_paragraphs(name: str, style: str) -> None:
    text = shared(f"data/books/layouts/epubtxt/{name}.epub.txt").read_text(encoding="utf-8")
    texts = [" ".join(part.split()) for part in text.split("\n\n")][:1500]
    expected = paragraphs("\n\n".join(texts)).paragraphs
    for width in (65, 69, 75):
        rng = random.Random(width)
        lines = [line for part in texts if part for line in wrapped(part, width, style, rng)]
        found = paragraphs(("\r\n" if style == "windows" else "\n").join(lines)).paragraphs
        assert same(expected, found) >= STYLES[style], width


def test_paragraphs_without_blank_lines_end_with_a_short_line() -> None:
    for name, first, last in (
        ("Conrad_Almayer_1895", '"Kaspar! Makan!"', "the name of Allah! The Merciful! The Compassionate!"),
        ("Kipling_Captains_1896", "The weather door of the smoking-room", '"Me too," quoth Harvey Cheyne.'),
    ):
        texts = paragraphs(shared(f"data/books/novels/{name}.txt").read_text(encoding="utf-8-sig")).paragraphs
        assert any(text.startswith(first) for text in texts[:4])
        assert texts[-1].endswith(last)
        lower = [text for text in texts if text[0].islower()]
        assert len(lower) < 0.005 * len(texts), lower[:5]


def test_wrapped_letters_inside_a_book_of_a_paragraph_a_line() -> None:
    texts = paragraphs(shared("data/books/novels/Doyle_Hound_1902.txt").read_text(encoding="utf-8-sig")).paragraphs
    letter = next(text for text in texts if "Grimpen, Dartmoor," in text and "Compar" in text)
    assert letter.startswith('"Mortimer, James, M.R.C.S., 1882, Grimpen, Dartmoor, Devon. House-surgeon')
    assert "Comparative Pathology" in letter and letter.endswith('Grimpen, Thorsley, and High Barrow."')
    assert not any(re.search(r"undoubt- edly|self- importance", text) for text in texts)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        " " * 1_000_000,
        "\n" * 1_000_000,
        "[" * 1_000_000,
        "[Illustration " * 70_000,
        "[Footnote " * 50_000 + "]" * 50_000,
        "[" * 500_000 + "]" * 500_000,
        "_ a" * 300_000,
        "=a\n" * 300_000,
        "a-\n" * 300_000,
        "ab- c " * 160_000,
        "a-b-c-" * 160_000,
        ". " * 500_000,
        "CHAPTER I\n\n" * 90_000,
        "CONTENTS\n\n" * 90_000,
        "THE END\n\n" * 90_000,
        "ABC DEF\n\n" * 90_000,
        "a,\n\nb,\n\n" * 120_000,
        "  ab cd\n" * 120_000,
        "Transcriber's Notes\n\n" * 45_000,
        "He went .\n" * 100_000,
        "\t" * 300_000,
        "a" + "\xa0" * 1_000_000 + "b",
        "I" * 1_000_000,
        '"' * 1_000_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_text_takes_no_long(text: str) -> None:
    found = paragraphs(text)  # quadratic time would take minutes
    assert isinstance(found, BookText)


# --- a sentence a line -------------------------------------------------------------------------------------------------


def test_a_sentence_a_line_is_recognised() -> None:
    text = shared("data/books/layouts/books_large_p1.txt").read_text(encoding="utf-8")
    book = paragraphs(text)
    assert (book.layout, book.pretokenised, book.lowercased) == ("sentence_per_line", True, True)
    lines = [line for part in book.paragraphs for line in part.split("\n")]
    assert len(lines) + book.counts["headings"] == 12_000
    assert not any(line.startswith("chapter ") for line in lines)
    sections = list(boundaries(text.split("\n")))
    assert [section.heading for section in sections if section.kind == "book"] == ["", "the secret garden / chapter i"]
    assert all(len(section.lines) <= MAX_LINES for section in sections)


def test_cased_sentences_a_line() -> None:
    text = "\n".join(f"Sentence {number} stands alone, and it isn't tokenised." for number in range(100))
    book = paragraphs(text)
    assert (book.layout, book.pretokenised, book.lowercased) == ("sentence_per_line", False, False)


@pytest.mark.parametrize(
    ("sentence", "lowercased"),
    [
        ("it was a dark and stormy night in the old town.", True),
        ("It was a dark and stormy night in the old town.", False),
        ("كانت ليلة مظلمة وعاصفة في البلدة القديمة.", False),
        ("那是一个漆黑的暴风雨之夜。", False),
        ("ეს იყო ბნელი და ქარიშხლიანი ღამე ძველ ქალაქში.", False),
    ],
)
def test_a_script_without_capitals_is_not_lowercased(sentence: str, lowercased: bool) -> None:
    assert paragraphs("\n\n".join([f"{sentence} {sentence}"] * 20)).lowercased == lowercased


def test_boundaries_of_books_and_chapters() -> None:
    lines = """
a first story
chapter 1
it began .
it went on .
chapter two : the road
they went .
i
i said it .
the end
copyright © 2012 by somebody
all rights reserved .
table of contents
prologue
once upon a time .
1
there was one .
2
there were two .
3
there were three .
4
there were four .
another book
1
a new one began .
""".strip().split("\n")
    assert [(section.kind, section.heading, section.lines) for section in boundaries(lines)] == [
        ("book", "", ("a first story",)),
        ("chapter", "chapter 1", ("it began .", "it went on .")),
        ("chapter", "chapter two : the road", ("they went .", "i", "i said it .")),
        ("book", "prologue", ("once upon a time .",)),
        ("chapter", "1", ("there was one .",)),
        ("chapter", "2", ("there were two .",)),
        ("chapter", "3", ("there were three .",)),
        ("chapter", "4", ("there were four .",)),
        ("book", "another book / 1", ("a new one began .",)),
    ]


def test_sections_are_bounded_and_streamed() -> None:
    def endless():
        number = 0
        while True:
            number += 1
            yield f"sentence {number} ."

    stream = boundaries(endless())
    first, second = next(stream), next(stream)
    assert isinstance(first, Section)
    assert (len(first.lines), first.first_line, second.kind, second.first_line) == (MAX_LINES, 1, "size", MAX_LINES + 1)


def test_boundaries_in_novels_made_into_this_layout() -> None:
    """Books with a paragraph a line, lower-cased, tokenised, a sentence a line, their headings and title pages kept."""
    lines: list[str] = []
    books: list[int] = []
    chapters: list[int] = []
    for path in (
        *(
            f"novels/{name}.txt"
            for name in NOVELS
            if name.split("_")[0] in ("Barclay", "Doyle", "Stevenson", "Trollope")
        ),
        *(f"layouts/epubtxt/{name}.epub.txt" for name in ("burnett-lord-1886", "anon-clara-1864")),
    ):
        books.append(len(lines) + 1)
        for line in shared(f"data/books/{path}").read_text(encoding="utf-8-sig").split("\n"):
            if is_heading(line.strip()):
                chapters.append(len(lines) + 1)
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z\"])", line.strip()):
                tokens = re.sub(r"([,;:?!.])(?=\s|$)", r" \1", sentence.lower()).split()
                if tokens:
                    lines.append(" ".join(tokens))
    sections = list(boundaries(lines))
    starts = [section.first_line for section in sections]
    begun = [section.first_line for section in sections if section.kind == "book"]
    missed = [book for book in books if not any(0 <= start - book <= 80 for start in begun)]
    wrong = [section for section in sections if section.kind == "book" and not near(section.first_line, books, 80)]
    assert len(books) == 6 and len(missed) <= 1 and len(wrong) <= 3, (missed, [section.heading for section in wrong])
    found = sum(any(0 <= start - chapter <= 6 for start in starts) for chapter in chapters)
    assert len(chapters) == 200 and found >= 0.9 * len(chapters)  # not the 15 of a table of contents
    false = [section for section in sections if section.kind == "chapter" and not near(section.first_line, chapters, 6)]
    assert len(false) <= 0.03 * len(chapters), [section.heading for section in false]
    assert sum(len(section.lines) for section in sections) > 0.985 * len(lines)
    assert all(one.first_line < two.first_line for one, two in pairwise(sections))


def near(line: int, marks: list[int], distance: int) -> bool:
    return any(0 <= line - mark <= distance for mark in marks)
