"""When a training saw which documents: which rows of its shards are made of them, and the steps that took these rows.

The order of samples is a pure function of (seed, epoch, position), so nothing has to be written down while training: it is
asked backwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from model.feeding.order import mix, samples_of
from model.training import guard
from model.training.guard import Batches
from pipeline.sharding.shard_schema import shard_files

DOCUMENTS = "documents"


@dataclass(frozen=True)
class Row:
    """A row of the shards that is made of a document."""

    file: str
    row: int
    """in the file, from 0"""
    steps: tuple[int, ...]
    """of the phase that took it, from 0"""


def rows_with(shards: Path, documents: Sequence[str]) -> tuple[dict[str, list[int]], list[tuple[str, int]]]:
    """(document → numbers of the rows that are made of it, counted over all files; (file, first row) of each file).

    shards: `train` of the stage's output. A row group is read at a time.
    """
    wanted = pa.array(documents)
    found: dict[str, list[int]] = {document: [] for document in documents}
    files, first = [], 0
    for path in shard_files(shards):
        files.append((path.name, first))
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                lists = file.read_row_group(group, columns=[DOCUMENTS]).column(0).combine_chunks()
                names, parents = pc.list_flatten(lists), pc.list_parent_indices(lists)
                here = pc.is_in(names, value_set=wanted)
                for name, parent in zip(names.filter(here).to_pylist(), parents.filter(here).to_pylist(), strict=True):
                    if not found[name] or found[name][-1] != first + parent:  # both sentences of a pair may be of it
                        found[name].append(first + parent)
                first += len(lists)
    return found, files


def steps_of(
    rows: Sequence[int],
    groups: np.ndarray,
    seed: int,
    batch_size: int,
    steps: int,
    passed_over: Sequence[Batches],
) -> list[tuple[int, ...]]:
    """The steps 0 … `steps` − 1 that took each row, of a training over row groups of so many rows each."""
    total, numbers = int(groups.sum()), np.asarray(rows, np.int64)
    last_batch = guard.batch_number(steps - 1, passed_over) if steps else -1
    epochs = -(-(last_batch + 1) * batch_size // total) if total else 0
    taken: list[list[int]] = [[] for _ in rows]
    for epoch in range(epochs):
        for place, sample in enumerate(samples_of(numbers, groups, seed, epoch).tolist()):
            step = guard.step_of(sample // batch_size, passed_over)
            if step is not None and step < steps:
                taken[place].append(step)
    return [tuple(each) for each in taken]


def seen(
    shards: Path, config: Mapping[str, Any], steps: int, passed_over: Sequence[Batches], documents: Sequence[str]
) -> dict[str, list[Row]]:
    """Document → rows of it in the training part of `shards` (the stage's output), with the steps of one phase that took them.

    config: of the phase, as its record has it. steps: that it took. passed_over: see model/training/guard.py, from its metrics.
    """
    found, files = rows_with(shards / "train", documents)
    groups = np.array([rows for path in shard_files(shards / "train") for rows in _group_sizes(path)], np.int64)
    seed = mix(int(config["seed"]), int(config["first_step"]))
    starts = [first for _, first in files]
    answer = {}
    for document, rows in found.items():
        taken = steps_of(rows, groups, seed, int(config["batch_size"]), steps, passed_over)
        places = np.searchsorted(starts, rows, side="right") - 1
        answer[document] = [
            Row(files[place][0], row - files[place][1], of_row)
            for place, row, of_row in zip(places.tolist(), rows, taken, strict=True)
        ]
    return answer


def _group_sizes(path: Path) -> list[int]:
    metadata = pq.read_metadata(path)
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
