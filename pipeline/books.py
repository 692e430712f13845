"""Books: a folder of .txt files (one book a file) or tables (one text a row) becomes the text of one source."""

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline import progress
from pipeline.config import BooksTextConfig
from pipeline.errors import DataError
from pipeline.schemas import TEXT_SCHEMA, describe_lengths, write_dropped, write_parts
from pipeline.stage import Stage
from pipeline.tables import SUFFIXES, read_table

STAGE = Stage(
    name="books_text",
    function="pipeline.books:extract_text",
    version="1",
    sources=("pipeline/books.py", "pipeline/tables.py", "pipeline/schemas.py"),
)

MAX_BOOK_BYTES = 64 << 20
LONG_LINE = 100
"""Characters; a longer line was not wrapped by hand."""

_GUTENBERG_START = re.compile(
    r"^(?:\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG[^\n]*|\*END\*? ?THE SMALL PRINT[^\n]*)\n", re.M | re.I
)
_GUTENBERG_END = re.compile(
    r"^(?:\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG|End of (?:the |this )?Project Gutenberg)", re.M | re.I
)
_GUTENBERG_TITLE = re.compile(r"^Title: *(\S[^\n]*)", re.M)
_GUTENBERG_CREDITS = re.compile(r"\s*(?:Produced|E-?text prepared|Transcribed)\b.*?(?:\n\s*\n|\Z)", re.S | re.I)


def extract_text(inputs: Mapping[str, Path], config: BooksTextConfig, out: Path) -> dict[str, Any]:
    """Write the documents of the folder `inputs["files"]`, by relative path, then by row, and dropped.json.

    Every .txt file is one document and every row of a .tab, .tsv or .csv is one; anything else is dropped and counted.
    A table needs `config.columns`. DataError for a table that can't be read or lacks a named column.
    """
    reader = _Reader(inputs["files"], config)
    kept = write_parts(reader.documents(), TEXT_SCHEMA, out)
    count = write_dropped(out, reader.read, kept, reader.dropped)
    return {
        **describe_lengths(reader.lengths),
        **count,
        "files": reader.files,
        "encodings": dict(sorted(reader.encodings.items())),
        "gutenberg_headers_removed": reader.gutenberg,
        "dropped_files": reader.dropped_files,
        "sample": reader.sample,
    }


