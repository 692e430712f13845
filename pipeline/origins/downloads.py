"""Files from outside that are kept under `BERT_HOME/downloads/<digest>/<name>`: fetched once, whoever asks.

A kept file is hashed when it came, and again whenever it may have changed; in between its hash is remembered as those of
the store are. It lies in the store as a hard link, so that damage in one place is damage in both: then the hash is no
longer remembered (see `pipeline.storage.content`), and the file is fetched again.
"""

import hashlib
import ipaddress
import logging
import os
import shutil
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from pipeline import progress
from pipeline.config import UrlFrom
from pipeline.errors import SourceError
from pipeline.origins import transfer
from pipeline.settings import settings
from pipeline.storage import content
from pipeline.system import atomic
from pipeline.system.owners import held_lock

CHUNK_BYTES = 1 << 20
AT_ONCE = 2
"""Files that are downloaded at once."""
POLL_SECONDS = 0.1
GRACE_SECONDS = 2.0
"""What the other download is given to end itself when one has failed; it then ends with the process."""
PARTIAL = "partial"


@dataclass(frozen=True)
class Wanted:
    """A file of which is known what it has to be."""

    url: str
    name: str
    digest: str
    algorithm: str = "sha256"
    size: int | None = None

    @property
    def folder(self) -> Path:
        """Where it is kept: by digest, so that a partial file goes on from whatever mirror."""
        return settings().home_path / "downloads" / self.digest

    @property
    def path(self) -> Path:
        """The kept file."""
        return self.folder / self.name

    @property
    def is_kept(self) -> bool:
        """Whether it is here, and is what it has to be."""
        return _is(self.path, self.digest, self.algorithm)

    def measured(self, allowed: transfer.Allowed) -> "Wanted":
        """The same with its size, if the server says one. SHA256SUMS, for one, names none."""
        return self if self.size is not None else replace(self, size=transfer.size_of(self.url, allowed))


@dataclass(frozen=True)
class Fetched:
    """Kept files in the order asked for, and what it took to get them."""

    paths: list[Path]
    bytes: int
    """that came over the network; 0: all of them were here"""
    seconds: float


# ── several files ────────────────────────────────────────────────────────────────────────────────────────────────────


def fetch(wanted: Sequence[Wanted], allowed: transfer.Allowed) -> Fetched:
    """The kept files; those that are missing are downloaded, two at a time, with progress in bytes over all of them.

    What was broken off goes on where it was, also in a later process; two processes that want one file fetch it once.
    Raises transfer.NotFound, transfer.Unreachable, SourceError (a wrong checksum, twice), StoreError (no room on the
    disk, said before the first byte; or full, or read-only). What came so far is kept in every case.
    """
    began = time.monotonic()
    missing = [each for each in wanted if not each.is_kept]
    if len(wanted) > 1:  # of a single file, the answer itself says how large it is before a byte is written
        missing = [each.measured(allowed) for each in missing]
    here = {each.path: transfer.length(each.folder / PARTIAL) for each in missing}
    sizes = [each.size for each in missing if each.size is not None]
    total = sum(sizes) if len(sizes) == len(missing) else None
    transfer.check_room(settings().home_path, sum(max(0, (each.size or 0) - here[each.path]) for each in missing))
    stop, came, troubles = threading.Event(), deque[int](), deque[str]()

    def bring(each: Wanted) -> None:
        came.append(_bring(each, allowed, lambda there: here.update({each.path: there}), stop, troubles.append))

    def say() -> None:
        progress.report(sum(here.values()), total, "bytes")
        while troubles:  # heard in this thread, where somebody listens
            progress.tell(troubles.popleft())

    if missing:
        _in_threads(
            [partial(bring, each) for each in missing],
            stop,
            say,
        )
    return Fetched([each.path for each in wanted], sum(came), time.monotonic() - began)


def _in_threads(jobs: Sequence[Callable[[], None]], stop: threading.Event, say: Callable[[], None]) -> None:
    """Do the jobs, `AT_ONCE` at a time. The first that fails stops the others, and its error is raised.

    Daemon threads: a connection that stalls, or a lock that another process holds, must not keep Ctrl-C waiting.
    """
    left, failed = deque(jobs), deque[BaseException]()

    def work() -> None:
        while not stop.is_set():
            try:
                job = left.popleft()
            except IndexError:
                return
            try:
                job()
            except BaseException as error:
                failed.append(error)
                stop.set()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(AT_ONCE, len(jobs)))]
    for thread in threads:
        thread.start()
    say()
    try:
        while not stop.is_set() and any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(POLL_SECONDS)
            say()
    finally:
        stop.set()
    for thread in threads:
        thread.join(GRACE_SECONDS)
    if failed:
        raise failed[0]


