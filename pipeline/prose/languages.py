"""In which language a text is, by CLD2 (Compact Language Detector 2, through `pycld2`)."""

import re
from dataclasses import dataclass, field
from functools import cache

SLICES = 3
SLICE_CHARACTERS = 500
"""A longer text is judged by its beginning, its middle and its end; the library needs about two hundred to be sure."""

_UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    + "".join(chr((plane << 16) + 0xFFFE) + chr((plane << 16) + 0xFFFF) for plane in range(1, 17))
    + "]+"
)
"""What the library refuses: control characters, surrogates, noncharacters."""
_MODERN = {
    "iw": "he",
    "jw": "jv",
    "in": "id",
    "ji": "yi",
    "mo": "ro",
    "nb": "no",
    "fil": "tl",
    "sh": "sr",
    "simple": "en",
}
"""Codes that stand for the same language; CLD2 uses some that were withdrawn from ISO 639."""


@dataclass(frozen=True)
class Detected:
    """What was found in a text."""

    language: str
    """the code of the language that most of it is in; "" where that is not certain"""
    shares: dict[str, float] = field(default_factory=dict)
    """language → share of the text's bytes, at most three"""


def detect(text: str) -> Detected:
    """The languages of a text, as ISO 639 codes without region or script ("en", "zh")."""
    import pycld2

    part = _slices(text)
    try:
        reliable, _, found = pycld2.detect(part)
    except (pycld2.error, UnicodeEncodeError):
        try:
            reliable, _, found = pycld2.detect(_UNFIT.sub(" ", part))
        except pycld2.error:
            return Detected("")
    shares: dict[str, float] = {}
    for _, code, percent, _ in found:
        if code != "un":
            shares[base_code(code)] = shares.get(base_code(code), 0.0) + percent / 100
    best = max(shares, key=lambda code: shares[code], default="")
    return Detected(best if reliable else "", shares)


def base_code(language: str) -> str:
    """The code without region and script: "en" for "en-GB"; one code where a language has several."""
    code = re.split("[-_]", language.strip().lower(), maxsplit=1)[0]
    return _MODERN.get(code, code)


@cache
def known_languages() -> frozenset[str]:
    """The codes that can be detected; a text that is declared to be in another language can't be judged."""
    import pycld2

    codes = dict(pycld2.LANGUAGES)
    return frozenset(base_code(codes[name]) for name in pycld2.DETECTED_LANGUAGES if name in codes)


def _slices(text: str) -> str:
    if len(text) <= SLICES * SLICE_CHARACTERS:
        return text
    starts = [(len(text) - SLICE_CHARACTERS) * n // (SLICES - 1) for n in range(SLICES)]
    return "\n".join(text[start : start + SLICE_CHARACTERS] for start in starts)
