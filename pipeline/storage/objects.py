"""A folder of an object store (s3://, gs://, any URL that fsspec knows), with errors that a person can act on.

Objects appear whole or not at all, and there is no rename. Listings are never taken from a cache: other machines write
too. Credentials come from the environment as the filesystem's package reads them (AWS_*, a service account …), never from
the settings: those stand in records.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from pipeline.errors import BertError, StoreError
from pipeline.system.atomic import fsync_file

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from fsspec.callbacks import Callback

OPTIONS: dict[str, Any] = {"use_listings_cache": False}
"""of every filesystem"""
CHUNK_BYTES = 8 << 20
AT_ONCE = 16
"""Small files that are read side by side."""
CREDENTIALS = (
    "Credentials and endpoint come from the environment (S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or a role, "
    "AWS_DEFAULT_REGION, AWS_ENDPOINT_URL); `bert doctor` tries it."
)
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}


def checked_url(url: str) -> str:
    """The URL of a folder in an object store, without a slash at its end. Raises ValueError that says what is wrong."""
    try:
        parts = urlsplit(url)
    except ValueError:  # which repeats the URL
        raise ValueError("is no URL") from None
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", parts.scheme) or "://" not in url or not parts.netloc:
        raise ValueError("must be the URL of an object store, like s3://bucket/folder; for another disk set `home`")
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise ValueError("must not hold a user or password: settings stand in records; use the environment")
    if parts.scheme in ("file", "local", "memory", "http", "https"):
        raise ValueError(f"{parts.scheme}:// is no object store; for another disk set `home`")
    if parts.query or parts.fragment:
        raise ValueError("must not hold ? or #")
    return url.rstrip("/")


def filesystem(url: str) -> "tuple[AbstractFileSystem, str]":
    """(the filesystem of a URL, its path there). Made anew after a fork; else fsspec keeps it.

    Raises StoreError where its package is not installed.
    """
    from fsspec.core import url_to_fs

    scheme = urlsplit(url).scheme
    try:
        fs, path = url_to_fs(url, **OPTIONS)
    except ImportError as error:
        package = PACKAGES.get(scheme, f"what fsspec wants for {scheme}://")
        extra = {"s3fs": "s3", "gcsfs": "gs"}.get(package)
        how = f"pip install -c requirements.lock '.[{extra}]'" if extra else f"pip install {package}"
        raise StoreError(f"{url}: {package} is not installed ({error})", how) from None
    except ValueError as error:
        raise StoreError(f"{url}: {error}", "Correct `store` in settings.yaml.") from None
    return fs, str(path)


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Within the block, which does nothing but call a filesystem, its errors are StoreErrors that name the URL.

    A file that is not there stays a FileNotFoundError, unless it is the bucket that is missing.
    """
    try:
        yield
    except BertError:
        raise
    except Exception as error:  # each cloud's library has its own
        if isinstance(error, FileNotFoundError) and not _no_bucket(error):
            raise
        raise _story(error, url) from error


