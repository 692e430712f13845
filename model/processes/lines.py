"""Files of JSON rows, one a line, that grow while a process trains: metrics.jsonl and timing.jsonl."""

import json
import os
from pathlib import Path
from typing import Any

from pipeline.errors import TrainingError

TAIL_BYTES = 65_536


class Lines:
    """A file of JSON rows to append to."""

    def __init__(self, path: Path, keep: int | None = None) -> None:
        """Open `path`, and cut it back to its first `keep` bytes (None: to its last whole row; a process that was killed may
        have left half of one).

        Raises:
            TrainingError: the file is shorter than `keep`: rows that a checkpoint counts on are lost.
        """
        self._file = path.open("ab")
        size = path.stat().st_size
        if keep is not None and size < keep:
            self._file.close()
            raise TrainingError(
                f"{path} holds {size} bytes, its checkpoint was saved after {keep}",
                "Somebody cut it; start this training anew with --force.",
            )
        self._file.truncate(keep if keep is not None else whole_bytes(path))
        self._file.seek(0, os.SEEK_END)

    def append(self, row: dict[str, Any]) -> None:
        """Add a row; a reader sees it at once."""
        self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self._file.flush()

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._file.tell()

    def cut(self, keep: int) -> None:
        """Cut the file back to its first `keep` bytes."""
        self._file.flush()
        self._file.truncate(keep)
        self._file.seek(0, os.SEEK_END)

    def sync(self) -> int:
        """Make what was written durable; returns the size in bytes, to cut back to."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> list[dict[str, Any]]:
    """All complete rows of the file; none when it does not exist. A last line without its end is left out."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def whole_bytes(path: Path) -> int:
    """Bytes of the file up to the end of its last complete row; 0 when it does not exist."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        tail = file.read()
    return size - len(tail) + tail.rfind(b"\n") + 1


def newest(path: Path, key: str) -> dict[str, Any] | None:
    """The last complete row near the end of the file that has `key`; None when there is none, or no file."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        tail = file.read().split(b"\n")[:-1]
    for line in reversed(tail):
        if b'"' + key.encode() + b'"' in line:
            try:
                row: dict[str, Any] = json.loads(line)
            except ValueError:  # the first line of the tail may have lost its beginning
                return None
            return row
    return None
