"""Writing files so that a reader sees the old content or the new, never a part: temp, fsync, rename, fsync of the folder."""

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.errors import StoreError


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def canonical_digest(value: Any) -> str:
    """SHA-256 over the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, durably. Raises OSError; then the old content stands and no temporary file is left.

    A process that is killed may leave a temporary file; its name begins with a dot and `path`'s name.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
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


def read_kept(path: Path) -> Any:
    """The value of a JSON file that nothing can make anew; None where there is none. Raises StoreError where it is damaged or
    can't be read."""
    with explained(path):
        try:
            found = json.loads(path.read_bytes())
            if found is None:
                raise ValueError("it holds null")  # which would say that there is none
            return found
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> StoreError:
    """That a file which nothing can make anew is not what was written."""
    return StoreError(f"{path} is damaged: {error}", "Restore it from a backup.")


def make_folder(path: Path) -> None:
    """Make a folder and the parents that it lacks, durably. Raises OSError."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        fsync_folder(folder.parent)


def copy_folder(source: Path, target: Path, without: Collection[str] = ()) -> None:
    """Copy what is in a folder, and what its links lead to, into another, which is made or may be there; what has one of the
    names `without` is left out. Raises OSError: the first one that happens, with its file, where `shutil.copytree` raises a
    list of all."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.name in without:
            continue
        if path.is_dir():
            copy_folder(path, target / path.name, without)
        else:
            shutil.copyfile(path, target / path.name)


def rename_folder(source: Path, target: Path) -> None:
    """Rename a folder, durably. Raises OSError (ENOTEMPTY, EEXIST) when the target exists already."""
    make_folder(target.parent)
    os.rename(source, target)
    fsync_folder(target.parent)
    fsync_folder(source.parent)


def fsync_file(path: Path) -> None:
    """Make a file's content durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
    errno.EISDIR: "A folder stands where a file belongs: move it away; then run again.",
    errno.ENOTDIR: "A file stands where a folder belongs: move it away; then run again.",
    errno.EEXIST: "A file stands where a folder belongs: move it away; then run again.",
    errno.EMFILE: "Too many open files for this process (ulimit -n): raise the limit; then run again.",
}


def explain(error: OSError, path: Path) -> StoreError:
    """The error of the operating system as one that names the path and the way out."""
    there = error.filename2 if error.errno in _WAYS_OUT else None  # of a link or a copy: it was to be written there
    where = there or error.filename or path
    if isinstance(where, str) and os.sep not in where:
        where = path  # shutil.rmtree tells a name, and not in which folder
    if error.errno == errno.ENOTDIR:  # what has to be moved is the first that is no folder
        where = next((each for each in reversed(Path(where).parents) if each.exists() and not each.is_dir()), where)
    reason = os.strerror(error.errno) if error.errno else str(error)
    way_out = _WAYS_OUT.get(error.errno or 0, "Mend it and run again; nothing was published, nothing is lost.")
    return StoreError(f"{where}: {reason}", way_out)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Within the block, errors of the operating system about files are StoreErrors; `path` is named where they name none.

    Others (a connection that was reset is an OSError too) pass as they are.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno not in _WAYS_OUT:
            raise
        raise explain(error, path) from error
