"""How often each word stands in the documents, counted by worker processes in bounded memory.

A task is a run of row groups. It counts what stands between spaces and punctuation as columns, makes BERT's words of the distinct
stretches alone, and writes its counts to a file, parted by a hash of the word. Then the parts of all files are added up, one after the
other. So a worker holds the words of one task or of one part, and only the result holds them all.
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline import progress
from pipeline.errors import DataError
from pipeline.schemas import group_runs, part_files, readable
from pipeline.system import workers
from pipeline.tokenizer import MAX_WORD_CHARACTERS, bert_words

SPLITS = ("train", "held_out")
TASK_BYTES = 64 << 20
"""Of text, for one task."""
WORK_PER_WORKER = 16 << 20
"""Bytes of text below which one more worker process costs more than it saves."""
PARTS = 64
FILES_PER_WORKER = 8
"""Files to add up below which one more worker process costs more than it saves."""
WORDS = pa.schema([pa.field("word", pa.large_string(), nullable=False), pa.field("count", pa.int64(), nullable=False)])


@dataclass(frozen=True)
class Words:
    """The words of a split and how often each was counted, each once, in an order that says nothing."""

    words: pa.LargeStringArray
    counts: npt.NDArray[np.int64]
    long: int = 0
    """how many words have more than MAX_WORD_CHARACTERS; they are [UNK], and not kept one by one"""
    long_characters: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """How many words were counted."""
        return int(self.counts.sum()) + self.long


def count_words(
    folder: Path, scratch: Path, *, lowercase: bool, strip_accents: bool, worker_count: int
) -> dict[str, Words]:
    """The words of the documents in `folder` by split, as BERT's normaliser and pre-tokeniser make them.

    Raises:
        DataError: a file that can't be read, or a document of a split that is none.
        BertError: a worker process died.
    """
    tasks = _tasks(folder, scratch, {"lowercase": lowercase, "strip_accents": strip_accents})
    rows = sum(task["rows"] for task in tasks)
    long: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    done = 0
    counted = workers.ordered(
        "pipeline.words.word_counts:count", tasks, min(worker_count, 1 + text_bytes(folder) // WORK_PER_WORKER)
    )
    for task, found in zip(tasks, counted, strict=True):
        for split in SPLITS:
            long[split].update(found[split])
        done += task["rows"]
        progress.report(done, rows, "documents")
    return {split: _added_up(scratch, split, len(tasks), long[split], worker_count) for split in SPLITS}


def text_bytes(folder: Path) -> int:
    """Bytes of the documents before compression, from the footers of their files."""
    return sum(size for path in part_files(folder) for _, _, size in group_runs(path, TASK_BYTES))


def _tasks(folder: Path, scratch: Path, options: Mapping[str, bool]) -> list[dict[str, Any]]:
    """The row groups of all parts, cut into tasks."""
    tasks: list[dict[str, Any]] = []
    for path in part_files(folder):
        for groups, rows, _ in group_runs(path, TASK_BYTES):
            told = {"file": str(path.resolve()), "groups": list(groups), "rows": rows, "number": len(tasks)}
            tasks.append({**told, "scratch": str(scratch), **options})
    return tasks


def _counts_file(scratch: Path, split: str, number: int) -> Path:
    return scratch / f"words-{split}-{number:06d}.arrow"


def _sums_file(scratch: Path, split: str, part: int) -> Path:
    return scratch / f"sums-{split}-{part:02d}.arrow"


# ── a task ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def count(task: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Count some row groups into files; returns, by split, what `_long` says of the words that are too long."""
    tables: dict[str, list[pa.Table]] = {split: [] for split in SPLITS}
    long: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    make = _Maker(lowercase=task["lowercase"], strip_accents=task["strip_accents"])
    for split, texts in _texts(Path(task["file"]), task["groups"]):
        table, too_long = make.words(texts)
        tables[split] = [_sum([*tables[split], table])]
        long[split].update(too_long)
    for split in SPLITS:
        _write_parts(_sum(tables[split]), _counts_file(Path(task["scratch"]), split, task["number"]))
    return {split: dict(counts) for split, counts in long.items()}


def _texts(path: Path, groups: list[int]) -> Iterator[tuple[str, pa.LargeStringArray]]:
    """(split, texts), a row group at a time."""
    with readable(path), pq.ParquetFile(path) as file:
        missing = sorted({"split", "text"} - set(file.schema_arrow.names))
        if missing:
            raise DataError(
                f"{path} has no column {', '.join(missing)}; it has {file.schema_arrow.names}",
                "Run documents again: bert run.",
            )
        for group in groups:
            table = file.read_row_group(group, columns=["split", "text"], use_threads=False)
            texts = table["text"].cast(pa.large_string())
            left = table.num_rows
            for split in SPLITS:
                chosen = texts.filter(pc.equal(table["split"], split)).combine_chunks()
                left -= len(chosen)
                if len(chosen):
                    yield split, chosen
            if left:
                raise DataError(f"{path}: {left} documents of row group {group} are of no split", "Make it again.")


_LETTERS = "[0-9A-Za-z]+"
_PUNCTUATION = bytes(code for code in range(33, 127) if not chr(code).isalnum())
"""Of ASCII: each is a word of its own, and ends the words beside it."""
_NO_PUNCTUATION = bytes(set(range(256)) - set(_PUNCTUATION))
_SPACES = b"\t\n\r "
"""Only characters that the normaliser too makes a space: others (U+001C, U+0085) it deletes, which joins words."""


