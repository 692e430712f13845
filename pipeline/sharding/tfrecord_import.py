"""TFRecord files of google-research/bert's pretraining instances → shards of ours.

What a record holds is checked field by field before any of it is kept; nothing is skipped. The padding goes, and so do
masks of weight 0. The files don't say which documents a row is from: its list of `documents` is empty.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from pipeline import progress
from pipeline.config import Shards as ShardConfig
from pipeline.errors import DataError, StoreError
from pipeline.formats.tfrecord import FLOAT_FIELDS, HEAD, INT64_FIELDS, Record, place, records
from pipeline.sharding.shard_schema import Array, shard_schema
from pipeline.storage.content import file_sha256
from pipeline.system import atomic
from pipeline.tokenizer import check, read_vocabulary

CHUNK_BYTES = 1 << 20
"""Of records that are decoded and checked at once."""
GROUP_ROWS = 16_384
GROUP_BYTES = 32 << 20
"""A row group of a shard file is full when it has one of both."""
MAX_TOKENS = 65_536
"""of a row: a shard has its positions in two bytes"""

_WHAT_FITS = "The files must be those of create_pretraining_data.py of google-research/bert, or of a writer like it."
_WHOSE = "Name the vocabulary that the files were made with."


def import_tfrecords(paths: Sequence[Path], vocabulary: Path, out: Path) -> dict[str, Any]:
    """Write `out/shard-….parquet`, one for each file of `paths` (a folder stands for the files in it), and imported.json.

    `vocabulary` is the vocab.txt that the files were made with. imported.json, which is returned, names every file with
    its SHA-256, its rows and its shard.

    Raises:
        DataError: a file is missing, damaged, or has a record that is no BERT instance over this vocabulary.
        StoreError: `out` exists already, or can't be written. Whatever is raised, nothing is left behind.
    """
    numbers = check(read_vocabulary(vocabulary), str(vocabulary))
    files = _files(paths)
    if out.exists():
        raise StoreError(f"{out} exists already", "Name a folder that does not, or remove it first.")
    partial = out.with_name(f".{out.name}.partial")
    with atomic.explained(out):
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            told: list[dict[str, Any]] = []
            for number, path in enumerate(files):
                shard = f"shard-{number:05d}-of-{len(files):05d}.parquet"
                rows = _import_file(path, numbers, partial / shard)
                atomic.fsync_file(partial / shard)
                told.append({"file": path.name, "sha256": file_sha256(path), "rows": rows, "shard": shard})
                progress.report(number + 1, len(files), "files")
            done = {
                "rows": sum(each["rows"] for each in told),
                "vocabulary": {"file": vocabulary.name, "sha256": file_sha256(vocabulary), "size": len(numbers)},
                "files": told,
            }
            if not done["rows"]:
                raise DataError(f"{', '.join(map(str, paths))}: no records", _WHAT_FITS)
            atomic.write_json(partial / "imported.json", done)
            atomic.rename_folder(partial, out)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return done


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            listed = sorted(each for each in path.iterdir() if each.is_file())
            found = [each for each in listed if each.name[0] != "." and each.name != "lineage.json"]
            if not found:
                folders = ", ".join(sorted(each.name for each in path.iterdir() if each.is_dir()))
                raise DataError(
                    f"{path} holds no TFRecord files" + (f", but folders: {folders}" if folders else ""),
                    "Name the folder that holds the files.",
                )
            files += found
        elif path.exists():
            files.append(path)
        else:
            raise DataError(f"{path} does not exist", "Name TFRecord files, or a folder of them.")
    return files


def _import_file(path: Path, vocabulary: dict[str, int], shard: Path) -> int:
    """Write a shard file of a TFRecord file; its rows."""
    schema = shard_schema(len(vocabulary), ShardConfig())
    waiting: list[pa.Table] = []
    rows = size = done = 0
    with pq.ParquetWriter(shard, schema, compression="zstd") as writer:

        def write() -> None:
            group = pa.concat_tables(waiting).combine_chunks()
            writer.write_table(group, row_group_size=len(group))

        for batch in _batches(records(path)):
            waiting.append(_table(batch, vocabulary, schema, path))
            rows, size, done = rows + len(batch), size + waiting[-1].nbytes, done + len(batch)
            if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                write()
                waiting, rows, size = [], 0, 0
            progress.report(done, None, f"rows of {path.name}")
        if waiting:
            write()
    return done


def _batches(found: Iterator[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in found:
        batch.append(record)
        size += HEAD.size + len(record.content)
        if size >= CHUNK_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# ── records → numbers ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Lists:
    """A field of many records: record i has `values[offsets[i]:offsets[i+1]]`."""

    values: Array
    offsets: npt.NDArray[np.int64]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Values of each record."""
        return np.diff(self.offsets)

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """The place of each value in its record."""
        return np.arange(len(self.values)) - np.repeat(self.offsets[:-1], self.lengths)

    def count(self, of: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """[records] how many of a record's values are so; `of` says it of each value."""
        return np.diff(np.concatenate([[0], np.cumsum(of)])[self.offsets])

    def only(self, of: npt.NDArray[np.bool_]) -> "Lists":
        """Those of the values that are so."""
        return Lists(self.values[of], np.concatenate([[0], np.cumsum(self.count(of))]))


@cache
def _example() -> Callable[[bytes], Any]:
    """The parser of tf.train.Example, by protobuf, from a description like tensorflow/core/example/example.proto."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="example", syntax="proto3")

    def add(message: Any, name: str, number: int, kind: Any, repeated: bool = False, **more: Any) -> None:
        label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
        message.field.add(name=name, number=number, type=kind, label=label, **more)

    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    lists = {"BytesList": field.TYPE_BYTES, "FloatList": field.TYPE_FLOAT, "Int64List": field.TYPE_INT64}
    for number, (name, kind) in enumerate(lists.items(), 1):
        add(file.message_type.add(name=name), "value", 1, kind, repeated=True)
        snake = name.replace("List", "_list").lower()
        add(feature, snake, number, field.TYPE_MESSAGE, type_name=f".example.{name}", oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, field.TYPE_STRING)
    add(entry, "value", 2, field.TYPE_MESSAGE, type_name=".example.Feature")
    add(features, "feature", 1, field.TYPE_MESSAGE, repeated=True, type_name=".example.Features.FeatureEntry")
    add(file.message_type.add(name="Example"), "features", 1, field.TYPE_MESSAGE, type_name=".example.Features")
    pool = descriptor_pool.DescriptorPool()  # of its own: TensorFlow may have described the same elsewhere
    pool.Add(file)
    parse: Callable[[bytes], Any] = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("example.Example")
    ).FromString
    return parse


def _read(batch: Sequence[Record], path: Path) -> dict[str, Lists]:
    """The fields of records by their names; DataError for a record that is no Example, or has other fields."""
    kinds = {**dict.fromkeys(INT64_FIELDS, "int64_list"), **dict.fromkeys(FLOAT_FIELDS, "float_list")}
    parse = _example()
    examples = []
    for record in batch:
        where = place(path, record.number, record.offset)
        try:
            example = parse(record.content).features.feature
        except DecodeError:
            raise DataError(f"{where}: the content is no tf.train.Example", _WHAT_FITS) from None
        if set(example) != set(kinds):
            names = ", ".join(sorted(map(repr, example))[:20]) or "none"
            raise DataError(f"{where}: the fields are {names}; those of an instance are {', '.join(kinds)}", _WHAT_FITS)
        for name, kind in kinds.items():
            if (found := example[name].WhichOneof("kind")) != kind:
                raise DataError(f"{where}: {name} is {found or 'empty'}, not {kind}", _WHAT_FITS)
        examples.append(example)
    lists = {}
    for name, kind in kinds.items():
        values = [getattr(example[name], kind).value for example in examples]
        offsets = np.concatenate([[0], np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))])
        number_type = np.int64 if kind == "int64_list" else np.float32
        lists[name] = Lists(np.fromiter(chain.from_iterable(values), number_type, int(offsets[-1])), offsets)
    return lists


# ── numbers → rows ───────────────────────────────────────────────────────────────────────────────────────────────────


def _table(batch: Sequence[Record], vocabulary: dict[str, int], schema: pa.Schema, path: Path) -> pa.Table:
    """Records as rows of a shard; DataError for the first that breaks a rule of the format."""

    def refuse(bad: npt.NDArray[np.bool_], what: str, todo: str = _WHAT_FITS) -> None:
        if bad.any():
            record = batch[int(np.argmax(bad))]
            raise DataError(f"{place(path, record.number, record.offset)}: {what}", todo)

    fields = _read(batch, path)
    padded, mask, segments = (fields[name] for name in ("input_ids", "input_mask", "segment_ids"))
    positions, masked_ids = fields["masked_lm_positions"], fields["masked_lm_ids"]
    weights, label = fields["masked_lm_weights"], fields["next_sentence_labels"]
    refuse(
        (padded.lengths != mask.lengths) | (padded.lengths != segments.lengths),
        "input_ids, input_mask and segment_ids differ in length",
    )
    refuse(
        (positions.lengths != masked_ids.lengths) | (positions.lengths != weights.lengths),
        "masked_lm_positions, masked_lm_ids and masked_lm_weights differ in length",
    )
    refuse(label.lengths != 1, "next_sentence_labels must be one number")
    refuse((label.values != 0) & (label.values != 1), "next_sentence_labels must be 0 or 1")

    tokens = mask.count(mask.values == 1)
    used = mask.places < np.repeat(tokens, mask.lengths)
    refuse(mask.count(mask.values != used) > 0, "input_mask must be ones, then zeros")
    refuse(tokens < 2, "no tokens")
    refuse(tokens > MAX_TOKENS, f"more than {MAX_TOKENS} tokens")
    ids = padded.only(used)
    in_vocabulary = f"ids must be 0 to {len(vocabulary) - 1}, those of the vocabulary"
    refuse(ids.count((ids.values < 0) | (ids.values >= len(vocabulary))) > 0, f"input_ids: {in_vocabulary}", _WHOSE)
    for end, token in ((ids.offsets[:-1], "[CLS]"), (ids.offsets[1:] - 1, "[SEP]")):
        edge = "first" if token == "[CLS]" else "last"
        refuse(
            ids.values[end] != vocabulary[token], f"the {edge} token is not {token}, {vocabulary[token]} here", _WHOSE
        )
    types = segments.only(used)
    start = types.count(types.values == 0)
    second = types.places >= np.repeat(start, types.lengths)
    refuse(types.count(types.values != second) > 0, "segment_ids must be zeros, then ones")

    refuse(
        weights.count((weights.values != 0) & (weights.values != 1)) > 0,
        "masked_lm_weights must be 0 or 1: shards have no other weights",
    )
    masks = weights.values == 1
    positions, masked_ids = positions.only(masks), masked_ids.only(masks)
    outside = (positions.values < 0) | (positions.values >= np.repeat(tokens, positions.lengths))
    refuse(positions.count(outside) > 0, "masked_lm_positions must lie within the tokens")
    falling = (np.diff(positions.values, prepend=0) <= 0) & (positions.places > 0)
    refuse(positions.count(falling) > 0, "masked_lm_positions must rise from each to the next")
    unknown = (masked_ids.values < 0) | (masked_ids.values >= len(vocabulary))
    refuse(masked_ids.count(unknown) > 0, f"masked_lm_ids: {in_vocabulary}", _WHOSE)

    columns: dict[str, Lists | Array] = {
        "input_ids": ids,
        "token_type_start": start,
        "masked_lm_positions": positions,
        "masked_lm_ids": masked_ids,
        "next_sentence_label": label.values,
        "documents": Lists(np.empty(0, np.str_), np.zeros(len(batch) + 1, np.int64)),
    }
    return pa.Table.from_arrays([_array(columns[field.name], field.type) for field in schema], schema=schema)


def _array(column: Lists | Array, of: pa.DataType) -> pa.Array:
    if isinstance(column, Lists):
        values = pa.array(column.values, of.value_type)
        return pa.ListArray.from_arrays(pa.array(column.offsets, pa.int32()), values, type=of)
    return pa.array(column, of)
