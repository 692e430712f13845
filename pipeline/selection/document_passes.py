"""The two passes over all text that `documents` makes, each as a function of one task that worker processes run.

    read     what is needed to decide which documents stay: numbers of fixed size per document, in files
    write    the documents that stay as one part of the table, and the list of the others

Between them `pipeline.documents` decides. A task is a run of row groups of one source; its rows have places (row numbers of the
whole, by source, then as in the source), so that every number of a document has its place in a file (`Numbers`) and memory never
follows the text.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.config import DocumentsConfig, Frozen
from pipeline.errors import DataError
from pipeline.prose import languages
from pipeline.prose.sentences import sentence_ends
from pipeline.schemas import DOCUMENTS_SCHEMA, TEXT_SCHEMA, read_sentence_lines, readable, write_parts
from pipeline.selection import decontamination, duplicates, quality
from pipeline.selection.exclusions import NOTHING, Exclusions, read_exclusions
from pipeline.selection.ngrams import words

REASONS = (
    *("", "withdrawn", "empty", "too_short", "boilerplate", "repetition", "other_language", "contaminated"),
    *("duplicate_doc_id", "duplicate_text", "near_duplicate"),
)
"""Why a document is dropped; by number in the file `reason`. A document that has several is counted under the first."""
NO_WORDS = 255
"""Of the file `reason`: a document that stays, but has no word to be compared by."""

DROPPED_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("kept", pa.string()),
        pa.field("detail", pa.string()),
    ]
)
"""`dropped.parquet`: every document that this stage dropped; `kept` is the doc_id that stands in its place."""
TOGETHER_BYTES = 2 << 20
"""Of text that pass 1 looks at together."""
BEGINNING = 200
"""Characters of a document that the statistics show."""


class Task(Frozen):
    """A run of row groups of one file."""

    number: int
    source: str
    file: Path
    first_group: int
    last_group: int
    first: int
    """place of its first row"""
    rows: int


class Plan(Frozen):
    """All that a worker must know."""

    scratch: Path
    config: DocumentsConfig
    tasks: tuple[Task, ...]
    rows: int
    band_rows: int
    """0: no near-duplicates"""


@dataclass(frozen=True)
class Numbers:
    """Numbers of fixed size, a file for each kind, with `rows` entries."""

    folder: Path
    rows: int

    KINDS: ClassVar[dict[str, tuple[str, int]]] = {
        "digest": ("<u8", 2),  # of the text
        "identity": ("<u8", 2),  # of the doc_id; the first, big-endian, is the fraction that decides the split
        "characters": ("<i8", 1),
        "reason": ("u1", 1),
        "kept": ("<i8", 1),  # place of the document that stays instead
        "similarity": ("<f4", 1),
    }

    def write(self, name: str, first: int, values: npt.NDArray[Any]) -> None:
        """Write the numbers of documents from place `first` on."""
        kind, width = self.KINDS[name]
        self.write_at(self.folder / name, first * width * np.dtype(kind).itemsize, values.astype(kind))

    def read(self, name: str, first: int = 0, count: int = -1) -> npt.NDArray[Any]:
        """Read `count` documents' numbers, [count] or [count, width]; all of them without arguments."""
        kind, width = self.KINDS[name]
        offset = first * width * np.dtype(kind).itemsize
        values = np.fromfile(self.folder / name, kind, count * width if count >= 0 else -1, offset=offset)
        return values.reshape(-1, width) if width > 1 else values

    @staticmethod
    def write_at(path: Path, offset: int, values: npt.NDArray[Any]) -> None:
        """Write into a file that may be written by others at other places at the same time."""
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(np.ascontiguousarray(values).tobytes())

    @property
    def signatures(self) -> Path:
        """File of the MinHash signatures."""
        return self.folder / "signatures"

    def band(self, number: int) -> npt.NDArray[np.uint32]:
        """The numbers of one band, of all documents."""
        return np.fromfile(self.folder / "bands", "<u4", self.rows, offset=4 * self.rows * number)


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_OTHER_SPACES = {
    b"\xc2": re.compile(b"\xc2[\x85\xa0]"),
    b"\xe2": re.compile(b"\xe2(?:\x80[\x80-\x8a\xa8\xa9\xaf]|\x81\x9f)"),
    b"\xe1": re.compile(b"\xe1\x9a\x80"),
    b"\xe3": re.compile(b"\xe3\x80\x80"),
}
"""White space beyond ASCII in UTF-8, by its first byte: U+0085, U+00A0; U+2000 to U+200A, U+2028, U+2029, U+202F, U+205F; U+1680; U+3000."""
_SPACES = re.compile(b"  +")
_ASCII_SPACE = bytes.maketrans(b"\t\n\v\f\r\x1c\x1d\x1e\x1f", b" " * 9)


