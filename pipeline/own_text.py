"""Own corpora: text files (one document each) or tables (one document a row) become the text of one source."""

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline import progress
from pipeline.config import OwnTextConfig
from pipeline.errors import DataError
from pipeline.formats import jsonl, parquet_rows, tables
from pipeline.formats.kinds import ENDINGS, is_of, plain_name
from pipeline.prose import text_files
from pipeline.prose.plain_text import is_blank, separated, tidy
from pipeline.schemas import TEXT_SCHEMA, describe_lengths, write_dropped, write_parts, write_sentence_lines
from pipeline.selection.sampling import Beginning, share_read
from pipeline.stage import Stage

STAGE = Stage(
    name="own_text",
    function="pipeline.own_text:extract_text",
    version="3",  # 3: text that cannot be seen is dropped
    libraries=("charset-normalizer", "ftfy", "pycld2"),
    sources=(
        "pipeline/own_text.py",
        "pipeline/formats/archives.py",
        "pipeline/prose/book_headings.py",
        "pipeline/prose/book_layout.py",
        "pipeline/formats/compressed.py",
        "pipeline/prose/encodings.py",
        "pipeline/prose/languages.py",
        "pipeline/formats/inflate.py",
        "pipeline/formats/jsonl.py",
        "pipeline/formats/kinds.py",
        "pipeline/formats/parquet_rows.py",
        "pipeline/prose/plain_text.py",
        "pipeline/selection/sampling.py",
        "pipeline/schemas.py",
        "pipeline/formats/tables.py",
        "pipeline/prose/text_files.py",
    ),
)

_ALSO = {
    "jsonl": " (.gz or .zst may stand behind)",
    "parquet": "",
    "csv": " (.gz or .zst may stand behind)",
    "text": " (.gz or .zst may stand behind; a .zip or .tar of them will do)",
}
UNREADABLE = frozenset({"broken_line", "not_an_object", "not_utf8", "line_too_long"})
"""Reasons that, if they are all that a file gives, say that it is no file of this kind."""
NAMED = 20
"""So many dropped rows are named for each reason."""
ROWS_WITHOUT_TEXT = 1000
"""So many rows of a file without the named column, and the name is wrong."""

_FORM = {
    "jsonl": "JSON Lines have one object a line, in UTF-8.",
    "text": "A file of sentences beyond 64 MiB must be UTF-8.",
}

Row = tuple[int, dict[str, Any] | str]
"""(line or row; column → value, or why the row can't be read)"""


def extract_text(inputs: Mapping[str, Path], config: OwnTextConfig, out: Path) -> dict[str, Any]:
    """Write the documents of the folder `inputs["files"]`, by relative path, then by row, and dropped.json.

    `config.sentence_per_line` also writes sentence_lines.json, and in text files it makes blank lines the bounds of
    documents. A row without usable text or id, or whose doc_id stood before, is dropped and counted by reason. DataError
    for a folder without files of the kind, a file that can't be read or of which no row can, and a column that is not
    there.
    """
    reader = _Reader(inputs["files"], config)
    documents = reader.documents()
    kept = write_parts(documents, TEXT_SCHEMA, out)
    count = write_dropped(out, reader.read, kept, reader.dropped)
    write_sentence_lines(out, reader.seen if config.sentence_per_line else ())
    return {
        **describe_lengths(reader.lengths),
        **share_read(documents),
        **count,
        "files": reader.files,
        "empty_files": reader.empty_files,
        "encodings": dict(sorted(reader.encodings.items())),
        "mojibake_repaired": reader.repaired,
        "languages": dict(reader.languages.most_common(NAMED)),
        "licences": dict(reader.licences.most_common(NAMED)),
        "control_characters_removed": reader.removed,
        "ignored_values": dict(sorted(reader.ignored.items())),
        "first_dropped": {reason: ", ".join(places) for reason, places in sorted(reader.first_dropped.items())},
        "sample": reader.sample,
    }


