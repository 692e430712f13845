"""Sentence ends: offsets that give the text back, and boundaries where a reader sees them."""

import random
import sys
from pathlib import Path

import pytest
from sentencex import segment

from pipeline.prose import sentences
from pipeline.prose.sentences import sentence_ends
from tests.pipeline.judged_sentences import errors, read_judged

HERE = Path(__file__).parents[1]


def split(text: str, language: str = "en") -> list[str]:
    ends = sentence_ends(text, language)
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def test_sentences_with_abbreviations_and_decimals() -> None:
    assert split("Dr. Smith ran 3.5 km. Was he tired? No!") == ["Dr. Smith ran 3.5 km. ", "Was he tired? ", "No!"]


def test_a_blank_line_ends_a_sentence_and_a_line_break_does_not() -> None:
    assert split("A heading\n\nThe first line\nand the second. End.") == [
        "A heading\n\n",
        "The first line\nand the second. ",
        "End.",
    ]


def test_a_language_of_its_own_and_one_that_is_not_known() -> None:
    assert split("これは文です。次の文です。", "ja") == ["これは文です。", "次の文です。"]
    assert split("Das kostet z. B. 3 Mark. Gut.", "de")[-1] == "Gut."
    assert split("One. Two.", "no such language") == ["One. ", "Two."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", []), ("   ", ["   "]), ("\n\n A. ", ["\n\n A. "]), ("A.\n\n \n\nB.\n\n", ["A.\n\n \n\n", "B.\n\n"])],
)
def test_no_slice_is_only_whitespace(text: str, expected: list[str]) -> None:
    assert split(text) == expected


def test_wide_whitespace_between_an_initial_and_its_period() -> None:
    for space in "\u0085\u00a0\u2028":  # sentencex 1.0.32 panics when it sees one of these here
        text = f"By J{space}. Doe. Yes."
        assert "".join(split(text)) == text
        assert split(text)[-1] == "Yes."


def test_slices_always_join_to_the_text() -> None:
    generator = random.Random(5)
    alphabet = [*"aB .!?\n\t\r\"'()“”«»。、é́ßİ🎉[1]\x00\x85\u00a0\u200b\u2003\u2028\u3000", "Dr.", "J.", "e.g.", "\n\n"]
    for number in range(3000):
        text = "".join(generator.choices(alphabet, k=generator.randint(0, 60)))
        ends = sentence_ends(text, ("en", "de", "ja", "ar")[number % 4])
        assert ends == sorted(set(ends))
        assert (ends[-1] if ends else 0) == len(text)
        assert text.isspace() or not any(part.isspace() for part in split(text))


def test_a_long_paragraph_is_split_as_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Dr. Smith went home at 3.5 p.m. with it. He slept. " * 40
    whole = split(text)
    monkeypatch.setattr(sentences, "PIECE_CHARACTERS", 100)
    assert split(text) == whole
    assert len(whole) == 80


def test_a_paragraph_without_any_boundary_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "PIECE_CHARACTERS", 100)
    assert "".join(split("x" * 1050)) == "x" * 1050


def library_ends(text: str, language: str) -> list[int]:
    ends: list[int] = []
    for sentence in segment(language, text):
        ends.append((ends[-1] if ends else 0) + len(sentence))
    return ends


@pytest.mark.parametrize("half", ["development", "held_back"])
def test_errors_on_the_novels_are_a_fraction_of_the_library_s(half: str) -> None:
    judged = [one for one in read_judged(HERE / "sentences_judged.txt") if one.half == half]
    assert sum(len(one.ends) + 1 for one in judged) > 600
    ours = sum(len(wrong) for one in judged for wrong in errors(one, sentence_ends(one.text, "en")))
    library = sum(len(wrong) for one in judged for wrong in errors(one, library_ends(one.text, "en")))
    assert library > 200
    assert ours <= 5


def test_without_regard_to_ends_inside_quotations_they_are_fewer_too() -> None:
    judged = read_judged(HERE / "sentences_judged.txt")
    counts = {"ours": 0, "library": 0}
    for one in judged:
        for name, ends in (("ours", sentence_ends(one.text, "en")), ("library", library_ends(one.text, "en"))):
            counts[name] += sum(len(wrong - one.inside_quotation()) for wrong in errors(one, ends))
    assert counts["ours"] * 2 <= counts["library"], counts


KNOWN_ERRORS = {"de": 3, "da": 1, "pl": 1}
"""numbers at the end of a sentence before a name or noun, and ordinals before one, that only the sense tells apart"""


