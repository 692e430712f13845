"""TensorFlow's checkpoints of its second format ("tensor bundle"), read without TensorFlow and believed in nothing.

    PREFIX.index                    a table of LevelDB's: names in order, to each where its value lies
    PREFIX.data-00000-of-00001      the values, one after the other, in as many files as the name says

A table ends in 48 bytes: where the block of indexes lies, and a magic number. A block is entries, whose keys leave out what
they share with the key before, then places to restart from; a byte for its compression and a checksum follow. The block of
indexes names the other blocks. The first key is empty and has a `Header`, every other one an `Entry`.

Sources: LevelDB's doc/table_format.md; tensorflow/core/protobuf/tensor_bundle.proto and framework/tensor_shape.proto.
"""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from pipeline.errors import DataError
from pipeline.formats.tfrecord import masked_crc

INDEX = ".index"
MAX_INDEX_BYTES = 16 << 20
"""A BERT of 24 layers with the moments of its optimizer has less than 100 kB."""
MAX_BLOCK_BYTES = 4 << 20
"""TensorFlow begins a new block after 256 KiB."""
MAX_NAME = 1024

_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
_TRAILER = 5
_PLAIN, _SNAPPY = 0, 1
_LITTLE = 0
_FLOATS = {1: "<f4", 2: "<f8", 19: "<f2", 14: "bfloat16"}
"""Values of DataType in tensorflow/core/framework/types.proto that weights have."""
_AGAIN = "Copy the checkpoint from its origin again."

_PROTO = """
name: "tensor_bundle.proto" package: "tensor_bundle" syntax: "proto3"
message_type { name: "Header"
  field { name: "num_shards" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "endianness" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 }
}
message_type { name: "Dim" field { name: "size" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64 } }
message_type { name: "Shape"
  field { name: "dim" number: 2 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".tensor_bundle.Dim" }
  field { name: "unknown_rank" number: 3 label: LABEL_OPTIONAL type: TYPE_BOOL }
}
message_type { name: "Entry"
  field { name: "dtype" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "shape" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensor_bundle.Shape" }
  field { name: "shard_id" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "offset" number: 4 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "size" number: 5 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "crc32c" number: 6 label: LABEL_OPTIONAL type: TYPE_FIXED32 }
  field { name: "slices" number: 7 label: LABEL_REPEATED type: TYPE_BYTES }
}
"""


@dataclass(frozen=True)
class Entry:
    """Where a value lies, and what it is."""

    name: str
    file: Path
    dtype: int
    shape: tuple[int, ...]
    offset: int
    size: int
    """bytes"""
    crc: int
    """masked CRC-32C of these bytes"""
    sliced: bool
    """whether it is stored in parts, under names of their own"""


class _Broken(Exception):
    """What is wrong with a table, in words."""


def entries(index: Path) -> dict[str, Entry]:
    """The names of a checkpoint in order, and where their values lie; reads none of these. `index` is PREFIX.index.

    Raises:
        DataError: the file is no such table, is damaged or cut off, or larger than one of a BERT's can be.
    """
    try:
        size = index.stat().st_size
        if size > MAX_INDEX_BYTES:
            raise _Broken(f"it has {size:,} bytes; the index of a BERT has less than {MAX_INDEX_BYTES:,}")
        return _entries(index, index.read_bytes())
    except OSError as error:
        raise DataError(f"{index} can't be read: {error.strerror or error}", _AGAIN) from None
    except _Broken as error:
        raise DataError(f"{index} is no index of a TensorFlow checkpoint, or a damaged one: {error}", _AGAIN) from None


