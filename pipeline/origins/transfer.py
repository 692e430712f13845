"""Bytes over HTTP from a server that may do anything: resumed where they broke, in this process or a later one.

A download goes into a *partial* file, with what the server said of it beside it (`<partial>.json`: ETag, Last-Modified,
size). Both survive a killed process; the next attempt asks for the rest only, and starts again where the server's file
is another one now. Nothing here trusts the bytes: whoever asked compares their checksum.

Every request holds one of `CONNECTIONS` locks of its host under `BERT_HOME/locks`, so that all processes together keep to
Wikimedia's limit. Redirects are followed by hand, each one only after `Allowed` said yes to it.
"""

import http.client
import json
import logging
import os
import re
import socket
import ssl
import string
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Never, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from pipeline import progress, units
from pipeline.errors import SourceError, StoreError
from pipeline.settings import settings
from pipeline.system import atomic
from pipeline.system.disk import free_bytes
from pipeline.system.owners import held_slot

USER_AGENT = "bertworks/0.1 (research pipeline)"
CHUNK_BYTES = 1 << 20
CONNECTIONS = 2
"""To one host at once, in all processes together. Wikimedia allows 3 per address (https://dumps.wikimedia.org)."""
MAX_REDIRECTS = 5
A_YEAR = 365 * 86_400.0
MARGIN_BYTES = 256 << 20
"""What a download leaves free on the disk."""


@dataclass(frozen=True)
class Patience:
    """How long a server is given. Attempts count while they bring nothing new: a file that grows is never given up."""

    attempts: int = 8
    """for a file: four minutes in all, while a router starts anew"""
    page_attempts: int = 3
    """for a page of a few bytes; fewer, so that a machine without a network says so soon"""
    pause_seconds: float = 2.0
    """before the second attempt; it doubles with each"""
    stall_seconds: float = 60.0
    """without a byte, after which a connection counts as dead"""
    answer_seconds: float = 120.0
    """from the request to the end of the answer's headers, however they come"""
    longest_wait_seconds: float = 900.0
    """that a server may ask for by Retry-After; if it asks for more, the run ends and says so"""


PATIENCE = Patience()

Allowed = Callable[[str, str], None]
"""(URL asked for, URL about to be opened: the same, or where a redirect leads); raises SourceError to refuse."""
Heard = Callable[[int], None]
"""Told how many bytes of the file are there."""
Trouble = Callable[[str], None]
"""Told why an attempt failed, and when the next one comes."""
T = TypeVar("T")


class Unreachable(SourceError):
    """The server did not answer, or only with errors of its own."""


class NotFound(SourceError):
    """The server has no such file."""


class _NoSuchMethod(SourceError):
    """The server does not take such requests."""


class Stopped(Exception):
    """The download was told to stop; its partial file stays."""


class _Broken(Exception):
    """An attempt that failed and may be repeated, after `wait` seconds if the server said so."""

    def __init__(self, problem: str, wait: float | None = None) -> None:
        super().__init__(problem)
        self.wait = wait


class _OutOfRange(Exception):
    """HTTP 416: the file has no bytes from there on; `total`: how many it has, if the server says so."""

    def __init__(self, total: int | None) -> None:
        super().__init__("HTTP 416")
        self.total = total


# ── what is asked of this module ─────────────────────────────────────────────────────────────────────────────────────


def download(
    url: str,
    partial: Path,
    allowed: Allowed,
    size: int | None = None,
    heard: Heard = lambda _: None,
    stop: threading.Event | None = None,
    trouble: Trouble = progress.tell,
) -> None:
    """Write what the URL gives to `partial`, or what is missing of it; `size`: bytes that it has to have.

    Raises NotFound, Unreachable or another SourceError, StoreError when the disk has no room, OSError of the disk. In
    every case what came so far stays in `partial`, for the next call.
    """
    stop = stop or threading.Event()
    if url.startswith("file:"):
        _copy(url, partial, heard)
        return
    _patiently(
        url,
        PATIENCE.attempts,
        stop,
        lambda: _go_on(url, partial, allowed, size, heard, stop),
        lambda: length(partial),
        trouble,
    )


