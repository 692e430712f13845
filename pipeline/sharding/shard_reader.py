"""Rows of a folder of shards by their number, in bounded memory: a row group is decoded when one of its rows is wanted."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import DataError
from pipeline.sharding.shard_schema import Array, Shards, decoded, flat, shard_files

KEPT_ROWS = 3 * 16_384
"""Rows of decoded row groups that stay in memory: a batch, or a window of batches, may reach from one into the next."""
KEPT_LENGTHS = 64
"""Row groups whose lengths stay in memory, four bytes a row."""
LISTS = ("input_ids", "masked_lm_positions", "masked_lm_ids")
RESTORE = "Run `bert verify` to restore it."


class ShardReader:
    """All rows of a folder (`train` or `held_out` of the stage's output), numbered in the order of its files.

    `checked` is called once with every row group that is decoded, its rows and a name for messages. Of the columns only
    those a model reads are decoded: all but `documents`. One thread at a time may read.

    Raises:
        DataError: no file there, a file that is no Parquet, or files with other columns than a shard's.
    """

    def __init__(self, folder: Path, checked: Callable[[Shards, str], None] | None = None) -> None:
        self.folder = folder
        self.groups: list[tuple[Path, int]] = []
        sizes: list[int] = []
        names: list[list[str]] = []
        for path in shard_files(folder):
            found, rows = _footer(path)
            names.append(found)
            if names[-1] != names[0]:
                raise DataError(f"{path} has columns {names[-1]}, others {names[0]}", RESTORE)
            self.groups += [(path, group) for group in range(len(rows))]
            sizes += rows
        self.columns = tuple(names[0])
        self.sizes = np.array(sizes, np.int64)
        """[row groups] rows of each"""
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self._checked = checked
        self._kept: OrderedDict[int, Shards] = OrderedDict()
        self._lengths: OrderedDict[int, npt.NDArray[np.int32]] = OrderedDict()

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def stores_masks(self) -> bool:
        """Whether the rows are masked already."""
        return "masked_lm_ids" in self.columns

    def take(self, rows: npt.NDArray[np.int64]) -> Shards:
        """These rows, in this order.

        Raises:
            DataError: a row group can't be read, or its content is not a shard's; names the file and the row group.
        """
        groups, found = self._groups_of(rows)
        if len(found) == 1:
            return self._group(found[0]).take(rows - self.starts[found[0]])
        parts = [self._group(group).take(rows[groups == group] - self.starts[group]) for group in found]
        order = np.argsort(np.argsort(groups, kind="stable"), kind="stable")
        return joined(parts).take(order)

    def lengths(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Tokens of each of these rows. DataError as for `take`."""
        groups, found = self._groups_of(rows)
        lengths = np.empty(len(rows), np.int64)
        for group in found:
            here = groups == group
            lengths[here] = self._lengths_of(group)[rows[here] - self.starts[group]]
        return lengths

    def column(self, name: str) -> Array:
        """All values of a column of numbers or of lists of numbers, one after the other. DataError as for `take`.

        Memory grows with the corpus: for columns of a number a row. `values` reads any in bounded memory.
        """
        return np.concatenate(list(self.values(name)))

    def values(self, name: str) -> Iterator[Array]:
        """The values of a column, one row group after the other; no other column is read. DataError as for `take`."""
        for number in range(len(self.groups)):
            column = self._table(number, [name])[name]
            yield flat(column)[0] if name in LISTS else column.to_numpy()

    def _groups_of(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], list[int]]:
        """(the row group of each row, all that occur)."""
        groups = np.searchsorted(self.starts, rows, side="right") - 1
        if len(rows) and groups[0] == groups[-1] and (groups == groups[0]).all():
            return groups, [int(groups[0])]
        return groups, np.unique(groups).tolist()

    def _group(self, number: int) -> Shards:
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        path, group = self.groups[number]
        table = self._table(number, [name for name in self.columns if name != "documents"])
        try:
            rows = decoded(table, path)
        except DataError as error:
            raise DataError(f"{error.what} (row group {group})", error.todo) from None
        if self._checked:
            self._checked(rows, f"{self.folder.name}/{path.name}, row group {group}")
        self._kept[number] = rows
        while len(self._kept) > 1 and sum(map(len, self._kept.values())) > KEPT_ROWS:
            self._kept.popitem(last=False)
        return rows

    def _lengths_of(self, number: int) -> npt.NDArray[np.int32]:
        if number in self._lengths:
            self._lengths.move_to_end(number)
            return self._lengths[number]
        found = self._group(number).lengths.astype(np.int32)  # its rows are wanted next
        self._lengths[number] = found
        if len(self._lengths) > KEPT_LENGTHS:
            self._lengths.popitem(last=False)
        return found

    def _table(self, number: int, columns: list[str]) -> pa.Table:
        """Columns of numbers of a row group."""
        path, group = self.groups[number]
        try:
            with pq.ParquetFile(path) as file:
                table = file.read_row_group(group, columns=columns)
                table.validate(full=True)
        except (pa.ArrowException, OSError, IndexError) as error:
            raise _unreadable(f"{path}, row group {group},", error) from None
        if len(table) != self.sizes[number]:
            raise DataError(
                f"{path}, row group {group}, has {len(table)} rows; there were {self.sizes[number]} before", RESTORE
            )
        for name in columns:
            column = table[name]
            kind, holes = column.type, column.null_count
            listed = pa.types.is_list(kind)
            if listed:
                holes += sum(chunk.flatten().null_count for chunk in column.chunks)
                kind = kind.value_type
            if listed != (name in LISTS) or not pa.types.is_integer(kind) or holes:
                what = f"{holes} empty values" if holes else f"type {column.type}"
                raise DataError(f"{path}, row group {group}: column {name} has {what}", RESTORE)
        return table


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


def slice_of(rows: Shards, first: int, last: int) -> Shards:
    """Rows first … last − 1, without a copy."""
    start, end = rows.input_offsets[first], rows.input_offsets[last]
    masked = slice(rows.masked_offsets[first], rows.masked_offsets[last])
    return Shards(
        input_ids=rows.input_ids[start:end],
        input_offsets=rows.input_offsets[first : last + 1] - start,
        masked_positions=rows.masked_positions[masked],
        masked_ids=rows.masked_ids[masked],
        masked_offsets=rows.masked_offsets[first : last + 1] - masked.start,
        token_type_start=None if rows.token_type_start is None else rows.token_type_start[first:last],
        label=None if rows.label is None else rows.label[first:last],
    )


def _footer(path: Path) -> tuple[list[str], list[int]]:
    """(names of the columns, rows of each row group) of a file."""
    try:
        footer = pq.read_metadata(path)
        names = footer.schema.to_arrow_schema().names
        return names, [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(f"{path}", error) from None


def _unreadable(what: str, error: Exception) -> DataError:
    return DataError(f"{what} can't be read as Parquet: {error}", RESTORE)
