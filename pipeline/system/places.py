"""Places that Beam workers read and write: folders of this machine, or URLs that workers on other machines see too.

A place is a `Path`; where it is a URL it is a `UPath`, which has Path's words and reads by fsspec. On a disk a file appears
by a rename and is mapped into memory; in an object store it is written here and sent whole, and read in ranges.

    shared(folder)     the place by which every worker sees a folder of the stage (inputs, out and what lies in them)
    replaced(place)    a file of this machine to write, which then appears at the place
    near(place, …)     ranges of files, in a folder of this machine
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import pyarrow as pa
from pydantic import PlainSerializer, PlainValidator

from pipeline.errors import DataError, StoreError
from pipeline.storage import objects
from pipeline.storage.objects import Objects

REMOTE_SECONDS = 10.0
"""between two looks at an object store while a pipeline runs: each costs requests"""
NEAR_BYTES = 64 << 20
NEAR_RANGES = 1024
"""of what is fetched at once"""


def place(named: str | Path) -> Path:
    """The place that a path or URL names."""
    if isinstance(named, Path) or "://" not in str(named):
        return Path(named)
    from upath import UPath

    objects.filesystem(str(named))  # says what is not installed
    found: Any = UPath(str(named), **objects.OPTIONS)
    return found


Place = Annotated[Path, PlainValidator(place), PlainSerializer(str)]
"""A place in a pydantic model: text in JSON."""


def is_url(at: Path) -> bool:
    """Whether a place lies in an object store."""
    return not isinstance(at, Path)


# ── what every worker sees ───────────────────────────────────────────────────────────────────────────────────────────

Urls = Mapping[Path, Callable[[], str]]
_urls: ContextVar[Urls | None] = ContextVar("urls_of_folders", default=None)


@contextmanager
def sharing(urls: Urls) -> Iterator[None]:
    """Within the block, workers on other machines see these folders (absolute, resolved) by the URLs that are asked for
    here when they are needed."""
    token = _urls.set(urls)
    try:
        yield
    finally:
        _urls.reset(token)


def shared(folder: Path) -> Path:
    """The place by which every worker sees a file or folder: itself, unless it is shared by URL.

    Raises DataError for what lies in no folder that is shared.
    """
    folder = folder.resolve()
    urls = _urls.get()
    if urls is None:
        return folder
    for above in (folder, *folder.parents):
        if above in urls:
            name = folder.relative_to(above).as_posix()
            return place(urls[above]() + ("" if name == "." else f"/{name}"))
    raise DataError(
        f"{folder}: Beam's workers on other machines can't see this file: it is only referenced, and not in the store",
        "Let the recipe download it (`from` a wiki's dump, or url and sha256), so that the store holds it; or put it on a "
        "disk that all workers share and set beam.files: disk in settings.yaml.",
    )


def fetch(source: Path, target: Path) -> None:
    """Bring what workers wrote at a URL into a folder of this machine; what begins with a dot is left out. Nothing to do
    where they wrote there themselves."""
    if is_url(source):
        there = Objects(str(source))
        for name in there.sizes(""):
            if not any(part.startswith(".") for part in name.split("/")):
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                there.download(name, target / name)


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def replaced(at: Path) -> Iterator[Path]:
    """A temporary file of this machine; afterwards it has the name of the place, or is gone if there was an error."""
    if is_url(at):
        with tempfile.TemporaryDirectory(prefix="bertworks-") as folder:
            written = Path(folder) / at.name
            yield written
            Objects(str(at.parent)).upload(written, at.name)
        return
    temporary = at.with_name(f".{at.name}.{uuid4().hex}")
    try:
        yield temporary
        temporary.replace(at)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(at: Path, value: Any) -> None:
    """Write a file that appears whole."""
    if is_url(at):
        Objects(str(at.parent)).write(at.name, json.dumps(value).encode())
        return
    with replaced(at) as temporary:
        temporary.write_text(json.dumps(value), encoding="utf-8")


def make(folder: Path) -> None:
    """Make a folder; an object store needs none."""
    if not is_url(folder):
        folder.mkdir(parents=True, exist_ok=True)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def opened(at: Path) -> pa.NativeFile:
    """A file to read in any order; from an object store only what is asked for is fetched."""
    if not is_url(at):
        return pa.OSFile(str(at), "rb")
    fs, path = objects.filesystem(str(at))
    return pa.PythonFile(fs.open(path, "rb", cache_type="none"), mode="r")


def mapped(at: Path) -> pa.NativeFile:
    """A file mapped into memory; from an object store all of it is read."""
    return pa.BufferReader(at.read_bytes()) if is_url(at) else pa.memory_map(str(at))


def names(folder: Path, pattern: str) -> list[str]:
    """Names of the files of a folder that match, sorted."""
    found = Objects(str(folder)).names("") if is_url(folder) else [path.name for path in folder.glob(pattern)]
    return sorted(name for name in found if fnmatch(name, pattern))


def read_all(folder: Path, pattern: str) -> dict[str, bytes]:
    """The bytes of small files of a folder by name, in the order of names."""
    found = names(folder, pattern)
    if is_url(folder):
        return Objects(str(folder)).read_all(found)
    return {name: (folder / name).read_bytes() for name in found}


@contextmanager
def near_folder(folder: Path) -> Iterator[Path]:
    """A folder of small files on this machine."""
    if not is_url(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="bertworks-") as here:
        fetch(folder, Path(here))
        yield Path(here)


Range = tuple[str, int, int, int]
"""(file, first byte, end, and a number that is kept)"""


@contextmanager
def near(folder: Path, ranges: Sequence[Range]) -> Iterator[tuple[Path, list[Range]]]:
    """(a folder of this machine, where in it these ranges lie, in the same order). On a disk: what was given.

    From an object store each range is fetched once, many at a time, into one file that is gone afterwards.
    """
    if not is_url(folder):
        yield folder, list(ranges)
        return
    there = Objects(str(folder))
    with tempfile.TemporaryDirectory(prefix="bertworks-") as here:
        found: list[Range] = []
        at = 0
        with (Path(here) / "ranges").open("wb") as file:
            for some in _groups(ranges):
                for (_, start, end, number), data in zip(some, there.ranges([r[:3] for r in some]), strict=True):
                    file.write(data)
                    found.append(("ranges", at, at + end - start, number))
                    at += end - start
        yield Path(here), found


def _groups(ranges: Sequence[Range]) -> Iterator[list[Range]]:
    group: list[Range] = []
    size = 0
    for each in ranges:
        group.append(each)
        size += each[2] - each[1]
        if size >= NEAR_BYTES or len(group) >= NEAR_RANGES:
            yield group
            group, size = [], 0
    if group:
        yield group


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def unhurried(look: Callable[[], None], at: Path) -> Callable[[], None]:
    """`look`, but not more often than every REMOTE_SECONDS where it looks into an object store."""
    if not is_url(at):
        return look
    last = time.monotonic()

    def seldom() -> None:
        nonlocal last
        if time.monotonic() - last >= REMOTE_SECONDS:
            last = time.monotonic()
            with suppress(StoreError):  # hours of work don't end because one look failed
                look()

    return seldom
