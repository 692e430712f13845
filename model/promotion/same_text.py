"""Held-out text that two models are asked about: documents that neither of them, nor what they began with, was trained on.

With one vocabulary both get the same rows of the held-out shards, with the same masks. With two, both get the same stretches of
documents with the same words masked, each cut into its own pieces: what is then compared is the loss per word.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.schemas import iter_batches
from pipeline.sharding.shard_schema import Shards, shard_files
from pipeline.streams import stable_hash, substreams, uniform
from pipeline.tokenizer import Tokenizer

MASKED_SHARE = 0.15
"""of the words (Devlin et al. 2019, section 3.1)"""
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Stretches:
    """Stretches of documents, as one model reads them."""

    rows: Shards
    words: npt.NDArray[np.int64]
    """[rows] words to be guessed"""
    documents: npt.NDArray[np.int64]
    """[rows] number of the document"""


def held_out_of(documents: Path) -> set[str]:
    """doc_ids of the held-out part."""
    frame = pl.scan_parquet(documents / "part-*.parquet").filter(pl.col("split") == "held_out").select("doc_id")
    return set(frame.collect(engine="streaming")["doc_id"])


def trained_on(wanted: set[str], documents: Sequence[Path]) -> set[str]:
    """Those of `wanted` that stand in the training part of any of these `documents` artifacts."""
    found: set[str] = set()
    asked = pl.LazyFrame({"doc_id": sorted(wanted)}, schema={"doc_id": pl.String})
    for folder in documents:
        frame = pl.scan_parquet(folder / "part-*.parquet").filter(pl.col("split") == "train").select("doc_id")
        found |= set(frame.join(asked, on="doc_id", how="semi").collect(engine="streaming")["doc_id"])
    return found


def rows_without(shards: Path, left_out: set[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(numbers of the rows of a folder of shards that hold nothing of these documents; a number for each row's first document)."""
    barred = pa.array(sorted(left_out), pa.string())
    kept, named, first = [], [], 0
    for path in shard_files(shards):
        lists = pq.read_table(path, columns=["documents"]).column(0).combine_chunks()
        touched = pc.is_in(pc.list_flatten(lists), value_set=barred).to_numpy(zero_copy_only=False)
        parents = pc.list_parent_indices(lists).to_numpy()
        clean = np.ones(len(lists), bool)
        clean[parents[touched]] = False
        kept.append(first + np.flatnonzero(clean))
        named += pc.list_element(lists, 0).filter(pa.array(clean)).to_pylist()
        first += len(lists)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(named))}
    return np.concatenate(kept) if kept else np.zeros(0, np.int64), np.array([numbers[n] for n in named], np.int64)


def stretches(
    documents: Path, wanted: set[str], tokenizers: Sequence[Tokenizer], length: int, most: int, all_words: bool
) -> list[Stretches]:
    """At most `most` stretches of the documents `wanted`, once for every tokenizer, none longer than `length` tokens.

    all_words: every word is to be guessed from those before it, and none is masked.
    """
    made: list[tuple[list[list[Ids]], npt.NDArray[np.bool_], int]] = []
    for number, (doc_id, words) in enumerate(_texts(documents, wanted)):
        pieces = [tokenizer.encode_ids(words) for tokenizer in tokenizers]
        known = [i for i in range(len(words)) if all(len(each[i]) for each in pieces)]
        drawn = uniform(
            substreams(np.array([stable_hash("same text", doc_id)], np.uint64), "masks"), np.arange(len(words))
        )
        for first, end in _cuts([[len(each[i]) for i in known] for each in pieces], length - 2):
            places = known[first:end]
            masked = np.ones(len(places), bool) if all_words else drawn[places] < MASKED_SHARE
            if masked.any():
                made.append(([[each[i] for i in places] for each in pieces], masked, number))
            if len(made) == most:
                return [_rows(made, side, tokenizer, all_words) for side, tokenizer in enumerate(tokenizers)]
    return [_rows(made, side, tokenizer, all_words) for side, tokenizer in enumerate(tokenizers)]


def _texts(documents: Path, wanted: set[str]) -> Iterator[tuple[str, list[str]]]:
    """(doc_id, its words: what stands between white space)."""
    for batch in iter_batches(documents, ["doc_id", "text"]):
        kept = batch.filter(pc.is_in(batch["doc_id"], value_set=pa.array(sorted(wanted), pa.string())))
        for doc_id, text in zip(kept["doc_id"].to_pylist(), kept["text"].to_pylist(), strict=True):
            yield doc_id, text.split()


def _cuts(sizes: Sequence[Sequence[int]], length: int) -> Iterator[tuple[int, int]]:
    """(first, end) of stretches of words that have at most `length` pieces for every tokenizer. A word that is longer is left out."""
    first, totals = 0, [0] * len(sizes)
    for i in range(len(sizes[0])):
        here = [each[i] for each in sizes]
        if any(total + size > length for total, size in zip(totals, here, strict=True)):
            if i > first:
                yield first, i
            first, totals = i, [0] * len(sizes)
        if max(here) > length:
            first = i + 1
            continue
        totals = [total + size for total, size in zip(totals, here, strict=True)]
    if first < len(sizes[0]):
        yield first, len(sizes[0])


def _rows(
    made: Sequence[tuple[list[list[Ids]], npt.NDArray[np.bool_], int]], side: int, tokenizer: Tokenizer, all_words: bool
) -> Stretches:
    """As rows of shards: [CLS] words [SEP]."""
    ids, positions, answers = [], [], []
    for pieces, masked, _ in made:
        row = np.concatenate([[tokenizer.cls_id], *pieces[side], [tokenizer.sep_id]]).astype(np.int64)
        hidden = np.repeat(masked, [len(each) for each in pieces[side]])
        where = 1 + np.flatnonzero(hidden)
        answers.append(row[where])
        if not all_words:
            row[where] = tokenizer.mask_id
        ids.append(row)
        positions.append(where - 1 if all_words else where)  # left to right, a word is guessed one place before it
    empty = np.zeros(0, np.int64)
    rows = Shards(
        input_ids=np.concatenate([empty, *ids]),
        input_offsets=np.cumsum([0, *map(len, ids)]),
        masked_positions=np.concatenate([empty, *positions]),
        masked_ids=np.concatenate([empty, *answers]),
        masked_offsets=np.cumsum([0, *map(len, answers)]),
        token_type_start=None,
        label=None,
    )
    words = np.array([int(masked.sum()) for _, masked, _ in made], np.int64)
    return Stretches(rows, words, np.array([number for *_, number in made], np.int64))
