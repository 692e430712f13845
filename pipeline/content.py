"""What content is: digests of files, versions of artifacts, keys of requests.

The content digest of a Parquet file is that of its rows and logical schema: another writer, compression, row-group size
or encoding gives the same digest, so that a library upgrade that writes equal rows changes no version. The digest of
any other file is the SHA-256 of its bytes.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.atomic import canonical_json, write_bytes
from pipeline.errors import DataError

BATCH_ROWS = 8192  # rows in memory at once while a Parquet file is digested


def content_digest(path: Path) -> str:
    """Digest of a file's content, independent of how it was written. Raises DataError for a broken Parquet file."""
    return parquet_digest(path) if path.suffix == ".parquet" else file_sha256(path)


def version_of(files: Mapping[str, str]) -> str:
    """Version of an artifact: SHA-256 over its sorted (relative path, content digest)."""
    return hashlib.sha256(canonical_json(sorted(files.items()))).hexdigest()


def key_of(stage: str, code_version: str, asked: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Key of a request: SHA-256 over stage, code version, configuration, and the versions of the inputs by name."""
    return hashlib.sha256(canonical_json([stage, code_version, dict(asked), dict(inputs)])).hexdigest()


def file_sha256(path: Path, cache: Path | None = None) -> str:
    """SHA-256 of a file's bytes. With a `cache` folder, a file that was hashed before and whose device, inode, size,
    mtime and ctime are the same is not read again."""
    if cache is None:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    mark = fingerprint(path)
    entry = cache / hashlib.sha256(str(path.resolve()).encode()).hexdigest()
    known = _read(entry)
    if known.get("file") == mark:
        return str(known["sha256"])
    digest = file_sha256(path)
    if fingerprint(path) == mark:  # else it changed while it was read
        with suppress(OSError):  # a cache that can't be written costs time, never an answer
            write_bytes(entry, canonical_json({"file": mark, "sha256": digest}))
    return digest


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
    """Digest of rows and logical schema. Memory is bounded by `BATCH_ROWS` rows.

    Every column is hashed as streams (values, validity, lengths) that run through all batches, so that the boundaries
    of batches and row groups leave no trace. Raises DataError when the file can't be read.
    """
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            columns = [_Column(field.type) for field in schema]
            rows = 0
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                rows += batch.num_rows
                for column, array in zip(columns, batch.columns, strict=True):
                    column.add(array)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise DataError(f"{path}: not a readable Parquet file ({error})", "Make it again, or restore it.") from error
    described = [[field.name, column.logical, column.digest()] for field, column in zip(schema, columns, strict=True)]
    return hashlib.sha256(canonical_json([rows, described])).hexdigest()


class _Column:
    """Running hashes of one column, nested columns inside."""

    def __init__(self, type_: pa.DataType) -> None:
        if isinstance(type_, pa.DictionaryType):
            type_ = type_.value_type
        self.type = type_
        self.validity, self.lengths, self.values = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
        self.children: list[_Column] = []
        if pa.types.is_struct(type_):
            self.children = [_Column(field.type) for field in type_]
            self.logical: Any = ["struct", [[f.name, c.logical] for f, c in zip(type_, self.children, strict=True)]]
        elif _is_list(type_):
            self.children = [_Column(type_.value_type)]
            self.logical = ["list", self.children[0].logical]
        elif _is_text(type_) or _is_binary(type_):
            self.logical = "string" if _is_text(type_) else "binary"
        else:
            self.logical = str(type_)

    def add(self, array: pa.Array) -> None:
        """Hash the values of one batch."""
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        valid = np.asarray(array.is_valid())
        self.validity.update(np.ascontiguousarray(valid, dtype=np.uint8).data)
        if pa.types.is_struct(self.type):
            for index, child in enumerate(self.children):
                # flatten() gives the children with the parent's nulls, wherever the array was sliced
                child.add(array.flatten()[index])
        elif _is_list(self.type):
            lengths = np.asarray(array.value_lengths().fill_null(0), dtype="<i8")
            self.lengths.update(np.ascontiguousarray(lengths).data)
            self.children[0].add(array.flatten())
        elif _is_text(self.type) or _is_binary(self.type):
            self._add_bytes(array)
        elif not pa.types.is_null(self.type):
            self._add_fixed(array, valid)

    def _add_bytes(self, array: pa.Array) -> None:
        wide = array.cast(pa.large_binary()).fill_null(b"")
        offsets = np.frombuffer(wide.buffers()[1], dtype="<i8")[wide.offset : wide.offset + len(wide) + 1]
        self.lengths.update(np.ascontiguousarray(np.diff(offsets)).data)
        data = wide.buffers()[2]
        if data is not None and len(offsets):
            self.values.update(memoryview(data)[int(offsets[0]) : int(offsets[-1])])

    def _add_fixed(self, array: pa.Array, valid: np.ndarray) -> None:
        if pa.types.is_boolean(self.type):
            array = array.cast(pa.uint8())
        width = array.type.bit_width // 8
        data = array.buffers()[1]
        if data is None or not len(array):
            return
        raw = np.frombuffer(data, dtype=np.uint8)[array.offset * width : (array.offset + len(array)) * width]
        if not valid.all():  # what lies under a null is not content
            raw = raw.reshape(len(array), width) * valid[:, None]
        self.values.update(np.ascontiguousarray(raw).data)

    def digest(self) -> list[Any]:
        """Digests of all streams, children inside."""
        own = [self.validity.hexdigest(), self.lengths.hexdigest(), self.values.hexdigest()]
        return [*own, *(child.digest() for child in self.children)]


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_))
