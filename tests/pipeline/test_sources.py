import functools
import hashlib
import http.server
import json
import os
import resource
import shutil
import stat
import threading
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from pipeline import sources
from pipeline.config import FilesConfig, From, WheelFrom
from pipeline.errors import SourceError, StoreError
from pipeline.origins import transfer, wheels
from pipeline.origins.transfer import Patience
from pipeline.storage.manifest import list_files

DATA = b"Once upon a time there was a tailor.\n" * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()


def origin(**words):
    return TypeAdapter(From).validate_python(words)


def fetch(out, **words):
    out.mkdir()
    return sources.fetch_files({}, FilesConfig(**{"from": words}), out)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(transfer, "PATIENCE", Patience(pause_seconds=0.01))
    return tmp_path / "home"


@pytest.fixture
def site(tmp_path):
    """A web server over a folder: (folder, address, list of requested paths)."""
    folder = tmp_path / "site"
    folder.mkdir()
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            if self.path.startswith("/breaks/") and "Range" not in self.headers:
                self.send_response(200)
                self.send_header("Content-Length", str(len(DATA)))
                self.end_headers()
                self.wfile.write(DATA[:10_000])
            elif self.path.startswith("/breaks/"):
                start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
                self.send_response(206)
                self.send_header("Content-Length", str(len(DATA) - start))
                self.end_headers()
                self.wfile.write(DATA[start:])
            else:
                super().do_GET()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


# ── local paths ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_local_file_is_referenced_and_not_copied(tmp_path):
    (tmp_path / "tales.txt").write_bytes(DATA)
    statistics = fetch(tmp_path / "out", path=str(tmp_path / "tales.txt"))
    wanted = [{"path": "tales.txt", "size_bytes": len(DATA), "sha256": SHA256}]
    assert json.loads((tmp_path / "out" / "references.json").read_text()) == wanted
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["references.json"]
    assert statistics["size_bytes"] == len(DATA) and statistics["file_count"] == 1
    assert sources.resolve(origin(path=str(tmp_path / "tales.txt"))) == {"files": wanted}


def test_a_referenced_parquet_file_has_the_version_of_its_bytes(tmp_path):
    path = tmp_path / "t" / "rows.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"n": range(9)}), path)
    fetch(tmp_path / "referenced", path=str(path))
    (tmp_path / "bytes").mkdir()
    shutil.copy(path, tmp_path / "bytes")
    (referenced,) = list_files(tmp_path / "referenced")
    (written,) = list_files(tmp_path / "bytes")
    assert referenced == {**written, "referenced": True}


def test_where_a_folder_lies_does_not_matter_but_its_names_do(tmp_path):
    for name in ("here", "there"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "b.txt").write_bytes(b"b")
        (tmp_path / name / "a.txt").write_bytes(b"a")
        (tmp_path / name / ".hidden").write_text(name)
    here = sources.resolve(origin(path=str(tmp_path / "here")))
    assert here == sources.resolve(origin(path=str(tmp_path / "there")))
    assert [each["path"] for each in here["files"]] == ["a.txt", "deep/b.txt"]
    (tmp_path / "there" / "a.txt").rename(tmp_path / "there" / "c.txt")
    assert here != sources.resolve(origin(path=str(tmp_path / "there")))


def test_a_missing_path_says_where_it_looked(tmp_path):
    (tmp_path / "tails.txt").write_bytes(DATA)
    wanted = origin(path=str(tmp_path / "books" / "tales.txt"))
    assert not sources.present(wanted) and sources.present(origin(path=str(tmp_path / "tails.txt")))
    with pytest.raises(SourceError, match=r"books/tales\.txt does not exist .*tails\.txt"):
        sources.resolve(wanted)
    (tmp_path / "books").mkdir()
    with pytest.raises(SourceError, match="books holds no files"):
        sources.resolve(origin(path=str(tmp_path / "books")))