def plain(text: str) -> str:
    """The text as the table has it: Unicode NFC, without white space around."""
    return unicodedata.normalize("NFC", text).strip()


def text_digest(text: str) -> bytes:
    """What two documents share if they count as equal: case and the amount of white space make no difference.

    The first 16 bytes of SHA-256 of the text in NFC, casefolded, its words joined by single spaces.
    """
    return _digest_of(unicodedata.normalize("NFC", text))


def _digest_of(text: str) -> bytes:
    """`text_digest` of a text in NFC."""
    folded = text.casefold()
    data = folded.encode()
    if any(first in data and space.search(data) for first, space in _OTHER_SPACES.items()):
        return hashlib.sha256(" ".join(folded.split()).encode()).digest()[:16]
    data = data.translate(_ASCII_SPACE)  # the same, in half the time
    if b"  " in data:
        data = _SPACES.sub(b" ", data)
    return hashlib.sha256(data.strip(b" ")).digest()[:16]


def identity_digest(doc_id: str) -> bytes:
    """16 bytes for a doc_id; the first eight, as a big-endian fraction of 2^64, decide its split."""
    return hashlib.sha256(b"split\0" + doc_id.encode()).digest()[:16]


# ── pass 1 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(task: dict[str, Any]) -> dict[str, Any]:
    """Write the numbers of a task's documents, their words about it (language, detail), and say what was counted."""
    plan = _plan(task["plan"])
    mine = plan.tasks[task["number"]]
    numbers = Numbers(plan.scratch, plan.rows)
    notes: dict[str, list[Any]] = {"doc_id": [], "language": [], "detail": []}
    counted: dict[str, Counter[Any]] = {"lines": Counter(), "benchmarks": Counter()}
    place = mine.first
    for batch in _pieces(_batches(mine, ["doc_id", "source", "title", "url", "language", "text"])):
        rows = batch.to_pylist()
        _check_source(rows, mine)
        texts = [plain(row["text"]) for row in rows]
        found = _judge(plan, rows, texts, counted)
        _write_numbers(plan, numbers, place, rows, texts, found)
        notes["doc_id"] += [row["doc_id"] for row in rows]
        notes["language"] += found.languages
        notes["detail"] += found.details
        place += len(rows)
    pq.write_table(pa.table(notes, _NOTES_SCHEMA), notes_file(plan.scratch, mine.number), compression="zstd")
    return {name: {str(key): count for key, count in counts.items()} for name, counts in counted.items()}


_NOTES_SCHEMA = pa.schema([("doc_id", pa.string()), ("language", pa.string()), ("detail", pa.string())])


def notes_file(scratch: Path, number: int) -> Path:
    """What pass 1 has to say in words about a task's documents."""
    return scratch / f"notes-{number:06d}.parquet"


@dataclass
class _Found:
    """What pass 1 finds out about the documents of a batch."""

    reasons: list[str]
    details: list[str | None]
    languages: list[str | None]
    signatures: npt.NDArray[np.uint32] | None = None
    comparable: npt.NDArray[np.bool_] | None = None


def _judge(
    plan: Plan, rows: Sequence[dict[str, Any]], texts: Sequence[str], counted: dict[str, Counter[Any]]
) -> _Found:
    found = _Found([""] * len(rows), [None] * len(rows), [None] * len(rows))
    excluded = _exclusions(plan)
    for place, (row, text) in enumerate(zip(rows, texts, strict=True)):
        line = excluded.line_of(row["doc_id"], row["url"], row["title"])
        if line is not None:
            counted["lines"][line] += 1
            found.reasons[place], found.details[place] = "withdrawn", excluded.reasons[line]
        elif not text:
            found.reasons[place] = "empty"
        elif len(text) < plan.config.min_characters:
            found.reasons[place] = "too_short"
        else:
            detected = languages.detect(text)
            found.languages[place] = detected.language or None
            found.reasons[place], found.details[place] = _filtered(plan.config, text, row["language"], detected)
    wanted = _benchmarks(plan)
    if plan.band_rows or wanted:
        asked = [
            text if not reason or reason == "withdrawn" else ""
            for text, reason in zip(texts, found.reasons, strict=True)
        ]
        of_text, hashes = words(asked, alone=True)
        if plan.band_rows:
            found.signatures, found.comparable = duplicates.signatures(of_text, hashes, len(rows))
        if wanted:
            _decontaminate(found, words(asked), wanted, counted["benchmarks"])
    return found


