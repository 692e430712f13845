"""Bytes of unknown encoding become text; text that was once decoded wrongly is set right.

    decode(data)        text, its encoding, and whether mojibake was repaired
    repair(text)        the same text with "cafÃ©" as "café"; sound text comes back as it is

The order: a byte order mark; UTF-16 without one, by where its zero bytes stand; UTF-8, also with a few stray bytes of
CP1252 in it; for what is left, charset-normalizer judges the lines that are not ASCII. Between the encodings of the Latin
script it guesses (French in CP1252 is good Lithuanian letters, too): there the language decides, which is known from the
ASCII letters alone. CP1252 is taken where that makes no difference, and where there is too little to judge by; the encodings of DOS and the old
Macintosh only where more of the text then looks like text.
"""

import codecs
import re
from dataclasses import dataclass

from ftfy import TextFixerConfig, fix_encoding
from ftfy.badness import is_bad

from pipeline.prose.languages import detect

_MARKS = (  # UTF-32 first: its mark begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LEGACY = (
    *("cp1252", "cp1250", "iso8859_2", "cp1251", "koi8_r", "cp866", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257"),
    *("shift_jis", "euc_jp", "gb18030", "big5", "euc_kr"),
)
"""Encodings in which books are found; a guess among all that exist is wrong more often."""
_LATIN = {
    "cp1250": frozenset("cs sk pl hu sl hr bs ro sq".split()),  # noqa: SIM905
    "cp1254": frozenset(("tr", "az")),
    "cp1257": frozenset(("lt", "lv", "et")),
}
"""Encodings of the Latin script but CP1252, and whose they are."""
_SMALL = "àáâãäåæçèéêëìíîïñòóôõöøœùúûüýÿß"
_PLAUSIBLE = re.compile(
    rf"[{_SMALL}’–—…°§£¡¿ªº½¼¾·©®™×±]|(?<![a-z{_SMALL}])[{_SMALL.upper()}]"
    r"|(?<![A-Za-z])[«»„“”‘†‡•]|[«»„“”‘†‡•](?![A-Za-z])"
)
"""Characters of western European text: capitals not behind a small letter, quotation marks not between letters."""
SAMPLE_BYTES = 64 << 10
LEAST_TO_JUDGE = 20
"""Bytes above 127; fewer tell nothing, and CP1252 is what such files are."""
MAX_CONTROL_SHARE = 0.01
"""Of control characters in text; a binary file has more."""
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_CONTROLS_OF_ISO = re.compile(rb"[\x80-\x9f]")
_STRAY = re.compile(r"[\udc80-\udcff]")
_ONLY_ENCODING = TextFixerConfig(
    unescape_html=False,
    remove_terminal_escapes=False,
    fix_latin_ligatures=False,
    fix_character_width=False,
    uncurl_quotes=False,
    fix_line_breaks=False,
    fix_surrogates=False,
    remove_control_chars=False,
    normalization=None,
    explain=False,
)


@dataclass(frozen=True)
class Decoded:
    """`text` with "\\n" as newline, or None where the bytes are no text; the encoding by Python's name for it."""

    text: str | None
    encoding: str
    mojibake_repaired: bool = False


def decode(data: bytes) -> Decoded:
    """Text of bytes whose encoding nobody stated. `Decoded(None, "")` where they are no text."""
    text, encoding = _decoded(data)
    if text is None:
        return Decoded(None, "")
    text = (
        text.removeprefix("\ufeff").replace("\x1a", "").replace("\r\n", "\n").replace("\r", "\n")
    )  # 1A: end of a DOS file
    if "\0" in text or len(_CONTROL.findall(text)) > MAX_CONTROL_SHARE * len(text):
        return Decoded(None, "")
    repaired = repair(text)
    return Decoded(repaired, encoding, repaired != text)


def _decoded(data: bytes) -> tuple[str | None, str]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return data[len(mark) :].decode(encoding), encoding.removesuffix("-le").removesuffix("-be")
            except UnicodeDecodeError:
                break
    if b"\0" in data[:SAMPLE_BYTES]:
        return _utf16(data)
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        pass
    stray = data.decode("utf-8", "surrogateescape")
    strays = len(_STRAY.findall(stray))
    if sum(not character.isascii() for character in stray) - strays > 2 * strays:
        return _STRAY.sub(lambda match: _cp1252(bytes([ord(match[0]) - 0xDC00])), stray), "utf-8 with cp1252"
    return _legacy(data)


def _utf16(data: bytes) -> tuple[str | None, str]:
    """UTF-16 without its mark: in text of most languages, the high byte of spaces and line ends is zero."""
    sample = data[:SAMPLE_BYTES]
    low_first = sample[1::2].count(0) > sample[::2].count(0)
    try:
        return data.decode("utf-16-le" if low_first else "utf-16-be"), "utf-16"
    except UnicodeDecodeError:
        return None, ""


def _legacy(data: bytes) -> tuple[str, str]:
    """One byte a character, or the older encodings of East Asia."""
    sample = b"\n".join(_lines_not_ascii(data))
    plain = _cp1252(data), "cp1252" if _is_cp1252(data) else "latin-1"
    if sum(byte > 127 for byte in sample) < LEAST_TO_JUDGE:
        return plain
    from charset_normalizer import from_bytes

    best = from_bytes(sample, cp_isolation=list(_LEGACY), enable_fallback=False).best()
    encoding = best.encoding if best else ""
    if encoding in ("", "cp1252", "iso8859_2", *_LATIN):
        encoding = _of_latin_script(sample)
    if encoding == "cp1252" or sample.decode(encoding, "replace") == _cp1252(sample):
        return plain
    return data.decode(encoding, "replace"), encoding


def _of_latin_script(sample: bytes) -> str:
    """The encoding of a text in Latin letters, by its language."""
    language = detect(_cp1252(sample)).language
    for encoding, languages in _LATIN.items():
        if language in languages:
            # š, ž, ś stand where ISO 8859-2 has nothing but control characters.
            other = encoding == "cp1250" and not _CONTROLS_OF_ISO.search(sample)
            return "iso8859_2" if other else encoding
    read = {encoding: sample.decode(encoding, "replace") for encoding in ("cp850", "mac_roman")}
    return max(("cp1252", *read), key=lambda name: len(_PLAUSIBLE.findall(read.get(name) or _cp1252(sample))))


def _lines_not_ascii(data: bytes) -> list[bytes]:
    lines: list[bytes] = []
    size = 0
    for line in data.split(b"\n"):
        if not line.isascii():
            lines.append(line[:SAMPLE_BYTES])
            size += len(lines[-1])
            if size > SAMPLE_BYTES:
                break
    return lines


def _is_cp1252(data: bytes) -> bool:
    try:
        data.decode("cp1252")
    except UnicodeDecodeError:
        return False
    return True


def _cp1252(data: bytes) -> str:
    """CP1252, and Latin-1 for the five bytes that it does not define (as browsers do)."""
    if _is_cp1252(data):
        return data.decode("cp1252")
    defined = {byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(128, 160)}
    return data.decode("latin-1").translate(defined)


def repair(text: str) -> str:
    """Undo UTF-8 that was read in another encoding ("â€œ" for “), line by line, by ftfy; nothing else is changed.

    ftfy looks for character sequences that hardly occur in sound text of any language; only lines that hold one are
    touched, and only if none is left afterwards.
    """
    if text.isascii():
        return text
    return "\n".join(map(_repaired, text.split("\n")))


def _repaired(line: str) -> str:
    if line.isascii() or not is_bad(line):
        return line
    fixed = fix_encoding(line, _ONLY_ENCODING)
    return line if is_bad(fixed) else fixed