def value(entry: Entry) -> npt.NDArray[Any]:
    """The value of an entry: float16, float32 or float64 (bfloat16 as float32), of the entry's shape.

    Raises:
        DataError: it is no tensor of floats, or the file that it lies in is missing, cut off or damaged.
    """
    where = f"{entry.file}: {entry.name}"
    kind = _FLOATS.get(entry.dtype)
    if kind is None:
        raise DataError(f"{where} has values of TensorFlow's type {entry.dtype}, not floats", "Take a BERT's weights.")
    if entry.sliced:
        raise DataError(f"{where} is stored in slices, which are not read", "Save it with a Saver that has no slices.")
    width = 2 if kind == "bfloat16" else np.dtype(kind).itemsize
    if math.prod(entry.shape) * width != entry.size:
        raise DataError(f"{where} has shape {list(entry.shape)} but {entry.size:,} bytes", _AGAIN)
    try:
        with entry.file.open("rb") as file:
            there = os.fstat(file.fileno()).st_size
            if entry.offset + entry.size > there:
                what = f"ends at byte {entry.offset + entry.size:,}, the file has {there:,}: it is cut off"
                raise DataError(f"{where} {what}", _AGAIN)
            file.seek(entry.offset)
            data = file.read(entry.size)
    except FileNotFoundError:
        raise DataError(f"{entry.file} is missing; {entry.name} lies in it", _AGAIN) from None
    except OSError as error:
        raise DataError(f"{entry.file} can't be read: {error.strerror or error}", _AGAIN) from None
    if len(data) != entry.size or masked_crc(data) != entry.crc:
        raise DataError(f"{where}: its checksum is wrong: the file is damaged", _AGAIN)
    if kind == "bfloat16":  # the upper half of a float32
        array = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        array = np.frombuffer(data, kind)
    try:
        return array.reshape(entry.shape)
    except ValueError:  # of very many dimensions, or huge ones beside a 0
        raise DataError(f"{where} has a shape that no array has: {str(list(entry.shape))[:100]}", _AGAIN) from None


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _entries(index: Path, table: bytes) -> dict[str, Entry]:
    parse_header, parse_entry = _messages()
    pairs = _pairs(table)
    key, content = next(pairs, (b"none", b""))
    if key:
        raise _Broken("it has no header")
    header = _parsed(parse_header, content, "the header")
    if header.endianness != _LITTLE:
        raise _Broken("its values are in big-endian order, which is not read")
    if not 1 <= header.num_shards <= 99_999:
        raise _Broken(f"it has {header.num_shards} files of values")
    prefix, found = str(index).removesuffix(INDEX), {}
    for key, content in pairs:
        try:
            name = key.decode("utf-8")
        except UnicodeDecodeError:
            raise _Broken(f"{key[:100]!r} is no name") from None
        said = _parsed(parse_entry, content, name)
        shape = tuple(dim.size for dim in said.shape.dim)
        numbers = (said.shard_id, said.offset, said.size, *shape)
        if min(numbers) < 0 or said.shape.unknown_rank or said.shard_id >= header.num_shards:
            raise _Broken(f"the entry of {name} makes no sense")
        file = Path(f"{prefix}.data-{said.shard_id:05d}-of-{header.num_shards:05d}")
        found[name] = Entry(
            name, file, said.dtype, shape, said.offset, said.size, said.crc32c, sliced=bool(said.slices)
        )
    return found


@cache
def _messages() -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
    """The parsers of `Header` and `Entry`."""
    pool = descriptor_pool.DescriptorPool()  # of its own: TensorFlow may have described the same elsewhere
    pool.Add(text_format.Parse(_PROTO, descriptor_pb2.FileDescriptorProto()))

    def of(name: str) -> Callable[[bytes], Any]:
        parse: Callable[[bytes], Any] = message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"tensor_bundle.{name}")
        ).FromString
        return parse

    return of("Header"), of("Entry")


def _parsed(parse: Callable[[bytes], Any], content: bytes, what: str) -> Any:
    try:
        return parse(content)
    except DecodeError:
        raise _Broken(f"{what} can't be parsed") from None


def _pairs(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a table; every key is above the one before, so that none is told twice."""
    if len(table) < _FOOTER or int.from_bytes(table[-8:], "little") != _MAGIC:
        raise _Broken("it does not end in the magic number of a table: another kind of file, or it is cut off")
    footer, at = table[-_FOOTER:-8], 0
    block = b""
    for _ in range(2):  # the first is the meta index, which says nothing here
        offset, at = _varint(footer, at)
        size, at = _varint(footer, at)
        block = _block(table, offset, size)
    before = None
    for _, handle in _block_pairs(block):
        offset, at = _varint(handle, 0)
        size, at = _varint(handle, at)
        for key, content in _block_pairs(_block(table, offset, size)):
            if before is not None and key <= before:
                raise _Broken("its names are not in order")
            before = key
            yield key, content


def _block(table: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER > len(table) - _FOOTER:
        raise _Broken(f"a block of {size:,} bytes at byte {offset:,} would end behind the table's {len(table):,} bytes")
    if masked_crc(table[offset : end + 1]) != int.from_bytes(table[end + 1 : end + _TRAILER], "little"):
        raise _Broken(f"the checksum of the block at byte {offset:,} is wrong")
    block, compression = table[offset:end], table[end]
    if compression == _PLAIN:
        return block
    if compression != _SNAPPY:
        raise _Broken(f"the block at byte {offset:,} is compressed by method {compression}, which is not known")
    size, _ = _varint(block, 0)
    if size > MAX_BLOCK_BYTES:
        raise _Broken(f"the block at byte {offset:,} would unpack to {size:,} bytes")
    try:
        return bytes(pa.Codec("snappy").decompress(block, size, asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise _Broken(f"the block at byte {offset:,} can't be unpacked: {error}") from None


def _block_pairs(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise _Broken("a block is shorter than its list of restarts")
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        size, at = _varint(block, at)
        if shared > len(key) or shared + own > MAX_NAME or at + own + size > end:
            raise _Broken("an entry of a block is longer than the block or its name")
        key = key[:shared] + block[at : at + own]
        at += own + size
        yield key, block[at - size : at]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of at most 64 bits in groups of seven, the lowest first; and where the next one begins."""
    number = 0
    for place, byte in enumerate(data[at : at + 10]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise _Broken("a number does not end")
