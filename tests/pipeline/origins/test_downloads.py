"""Downloads from a server that misbehaves: real sockets, real processes, real locks."""

import hashlib
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline import progress
from pipeline.errors import SourceError, StoreError
from pipeline.origins import downloads, transfer
from pipeline.origins.downloads import Wanted, fetch
from pipeline.origins.transfer import NotFound, Patience, Unreachable
from pipeline.storage import content
from tests.conftest import ROOT
from tests.pipeline.badserver import (
    Site,
    announced,
    http_date,
    instead,
    redirect,
    serving,
    short,
    stall,
    status,
    trickle,
    without_ranges,
)

DATA = random.Random(7).randbytes(300_000)
QUICK = Patience(attempts=4, pause_seconds=0.01, stall_seconds=0.3, answer_seconds=1.5, longest_wait_seconds=5)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(transfer, "PATIENCE", QUICK)
    return tmp_path / "home"


@pytest.fixture
def site():
    with serving() as server:
        server.files["/a.bz2"] = DATA
        yield server


def wanted(site: Site, name: str = "a.bz2", data: bytes | None = None, size: int | None = 0, **other) -> Wanted:
    data = site.files[f"/{name}"] if data is None else data
    digest = hashlib.sha1(data).hexdigest()
    return Wanted(f"{site.url}/{name}", name, digest, "sha1", len(data) if size == 0 else size, **other)


def partial_of(each: Wanted) -> Path:
    return each.folder / "partial"


def get(*files: Wanted) -> list[bytes]:
    return [path.read_bytes() for path in fetch(files, downloads.anywhere).paths]


def asked_from(site: Site, path: str = "/a.bz2") -> list[int]:
    """At which byte each request for the file began."""
    return [int(range_[6:-1]) if range_ else 0 for range_ in site.asked(path)]


# ── broken connections ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_download_leaves_the_file_alone_and_is_not_done_twice(site):
    file = wanted(site)
    assert get(file) == [DATA] == get(file)
    assert asked_from(site) == [0]
    assert sorted(path.name for path in file.folder.iterdir()) == [".lock", "a.bz2"]


def test_short_bodies_are_taken_up_where_they_broke(site):
    site.script["/a.bz2"] = [short(100_000), short(50_000), short(1)]
    assert get(wanted(site)) == [DATA]
    assert asked_from(site) == [0, 100_000, 150_000, 150_001]


def test_why_a_download_waits_is_told_where_its_progress_is(site):
    site.script["/a.bz2"] = [status(503)]
    said = []
    with progress.listen(lambda _: None, said.append):
        assert get(wanted(site)) == [DATA]
    (line,) = said
    assert line.startswith(f"{site.url}/a.bz2: ") and "503" in line and line.endswith("attempt 2 of 4 in 0.01 s")


def test_attempts_count_only_while_nothing_new_comes(site):
    site.script["/a.bz2"] = [short(10_000)] * 20  # far more than attempts
    assert get(wanted(site)) == [DATA]
    site.files["/b.bz2"] = DATA[::-1]
    site.always["/b.bz2"] = short(0)
    with pytest.raises(Unreachable, match=r"b\.bz2 can't be downloaded: the connection ended after 0 of 300,000 bytes"):
        get(wanted(site, "b.bz2"))
    assert len(site.asked("/b.bz2")) == QUICK.attempts


def test_a_stalled_connection_is_given_up_and_taken_up(site):
    site.script["/a.bz2"] = [stall(70_000)]
    began = time.monotonic()
    assert get(wanted(site)) == [DATA]
    assert asked_from(site) == [0, 70_000]
    assert time.monotonic() - began < 3


def test_a_server_that_accepts_and_never_answers(site):
    site.always["/a.bz2"] = lambda handler: handler.server.ended.wait(20)
    with pytest.raises(Unreachable, match=r"no answer \(not a byte in 0\.3 seconds\)"):
        get(wanted(site))


def test_server_errors_and_too_many_requests_are_waited_out(site):
    site.script["/a.bz2"] = [status(503), status(500), status(429)]
    assert get(wanted(site)) == [DATA]
    site.files["/b.bz2"] = DATA[1:]
    site.always["/b.bz2"] = status(502)
    with pytest.raises(Unreachable, match="HTTP 502"):
        get(wanted(site, "b.bz2"))