class _Reader:
    """Iterates the documents and counts on the way."""

    def __init__(self, folder: Path, config: OwnTextConfig) -> None:
        self.folder = folder
        self.config = config
        self.roles: dict[str, str] = {
            role: column for role, column in config.columns if column is not None and config.kind != "text"
        }
        self._unit = "row" if config.kind == "parquet" else "line"
        self.lengths = array("q")
        self.seen: set[str] = set()
        self.dropped: Counter[str] = Counter()
        self.first_dropped: dict[str, list[str]] = {}
        self.encodings: Counter[str] = Counter()
        self.languages: Counter[str] = Counter()
        self.licences: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        self.files = 0
        self.empty_files = 0
        self.read = 0
        self.removed = 0
        self.repaired = 0
        self.sample: list[str] = []
        self._present: set[str] = set()
        self._first_keys = ""

    def documents(self) -> Iterable[Mapping[str, Any]]:
        """The documents; of a rehearsal the first of them."""
        sizes = {name: (self.folder / name).stat().st_size for name in self._names()}
        if self.config.sample == 1:
            return self._documents(sizes)
        return Beginning(self._documents(sizes), sum(sizes.values()), self.config.sample)

    def _documents(self, sizes: Mapping[str, int]) -> Generator[dict[str, Any]]:
        total, before = sum(sizes.values()), 0
        progress.report(0, total, "bytes")
        for name in sizes:

            def report(done: int, before: int = before) -> None:
                progress.report(before + done, total, "bytes")

            if not is_of(self.config.kind, name):
                self._drop(name, "unknown_file_type")
            elif self.config.kind == "text":
                for each, found in text_files.documents(
                    self.folder / name, name, self.config.sentence_per_line, report
                ):
                    yield from self._file(each, self._texts(each, found))
            else:
                yield from self._file(name, self._rows(self.folder / name, report))
            before += sizes[name]
            progress.report(before, total, "bytes")
        if self._first_keys:
            for role in self.roles.keys() - self._present:
                raise self._no_column(role, f"no row of source {self.config.source}")

    def _names(self) -> list[str]:
        """Relative paths of all files, in order. DataError if none is of the kind."""
        names = sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        names = [name for name in names if name != "manifest.json"]  # the store's own
        if not any(is_of(self.config.kind, name) for name in names):
            holds = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise DataError(
                f"source {self.config.source} of kind {self.config.kind} has no file that ends in "
                f"{', '.join(ENDINGS[self.config.kind])}; it has {holds or 'no files at all'}",
                f"Correct `kind` or `from` in the recipe, or rename the files{_ALSO[self.config.kind]}.",
            )
        return names

    def _file(self, name: str, rows_of_file: Iterator[Row]) -> Iterator[dict[str, Any]]:
        self.files += 1
        path, text = self.folder / name, self.roles.get("text", "text")
        read, found, unreadable, with_text = self.read, 0, 0, False
        for number, row in rows_of_file:
            place = f"{name}, {self._unit} {number}" if number else name
            if isinstance(row, str):
                unreadable += row in UNREADABLE
                self._drop(place, row)
                continue
            found += 1
            if len(self._present) < len(self.roles):
                self._note_columns(place, row)
            with_text = with_text or _has(row, text)
            if not with_text and found >= ROWS_WITHOUT_TEXT:
                break
            document = self._document(name, row)
            if isinstance(document, str):
                self._drop(place, document)
            else:
                self.read += 1
                yield document
        rows = self.read - read
        self.empty_files += not rows
        if rows and unreadable == rows:
            reason, places = next((r, p) for r, p in self.first_dropped.items() if r in UNREADABLE)
            raise DataError(
                f"{path}: not one of its {rows:,} {'records' if self.roles else 'documents'} can be read ({places[0]}: {reason})",
                f"{_FORM[self.config.kind]} Make the file so, or take it away.",
            )
        if found and not with_text:
            raise self._no_column("text", f"no row of {path}")

    def _rows(self, path: Path, report: Callable[[int], None]) -> Iterator[Row]:
        kind = self.config.kind
        self.encodings["utf-8"] += 1
        if kind == "jsonl":
            return jsonl.rows(path, report)
        if kind == "parquet":
            return parquet_rows.rows(path, self.roles.values(), self.roles["text"], report)
        return self._records(path, report)

    def _records(self, path: Path, report: Callable[[int], None]) -> Iterator[Row]:
        table = tables.read_table(path)
        table.require(self.roles.values())
        for line, values in table.records(report):
            if len(values) == len(table.columns):
                yield line, dict(zip(table.columns, values, strict=True))
            else:
                yield line, "wrong_number_of_values"

    def _texts(self, name: str, found: Iterable[text_files.Found]) -> Iterator[Row]:
        title = {} if self.config.sentence_per_line else {"title": Path(name[: len(plain_name(name))]).stem}
        for number, text in found:
            if isinstance(text, str):
                yield number, text
            else:
                self.encodings[text.encoding] += 1
                self.repaired += text.mojibake_repaired
                yield number, {"text": text.text, **title}

    def _note_columns(self, place: str, row: dict[str, Any]) -> None:
        self._first_keys = self._first_keys or f"{place} has {', '.join(map(repr, row)) or 'no columns'}"
        self._present |= {role for role, column in self.roles.items() if _has(row, column)}

    def _no_column(self, role: str, where: str) -> DataError:
        return DataError(
            f"{where} has a column {self.roles[role]!r}; {self._first_keys}",
            f"Name one of these as columns.{role} of source {self.config.source} in the recipe.",
        )

    def _document(self, name: str, row: dict[str, Any]) -> dict[str, Any] | str:
        """The row of `S_text`, or why there is none."""
        raw = _value(row, self.roles.get("text", "text"))
        if reason := _why_not(raw):
            return reason
        text, removed = tidy(raw)
        if not self.config.sentence_per_line:
            text = separated(text)
        identity = self._identity(name, row, raw)
        if identity is None:
            return "no_id"
        if is_blank(text):
            return "empty"
        doc_id = f"{self.config.source}:{identity}"
        if doc_id in self.seen:
            return "duplicate_doc_id"
        self.seen.add(doc_id)
        self.removed += removed
        self.lengths.append(len(text))
        return self._finished(doc_id, text, row)

    def _finished(self, doc_id: str, text: str, row: dict[str, Any]) -> dict[str, Any]:
        title = row.get("title") if self.config.kind == "text" else self._short(row, "title")
        language = self._short(row, "language") or self.config.language
        licence = self._short(row, "licence") or self.config.licence or None
        self.languages[language] += 1
        self.licences[licence or "none"] += 1
        if len(self.sample) < 5:
            self.sample.append(title or doc_id)
        return {
            "doc_id": doc_id,
            "source": self.config.source,
            "title": title,
            "url": self._short(row, "url"),
            "language": language,
            "licence": licence,
            "date": self._short(row, "date"),
            "text": text,
        }

    def _identity(self, name: str, row: dict[str, Any], raw: str) -> str | None:
        """What stands behind the source in doc_id; None where the row's id is empty or none."""
        if "id" in self.roles:
            return _words(_value(row, self.roles["id"]))
        parts = (name,) if self.config.kind == "text" and not self.config.sentence_per_line else (name, raw)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def _short(self, row: dict[str, Any], role: str) -> str | None:
        """The value of a column beside the text, on one line; None where there is none."""
        if role not in self.roles:
            return None
        value = _value(row, self.roles[role])
        words = _words(value)
        if words is None and value is not None and not (isinstance(value, str) and not value.strip()):
            self.ignored[role] += 1
        return words

    def _drop(self, place: str, reason: str) -> None:
        self.read += 1
        self.dropped[reason] += 1
        named = self.first_dropped.setdefault(reason, [])
        if len(named) < NAMED:
            named.append(place)


