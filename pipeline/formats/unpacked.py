"""Files out of a .zip that nobody vouches for, for what is read from a disk: a checkpoint made elsewhere, a task's files.

    with opened(path) as archive:
        archive.sizes                       name → bytes, as the archive says it
        archive.read(name, most)            the content of one
        archive.unpack(name, target, most)  the same into a file

`pipeline.formats.archives` passes over what it can't trust and counts it; here a person named the one archive that is needed, so it
is refused, and what is wrong with it is named.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from zipfile import ZipInfo

from pipeline import progress
from pipeline.errors import DataError
from pipeline.formats.archives import Zip, checked_name, gathered
from pipeline.formats.inflate import MAX_RATIO, Unreadable
from pipeline.system import atomic

SUFFIX = ".zip"
_WORDS = {
    "broken_archive": "is no .zip, or is cut off",
    "truncated": "is cut off",
    "overlapping_entries": "has members that share bytes, as bombs have",
    "too_many_members": "has too many members",
    "unsafe_path": "leads out of the archive's folder",
    "link": "is a link",
    "device": "is no plain file",
    "encrypted": "is encrypted",
    "unsupported_compression": "is compressed by a method that is not read (only stored and deflated members are)",
    "compression_ratio": f"unpacks to more than {MAX_RATIO} times its bytes, as bombs do",
    "lying_size": "has another size than the archive says",
    "broken": "is damaged: it can't be unpacked, or its checksum is wrong",
}
"""What `Unreadable.reason` means, behind the name of the archive or of the member."""
_AGAIN = "Copy or download the archive again, or unpack it yourself if you trust it."


class Archive:
    """The files of a .zip by their plain names; hidden ones, and what systems lay beside files (__MACOSX), are left out."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        """`path` is how messages call it. DataError: it is no zip, or not one to be read."""
        self._path = path
        self._infos: dict[str, ZipInfo] = {}
        try:
            self._zip = Zip(file)
        except Unreadable as error:
            raise DataError(f"{path} {_WORDS[error.reason]}", _AGAIN) from None
        for info in self._zip.infos:
            name, reason = checked_name(info.filename)
            if reason == "hidden":
                continue
            if reason:
                raise self._refused(name, reason)
            if name in self._infos:
                raise DataError(f"{path} holds {name} twice", _AGAIN)
            self._infos[name] = info

    @property
    def sizes(self) -> dict[str, int]:
        """Name → bytes that the archive says it has, in the archive's order; reading finds a lie."""
        return {name: info.file_size for name, info in self._infos.items()}

    def check(self, name: str) -> None:
        """DataError where the member can't be read by what the archive says of it: it is a link, or encrypted."""
        if reason := self._zip.refusal(self._infos[name]):
            raise self._refused(name, reason)

    def read(self, name: str, most: int) -> bytes:
        """The content of a member. DataError where it is refused, damaged, or larger than `most` bytes."""
        return gathered(self._pieces(name, most), most)

    def unpack(self, name: str, target: Path, most: int) -> None:
        """Write a member to `target`, in pieces. DataError as `read`; StoreError where the disk is full."""
        done, size = 0, self._infos[name].file_size
        with atomic.explained(target), target.open("wb") as copy:
            for piece in self._pieces(name, most):
                copy.write(piece)
                done += len(piece)
                progress.report(done, size, "bytes")

    def _pieces(self, name: str, most: int) -> Iterator[bytes]:
        info = self._infos[name]
        if info.file_size > most:  # zipfile never gives more than this
            raise DataError(
                f"{self._path} holds {name}, which has {info.file_size:,} bytes", "Unpack it yourself if you trust it."
            )
        try:
            yield from self._zip.pieces(info)
        except Unreadable as error:
            raise self._refused(name, error.reason) from None

    def _refused(self, name: str, reason: str) -> DataError:
        return DataError(f"{self._path} holds {name}, which {_WORDS[reason]}", _AGAIN)


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """The .zip of this path. DataError where it can't be read, as `Archive`."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}", "Check its permissions.") from None
    with file:
        yield Archive(path, file)