@pytest.mark.parametrize("after", [lambda: 1, lambda: http_date(2)], ids=["seconds", "date"])
def test_retry_after_is_honoured(site, after):
    site.script["/a.bz2"] = [status(429, Retry_After=after())]
    began = time.monotonic()
    assert get(wanted(site)) == [DATA]
    assert 0.9 < time.monotonic() - began < 4


def test_a_server_that_asks_for_an_hour_ends_the_run_and_keeps_what_came(site):
    site.script["/a.bz2"] = [short(50_000), status(429, Retry_After=3600)]
    with pytest.raises(Unreachable, match=r"HTTP 429.*50,000 bytes are kept.*\n.*run again in 3600 seconds"):
        get(wanted(site))
    assert get(wanted(site)) == [DATA]
    assert asked_from(site) == [0, 50_000, 50_000]


@pytest.mark.parametrize(
    ("after", "later"),
    [
        ("3600", "in 3600 seconds"),
        ("864000", "in 10 days"),
        ("9" * 400, "in a year or more"),
        ("9" * 5000, "in a year or more"),
        ("Fri, 31 Dec 9999 23:59:59 GMT", "in a year or more"),
        ("Fri, 31 Dec 9999 23:59:59 -2359", "in a year or more"),
    ],
)
def test_a_server_that_asks_for_too_long_a_wait_ends_the_run(site, after, later):
    site.always["/a.bz2"] = status(429, Retry_After=after)
    with pytest.raises(Unreachable) as raised:
        get(wanted(site))
    assert raised.value.what == f"{site.url}/a.bz2 can't be downloaded: HTTP 429 Too Many Requests"
    assert raised.value.todo == f"The server asks to wait: run again {later}."
    assert len(site.log) == 1


@pytest.mark.parametrize(
    "after",
    [
        "-5",
        "0",
        "1.5e300",
        "nan",
        "soon",
        "",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Thu, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Thu, 01 Jan 2026 00:00:00 +99999999999999999999",
        "\xb2",
    ],
)
def test_a_retry_after_that_says_nothing_changes_nothing(site, after):
    site.script["/a.bz2"] = [status(503, Retry_After=after)] * (QUICK.attempts - 1)
    began = time.monotonic()
    assert get(wanted(site)) == [DATA]
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("digits", [20, 400, 5000])
def test_sizes_that_no_file_has_are_not_believed(site, digits):
    def act(handler):
        handler.head(206, Content_Range=f"bytes 1000-2000/{'9' * digits}", Content_Length=len(DATA) - 1000)
        handler.body(DATA[1000:])

    site.script["/a.bz2"] = [short(1000), act]
    assert get(wanted(site, size=None)) == [DATA]
    site.always["/b.bz2"] = announced("9" * digits)
    site.files["/b.bz2"] = DATA[1:]
    assert get(wanted(site, "b.bz2", size=None)) == [DATA[1:]]


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\nX-Long: "], ids=["status", "header"]
)
def test_headers_that_trickle_are_given_up(site, start):
    site.script["/a.bz2"] = [trickle(0.05, start)]
    assert get(wanted(site)) == [DATA]
    site.always["/b.bz2"] = trickle(0.05, start)
    with pytest.raises(Unreachable, match=r"no answer \(its headers did not end in 1\.5 seconds\)"):
        get(wanted(site, "b.bz2", DATA))
    assert len(site.asked("/b.bz2")) == QUICK.attempts


def test_a_tls_handshake_that_trickles_is_given_up(site):
    def serve(listening):
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.sendall(b"\x16\x03\x03\x3f\xff")  # a record of 16 kB begins
            while not site.ended.wait(0.05):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(Unreachable, match="no answer"):
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        transfer.page(f"https://127.0.0.1:{listening.getsockname()[1]}/a", lambda *_: None, 1000)


def test_an_endless_row_of_interim_answers_is_given_up(site):
    def act(handler):
        while not handler.server.ended.wait(0.05):
            handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    site.script["/a.bz2"] = [act]
    assert get(wanted(site)) == [DATA]


