"""Writing files so that a reader sees the old content or the new, never a part: temp, fsync, rename, fsync of the folder."""

import errno
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.errors import StoreError


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, durably. Raises OSError; then the old content stands and no temporary file is left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by readable JSON with sorted keys, durably."""
    write_bytes(
        path, (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()
    )


def rename_folder(source: Path, target: Path) -> None:
    """Rename a folder, durably. Raises OSError (ENOTEMPTY, EEXIST) when the target exists already."""
    target.parent.mkdir(parents=True, exist_ok=True)
    os.rename(source, target)
    fsync_folder(target.parent)
    fsync_folder(source.parent)


def fsync_file(path: Path) -> None:
    """Make a file's content durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_folder(path: Path) -> None:
    """Make a folder's entries durable."""
    fsync_file(path)


_WAYS_OUT = {
    errno.ENOSPC: "The disk is full: free space there, or set `home` in settings.yaml to another disk; then run again.",
    errno.EDQUOT: "The quota is used up: free space there, or set `home` in settings.yaml to another disk; then run again.",
    errno.EFBIG: "The file-size limit of this process is too small (ulimit -f): raise it; then run again.",
    errno.EROFS: "It is read-only: status, audit, verify and report work; to run, set BERT_HOME to a writable folder.",
    errno.EACCES: "This user may not write there: change the owner or the permissions, or set BERT_HOME to another folder.",
    errno.EPERM: "This user may not write there: change the owner or the permissions, or set BERT_HOME to another folder.",
    errno.EIO: "The disk reports an error: check it, then `bert verify`, then run again.",
    errno.EMFILE: "Too many open files for this process (ulimit -n): raise the limit; then run again.",
}


def explain(error: OSError, path: Path) -> StoreError:
    """The error of the operating system as one that names the path and the way out."""
    where = error.filename or path
    reason = os.strerror(error.errno) if error.errno else str(error)
    way_out = _WAYS_OUT.get(error.errno or 0, "Mend it and run again; nothing was published, nothing is lost.")
    return StoreError(f"{where}: {reason}", way_out)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Within the block, errors of the operating system are StoreErrors about `path`."""
    try:
        yield
    except OSError as error:
        raise explain(error, path) from error
