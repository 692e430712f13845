"""Sentence ends: offsets that give the text back, and boundaries where a reader sees them."""

import random

import pytest

from pipeline import sentences
from pipeline.sentences import sentence_ends


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


def test_other_languages() -> None:
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
