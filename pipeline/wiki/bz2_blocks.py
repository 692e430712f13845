"""Read a .bz2 file from anywhere in its middle: its compressed blocks one by one, each decompressed alone.

A .bz2 file is a row of streams, a stream is a row of blocks of at most 900 kB of text. A block begins with a 48-bit mark,
at any bit, and depends on no other block: with a stream's header before it and a stream's end after it, it is a stream of
its own. So a file with one stream can be read in parallel just as one with many, and no index is needed.

A mark can also stand inside compressed data by chance or on purpose. It is never believed: a block counts only if what
lies between it and the next mark decompresses and has the checksum that it names; if not, that next mark was no mark.
"""

import bz2
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

BLOCK_MARK = 0x314159265359
END_MARK = 0x177245385090
"""First 48 bits of a block, and of a stream's end, which a checksum of 32 bits follows (bzip2's compress.c)."""

READ_BYTES = 1 << 20
CHUNK_BYTES = 1 << 20
MAX_BLOCK_BYTES = 4 << 20
"""Of a compressed block with false marks in it. 900 kB that can't be compressed make 0.9 MB."""
MAX_FALSE_MARKS = 64


class BrokenBz2(Exception):
    """The file is cut off or damaged; says where."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block."""

    at: int
    """first bit of its mark in the file"""
    pieces: tuple[bytes, ...]
    """its text"""
    ends_stream: bool
    """whether its stream ends with it"""


