"""Books: .txt and .epub files, folders and archives of them, or tables (one text a row) become the text of one source.

Beside the table of documents stands `books.parquet`: a row for every file and member of an archive that was found, with
what it is, what is known of it, and why it was dropped if it was.
"""

import hashlib
import posixpath
import re
from array import array
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from pipeline import progress
from pipeline.config import BooksTextConfig
from pipeline.errors import DataError
from pipeline.formats import archives
from pipeline.formats.inflate import PIECE_BYTES, Unreadable, pieces
from pipeline.formats.inflate import SUFFIXES as COMPRESSED
from pipeline.formats.tables import SUFFIXES as TABLES
from pipeline.formats.tables import read_table
from pipeline.prose.book_manifest import Manifest, Row, read_manifest
from pipeline.prose.book_text import BookText, from_blocks, paragraphs
from pipeline.prose.encodings import decode
from pipeline.prose.epub import Epub, read_epub
from pipeline.prose.gutenberg import LANGUAGES, strip_gutenberg
from pipeline.prose.sentence_lines import Layout, boundaries, layout
from pipeline.schemas import TEXT_SCHEMA, describe_lengths, to_batches, write_dropped, write_parts, write_sentence_lines
from pipeline.selection.sampling import LEAST_DOCUMENTS, Beginning, first_bytes, share_read
from pipeline.settings import settings
from pipeline.stage import Stage
from pipeline.system import workers
from pipeline.system.disk import scratch_folder

STAGE = Stage(
    name="books_text",
    function="pipeline.books:extract_text",
    version="3",  # 3: encodings of the Latin script, verse, ends in brackets; 2: EPUBs, archives, manifest, headings
    libraries=("charset-normalizer", "ftfy", "lxml", "pycld2"),
    sources=(
        "pipeline/books.py",
        "pipeline/formats/archives.py",
        "pipeline/prose/book_headings.py",
        "pipeline/prose/book_layout.py",
        "pipeline/prose/book_manifest.py",
        "pipeline/prose/book_text.py",
        "pipeline/prose/encodings.py",
        "pipeline/prose/epub.py",
        "pipeline/prose/gutenberg.py",
        "pipeline/formats/inflate.py",
        "pipeline/prose/languages.py",
        "pipeline/selection/sampling.py",
        "pipeline/schemas.py",
        "pipeline/prose/sentence_lines.py",
        "pipeline/formats/tables.py",
        "pipeline/prose/xhtml.py",
    ),
)

MAX_BOOK_BYTES = archives.MAX_MEMBER_BYTES
"""Of one book; a file with a sentence a line holds many and may be of any size."""
WORK_PER_WORKER = 16 << 20
"""Bytes of books below which one more worker process costs more than it saves."""
TASK_BYTES = 4 << 20
"""Of the books that a worker process reads together."""
HEAD_BYTES = 2 << 20
"""So much of a text tells its layout (`sentence_lines.layout` looks no further)."""
LINES_BYTES = 8 << 20
"""Text of a file of sentences that is decoded at a time."""
NAMED = 50
"""So many dropped files, and files that a manifest names in vain, are named in the statistics; books.parquet has all."""

BOOKS = "books.parquet"
BOOKS_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),  # below the source's folder; of a member: archive!/path
        pa.field("format", pa.string(), nullable=False),  # txt, epub, table, archive, or the suffix that is unknown
        pa.field("bytes", pa.int64(), nullable=False),  # after decompression
        pa.field("encoding", pa.string()),
        pa.field("mojibake_repaired", pa.bool_(), nullable=False),
        pa.field("layout", pa.string()),  # paragraphs, sentence_per_line
        pa.field("pretokenised", pa.bool_(), nullable=False),
        pa.field("lowercased", pa.bool_(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("author", pa.string()),
        pa.field("licence", pa.string()),
        pa.field("rights", pa.string()),  # what the book itself says of them
        pa.field("url", pa.string()),
        pa.field("language", pa.string()),
        pa.field("identifiers", pa.string()),
        pa.field("documents", pa.int64(), nullable=False),
        pa.field("characters", pa.int64(), nullable=False),
        pa.field("left_out", pa.string()),  # "headings 12, notes 3": what of it is no prose
        pa.field("unread", pa.string()),  # "ch3.xhtml: missing": pages of an EPUB that could not be read
        pa.field("dropped", pa.string()),  # why there is no document of it
    ]
)

