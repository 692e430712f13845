"""Text files: one document a file, or, where every line is one sentence, documents separated by blank lines."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pipeline.formats.archives import MAX_MEMBER_BYTES, NESTED, Member, members, suffix_of
from pipeline.formats.compressed import Stream, lines
from pipeline.formats.inflate import Unreadable
from pipeline.formats.kinds import ENDINGS
from pipeline.prose.encodings import decode
from pipeline.prose.plain_text import tidy, unwrapped

DOCUMENT_BYTES = MAX_MEMBER_BYTES
"""A larger text is no one document: it would have to be held in memory."""
TOO_LARGE = f"larger_than_{DOCUMENT_BYTES >> 20}_MiB"


@dataclass(frozen=True)
class Text:
    """One document of a file."""

    text: str
    encoding: str
    mojibake_repaired: bool = False


Found = tuple[int, Text | str]
"""(line on which it begins, 0 for a whole file; the document, or why it can't be read)"""


def documents(
    path: Path, name: str, sentence_per_line: bool, report: Callable[[int], None]
) -> Iterator[tuple[str, Iterable[Found]]]:
    """(relative path, documents) of a file, or of every file of an archive as `ARCHIVE!/MEMBER`.

    With `sentence_per_line`, blank lines stand between documents, as in the input of Google's
    create_pretraining_data.py; a file beyond 64 MiB must then be UTF-8. Else a file is one document, its hard-wrapped
    lines joined. DataError for compressed data that can't be used; what an archive has that can't be read is a reason.
    """
    if not suffix_of(name):
        yield name, _of_file(path, sentence_per_line, report)
        return
    for member in members(path):
        yield f"{name}!/{member.name}" if member.name else name, _of_member(member, sentence_per_line)


def _of_file(path: Path, sentence_per_line: bool, report: Callable[[int], None]) -> Iterable[Found]:
    with Stream(path) as stream:
        data = stream.read(DOCUMENT_BYTES + 1)
    if len(data) <= DOCUMENT_BYTES:
        return _of_bytes(data, sentence_per_line)
    return _grouped(_utf8_lines(path, report), "utf-8") if sentence_per_line else [(0, TOO_LARGE)]


def _of_member(member: Member, sentence_per_line: bool) -> Iterable[Found]:
    if member.dropped:
        return [(0, member.dropped)]
    if member.name.lower().endswith(NESTED):
        return [(0, "archive_in_archive")]
    if not member.name.lower().endswith(ENDINGS["text"]):
        return [(0, "unknown_file_type")]
    try:
        return _of_bytes(member.read(DOCUMENT_BYTES), sentence_per_line)
    except Unreadable as error:
        return [(0, error.reason)]


def _of_bytes(data: bytes, sentence_per_line: bool) -> Iterable[Found]:
    decoded = decode(data)
    if decoded.text is None:
        return [(0, "not_text")]
    if sentence_per_line:
        numbered = enumerate(decoded.text.split("\n"), 1)
        return _grouped(numbered, decoded.encoding, decoded.mojibake_repaired)
    text, _ = tidy(decoded.text)
    return [(0, Text(unwrapped(text), decoded.encoding, decoded.mojibake_repaired))]


def _utf8_lines(path: Path, report: Callable[[int], None]) -> Iterator[tuple[int, str | None]]:
    """(number, text) of every line, without text where it is too long or not UTF-8."""
    for number, line in lines(path, report):
        try:
            yield number, None if line is None else line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            yield number, None


def _grouped(numbered: Iterable[tuple[int, str | None]], encoding: str, repaired: bool = False) -> Iterator[Found]:
    """Documents out of the lines between blank lines."""
    gathered: list[str] = []
    first, size, trouble = 0, 0, ""
    for number, line in chain(numbered, [(0, "")]):
        sentence = line.strip() if line is not None else ""
        if line is not None and not sentence:
            if first:
                yield first, trouble or Text("\n".join(gathered), encoding, repaired)
            gathered, first, size, trouble = [], 0, 0, ""
            continue
        first = first or number
        size += len(sentence)
        trouble = trouble or ("not_utf8" if line is None else TOO_LARGE if size > DOCUMENT_BYTES else "")
        if trouble:
            gathered.clear()
        else:
            gathered.append(sentence)