class _Reader:
    """Iterates the documents and counts on the way."""

    def __init__(self, folder: Path, config: BooksTextConfig) -> None:
        self.folder = folder
        self.config = config
        self.lengths = array("q")
        self.dropped: Counter[str] = Counter()
        self.dropped_files: list[str] = []
        self.encodings: Counter[str] = Counter()
        self.gutenberg = 0
        self.files = 0
        self.read = 0
        self.sample: list[str] = []

    def documents(self) -> Iterator[dict[str, Any]]:
        names = sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        names = [name for name in names if name != "manifest.json"]  # the store's own
        if not names:
            raise DataError(f"{self.folder} holds no files", f"Check `from` of source {self.config.source}.")
        seen: set[str] = set()
        for name in progress.track(names, total=len(names), unit="files"):
            self.files += 1
            for doc_id, title, text in self._read(name):
                self.read += 1
                if not text:
                    self.dropped["empty"] += 1
                elif doc_id in seen:
                    self.dropped["duplicate_doc_id"] += 1
                else:
                    seen.add(doc_id)
                    self.lengths.append(len(text))
                    if len(self.sample) < 5:
                        self.sample.append(title or doc_id)
                    yield {
                        "doc_id": doc_id,
                        "source": self.config.source,
                        "title": title or None,
                        "language": self.config.language,
                        "licence": self.config.licence or None,
                        "text": text,
                    }

    def _read(self, name: str) -> Iterator[tuple[str, str, str]]:
        """(doc_id, title, text) of every document of a file."""
        path = self.folder / name
        if path.suffix.lower() in SUFFIXES:
            yield from self._rows(name, path)
        elif path.suffix.lower() != ".txt":
            self._drop_file(name, "unknown_file_type")
        elif path.stat().st_size > MAX_BOOK_BYTES:
            self._drop_file(name, f"larger_than_{MAX_BOOK_BYTES >> 20}_MiB")
        else:
            data = path.read_bytes()
            text, encoding = decode(data)
            if text is None:
                self._drop_file(name, "not_text")
            else:
                self.encodings[encoding] += 1
                book, title = strip_gutenberg(text)
                self.gutenberg += len(book) < len(text)
                yield f"{self.config.source}:{_digest(name)}", title or path.stem, unwrap(book)

    def _rows(self, name: str, path: Path) -> Iterator[tuple[str, str, str]]:
        table = read_table(path)
        columns = self.config.columns
        if columns is None:
            raise DataError(
                f"{path} is a table, and source {self.config.source} does not say which column is the text",
                f"Add `columns: {{text: …}}` with one of {', '.join(map(repr, table.columns))}.",
            )
        table.require(column for column in (columns.text, columns.id, columns.title) if column)
        self.encodings["utf-8"] += 1
        for line, row in table.rows:
            text = row[columns.text]
            identity = row[columns.id].strip() if columns.id else _digest(name, text)
            if not identity:
                raise DataError(f"{path}, line {line}: column {columns.id!r} is empty", "Every row needs an id.")
            title = row[columns.title].strip() if columns.title else ""
            yield f"{self.config.source}:{identity}", title, _newlines(text).strip()

    def _drop_file(self, name: str, reason: str) -> None:
        self.read += 1
        self.dropped[reason] += 1
        if len(self.dropped_files) < 20:
            self.dropped_files.append(f"{name}: {reason}")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decode(data: bytes) -> tuple[str | None, str]:
    """(text with newlines as \\n, encoding): UTF-8 or UTF-16 by its mark, else UTF-8, CP1252, Latin-1, whichever fits
    first; (None, "") where the bytes are no text."""
    order = ["utf-16"] if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ["utf-8-sig", "cp1252", "latin-1"]
    for encoding in order:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return (None, "") if "\0" in text else (_newlines(text), encoding.removesuffix("-sig"))
    return None, ""


def strip_gutenberg(text: str) -> tuple[str, str]:
    """(the book, its title) without Project Gutenberg's header, credits and licence; the title is "" where none is
    stated. A text without these marks comes back as it is."""
    start = _GUTENBERG_START.search(text)
    end = _GUTENBERG_END.search(text, start.end() if start else 0)
    if not start and not end:
        return text, ""
    title = _GUTENBERG_TITLE.search(text, 0, start.start()) if start else None
    book = text[start.end() if start else 0 : end.start() if end else len(text)]
    if start and (credit := _GUTENBERG_CREDITS.match(book)):
        book = book[credit.end() :]
    return book, title.group(1).strip() if title else ""


def unwrap(text: str) -> str:
    """Paragraphs separated by one blank line, their hard-wrapped lines joined.

    A line was wrapped if the next line's first word would not have fitted behind it; the width is the one that hardly
    any line of the text exceeds. Other line breaks stay (verse) where blank lines separate the paragraphs; in a text
    without them, or with a paragraph a line, they end a paragraph.
    """
    lines = [line.strip() for line in text.split("\n")]
    filled = [len(line) for line in lines if line]
    if not filled:
        return ""
    short = sorted(length for length in filled if length <= LONG_LINE)
    width = short[int(0.95 * len(short))] if short else 0
    long_share = sum(length for length in filled if length > LONG_LINE) / sum(filled)
    blank_share = 1 - len(filled) / len(lines)
    line_break = "\n" if blank_share > 0.05 and long_share < 0.5 else "\n\n"
    parts: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if not line:
            continue
        parts.append(line)
        if not following:
            parts.append("\n\n")
        elif len(line) <= LONG_LINE and len(line) + 1 + len(following.split(None, 1)[0]) > width and width > 30:
            hyphenated = line[-1] == "-" and line[-2:-1].isalpha() and following[0].isalpha()
            parts.append("" if hyphenated else " ")
        else:
            parts.append(line_break)
    return "".join(parts).strip()