def test_a_slow_body_is_no_slow_answer(site):
    def act(handler):
        handler.head(200, Content_Length=len(DATA))
        for at in range(0, len(DATA), 20_000):
            handler.wfile.write(DATA[at : at + 20_000])
            handler.server.ended.wait(0.15)

    site.script["/a.bz2"] = [act]
    assert get(wanted(site)) == [DATA]
    assert len(site.log) == 1


def test_what_another_attempt_would_not_mend_fails_at_once(site):
    site.always["/a.bz2"] = status(403)
    with pytest.raises(SourceError, match="HTTP 403"):
        get(wanted(site))
    with pytest.raises(NotFound, match="HTTP 404"):
        get(wanted(site, "nothing.bz2", DATA))
    assert len(site.log) == 2


def test_a_server_without_ranges_gives_all_of_it_again(site):
    site.script["/a.bz2"] = [short(100_000)]
    site.always["/a.bz2"] = without_ranges
    assert get(wanted(site)) == [DATA]
    assert asked_from(site) == [0, 100_000]


def test_without_validators_the_size_and_the_checksum_decide(site):
    site.validators = False
    site.script["/a.bz2"] = [short(100_000)]
    assert get(wanted(site)) == [DATA]
    assert asked_from(site) == [0, 100_000]


def test_a_server_that_answers_416(site):
    file = wanted(site)
    site.script["/a.bz2"] = [short(100_000), status(416), short(150_000), status(416, Content_Range="bytes */7")]
    assert get(file) == [DATA]
    assert asked_from(site) == [0, 100_000, 0, 150_000, 0]


def test_a_whole_partial_file_of_unknown_size_is_recognised(site):
    """Killed between the last byte and the checksum: the server says 416, and that there is nothing more."""
    file = wanted(site, size=None)
    site.script["/a.bz2"] = [short(len(DATA) - 1), status(403)]
    with pytest.raises(SourceError):
        get(file)
    with partial_of(file).open("ab") as partial:
        partial.write(DATA[-1:])
    assert get(file) == [DATA]
    assert asked_from(site) == [0, len(DATA) - 1, len(DATA)]


WRONG = "wrong checksum"  # said when bytes of two files were joined: found in the end, but a whole download too late


@pytest.mark.parametrize("validators", [True, False])
def test_a_file_that_changes_in_mid_download_starts_again(site, validators, caplog):
    new = DATA[::-1] if validators else DATA[::-1] + b"longer"
    site.validators = validators
    file = wanted(site, data=new, size=None)

    def change(handler):
        short(100_000)(handler)
        site.files["/a.bz2"] = new

    site.script["/a.bz2"] = [change]
    assert get(file) == [new] and WRONG not in caplog.text
    # If-Range saves a request: the server itself sees that the file is another one, and sends it all
    assert asked_from(site) == ([0, 100_000] if validators else [0, 100_000, 0])


def test_a_file_that_shrinks_in_mid_download_starts_again(site, caplog):
    new = DATA[:50_000]
    file = wanted(site, data=new, size=None)
    site.validators = False
    site.script["/a.bz2"] = [lambda handler: (short(100_000)(handler), site.files.update({"/a.bz2": new}))]
    assert get(file) == [new] and WRONG not in caplog.text
    assert asked_from(site) == [0, 100_000, 0]


def test_a_206_of_another_file_or_place_is_not_appended(site, caplog):
    """A server that ignores If-Range and sends the rest of a new file, or other bytes than asked for."""
    file = wanted(site)

    def other_file(handler):
        handler.head(206, Content_Range=f"bytes 100000-299999/{len(DATA)}", Content_Length=200_000, ETag='"new"')
        handler.body(DATA[100_000:][::-1])

    def other_place(handler):
        handler.head(206, Content_Range=f"bytes 5-299999/{len(DATA)}", Content_Length=299_995)
        handler.body(DATA[5:])

    for act in (other_file, other_place):
        site.script["/a.bz2"] = [short(100_000), act]
        assert get(file) == [DATA] and WRONG not in caplog.text
        assert asked_from(site)[-3:] == [0, 100_000, 0]
        file.path.unlink()


