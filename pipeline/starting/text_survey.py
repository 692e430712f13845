"""What a folder or file of somebody's text holds, by kind of source, before anything is read whole: what a recipe can take of it,
and what it leaves."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import DataError, SourceError
from pipeline.formats import archives, compressed
from pipeline.formats.inflate import PIECE_BYTES, SUFFIXES, Unreadable, pieces
from pipeline.formats.kinds import ARCHIVES, ENDINGS, is_of
from pipeline.prose.encodings import decode
from pipeline.prose.sentence_lines import layout
from pipeline.sources import local_files

BOOKS = (".epub", *(f".txt{suffix}" for suffix in ("", *SUFFIXES)))
"""What a source of kind books reads beside archives."""
TABLES = ("jsonl", "parquet", "csv")
HEAD_BYTES = 64 << 10
"""So much of a text is looked at."""
LOOKED_AT = 20
"""So many files of a kind, and members of an archive."""
BOOK_CHARACTERS = 200_000
"""A text of this length is a whole book, with headings and a table of contents to leave out."""
_GUTENBERG = re.compile(r"project gutenberg", re.IGNORECASE)


@dataclass(frozen=True)
class Found:
    """The files of one kind."""

    kind: str
    """as a source of a recipe has it"""
    path: Path
    """the file, or the folder that all of them lie in: what the source names"""
    files: tuple[Path, ...]
    why: str
    """why it is this kind"""
    foreign: int = 0
    """files below `path` that are of another kind: the source drops and counts them"""
    sentence_per_line: bool = False


@dataclass(frozen=True)
class Survey:
    """What is taken, kind by kind, and what is left."""

    taken: tuple[Found, ...]
    left: tuple[Path, ...]


def survey(path: Path) -> Survey:
    """Look at a file, or at all files below a folder; names that begin with a dot are left out, as sources leave them out.

    Raises:
        SourceError: there is no such path, nothing in it, or a link that leads nowhere.
        DataError: nothing of it can be read as text; it names what is there.
    """
    try:
        files = list(local_files(path))
    except SourceError as error:
        raise SourceError(error.what, "Name the folder or the file that your text lies in: --text FOLDER.") from None
    by_kind: dict[str, list[Path]] = {}
    for file in files:
        by_kind.setdefault(_kind(file), []).append(file)
    left = by_kind.pop("", [])
    if not by_kind:
        endings = sorted({file.suffix.lower() or file.name for file in left})
        known = ", ".join(dict.fromkeys([*(end for ends in ENDINGS.values() for end in ends), ".epub"]))
        raise DataError(
            f"{path} has no text that can be read: its {len(left):,} file{'s' * (len(left) > 1)} end in "
            f"{', '.join(endings[:8])}{' …' * (len(endings) > 8)}",
            f"Text ends in {known}, or lies in .zip or .tar archives of .txt and .epub; convert the files (docs/own-text.md).",
        )
    taken = []
    for kind, some in sorted(by_kind.items()):
        source = some[0] if len(some) == 1 else _common(some)
        below = [file for file in files if file == source or file.is_relative_to(source)]
        foreign = len(below) - len(some)
        if kind == "text":
            kind, why, lines = _text_or_books(some)
        else:
            why, lines = f"{_counted(some)} of {kind}", False
        taken.append(Found(kind, source, tuple(some), why, foreign, lines))
    return Survey(tuple(taken), tuple(left))


def _common(files: Sequence[Path]) -> Path:
    """The deepest folder that holds all of the files."""
    parents = [file.parent.parts for file in files]
    shared = 0
    while all(len(parts) > shared for parts in parents) and len({parts[shared] for parts in parents}) == 1:
        shared += 1
    return Path(*parents[0][:shared])


def _kind(file: Path) -> str:
    """jsonl, parquet, csv or text (books too); "" for what is none, or only ends like it."""
    name = file.name.lower()
    if name.endswith((*BOOKS, *ARCHIVES)) or is_of("text", name):
        return "text"
    kind = next((kind for kind in TABLES if is_of(kind, name)), "")
    return "" if kind == "jsonl" and not _has_objects(file) else kind


def _has_objects(file: Path) -> bool:
    """Whether the first line that is not blank is a JSON object: many a .json is one value over many lines."""
    try:
        for _, line in compressed.lines(file, lambda _: None):
            if line is None or line.strip(b"\xef\xbb\xbf \t\r\n"):
                return line is not None and isinstance(json.loads(line.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False
    return True  # empty: the source says so


def _counted(files: Sequence[Path]) -> str:
    return f"{len(files):,} file{'s' * (len(files) > 1)}"


def _text_or_books(files: Sequence[Path]) -> tuple[str, str, bool]:
    """(kind, why, whether every line is a sentence) of .txt and .epub files and archives."""
    names = [file.name.lower() for file in files]
    inside = [name.lower() for file in files[:LOOKED_AT] if archives.suffix_of(file.name) for name in _inside(file)]
    if any(name.endswith(".epub") for name in [*names, *inside]):
        return "books", "there are EPUBs", False
    if any(name.endswith(tuple(f".txt{end}" for end in (".bz2", ".xz"))) for name in names):
        return "books", "only books are read from .bz2 and .xz", False
    heads = [head for file in _spread(files) if (head := _head(file))]
    if any(_GUTENBERG.search(head) for head in heads):
        return "books", "there are files of Project Gutenberg, whose licences and headings are left out", False
    plain = sorted(file.stat().st_size for file in files if file.suffix.lower() == ".txt")
    if plain and plain[len(plain) // 2] >= BOOK_CHARACTERS and not any(map(_is_lines, heads)):
        return "books", f"most texts are as long as books ({BOOK_CHARACTERS:,} characters and more)", False
    lines = bool(heads) and 2 * sum(map(_is_lines, heads)) > len(heads)
    return "text", f"{_counted(files)} of text", lines


def _spread(files: Sequence[Path]) -> list[Path]:
    """At most LOOKED_AT of the files, evenly from the first to the last."""
    count = min(len(files), LOOKED_AT)
    return [files[number * len(files) // count] for number in range(count)]


def _inside(file: Path) -> list[str]:
    return [member.name for member, _ in zip(archives.members(file), range(LOOKED_AT), strict=False)]


def _head(file: Path) -> str:
    """The beginning of a text; "" of what can't be read, and of archives."""
    if archives.suffix_of(file.name):
        return ""
    try:
        if file.suffix.lower() == ".zst":
            with compressed.Stream(file) as stream:
                data = stream.read(HEAD_BYTES)
        else:
            with file.open("rb") as opened:
                suffix = file.suffix.lower()
                whole = pieces(opened, suffix) if suffix in SUFFIXES else iter(lambda: opened.read(PIECE_BYTES), b"")
                data = next(whole, b"")[:HEAD_BYTES]
    except (Unreadable, DataError):
        return ""
    return decode(data[: data.rfind(b"\n") + 1] or data).text or ""


def _is_lines(text: str) -> bool:
    """Whether every line is one sentence; blank lines may stand between documents."""
    return layout("\n".join(line for line in text.split("\n") if line.strip())).sentence_per_line