def page(url: str, allowed: Allowed, most_bytes: int) -> bytes:
    """A small page as a whole. Raises NotFound, Unreachable, SourceError."""

    def read() -> bytes:
        with _opened(url, {}, allowed) as response:
            content = _read(lambda: response.read(most_bytes + 1))
            announced = _number(response.headers.get("Content-Length"))
            if len(content) > most_bytes:
                raise SourceError(f"{url} is larger than {most_bytes >> 20} MiB", "It is not read.")
            if announced is not None and len(content) < announced:
                raise _Broken(f"the connection ended after {len(content):,} of {announced:,} bytes")
            return content

    return _patiently(url, PATIENCE.page_attempts, threading.Event(), read)


def size_of(url: str, allowed: Allowed) -> int | None:
    """Bytes of the file behind the URL; None where the server does not say. Raises NotFound, Unreachable, SourceError."""

    def ask() -> int | None:
        with _opened(url, {}, allowed, "HEAD") as response:
            return _number(response.headers.get("Content-Length"))

    try:
        return _patiently(url, PATIENCE.page_attempts, threading.Event(), ask)
    except _NoSuchMethod:
        return None


def length(partial: Path) -> int:
    """Bytes that are there of a download that may have been broken off."""
    try:
        return partial.stat().st_size
    except FileNotFoundError:
        return 0


def drop(partial: Path) -> None:
    """Remove a partial file and what was noted of it."""
    partial.unlink(missing_ok=True)
    _notes(partial).unlink(missing_ok=True)


def finish(partial: Path, path: Path) -> None:
    """Make a whole, verified partial file durable under its own name. Raises OSError."""
    atomic.fsync_file(partial)
    partial.replace(path)
    _notes(partial).unlink(missing_ok=True)
    atomic.fsync_folder(path.parent)


def check_room(folder: Path, needed: int) -> None:
    """StoreError unless the disk has room for `needed` bytes in `folder`, and a margin."""
    free = free_bytes(folder)
    if needed > 0 and needed + MARGIN_BYTES > free:
        raise StoreError(
            f"{folder}: {units.size(needed)} are still to be downloaded (and {units.size(MARGIN_BYTES)} to be left), "
            f"but only {units.size(free)} are free",
            "Free space there, or set `home` in settings.yaml (or BERT_HOME) to another disk; then run again.",
        )


# ── attempts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _patiently(
    url: str,
    attempts: int,
    stop: threading.Event,
    attempt: Callable[[], T],
    reached: Callable[[], int] = lambda: 0,
    trouble: Trouble = progress.tell,
) -> T:
    """What `attempt` gives, after `attempts` failures in a row without `reached` growing at most."""
    failed, best = 0, reached()
    while True:
        try:
            return attempt()
        except _Broken as error:
            grown = reached()
            failed = failed + 1 if grown <= best else 1
            best = max(best, grown)
            wait = PATIENCE.pause_seconds * 2 ** (failed - 1)
            if error.wait is not None:
                wait = max(wait, error.wait)
            if failed >= attempts or wait > PATIENCE.longest_wait_seconds:
                kept = f"; {grown:,} bytes are kept, and the next run goes on there" if grown else ""
                raise Unreachable(
                    f"{url} can't be downloaded: {error}{kept}",
                    f"The server asks to wait: run again in {_long(error.wait)}."
                    if error.wait
                    else "Check the address and the network; run again later.",
                ) from error
            logging.getLogger(__name__).warning("%s: %s; trying again in %.3g s", url, error, wait)
            trouble(f"{url}: {error}; attempt {failed + 1} of {attempts} in {wait:.3g} s")
        if stop.wait(wait):
            raise Stopped


def _long(seconds: float) -> str:
    """A wait that a person can plan with."""
    if seconds >= A_YEAR:
        return "a year or more"
    return f"{seconds / 86_400:.0f} days" if seconds >= 2 * 86_400 else f"{seconds:.0f} seconds"