def test_a_file_of_another_size_than_declared_is_not_downloaded(site):
    file = wanted(site, size=len(DATA) + 1)
    with pytest.raises(SourceError, match="the server's file has 300,000 bytes instead of 300,001"):
        get(file)
    assert transfer.length(partial_of(file)) == 0


def test_a_content_length_that_is_not_true(site):
    site.script["/a.bz2"] = [announced(len(DATA) + 5), announced(20)]
    assert get(wanted(site)) == [DATA]
    site.files["/b.bz2"] = DATA[5:]
    site.script["/b.bz2"] = [announced(len(DATA) + 5)]  # no size is declared: more is announced than ever comes
    assert get(wanted(site, "b.bz2", size=None)) == [DATA[5:]]


def test_a_body_without_a_length(site):
    def chunked(handler):
        handler.protocol_version = "HTTP/1.1"
        handler.head(200, Transfer_Encoding="chunked")
        for at in range(0, len(DATA), 65_536):
            piece = DATA[at : at + 65_536]
            handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        handler.wfile.write(b"0\r\n\r\n")

    def more_than_declared(handler):
        handler.head(200)
        handler.wfile.write(DATA * 2)

    site.script["/a.bz2"] = [more_than_declared, chunked]
    assert get(wanted(site)) == [DATA]


# ── checksums ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_wrong_checksum_gets_a_second_chance(site, caplog):
    site.script["/a.bz2"] = [instead(DATA[::-1])]
    assert get(wanted(site)) == [DATA] and WRONG in caplog.text
    assert asked_from(site) == [0, 0]


def test_a_checksum_that_stays_wrong_is_an_error_and_nothing_is_left(site):
    file = wanted(site, data=DATA[::-1])
    got = hashlib.sha1(DATA).hexdigest()
    with pytest.raises(SourceError, match=f"a.bz2 has the wrong SHA1: expected {file.digest}, got {got}"):
        get(file)
    assert asked_from(site) == [0, 0]
    assert [path.name for path in file.folder.iterdir()] == [".lock"]


def test_a_kept_file_is_hashed_once_and_again_when_it_changed(site, monkeypatch, tmp_path):
    hashed = []

    def counted(path, algorithm="sha256", original=downloads.digest_of):
        hashed.append(path.name)
        return original(path, algorithm)

    monkeypatch.setattr(downloads, "digest_of", counted)
    monkeypatch.setattr(content, "SETTLED_SECONDS", 0.05)
    file = wanted(site)
    (path,) = fetch([file], downloads.anywhere).paths
    time.sleep(0.1)
    get(file)
    hashed.clear()
    downloads.link_or_copy(path, tmp_path / "published")
    get(file)
    get(file)
    assert hashed == []
    damaged = bytearray(DATA)
    damaged[1000] ^= 1
    times = path.stat()
    (tmp_path / "published").write_bytes(damaged)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert get(file) == [DATA]
    assert hashed.count("a.bz2") == 2 and len(site.log) == 2  # before and under the lock; then it was fetched again
    assert (tmp_path / "published").read_bytes() == damaged


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────

CHILD = """
import sys
from pipeline.origins import downloads, transfer
from pipeline.origins.downloads import Wanted, fetch
transfer.PATIENCE = transfer.Patience(pause_seconds=0.01, stall_seconds=30)
url, digest, size = sys.argv[1:]
try:
    fetched = fetch([Wanted(url, url.rpartition("/")[2], digest, "sha1", int(size))], downloads.anywhere)
except KeyboardInterrupt:
    sys.exit(130)  # as a command does: unlike an interrupt that nobody handles, this waits for threads
print(fetched.bytes)
"""


