"""Whether two folders of files hold the same, within a tolerance where numbers were computed by a training.

    differences(published, rebuilt, tolerant=True)    one `Difference` for each file that is not the same

Deterministic stages have no tolerance: another byte (of a Parquet file: another row) is a difference. Of a training, weights,
losses, scores and probabilities may differ a little, since another device, thread count or library adds up in another order;
names, shapes, steps and texts may not.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.storage.content import content_digest

WEIGHTS_ABSOLUTE, WEIGHTS_RELATIVE = 1e-3, 1e-2
"""of two values of a tensor: |a − b| ≤ 0.001 + 0.01 · |a|, our choice: a step of AdamW moves a weight by the learning rate, about
1e-4 for a base model, so that this is the noise of some steps and not another training"""
NUMBERS_ABSOLUTE, NUMBERS_RELATIVE = 0.01, 0.01
"""of two losses, scores or probabilities; 0.01 of a score is one point"""
ROWS_SHARE = 0.01
"""of rows of predictions that may have another label: where two are nearly equally likely"""
TOLERANCE = {
    "weights": f"|a − b| ≤ {WEIGHTS_ABSOLUTE:g} + {WEIGHTS_RELATIVE:g}·|a|",
    "losses, scores, probabilities": f"|a − b| ≤ {NUMBERS_ABSOLUTE:g} + {NUMBERS_RELATIVE:g}·|a|",
    "predicted labels": f"in at most {ROWS_SHARE:.0%} of the rows",
}
SHOWN = 60
"""characters of a line that are shown"""


@dataclass(frozen=True)
class Difference:
    """One file that is not the same."""

    path: str
    within: bool
    """within the tolerance"""
    what: str
    """the first or the largest difference"""
    absolute: float | None = None
    """largest |a − b|, of files of numbers"""
    relative: float | None = None
    """largest |a − b| / |a|, where a is not 0"""


def differences(published: Path, rebuilt: Path, tolerant: bool) -> list[Difference]:
    """Files that differ by content, in order of their names. tolerant: the result of a training."""
    ours, theirs = (set(_files(folder)) for folder in (published, rebuilt))
    found = []
    for name in sorted(ours | theirs):
        if name not in theirs:
            found.append(Difference(name, False, "it was not made again"))
        elif name not in ours:
            found.append(Difference(name, False, "it is not among what was published"))
        elif content_digest(published / name) != content_digest(rebuilt / name):
            found.append(_difference(name, published / name, rebuilt / name, tolerant))
    return found


def _files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != "manifest.json":
            yield name


def _difference(name: str, a: Path, b: Path, tolerant: bool) -> Difference:
    if tolerant:
        compare = {".safetensors": _tensors, ".json": _json, ".jsonl": _lines_of_json, ".parquet": _columns}.get(
            a.suffix
        )
        if compare is not None:
            found = compare(a, b)
            return Difference(name, found.within, found.what, found.absolute, found.relative)
    return Difference(name, False, _first_row(a, b) if a.suffix == ".parquet" else _first_byte(a, b))


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Largest:
    """The largest difference so far, and whether all are within."""

    def __init__(self, absolute: float, relative: float) -> None:
        self.limits = absolute, relative
        self.absolute = self.relative = 0.0
        self.within, self.where, self.broken = True, "", ""

    def see(self, where: str, a: npt.ArrayLike, b: npt.ArrayLike) -> None:
        """Arrays of one shape, or numbers."""
        left, right = (np.asarray(each, dtype=np.float64) for each in (a, b))
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = np.where(same, 0.0, np.abs(left - right))
            share = np.where(same | (left == 0), 0.0, apart / np.abs(left))
        if not apart.size:
            return
        if not np.isfinite(apart).all():
            self.breaks(f"{where}: a number that is none")
            return
        if float(apart.max()) >= self.absolute:
            self.absolute, self.where = float(apart.max()), where
        self.relative = max(self.relative, float(share.max()))
        self.within &= bool((apart <= self.limits[0] + self.limits[1] * np.abs(left)).all())

    def breaks(self, what: str) -> None:
        """Something differs that no tolerance covers; the first is told."""
        self.broken = self.broken or what

    def told(self) -> Difference:
        if self.broken:
            return Difference("", False, self.broken, self.absolute, self.relative)
        what = f"by {self.absolute:.3g} at most, in {self.where} ({self.relative:.3g} relative)"
        return Difference("", self.within, what, self.absolute, self.relative)


def _tensors(a: Path, b: Path) -> Difference:
    from safetensors import safe_open

    largest = _Largest(WEIGHTS_ABSOLUTE, WEIGHTS_RELATIVE)
    with safe_open(a, framework="np") as ours, safe_open(b, framework="np") as theirs:
        names = set(ours.keys()) | set(theirs.keys())
        for name in sorted(names):
            if name not in ours.keys() or name not in theirs.keys():  # noqa: SIM118 — not a dict
                largest.breaks(f"tensor {name} is only in one of them")
                continue
            left, right = ours.get_tensor(name), theirs.get_tensor(name)
            if left.shape != right.shape or left.dtype != right.dtype:
                largest.breaks(
                    f"tensor {name}: {left.dtype}{list(left.shape)}, made again {right.dtype}{list(right.shape)}"
                )
            elif np.issubdtype(left.dtype, np.floating):
                largest.see(name, left, right)
            elif not np.array_equal(left, right):
                largest.breaks(f"tensor {name} of whole numbers")
    return largest.told()


def _json(a: Path, b: Path) -> Difference:
    largest = _Largest(NUMBERS_ABSOLUTE, NUMBERS_RELATIVE)
    _values(largest, "", *(json.loads(path.read_text(encoding="utf-8")) for path in (a, b)))
    return largest.told()


def _lines_of_json(a: Path, b: Path) -> Difference:
    largest = _Largest(NUMBERS_ABSOLUTE, NUMBERS_RELATIVE)
    ours, theirs = ([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in (a, b))
    if len(ours) != len(theirs):
        largest.breaks(f"{len(ours)} lines, made again {len(theirs)}")
    for number, (left, right) in enumerate(zip(ours, theirs, strict=False), start=1):
        _values(largest, f"line {number}", left, right)
    return largest.told()


def _values(largest: _Largest, at: str, a: Any, b: Any) -> None:
    """Numbers with a fraction may differ; whole ones, as steps, counts and seeds, may not."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in dict.fromkeys([*a, *b]):
            if name in a and name in b:
                _values(largest, f"{at}.{name}" if at else str(name), a[name], b[name])
            else:
                largest.breaks(f"{at}.{name} is only in one of them".lstrip("."))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for number, (left, right) in enumerate(zip(a, b, strict=True)):
            _values(largest, f"{at}[{number}]", left, right)
    elif isinstance(a, float) and isinstance(b, float | int) and not isinstance(b, bool):
        largest.see(at, a, b)
    elif a != b:
        largest.breaks(f"{at}: {_short(a)}, made again {_short(b)}")


