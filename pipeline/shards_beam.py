"""The Beam pipeline that makes shards; `pipeline.shards` plans it and adds it up.

    (file, row group) of documents → tokenised, sorted by pool            tokens/    one file per row group
    pool → its documents from all those files, sorted by doc_id           pools/     one file per pool
    (pool, pass) → masked instances, sorted by shard and place            pieces/    one file per pool and pass
    shard → its instances from all those files, sorted by place           train/, held_out/ of the output

What flows through Beam are references (file, first row, rows): the local runner keeps all that is grouped in memory.
The payload goes through files in a scratch folder that every worker must see. A file's name says what is in it, its
content depends on nothing else, and it appears by one rename: a bundle that runs twice writes the same file twice.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.common_beam import pipeline_options, replaced, reported, write_json
from pipeline.instances import Control, build_pass, scratch_schema
from pipeline.pairs import Pool
from pipeline.shard_schema import flat, id_type, shard_schema
from pipeline.shards import Plan
from pipeline.streams import stable_hash
from pipeline.tokenizer import load

GROUP_ROWS = 16_384
"""Rows of a row group of a shard file."""

PoolKey = tuple[str, int]
Reference = tuple[str, int, int]
"""(file in scratch, first row, number of rows)"""


def run(plan_json: str) -> None:
    """Make the shard files of a `pipeline.shards.Plan`.

    Raises:
        RecipeError: the settings ask for a mode that loses data.
    """
    plan = Plan.model_validate_json(plan_json)
    options = pipeline_options(plan.beam, plan.workers)
    for folder in ("tokens", "pools", "pieces", "statistics"):
        (plan.scratch / folder).mkdir()
    for part in plan.parts:
        (plan.out / part).mkdir(exist_ok=True)
    with beam.Pipeline(options=options) as pipeline:
        build(pipeline, plan)


def build(pipeline: beam.Pipeline, plan: Plan) -> None:
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
        self.tokenizer = load(self.plan.vocabulary)

    def process(self, element: tuple[str, int]) -> Iterator[tuple[PoolKey, Reference]]:
        """Write tokens/FILE-GROUP.arrow, sorted by pool."""
        plan = self.plan
        file, group = element
        with reported(plan.scratch, plan.out):
            with pq.ParquetFile(plan.documents / file) as parquet:
                table = parquet.read_row_group(group, ["doc_id", "text", "split", "sentence_ends", "repeat"])
            rows = []
            empty = 0
            for row in table.to_pylist():
                text, starts = row["text"], [0, *row["sentence_ends"]]
                sentences = [text[a:b] for a, b in pairwise(starts)]
                ids = [ids for ids in self.tokenizer.encode_ids(sentences) if len(ids)]
                empty += not ids
                if ids:
                    pool = stable_hash("pool", row["doc_id"]) % plan.parts[row["split"]].pools
                    repeat = row["repeat"] if row["split"] == "train" else 1.0
                    rows.append((row["split"], pool, row["doc_id"], repeat, ids))
            rows.sort(key=lambda row: row[:3])
            name = f"{file.removesuffix('.parquet')}-{group:06d}"
            path = plan.scratch / "tokens" / f"{name}.arrow"
            _write_arrow(path, _token_table(rows, plan.control.vocab_size))
            write_json(plan.scratch / "statistics" / f"tokens-{name}.json", {"no tokens": empty})
        keys = [row[:2] for row in rows]
        for key in sorted(set(keys)):
            yield key, (f"tokens/{path.name}", keys.index(key), keys.count(key))


def _token_table(rows: list[tuple[str, int, str, float, list[np.ndarray]]], vocab_size: int) -> pa.Table:
    sentences = [ids for row in rows for ids in row[4]]
    tokens = np.concatenate(sentences) if sentences else np.empty(0)
    lengths = np.array([len(ids) for ids in sentences], np.int32)
    ends = np.cumsum([0, *(len(row[4]) for row in rows)])
    token_ends = np.concatenate([[0], np.cumsum(lengths)])[ends]
    values = pa.array(tokens.astype(id_type(vocab_size).to_pandas_dtype()))
    return pa.table(
        {
            "doc_id": pa.array([row[2] for row in rows], pa.string()),
            "repeat": pa.array([row[3] for row in rows], pa.float32()),
            "tokens": pa.ListArray.from_arrays(pa.array(token_ends, pa.int32()), values),
            "sentence_lengths": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(lengths)),
        }
    )


# ── pool → instances ─────────────────────────────────────────────────────────────────────────────────────────────────


def gather_pool(element: tuple[PoolKey, Iterable[Reference]], plan: Plan) -> Iterator[tuple[str, int, int]]:
    """Write pools/PART-POOL.arrow, its documents sorted by doc_id; give (part, pool, pass) for every pass over it."""
    (part, pool), references = element
    with reported(plan.scratch, plan.out):
        table = pa.concat_tables([_read_arrow(plan.scratch, reference) for reference in sorted(references)])
        _write_arrow(plan.scratch / "pools" / f"{part}-{pool:06d}.arrow", table.sort_by("doc_id").combine_chunks())
    most = np.ceil(plan.parts[part].passes * max(table["repeat"].to_numpy()))
    for passed in range(int(most)):
        yield part, pool, passed


def read_pool(path: Path) -> Pool:
    """The documents of a pool file."""
    table = _table(path)
    tokens, _ = flat(table["tokens"])
    lengths, sentence_offsets = flat(table["sentence_lengths"])
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    bounds = [ends[a : b + 1].tolist() for a, b in pairwise(sentence_offsets)]
    return Pool(table["doc_id"].to_pylist(), tokens, bounds, table["repeat"].to_pylist())


def build_instances(element: tuple[str, int, int], plan: Plan) -> Iterator[tuple[PoolKey, Reference]]:
    """Write pieces/PART-POOL-PASS.arrow, sorted by (shard, place); give (part, shard) and where its rows are."""
    part, pool, passed = element
    files, passes = plan.parts[part].files, plan.parts[part].passes
    path = plan.scratch / "pieces" / f"{part}-{pool:06d}-{passed:04d}.arrow"
    with reported(plan.scratch, plan.out):
        documents = read_pool(plan.scratch / "pools" / f"{part}-{pool:06d}.arrow")
        table = pa.concat_tables(build_pass(documents, plan.config, plan.control, passes, passed)).combine_chunks()
        place = table["place"].to_numpy()
        shard = place % np.uint64(files)
        order = np.lexsort((place, shard))
        _write_arrow(path, table.take(pa.array(order)))
    first = np.searchsorted(shard[order], np.arange(files + 1, dtype=np.uint64))
    for number in range(files):
        rows = int(first[number + 1] - first[number])
        if rows:
            yield (part, number), (f"pieces/{path.name}", int(first[number]), rows)


# ── shard ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_shard(element: tuple[tuple[str, int], Iterable[Reference | None]], plan: Plan) -> None:
    """Write one shard file, its rows sorted by place, a range of places at a time."""
    (part, number), found = element
    references = sorted(reference for reference in found if reference is not None)
    config, control = plan.config, plan.control
    buckets = sum(rows for _, _, rows in references) // plan.bucket_rows + 1
    limits = [2**64 * bucket // buckets for bucket in range(buckets + 1)]
    schema = shard_schema(control.vocab_size, config.sentence_task)
    path = plan.out / part / f"shard-{number:05d}-of-{plan.parts[part].files:05d}.parquet"
    statistics: dict[str, int] = {}
    with reported(plan.scratch, plan.out):
        with replaced(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for low, high in pairwise(limits):
                slices = [_read_places(plan.scratch, reference, low, high) for reference in references]
                table = pa.concat_tables(
                    [scratch_schema(control.vocab_size, config.sentence_task).empty_table(), *slices]
                )
                table = table.combine_chunks().take(pa.array(np.argsort(table["place"].to_numpy(), kind="stable")))
                writer.write_table(table.select(schema.names).combine_chunks(), row_group_size=GROUP_ROWS)
                for name, count in count_rows(table, control).items():
                    statistics[name] = statistics.get(name, 0) + count
        write_json(plan.scratch / "statistics" / f"shard-{part}-{number:05d}.json", {part: statistics})


def count_rows(table: pa.Table, control: Control) -> dict[str, int]:
    """What the stage's statistics are made of, for rows of `scratch_schema`."""
    ids, offsets = flat(table["input_ids"])
    positions, masked_offsets = flat(table["masked_lm_positions"])
    original, _ = flat(table["masked_lm_ids"])
    now = ids[np.repeat(offsets[:-1], np.diff(masked_offsets)) + positions]
    counts = {
        "instances": len(table),
        "tokens": len(ids),
        "masked": len(now),
        "mask": int((now == control.mask_id).sum()),
        "keep": int(((now == original) & (now != control.mask_id)).sum()),
    }
    if "next_sentence_label" in table.column_names:
        label, one = table["next_sentence_label"].to_numpy(), table["sentences"].to_numpy() == 1
        counts |= {"random_next": int(label.sum()), "one_sentence": int(one.sum())}
        counts["random_next_of_more"] = int(label[~one].sum())
    return counts


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_arrow(path: Path, table: pa.Table) -> None:
    with (
        replaced(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as w,
    ):
        w.write_table(table)


def _table(path: Path) -> pa.Table:
    """A file of ours, mapped into memory."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def _read_arrow(scratch: Path, reference: Reference) -> pa.Table:
    name, first, rows = reference
    return _table(scratch / name).slice(first, rows)


def _read_places(scratch: Path, reference: Reference, low: int, high: int) -> pa.Table:
    """The rows of a piece with low ≤ place < high, copied, so that the file doesn't stay mapped."""
    table = _read_arrow(scratch, reference)
    place = table["place"].to_numpy()
    first = int(np.searchsorted(place, np.uint64(low)))
    end = len(place) if high == 2**64 else int(np.searchsorted(place, np.uint64(high)))
    return table.take(pa.array(np.arange(first, end)))
