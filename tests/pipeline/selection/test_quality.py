"""Shares of boilerplate and repetition, counted by hand."""

import pytest

from pipeline.selection.quality import boilerplate_share, is_prose, repetition_share

PROSE = "The harbour lies on the north coast of the island."  # 50 characters


@pytest.mark.parametrize(
    "line",
    [
        PROSE,
        "“Come here,” she said.",
        "Yes.",
        "A line of verse that ends with no mark at all",
        "Er kam, sah und ging nach Hause; das war 1848.",
        "これは日本語の文です。",
        "Cookies are baked of flour, butter and sugar; " + "in many houses a jar of them stands on the shelf. " * 4,
    ],
)
def test_prose(line: str) -> None:
    assert is_prose(line)


@pytest.mark.parametrize(
    "line",
    [
        "Home",
        "Contact us",
        "Home | About us | Products | Contact | Imprint and legal matters of all kinds",
        "• one of the many points of a list that goes on.",
        "- another point of the list, which goes on as well.",
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21",
        "Read more about the harbours of the north coast of the island...",
        "https://example.test/a/very/long/address/of/a/page see there.",
        "We use cookies to make this site better for you.",
        "Please enable JavaScript to see this page as it should be.",
        "function load() { return document.body.innerHTML; }",
    ],
)
def test_what_is_no_prose(line: str) -> None:
    assert not is_prose(line)


def test_boilerplate_is_a_share_of_characters() -> None:
    assert boilerplate_share(PROSE) == 0
    assert boilerplate_share(f"{PROSE}\n\nHome\n  Contact  \n") == pytest.approx(11 / 61)
    assert boilerplate_share(" \n") == 0


def test_lines_that_stand_twice_count_each_time() -> None:
    text = "One two three.\n\nFour five six.\n\none  TWO three\n\nSeven."
    # of 11 + 11 + 11 + 5 letters the two first lines, 11 each
    assert repetition_share(text) == pytest.approx(22 / (11 + 11 + 11 + 5))


def test_runs_of_five_words_count_each_time_and_no_letter_twice() -> None:
    # "a b c d e" stands at words 0–4 and 6–10, "b c d e f" only once, so that 10 of 13 letters count
    assert repetition_share("a b c d e f a b c d e g h") == pytest.approx(10 / 13)
    assert repetition_share("a b c d e f g h i j") == 0
    # "x x x x x" stands twice in six words: all six, once each
    assert repetition_share("x x x x x x yy") == pytest.approx(6 / 8)
    assert repetition_share("") == repetition_share("...") == 0
