"""Shards → TFRecord files of google-research/bert's pretraining instances, for other trainers.

All records of a file have the same length, so that many are written at once as one numpy array: every token id takes
three bytes, where protobuf's own writer takes one to three (a varint may be padded with zeros; parsers take it).
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline import progress
from pipeline.errors import DataError
from pipeline.formats.tfrecord import FOOT, HEAD, head_of, masked_crcs
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import Array, Shards, shard_files

ID_BYTES = 3
"""of a token id: seven bits each, enough for 2,097,152 tokens"""
CHUNK_BYTES = 4 << 20
"""About so many are made at once."""


def export_tfrecords(folder: Path, out: Path, sequence_length: int, max_predictions_per_seq: int) -> dict[str, int]:
    """Write `out/NAME.tfrecord` for every shard file NAME.parquet of `folder` (`train` or `held_out`); {file: rows}.

    Rows keep their order. They are padded with zeros to `sequence_length` tokens and `max_predictions_per_seq` masks.
    Rows without a sentence task are written as the format wants it: segment 0, label 0.

    Raises:
        DataError: the shards store no masks, or a row is longer than the lengths given.
        OSError: `out` can't be written; the files may be incomplete then.
    """
    reader = ShardReader(folder)
    if not reader.stores_masks:
        raise DataError(
            f"{folder} stores no masks, and TFRecord files of BERT's hold masked instances",
            "Export the shards of a recipe with shards: {objective: mlm, masking: static}.",
        )
    template, fields = layout(sequence_length, max_predictions_per_seq)
    at_once = max(1, CHUNK_BYTES // fields.itemsize)
    out.mkdir(parents=True, exist_ok=True)
    written: dict[str, int] = {}
    first = 0
    for path in shard_files(folder):
        rows = sum(int(size) for (of, _), size in zip(reader.groups, reader.sizes, strict=True) if of == path)
        with (out / f"{path.stem}.tfrecord").open("wb") as file:
            for start in range(0, rows, at_once):
                end = min(start + at_once, rows)
                shards = reader.take(np.arange(first + start, first + end))
                _check(shards, path, start, sequence_length, max_predictions_per_seq)
                file.write(encoded(shards, template, fields))
                progress.report(first + end, len(reader), f"rows of {folder.name}")
        written[f"{path.stem}.tfrecord"] = rows
        first += rows
    return written


def _check(shards: Shards, path: Path, first: int, sequence_length: int, max_predictions_per_seq: int) -> None:
    for counts, most, unit in (
        (shards.lengths, sequence_length, "tokens"),
        (np.diff(shards.masked_offsets), max_predictions_per_seq, "masks"),
    ):
        if len(over := np.flatnonzero(counts > most)):
            row = int(over[0])
            raise DataError(
                f"{path}, row {first + row}: {counts[row]} {unit}, but records shall hold {most}",
                "Ask for longer records.",
            )
    largest = max((int(ids.max()) for ids in (shards.input_ids, shards.masked_ids) if len(ids)), default=0)
    if largest >= 1 << 7 * ID_BYTES:
        raise DataError(
            f"{path}: token id {largest} does not fit in the {ID_BYTES} bytes that an id is written in",
            "Take a smaller vocabulary.",
        )


def layout(sequence_length: int, max_predictions_per_seq: int) -> tuple[bytes, np.dtype[np.void]]:
    """A whole record whose values are all 0, and where in it the values of each field stand.

    An Example is {1: {1: [{1: name, 2: {2: {1: floats}} or {3: {1: integers}}}, …]}} in the notation {field: content};
    bytes as in https://protobuf.dev/programming-guides/encoding.
    """
    position_bytes = 1 if sequence_length <= 1 << 7 else 2 if sequence_length <= 1 << 14 else 3
    values = {
        "input_ids": np.dtype(("u1", (sequence_length, ID_BYTES))),
        "input_mask": np.dtype(("u1", (sequence_length,))),
        "segment_ids": np.dtype(("u1", (sequence_length,))),
        "masked_lm_positions": np.dtype(("u1", (max_predictions_per_seq, position_bytes))),
        "masked_lm_ids": np.dtype(("u1", (max_predictions_per_seq, ID_BYTES))),
        "masked_lm_weights": np.dtype(("<f4", (max_predictions_per_seq,))),
        "next_sentence_labels": np.dtype(("u1", (1,))),
    }
    features, starts = b"", {}
    for name, of in values.items():
        numbers = _delimited(2 if of.base.kind == "f" else 3, _delimited(1, bytes(of.itemsize)))
        features += _delimited(1, _delimited(1, name.encode()) + _delimited(2, numbers))
        starts[name] = len(features) - of.itemsize  # they end their feature
    example = _delimited(1, features)
    before = HEAD.size + len(example) - len(features)
    template = head_of(len(example)) + example + bytes(FOOT.size)
    fields = np.dtype(
        {
            "names": [*values, "data_crc"],
            "formats": [*values.values(), np.dtype("<u4")],
            "offsets": [*(before + start for start in starts.values()), len(template) - FOOT.size],
            "itemsize": len(template),
        }
    )
    return template, fields


def _delimited(number: int, content: bytes) -> bytes:
    """A field of a protobuf message: its number, the length of the content, the content."""
    length, rest = b"", len(content)
    while rest > 0x7F:
        length += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return bytes([number << 3 | 2]) + length + bytes([rest]) + content


def encoded(shards: Shards, template: bytes, fields: np.dtype[np.void]) -> bytearray:
    """The rows as records one after the other, by a template and its fields from `layout`."""
    raw = bytearray(template * len(shards))
    out = np.frombuffer(raw, fields)
    places = np.arange(out["input_mask"].shape[1])
    used = places < shards.lengths[:, None]  # [rows, sequence_length]
    _put_varints(out["input_ids"], used, shards.input_ids)
    out["input_mask"] = used
    if shards.token_type_start is not None and shards.label is not None:
        out["segment_ids"] = used & (places >= shards.token_type_start[:, None])
        out["next_sentence_labels"] = shards.label[:, None]
    masked = np.arange(out["masked_lm_weights"].shape[1]) < np.diff(shards.masked_offsets)[:, None]
    _put_varints(out["masked_lm_positions"], masked, shards.masked_positions)
    _put_varints(out["masked_lm_ids"], masked, shards.masked_ids)
    out["masked_lm_weights"] = masked
    out["data_crc"] = masked_crcs(bytes(raw), fields.itemsize, HEAD.size, fields.itemsize - FOOT.size)
    return raw


def _put_varints(target: Array, used: npt.NDArray[np.bool_], values: Array) -> None:
    """Write values as varints of equal length into `target` [rows, n, bytes], one after the other where `used` [rows, n].

    All bytes of a value but the last have the bit that says "more follows", those of the zeros that pad a row too.
    """
    padded = np.zeros(used.shape, np.uint32)
    padded[used] = values
    last = target.shape[-1] - 1
    for number in range(last + 1):
        seven = padded >> np.uint32(7 * number) & np.uint32(0x7F)
        target[..., number] = seven | np.uint32(0x80) if number < last else seven