def test_links_are_followed_once_and_what_is_no_file_is_said(tmp_path):
    (tmp_path / "books").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.txt").write_bytes(b"b")
    (tmp_path / "books" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "books")
    (tmp_path / "books" / "a.txt").symlink_to(tmp_path / "elsewhere" / "b.txt")
    found = sources.resolve(origin(path=str(tmp_path / "books")))["files"]
    assert [each["path"] for each in found] == ["a.txt", "more/b.txt"]
    (tmp_path / "books" / "lost.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SourceError, match=r"lost\.txt is a link that leads nowhere"):
        sources.resolve(origin(path=str(tmp_path / "books")))
    (tmp_path / "books" / "lost.txt").unlink()
    os.mkfifo(tmp_path / "books" / "pipe.txt")
    with pytest.raises(SourceError, match=r"pipe\.txt is no plain file"):
        sources.resolve(origin(path=str(tmp_path / "books")))


def test_a_name_that_is_no_text_is_said(tmp_path):
    with open(os.fsencode(tmp_path) + b"/x\xff.txt", "wb") as file:
        file.write(b"x")
    with pytest.raises(SourceError, match="is not UTF-8"):
        sources.resolve(origin(path=str(tmp_path)))


def test_open_files_gives_a_folder_of_the_bytes(tmp_path):
    (tmp_path / "tales.txt").write_bytes(DATA)
    (tmp_path / "scratch").mkdir()
    folder = sources.open_files(origin(path=str(tmp_path / "tales.txt")), tmp_path / "scratch")
    assert (folder / "tales.txt").read_bytes() == DATA


# ── URLs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_url_is_downloaded_once(tmp_path, site):
    folder, address, asked = site
    (folder / "tales.txt").write_bytes(DATA)
    words = {"url": f"{address}/tales.txt", "sha256": SHA256}
    fetch(tmp_path / "out", **words)
    assert (tmp_path / "out" / "tales.txt").read_bytes() == DATA
    fetch(tmp_path / "again", **words)
    assert (tmp_path / "again" / "tales.txt").read_bytes() == DATA
    assert asked == ["/tales.txt"]
    assert sources.resolve(origin(**words)) == {"sha256": SHA256, "name": "tales.txt"}


def test_a_damaged_kept_file_is_fetched_again(tmp_path, site, home):
    folder, address, asked = site
    (folder / "tales.txt").write_bytes(DATA)
    words = {"url": f"{address}/tales.txt", "sha256": SHA256}
    fetch(tmp_path / "out", **words)
    kept = home / "downloads" / SHA256 / "tales.txt"
    kept.write_bytes(b"x" + DATA[1:])
    fetch(tmp_path / "again", **words)
    assert (tmp_path / "again" / "tales.txt").read_bytes() == DATA and len(asked) == 2


def test_a_broken_connection_is_taken_up_where_it_broke(tmp_path, site):
    _, address, asked = site
    fetch(tmp_path / "out", url=f"{address}/breaks/tales.txt", sha256=SHA256)
    assert (tmp_path / "out" / "tales.txt").read_bytes() == DATA
    assert asked == ["/breaks/tales.txt"] * 2


def test_a_wrong_digest_names_file_expected_and_got(tmp_path, site, home):
    folder, address, _ = site
    (folder / "tales.txt").write_bytes(DATA + b"!")
    got = hashlib.sha256(DATA + b"!").hexdigest()
    with pytest.raises(SourceError, match=f"tales.txt has the wrong SHA256: expected {SHA256}, got {got}"):
        fetch(tmp_path / "out", url=f"{address}/tales.txt", sha256=SHA256)
    assert not list((tmp_path / "out").iterdir())
    assert not (home / "downloads" / SHA256 / "tales.txt").exists()


def test_a_url_that_is_not_there(tmp_path, site):
    _, address, asked = site
    with pytest.raises(SourceError, match=r"nothing\.txt can't be downloaded: HTTP 404"):
        fetch(tmp_path / "out", url=f"{address}/nothing.txt", sha256=SHA256)
    assert len(asked) == 1
    with pytest.raises(SourceError, match="can't be downloaded"):
        fetch(tmp_path / "out2", url="http://127.0.0.1:9/tales.txt", sha256=SHA256)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_home_is_a_clear_error(tmp_path, site, home):
    folder, address, _ = site
    (folder / "tales.txt").write_bytes(DATA)
    home.mkdir(mode=0o500)
    with pytest.raises(StoreError, match="downloads"):
        fetch(tmp_path / "out", url=f"{address}/tales.txt", sha256=SHA256)


def test_a_full_disk_is_a_clear_error(tmp_path, home):
    (tmp_path / "tales.txt").write_bytes(DATA)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(StoreError, match=r"tales\.txt"):
            fetch(tmp_path / "out", url=f"file://{tmp_path}/tales.txt", sha256=SHA256)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(home.rglob("tales.txt")) and not list((tmp_path / "out").iterdir())


# ── wheels ───────────────────────────────────────────────────────────────────────────────────────────────────────────

WHEEL = "tales-1.0-py3-none-any.whl"


def write_wheel(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            if name == "tales/link.txt":
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, data)
        archive.writestr("tales-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tales\nVersion: 1.0\n")
        archive.writestr("tales-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tales-1.0.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A package index of one wheel that pip really asks; gives `from`'s words for a member."""
    folder = tmp_path / "index"
    folder.mkdir()
    digest = write_wheel(
        folder / WHEEL, {"tales/data/tailor.txt": DATA, "tales/link.txt": "/etc/passwd", "../evil.txt": "x"}
    )
    for variable, value in {"INDEX_URL": "file:///nowhere", "NO_INDEX": "1", "FIND_LINKS": str(folder)}.items():
        monkeypatch.setenv(f"PIP_{variable}", value)

    def words(member="tales/data/tailor.txt", **other):
        return {"wheel": "tales==1.0", "file": WHEEL, "sha256": digest, "member": member} | other

    return words


def test_one_member_is_read_out_of_a_wheel(tmp_path, wheel, home):
    fetch(tmp_path / "out", **wheel())
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {"tailor.txt": DATA}
    words = wheel()
    kept = home / "downloads" / words["sha256"]
    assert sorted(path.name for path in kept.iterdir() if path.name != ".lock") == [WHEEL]
    assert sources.resolve(origin(**words)) == {"wheel_sha256": words["sha256"], "member": words["member"]}
    (tmp_path / "index" / WHEEL).unlink()  # a second member comes from the kept wheel
    (tmp_path / "scratch").mkdir()
    assert (sources.open_files(origin(**words), tmp_path / "scratch") / "tailor.txt").read_bytes() == DATA


def test_a_folder_is_read_out_of_a_wheel_without_what_lies_below_it(tmp_path, wheel):
    (tmp_path / "out").mkdir()
    wheels.wheel_folder(WheelFrom(**wheel("tales/data/")), tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {"tailor.txt": DATA}
    with pytest.raises(SourceError, match=r"has no files in a folder 'tales/date'\n.*Did you mean tales/data"):
        wheels.wheel_folder(WheelFrom(**wheel("tales/date")), tmp_path / "out")
    with pytest.raises(SourceError, match="is not a regular file"):
        wheels.wheel_folder(WheelFrom(**wheel("tales")), tmp_path / "out")


def test_a_wheel_with_another_digest(tmp_path, wheel):
    got = wheel()["sha256"]
    with pytest.raises(SourceError, match=f"{WHEEL} has the wrong SHA256: expected {'0' * 64}, got {got}"):
        fetch(tmp_path / "out", **wheel(sha256="0" * 64))
    assert not list((tmp_path / "out").iterdir())


def test_a_missing_member_names_near_matches(tmp_path, wheel):
    with pytest.raises(SourceError, match=r"has no member 'tales/tailor.txt'\n.*Did you mean tales/data/tailor.txt"):
        fetch(tmp_path / "out", **wheel("tales/tailor.txt"))


def test_links_and_paths_that_lead_out_are_refused(tmp_path, wheel):
    for number, member in enumerate(["tales/link.txt", "../evil.txt"]):
        with pytest.raises(SourceError, match="is not a regular file"):
            fetch(tmp_path / f"out{number}", **wheel(member))
        assert not list((tmp_path / f"out{number}").iterdir())


def test_a_version_that_the_registry_lacks_shows_what_pip_said(tmp_path, wheel):
    with pytest.raises(SourceError, match=r"(?s)pip can't download .*No matching distribution found for tales==2.0"):
        fetch(tmp_path / "out", **wheel(wheel="tales==2.0", sha256="1" * 64))


def test_a_damaged_zip(tmp_path, wheel):
    path = tmp_path / "index" / WHEEL
    data = bytearray(path.read_bytes())
    at = data.find(b"tales/data/tailor.txt") + 60
    data[at : at + 8] = b"\0" * 8
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"tales/data/tailor\.txt: "):
        fetch(tmp_path / "out", **wheel(sha256=hashlib.sha256(data).hexdigest()))


def test_tags_of_a_platform_wheel():
    name = "gensim-4.4.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl"
    assert wheels._tags(name) == ("cp311", "cp311", ["manylinux_2_24_x86_64", "manylinux_2_28_x86_64"])
