"""Rows of articles sorted by page id in bounded memory: workers write ascending runs, one reader merges them.

A dump stands almost in order of page ids, so a run is usually as long as a part of the dump and runs seldom overlap; but
any order is put right, and of rows with the same id the first in the dump's order stays.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config import Frozen
from pipeline.schemas import GROUP_BYTES, GROUP_ROWS, TEXT_SCHEMA
from pipeline.system.places import opened, replaced

RUN_SCHEMA = pa.schema(
    [
        *TEXT_SCHEMA,
        pa.field("page_id", pa.int64(), nullable=False),
        pa.field("wikitext_characters", pa.int64(), nullable=False),
    ]
)


class Run(Frozen):
    """A file of rows with ascending page ids."""

    file: str
    rows: int
    first: int
    last: int
    """page ids"""


class RunWriter:
    """Gathers rows and writes them to `folder/name-0.arrow`, `name-1.arrow`, …, each in ascending order.

    `duplicates`: rows that were left out because another with their id came shortly before.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.runs: list[Run] = []
        self.duplicates = 0
        self._folder = folder
        self._name = name
        self._rows: list[Mapping[str, Any]] = []
        self._size = 0
        self._open = ExitStack()
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        """Take a row of RUN_SCHEMA."""
        self._rows.append(row)
        self._size += 4 * len(row["text"])
        if len(self._rows) >= GROUP_ROWS or self._size >= 2 * GROUP_BYTES:
            self._flush()

    def close(self) -> list[Run]:
        """Write what is left; return all runs, in the order of their first rows in the dump."""
        self._flush()
        self._open.close()
        return self.runs

    def _flush(self) -> None:
        first_of: dict[int, Mapping[str, Any]] = {}
        for row in self._rows:
            first_of.setdefault(row["page_id"], row)
        self.duplicates += len(self._rows) - len(first_of)
        self._rows, self._size = [], 0
        if not first_of:
            return
        ids = sorted(first_of)
        batch = pa.RecordBatch.from_pylist([first_of[page_id] for page_id in ids], schema=RUN_SCHEMA)
        if self._writer is None or ids[0] <= self.runs[-1].last:
            self._open.close()
            file = f"{self._name}-{len(self.runs)}.arrow"
            written = self._open.enter_context(replaced(self._folder / file))
            sink = self._open.enter_context(pa.OSFile(str(written), "wb"))
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = self._open.enter_context(pa.ipc.new_file(sink, RUN_SCHEMA, options=options))
            self.runs.append(Run(file=file, rows=0, first=ids[0], last=ids[-1]))
        self._writer.write_batch(batch)
        run = self.runs[-1]
        self.runs[-1] = run.model_copy(update={"rows": run.rows + len(ids), "last": ids[-1]})


class Merge:
    """Iterates the rows of runs in ascending order of page id, once each, as record batches.

    The batches have bounds (`GROUP_ROWS`, `GROUP_BYTES` of text) that follow from the rows alone, not from the runs. Of rows
    with the same id that of the run that comes first in `runs` stays; `duplicates` counts the others.
    """

    def __init__(self, folder: Path, runs: Sequence[Run]) -> None:
        self.duplicates = 0
        self._folder = folder
        self._runs = runs

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for piece in self._slices():
            left = piece
            while left.num_rows:
                sizes = np.cumsum(pc.fill_null(pc.binary_length(left.column("text")), 0).to_numpy())
                fitting = min(int(np.searchsorted(sizes, GROUP_BYTES - size, side="right")), GROUP_ROWS - rows)
                if fitting == 0 and rows == 0:
                    fitting = 1
                if fitting:
                    held.append(left.slice(0, fitting))
                    rows += fitting
                    size += int(sizes[fitting - 1])
                if fitting < left.num_rows or rows == GROUP_ROWS:
                    yield _one(held)
                    held, rows, size = [], 0, 0
                left = left.slice(fitting)
        if held:
            yield _one(held)

    def _slices(self) -> Iterator[pa.RecordBatch]:
        """Pieces of runs that follow each other in ascending order."""
        waiting = sorted(range(len(self._runs)), key=lambda n: (self._runs[n].first, n), reverse=True)
        open_: list[tuple[int, int, pa.RecordBatch, Iterator[pa.RecordBatch]]] = []  # next id, run, rest of a batch
        last = -1

        def push(number: int, batches: Iterator[pa.RecordBatch], batch: pa.RecordBatch | None = None) -> None:
            batch = batch if batch is not None and batch.num_rows else next(batches, None)
            if batch is not None:
                heapq.heappush(open_, (batch.column("page_id")[0].as_py(), number, batch, batches))

        while waiting or open_:
            while waiting and (not open_ or self._runs[waiting[-1]].first <= open_[0][0]):
                number = waiting.pop()
                push(number, _batches(self._folder / self._runs[number].file))
            page_id, number, batch, batches = heapq.heappop(open_)
            if page_id == last:
                self.duplicates += 1
                push(number, batches, batch.slice(1))
                continue
            others = [self._runs[waiting[-1]].first] if waiting else []
            others += [open_[0][0]] if open_ else []
            ids = batch.column("page_id").to_numpy()
            count = max(int(np.searchsorted(ids, min(others))), 1) if others else len(ids)
            last = int(ids[count - 1])
            yield batch.slice(0, count)
            push(number, batches, batch.slice(count))


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with opened(path) as source, pa.ipc.open_file(source) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
