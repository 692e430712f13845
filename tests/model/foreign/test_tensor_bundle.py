"""Checkpoints of TensorFlow: what TensorFlow wrote is read; what is damaged, or means harm, is refused by name.

tests/data/bundle and original_bert were written by TensorFlow itself (tests/data/make_original_bert.py). Other tables are
made here from LevelDB's description of the format, with nothing of the reader's.
"""

import random
import re
import shutil
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from model.foreign.tensor_bundle import MAX_INDEX_BYTES, entries, value
from pipeline.errors import DataError
from tests.crc32c import crc32c, masked_crc32c

DATA = Path(__file__).parents[2] / "data"
NUMBERS = np.arange(6).reshape(2, 3)


# ── a writer ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def masked(data: bytes) -> bytes:
    return masked_crc32c(data).to_bytes(4, "little")


def varint(number: int) -> bytes:
    return bytes([number % 128 | 128]) + varint(number // 128) if number > 127 else bytes([number])


def block(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Entries of a block, each key without what it shares with the one before; one place to restart from."""
    out, before = b"", b""
    for key, content in pairs:
        shared = next((n for n in range(len(key)) if key[: n + 1] != before[: n + 1]), len(key))
        out += varint(shared) + varint(len(key) - shared) + varint(len(content)) + key[shared:] + content
        before = key
    return out + bytes(4) + (1).to_bytes(4, "little")


def table(*blocks: bytes, compression: int = 0) -> bytes:
    out, handles = b"", []
    for number, content in enumerate(blocks):
        handles.append((b"~%d" % number, varint(len(out)) + varint(len(content))))
        out += content + bytes([compression]) + masked(content + bytes([compression]))
    places = []
    for content in (block([]), block(handles)):
        places.append(varint(len(out)) + varint(len(content)))
        out += content + b"\0" + masked(content + b"\0")
    return out + b"".join(places).ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")


HEADER = (b"", b"\x08\x01\x1a\x02\x08\x01")


def entry(data: bytes, shape: Sequence[int], offset: int = 0, dtype: int = 1, shard: int = 0, size: int = -1) -> bytes:
    dims = b"".join(b"\x12" + varint(len(varint(n)) + 1) + b"\x08" + varint(n) for n in shape)
    where = b"\x18" + varint(shard) + b"\x20" + varint(offset) + b"\x28" + varint(len(data) if size < 0 else size)
    return b"\x08" + varint(dtype) + b"\x12" + varint(len(dims)) + dims + where + b"\x35" + masked(data)


def written(folder: Path, whole: bytes, values: bytes = b"") -> Path:
    (folder / "x.ckpt.data-00000-of-00001").write_bytes(values)
    (folder / "x.ckpt.index").write_bytes(whole)
    return folder / "x.ckpt.index"


def test_the_checksum_of_this_test_is_the_published_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283


# ── what is read ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_tensorflow_wrote_in_two_shards_is_read() -> None:
    found = entries(DATA / "bundle" / "two.ckpt.index")
    names = ["a/double", "a/float", "b/bfloat16", "b/empty", "b/half", "b/int64", "b/scalar", "b/string"]
    assert list(found) == names
    expected = {
        "a/double": (NUMBERS / 4).astype(np.float64),
        "a/float": (NUMBERS / 2).astype(np.float32),
        "b/bfloat16": NUMBERS.astype(np.float32),
        "b/empty": np.zeros((0, 3), np.float32),
        "b/half": NUMBERS.astype(np.float16),
    }
    for name, right in expected.items():
        array = value(found[name])
        assert (array.dtype, array.shape) == (right.dtype, right.shape), name
        assert np.array_equal(array, right), name
    assert found["b/int64"].shape == (2, 3) and found["b/scalar"].shape == ()
    for name, kind in (("b/int64", 9), ("b/string", 7)):
        with pytest.raises(DataError, match=f"{name} has values of TensorFlow's type {kind}, not floats"):
            value(found[name])


@pytest.mark.parametrize("compressed", [False, True])
def test_many_blocks_and_compressed_ones_are_read(tmp_path: Path, compressed: bool) -> None:
    arrays = {f"scope/layer_{n:03d}/kernel": np.full((n % 3, 2), n, np.float32) for n in range(200)}
    data, pairs = b"", [HEADER]
    for name, array in arrays.items():
        pairs.append((name.encode(), entry(array.tobytes(), array.shape, len(data))))
        data += array.tobytes()
    blocks = [block(pairs[at : at + 30]) for at in range(0, len(pairs), 30)]
    if compressed:
        blocks = [bytes(pa.Codec("snappy").compress(each)) for each in blocks]
    found = entries(written(tmp_path, table(*blocks, compression=int(compressed)), data))
    assert list(found) == list(arrays)
    assert all(np.array_equal(value(found[name]), array) for name, array in arrays.items())


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


def refused(index: Path) -> str:
    """What is said of an index that is not read, which takes little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as error:
            for each in entries(index).values():
                value(each)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert str(index).removesuffix(".index") in error.value.what and error.value.todo
    return error.value.what


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (b"", "does not end in the magic number"),
        (b"PK\3\4" + bytes(100), "does not end in the magic number"),
        (
            bytes(40) + bytes.fromhex("57fb808b247547db"),
            "the checksum of the block at byte 0 is wrong|would end behind",
        ),
        (b"\xff" * 40 + bytes.fromhex("57fb808b247547db"), "a number does not end"),
        (
            (b"\0" + varint(2**62)).ljust(40, b"\0") + bytes.fromhex("57fb808b247547db"),
            f"a block of {2**62:,} bytes at byte 0 would end behind the table's 48 bytes",
        ),
        (table(), "it has no header"),
        (table(block([(b"a", b"")])), "it has no header"),
        (table(block([(b"", b"\xff")])), "the header can't be parsed"),
        (table(block([(b"", b"\x08\x01\x10\x01")])), "big-endian"),
        (table(block([(b"", b"\x08\x00")])), "it has 0 files of values"),
        (table(block([(b"", b"\x08" + varint(10**9))])), "it has 1000000000 files of values"),
        (table(block([HEADER, (b"a", b"\xff")])), "a can't be parsed"),
        (table(block([HEADER, (b"\xff", b"")])), "is no name"),
        (table(block([HEADER, (b"a", entry(b"", [], shard=1))])), "the entry of a makes no sense"),
        (table(block([HEADER, (b"a", entry(b"", [2**64 - 1]))])), "the entry of a makes no sense"),
        (table(block([HEADER, (b"b", b""), (b"a", b"")])), "its names are not in order"),
        (table(block([HEADER]), block([HEADER])), "its names are not in order"),
        (table(block([HEADER, (b"a" * 2000, b"")])), "longer than the block or its name"),
        (table(b"\0\0" + varint(2**60) + bytes(4) + b"\1\0\0\0"), "longer than the block or its name"),
        (table(b"\xff\xff\xff\xff"), "shorter than its list of restarts"),
        (table(b""), "shorter than its list of restarts"),
        (table(block([HEADER]), compression=2), "compressed by method 2, which is not known"),
        (table(varint(2**40) + b"abc", compression=1), "would unpack to 1,099,511,627,776 bytes"),
        (table(varint(99) + b"abc", compression=1), "can't be unpacked"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, whole: bytes, said: str) -> None:
    found = refused(written(tmp_path, whole))
    assert re.search(said, found) and "is no index of a TensorFlow checkpoint, or a damaged one" in found, found


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            entry(b"", [10**6, 10**6], size=4 * 10**12),
            "a ends at byte 4,000,000,000,000, the file has 4: it is cut off",
        ),
        (entry(b"", [1], offset=2**62, size=4), "it is cut off"),
        (entry(b"", [3], size=4), r"a has shape \[3\] but 4 bytes"),
        (entry(b"", [2**40, 2**40, 0], size=4), "but 4 bytes"),
        (entry(b"abcd", [1] * 100), "a has a shape that no array has"),
        (entry(b"", [2**40, 2**40, 0]), "a has a shape that no array has"),
        (entry(b"abce", [1]), "a: its checksum is wrong: the file is damaged"),
        (entry(b"abcd", [1]) + b"\x3a\x02\x0a\x00", "a is stored in slices"),
    ],
)
def test_an_entry_that_lies_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    found = refused(written(tmp_path, table(block([HEADER, (b"a", content)])), b"abcd"))
    assert re.search(said, found), found