_TAG = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9-]+)?")


def extract_text(inputs: Mapping[str, Path], config: BooksTextConfig, out: Path) -> dict[str, Any]:
    """Write the documents of the folder `inputs["files"]`, by relative path, then in the order of the file.

    .txt (also .gz, .bz2, .xz) and .epub are one document each, lines of a sentence each as many as books are found in
    them; the same inside .zip and .tar archives; every row of a .tab, .tsv or .csv is one. Anything else is dropped and
    counted. Also written: dropped.json, sentence_lines.json, and books.parquet (see the module).

    Title, author, licence, URL and language are those of the manifest, else of the recipe (licence) or the book itself
    (the others), else the book's own licence and the recipe's language. A table needs `config.columns`. DataError for a
    table or manifest that can't be read, and a table that lacks a named column.
    """
    reader = _Reader(inputs["files"], config)
    with scratch_folder(out) as scratch:
        documents = reader.documents(scratch)
        kept = write_parts(documents, TEXT_SCHEMA, out)
    count = write_dropped(out, reader.read, kept, reader.dropped)
    write_sentence_lines(out, reader.sentence_lines)
    _write_books(reader.books, out)
    books = [book for book in reader.books if book.documents]
    unknown = reader.manifest.unknown
    return {
        **describe_lengths(reader.lengths),
        **share_read(documents),
        **count,
        "files": len(reader.books),
        "formats": _counted(book.format for book in reader.books),
        "encodings": _counted(book.encoding for book in books if book.encoding),
        "layouts": _counted(book.layout for book in books if book.layout),
        "mojibake_repaired": sum(book.mojibake_repaired for book in books),
        "pretokenised": sum(book.pretokenised for book in books),
        "lowercased": sum(book.lowercased for book in books),
        "gutenberg_headers_removed": reader.gutenberg,
        "left_out": dict(sorted(reader.left_out.items())),
        "dropped_files": [f"{book.path}: {book.dropped}" for book in reader.books if book.dropped][:NAMED],
        **(
            {
                "manifest_unknown_files": unknown[:NAMED],
                "manifest_unknown": len(unknown),
                "without_manifest_row": sum(not book.in_manifest for book in books),
            }
            if reader.manifest
            else {}
        ),
        "sample": reader.sample,
    }


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


@dataclass
class _Book:
    """A row of books.parquet."""

    path: str
    format: str
    bytes: int = 0
    encoding: str = ""
    mojibake_repaired: bool = False
    layout: str = ""
    pretokenised: bool = False
    lowercased: bool = False
    title: str = ""
    author: str = ""
    licence: str = ""
    rights: str = ""
    url: str = ""
    language: str = ""
    identifiers: str = ""
    documents: int = 0
    characters: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    unread: dict[str, str] = field(default_factory=dict)
    dropped: str = ""
    in_manifest: bool = False

    def plain(self) -> dict[str, Any]:
        row = {name: None if getattr(self, name) == "" else getattr(self, name) for name in BOOKS_SCHEMA.names}
        row["left_out"] = ", ".join(f"{reason} {count}" for reason, count in sorted(self.left_out.items())) or None
        row["unread"] = "; ".join(f"{page}: {reason}" for page, reason in self.unread.items()) or None
        return row


def _write_books(books: list[_Book], out: Path) -> None:
    with pq.ParquetWriter(out / BOOKS, BOOKS_SCHEMA, compression="zstd") as writer:
        for batch in to_batches((book.plain() for book in books), BOOKS_SCHEMA):
            writer.write_batch(batch)


