"""Text files: one document a file, or, where every line is one sentence, documents separated by blank lines."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from pipeline.books import decode, unwrap
from pipeline.compressed import Stream, lines

ENDINGS = (".txt",)
DOCUMENT_BYTES = 64 << 20
"""A larger text is no one document: it would have to be held in memory."""
TOO_LARGE = f"larger_than_{DOCUMENT_BYTES >> 20}_MiB"

Found = tuple[str, str] | str
"""(text, encoding) of a document, or why it can't be read."""


def document(path: Path) -> Found:
    """The text of one file, its hard-wrapped lines joined; else `larger_than_64_MiB` or `not_text`.

    DataError for compressed data that can't be used.
    """
    with Stream(path) as stream:
        data = stream.read(DOCUMENT_BYTES + 1)
    if len(data) > DOCUMENT_BYTES:
        return TOO_LARGE
    text, encoding = decode(data)
    return "not_text" if text is None else (unwrap(text), encoding)


def sentence_documents(path: Path, report: Callable[[int], None]) -> Iterator[tuple[int, Found]]:
    """(first line, document) of the documents of a file with a sentence a line and blank lines between documents, the
    input of Google's create_pretraining_data.py.

    A file beyond 64 MiB must be UTF-8: a document with a line that is not is `not_utf8`. A document that is itself
    beyond that is `larger_than_64_MiB`. DataError for compressed data that can't be used.
    """
    with Stream(path) as stream:
        data = stream.read(DOCUMENT_BYTES + 1)
    if len(data) > DOCUMENT_BYTES:
        del data
        yield from _grouped(_utf8_lines(path, report), "utf-8")
        return
    text, encoding = decode(data)
    if text is None:
        yield 1, "not_text"
    else:
        yield from _grouped(enumerate(text.split("\n"), 1), encoding)


def _utf8_lines(path: Path, report: Callable[[int], None]) -> Iterator[tuple[int, str | None]]:
    """(number, text) of every line, without text where it is too long or not UTF-8."""
    for number, line in lines(path, report):
        try:
            yield number, None if line is None else line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            yield number, None


def _grouped(numbered: Iterable[tuple[int, str | None]], encoding: str) -> Iterator[tuple[int, Found]]:
    """Documents out of the lines between blank lines."""
    gathered: list[str] = []
    first, size, trouble = 0, 0, ""
    for number, line in chain(numbered, [(0, "")]):
        sentence = line.strip() if line is not None else ""
        if line is not None and not sentence:
            if first:
                yield first, trouble or ("\n".join(gathered), encoding)
            gathered, first, size, trouble = [], 0, 0, ""
            continue
        first = first or number
        size += len(sentence)
        trouble = trouble or ("not_utf8" if line is None else TOO_LARGE if size > DOCUMENT_BYTES else "")
        if trouble:
            gathered.clear()
        else:
            gathered.append(sentence)