def _go_on(url: str, partial: Path, allowed: Allowed, size: int | None, heard: Heard, stop: threading.Event) -> None:
    """One attempt: ask for what is missing and append it. Returns when the file is whole; raises _Broken if it is not."""
    noted, start = _noted(partial), length(partial)
    if start and (noted is None or (size is not None and start > size)):
        drop(partial)
        start = 0
    if size is not None and start == size:
        return
    try:
        with _opened(url, _range(noted, url, start), allowed) as response:
            if stop.is_set():
                raise Stopped
            said = _said(url, response.headers, start if response.status == 206 else 0)
            if response.status == 206:
                _check_same(noted, said, response.headers, start, partial)
            else:  # all of it: no range was asked for, the server knows none, or its file is another one now
                start = 0
            total = said["size"]
            if size is not None and total is not None and total != size:
                raise _Broken(f"the server's file has {total:,} bytes instead of {size:,}")
            if size is None:
                check_room(partial.parent, (total or 0) - start)
            if start == 0:
                drop(partial)
            atomic.write_json(_notes(partial), said)
            _append(response, partial, start, size if total is None else total, heard, stop)
    except _OutOfRange as error:
        if error.total != start or (size is not None and size != start):
            drop(partial)
            raise _Broken(f"the server's file ends before byte {start:,}, where the download was broken off") from None


def _range(noted: dict[str, Any] | None, url: str, start: int) -> dict[str, str]:
    """Headers that ask for the bytes from `start` on, if the file is still the one that was noted."""
    if not start or noted is None:
        return {}
    headers = {"Range": f"bytes={start}-"}
    mark = noted["etag"] if noted["etag"] and not noted["etag"].startswith("W/") else noted["last_modified"]
    if mark and noted["url"] == url:
        headers["If-Range"] = mark
    return headers


def _check_same(
    noted: dict[str, Any] | None, said: dict[str, Any], headers: Message, start: int, partial: Path
) -> None:
    """That the bytes that come belong to the file whose beginning is there. Another mirror may name it differently."""
    where = re.match(r"bytes (\d{1,18})-", headers.get("Content-Range", ""))
    marks = ("etag", "last_modified") if noted and noted["url"] == said["url"] else ()
    other = [mark for mark in (*marks, "size") if noted and noted[mark] and said[mark] and noted[mark] != said[mark]]
    if other or (where and int(where[1]) != start):
        drop(partial)
        what = f"its {', '.join(other)} changed" if other else "other bytes came than were asked for"
        raise _Broken(f"the file changed on the server while it was downloaded ({what}): it starts again")


def _append(
    response: http.client.HTTPResponse,
    partial: Path,
    start: int,
    total: int | None,
    heard: Heard,
    stop: threading.Event,
) -> None:
    with partial.open("r+b" if start else "wb", buffering=0) as file:  # nothing of it is lost with the process
        file.seek(start)
        done = start
        while chunk := _read(lambda: response.read1(CHUNK_BYTES)):
            if stop.is_set():
                raise Stopped
            done += len(chunk)
            if total is not None and done > total:
                break
            left = memoryview(chunk)
            while left:
                left = left[file.write(left) :]
            heard(done)
    if total is not None and done > total:
        drop(partial)
        raise _Broken(f"the server gives more than the {total:,} bytes that the file should have")
    if total is not None and done < total:
        raise _Broken(f"the connection ended after {done:,} of {total:,} bytes")


# ── what a server says of a file ─────────────────────────────────────────────────────────────────────────────────────


def _said(url: str, headers: Message, start: int) -> dict[str, Any]:
    whole = re.match(r"bytes \d+-\d+/(\d{1,18})$", headers.get("Content-Range", "")) if start else None
    rest = _number(headers.get("Content-Length"))
    return {
        "url": url,
        "etag": headers.get("ETag", ""),
        "last_modified": headers.get("Last-Modified", ""),
        "size": int(whole[1]) if whole else None if rest is None else start + rest,
    }