def child(file: Wanted) -> subprocess.Popen:
    command = [sys.executable, "-c", CHILD, file.url, file.digest, str(file.size)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(true) -> None:
    for _ in range(1000):
        if true():
            return
        time.sleep(0.02)
    pytest.fail("it never came to that")


def test_a_killed_process_loses_nothing(site):
    """kill -9 in mid-download: the next process asks the server for the rest only."""
    file = wanted(site)
    site.script["/a.bz2"] = [stall(200_000)]
    with child(file) as process:
        until(lambda: transfer.length(partial_of(file)) == 200_000)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    fetched = fetch([file], downloads.anywhere)
    assert fetched.paths[0].read_bytes() == DATA and fetched.bytes == 100_000
    assert asked_from(site) == [0, 200_000]


def test_ctrl_c_does_not_wait_for_a_stalled_connection(site):
    file = wanted(site)
    site.script["/a.bz2"] = [stall(200_000)]
    with child(file) as process:
        until(lambda: transfer.length(partial_of(file)) == 200_000)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(20)
    assert time.monotonic() - began < 5 and process.returncode == 130
    assert get(file) == [DATA] and asked_from(site) == [0, 200_000]


def test_a_partial_file_goes_on_from_another_mirror(site):
    file = wanted(site)
    site.script["/a.bz2"] = [short(200_000), status(403)]
    with pytest.raises(SourceError):
        get(file)
    with serving() as mirror:
        mirror.files["/mirror/a.bz2"] = DATA
        mirror.validators = False
        there = Wanted(f"{mirror.url}/mirror/a.bz2", file.name, file.digest, "sha1", file.size)
        assert get(there) == [DATA]
        assert asked_from(mirror, "/mirror/a.bz2") == [200_000]


def test_a_damaged_partial_file_costs_one_more_download(site):
    file = wanted(site)
    site.script["/a.bz2"] = [short(200_000), status(403)]
    with pytest.raises(SourceError):
        get(file)
    with partial_of(file).open("r+b") as partial:
        partial.write(b"\0" * 4096)
    assert get(file) == [DATA]
    assert asked_from(site) == [0, 200_000, 200_000, 0]
    noted = file.folder / "partial.json"
    for notes in ("", "{}", '{"url": 1, "etag": "", "last_modified": "", "size": 3}'):
        partial_of(file).write_bytes(b"of what?")
        noted.write_text(notes)
        file.path.unlink()
        assert get(file) == [DATA] and asked_from(site)[-1] == 0


def test_two_processes_fetch_a_file_once(site):
    file = wanted(site)
    go = threading.Event()

    def held(handler):
        go.wait(20)
        short(len(DATA))(handler)

    site.script["/a.bz2"] = [held]
    with child(file) as first:
        until(lambda: site.log)
        with child(file) as second:
            assert second.stderr.readline().startswith(f"waiting for the download of a.bz2 (pid {first.pid} on ")
            go.set()
            assert sorted([first.communicate()[0].strip(), second.communicate()[0].strip()]) == ["0", "300000"]
    assert asked_from(site) == [0]


def test_at_most_two_connections_in_all_processes_together(site):
    """Eight files, two processes of two threads each: the server never sees a third connection."""
    for number in range(8):
        site.files[f"/{number}.bz2"] = DATA[number:]

        def slow(handler):
            time.sleep(0.05)
            short(len(handler.data))(handler)

        site.always[f"/{number}.bz2"] = slow
    files = [wanted(site, f"{number}.bz2") for number in range(8)]
    code = CHILD.replace("url, digest, size = sys.argv[1:]", "").replace(
        'fetch([Wanted(url, url.rpartition("/")[2], digest, "sha1", int(size))], downloads.anywhere)',
        'fetch([Wanted(u, u.rpartition("/")[2], d, "sha1", int(s)) for u, d, s in zip(*[iter(sys.argv[1:])] * 3)], '
        "downloads.anywhere)",
    )
    words = [word for file in files[:4] for word in (file.url, file.digest, str(file.size))]
    with subprocess.Popen([sys.executable, "-c", code, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        until(lambda: site.log)
        assert get(*files[4:]) == [DATA[number:] for number in range(4, 8)]
        assert other.communicate()[0].strip() == str(sum(len(DATA) - number for number in range(4)))
    assert site.peak == 2
    assert len(site.log) == 8


def test_the_first_error_ends_the_others_and_their_bytes_stay(site):
    site.files["/b.bz2"] = DATA * 2
    site.script["/b.bz2"] = [stall(1000)]
    slow, gone = wanted(site, "b.bz2"), wanted(site, "gone.bz2", DATA[1:])
    site.script["/gone.bz2"] = [
        lambda handler: (until(lambda: transfer.length(partial_of(slow))), status(404)(handler))
    ]
    began = time.monotonic()
    with pytest.raises(NotFound, match=r"gone\.bz2"):
        get(slow, gone)
    assert time.monotonic() - began < 4
    assert get(slow) == [DATA * 2] and asked_from(site, "/b.bz2")[-1] == 1000


def test_progress_is_in_bytes_over_all_files(site, monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0)
    site.files["/b.bz2"] = DATA[:100_000]
    first, second = wanted(site), wanted(site, "b.bz2")
    site.script["/b.bz2"] = [short(40_000), status(403)]
    with pytest.raises(SourceError):
        get(second)
    heard: list[progress.Progress] = []
    with progress.listen(heard.append):
        get(first, second)
    said = [each for each in heard if each.unit == "bytes"]
    assert {each.total for each in said} == {400_000.0}
    assert said[0].before == 40_000 and said[-1].done == 400_000
    assert str(said[-1]).startswith("0.4/0.4 MB")


# ── the disk ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_free_disk_is_looked_at_before_the_first_byte(site, home):
    """One file would fit, all of them do not."""
    vast = [
        Wanted(f"{site.url}/{n}.bz2", f"{n}.bz2", hashlib.sha1(b"%d" % n).hexdigest(), "sha1", 10**15) for n in range(2)
    ]
    with pytest.raises(StoreError, match=r"home: 2,000\.0 TB are still to be downloaded .* GB are free"):
        get(*vast)
    assert not site.log


def test_free_disk_is_looked_at_when_only_the_server_knows_the_size(site):
    site.always["/a.bz2"] = announced(10**15)
    file = wanted(site, size=None)
    with pytest.raises(StoreError, match=r"1,000\.0 TB are still to be downloaded"):
        get(file)
    assert transfer.length(partial_of(file)) == 0


def test_a_disk_that_fills_up_is_a_clear_error_and_the_rest_comes_later(site):
    file = wanted(site)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, before[1]))
    try:
        with pytest.raises(StoreError, match=r"a\.bz2|partial"):
            get(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert transfer.length(partial_of(file)) == 120_000
    assert get(file) == [DATA]
    assert asked_from(site) == [0, 120_000]


# ── redirects ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_redirects_are_followed_and_resumed(site):
    site.always["/moved.bz2"] = redirect("/a.bz2")
    site.script["/a.bz2"] = [short(100_000)]
    assert get(wanted(site, "moved.bz2", DATA)) == [DATA]
    assert asked_from(site) == [0, 100_000]


def test_a_circle_of_redirects(site):
    site.always["/moved.bz2"] = redirect("/moved.bz2")
    with pytest.raises(SourceError, match=r"moved\.bz2 redirects more than 5 times"):
        get(wanted(site, "moved.bz2", DATA))
    assert len(site.log) == 6


@pytest.mark.parametrize(
    ("asked", "at", "follows"),
    [
        ("https://a.example/x", "https://cdn.example/y", True),
        ("http://a.example/x", "https://a.example/x", True),
        ("https://a.example/x", "http://a.example/x", False),
        ("https://a.example/x", "file:///etc/passwd", False),
        ("https://a.example/x", "ftp://a.example/x", False),
        ("http://a.example/x", "http://169.254.169.254/latest/meta-data", False),
        ("http://a.example/x", "http://2130706433/x", False),
        ("http://a.example/x", "http://127.1/x", False),
        ("http://a.example/x", "http://0x7f000001/x", False),
        ("http://a.example/x", "http://localhost./x", False),
        ("https://a.example/x", "https://[::1]/x", False),
        ("https://a.example/x", "https://10.0.0.8/x", False),
        ("https://a.example/x", "https://localhost/x", False),
        ("https://10.0.0.8/x", "https://10.0.0.8/y", True),
    ],
)
def test_where_a_redirect_of_a_recipes_url_may_lead(asked, at, follows):
    if follows:
        downloads.anywhere(asked, at)
    else:
        with pytest.raises(SourceError, match=r"leads to"):
            downloads.anywhere(asked, at)


def test_a_redirect_to_a_strange_place_is_not_requested(site):
    site.always["/moved.bz2"] = redirect("http://169.254.169.254/latest/meta-data")
    with pytest.raises(SourceError, match=r"leads to http://169\.254"):
        get(wanted(site, "moved.bz2", DATA))