def _filtered(
    config: DocumentsConfig, text: str, declared: str | None, detected: languages.Detected
) -> tuple[str, str | None]:
    """(reason, detail) of the filters; "" where none drops the document."""
    filters = config.filters
    if filters.boilerplate < 1 and (share := quality.boilerplate_share(text)) > filters.boilerplate:
        return "boilerplate", f"{share:.3f}"
    if filters.repetition < 1 and (share := quality.repetition_share(text)) > filters.repetition:
        return "repetition", f"{share:.3f}"
    code = languages.base_code(declared or "")
    if filters.language > 0 and code in languages.known_languages():
        share = detected.shares.get(code, 0.0)
        if share < filters.language:
            return "other_language", f"{share:.2f} {code}; {detected.language or 'uncertain'}"
    return "", None


def _decontaminate(
    found: _Found,
    of_texts: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]],
    wanted: dict[str, npt.NDArray[np.uint64]],
    counts: Counter[Any],
) -> None:
    for place, names in decontamination.touched(*of_texts, wanted).items():
        if not found.reasons[place]:
            found.reasons[place], found.details[place] = "contaminated", ", ".join(names)
            counts.update(names)


def _write_numbers(
    plan: Plan, numbers: Numbers, place: int, rows: Sequence[dict[str, Any]], texts: Sequence[str], found: _Found
) -> None:
    reasons = np.array([REASONS.index(reason) for reason in found.reasons], np.uint8)
    if found.comparable is not None and found.signatures is not None:
        numbers.write_at(numbers.signatures, place * duplicates.SIGNATURE_BYTES, found.signatures.astype("<u2"))
        for number, band in enumerate(duplicates.bands(found.signatures, plan.band_rows)):
            numbers.write_at(plan.scratch / "bands", 4 * (plan.rows * number + place), band)
        reasons[~found.comparable & (reasons == 0)] = NO_WORDS
    numbers.write("reason", place, reasons)
    numbers.write("characters", place, np.array([len(text) for text in texts]))
    digests = b"".join(map(_digest_of, texts))  # they are plain
    numbers.write("digest", place, np.frombuffer(digests, ">u8").reshape(-1, 2))
    identities = b"".join(identity_digest(row["doc_id"]) for row in rows)
    numbers.write("identity", place, np.frombuffer(identities, ">u8").reshape(-1, 2))


# ── pass 2 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def write(task: dict[str, Any]) -> dict[str, Any]:
    """Write the documents of a task that stay into a folder of their own, and those that do not into a list; returns the counts
    and what the statistics show of the documents at the places `task["show"]`."""
    plan = _plan(task["plan"])
    mine = plan.tasks[task["number"]]
    writer = _Writer(plan, mine, frozenset(task["show"]))
    folder = part_folder(plan.scratch, mine.number)
    folder.mkdir()
    writer.counts["documents"] = write_parts(writer.documents(), DOCUMENTS_SCHEMA, folder)
    pq.write_table(
        pa.Table.from_pylist(writer.dropped, _DROPPED_SCHEMA),
        dropped_file(plan.scratch, mine.number),
        compression="zstd",
    )
    return {
        **writer.counts,
        "languages": [[*pair, count] for pair, count in writer.languages.items()],
        "shown": writer.shown,
    }


_DROPPED_SCHEMA = pa.schema(
    [pa.field("kept", pa.int64()) if field.name == "kept" else field for field in DROPPED_SCHEMA]
)


def part_folder(scratch: Path, number: int) -> Path:
    """Where pass 2 writes a task's part of the table."""
    return scratch / f"part-{number:06d}"


def dropped_file(scratch: Path, number: int) -> Path:
    """Where pass 2 lists a task's dropped documents; `kept` is a place, -1 for none."""
    return scratch / f"dropped-{number:06d}.parquet"


