"""`corpus.decontaminate`: which documents share a run of 13 words with a benchmark (Brown et al. 2020, appendix C).

Languages that write no spaces can't be measured so: their words are as long as their clauses.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config import Benchmark
from pipeline.errors import DataError
from pipeline.formats.foreign_json import parsed
from pipeline.formats.tables import read_table
from pipeline.selection.ngrams import NO_RUN, Hashes, runs, words
from pipeline.sources import open_files

RUN_WORDS = 13
TABLES = (".tsv", ".csv", ".tab")
LINES = (".txt", ".jsonl")
SUFFIXES = (*TABLES, *LINES, ".parquet")
_TOGETHER = 10_000
_LOOK = "Look at the file and its permissions, then run again."


@dataclass(frozen=True)
class Runs:
    """The runs of words of one benchmark."""

    hashes: Hashes
    """sorted, each once"""
    texts: int
    measurable: int
    """texts of at least RUN_WORDS words"""


def read_benchmark(name: str, benchmark: Benchmark, scratch: Path) -> Runs:
    """The runs of a benchmark's texts; `scratch`: a folder to unpack it in.

    Raises:
        SourceError: files that are missing or can't be downloaded.
        DataError: no file that can be read, a column that is missing, a broken record, or no text that can be measured.
    """
    found = [np.zeros(0, np.uint64)]
    count = measurable = 0
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=scratch) as unpacked:
        folder = open_files(benchmark.from_, Path(unpacked))
        files = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES and path.is_file()]
        if not files:
            raise DataError(
                f"benchmark {name}: {folder} holds no {', '.join(SUFFIXES)}", "Correct `decontaminate` in the recipe."
            )
        for path in files:
            for texts in _together(_texts(path, benchmark.columns)):
                rows, numbers = words(texts)
                hashes = runs(rows, numbers, RUN_WORDS)
                count += len(texts)
                measurable += len(np.unique(rows[hashes != NO_RUN]))
                found.append(np.unique(hashes[hashes != NO_RUN]))
    if not measurable:
        raise DataError(
            f"benchmark {name}: none of its {count} texts has {RUN_WORDS} words",
            "Correct `decontaminate` in the recipe: which files, which columns.",
        )
    return Runs(np.unique(np.concatenate(found)), count, measurable)


def touched(rows: npt.NDArray[np.int64], numbers: Hashes, benchmarks: Mapping[str, Hashes]) -> dict[int, list[str]]:
    """Row → the benchmarks that it shares a run with; for the words of texts (`ngrams.words`)."""
    hashes = runs(rows, numbers, RUN_WORDS)
    found: dict[int, list[str]] = {}
    for name, wanted in sorted(benchmarks.items()):
        places = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
        for row in np.unique(rows[wanted[places] == hashes]).tolist():
            found.setdefault(row, []).append(name)
    return found


def _together(texts: Iterator[str]) -> Iterator[list[str]]:
    held: list[str] = []
    for text in texts:
        held.append(text)
        if len(held) == _TOGETHER:
            yield held
            held = []
    if held:
        yield held


def _texts(path: Path, columns: Sequence[str]) -> Iterator[str]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from _of_parquet(path, columns)
    elif not columns or suffix == ".txt":
        yield from (line for _, line in numbered_lines(path, _LOOK) if line)
    elif suffix == ".jsonl":
        for number, line in numbered_lines(path, _LOOK):
            yield from _of_record(path, number, line, columns)
    else:
        table = read_table(path)
        table.require(columns)
        for _, row in table.rows:
            yield from (row[column] for column in columns)


def numbered_lines(path: Path, todo: str) -> Iterator[tuple[int, str]]:
    """(number, text without white space around) of every line; DataError where the file can't be read, which `todo` is about, and, with
    the line, where it is not UTF-8."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError:
                    raise DataError(f"{path}, line {number}: not UTF-8", "Convert the file to UTF-8.") from None
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}", todo) from error


def _of_record(path: Path, number: int, line: str, columns: Sequence[str]) -> Iterator[str]:
    if not line:
        return
    try:
        record: Any = parsed(line)
    except ValueError as error:
        raise DataError(f"{path}, line {number}: no JSON ({error})", "Every line must be one JSON object.") from None
    for column in columns:
        if not isinstance(record, dict) or column not in record:
            raise DataError(f"{path}, line {number}: no key {column!r}", "Correct `columns` of the benchmark.")
        values = record[column] if isinstance(record[column], list) else [record[column]]
        yield from (value for value in values if isinstance(value, str))


def _of_parquet(path: Path, columns: Sequence[str]) -> Iterator[str]:
    try:
        with pq.ParquetFile(path) as file:
            missing = sorted(set(columns) - set(file.schema_arrow.names))
            if missing or not columns:
                raise DataError(
                    f"{path}: {f'no column {missing[0]!r}' if missing else 'no columns are named'}; it has "
                    f"{', '.join(file.schema_arrow.names)}",
                    "Name the columns that hold text under `columns` of the benchmark.",
                )
            for batch in file.iter_batches(columns=list(columns)):
                for column in columns:
                    yield from (value for value in batch.column(column).to_pylist() if isinstance(value, str))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read: {error}", _LOOK) from error
