"""From a pool of tokenised documents to pretraining instances: one pass over its documents."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.config import ShardsConfig
from pipeline.masking import apply_masks, draw_masks, joined, mask_counts
from pipeline.pairs import Pool, document_spans, next_sentence_pairs, target_length, truncated
from pipeline.shard_schema import shard_schema
from pipeline.streams import stable_hash, stream

BATCH = 4096
"""Instances that are put together at once; bounds memory and changes nothing else."""


@dataclass(frozen=True)
class Control:
    """What instances need to know of the vocabulary."""

    vocab_size: int
    cls_id: int
    sep_id: int
    mask_id: int


def scratch_schema(vocab_size: int, sentence_task: str) -> pa.Schema:
    """A shard's columns, `place` (the hash that says which shard and where in it) and `sentences` of the chunk."""
    schema = shard_schema(vocab_size, sentence_task)
    return schema.append(pa.field("place", pa.uint64())).append(pa.field("sentences", pa.int32()))


def visits(config: ShardsConfig, passes: int, doc_id: str, repeat: float) -> int:
    """How often the document is visited when the corpus is passed over `passes` times.

    A fraction that is left over is one more visit for that share of the documents, chosen by hash.
    """
    whole, rest = divmod(passes * repeat, 1)
    return int(whole) + (stable_hash(config.seed, doc_id, "visits") < rest * 2**64)


def build_pass(pool: Pool, config: ShardsConfig, control: Control, passes: int, passed: int) -> Iterator[pa.Table]:
    """The instances of pass number `passed` as tables of `scratch_schema`, documents in the pool's order."""
    spans: list[npt.NDArray[np.int64]] = []
    for document, doc_id in enumerate(pool.doc_ids):
        if passed < visits(config, passes, doc_id, pool.repeats[document]):
            spans.append(_spans(pool, document, config, passed))
            if sum(map(len, spans)) >= BATCH:
                yield _assembled(pool, spans, config, control, passed)
                spans = []
    yield _assembled(pool, spans, config, control, passed)


def _spans(pool: Pool, document: int, config: ShardsConfig, passed: int) -> npt.NDArray[np.int64]:
    rng = stream(config.seed, passed, pool.doc_ids[document], "pairs")
    max_tokens = config.sequence_length - control_tokens(config)
    target = target_length(rng, max_tokens, config.short_seq_prob)
    if config.sentence_task == "none":
        return np.array(document_spans(pool, document, target, max_tokens), np.int64)
    return truncated(np.array(next_sentence_pairs(pool, document, target, rng), np.int64), max_tokens, rng)


def control_tokens(config: ShardsConfig) -> int:
    """[CLS] and [SEP]s of an instance."""
    return 2 if config.sentence_task == "none" else 3


def _assembled(
    pool: Pool, by_document: list[npt.NDArray[np.int64]], config: ShardsConfig, control: Control, passed: int
) -> pa.Table:
    """[CLS] A [SEP] B [SEP] for every span, masked."""
    schema = scratch_schema(control.vocab_size, config.sentence_task)
    if not by_document:
        return schema.empty_table()
    document, a_start, a_end, other, b_start, b_end, random, sentences = np.concatenate(by_document).T
    pair = config.sentence_task != "none"
    one = np.ones_like(a_start)
    cls, sep = len(pool.tokens), len(pool.tokens) + 1  # where the two stand behind the pool's tokens
    parts = [(cls * one, one), (a_start, a_end - a_start), (sep * one, one)]
    if pair:
        parts += [(b_start, b_end - b_start), (sep * one, one)]
    starts, sizes = (np.stack(columns, axis=1) for columns in zip(*parts, strict=True))
    lengths = sizes.sum(axis=1)
    index = _ranges(starts.ravel(), sizes.ravel())
    tokens = np.append(pool.tokens, np.array([control.cls_id, control.sep_id], pool.tokens.dtype))

    counts = mask_counts(lengths, config.mask_rate, config.max_predictions_per_seq, control_tokens(config))
    draws, places = [], []
    last = 0
    for spans in by_document:
        first, last = last, last + len(spans)
        doc_id = pool.doc_ids[spans[0, 0]]
        needed = int(lengths[first:last].sum()), int(counts[first:last].sum())
        draws.append(draw_masks(stream(config.seed, passed, doc_id, "masks"), *needed, control.vocab_size))
        places.append(stream(config.seed, passed, doc_id, "place").bit_generator.random_raw(len(spans)))
    masked = apply_masks(
        tokens[index], lengths, index < cls, counts, joined(draws), control.mask_id, config.mask_random_keep
    )

    columns = {
        "input_ids": _lists(masked.input_ids, lengths),
        "token_type_start": a_end - a_start + 2,
        "masked_lm_positions": _lists(masked.positions, counts),
        "masked_lm_ids": _lists(masked.ids, counts),
        "next_sentence_label": random,
        "documents": _documents(pool, document, other),
        "place": np.concatenate(places),
        "sentences": sentences,
    }
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column.astype(schema.field(name).type.to_pandas_dtype()))
        for name, column in ((name, columns[name]) for name in schema.names)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _ranges(starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """starts[0] … starts[0] + sizes[0] - 1, starts[1] … as one array."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(sizes.sum())


def _lists(values: npt.NDArray[np.integer], sizes: npt.NDArray[np.int64]) -> pa.ListArray:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def _documents(pool: Pool, document: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> pa.ListArray:
    """The document of each span, and the other one of a random pair."""
    both = np.stack([document, other], axis=1)
    used = np.stack([np.ones_like(document, bool), document != other], axis=1)
    names, where = np.unique(both[used], return_inverse=True)
    values = pa.array([pool.doc_ids[name] for name in names], pa.string()).take(pa.array(where))
    offsets = np.zeros(len(document) + 1, np.int32)
    np.cumsum(used.sum(axis=1), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values)
