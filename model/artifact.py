"""Files of artifacts, as the store hands them on, and the digits of their numbers."""

import json
from pathlib import Path
from typing import Any, overload

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import DataError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises DataError where it can't be read."""
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise broken(path, error) from error
    return value


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, its keys in their order, into a folder that the store is to publish."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def read_table(path: Path) -> pa.Table:
    """A Parquet file. Raises DataError where it can't be read."""
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise broken(path, error) from error


@overload
def short(value: float) -> float: ...
@overload
def short(value: float | None) -> float | None: ...
def short(value: float | None) -> float | None:
    """Six significant digits: enough for every curve and score, and files stay readable."""
    return None if value is None else float(f"{value:.6g}")


def broken(path: Path, error: Exception) -> DataError:
    """That a published file is not what it should be."""
    return DataError(f"{path} can't be read: {error}", "`bert verify` sets broken content aside.")
