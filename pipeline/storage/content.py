"""What content is: digests of files, versions of artifacts, keys of requests.

The content digest of a Parquet file is that of its rows and logical schema: another writer, compression, row-group size
or encoding gives the same digest, so that a library upgrade that writes equal rows changes no version. The digest of
any other file is the SHA-256 of its bytes.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.errors import DataError
from pipeline.formats import parquet_rows
from pipeline.system.atomic import canonical_digest, canonical_json, write_bytes

SETTLED_SECONDS = 2.0  # a file that was written less than this ago may be written again without a change of its times


def content_digest(path: Path, cache: Path | None = None) -> str:
    """Digest of a file's content, independent of how it was written. `cache` as in `file_sha256`.

    Raises DataError for a broken Parquet file.
    """
    if path.suffix == ".parquet":
        return remembered(path, cache, "digest", parquet_digest)
    return file_sha256(path, cache)


def version_of(files: Mapping[str, str]) -> str:
    """Version of an artifact: SHA-256 over its sorted (relative path, content digest)."""
    return canonical_digest(sorted(files.items()))


def key_of(stage: str, code_version: str, asked: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Key of a request: SHA-256 over stage, code version, configuration, and the versions of the inputs by name."""
    return canonical_digest([stage, code_version, dict(asked), dict(inputs)])


def file_sha256(path: Path, cache: Path | None = None) -> str:
    """SHA-256 of a file's bytes. With a `cache` folder, a file that was hashed before and whose device, inode, size,
    mtime and ctime are the same is not read again.

    Times of files are coarse (2 s at worst), so the hash of a file that was written a moment ago is not remembered.
    """
    return remembered(path, cache, "sha256", _sha256)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered(path: Path, cache: Path | None, name: str, compute: Callable[[Path], str]) -> str:
    """`compute(path)`, or what the cache knows under `name` of this very file; as in `file_sha256`."""
    if cache is None:
        return compute(path)
    mark, now = fingerprint(path), time.time_ns()
    entry = _entry(path, cache)
    known = _read(entry)
    if known.get("file") != mark:
        known = {"file": mark}
    if isinstance(known.get(name), str):
        return str(known[name])
    digest = compute(path)
    settled = now - max(mark[3:]) > SETTLED_SECONDS * 1e9
    if settled and fingerprint(path) == mark:  # else it changed, or may have, while it was read
        with suppress(OSError):  # a cache that can't be written costs time, never an answer
            write_bytes(entry, canonical_json(known | {name: digest}))
    return digest


def renamed(path: Path, cache: Path, change: Callable[[], None]) -> None:
    """Do `change`, which gives the file another name: that moves its ctime, but what was remembered stays remembered."""
    before = fingerprint(path)
    change()
    after, entry = fingerprint(path), _entry(path, cache)
    known = _read(entry)
    if known.get("file") == before and after[:4] == before[:4]:  # a write would have moved the mtime, which was settled
        with suppress(OSError):
            write_bytes(entry, canonical_json(known | {"file": after}))


def _entry(path: Path, cache: Path) -> Path:
    return cache / hashlib.sha256(str(path.resolve()).encode()).hexdigest()


def reference(path: Path, name: str, cache: Path | None = None) -> dict[str, Any]:
    """How `references.json` describes a file that stays where it is: `name` is its relative path in the version.

    Its digest is the one that the bytes would get, so that both forms give the same version.
    """
    sha256 = file_sha256(path, cache)
    digest = {"digest": content_digest(path, cache)} if path.suffix == ".parquet" else {}
    return {"path": name, "size_bytes": path.stat().st_size, "sha256": sha256, **digest}


def fingerprint(path: Path) -> list[int]:
    """What changes when a file is written: device, inode, size, mtime and ctime in nanoseconds."""
    stat = path.stat()
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _read(entry: Path) -> dict[str, Any]:
    try:
        known = json.loads(entry.read_bytes())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


# ── Parquet ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def parquet_digest(path: Path) -> str:
    """Digest of rows and logical schema, in bounded memory whatever the row groups.

    Every column is hashed as streams (positions of nulls, lengths, values) that run through all batches, so that the
    boundaries of batches and row groups leave no trace. string, large_string and string_view are one logical type, and
    so are the kinds of list, and a dictionary and its values; names of columns, their order and types count. Raises
    DataError when the file can't be read.
    """
    try:
        with parquet_rows.opened(path) as file:
            schema = file.schema_arrow
            columns = [_Column(field.type) for field in schema]
            rows = file.metadata.num_rows
            for batch in parquet_rows.batches(path, file):
                for column, array in zip(columns, batch.columns, strict=True):
                    column.add(array)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise DataError(f"{path}: not a readable Parquet file ({error})", "Make it again, or restore it.") from error
    described = [[field.name, column.logical, column.digest()] for field, column in zip(schema, columns, strict=True)]
    return canonical_digest([rows, described])


