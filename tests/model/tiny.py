"""Tiny shards, vocabularies and models for the tests of this folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config import Architecture
from pipeline.config import Shards as ShardsSection
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import Shards, shard_schema
from pipeline.tokenizer import SPECIAL_TOKENS, tokenizer_json

WORDS = ("the", "cat", "sat", "on", "mat", "dog", "##s", "run", "##ning", "paris", "is", ".", ",", "a", "##b")
VOCABULARY = (*SPECIAL_TOKENS, *WORDS)
ARCHITECTURE = Architecture(layers=2, hidden=16, heads=2, intermediate=24, max_positions=16, dropout=0.1)
MASK = VOCABULARY.index("[MASK]")


def read_shards(folder: Path) -> Shards:
    """All rows of a folder of shards."""
    reader = ShardReader(folder)
    return reader.take(np.arange(len(reader)))


def write_rows(folder: Path, rows: list[dict[str, Any]], vocabulary_size: int, sentence_task: str = "nsp") -> Path:
    """Shard rows as one shard file of `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows, schema=shard_schema(vocabulary_size, ShardsSection(sentence_task=sentence_task)))
    pq.write_table(table, folder / "shard-00000-of-00001.parquet")
    return folder


def rows_of(count: int, length: int, seed: int, sentence_task: str = "nsp") -> list[dict[str, Any]]:
    """Rows that a model can learn: token k is followed by k + 1; label 1 where B starts anew."""
    random = np.random.default_rng(seed)
    first, words = len(SPECIAL_TOKENS), len(WORDS)
    rows = []
    for _ in range(count):
        size = int(random.integers(length // 2, length + 1))
        label = int(random.integers(2))
        ids = first + (int(random.integers(words)) + np.arange(size)) % words
        if label:
            ids[size // 2 :] = first + (int(random.integers(words)) + np.arange(size - size // 2)) % words
        ids[0] = VOCABULARY.index("[CLS]")
        masked = np.sort(random.choice(np.arange(1, size), size=max(1, size // 6), replace=False))
        row = {"masked_lm_positions": masked.tolist(), "masked_lm_ids": ids[masked].tolist(), "documents": ["d"]}
        ids[masked] = MASK
        row["input_ids"] = ids.tolist()
        if sentence_task != "none":
            row |= {"token_type_start": size // 2, "next_sentence_label": label}
        rows.append(row)
    return rows


def write_shards(folder: Path, train: int = 40, held_out: int = 12, sentence_task: str = "nsp") -> Path:
    """A folder as the pretraining_shards stage leaves it, of sequence length 16."""
    write_rows(folder / "train", rows_of(train, 16, 1, sentence_task), len(VOCABULARY), sentence_task)
    write_rows(folder / "held_out", rows_of(held_out, 16, 2, sentence_task), len(VOCABULARY), sentence_task)
    return folder


def write_vocabulary(folder: Path, vocabulary: Sequence[str] = VOCABULARY) -> Path:
    """A folder as the wordpiece_vocab stage leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
    (folder / "tokenizer.json").write_text(
        tokenizer_json(vocabulary, lowercase=True, strip_accents=True), encoding="utf-8"
    )
    return folder