def _bring(
    wanted: Wanted,
    allowed: transfer.Allowed,
    heard: transfer.Heard,
    stop: threading.Event,
    trouble: transfer.Trouble,
) -> int:
    """Download one file, unless another process just did, and return how many bytes came.

    A wrong checksum is given a second chance, from the start.
    """
    path, part = wanted.path, wanted.folder / PARTIAL
    try:
        with held_lock(wanted.folder / ".lock", _waiting, f"the download of {wanted.name}"):
            if wanted.is_kept:
                heard(path.stat().st_size)
                return 0
            had = transfer.length(part)
            for chance in range(2):
                transfer.download(wanted.url, part, allowed, wanted.size, heard, stop, trouble)
                got = digest_of(part, wanted.algorithm)
                if got == wanted.digest:
                    transfer.finish(part, path)
                    return path.stat().st_size - had
                transfer.drop(part)
                had = 0
                if not chance:
                    logging.getLogger(__name__).warning("%s has a wrong checksum: once more from the start", wanted.url)
    except OSError as error:
        raise atomic.explain(error, path) from error
    raise _wrong(wanted.name, wanted.algorithm, wanted.digest, got)


def _waiting(holder: str) -> None:
    logging.getLogger(__name__).warning("%s", holder)


class WrongDigest(SourceError):
    """What came is not what was declared."""


def _wrong(name: str, algorithm: str, expected: str, got: str) -> WrongDigest:
    return WrongDigest(
        f"{name} has the wrong {algorithm.upper()}: expected {expected}, got {got}",
        "If the expected digest is right, the source was changed or damaged on the way: do not use it.",
    )


# ── one kept file ────────────────────────────────────────────────────────────────────────────────────────────────────


def kept(digest: str, name: str, fetch_to: Callable[[Path], None]) -> Path:
    """The file `name` whose SHA-256 is `digest`: from the folder of downloads, else `fetch_to(path)` writes it there.

    For what comes in another way than by URL. Raises as `fetch` does.
    """
    wanted = Wanted("", name, digest)
    if wanted.is_kept:
        return wanted.path
    try:
        with held_lock(wanted.folder / ".lock", _waiting, f"the download of {name}"):
            if wanted.is_kept:
                return wanted.path
            with tempfile.TemporaryDirectory(prefix=".partial-", dir=wanted.folder) as scratch:
                fresh = Path(scratch) / name
                fetch_to(fresh)
                got = digest_of(fresh)
                if got != digest:
                    raise _wrong(name, "sha256", digest, got)
                transfer.finish(fresh, wanted.path)
    except OSError as error:
        raise atomic.explain(error, wanted.path) from error
    return wanted.path


def _verified() -> Path:
    return settings().home_path / "verified"


def _is(path: Path, digest: str, algorithm: str) -> bool:
    try:
        return path.is_file() and digest == known_digest(path, algorithm)
    except OSError:
        return False


def known_digest(path: Path, algorithm: str) -> str:
    """`digest_of` a file, remembered for as long as the file stays as it is."""
    return content.remembered(path, _verified(), algorithm, lambda file: digest_of(file, algorithm))


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


def link_or_copy(source: Path, target: Path) -> None:
    """Give a kept file a second name: a hard link where the disk allows it, else a copy."""
    try:
        content.renamed(source, _verified(), lambda: os.link(source, target))
    except OSError:
        try:
            shutil.copyfile(source, target)
        except OSError as error:
            raise atomic.explain(error, target) from error


# ── URLs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def name_of(from_: UrlFrom) -> str:
    """The last part of the URL's path."""
    name = PurePosixPath(unquote(urlsplit(from_.url).path)).name
    if not name or name.startswith(".") or name == PARTIAL:
        raise SourceError(f"{from_.url} does not end in a file name", "Name the URL of one file.")
    return name


def url_file(from_: UrlFrom) -> Fetched:
    """The kept file of an URL."""
    return fetch([Wanted(from_.url, name_of(from_), from_.sha256)], anywhere)


def anywhere(asked: str, at: str) -> None:
    """Allow what a recipe names, and redirects to other hosts (releases and data sets lie on content networks).

    What comes counts only by its SHA-256, so that a host can't smuggle anything in. Still a redirect may not turn this
    machine against its own network: never away from https, never to an address that is loopback, private or link-local
    unless the recipe itself named that host.
    """
    before, after = urlsplit(asked), urlsplit(at)
    downgrade = after.scheme not in ("http", "https") or (before.scheme == "https" and after.scheme != "https")
    if at != asked and (downgrade or (after.hostname != before.hostname and _inside(after.hostname or "localhost"))):
        raise SourceError(f"{asked} leads to {at}", "Such redirects are not followed. Name the address of the file.")


def _inside(host: str) -> bool:
    host = host.rstrip(".")
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        pass
    try:
        return not ipaddress.ip_address(socket.inet_aton(host)).is_global  # 127.1 and 0x7f000001 are addresses too
    except OSError:
        return host == "localhost" or host.endswith(".localhost")