class _Column:
    """Running hashes of one column, nested columns inside."""

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_ = _plain(type_)
        self.count = 0
        self.nulls, self.lengths, self.values = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
        self.children: list[_Column] = []
        if pa.types.is_struct(type_):
            self.children = [_Column(field.type) for field in type_]
            self.logical: Any = ["struct", [[f.name, c.logical] for f, c in zip(type_, self.children, strict=True)]]
        elif pa.types.is_map(type_):
            self.children = [_Column(pa.struct([type_.key_field, type_.item_field]))]
            self.logical = ["map", self.children[0].logical]
        elif _is_list(type_):
            self.children = [_Column(type_.value_type)]
            self.logical = ["list", self.children[0].logical]
        elif _is_text(type_) or _is_binary(type_):
            self.logical = "string" if _is_text(type_) else "binary"
        elif _is_fixed(type_) or pa.types.is_null(type_):
            self.logical = str(type_)
        else:
            raise pa.ArrowNotImplementedError(f"columns of type {type_} are not supported")

    def add(self, array: pa.Array) -> None:
        """Hash the values of one batch."""
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if isinstance(array, pa.DictionaryArray):
            for piece in parquet_rows.pieces(array):
                self.add(piece)
            return
        if pa.types.is_map(self.type):
            array = array.cast(pa.list_(self.children[0].type))
        valid = None if array.null_count == 0 else np.asarray(array.is_valid())
        if valid is not None:
            self.nulls.update((np.flatnonzero(~valid) + self.count).astype("<i8").data)
        self.count += len(array)
        if self.children:
            self._add_nested(array)
        elif _is_text(self.type) or _is_binary(self.type):
            self._add_bytes(array)
        elif not pa.types.is_null(self.type):
            self._add_fixed(array, valid)

    def _add_nested(self, array: pa.Array) -> None:
        # flatten() leaves out what lies under a null and outside of the slice
        flat = array.flatten()
        if pa.types.is_struct(self.type):
            for child, part in zip(self.children, flat, strict=True):
                child.add(part)
        else:
            self.lengths.update(np.asarray(array.value_lengths().fill_null(0)).astype("<i8").data)
            self.children[0].add(flat)

    def _add_bytes(self, array: pa.Array) -> None:
        wide = array.cast(pa.large_binary()).fill_null(b"")
        offsets = np.frombuffer(wide.buffers()[1], dtype="<i8")[wide.offset : wide.offset + len(wide) + 1]
        self.lengths.update(np.diff(offsets).data)
        data = wide.buffers()[2]
        if data is not None and len(offsets):
            self.values.update(memoryview(data)[int(offsets[0]) : int(offsets[-1])])

    def _add_fixed(self, array: pa.Array, valid: np.ndarray | None) -> None:
        if pa.types.is_boolean(self.type):
            array = array.cast(pa.uint8())
        width = array.type.bit_width // 8
        data = array.buffers()[1]
        if data is None or not len(array):
            return
        raw = np.frombuffer(data, dtype=np.uint8)[array.offset * width : (array.offset + len(array)) * width]
        if valid is not None:  # what lies under a null is not content
            raw = (raw.reshape(len(array), width) * valid[:, None]).reshape(-1)
        self.values.update(raw.data)

    def digest(self) -> list[Any]:
        """Digests of all streams, children inside."""
        own = [self.count, self.nulls.hexdigest(), self.lengths.hexdigest(), self.values.hexdigest()]
        return [*own, *(child.digest() for child in self.children)]


def _plain(type_: pa.DataType) -> pa.DataType:
    """The type of the values themselves."""
    if isinstance(type_, pa.BaseExtensionType):
        return _plain(type_.storage_type)
    if isinstance(type_, pa.DictionaryType):
        return _plain(type_.value_type)
    return type_


def _is_fixed(type_: pa.DataType) -> bool:
    """Whether every value takes the same number of bits."""
    types = pa.types
    return bool(types.is_primitive(type_) or types.is_fixed_size_binary(type_) or types.is_decimal(type_))


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_))