def _has(row: dict[str, Any], column: str) -> bool:
    return column in row or ("." in column and _inside(row, column) is not None)


def _value(row: dict[str, Any], column: str) -> Any:
    """A column's value; `meta.title` is also found as `title` inside `meta`."""
    value = row.get(column)
    return _inside(row, column) if value is None and "." in column else value


def _inside(row: Any, column: str) -> Any:
    for part in column.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    return row


def _why_not(text: Any) -> str:
    """Why a value can't be a document's text; "" where it can."""
    if text is None:
        return "no_text"
    if isinstance(text, bytes):
        return "not_utf8"
    if not isinstance(text, str):
        return "text_not_a_string"
    if "\0" in text:
        return "nul_character"
    return "" if _encodable(text) else "lone_surrogate"


def _encodable(text: str) -> bool:
    """JSON can escape one half of a surrogate pair, which is no character."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _words(value: Any) -> str | None:
    """A short value (an id, a title, a date) on one line, numbers as they are written; None where it is empty or no
    such value."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return None if not math.isfinite(value) else str(int(value)) if value.is_integer() else repr(value)
    if not isinstance(value, str):
        return None
    if value.isprintable():  # true of nearly all, and quickly told
        return " ".join(value.split()) or None
    return None if "\0" in value or not _encodable(value) else " ".join(tidy(value)[0].split()) or None
