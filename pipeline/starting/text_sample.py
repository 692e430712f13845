"""A part of a source's files that can be read within seconds, laid out as a source of the same kind."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from pipeline.formats import archives, compressed, parquet_rows
from pipeline.formats.inflate import Unreadable
from pipeline.formats.kinds import plain_name
from pipeline.formats.tables import read_table
from pipeline.starting.text_survey import Found

PACKED = 3
"""Bytes of text for each compressed byte, about: for how much of an archive or file was read."""
LEAST_FILE_BYTES = 64 << 10
"""So much of a table is read at least, so that many files do not give a row each."""

PARQUET_ROWS = 64
"""So many are read at once."""


@dataclass(frozen=True)
class Sample:
    """A folder with a part of the files, or all of them."""

    folder: Path
    share: float
    """of the bytes of all files; 1: everything is there, under its own name"""


def unpacked_bytes(files: Sequence[Path]) -> float:
    """About how many bytes of text or tables the files hold."""
    return float(sum(_factor(file) * file.stat().st_size for file in files))


def sample(found: Found, budget: int, folder: Path) -> Sample:
    """Lay out links to all files in `folder`, or, where they hold more than about `budget` bytes, a part: some files evenly from the
    first to the last, and of large tables and archives the beginning.

    Raises:
        DataError: a file that can't be read.
    """
    files = found.files
    whole = unpacked_bytes(files)
    base = found.path if found.path.is_dir() else found.path.parent
    if whole <= budget:
        for file in files:
            _link(file, folder / file.relative_to(base))
        return Sample(folder, 1.0)
    one_text_a_file = found.kind in ("text", "books")
    least = whole / len(files) if one_text_a_file else LEAST_FILE_BYTES
    count = min(len(files), max(1, int(budget / max(least, 1))))
    read = 0.0
    for number in range(count):
        file = files[number * len(files) // count]
        size, share = file.stat().st_size, budget / count
        one_document = one_text_a_file and not archives.suffix_of(file.name) and not found.sentence_per_line
        if one_document or _factor(file) * size <= share:
            _link(file, folder / str(number) / file.name)
            read += _factor(file) * size
        elif archives.suffix_of(file.name):
            read += min(_members(file, share, folder / str(number)), _factor(file) * size)
        else:
            (folder / str(number)).mkdir(parents=True)
            read += _HEADS[found.kind](file, share, folder / str(number)) * _factor(file) * size
    return Sample(folder, min(1.0, read / whole))


def _factor(file: Path) -> int:
    packed = plain_name(file.name) != file.name.lower() or file.name.lower().endswith(
        (".bz2", ".xz", ".tgz", ".zip", ".epub")
    )
    return PACKED if packed or file.suffix.lower() in (".parquet", ".pq") else 1


def _link(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(file.resolve())


def _members(file: Path, budget: float, folder: Path) -> float:
    """Write members of an archive until there are `budget` bytes; how many there are."""
    written = 0.0
    folder.mkdir(parents=True)
    for number, member in enumerate(archives.members(file)):
        if written >= budget:
            break
        if not member.dropped and (suffix := Path(member.name).suffix.lower()) in (".txt", ".epub"):
            try:
                data = member.read()
            except Unreadable:
                continue
            (folder / f"{number}{suffix}").write_bytes(data)
            written += len(data)
    return written


# ── the beginnings of tables: each returns the share of the file that was read ───────────────────────────────────────


def _lines_head(file: Path, budget: float, folder: Path) -> float:
    position = written = 0
    with (folder / f"head{Path(plain_name(file.name)).suffix}").open("wb") as out, compressed.Stream(file) as stream:
        while written < budget and (line := stream.readline(compressed.LINE_BYTES)):
            out.write(line)
            written += len(line)
            position = stream.position()
    return _share(file, written, position)


def _csv_head(file: Path, budget: float, folder: Path) -> float:
    table, done = read_table(file), [0]
    written = 0
    with (folder / "head.csv").open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(table.columns)
        for _, values in table.records(lambda position: done.__setitem__(0, position)):
            written += sum(len(value.encode(errors="replace")) + 1 for value in values)
            writer.writerow(values)
            if written >= budget:
                break
    return _share(file, written, done[0])


def _share(file: Path, written: int, position: int) -> float:
    """Of a file, of which `written` bytes were unpacked from the first `position`, which is ahead by what is in buffers."""
    size = file.stat().st_size
    told = position if _factor(file) > 1 and 0 < position < size else written / _factor(file)
    return min(1.0, told / size)


def _parquet_head(file: Path, budget: float, folder: Path) -> float:
    rows = size = 0
    with (
        parquet_rows.opened(file) as opened,
        pq.ParquetWriter(folder / "head.parquet", opened.schema_arrow) as out,
    ):
        for batch in parquet_rows.batches(file, opened, at_once=PARQUET_ROWS):
            out.write_batch(batch)
            rows, size = rows + batch.num_rows, size + sum(map(parquet_rows.decoded_bytes, batch.columns))
            if size >= budget:
                break
        return rows / max(1, opened.metadata.num_rows)


_HEADS: dict[str, Callable[[Path, float, Path], float]] = {
    "jsonl": _lines_head,
    "text": _lines_head,
    "csv": _csv_head,
    "parquet": _parquet_head,
}