def test_an_index_larger_than_any_is_not_read(tmp_path: Path) -> None:
    index = written(tmp_path, b"")
    with index.open("r+b") as file:
        file.truncate(MAX_INDEX_BYTES * 1000)  # a hole in the file: it takes no disk
    assert "bytes; the index of a BERT has less than" in refused(index)


def copied(folder: Path) -> Path:
    shutil.copytree(DATA / "bundle", folder / "bundle")
    return folder / "bundle" / "two.ckpt.index"


def gone(index: Path) -> None:
    index.with_name("two.ckpt.data-00001-of-00002").unlink()


def cut(index: Path) -> None:
    path = index.with_name("two.ckpt.data-00000-of-00002")
    path.write_bytes(path.read_bytes()[:-1])


def flipped(index: Path) -> None:
    path = index.with_name("two.ckpt.data-00001-of-00002")
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


@pytest.mark.parametrize(
    ("harm", "name", "said"),
    [
        (gone, "b/half", "two.ckpt.data-00001-of-00002 is missing; b/half lies in it"),
        (cut, "a/double", "two.ckpt.data-00000-of-00002: a/double ends at byte 72, the file has 71: it is cut off"),
        (flipped, "b/half", "two.ckpt.data-00001-of-00002: b/half: its checksum is wrong"),
    ],
)
def test_a_shard_that_is_missing_cut_or_damaged_is_named(
    tmp_path: Path, harm: Callable[[Path], None], name: str, said: str
) -> None:
    index = copied(tmp_path)
    harm(index)
    with pytest.raises(DataError, match=re.escape(said)):
        value(entries(index)[name])


def test_no_cut_and_no_flipped_byte_of_an_index_is_overlooked_or_ends_in_a_traceback(tmp_path: Path) -> None:
    index = copied(tmp_path)
    whole, right = index.read_bytes(), entries(index)
    for length in range(len(whole)):
        index.write_bytes(whole[:length])
        assert "is no index of a TensorFlow checkpoint" in refused(index)
    footer = len(whole) - 48
    for at in range(len(whole)):
        for mask in (1, 128):
            index.write_bytes(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
            try:
                found: Any = entries(index)
            except DataError:
                continue
            # only the padding behind the footer's two handles says nothing
            assert found == right and footer + 5 <= at < footer + 40, at


def test_whatever_a_block_with_a_right_checksum_says_there_is_no_traceback(tmp_path: Path) -> None:
    content = block([HEADER, *((b"scope/%d" % n, entry(b"abcd", [1], 4 * n)) for n in range(8))])
    draw = random.Random(3)
    for _ in range(1500):
        harmed = bytearray(content)
        for _ in range(draw.randint(1, 3)):
            harmed[draw.randrange(len(harmed))] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
        index = written(tmp_path, table(bytes(harmed)), b"abcd" * 8)
        try:
            for each in entries(index).values():
                value(each)
        except DataError as error:
            assert error.todo
