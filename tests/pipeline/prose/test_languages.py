"""Languages of texts whose language is known."""

import pytest

from pipeline.prose.languages import base_code, detect, known_languages

TEXTS = {
    "en": "The harbour lies on the north coast of the island, and the ships that come there bring wood and iron.",
    "de": "Der Hafen liegt an der Nordküste der Insel, und die Schiffe, die dorthin kommen, bringen Holz und Eisen.",
    "fr": "Le port se trouve sur la côte nord de l'île, et les navires qui y viennent apportent du bois et du fer.",
    "ru": "Гавань лежит на северном берегу острова, и корабли, которые туда приходят, привозят лес и железо.",
    "he": "הנמל נמצא בחוף הצפוני של האי, והאוניות הבאות לשם מביאות עץ וברזל.",
    "ja": "港は島の北の海岸にあり、そこに来る船は木と鉄を運んでくる。",
    "zh": "港口位于岛的北岸，到那里的船只带来木材和铁。",
}


@pytest.mark.parametrize("language", TEXTS)
def test_languages_are_found(language: str) -> None:
    found = detect(TEXTS[language])
    assert found.language == language
    assert found.shares[language] > 0.9


def test_shares_of_a_mixed_text() -> None:
    shares = detect((TEXTS["en"] + "\n\n") * 3 + (TEXTS["ru"] + "\n\n") * 3).shares
    assert set(shares) == {"en", "ru"}
    assert 0.2 < shares["en"] < 0.5  # of the bytes: a Cyrillic letter is two


def test_a_long_text_is_judged_by_its_beginning_middle_and_end() -> None:
    filling = "x " * 3000
    assert detect(TEXTS["en"] * 10 + TEXTS["de"] * 10 + TEXTS["ru"] * 10).shares.keys() == {"en", "de", "ru"}
    assert detect(TEXTS["de"] * 20 + filling + TEXTS["de"] * 20 + filling + TEXTS["de"] * 20).language == "de"


@pytest.mark.parametrize(
    "unfit", ["\x00", "\x07", "\x7f", "\x85", "\ufffe", "\uffff", "\ufdd0", "\U0001ffff", "\ud800", "\u2028"]
)
def test_characters_that_the_library_refuses_do_no_harm(unfit: str) -> None:
    assert detect(unfit + TEXTS["en"].replace(" ", f" {unfit}", 3)).language == "en"


@pytest.mark.parametrize("text", ["", " ", "12 34", "...", "\x00"])
def test_without_text_there_is_no_language(text: str) -> None:
    assert detect(text).language == ""


def test_codes() -> None:
    assert [base_code(code) for code in ("en-GB", "zh_Hant", "iw", "DE", "")] == ["en", "zh", "he", "de", ""]
    assert {"en", "de", "he", "zh", "ja", "ar", "ko"} <= known_languages()
    assert "got" not in known_languages()