class _Maker:
    """Texts → counted words."""

    def __init__(self, *, lowercase: bool, strip_accents: bool) -> None:
        self._words = bert_words(lowercase=lowercase, strip_accents=strip_accents)
        table = bytearray(range(256))
        for code in _SPACES + _PUNCTUATION:
            table[code] = ord(" ")
        if lowercase:
            for letter in range(ord("A"), ord("Z") + 1):
                table[letter] += 32
        self._table = bytes(table)

    def words(self, texts: pa.LargeStringArray) -> tuple[pa.Table, Counter[str]]:
        """(counted words, each once, what `_long` says of those that are too long)."""
        stretches, marks = self._stretches(texts)
        plain = pc.match_substring_regex(stretches["word"], f"^{_LETTERS}$")
        others = stretches.filter(pc.invert(plain))
        made = self._words(dict(zip(others["word"].to_pylist(), others["count"].to_pylist(), strict=True)))
        table = _sum([stretches.filter(plain), _table(made), _table(marks)])
        fits = pc.less_equal(pc.utf8_length(table["word"]), MAX_WORD_CHARACTERS)
        return table.filter(fits), _long(table.filter(pc.invert(fits)))

    def _stretches(self, texts: pa.LargeStringArray) -> tuple[pa.Table, dict[str, int]]:
        """(what stands between spaces and ASCII punctuation, how often each such mark stands).

        The characters of ASCII are one byte each in UTF-8, and no byte of another: they can be looked at as bytes.
        """
        _, offsets, data = texts.buffers()
        starts = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        block = memoryview(data)[starts[0] : starts[-1]].tobytes()
        marks = Counter(block.translate(None, _NO_PUNCTUATION).decode("ascii"))
        buffers = pa.py_buffer(starts - starts[0]), pa.py_buffer(block.translate(self._table))
        spaced = pa.LargeStringArray.from_buffers(len(texts), *buffers)
        counted = pc.split_pattern(spaced, " ").flatten().value_counts()
        table = pa.Table.from_arrays([counted.field("values"), counted.field("counts")], schema=WORDS)
        return table.filter(pc.not_equal(table["word"], "")), marks


def _table(counts: Mapping[str, int]) -> pa.Table:
    return pa.table([list(counts), list(counts.values())], schema=WORDS)


def _long(table: pa.Table) -> Counter[str]:
    """Character → how often it stands in words that are too long; under "" how many words these are."""
    found: Counter[str] = Counter()
    for word, number in zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True):
        found[""] += number
        for character, times in Counter(word).items():
            found[character] += times * number
    return found


def _sum(tables: list[pa.Table]) -> pa.Table:
    """The counts of all tables, each word once."""
    table = pa.concat_tables([WORDS.empty_table(), *tables])
    sums = table.group_by("word", use_threads=False).aggregate([("count", "sum")])
    return pa.Table.from_arrays([sums["word"], sums["count_sum"]], schema=WORDS)


# ── adding up ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_parts(table: pa.Table, path: Path) -> None:
    """Write the words as PARTS record batches; the part follows from the word alone."""
    parts = np.array([zlib.crc32(word.encode()) % PARTS for word in table["word"].to_pylist()], np.int64)
    order = np.argsort(parts, kind="stable")
    ends = np.searchsorted(parts[order], np.arange(PARTS + 1))
    ordered = table.take(pa.array(order)).combine_chunks()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, WORDS) as writer:
        for start, end in pairwise(ends.tolist()):
            columns = [column.chunk(0)[start:end] if column.num_chunks else [] for column in ordered.columns]
            writer.write_batch(pa.record_batch(columns, schema=WORDS))


def add_up(task: dict[str, Any]) -> None:
    """Add up one part of the files of all tasks."""
    scratch, split, part = Path(task["scratch"]), task["split"], task["part"]
    batches = []
    for number in range(task["files"]):
        with pa.OSFile(str(_counts_file(scratch, split, number))) as file, pa.ipc.open_file(file) as reader:
            batches.append(reader.get_batch(part))
    with pa.OSFile(str(_sums_file(scratch, split, part)), "wb") as file, pa.ipc.new_file(file, WORDS) as writer:
        writer.write_table(_sum([pa.Table.from_batches(batches, WORDS)]))


def _added_up(scratch: Path, split: str, files: int, long: Counter[str], worker_count: int) -> Words:
    tasks = [{"scratch": str(scratch), "split": split, "part": part, "files": files} for part in range(PARTS)]
    done = workers.ordered("pipeline.words.word_counts:add_up", tasks, min(worker_count, files // FILES_PER_WORKER))
    for number, _ in enumerate(done, 1):
        progress.report(number, PARTS, f"parts of the words ({split})")
    tables = []
    for part in range(PARTS):
        with pa.OSFile(str(_sums_file(scratch, split, part))) as file, pa.ipc.open_file(file) as reader:
            tables.append(reader.read_all())
    table = pa.concat_tables(tables).combine_chunks()
    counts = table["count"].to_numpy()
    characters = Counter({character: number for character, number in long.items() if character})
    words = table["word"].combine_chunks()
    return Words(words, counts, long[""], characters)
