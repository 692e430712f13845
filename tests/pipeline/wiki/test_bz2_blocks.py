"""Blocks of a .bz2 file from anywhere in it; the text is always that of Python's own decompressor."""

import bz2
import io
import random

import pytest

from pipeline.wiki.bz2_blocks import BLOCK_MARK, BrokenBz2, _marks, blocks

RANDOM = random.Random(11)
TEXT = " ".join(f"{RANDOM.random():.9f}" for _ in range(60_000)).encode()  # 720 kB, 8 blocks of level 1
ONE = bz2.compress(TEXT, 1)
EMPTY = bz2.compress(b"")
MANY = b"".join(bz2.compress(TEXT[i : i + 150_000], 1) for i in range(0, len(TEXT), 150_000))


def characters_with_bits(words: list[int], row: int) -> list[str]:
    """The characters whose presence makes bzip2 write these 16-bit words into a block's head, one for each 16 bytes of
    the alphabet: bit n of the word for row r stands for byte 16·r+n."""
    used = [16 * (row + at) + n for at, word in enumerate(words) for n in range(16) if word >> (15 - n) & 1]
    return [chr(byte) if byte < 0x80 else bytes([0xD0, byte]).decode() for byte in used]


def random_text(alphabet: list[str], characters: int) -> bytes:
    source = random.Random(3)
    return "".join(source.choice(alphabet) for _ in range(characters)).encode()


FALSE_BLOCKS = random_text(characters_with_bits([0x3141, 0x5926, 0x5359], row=8), 400_000)
FALSE_STREAMS = random_text(characters_with_bits([0x425A, 0x6839, 0x3141, 0x5926, 0x5359], row=4), 2_000_000)
"""Text whose compressed blocks hold the mark of a block, and the header of a stream with it: BZh9 1AY&SY."""


def text_of(found) -> bytes:
    return b"".join(piece for block in found for piece in block.pieces)


@pytest.mark.parametrize(
    ("data", "text", "streams"),
    [
        (ONE, TEXT, 1),
        (MANY, TEXT, 5),
        (EMPTY + MANY + EMPTY * 2 + ONE + EMPTY, TEXT * 2, 6),
        (EMPTY, b"", 0),
        (bz2.compress(b"a"), b"a", 1),
    ],
)
def test_the_text_of_all_blocks_is_the_text_of_the_file(data, text, streams):
    found = list(blocks(io.BytesIO(data)))
    assert text_of(found) == text == bz2.decompress(data)
    assert sum(block.ends_stream for block in found) == streams


@pytest.mark.parametrize("data", [ONE, MANY, EMPTY + MANY + EMPTY], ids=["one", "many", "with empty ones"])
def test_from_any_byte_come_the_blocks_that_begin_there_or_later(data):
    whole = list(blocks(io.BytesIO(data)))
    for start in [1, 4, 5, 14, len(data) - 20, len(data) - 1, *range(7, len(data), len(data) // 23)]:
        assert list(blocks(io.BytesIO(data), start)) == [block for block in whole if block.at >= 8 * start]


@pytest.mark.parametrize(("text", "byte"), [(FALSE_BLOCKS, False), (FALSE_STREAMS, True)], ids=["block", "stream"])
def test_a_mark_inside_compressed_data_is_no_block(text, byte):
    data = bz2.compress(text, 1)
    whole = list(blocks(io.BytesIO(data)))
    real = {block.at for block in whole}
    false = [at for at in _marks(data, 0, 0) if at not in real]
    assert text_of(whole) == text and false
    if byte:
        false = [at for at in false if at % 8 == 0]
        assert data[false[0] // 8 - 4 : false[0] // 8 + 6] == b"BZh9" + BLOCK_MARK.to_bytes(6, "big")
    for at in false[:4]:  # a part may begin at such a place
        assert list(blocks(io.BytesIO(data), at // 8)) == [block for block in whole if block.at >= at // 8 * 8]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", None),
        (b"BZ", "cut off"),
        (b"BZh9", "cut off"),
        (b"PK\3\4 and more than fourteen bytes", "something else, at byte 0"),
        (ONE[:-1], "cut off: its compressed data ends at byte"),
        (ONE[:-11], "cut off"),
        (ONE[: len(ONE) // 2], f"cut off: its compressed data ends at byte {len(ONE) // 2:,} in the middle"),
        (ONE + b"garbage", f"something else, at byte {len(ONE):,}"),
        (ONE + b"\0", f"something else, at byte {len(ONE):,}"),
        (ONE + b"xx" + ONE, f"something else, at byte {len(ONE):,}"),
        (ONE[:-4] + bytes(4), "checksum is wrong|damaged"),
    ],
)
def test_what_is_broken_is_said(data, message):
    if message is None:
        assert list(blocks(io.BytesIO(data))) == []
        return
    with pytest.raises(BrokenBz2, match=message):
        list(blocks(io.BytesIO(data)))


def test_marks_that_overlap_are_no_blocks():
    """A mark of 6 bytes right behind another, where a block needs 10 to begin."""
    mark = BLOCK_MARK.to_bytes(6, "big")
    packed = bz2.compress(b"text " * 100)
    for data in (b"BZh9" + mark + packed[4:], b"BZh9" + mark * 3, packed[:4] + mark * 2 + packed[4:]):
        with pytest.raises(BrokenBz2):
            list(blocks(io.BytesIO(data)))


@pytest.mark.parametrize("data", [ONE, MANY], ids=["one", "many"])
def test_every_flipped_bit_is_found_and_nothing_wrong_is_given(data):
    source = random.Random(5)
    for _ in range(12):
        damaged = bytearray(data)
        damaged[source.randrange(len(data))] ^= 1 << source.randrange(8)
        read = []
        with pytest.raises(BrokenBz2):
            read.extend(blocks(io.BytesIO(bytes(damaged))))
        assert TEXT.startswith(text_of(read))


def test_a_bomb_comes_in_bounded_pieces():
    data = bz2.compress(bytes(40_000_000))
    assert len(data) < 100
    sizes = [len(piece) for block in blocks(io.BytesIO(data)) for piece in block.pieces]
    assert sum(sizes) == 40_000_000 and max(sizes) <= 1 << 20