def blocks(file: IO[bytes], start: int = 0) -> Iterator[Block]:
    """Yield the blocks of a .bz2 file whose mark begins at or after byte `start`, in order, to the end of the file.

    From `start` 0 the file must begin with a stream; from elsewhere, what comes before the first whole block is passed
    over. The checksum of every block is checked, that of a stream where all of it was seen. BrokenBz2 where the file is
    cut off or damaged, after the blocks before it.
    """
    window = _Window(file, start)
    at: int | None
    if start == 0:
        begin = window.headers(0)
        at = None if begin == window.size else 8 * begin
        if at is not None and window.bits(at, 48) != BLOCK_MARK:
            raise BrokenBz2(f"damaged: no block where one must begin, before byte {begin + 6:,}")
        sum_: int | None = 0
    else:
        at = window.first_block()
        sum_ = None  # the stream may have begun before
    while at is not None:
        pieces, end = window.block(at)
        if sum_ is not None:
            sum_ = ((sum_ << 1 | sum_ >> 31) & 0xFFFFFFFF) ^ window.bits(at + 48, 32)
        ends_stream = window.bits(end, 48) == END_MARK
        yield Block(at, pieces, ends_stream)
        after = end
        if ends_stream:
            if sum_ is not None and window.bits(end + 48, 32) != sum_:
                raise BrokenBz2(f"damaged: a stream's checksum is wrong, before byte {(end + 80) // 8:,}")
            sum_ = 0
            after = 8 * window.headers((end + 80 + 7) // 8)
        window.forget(after)
        at = None if after == 8 * window.size else after
        if at is not None and window.bits(at, 48) != BLOCK_MARK:
            raise BrokenBz2(f"damaged: no block where one must begin, before byte {at // 8 + 6:,}")


class _Window:
    """The bytes around the place that is being read, and the marks in them."""

    def __init__(self, file: IO[bytes], start: int) -> None:
        self.size = file.seek(0, 2)
        file.seek(start)
        self._file = file
        self._first = start
        self._bytes = b""
        self._searched = start
        self._marks: deque[int] = deque()

    def _more(self) -> bool:
        """Read on; False at the end of the file."""
        data = self._file.read(READ_BYTES)
        self._bytes += data
        if data:
            begin = max(self._searched - self._first, 0)
            known = self._marks[-1] if self._marks else -1
            self._marks.extend(
                bit for bit in _marks(self._bytes, begin, 8 * self._first) if bit > known and bit >= 8 * self._searched
            )
            # a mark of which the last byte is missing is found with the next piece
            self._searched = max(self._first + len(self._bytes) - 6, self._searched)
            if self._marks:
                self._searched = max(self._searched, self._marks[-1] // 8 + 1)
        return bool(data)

    def _reach(self, byte: int) -> bool:
        while self._first + len(self._bytes) < byte:
            if not self._more():
                return False
        return True

    def forget(self, bit: int) -> None:
        """Drop what lies before."""
        byte = bit // 8
        if byte - self._first > READ_BYTES:
            self._bytes = self._bytes[byte - self._first :]
            self._first = byte

    def bits(self, at: int, count: int) -> int:
        """`count` bits from bit `at`; -1 beyond the end of the file."""
        end = (at + count + 7) // 8
        if not self._reach(end):
            return -1
        value = int.from_bytes(self._bytes[at // 8 - self._first : end - self._first], "big")
        return (value >> (8 * end - at - count)) & ((1 << count) - 1)

    def headers(self, byte: int) -> int:
        """Where the first block after a stream's header at `byte` begins; streams without a block are passed over."""
        while True:
            if not self._reach(byte + 1):
                return self.size
            self._reach(byte + 14)
            data = self._bytes[byte - self._first : byte - self._first + 14]
            if len(data) < 4 and b"BZh9".startswith(data[:3]):
                raise BrokenBz2(f"cut off: its compressed data ends at byte {self.size:,} in the middle of a stream")
            if data[:3] != b"BZh" or not b"1" <= data[3:4] <= b"9":
                raise BrokenBz2(f"no bzip2 stream, but something else, at byte {byte:,}")
            if len(data) < 10:
                raise BrokenBz2(f"cut off: its compressed data ends at byte {self.size:,} in the middle of a stream")
            if data[4:] != END_MARK.to_bytes(6, "big") + bytes(4):
                return byte + 4
            byte += 14

    def first_block(self) -> int | None:
        """The first mark that a whole block follows; None: there is none to the end of the file.

        A damaged block is passed over here; whoever reads the part before comes to it.
        """
        after = 8 * self._first - 1
        while (at := self._next_mark(after, None)) is not None:
            try:
                self.block(at)
            except BrokenBz2:
                after = at
                self.forget(at)
            else:
                return at
        return None

    def _next_mark(self, after: int, within: int | None) -> int | None:
        """The first mark after bit `after`, at most `within` bytes on."""
        while True:
            while self._marks and self._marks[0] <= after:
                self._marks.popleft()
            if self._marks:
                return self._marks[0]
            if within is not None and self._first + len(self._bytes) > after // 8 + within:
                return None
            if not self._more():
                return None

    def block(self, at: int) -> tuple[tuple[bytes, ...], int]:
        """(text of the block at bit `at`, the bit after it, where a block or a stream's end begins)"""
        mark = at
        passed: list[int] = []
        try:
            for _ in range(MAX_FALSE_MARKS):
                found = self._next_mark(mark, MAX_BLOCK_BYTES)
                ends = self._ends(at, found) if found is not None else self._ends_before(at, self.size)
                for end in ends:
                    pieces = self._decompressed(at, end)
                    if pieces is not None:
                        return pieces, end
                if found is None:
                    break
                passed.append(found)
                mark = found
        finally:
            self._marks.extendleft(p for p in reversed(passed) if not self._marks or p < self._marks[0])
        self._reach(at // 8 + MAX_BLOCK_BYTES)
        for end in _marks(self._bytes, at // 8 - self._first, 8 * self._first, END_MARK):
            if at < end <= 8 * self.size - 80 and (pieces := self._decompressed(at, end)) is not None:
                return pieces, end  # the stream ends, and something else follows
        last = self._next_mark(at, MAX_BLOCK_BYTES) is None and not self._reach(at // 8 + MAX_BLOCK_BYTES)
        if last and not any(self._ends_before(at, self.size)):
            raise BrokenBz2(f"cut off: its compressed data ends at byte {self.size:,} in the middle of a stream")
        raise BrokenBz2(f"damaged: Invalid data stream, in the block at byte {at // 8:,}")

    def _ends(self, at: int, mark: int) -> Iterator[int]:
        """Where the block at `at` may end if the next one begins at `mark`: there, or where its stream ends."""
        if mark % 8 == 0 and self.bits(mark - 32, 24) == 0x425A68:  # BZh
            yield from self._ends_before(at, mark // 8 - 4)
        yield mark

    def _ends_before(self, at: int, byte: int) -> Iterator[int]:
        """Where the stream's end before `byte` begins: streams without a block and up to 7 bits may lie between."""
        if not self._reach(byte):
            return
        empty = END_MARK.to_bytes(6, "big") + bytes(4)
        while byte - self._first >= 14 and self._bytes[byte - self._first - 10 : byte - self._first] == empty:
            if self._bytes[byte - self._first - 14 : byte - self._first - 11] != b"BZh":
                break
            byte -= 14
        for padding in range(8):
            end = 8 * byte - 80 - padding
            if end > at + 80 and self.bits(end, 48) == END_MARK:
                yield end

    def _decompressed(self, at: int, end: int) -> tuple[bytes, ...] | None:
        """The text between two marks, None if that is no block."""
        if end - at < 80:  # a mark and a checksum
            return None
        first, last = at // 8 - self._first, (end + 7) // 8 - self._first
        value = int.from_bytes(self._bytes[first:last], "big") >> (-end % 8)
        value &= (1 << (end - at)) - 1
        checksum = (value >> (end - at - 80)) & 0xFFFFFFFF  # of a stream of one block: that block's
        value = (value << 80) | (END_MARK << 32) | checksum
        length = end - at + 80
        data = b"BZh9" + (value << (-length % 8)).to_bytes((length + 7) // 8, "big")
        decompressor = bz2.BZ2Decompressor()
        pieces = []
        try:
            while not decompressor.eof:
                piece = decompressor.decompress(data, CHUNK_BYTES)
                data = b""
                if piece:
                    pieces.append(piece)
                elif decompressor.needs_input:
                    return None
        except (OSError, ValueError):
            return None
        return None if decompressor.unused_data else tuple(pieces)


def _needles(mark: int) -> tuple[bytes, ...]:
    """The whole bytes of a mark that begins 0, 1, … 7 bits into a byte."""
    return tuple(
        (mark << (16 - shift)).to_bytes(8, "big")[1:6] if shift else mark.to_bytes(6, "big") for shift in range(8)
    )


_NEEDLES = {mark: _needles(mark) for mark in (BLOCK_MARK, END_MARK)}


def _marks(data: bytes, begin: int, base: int, mark: int = BLOCK_MARK) -> list[int]:
    """First bits of all marks in `data` from byte `begin` on, ascending, counted from bit `base` at its start."""
    found = []
    for shift, needle in enumerate(_NEEDLES[mark]):
        at = data.find(needle, begin)
        while at >= 0:
            byte = at - 1 if shift else at
            window = data[byte : byte + 7] if shift else data[byte : byte + 6]
            if byte >= begin and len(window) == (7 if shift else 6):
                value = int.from_bytes(window, "big") >> (8 - shift if shift else 0)
                if value & ((1 << 48) - 1) == mark:
                    found.append(base + 8 * byte + shift)
            at = data.find(needle, at + 1)
    return sorted(found)