@dataclass(frozen=True)
class _Document:
    """A text before it is given its columns; "" for what is not known."""

    doc_id: str
    text: str
    title: str = ""
    url: str = ""
    licence: str = ""
    language: str = ""
    date: str = ""
    sentence_lines: bool = False


_IN_A_FILE = pa.schema(
    [
        pa.field("book", pa.int32()),
        *(pa.field(each.name, pa.bool_() if each.type is bool else pa.string()) for each in fields(_Document)),
    ]
)
"""Documents between a worker and this process; `book` is the place of theirs in the list of the task."""


def read_books(task: Mapping[str, Any]) -> dict[str, Any]:
    """What `_Reader` finds in the files `task["names"]`; their documents are in the file `task["documents"]`.

    A function for `pipeline.system.workers`.
    """
    reader = _Reader(Path(task["folder"]), BooksTextConfig.model_validate(task["config"]))
    rows = [
        {"book": len(reader.books) - 1, **asdict(document)}
        for name in task["names"]
        for _, document in reader.file(name)
    ]
    feather.write_feather(pa.Table.from_pylist(rows, _IN_A_FILE), task["documents"], compression="uncompressed")
    return {
        "books": [vars(book) for book in reader.books],
        "read": reader.read,
        "dropped": reader.dropped,
        "gutenberg": reader.gutenberg,
    }


@dataclass
class _Run:
    """Files that stand one after the other; `together`: books that one task reads."""

    together: bool
    names: list[str]
    bytes: int


