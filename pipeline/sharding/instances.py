"""From a pool of tokenised documents to pretraining instances."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.config import Shards, ShardsConfig
from pipeline.ragged import ranges
from pipeline.sharding.masking import Control, draw_masks
from pipeline.sharding.pairs import (
    NUMBERS,
    Ints,
    Pool,
    Spans,
    cut,
    document_spans,
    next_sentence_pairs,
    ordered_pairs,
    target_lengths,
    truncated,
)
from pipeline.sharding.shard_schema import shard_schema
from pipeline.streams import Keys, drawn, mixed, substreams, uniform

BATCH = 2048
"""Instances that are put together at once; bounds memory and changes nothing else."""


@dataclass(frozen=True)
class Visits:
    """Documents to make instances of, each once in a pass."""

    document: Ints
    """[n] number in the pool"""
    passed: Ints
    """[n] number of the pass"""
    keys: Keys
    """[n] stream of the visit: a hash of seed, pass and doc_id"""


def scratch_schema(vocab_size: int, config: Shards) -> pa.Schema:
    """A shard's columns, `place` (the hash that says which shard and where in it) and `sentences` of the chunk."""
    schema = shard_schema(vocab_size, config)
    return schema.append(pa.field("place", pa.uint64())).append(pa.field("sentences", pa.int32()))


def visits(pool: Pool, config: ShardsConfig, passes: int, numbers: Sequence[int]) -> Visits:
    """The visits of these passes out of `passes`.

    A document is visited `passes` · repeat times; a fraction that is left over is one more visit for that share of the
    documents, chosen by hash.
    """
    wanted = passes * pool.repeats.astype(np.float64)
    whole = np.floor(wanted)
    chance = uniform(substreams(pool.keys, config.seed, "visits"), 0)
    count = (whole + (chance < wanted - whole)).astype(np.int64)
    found = [np.flatnonzero(count > passed) for passed in numbers]
    keys = [substreams(pool.keys[some], config.seed, passed) for some, passed in zip(found, numbers, strict=True)]
    passed = [np.full(len(some), number) for some, number in zip(found, numbers, strict=True)]
    return Visits(np.concatenate(found), np.concatenate(passed), np.concatenate(keys))


def build(
    pool: Pool, config: ShardsConfig, control: Control, passes: int, numbers: Sequence[int]
) -> Iterator[pa.Table]:
    """The instances of these passes out of `passes`, as tables of `scratch_schema`."""
    yield scratch_schema(control.vocab_size, config).empty_table()
    if config.packing == "full_sentences":
        for number in numbers:
            yield from _packed(pool, visits(pool, config, passes, [number]), config, control)
        return
    visited = visits(pool, config, passes, numbers)
    spans = _spans(pool, visited, config)
    keys = drawn(visited.keys[spans.visit], spans.step)
    if config.sentence_task != "none":
        spans = truncated(spans, config.sequence_length - control_tokens(config), substreams(keys, "cuts"))
    for first in range(0, len(spans), BATCH):
        some, some_keys = spans[first : first + BATCH], keys[first : first + BATCH]
        documents = _documents(pool, some)
        yield _assembled(pool.tokens, some, some_keys, documents, config, control)


def control_tokens(config: Shards) -> int:
    """[CLS] and [SEP]s of an instance of one document or pair."""
    return 2 if config.sentence_task == "none" else 3


def _spans(pool: Pool, visited: Visits, config: ShardsConfig) -> Spans:
    max_tokens = config.sequence_length - control_tokens(config)
    numbers = uniform(substreams(visited.keys, "target")[:, None], np.arange(2))
    targets = target_lengths(numbers, max_tokens, config.short_seq_prob)
    if config.sentence_task == "none":
        return document_spans(pool, visited.document, targets, max_tokens)
    keys = substreams(visited.keys, "pairs")

    def draws(which: Ints, step: int) -> npt.NDArray[np.float64]:
        return uniform(keys[which][:, None], step * NUMBERS + np.arange(NUMBERS))

    if config.sentence_task == "sop":
        return ordered_pairs(pool, visited.document, targets, draws)
    return next_sentence_pairs(pool, visited.document, targets, draws, config.faithful == "original")


