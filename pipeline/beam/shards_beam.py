"""The Beam pipeline that makes shards; `pipeline.shards` plans it and adds it up.

    (file, row group) of documents → tokenised, sorted by pool            tokens/    one file per row group
    pool → its documents from all those files, sorted by doc_id           pools/     one file per pool
    (pool, some passes) → instances, sorted by shard and place            pieces/    files of bounded size
    shard → its instances from all those files, sorted by place           train/, held_out/ of the output

What flows through Beam are references (file, first byte, end, rows): the local runner keeps all that is grouped in memory.
The payload goes through files in a scratch folder that every worker must see, on a disk or in an object store
(`pipeline.system.places`). A file's name says what is in it, its content depends on nothing else, and it appears whole: a bundle
that runs twice writes the same file twice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.beam.common_beam import reported
from pipeline.beam.options_beam import pipeline_options
from pipeline.sharding.instances import build, scratch_schema
from pipeline.sharding.masking import Control
from pipeline.sharding.pairs import Pool
from pipeline.sharding.shard_schema import flat, id_type, shard_schema
from pipeline.shards import Plan
from pipeline.streams import stable_hash
from pipeline.system import places
from pipeline.tokenizer import load

GROUP_ROWS = 16_384
"""Rows of a row group of a shard file."""
CHUNK_CHARACTERS = 1_000_000
"""About so many are tokenised at once."""
READ_DOCUMENTS = 64
"""Documents of a row group that are in memory at once."""
PIECE_BYTES = 8 << 20
"""Instances that are sorted in memory at once."""
PASS_TOKENS = 6_000_000
"""Tokens of the passes over a pool that are made at once, where one pass is not more: many at a time are faster."""

PoolKey = tuple[str, int]
Reference = tuple[str, int, int, int]
"""(file in scratch, first byte, end, number of rows)"""


def run(plan_json: str) -> None:
    """Make the shard files of a `pipeline.shards.Plan`.

    Raises:
        RecipeError: of `pipeline.beam.options_beam`.
    """
    plan = Plan.model_validate_json(plan_json)
    options = pipeline_options(plan.beam, plan.workers)
    for folder in ("tokens", "pools", "pieces", "statistics"):
        places.make(plan.scratch / folder)
    for part in plan.parts:
        places.make(plan.out / part)
    with beam.Pipeline(options=options) as pipeline:
        add_transforms(pipeline, plan)


def add_transforms(pipeline: beam.Pipeline, plan: Plan) -> None:
    """Add the transforms to a pipeline."""
    shards = [(name, shard) for name, part in plan.parts.items() for shard in range(part.files)]
    pieces = (
        pipeline
        | "Row groups" >> beam.Create(plan.row_groups)
        | "Spread row groups" >> beam.Reshuffle()
        | "Tokenise" >> beam.ParDo(Tokenise(plan))
        | "Group by pool" >> beam.GroupByKey()
        | "Gather pool" >> beam.FlatMap(gather_pool, plan)
        | "Spread passes" >> beam.Reshuffle()
        | "Build instances" >> beam.FlatMap(build_instances, plan)
    )
    every_shard = pipeline | "Shards" >> beam.Create([(shard, None) for shard in shards])
    (
        (pieces, every_shard)
        | "With empty shards" >> beam.Flatten()
        | "Group by shard" >> beam.GroupByKey()
        | "Write shard" >> beam.Map(write_shard, plan)
    )


# ── row group → token file ───────────────────────────────────────────────────────────────────────────────────────────


class Tokenise(beam.DoFn):
    """(file, row group) → its documents as token ids, and per pool a reference to them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def setup(self) -> None:
        """Load the tokenizer once per worker."""
        with places.near_folder(self.plan.vocabulary) as folder:
            self.tokenizer = load(folder)

    def finish_bundle(self) -> None:
        """Free the words that are known: the worker lives on, and its next work needs the memory."""
        self.tokenizer.forget_words()

    def process(self, element: tuple[str, int]) -> Iterator[tuple[PoolKey, Reference]]:
        """Write tokens/FILE-GROUP.arrow, sorted by pool."""
        plan = self.plan
        file, group = element
        with reported(plan.scratch, plan.out):
            with places.opened(plan.documents / file) as source, pq.ParquetFile(source, pre_buffer=True) as parquet:
                documents = parquet.metadata.row_group(group).num_rows
                columns = ["doc_id", "text", "split", "sentence_ends", "repeat"]
                tokens = self._tokens(
                    parquet.iter_batches(READ_DOCUMENTS, row_groups=[group], columns=columns, use_threads=False)
                )
            name = f"{file.removesuffix('.parquet')}-{group:06d}"
            path = plan.scratch / "tokens" / f"{name}.arrow"
            found = sorted(Counter(zip(tokens["split"].to_pylist(), tokens["pool"].to_pylist(), strict=True)).items())
            schema = token_schema(plan.control.vocab_size)
            slices = _write_slices(path, tokens.select(schema.names).cast(schema), [rows for _, rows in found])
            alone = int((np.diff(flat(tokens["sentence_lengths"])[1]) == 1).sum())
            counts = {"documents": documents, "no tokens": documents - len(tokens), "one sentence": alone}
            places.write_json(plan.scratch / "statistics" / f"tokens-{name}.json", counts)
        for (key, _), (start, end, rows) in zip(found, slices, strict=True):
            yield key, (f"tokens/{path.name}", start, end, rows)

    def _tokens(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """Documents with any tokens, sorted by part, pool and doc_id: their tokens and the lengths of their sentences."""
        chunks = [self._chunk(documents) for batch in batches for documents in _chunks(batch)]
        order = [("split", "ascending"), ("pool", "ascending"), ("doc_id", "ascending")]
        return pa.concat_tables(chunks).sort_by(order).combine_chunks()

    def _chunk(self, documents: pa.RecordBatch) -> pa.Table:
        plan = self.plan
        sentences: list[str] = []
        counts = []
        for text, ends in zip(documents["text"].to_pylist(), documents["sentence_ends"].to_pylist(), strict=True):
            plain = text.replace("\n", " ")  # the only other whitespace that is not rare
            sentences += [plain[start:end] for start, end in zip([0, *ends], ends, strict=False)]
            counts.append(len(ends))
        tokens, starts = self.tokenizer.encode_flat(sentences)
        lengths = np.diff(starts)
        some = lengths > 0  # a sentence of control characters only has none
        doc_ids, parts = documents["doc_id"].to_pylist(), documents["split"].to_pylist()
        offsets = np.concatenate([[0], np.cumsum(counts)])
        kept = np.concatenate([[0], np.cumsum(some)])[offsets]
        values = pa.array(tokens.astype(id_type(plan.control.vocab_size).to_pandas_dtype()))
        repeats = np.where(np.array(parts) == "train", documents["repeat"].to_numpy(), 1).astype(np.float32)
        table = pa.table(
            {
                "split": parts,
                "pool": [
                    stable_hash("pool", doc_id) % plan.parts[part].pools
                    for doc_id, part in zip(doc_ids, parts, strict=True)
                ],
                "doc_id": pa.array(doc_ids, pa.string()),
                "key": pa.array([stable_hash(doc_id) for doc_id in doc_ids], pa.uint64()),
                "repeat": pa.array(repeats),
                "tokens": pa.ListArray.from_arrays(pa.array(starts[offsets], pa.int32()), values),
                "sentence_lengths": pa.ListArray.from_arrays(
                    pa.array(kept, pa.int32()), pa.array(lengths[some].astype(np.int32))
                ),
            }
        )
        return table.filter(pa.array(np.diff(kept) > 0))


def _chunks(documents: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The documents in runs of about `CHUNK_CHARACTERS`."""
    characters = np.cumsum(pc.utf8_length(documents["text"]).to_numpy())
    cuts = np.unique(np.searchsorted(characters, np.arange(0, characters[-1], CHUNK_CHARACTERS)))
    for first, end in pairwise([*cuts.tolist(), len(documents)]):
        yield documents.slice(first, end - first)


# ── pool → instances ─────────────────────────────────────────────────────────────────────────────────────────────────


def gather_pool(element: tuple[PoolKey, Iterable[Reference]], plan: Plan) -> Iterator[tuple[str, int, int, int]]:
    """Write pools/PART-POOL.arrow, its documents sorted by doc_id; give (part, pool, first pass, end) of some passes."""
    (part, pool), references = element
    with reported(plan.scratch, plan.out):
        schema = token_schema(plan.control.vocab_size)
        with places.near(plan.scratch, sorted(references)) as (folder, near):
            table = pa.concat_tables([_read_slice(folder, reference, schema) for reference in near])
            table = table.sort_by("doc_id").combine_chunks()
        _write_arrow(plan.scratch / "pools" / f"{part}-{pool:06d}.arrow", table)
    passes = most_passes(plan.parts[part].passes, table["repeat"].to_numpy())
    at_once = max(1, PASS_TOKENS // len(flat(table["tokens"])[0]))
    firsts = range(0, passes, at_once)
    counts = {"documents": len(table), "builds": len(firsts)}
    places.write_json(plan.scratch / "statistics" / f"pool-{part}-{pool:06d}.json", counts)
    for first in firsts:
        yield part, pool, first, min(passes, first + at_once)


def most_passes(passes: int, repeats: np.ndarray) -> int:
    """Passes until every document was visited as often as it wants."""
    return int(np.ceil(passes * max(repeats)))


def read_pool(path: Path) -> Pool:
    """The documents of a pool file."""
    table = _table(path)
    tokens, _ = flat(table["tokens"])
    lengths, documents = flat(table["sentence_lengths"])
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    keys, repeats = table["key"].to_numpy(), table["repeat"].to_numpy()
    return Pool(table["doc_id"].to_pylist(), keys, tokens, bounds, documents, repeats)


def build_instances(element: tuple[str, int, int, int], plan: Plan) -> Iterator[tuple[PoolKey, Reference]]:
    """Write pieces/PART-POOL-PASS-NUMBER.arrow, sorted by (shard, place); give (part, shard) and where its rows are."""
    part, pool, first_pass, end = element
    files = plan.parts[part].files
    with reported(plan.scratch, plan.out):
        documents = read_pool(plan.scratch / "pools" / f"{part}-{pool:06d}.arrow")
    made = build(documents, plan.config, plan.control, plan.parts[part].passes, range(first_pass, end))
    instances = 0
    for number, table in enumerate(_gathered(made)):
        path = plan.scratch / "pieces" / f"{part}-{pool:06d}-{first_pass:04d}-{number:04d}.arrow"
        with reported(plan.scratch, plan.out):
            place = table["place"].to_numpy()
            shard = place % np.uint64(files)
            order = np.lexsort((place, shard))
            rows = np.bincount(shard.astype(np.int64), minlength=files)
            slices = _write_slices(path, table.take(pa.array(order)), rows.tolist())
        instances += len(order)
        for each, (start, end, count) in enumerate(slices):
            if count:
                yield (part, each), (f"pieces/{path.name}", start, end, count)
        del table  # before the next one is made
    counts = {"builds": 1, "instances": instances}
    places.write_json(plan.scratch / "statistics" / f"pieces-{part}-{pool:06d}-{first_pass:04d}.json", counts)


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of about `PIECE_BYTES`."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        del table
        if size >= PIECE_BYTES:
            yield _emptied(waiting)
            size = 0
    if size:
        yield _emptied(waiting)


def _emptied(tables: list[pa.Table]) -> pa.Table:
    """All rows in one table; the list no longer holds them."""
    whole = pa.concat_tables(tables)
    tables.clear()
    return whole.combine_chunks()


# ── shard ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_shard(element: tuple[tuple[str, int], Iterable[Reference | None]], plan: Plan) -> None:
    """Write one shard file, its rows sorted by place, a range of places at a time."""
    (part, number), found = element
    references = sorted(reference for reference in found if reference is not None)
    config, control = plan.config, plan.control
    buckets = sum(rows for _, _, _, rows in references) // plan.bucket_rows + 1
    limits = [2**64 * bucket // buckets for bucket in range(buckets + 1)]
    schema, pieces_schema = shard_schema(control.vocab_size, config), scratch_schema(control.vocab_size, config)
    path = plan.out / part / f"shard-{number:05d}-of-{plan.parts[part].files:05d}.parquet"
    statistics: dict[str, int] = {}
    with reported(plan.scratch, plan.out):
        with (
            places.near(plan.scratch, references) as (folder, near),
            places.replaced(path) as temporary,
            pq.ParquetWriter(temporary, schema, compression="zstd", compression_level=3) as writer,
        ):
            for low, high in pairwise(limits):
                slices = [_read_places(folder, reference, pieces_schema, low, high) for reference in near]
                table = pa.concat_tables([pieces_schema.empty_table(), *slices])
                table = table.combine_chunks().take(pa.array(np.argsort(table["place"].to_numpy(), kind="stable")))
                writer.write_table(table.select(schema.names).combine_chunks(), row_group_size=GROUP_ROWS)
                for name, count in count_rows(table, control).items():
                    statistics[name] = statistics.get(name, 0) + count
        places.write_json(plan.scratch / "statistics" / f"shard-{part}-{number:05d}.json", {part: statistics})


def count_rows(table: pa.Table, control: Control) -> dict[str, int]:
    """What the stage's statistics are made of, for rows of `scratch_schema`."""
    ids, offsets = flat(table["input_ids"])
    counts = {"instances": len(table), "tokens": len(ids)}
    if "masked_lm_ids" in table.column_names:
        positions, masked_offsets = flat(table["masked_lm_positions"])
        original, _ = flat(table["masked_lm_ids"])
        now = ids[np.repeat(offsets[:-1], np.diff(masked_offsets)) + positions]
        counts |= {
            "masked": len(now),
            "mask": int((now == control.mask_id).sum()),
            "keep": int(((now == original) & (now != control.mask_id)).sum()),
        }
    if "next_sentence_label" in table.column_names:
        label, one = table["next_sentence_label"].to_numpy(), table["sentences"].to_numpy() == 1
        counts |= {"label_1": int(label.sum()), "one_sentence": int(one.sum())}
        counts["label_1_of_more"] = int(label[~one].sum())
    return counts


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_arrow(path: Path, table: pa.Table) -> None:
    with (
        places.replaced(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as w,
    ):
        w.write_table(table)


def token_schema(vocab_size: int) -> pa.Schema:
    """Documents as tokens, with the lengths of their sentences."""
    return pa.schema(
        [
            pa.field("doc_id", pa.string()),
            pa.field("key", pa.uint64()),
            pa.field("repeat", pa.float32()),
            pa.field("tokens", pa.list_(id_type(vocab_size))),
            pa.field("sentence_lengths", pa.list_(pa.int32())),
        ]
    )


def _write_slices(path: Path, table: pa.Table, rows: Sequence[int]) -> list[tuple[int, int, int]]:
    """Write a table as slices of so many rows each, so that each can be read by itself; give (first byte, end, rows) of
    each."""
    found = []
    first = at = 0
    with places.replaced(path) as temporary, temporary.open("wb") as file:
        for count in rows:
            end = at
            for batch in table.slice(first, count).combine_chunks().to_batches():
                end = at + file.write(batch.serialize())
            found.append((at, end, count))
            first, at = first + count, end
    return found


def _read_slice(scratch: Path, reference: Reference, schema: pa.Schema) -> pa.Table:
    """A slice, mapped into memory."""
    name, start, end, _ = reference
    with pa.memory_map(str(scratch / name)) as source:
        source.seek(start)
        return pa.Table.from_batches([pa.ipc.read_record_batch(source.read_buffer(end - start), schema)])


def _table(path: Path) -> pa.Table:
    """A file of ours, mapped into memory."""
    with places.mapped(path) as source:
        return pa.ipc.open_file(source).read_all()


def _read_places(scratch: Path, reference: Reference, schema: pa.Schema, low: int, high: int) -> pa.Table:
    """The rows of a piece with low ≤ place < high, copied, so that the file doesn't stay mapped."""
    table = _read_slice(scratch, reference, schema)
    place = table["place"].to_numpy()
    first = int(np.searchsorted(place, np.uint64(low)))
    end = len(place) if high == 2**64 else int(np.searchsorted(place, np.uint64(high)))
    return table.take(pa.array(np.arange(first, end)))
