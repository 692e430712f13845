"""Rows of a folder of shards by their number, in bounded memory: a row group is decoded when one of its rows is wanted."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import DataError
from pipeline.shard_schema import Array, Shards, decoded, shard_files

KEPT_GROUPS = 3
"""Decoded row groups that stay in memory: a batch may reach from one into the next."""


class ShardReader:
    """All rows of a folder (`train` or `held_out` of the stage's output), numbered in the order of its files.

    `checked` is called once with every row group that is decoded, its rows and a name for messages.

    Raises:
        DataError: no file there, a file that is no Parquet, or files with other columns than a shard's.
    """

    def __init__(self, folder: Path, checked: Callable[[Shards, str], None] | None = None) -> None:
        self.folder = folder
        self.groups: list[tuple[Path, int]] = []
        sizes: list[int] = []
        names: list[list[str]] = []
        for path in shard_files(folder):
            footer = _footer(path)
            names.append(footer.schema.to_arrow_schema().names)
            if names[-1] != names[0]:
                raise DataError(
                    f"{path} has columns {names[-1]}, others {names[0]}", "Run `bert verify` to restore it."
                )
            for group in range(footer.num_row_groups):
                self.groups.append((path, group))
                sizes.append(footer.row_group(group).num_rows)
        self.columns = tuple(names[0])
        self.sizes = np.array(sizes, np.int64)
        """[row groups] rows of each"""
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self._checked = checked
        self._kept: OrderedDict[int, Shards] = OrderedDict()

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def stores_masks(self) -> bool:
        """Whether the rows are masked already."""
        return "masked_lm_ids" in self.columns

    def take(self, rows: npt.NDArray[np.int64]) -> Shards:
        """These rows, in this order."""
        groups = np.searchsorted(self.starts, rows, side="right") - 1
        found = np.unique(groups)
        if len(found) == 1:
            return self._group(int(found[0])).take(rows - self.starts[found[0]])
        parts = [self._group(int(group)).take(rows[groups == group] - self.starts[group]) for group in found]
        order = np.argsort(np.argsort(groups, kind="stable"), kind="stable")
        return joined(parts).take(order)

    def column(self, name: str) -> Array:
        """All values of a column of numbers or of lists of numbers, one after the other. DataError if it can't be read."""
        values = []
        for path in dict.fromkeys(path for path, _ in self.groups):
            try:
                column = pq.read_table(path, columns=[name])[name]
            except (pa.ArrowInvalid, OSError) as error:
                raise _unreadable(path, error) from None
            values.append((column.combine_chunks().flatten() if pa.types.is_list(column.type) else column).to_numpy())
        return np.concatenate(values)

    def _group(self, number: int) -> Shards:
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        path, group = self.groups[number]
        try:
            with pq.ParquetFile(path) as file:
                table = file.read_row_group(group, columns=[name for name in self.columns if name != "documents"])
        except (pa.ArrowInvalid, OSError) as error:
            raise _unreadable(path, error) from None
        rows = decoded(table, path)
        if self._checked:
            self._checked(rows, f"{self.folder.name}/{path.name}, row group {group}")
        self._kept[number] = rows
        if len(self._kept) > KEPT_GROUPS:
            self._kept.popitem(last=False)
        return rows


def joined(parts: list[Shards]) -> Shards:
    """The rows of all parts, one after the other."""

    def values(name: str) -> Array:
        return np.concatenate([getattr(part, name) for part in parts])

    def offsets(name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(getattr(part, name)) for part in parts]))])

    pair = parts[0].label is not None
    return replace(
        parts[0],
        input_ids=values("input_ids"),
        input_offsets=offsets("input_offsets"),
        masked_positions=values("masked_positions"),
        masked_ids=values("masked_ids"),
        masked_offsets=offsets("masked_offsets"),
        token_type_start=values("token_type_start") if pair else None,
        label=values("label") if pair else None,
    )


def _footer(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} can't be read as Parquet: {error}", "Run `bert verify` to restore it.")