def _assembled(
    pool_tokens: npt.NDArray[np.integer], spans: Spans, keys: Keys, documents: pa.ListArray, config: ShardsConfig,
    control: Control,
) -> pa.Table:  # fmt: skip
    """[CLS] A [SEP] B [SEP] for every span, masked if masks are stored."""
    schema = scratch_schema(control.vocab_size, config)
    pair = config.sentence_task != "none"
    one = np.ones_like(spans.a_start)
    cls, sep = len(pool_tokens), len(pool_tokens) + 1  # where the two stand behind the pool's tokens
    a, b = spans.a_end - spans.a_start, spans.b_end - spans.b_start
    parts = [(cls * one, one), (spans.a_start, a), (sep * one, one)]
    if pair:
        parts += [(spans.b_start, b), (sep * one, one)]
    starts, sizes = (np.stack(columns, axis=1) for columns in zip(*parts, strict=True))
    lengths = sizes.sum(axis=1)
    tokens = np.append(pool_tokens, np.array([control.cls_id, control.sep_id], pool_tokens.dtype))
    ids = tokens[ranges(starts.ravel(), sizes.ravel())]
    columns = {
        "input_ids": _lists(ids, lengths),
        "token_type_start": a + 2,
        "next_sentence_label": spans.label,
        "documents": documents,
        "place": mixed(substreams(keys, "place")),
        "sentences": spans.sentences,
    }
    if config.stores_masks:
        found = draw_masks(ids, lengths, substreams(keys, "masks"), config, config.max_predictions_per_seq, control)
        columns["input_ids"] = _lists(found.input_ids, lengths)
        columns["masked_lm_positions"] = _lists(found.positions, found.counts)
        columns["masked_lm_ids"] = _lists(found.ids, found.counts)
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column.astype(schema.field(name).type.to_pandas_dtype()))
        for name, column in ((name, columns[name]) for name in schema.names)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _packed(pool: Pool, visited: Visits, config: ShardsConfig, control: Control) -> Iterator[pa.Table]:
    """The documents of one pass, in an order drawn for it, as running text with a [SEP] between two, cut at the ends of
    sentences into instances as long as fit (Liu et al. 2019, FULL-SENTENCES)."""
    if not len(visited.document):
        return
    max_tokens = config.sequence_length - control_tokens(config)
    pool = cut(pool, max_tokens)
    order = np.argsort(substreams(visited.keys, "order"), kind="stable")
    document, keys = visited.document[order], visited.keys[order]
    sentences = pool.documents[document + 1] - pool.documents[document]
    sentence = ranges(pool.documents[document], sentences)
    sizes = np.diff(pool.bounds)[sentence]
    separated = np.zeros(len(sentence), np.int64)
    separated[np.cumsum(sentences)[:-1]] = 1
    ends = np.cumsum(sizes + separated)
    starts = ends - sizes
    stream = np.full(ends[-1], control.sep_id, pool.tokens.dtype)
    stream[ranges(starts, sizes)] = pool.tokens[ranges(pool.bounds[sentence], sizes)]
    firsts = np.array(_cuts(starts.tolist(), ends.tolist(), max_tokens))
    lasts = np.append(firsts[1:], len(sentence)) - 1
    visit = np.repeat(np.arange(len(document)), sentences)
    instance_keys = drawn(keys[visit[firsts]], firsts - (np.cumsum(sentences) - sentences)[visit[firsts]])
    nothing = np.zeros(len(firsts), np.int64)
    for first in range(0, len(firsts), BATCH):
        some = slice(first, first + BATCH)
        a, b, zero = firsts[some], lasts[some], nothing[some]
        spans = Spans(
            visit=visit[a], step=zero, document=document[visit[a]], a_start=starts[a], a_end=ends[b], other=zero,
            b_start=zero, b_end=zero, label=zero, sentences=b - a + 1,
        )  # fmt: skip
        spread = visit[b] - visit[a] + 1
        names = pa.array(pool.doc_ids, pa.string()).take(pa.array(document[ranges(visit[a], spread)]))
        yield _assembled(stream, spans, instance_keys[some], _lists(names, spread), config, control)


def _cuts(starts: Sequence[int], ends: Sequence[int], max_tokens: int) -> list[int]:
    """The first sentence of every instance."""
    cuts = [0]
    while (after := max(bisect_right(ends, starts[cuts[-1]] + max_tokens), cuts[-1] + 1)) < len(starts):
        cuts.append(after)
    return cuts


def _lists(values: npt.NDArray[np.integer] | pa.Array, sizes: Ints) -> pa.ListArray:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values if isinstance(values, pa.Array) else pa.array(values))


def _documents(pool: Pool, spans: Spans) -> pa.ListArray:
    """The document of each span, and the other one of a random pair."""
    both = np.stack([spans.document, spans.other], axis=1)
    used = np.stack([np.ones_like(spans.document, bool), spans.document != spans.other], axis=1)
    names, where = np.unique(both[used], return_inverse=True)
    values = pa.array([pool.doc_ids[name] for name in names], pa.string()).take(pa.array(where))
    return _lists(values, used.sum(axis=1))