def _notes(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


def _noted(partial: Path) -> dict[str, Any] | None:
    """What the server said when the partial file began; None when that is not known."""
    try:
        noted = json.loads(_notes(partial).read_bytes())
        texts = all(isinstance(noted[name], str) for name in ("url", "etag", "last_modified"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return noted if texts and isinstance(noted.get("size"), int | None) else None


def _number(text: str | None) -> int | None:
    """A size in bytes; None for what no file has."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,18}", text) else None


# ── one request ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Every redirect comes back as the answer that it is."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _Connection(http.client.HTTPConnection):
    """Gives up when the headers take too long: the timeout of the socket itself starts anew with every byte."""

    def getresponse(self) -> http.client.HTTPResponse:
        late = threading.Event()
        twin = socket.socket(fileno=os.dup(self.sock.fileno()))  # of the same connection; TLS knows nothing of it

        def end() -> None:
            late.set()
            with suppress(OSError):
                twin.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(PATIENCE.answer_seconds, end)
        timer.daemon = True
        timer.start()
        try:
            return super().getresponse()
        finally:
            timer.cancel()
            twin.close()
            if late.is_set():  # to whoever reads, the connection was closed, which may also be the end of headers
                raise http.client.HTTPException(f"its headers did not end in {PATIENCE.answer_seconds:g} seconds")


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    """The same with TLS."""


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, request)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, request)


_OPENER = urllib.request.build_opener(_NoRedirects, _Http, _Https)


@contextmanager
def _opened(
    url: str, headers: dict[str, str], allowed: Allowed, method: str = "GET"
) -> Iterator[http.client.HTTPResponse]:
    """The answer to one request, a lock of its host held meanwhile. Raises _Broken, _OutOfRange, NotFound, SourceError."""
    at = url
    for _ in range(MAX_REDIRECTS + 1):
        allowed(url, at)
        with _connection(at):
            try:
                sent = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity", **headers}
                response = _OPENER.open(
                    urllib.request.Request(at, headers=sent, method=method), timeout=PATIENCE.stall_seconds
                )
            except urllib.error.HTTPError as error:
                with error:
                    at = _led_to(at, error)
                    continue
            except (OSError, http.client.HTTPException, ValueError) as error:
                _explain(at, error)
            with response:
                yield response
                return
    raise SourceError(f"{url} redirects more than {MAX_REDIRECTS} times, at last to {at}", "Name another address.")


def _connection(url: str) -> Any:
    host = re.sub(r"[^a-z0-9.-]", "_", urlsplit(url).netloc.rpartition("@")[2].lower())
    places = [settings().home_path / "locks" / f"host-{host}-{number}" for number in range(CONNECTIONS)]
    return held_slot(places, lambda: logging.getLogger(__name__).warning("waiting for a free connection to %s", host))


def _led_to(at: str, error: urllib.error.HTTPError) -> str:
    """Where a redirect leads; any other answer is raised as what it means."""
    what = f"HTTP {error.code} {error.reason}"
    if error.code in (301, 302, 303, 307, 308) and (location := error.headers.get("Location")):
        return quote(urljoin(at, location), safe=string.punctuation)
    if error.code == 416:
        total = re.match(r"bytes \*/(\d{1,18})$", error.headers.get("Content-Range", ""))
        raise _OutOfRange(int(total[1]) if total else None)
    if error.code in (408, 425, 429) or (error.code >= 500 and error.code != 501):
        raise _Broken(what, _retry_after(error.headers))
    kind = {404: NotFound, 410: NotFound, 405: _NoSuchMethod, 501: _NoSuchMethod}.get(error.code, SourceError)
    raise kind(f"{at} can't be downloaded: {what}", "Check the address.")


def _retry_after(headers: Message) -> float | None:
    """Seconds that the server asks to wait, a year at most: a number, or a date. None: what it says is neither."""
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]+", text):
        return min(float(text), A_YEAR)
    with suppress(ValueError, TypeError, OverflowError):
        when = parsedate_to_datetime(text)
        wait = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
        return min(max(0.0, wait), A_YEAR)
    return None


def _explain(url: str, error: Exception) -> Never:
    """A connection that failed: whether another attempt may help."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        raise SourceError(f"{url}: its certificate is not accepted: {reason}", "Check the address and the clock.")
    if isinstance(error, ValueError | http.client.InvalidURL):
        raise SourceError(f"{url} is no address that can be opened: {reason}", "Correct the address.")
    raise _Broken(f"no answer ({_named(reason)})") from error


def _read(read: Callable[[], T]) -> T:
    try:
        return read()
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(f"the connection broke ({_named(error)})") from error


def _named(reason: Any) -> str:
    if isinstance(reason, TimeoutError):
        return f"not a byte in {PATIENCE.stall_seconds:g} seconds"
    return str(reason) or type(reason).__name__


def _copy(url: str, partial: Path, heard: Heard) -> None:
    """A file:// URL."""
    try:
        source = urllib.request.urlopen(url)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise SourceError(f"{url} can't be downloaded: {reason}", "Check the address.") from error
    done = 0
    with source, partial.open("wb") as file:
        while chunk := source.read(CHUNK_BYTES):
            file.write(chunk)
            done += len(chunk)
            heard(done)