class _Reader:
    """Iterates the documents and counts on the way."""

    def __init__(self, folder: Path, config: BooksTextConfig) -> None:
        self.folder = folder
        self.config = config
        self.manifest: Manifest = read_manifest(Path(config.manifest.path) if config.manifest else None)
        self.books: list[_Book] = []
        self.lengths = array("q")
        self.dropped: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.sentence_lines: list[str] = []
        self.gutenberg = 0
        self.read = 0
        self.sample: list[str] = []

    def documents(self, scratch: Path) -> Iterable[Mapping[str, Any]]:
        """The documents; of a rehearsal the first of them, from the first files."""
        names = self._names()
        if self.config.sample == 1:
            return self._documents(names, scratch)
        sizes = [(self.folder / name).stat().st_size for name in names]
        first = max(LEAST_DOCUMENTS, len(first_bytes(names, sizes, self.config.sample)))
        given = sum(sizes[:first]) / max(1, sum(sizes))
        return Beginning(self._documents(names[:first], scratch), sum(sizes), self.config.sample, given)

    def _names(self) -> list[str]:
        """Relative paths of all files, in order."""
        names = sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        names = [
            name for name in names if name != "manifest.json" and not self._is_manifest(name)
        ]  # the first: the store's own
        if not names:
            raise DataError(f"{self.folder} holds no files", f"Check `from` of source {self.config.source}.")
        return names

    def _documents(self, names: list[str], scratch: Path) -> Generator[dict[str, Any]]:
        seen: set[str] = set()
        whole = False
        try:
            for book, document in self._all(names, scratch):
                self.read += 1
                if not document.text:
                    self.dropped["empty"] += 1
                elif document.doc_id in seen:
                    self.dropped["duplicate_doc_id"] += 1
                    if not book.documents:
                        book.dropped = "duplicate_doc_id"
                else:
                    seen.add(document.doc_id)
                    yield self._kept(book, document)
            whole = True
        finally:  # a rehearsal has enough before the end
            for book in self.books:
                self.left_out += book.left_out
                if not book.documents and not book.dropped:
                    book.dropped = "empty" if whole else "not in the sample"

    def _all(self, names: list[str], scratch: Path) -> Iterator[tuple[_Book, _Document]]:
        """The documents of all files in order: books that are files of their own by workers, the others here."""
        runs = self._runs(names)
        tasks = [
            {
                "folder": str(self.folder),
                "config": self.config.model_dump(mode="json", by_alias=True),
                "names": run.names,
                "documents": str(scratch / f"{number}.arrow"),
            }
            for number, run in enumerate(run for run in runs if run.together)
        ]
        size = sum(run.bytes for run in runs if run.together)
        count = min(settings().beam.workers, 1 + size // WORK_PER_WORKER)
        results = zip(tasks, workers.ordered("pipeline.books:read_books", tasks, count), strict=True)
        done = 0
        for run in runs:
            if run.together:
                yield from self._read(*next(results))
            else:
                for name in run.names:
                    yield from self.file(name)
            done += len(run.names)
            progress.report(done, len(names), "files")

    def _runs(self, names: list[str]) -> list["_Run"]:
        runs: list[_Run] = []
        for name in names:
            size = (self.folder / name).stat().st_size
            together = name.lower().endswith((".txt", ".epub")) and size <= MAX_BOOK_BYTES
            if runs and together and runs[-1].together and runs[-1].bytes + size <= TASK_BYTES:
                runs[-1].names.append(name)
                runs[-1].bytes += size
            else:
                runs.append(_Run(together, [name], size))
        return runs

    def _read(self, task: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[_Book, _Document]]:
        """What a worker found."""
        books = [_Book(**{**row, "left_out": Counter(row["left_out"])}) for row in found["books"]]
        for book in books:
            if book.title:
                self.manifest.row(book.path)  # so that two files of one name are noticed, and rows without a file
        self.books += books
        self.read += found["read"]
        self.dropped.update(found["dropped"])
        self.gutenberg += found["gutenberg"]
        rows = feather.read_table(task["documents"], memory_map=False).to_pylist()
        Path(task["documents"]).unlink()
        for row in rows:
            yield books[row.pop("book")], _Document(**row)

    def _kept(self, book: _Book, document: _Document) -> dict[str, Any]:
        book.documents += 1
        book.characters += len(document.text)
        self.lengths.append(len(document.text))
        if len(self.sample) < 5:
            self.sample.append(document.title or document.doc_id)
        if document.sentence_lines:
            self.sentence_lines.append(document.doc_id)
        return {
            "doc_id": document.doc_id,
            "source": self.config.source,
            "title": document.title or None,
            "url": document.url or None,
            "language": document.language or self.config.language,
            "licence": document.licence or None,
            "date": document.date or None,
            "text": document.text,
        }

    def _is_manifest(self, name: str) -> bool:
        """Whether a file of the folder is the manifest itself, which people like to lay beside the books."""
        if not self.config.manifest:
            return False
        manifest, path = Path(self.config.manifest.path), self.folder / name
        return (
            manifest.name == path.name
            and manifest.stat().st_size == path.stat().st_size
            and manifest.read_bytes() == path.read_bytes()
        )

    # ── files and members ────────────────────────────────────────────────────────────────────────────────────────────

    def file(self, name: str) -> Iterator[tuple[_Book, _Document]]:
        path = self.folder / name
        if path.suffix.lower() in TABLES:
            yield from self._rows(name, path)
        elif archives.suffix_of(name):
            yield from self._archive(name, path)
        else:
            with path.open("rb") as file:
                compressed = path.suffix.lower() in COMPRESSED
                plain = pieces(file, path.suffix.lower()) if compressed else None
                yield from self._book(name, plain or iter(lambda: file.read(PIECE_BYTES), b""))

    def _archive(self, name: str, path: Path) -> Iterator[tuple[_Book, _Document]]:
        count = 0
        for count, member in enumerate(archives.members(path), start=1):
            if not member.name:
                self._drop(_Book(name, "archive", path.stat().st_size), member.dropped)
            elif member.dropped:
                self._drop(_Book(f"{name}!/{member.name}", _suffix(member.name)), member.dropped)
            elif member.name.lower().endswith(archives.NESTED):
                self._drop(_Book(f"{name}!/{member.name}", _suffix(member.name)), "archive_in_archive")
            else:
                yield from self._book(f"{name}!/{member.name}", member.pieces())
            progress.report(count, None, "members")
        if not count:
            self._drop(_Book(name, "archive", path.stat().st_size), "empty")

    def _drop(self, book: _Book, reason: str) -> None:
        book.dropped = reason
        self.books.append(book)
        self.read += 1
        self.dropped[reason] += 1

    def _book(self, name: str, content: Iterator[bytes]) -> Iterator[tuple[_Book, _Document]]:
        """The documents of a .txt (it may be compressed) or .epub, in a folder or an archive."""
        book = _Book(name, _suffix(name))
        try:
            if book.format == "epub":
                documents: Iterable[_Document] = self._epub(book, archives.gathered(content, MAX_BOOK_BYTES))
            elif book.format == "txt":
                documents = self._text(book, content)
            else:
                raise Unreadable("unknown_file_type")
        except Unreadable as error:
            self._drop(book, error.reason)
            return
        self.books.append(book)
        try:
            for document in documents:
                yield book, document
        except Unreadable as error:  # of a file of sentences, the books before this place are kept
            book.dropped = error.reason
            self.read += 1
            self.dropped[error.reason] += 1

    def _text(self, book: _Book, content: Iterator[bytes]) -> Iterable[_Document]:
        head = b""
        for piece in content:
            head += piece
            if len(head) >= HEAD_BYTES:
                break
        sample = decode(head[: head.rfind(b"\n") + 1] or head)
        if sample.text is not None and "utf-16" not in sample.encoding and "utf-32" not in sample.encoding:
            found = layout(sample.text)
            if found.sentence_per_line:
                return self._sentences(book, chain([head], content), found)
        data = archives.gathered(chain([head], content), MAX_BOOK_BYTES)
        book.bytes = len(data)
        decoded = decode(data)
        if decoded.text is None:
            raise Unreadable("not_text")
        book.encoding, book.mojibake_repaired = decoded.encoding, decoded.mojibake_repaired
        plain, header = strip_gutenberg(decoded.text)
        self.gutenberg += len(plain) < len(decoded.text)
        said = Epub(
            header.get("title", ""), header.get("author", ""), LANGUAGES.get(header.get("language", "").lower(), "")
        )
        return self._whole(book, paragraphs(plain), said)

    def _sentences(self, book: _Book, content: Iterator[bytes], found: Layout) -> Iterator[_Document]:
        """A document for each section that is found in a stream of sentences; a file of them may be of any size."""
        book.layout, book.pretokenised, book.lowercased = "sentence_per_line", found.pretokenised, found.lowercased
        about = self._known(book, Epub())
        lines = filled = 0

        def counted() -> Iterator[str]:
            nonlocal filled
            for line in _lines(book, content):
                filled += bool(line.strip())
                yield line

        for section in boundaries(counted()):
            lines += len(section.lines)
            text = "\n".join(section.lines)
            yield _Document(f"{self.config.source}:{_digest(book.path, text)}", text, **about, sentence_lines=True)
        book.left_out["headings"] += filled - lines

    def _epub(self, book: _Book, data: bytes) -> list[_Document]:
        book.bytes = len(data)
        epub = read_epub(data)
        whole = "\n\n".join(epub.paragraphs)
        plain, _ = strip_gutenberg(whole)
        self.gutenberg += len(plain) < len(whole)
        text = from_blocks([each for each in plain.split("\n\n") if each.strip()])
        book.left_out += epub.left_out
        book.unread, book.rights, book.identifiers = epub.unread, epub.rights, "; ".join(epub.identifiers)
        book.encoding = "utf-8"
        return self._whole(book, text, epub)

    def _whole(self, book: _Book, text: BookText, said: Epub) -> list[_Document]:
        """A book as one document."""
        book.left_out += Counter(text.counts)
        book.layout, book.pretokenised, book.lowercased = text.layout, text.pretokenised, text.lowercased
        about = self._known(book, said)
        doc_id = f"{self.config.source}:{_digest(book.path)}"
        return [
            _Document(doc_id, "\n\n".join(text.paragraphs), **about, sentence_lines=text.layout == "sentence_per_line")
        ]

    def _known(self, book: _Book, said: Epub) -> dict[str, str]:
        """What the manifest, the recipe and the book itself say of it, by column."""
        row = self.manifest.row(book.path)
        book.in_manifest = row is not None
        stated = row or Row(book.path)
        book.title = stated.title or said.title or _stem(book.path)
        book.author = stated.author or said.author
        book.licence = stated.licence or self.config.licence or said.licence
        book.url = stated.url
        book.language = stated.language or _language(said.language) or self.config.language
        return {"title": book.title, "url": book.url, "licence": book.licence, "language": book.language}

    # ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _rows(self, name: str, path: Path) -> Iterator[tuple[_Book, _Document]]:
        table = read_table(path)
        columns = self.config.columns
        if columns is None:
            raise DataError(
                f"{path} is a table, and source {self.config.source} does not say which column is the text",
                f"Add `columns: {{text: …}}` with one of {', '.join(map(repr, table.columns))}; a list of the books is named"
                " as `manifest`.",
            )
        named = columns.model_dump(exclude_none=True)
        table.require(named.values())
        book = _Book(name, "table", path.stat().st_size, "utf-8", licence=self.config.licence)
        self.books.append(book)
        for line, values in table.rows:
            row = {key: values[column].strip() for key, column in named.items()}
            text = values[columns.text]
            if columns.id and not row["id"]:
                raise DataError(f"{path}, line {line}: column {columns.id!r} is empty", "Every row needs an id.")
            document = _Document(
                f"{self.config.source}:{row['id'] if columns.id else _digest(name, text)}",
                text.replace("\r\n", "\n").replace("\r", "\n").strip(),
                row.get("title", ""),
                row.get("url", ""),
                row.get("licence", "") or self.config.licence,
                row.get("language", ""),
                row.get("date", ""),
            )
            yield book, document


def _lines(book: _Book, content: Iterator[bytes]) -> Iterator[str]:
    """The lines of a text of any size; every chunk of them is decoded for itself. Unreadable for what is no text."""
    rest = b""
    encodings: Counter[str] = Counter()
    for piece in chain(content, [b""]):
        book.bytes += len(piece)
        rest += piece
        cut = rest.rfind(b"\n") + 1 if piece else len(rest)
        if cut < LINES_BYTES and piece:
            if len(rest) > MAX_BOOK_BYTES:
                raise Unreadable("line_too_long")
            continue
        decoded = decode(rest[:cut])
        if decoded.text is None:
            raise Unreadable("not_text")
        encodings[decoded.encoding] += cut
        book.encoding = encodings.most_common(1)[0][0]
        book.mojibake_repaired |= decoded.mojibake_repaired
        rest = rest[cut:]
        lines = decoded.text.split("\n")
        yield from lines[:-1] if piece or not lines[-1] else lines


def _suffix(name: str) -> str:
    """txt, epub, …; of a text that is compressed for itself, txt."""
    stem, suffix = posixpath.splitext(posixpath.basename(name).lower())
    if suffix in COMPRESSED and "!/" not in name:
        return posixpath.splitext(stem)[1][1:] or "none"
    return suffix[1:] or "none"


def _stem(name: str) -> str:
    """A title where nobody states one: `a/emma.epub.txt` → `emma`."""
    base = posixpath.basename(name)
    for suffix in (*COMPRESSED, ".txt", ".epub"):
        if base.lower().endswith(suffix):
            base = base[: -len(suffix)]
    return base


def _language(tag: str) -> str:
    """en-GB → en; "" for what is no language tag, or says that there is no one language."""
    match = _TAG.fullmatch(tag.strip())
    language = match[1].lower() if match else ""
    return "" if language in ("und", "mul", "zxx", "mis") else language


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
