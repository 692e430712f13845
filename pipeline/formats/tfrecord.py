"""TFRecord files of google-research/bert's pretraining instances: the framing of records, and the fields of one.

A file is records one after the other. Each is, with numbers in little-endian order:

    length       uint64, bytes of the content
    length_crc   uint32, masked CRC-32C of the eight bytes before it
    content      a serialised tf.train.Example
    data_crc     uint32, masked CRC-32C of the content

`pipeline.sharding.tfrecord_export` writes such files from shards, `pipeline.sharding.tfrecord_import` makes shards of them.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from pipeline.errors import DataError

INT64_FIELDS = (
    *("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids"),
    "next_sentence_labels",
)
FLOAT_FIELDS = ("masked_lm_weights",)
"""The fields of an instance as create_pretraining_data.py of google-research/bert writes them. The first three are padded
to one length, those of the masks to another."""

HEAD = struct.Struct("<QI")
FOOT = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")

RECORD_BYTES = 1 << 20
"""A longer record is no instance of BERT's: one of 512 tokens has about 3 kB."""

_MASK_DELTA = 0xA282EAD8
"""Of TensorFlow's masked CRC (tensorflow/core/lib/hash/crc32c.h): rotated right by 15 bits, plus this, modulo 2³²."""


class Record(NamedTuple):
    """A record of a file."""

    number: int
    """from 1"""
    offset: int
    """of its first byte in the file, unpacked"""
    content: bytes


def masked_crc(data: bytes) -> int:
    """CRC-32C of `data`, masked as TFRecord files store it."""
    crc = google_crc32c.value(data)
    return int(((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF)


def masked_crcs(data: bytes, size: int, first: int, end: int) -> npt.NDArray[np.uint32]:
    """`masked_crc` of bytes `first` to `end` of every `size` bytes of `data`."""
    value = google_crc32c.value
    crcs = np.array([value(data[at + first : at + end]) for at in range(0, len(data), size)], np.uint32)
    return (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(_MASK_DELTA)


def head_of(length: int) -> bytes:
    """What stands before a content of so many bytes."""
    number = _LENGTH.pack(length)
    return number + FOOT.pack(masked_crc(number))


def place(path: Path, number: int, offset: int) -> str:
    """A record's place for messages."""
    return f"{path}, record {number} (byte {offset})"


def records(path: Path) -> Iterator[Record]:
    """The records of a file in order, one in memory at a time; a name that ends in .gz says that the file is packed.

    Raises:
        DataError: the file can't be read, is damaged or cut off, or has a record of more than `RECORD_BYTES`.
    """
    number, offset = 0, 0
    try:
        with _opened(path) as file:
            while head := file.read(HEAD.size):
                number += 1
                content = _content(file, head, place(path, number, offset))
                yield Record(number, offset, content)
                offset += HEAD.size + len(content) + FOOT.size
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        where = place(path, number, offset) if number else str(path)
        raise DataError(f"{where}: can't be unpacked: {error}", "Copy the file from its origin again.") from None
    except OSError as error:
        raise DataError(
            f"{path} can't be read: {error.strerror or error}", "Look at the file and its permissions, then run again."
        ) from None


def _opened(path: Path) -> BinaryIO | gzip.GzipFile:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _content(file: BinaryIO | gzip.GzipFile, head: bytes, where: str) -> bytes:
    again = "Copy the file from its origin again."
    if len(head) < HEAD.size:
        raise DataError(f"{where}: the file ends within the head of the record", again)
    length, length_crc = HEAD.unpack(head)
    if masked_crc(head[: _LENGTH.size]) != length_crc:
        todo = "It looks packed: let its name end in .gz." if head[:2] == b"\x1f\x8b" else again
        raise DataError(f"{where}: the checksum of the length is wrong: no TFRecord file, or a damaged one", todo)
    if length > RECORD_BYTES:
        raise DataError(
            f"{where}: a record of {length} bytes; one pretraining instance has at most {RECORD_BYTES}",
            "Name files of create_pretraining_data.py of google-research/bert, or of a writer like it.",
        )
    rest = file.read(length + FOOT.size)
    if len(rest) < length + FOOT.size:
        raise DataError(f"{where}: the file ends within the {length} bytes of the record", again)
    content = rest[:length]
    if masked_crc(content) != FOOT.unpack(rest[length:])[0]:
        raise DataError(f"{where}: the checksum of the content is wrong: the file is damaged", again)
    return content