def _columns(a: Path, b: Path) -> Difference:
    largest = _Largest(NUMBERS_ABSOLUTE, NUMBERS_RELATIVE)
    ours, theirs = pq.read_table(a), pq.read_table(b)
    if not ours.schema.equals(theirs.schema) or ours.num_rows != theirs.num_rows:
        largest.breaks(
            f"{ours.num_rows} rows of {ours.column_names}, made again {theirs.num_rows} of {theirs.column_names}"
        )
        return largest.told()
    for name in ours.column_names:
        left, right = (table[name].combine_chunks() for table in (ours, theirs))
        lists = pa.types.is_list(left.type) or pa.types.is_large_list(left.type)
        if lists and left.value_lengths().equals(right.value_lengths()):
            left, right = left.flatten(), right.flatten()
        if pa.types.is_floating(left.type):
            largest.see(f"column {name}", left.to_numpy(zero_copy_only=False), right.to_numpy(zero_copy_only=False))
            continue
        other = sum(one != two for one, two in zip(left.to_pylist(), right.to_pylist(), strict=True))
        if other > ROWS_SHARE * max(1, len(left)):
            largest.breaks(f"column {name}: {other} of {len(left)} values")
        elif other:
            largest.where = largest.where or f"column {name}, {other} of {len(left)} values"
    return largest.told()


# ── the first difference ─────────────────────────────────────────────────────────────────────────────────────────────


def _first_byte(a: Path, b: Path) -> str:
    """Of text the first line, of others the first byte."""
    with a.open("rb") as ours, b.open("rb") as theirs:
        offset = 0
        while True:
            left, right = ours.read(1 << 20), theirs.read(1 << 20)
            if left != right:
                break
            offset += len(left)
    at = next(
        (n for n, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), min(len(left), len(right))
    )
    sizes = f"{a.stat().st_size:,} bytes, made again {b.stat().st_size:,}"
    try:
        lines = [_lines(path) for path in (a, b)]
    except UnicodeDecodeError:
        return f"from byte {offset + at:,} on; {sizes}"
    number = next((n for n, pair in enumerate(zip(*lines, strict=False)) if pair[0] != pair[1]), min(map(len, lines)))
    one, two = (_short(each[number]) if number < len(each) else "the end" for each in lines)
    return f"from line {number + 1} on: {one}, made again {two}; {sizes}"


LARGEST_TEXT = 64 << 20
"""bytes of a file whose lines are looked at"""


def _lines(path: Path) -> list[str]:
    if path.stat().st_size > LARGEST_TEXT:
        raise UnicodeDecodeError("utf-8", b"", 0, 1, "too large to be shown as text")
    return path.read_bytes().decode("utf-8").split("\n")


def _first_row(a: Path, b: Path) -> str:
    ours, theirs = pq.ParquetFile(a), pq.ParquetFile(b)
    if not ours.schema_arrow.equals(theirs.schema_arrow):
        return f"columns {ours.schema_arrow.names}, made again {theirs.schema_arrow.names}, or their types"
    rows = (ours.metadata.num_rows, theirs.metadata.num_rows)
    pairs = zip(_rows(ours), _rows(theirs), strict=False)
    for number, (left, right) in enumerate(pairs):
        if left != right:
            name = next(name for name in left if left[name] != right[name])
            told = f"from row {number:,} on, column {name}: {_short(left[name])}, made again {_short(right[name])}"
            return f"{told}; {rows[0]:,} rows, made again {rows[1]:,}"
    return f"{rows[0]:,} rows, made again {rows[1]:,}"


def _rows(file: pq.ParquetFile) -> Iterator[dict[str, Any]]:
    for batch in file.iter_batches(batch_size=1024):
        yield from batch.to_pylist()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