@pytest.mark.parametrize("language", sorted({one.half for one in read_judged(HERE / "sentences_languages.txt")}))
def test_other_languages(language: str) -> None:
    judged = [one for one in read_judged(HERE / "sentences_languages.txt") if one.half == language]
    ours = sum(len(wrong) for one in judged for wrong in errors(one, sentence_ends(one.text, language)))
    library = sum(len(wrong) for one in judged for wrong in errors(one, library_ends(one.text, language)))
    assert ours <= KNOWN_ERRORS.get(language, 0)
    assert ours <= library


def test_errors_on_wikipedia_are_fewer_than_half_of_the_library_s() -> None:
    judged = read_judged(HERE / "sentences_wikipedia.txt")
    assert len(judged) >= 40
    ours = sum(len(wrong) for one in judged for wrong in errors(one, sentence_ends(one.text, "en")))
    library = sum(len(wrong) for one in judged for wrong in errors(one, library_ends(one.text, "en")))
    assert ours <= 12
    assert library > 2 * ours


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("“Stop!” he cried.", 1),
        ("“What?” “Nothing.”", 2),
        ('"Is that all?" I asked. "Yes!" Mr. Hobbs almost shouted.', 2),
        ('"Is that all?" He asked nothing.', 2),
        ("J. R. R. Tolkien saw the H. M. S. Pinafore at No. 5, p. 7, vol. XII.", 1),
        ("“It is I,” said I. He nodded. “No. Go away. It was for me. Oxen would not.”", 6),
        ("It cost £3. 10s. on the 4th. of May, and pi is 3.14.", 1),
        ("Well ... I think so. Well . . . perhaps. “Wait…” she said.", 3),
        ("He ran from Mr. Smith, Jr. He fell. He lives in the U.S. They know. At 5 a.m. he rose.", 5),
        ("See Smith v. The Queen. It was lit. Auberon saw the brig. He met Samuel I. Hayakawa at 5 p.m. Monday.", 4),
        ("Planes (such as the C-160.) Also a tank. It lies by the Saturn V. The rest (or so.) is (not) here.", 4),
        ("Wow?! Really!? Yes. A note.[1] Next. (It rained. It poured.) She left (I think).", 8),
    ],
)
def test_cases_of_the_kinds(text: str, count: int) -> None:
    assert len(split(text)) == count


def test_own_abbreviations_in_any_case_with_and_without_a_full_stop() -> None:
    text = "See abb. Three. Abb. Four. The e. V. Bonn is new. End."
    assert len(split(text)) > 4
    for own in (["Abb.", "e. V."], ("abb", "E. v."), {"ABB.", "e.V."}):
        ends = sentence_ends(text, "en", own)
        assert [text[end - 2 : end] for end in ends[:-1]] == [". "] * 3
        assert len(ends) == 4
    assert sentence_ends(text, "en") == sentence_ends(text, "en", [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two.\nthree", ["One. Two.\n", "three"]),
        ("A\n\n \nB\n", ["A\n\n \n", "B\n"]),
        ("\nA", ["\nA"]),
        ("", []),
        (" \n ", [" \n "]),
    ],
)
def test_every_line_is_a_sentence(text: str, expected: list[str]) -> None:
    ends = sentence_ends(text, "en", lines=True)
    assert [text[start:end] for start, end in zip([0, *ends], ends, strict=False)] == expected


@pytest.mark.parametrize(
    "unit", ["x", ".", ". ", '"', '." ', '. " ', "(a) ", "A. ", "Mr. ", "…", "! (", ' "A."\n', "(a.", ". . . . A"]
)
def test_the_work_grows_no_faster_than_a_hostile_text(unit: str) -> None:
    """Counted in calls of Python functions and in the characters that the library is given."""

    def work(size: int) -> tuple[int, int]:
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        text = (unit * size)[:size]
        sys.setprofile(count)
        try:
            ends = sentence_ends(text, "en")
        finally:
            sys.setprofile(None)
        assert ends[-1] == size
        given = 0

        def library(piece: str) -> list[str]:
            nonlocal given
            given += len(piece)
            return list(segment("en", piece))

        rules = sentences._rules("en", frozenset())
        list(sentences._boundaries(text, rules, library))
        return calls, given

    calls, given = work(50_000)
    twice_calls, twice_given = work(100_000)
    assert twice_calls <= 2.2 * calls + 100
    assert twice_given <= 2.2 * given + sentences.PIECE_CHARACTERS
    assert twice_given <= 2.5 * 100_000
