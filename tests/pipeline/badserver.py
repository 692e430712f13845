"""A web server on 127.0.0.1 that serves files well, with ranges and validators, until it is told to behave badly.

site.files["/a.bz2"] = data            what there is
site.script["/a.bz2"] = [short(1000)]  what the next requests for it get; afterwards the file again
site.log                               (method, path, Range header) of every request
site.peak                              most requests that were served at once
"""

import email.utils
import hashlib
import http.server
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Act = Callable[["Handler"], None]
LAST_MODIFIED = "Thu, 01 Jan 2026 10:00:00 GMT"


class Site(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.script: dict[str, list[Act]] = {}
        self.always: dict[str, Act] = {}
        self.log: list[tuple[str, str, str]] = []
        self.validators = True
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.active = self.peak = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def asked(self, path: str) -> list[str]:
        """Range headers of the requests for a path, "" for the whole."""
        return [range_ for _, asked, range_ in self.log if asked == path]

    def handle_error(self, *_: object) -> None:
        """A client that went away is no news."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        site = self.server
        with site.lock:
            site.log.append((self.command, self.path, self.headers.get("Range", "")))
            site.active += 1
            site.peak = max(site.peak, site.active)
            acts = site.script.get(self.path)
            act = acts.pop(0) if acts else site.always.get(self.path, good)
        self.counted = True
        try:
            act(self)
        finally:
            self.leave()

    def leave(self) -> None:
        """Not served any more: said before the last byte, so that a client's next request can't be counted with it."""
        with self.server.lock:
            self.server.active -= self.counted
            self.counted = False

    @property
    def data(self) -> bytes | None:
        return self.server.files.get(self.path)

    def head(self, code: int, **headers: object) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Connection", "close")
        self.end_headers()

    def validators(self) -> dict[str, str]:
        assert self.data is not None
        etag = f'"{hashlib.md5(self.data).hexdigest()}"'
        return {"ETag": etag, "Last_Modified": LAST_MODIFIED} if self.server.validators else {}

    def body(self, data: bytes) -> None:
        if self.command != "HEAD":
            self.wfile.write(data[:-1])
            self.leave()
            self.wfile.write(data[-1:])

    def log_message(self, *_: object) -> None:
        pass


def good(handler: Handler) -> None:
    """As a web server should: ranges, If-Range, 416, 404, and listings of folders."""
    data = handler.data
    if data is None:
        names = {path.removeprefix(handler.path).split("/")[0] for path in handler.server.files}
        inside = sorted(names) if handler.path.endswith("/") else []
        below = [path for path in handler.server.files if path.startswith(handler.path)]
        if not (inside and below):
            return handler.head(404, Content_Length=0)
        names = {path.removeprefix(handler.path).split("/")[0] for path in below}
        page = "".join(f'<a href="{name}/">{name}/</a>' for name in sorted(names)).encode()
        handler.head(200, Content_Length=len(page))
        return handler.body(page)
    validators = handler.validators()
    asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    unchanged = handler.headers.get("If-Range", "") in ("", *validators.values())
    if asked is None or not unchanged:
        handler.head(200, Content_Length=len(data), **validators)
        return handler.body(data)
    start = int(asked[1])
    if start >= len(data):
        return handler.head(416, Content_Range=f"bytes */{len(data)}", Content_Length=0)
    where = f"bytes {start}-{len(data) - 1}/{len(data)}"
    handler.head(206, Content_Range=where, Content_Length=len(data) - start, **validators)
    return handler.body(data[start:])


def short(sent: int) -> Act:
    """The whole is announced, and the connection closed after some bytes, of the part that was asked for."""

    def act(handler: Handler) -> None:
        data = handler.data
        assert data is not None
        start = int((handler.headers.get("Range") or "bytes=0-")[6:-1])
        where = {"Content_Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        handler.head(206 if start else 200, Content_Length=len(data) - start, **where, **handler.validators())
        handler.body(data[start : start + sent])

    return act


def stall(sent: int, until: threading.Event | None = None) -> Act:
    """As `short`, but the connection stays open, and nothing more comes."""

    def act(handler: Handler) -> None:
        data = handler.data
        assert data is not None
        handler.head(200, Content_Length=len(data), **handler.validators())
        handler.wfile.write(data[:sent])
        handler.leave()
        (until or handler.server.ended).wait(20)

    return act


def trickle(seconds: float, start: bytes = b"") -> Act:
    """An answer that begins with `start` and goes on with a header that never ends, a byte every few seconds."""

    def act(handler: Handler) -> None:
        handler.wfile.write(start)
        while not handler.server.ended.wait(seconds):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    return act


def status(code: int, **headers: object) -> Act:
    return lambda handler: handler.head(code, Content_Length=0, **headers)


def redirect(to: str) -> Act:
    return status(302, Location=to)


def without_ranges(handler: Handler) -> None:
    """A server that never heard of ranges."""
    assert handler.data is not None
    handler.head(200, Content_Length=len(handler.data))
    handler.body(handler.data)


def announced(length: int) -> Act:
    """A Content-Length that is not true."""

    def act(handler: Handler) -> None:
        assert handler.data is not None
        handler.head(200, Content_Length=length)
        handler.body(handler.data)

    return act


def instead(data: bytes) -> Act:
    """Other bytes than those of the file."""

    def act(handler: Handler) -> None:
        handler.head(200, Content_Length=len(data))
        handler.body(data)

    return act


def http_date(seconds_from_now: float) -> str:
    import time

    return email.utils.formatdate(time.time() + seconds_from_now, usegmt=True)


@contextmanager
def serving() -> Iterator[Site]:
    site = Site()
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        site.ended.set()
        site.shutdown()
        thread.join()
        site.server_close()