class _Writer:
    """Iterates the documents of a task that stay, and counts on the way."""

    def __init__(self, plan: Plan, task: Task, show: frozenset[int]) -> None:
        self.plan = plan
        self.task = task
        self.counts = Counter(sentences=0, one_sentence_documents=0)
        self.languages: Counter[tuple[str, str]] = Counter()
        self.shown: list[dict[str, Any]] = []
        self.dropped: list[dict[str, Any]] = []
        self._show = show

    def documents(self) -> Iterator[dict[str, Any]]:
        task, scratch = self.task, self.plan.scratch
        numbers = Numbers(scratch, self.plan.rows)
        reasons, kept, identities, similarity = (
            numbers.read(name, task.first, task.rows) for name in ("reason", "kept", "identity", "similarity")
        )
        notes = pq.read_table(notes_file(scratch, task.number), columns=["language", "detail"]).to_pylist()
        held_out = held_out_of(identities[:, 0], self.plan.config.held_out)
        number = 0
        for batch in _batches(task, TEXT_SCHEMA.names):
            for row in batch.to_pylist():
                reason = REASONS[reasons[number]]
                if reason:
                    self._drop(row, reason, int(kept[number]), float(similarity[number]), notes[number]["detail"])
                else:
                    split = "held_out" if held_out[number] else "train"
                    yield self._document(task.first + number, row, split, notes[number]["language"])
                number += 1

    def _drop(self, row: dict[str, Any], reason: str, kept: int, similarity: float, detail: str | None) -> None:
        if reason == "near_duplicate":
            detail = f"similarity {similarity:.2f}"
        elif reason == "withdrawn" and kept >= 0:
            detail = "copy of a withdrawn document" + (f", similarity {similarity:.2f}" if similarity < 1 else "")
        self.dropped.append(
            {
                **{name: row[name] for name in ("doc_id", "source", "title")},
                "reason": reason,
                "kept": kept if kept >= 0 else None,
                "detail": detail,
            }
        )

    def _document(self, place: int, row: dict[str, Any], split: str, detected: str | None) -> dict[str, Any]:
        config, source = self.plan.config, self.task.source
        text = plain(row["text"])
        language = row["language"] or detected
        lines = row["doc_id"] in _sentence_lines(self.task.file.parent)
        ends = sentence_ends(text, language or "en", _abbreviations(self.plan, language or "en"), lines)
        self.counts["sentences"] += len(ends)
        self.counts["one_sentence_documents"] += len(ends) == 1
        self.languages[row["language"] or "", detected or ""] += 1
        if place in self._show:
            self.shown.append(
                {
                    "place": place,
                    "doc_id": row["doc_id"],
                    "source": source,
                    "title": row["title"] or "",
                    "characters": len(text),
                    "begins": " ".join(text[:BEGINNING].split()),
                }
            )
        repeat = config.weights.get(source, 1.0) if split == "train" else 1.0
        return {**row, "text": text, "language": language, "split": split, "sentence_ends": ends, "repeat": repeat}


def held_out_of(fractions: npt.NDArray[np.uint64], held_out: float) -> npt.NDArray[np.bool_]:
    """Which documents are held out, from the first eight bytes of their `identity_digest`.

    Compared as fractions of 2^64 in double precision, as Python divides: correctly rounded.
    """
    return fractions.astype(np.float64) / 2.0**64 < held_out


# ── what both need ───────────────────────────────────────────────────────────────────────────────────────────────────


def _batches(task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with readable(task.file), pq.ParquetFile(task.file) as file:
        for group in range(task.first_group, task.last_group + 1):
            yield from file.read_row_group(group, columns=list(columns), use_threads=False).to_batches()


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows with about TOGETHER_BYTES of text each: a row group of text makes several times as much of numbers."""
    for batch in batches:
        before = np.cumsum(pc.binary_length(batch.column("text")).to_numpy()) // TOGETHER_BYTES
        starts = np.flatnonzero(np.diff(before, prepend=-1))
        yield from (batch.slice(start, stop - start) for start, stop in pairwise([*starts.tolist(), batch.num_rows]))


def _check_source(rows: Sequence[dict[str, Any]], task: Task) -> None:
    for row in rows:
        if row["source"] != task.source:
            raise DataError(
                f"{task.file.parent}: {row['doc_id']} is of source {row['source']!r}, not {task.source!r}",
                f"Materialize {task.source}_text again.",
            )


@cache
def _plan(path: str) -> Plan:
    return Plan.model_validate_json(Path(path).read_bytes())


def _exclusions(plan: Plan) -> Exclusions:
    return _read_exclusions(Path(plan.config.exclude.path)) if plan.config.exclude else NOTHING


def benchmark_file(scratch: Path, name: str) -> Path:
    """The sorted runs of a benchmark."""
    return scratch / f"benchmark-{name}.npy"


@cache
def _sentence_lines(folder: Path) -> frozenset[str]:
    return read_sentence_lines(folder)


def _benchmarks(plan: Plan) -> dict[str, npt.NDArray[np.uint64]]:
    return {name: _read_benchmark(benchmark_file(plan.scratch, name)) for name in plan.config.decontaminate}


def _abbreviations(plan: Plan, language: str) -> frozenset[str]:
    named = plan.config.abbreviations.get(language) or plan.config.abbreviations.get(languages.base_code(language))
    return read_abbreviations(Path(named.path)) if named else frozenset()


@cache
def read_abbreviations(path: Path) -> frozenset[str]:
    """The lines of a file of abbreviations; DataError, with the line, where it can't be read or is not UTF-8."""
    lines = decontamination.numbered_lines(path, "Correct `abbreviations` in the recipe.")
    return frozenset(line for _, line in lines if line)


_read_exclusions = cache(read_exclusions)


@cache
def _read_benchmark(path: Path) -> npt.NDArray[np.uint64]:
    found: npt.NDArray[np.uint64] = np.load(path)
    return found


def forget() -> None:
    """Forget the files that were read: they may be other ones at the next run in this process."""
    for each in (_plan, _sentence_lines, read_abbreviations, _read_exclusions, _read_benchmark):
        each.cache_clear()