@contextmanager
def told(url: str) -> Iterator[None]:
    """Within the block, errors of files, of the network and of a cloud's library are StoreErrors that name the URL."""
    try:
        yield
    except Exception as error:
        module = type(error).__module__.partition(".")[0]
        if isinstance(error, OSError) or module in ("botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "fsspec"):
            raise _story(error, url) from error
        raise


def _story(error: Exception, url: str) -> StoreError:
    if isinstance(error, FileNotFoundError) and _no_bucket(error):
        bucket = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        return StoreError(f"{url}: the bucket {bucket} does not exist", "Make it, or correct `store` in settings.yaml.")
    if isinstance(error, PermissionError):
        return StoreError(f"{url}: access denied ({_line(error)})", CREDENTIALS)
    name = type(error).__name__
    access = any(word in name for word in ("Credential", "Endpoint", "Connect"))
    todo = CREDENTIALS if access else "Try again; nothing was published, nothing is lost."
    return StoreError(f"{url}: {name}: {_line(error)}", todo)


def _no_bucket(error: FileNotFoundError) -> bool:
    return "bucket does not exist" in str(error)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


class Objects:
    """The objects below a URL, by relative name. All errors but FileNotFoundError are StoreErrors that name a URL."""

    def __init__(self, url: str) -> None:
        self.url = url

    def at(self, name: str) -> str:
        """The URL of a name."""
        return f"{self.url}/{name}" if name else self.url

    @contextmanager
    def _path(self, name: str) -> Iterator[tuple[Any, str]]:
        fs, root = filesystem(self.url)
        with explained(self.at(name)):
            yield fs, f"{root}/{name}" if name else root

    def read(self, name: str) -> bytes:
        """An object's bytes. Raises FileNotFoundError."""
        with self._path(name) as (fs, path):
            return bytes(fs.cat_file(path))

    def read_all(self, names: Sequence[str]) -> dict[str, bytes]:
        """Bytes of many small objects. Raises FileNotFoundError."""
        with self._path("") as (fs, root):
            if not names:
                return {}
            found = fs.cat([f"{root}/{name}" for name in names], batch_size=AT_ONCE)
            return {name: bytes(found[f"{root}/{name}"]) for name in names}

    def ranges(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Bytes start to end of objects, for each of (name, start, end). Raises FileNotFoundError."""
        with self._path("") as (fs, root):
            found = fs.cat_ranges(
                [f"{root}/{name}" for name, _, _ in wanted],
                [start for _, start, _ in wanted],
                [end for _, _, end in wanted],
                batch_size=AT_ONCE,
                on_error="raise",
            )
        for (name, start, end), data in zip(wanted, found, strict=True):
            if len(data) != end - start:
                raise StoreError(f"{self.at(name)}: it ends before byte {end:,}", "Run again.")
        return list(found)

    def write(self, name: str, data: bytes) -> None:
        """Write an object."""
        with self._path(name) as (fs, path):
            fs.pipe_file(path, data)

    def upload(self, source: Path, name: str, heard: Callable[[int], None] = lambda size: None) -> None:
        """Write a file of this machine as an object; `heard` gets the bytes of each piece that was sent."""
        with self._path(name) as (fs, path):
            fs.put_file(str(source), path, callback=_pieces(heard))

    def download(self, name: str, target: Path, heard: Callable[[int], None] = lambda size: None) -> None:
        """Write an object into a file of this machine, durably. Raises FileNotFoundError, and OSError for the disk."""
        with target.open("wb") as file:
            for chunk in self.chunks(name):
                file.write(chunk)
                heard(len(chunk))
        fsync_file(target)

    def chunks(self, name: str) -> Iterator[bytes]:
        """An object's bytes in pieces. Raises FileNotFoundError."""
        with self._path(name) as (fs, path):
            file = fs.open(path, "rb", block_size=CHUNK_BYTES, cache_type="readahead")
        with file:
            while True:
                with explained(self.at(name)):
                    data = file.read(CHUNK_BYTES)
                if not data:
                    return
                yield data

    def sha256(self, name: str) -> str:
        """SHA-256 of an object's bytes. Raises FileNotFoundError."""
        digest = hashlib.sha256()
        for chunk in self.chunks(name):
            digest.update(chunk)
        return digest.hexdigest()

    def sizes(self, folder: str) -> dict[str, int]:
        """Every object below a folder: relative name → bytes. Empty where there is none."""
        with self._path(folder) as (fs, path):
            try:
                found = fs.find(path, detail=True)
            except FileNotFoundError as error:
                if _no_bucket(error):
                    raise
                return {}
            found.pop(path, None)  # a folder's own marker
            return {
                name[len(path) + 1 :]: int(about["size"])
                for name, about in sorted(found.items())
                if name.startswith(f"{path}/") and not name.endswith("/")
            }

    def age_seconds(self, name: str) -> float:
        """How long ago an object was written. Raises FileNotFoundError."""
        with self._path(name) as (fs, path):
            written: datetime = fs.modified(path)
        return (datetime.now(UTC) - (written if written.tzinfo else written.replace(tzinfo=UTC))).total_seconds()

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder, sorted."""
        with self._path(folder) as (fs, path):
            try:
                found = fs.ls(path, detail=False)
            except FileNotFoundError as error:
                if _no_bucket(error):
                    raise
                return []
            return sorted({each.rstrip("/")[len(path) + 1 :] for each in found if each.rstrip("/") != path})

    def remove(self, name: str) -> None:
        """Remove an object; that it is gone already is no error."""
        with self._path(name) as (fs, path):
            try:
                fs.rm_file(path)
            except FileNotFoundError:
                return

    def remove_all(self, folder: str) -> None:
        """Remove every object below a folder."""
        with self._path(folder) as (fs, path):
            try:
                fs.rm(path, recursive=True)
            except FileNotFoundError:
                return

    def check(self) -> None:
        """Write an object and remove it again. Raises StoreError that says why that can't be done."""
        name = f".doctor-{uuid4().hex}"
        with self._path(name) as (fs, path):
            fs.pipe_file(path, b"bertworks")
            fs.rm_file(path)


def _pieces(heard: Callable[[int], None]) -> "Callback":
    """Passes on how much each step of fsspec did."""
    from fsspec.callbacks import Callback

    class Pieces(Callback):
        def relative_update(self, inc: int = 1) -> None:
            heard(inc)

    return Pieces()
