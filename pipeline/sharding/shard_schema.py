"""The columns of a shard file, and a reader that gives them as flat numpy arrays.

A shard row is one unpadded pretraining instance:

    input_ids             [CLS] A [SEP] B [SEP] (or [CLS] A [SEP]), masked
    token_type_start      index of B's first token; tokens from it on have type 1 (only with a sentence task)
    masked_lm_positions   indices into input_ids, ascending (only with stored masks)
    masked_lm_ids         the ids that stood there before masking (only with stored masks)
    next_sentence_label   0: B follows A in the text, 1: B comes from another document, or, of ordered pairs, the two are
                          swapped (only with a sentence task)
    documents             doc_id of every document of the row, in order; of a pair the first is A's, the last B's
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.config import Shards as ShardConfig
from pipeline.errors import DataError
from pipeline.ragged import ranges

Array = npt.NDArray[Any]

UINT16_VOCABULARY = 65_536
"""Up to this size of the vocabulary token ids are stored in two bytes."""


def id_type(vocab_size: int) -> pa.DataType:
    """The smallest of uint16 and int32 that holds every id below `vocab_size`."""
    return pa.uint16() if vocab_size <= UINT16_VOCABULARY else pa.int32()


def shard_schema(vocab_size: int, config: ShardConfig) -> pa.Schema:
    """Columns and types of a shard file."""
    pair = config.sentence_task != "none"
    stored = config.stores_masks
    ids = pa.list_(id_type(vocab_size))
    return pa.schema(
        [
            pa.field("input_ids", ids, nullable=False),
            *([pa.field("token_type_start", pa.int32(), nullable=False)] if pair else []),
            *([pa.field("masked_lm_positions", pa.list_(pa.uint16()), nullable=False)] if stored else []),
            *([pa.field("masked_lm_ids", ids, nullable=False)] if stored else []),
            *([pa.field("next_sentence_label", pa.int8(), nullable=False)] if pair else []),
            pa.field("documents", pa.list_(pa.string()), nullable=False),
        ]
    )


@dataclass(frozen=True)
class Row:
    """One instance; the arrays are views into `Shards`."""

    input_ids: Array
    """[n] token ids, unpadded"""
    masked_positions: Array
    """[m] ascending indices into input_ids"""
    masked_ids: Array
    """[m] ids before masking"""
    token_type_start: int
    """index of B's first token; n (no token of type 1) without a sentence task"""
    label: int | None
    """0 next, 1 random; None without a sentence task"""


@dataclass(frozen=True)
class Shards:
    """Rows of shard files, column by column.

    Row i owns `input_ids[input_offsets[i]:input_offsets[i+1]]` and, in both masked columns,
    `[masked_offsets[i]:masked_offsets[i+1]]`. Ids keep the type they are stored in (uint16 or int32).
    """

    input_ids: Array
    input_offsets: npt.NDArray[np.int64]
    masked_positions: Array
    masked_ids: Array
    masked_offsets: npt.NDArray[np.int64]
    token_type_start: npt.NDArray[np.int32] | None
    """[rows]; None without a sentence task"""
    label: npt.NDArray[np.int8] | None
    """[rows]; None without a sentence task"""

    def __len__(self) -> int:
        return len(self.input_offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each row."""
        return np.diff(self.input_offsets)

    def take(self, rows: npt.NDArray[np.int64]) -> "Shards":
        """These rows, in this order."""
        lengths, masks = np.diff(self.input_offsets)[rows], np.diff(self.masked_offsets)[rows]
        masked = ranges(self.masked_offsets[rows], masks)
        return Shards(
            input_ids=self.input_ids[ranges(self.input_offsets[rows], lengths)],
            input_offsets=np.concatenate([[0], np.cumsum(lengths)]),
            masked_positions=self.masked_positions[masked],
            masked_ids=self.masked_ids[masked],
            masked_offsets=np.concatenate([[0], np.cumsum(masks)]),
            token_type_start=None if self.token_type_start is None else self.token_type_start[rows],
            label=None if self.label is None else self.label[rows],
        )

    def row(self, i: int) -> Row:
        """Instance `i`, 0 ≤ i < len."""
        start, end = self.input_offsets[i], self.input_offsets[i + 1]
        masked = slice(self.masked_offsets[i], self.masked_offsets[i + 1])
        return Row(
            input_ids=self.input_ids[start:end],
            masked_positions=self.masked_positions[masked],
            masked_ids=self.masked_ids[masked],
            token_type_start=int(end - start) if self.token_type_start is None else int(self.token_type_start[i]),
            label=None if self.label is None else int(self.label[i]),
        )


def flat(column: pa.ChunkedArray) -> tuple[Array, npt.NDArray[np.int64]]:
    """Values and int64 offsets (from 0) of a list column without nulls."""
    chunks = column.chunks
    values = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in chunks]
    lengths = [np.diff(chunk.offsets.to_numpy()) for chunk in chunks]
    offsets = np.zeros(sum(map(len, lengths)) + 1, np.int64)
    if not chunks:
        return np.empty(0, column.type.value_type.to_pandas_dtype()), offsets
    np.cumsum(np.concatenate(lengths), out=offsets[1:])
    return np.concatenate(values), offsets


def shard_files(folder: Path) -> list[Path]:
    """The shard files of `train/` or `held_out/`, in order.

    Raises:
        DataError: there is none.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise DataError(f"{folder} holds no shard files", "Run the recipe's pretraining_shards asset again.")
    return files


def decoded(table: pa.Table, path: Path) -> Shards:
    """The rows of a table with a shard's columns; `path` is named in messages. DataError if they are others.

    Rows without stored masks have none.
    """
    names = table.column_names
    if "input_ids" not in names or ("masked_lm_positions" in names) != ("masked_lm_ids" in names):
        raise DataError(f"{path} has columns {names}, which are not a shard's", "Run `bert verify` to restore it.")
    input_ids, input_offsets = flat(table["input_ids"])
    positions, masked_offsets = np.empty(0, np.uint16), np.zeros(len(table) + 1, np.int64)
    masked_ids, id_offsets = input_ids[:0], masked_offsets
    if "masked_lm_ids" in names:
        positions, masked_offsets = flat(table["masked_lm_positions"])
        masked_ids, id_offsets = flat(table["masked_lm_ids"])
    if not np.array_equal(masked_offsets, id_offsets):
        raise DataError(f"{path}: masked_lm_positions and masked_lm_ids differ in length", "Build the shards again.")
    pair = "next_sentence_label" in names
    return Shards(
        input_ids=input_ids,
        input_offsets=input_offsets,
        masked_positions=positions,
        masked_ids=masked_ids,
        masked_offsets=masked_offsets,
        token_type_start=table["token_type_start"].to_numpy() if pair else None,
        label=table["next_sentence_label"].to_numpy() if pair else None,
    )
