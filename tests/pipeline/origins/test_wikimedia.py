"""Wikimedia's dumps in both layouts, from a local site."""

import bz2
import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from pipeline import build, progress, settings, sources
from pipeline.build import Node
from pipeline.config import FilesConfig, From
from pipeline.errors import RecipeError, SourceError
from pipeline.origins import transfer, wikimedia
from pipeline.origins.transfer import Patience, Unreachable
from pipeline.sources import STAGE
from pipeline.storage.content import fingerprint
from pipeline.store import open_store
from tests.pipeline.badserver import Site, instead, redirect, serving, short, status


def origin(dump="latest", wiki="tlwiki"):
    return TypeAdapter(From).validate_python({"wiki": wiki, "dump": dump})


def fetch(out: Path, dump="latest"):
    out.mkdir()
    return sources.fetch_files({}, FilesConfig(**{"from": {"wiki": "tlwiki", "dump": dump}}), out)


def chosen(tmp_path, monkeypatch, **downloads):
    """Settings of this test, in a file of their own: what was read is kept by its path."""
    path = tmp_path / f"settings-{len(list(tmp_path.glob('settings-*')))}.yaml"
    path.write_text(json.dumps({"downloads": downloads}))
    monkeypatch.setenv("BERT_SETTINGS", str(path))


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(transfer, "PATIENCE", Patience(attempts=3, page_attempts=2, pause_seconds=0.01))
    with serving() as server:
        chosen(tmp_path, monkeypatch, site=server.url, hosts=["127.0.0.1"])
        yield server


def add_dump(
    site: Site, date: str, job="articlesmultistreamdump", done="done", index=True, **changed
) -> dict[str, bytes]:
    """A dump of two parts with dumpstatus.json; its files by name."""
    kind = "pages-articles-multistream" if "multistream" in job else "pages-articles"
    files = {}
    for part, pages in ((10, "p6p9"), (2, "p1p5")):
        text = f"<mediawiki>{date} {part}<page></page></mediawiki>"
        files[f"tlwiki-{date}-{kind}{part}.xml-{pages}.bz2"] = bz2.compress(text.encode())
        if index and "multistream" in job:
            files[f"tlwiki-{date}-{kind}-index{part}.txt-{pages}.bz2"] = bz2.compress(b"0:1:A")
    entries = {
        name: {"size": len(data), "url": "/x", "md5": "", "sha1": hashlib.sha1(data).hexdigest()} | changed
        for name, data in files.items()
    }
    path = f"/tlwiki/{date}/dumpstatus.json"
    status_ = json.loads(site.files.get(path, b'{"version": "0.8", "jobs": {}}'))
    status_["jobs"][job] = {"status": done, "files": entries}
    site.files[path] = json.dumps(status_).encode()
    site.files.update({f"/tlwiki/{date}/{name}": data for name, data in files.items()})
    return files


def add_export(site: Site, date: str, finished=True, sums=None) -> dict[str, bytes]:
    """A content file export of two parts; its files by name."""
    names = (f"tlwiki-{date}-p10p19.xml.bz2", f"tlwiki-{date}-p1p9.xml.bz2")
    files = {name: bz2.compress(f"<mediawiki>{name}</mediawiki>".encode()) for name in names}
    at = f"/other/mediawiki_content_current/tlwiki/{date}/xml/bzip2"
    lines = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
    site.files.update({f"{at}/{name}": data for name, data in files.items()})
    site.files[f"{at}/SHA256SUMS"] = (sums(lines) if sums else lines).encode()
    if finished:
        site.files[f"{at}/_SUCCESS"] = b""
    return files


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ── which dump ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_latest_is_the_newest_finished_dump_and_stays_so_until_it_is_asked_again(tmp_path, site):
    add_dump(site, "20260101")
    files = add_dump(site, "20260201")
    add_dump(site, "20260301", done="in-progress")
    resolved = sources.resolve(origin())
    assert resolved["date"] == "20260201"
    assert [each["name"] for each in resolved["files"]] == [
        "tlwiki-20260201-pages-articles-multistream2.xml-p1p5.bz2",
        "tlwiki-20260201-pages-articles-multistream10.xml-p6p9.bz2",
        "tlwiki-20260201-pages-articles-multistream-index2.txt-p1p5.bz2",
        "tlwiki-20260201-pages-articles-multistream-index10.txt-p6p9.bz2",
    ]
    add_dump(site, "20260401")  # appears between planning and fetching: not mixed in
    statistics = fetch(tmp_path / "out")
    assert held(tmp_path / "out") == files
    assert statistics["dump_date"] == "20260201" and statistics["file_count"] == 4
    before = len(site.log)
    assert sources.resolve(origin("20260201")) == resolved
    assert sources.resolve(origin(), network=False) == resolved and len(site.log) == before
    assert sources.resolve(origin())["date"] == "20260401"


def test_a_multistream_dump_is_preferred_and_articles_are_taken_without(site):
    add_dump(site, "20260101", job="articlesdump")
    assert [each["name"] for each in sources.resolve(origin("20260101"))["files"]] == [
        "tlwiki-20260101-pages-articles2.xml-p1p5.bz2",
        "tlwiki-20260101-pages-articles10.xml-p6p9.bz2",
    ]
    add_dump(site, "20260201", job="articlesdump")
    add_dump(site, "20260201")
    assert all("multistream" in each["name"] for each in sources.resolve(origin())["files"])
    add_dump(site, "20260301", job="articlesdump")
    add_dump(site, "20260301", done="waiting")
    assert not any("multistream" in each["name"] for each in sources.resolve(origin())["files"])


def test_offline_latest_is_the_newest_that_is_known(site, tmp_path, monkeypatch, caplog):
    add_dump(site, "20260101")
    known = sources.resolve(origin())
    chosen(tmp_path, monkeypatch, site="http://127.0.0.1:9", hosts=["127.0.0.1"])
    assert sources.resolve(origin()) == known
    assert "taking the newest dump known here: 20260101" in caplog.text
    with pytest.raises(Unreachable, match="no answer"):
        sources.resolve(origin(wiki="otherwiki"))
    with pytest.raises(SourceError, match="not known yet"):
        sources.resolve(origin(wiki="otherwiki"), network=False)


def test_a_wiki_without_dumps(site):
    with pytest.raises(SourceError, match=r"has no finished dump of tlwiki; its dates: none\n.*name of the wiki"):
        sources.resolve(origin())
    add_dump(site, "20260101", done="in-progress")
    add_export(site, "2026-02-01", finished=False)
    with pytest.raises(SourceError, match=r"no finished dump of tlwiki; its dates: 20260201, 20260101"):
        sources.resolve(origin())


def test_a_date_that_was_removed_lists_those_of_both_layouts(site):
    add_dump(site, "20260101")
    add_dump(site, "20260220")
    add_export(site, "2026-02-01")
    with pytest.raises(SourceError, match="20150101 of tlwiki is not on .*There are: 20260220, 20260201, 20260101"):
        sources.resolve(origin("20150101"))


def test_a_dump_that_was_removed_after_it_was_resolved_says_so(tmp_path, site):
    add_dump(site, "20260101")
    sources.resolve(origin("20260101"))
    site.files = {path: data for path, data in site.files.items() if "20260101" not in path}
    add_dump(site, "20260701")
    with pytest.raises(SourceError, match="20260101 of tlwiki is not on .*There are: 20260701"):
        fetch(tmp_path / "out", "20260101")


def test_an_unfinished_dump_is_refused(site):
    add_dump(site, "20260101", done="in-progress")
    add_export(site, "2026-02-01", finished=False)
    for date in ("20260101", "20260201"):
        with pytest.raises(SourceError, match=f"{date} of tlwiki is not finished"):
            sources.resolve(origin(date))


def test_a_failing_site_is_asked_again(site):
    add_dump(site, "20260101")
    site.script["/tlwiki/20260101/dumpstatus.json"] = [short(20)]
    site.script["/tlwiki/"] = [status(503)]
    assert sources.resolve(origin())["date"] == "20260101"


# ── content file exports ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_new_layout_serves_a_wiki_or_a_date_that_has_no_dump(tmp_path, site):
    files = add_export(site, "2026-02-01")
    add_export(site, "2026-03-01", finished=False)
    resolved = sources.resolve(origin())
    assert resolved == {
        "wiki": "tlwiki",
        "date": "20260201",
        "files": [
            {"name": name, "sha256": hashlib.sha256(files[name]).hexdigest()}
            for name in ("tlwiki-2026-02-01-p1p9.xml.bz2", "tlwiki-2026-02-01-p10p19.xml.bz2")
        ],
    }
    statistics = fetch(tmp_path / "out")
    assert held(tmp_path / "out") == files
    assert statistics["checksum"] == "sha256" and statistics["dump_date"] == "20260201"
    add_dump(site, "20260101")
    assert sources.resolve(origin("20260201")) == resolved
    assert sources.resolve(origin())["date"] == "20260101", "a dump of articles only is preferred to all namespaces"


def test_a_server_that_knows_no_head_is_no_obstacle(tmp_path, site):
    files = add_export(site, "2026-02-01")
    for name in files:
        site.script[f"/other/mediawiki_content_current/tlwiki/2026-02-01/xml/bzip2/{name}"] = [status(501)]
    fetch(tmp_path / "out")
    assert held(tmp_path / "out") == files


DIGEST = "0" * 64


@pytest.mark.parametrize(
    "line",
    [
        f"{DIGEST}  ../../../etc/tlwiki-2026-02-01-p1p9.xml.bz2",
        f"{DIGEST}  /etc/passwd",
        f"{DIGEST}  tlwiki-2026-02-01-p1p9.xml.bz2/../x.xml.bz2",
        f"{DIGEST}  enwiki-2026-02-01-p1p9.xml.bz2",
        f"{DIGEST}  tlwiki-2025-01-01-p1p9.xml.bz2",
        f"{DIGEST}  tlwiki-2026-02-01-p1p9.sql.gz",
        f"{DIGEST}  tlwiki-2026-02-01-p1p9.xml.bz2\n{'1' * 64}  tlwiki-2026-02-01-p1p9.xml.bz2",
        "0" * 63 + "  tlwiki-2026-02-01-p1p9.xml.bz2",
        "<html>Sorry</html>",
    ],
)
def test_hostile_lines_of_the_checksum_file(site, line):
    add_export(site, "2026-02-01", sums=lambda _: line)
    with pytest.raises(SourceError, match="SHA256SUMS of tlwiki 20260201 has the line"):
        sources.resolve(origin("20260201"))


def test_an_empty_checksum_file_is_no_dump(site):
    add_export(site, "2026-02-01", sums=lambda _: "\n")
    with pytest.raises(SourceError, match="not finished"):
        sources.resolve(origin("20260201"))


# ── dumpstatus.json ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "changed", [{"sha1": "../../etc"}, {"sha1": None}, {"size": "9"}, {"size": True}, {"size": -1}, {"size": 0}]
)
def test_hostile_entries_of_the_status_file(site, changed):
    add_dump(site, "20260101", **changed)
    with pytest.raises(SourceError, match="has size .* and sha1"):
        sources.resolve(origin("20260101"))


@pytest.mark.parametrize(
    "name", ["../../x.xml.bz2", "/x.xml.bz2", "tlwiki-20260101-a/b.xml.bz2", "enwiki-20260101-a.xml.bz2"]
)
def test_hostile_names_in_the_status_file(site, name):
    entry = {"size": 1, "sha1": "0" * 40}
    jobs = {"articlesdump": {"status": "done", "files": {name: entry}}}
    site.files["/tlwiki/20260101/dumpstatus.json"] = json.dumps({"jobs": jobs}).encode()
    with pytest.raises(SourceError, match="the file '.*' has size 1"):
        sources.resolve(origin("20260101"))


@pytest.mark.parametrize(
    "content", [b"<html>", b"[]", b"{}", b'{"jobs": []}', b'{"jobs": {"articlesdump": 3}}', b"\xff"]
)
def test_a_status_file_of_another_form(site, content):
    site.files["/tlwiki/20260101/dumpstatus.json"] = content
    with pytest.raises(SourceError, match=r"dumpstatus\.json (is not JSON|has not the form agreed)"):
        sources.resolve(origin("20260101"))


# ── where from ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_host_that_is_not_listed_is_refused_and_the_setting_named(site, tmp_path, monkeypatch):
    add_dump(site, "20260101")
    chosen(tmp_path, monkeypatch, site=site.url, hosts=["dumps.wikimedia.org", "mirror.example"])
    with pytest.raises(
        SourceError,
        match=r"127\.0\.0\.1.* is not on a host that dumps may come from \(downloads\.hosts of settings\.yaml: dumps.*\n.*add 127",
    ):
        sources.resolve(origin())
    assert not site.log


def test_a_redirect_is_followed_to_listed_hosts_only(site, tmp_path, monkeypatch):
    files = add_dump(site, "20260101", index=False)
    first, _ = sorted(f"/tlwiki/20260101/{name}" for name in files)
    with serving() as mirror:
        mirror.files[first] = site.files[first]
        site.always[first] = redirect(f"http://localhost:{mirror.server_port}{first}")
        with pytest.raises(SourceError, match=r"leads to another host: http://localhost.*downloads\.hosts"):
            fetch(tmp_path / "out")
        assert not mirror.log
        chosen(tmp_path, monkeypatch, site=site.url, hosts=["127.0.0.1", "localhost"])
        fetch(tmp_path / "again")
        assert held(tmp_path / "again") == files and mirror.asked(first) == [""]
    site.always["/tlwiki/"] = redirect("http://169.254.169.254/latest/meta-data")
    with pytest.raises(SourceError, match=r"leads to another host: http://169\.254"):
        sources.resolve(origin())


def test_https_is_not_left(tmp_path, monkeypatch):
    wikimedia.from_listed_hosts("https://dumps.wikimedia.org/a", "https://dumps.wikimedia.org/b")
    for other in ("http://dumps.wikimedia.org/b", "ftp://dumps.wikimedia.org/b"):
        with pytest.raises(SourceError, match="not https"):
            wikimedia.from_listed_hosts("https://dumps.wikimedia.org/a", other)
    for other in (
        "https://dumps.wikimedia.org@evil.example/",
        "https://dumps.wikimedia.org.evil.example/",
        "file:///x",
    ):
        with pytest.raises(SourceError, match="another host"):
            wikimedia.from_listed_hosts("https://dumps.wikimedia.org/a", other)


@pytest.mark.parametrize(
    "downloads",
    [{"site": "dumps.wikimedia.org"}, {"hosts": []}, {"hosts": ["https://dumps.wikimedia.org"]}, {"host": []}],
)
def test_settings_that_can_not_be(tmp_path, monkeypatch, downloads):
    chosen(tmp_path, monkeypatch, **downloads)
    with pytest.raises(RecipeError, match=r"settings-0\.yaml: downloads\."):
        settings.settings()


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_said_of_a_download(tmp_path, site, monkeypatch):
    files = add_dump(site, "20260101")
    monkeypatch.setattr(progress, "INTERVAL", 0)
    heard: list[progress.Progress] = []
    with progress.listen(heard.append):
        statistics = fetch(tmp_path / "out")
    total = sum(map(len, files.values()))
    assert heard[-1].done == heard[-1].total == total
    assert {name: statistics[name] for name in ("origin", "wiki", "dump_date", "url", "checksum", "size_bytes")} == {
        "origin": "wikimedia",
        "wiki": "tlwiki",
        "dump_date": "20260101",
        "url": f"{site.url}/tlwiki/20260101",
        "checksum": "sha1",
        "size_bytes": total,
    }
    said = {each["name"]: (each["size_bytes"], each["sha1"]) for each in statistics["files"]}
    assert said == {name: (len(data), hashlib.sha1(data).hexdigest()) for name, data in files.items()}
    assert statistics["downloaded_bytes"] == total and statistics["download_seconds"] > 0 < statistics["MB_per_second"]
    again = fetch(tmp_path / "again")
    assert again["downloaded_bytes"] == 0 and "MB_per_second" not in again


def test_a_file_with_another_checksum_is_refused(tmp_path, site):
    files = add_dump(site, "20260101")
    name = sorted(files)[-1]
    site.always[f"/tlwiki/20260101/{name}"] = instead(files[name][::-1])
    with pytest.raises(SourceError, match=rf"(?s){name} has the wrong SHA1.*made the dump anew since .*tlwiki\.json"):
        fetch(tmp_path / "out", "20260101")
    assert not held(tmp_path / "out")


def test_a_folder_of_a_dump_is_opened_without_a_copy(tmp_path, site):
    files = add_dump(site, "20260101")
    folder = tmp_path / "scratch"
    folder.mkdir()
    assert held(sources.open_files(origin("20260101"), folder)) == files


# ── the store ────────────────────────────────────────────────────────────────────────────────────────────────────────


def node(dump="latest") -> Node:
    config = FilesConfig(**{"from": {"wiki": "tlwiki", "dump": dump}})
    return Node("r", "dump", STAGE, config, config.digest())


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(data)


def published(version: str) -> list[Path]:
    return sorted(path for path in open_store().content("files", version).iterdir() if path.name != "manifest.json")


def test_damage_to_the_one_copy_on_disk_is_found_and_repaired(site):
    files = add_dump(site, "20260101")
    outcome = build.build(open_store(), node())
    version = outcome.record.version
    paths = published(version)
    assert {path.name: path.read_bytes() for path in paths} == files
    assert all(path.stat().st_nlink == 2 for path in paths), "one copy on disk, kept and published"
    assert not open_store().verify()
    flip(paths[0])
    (problem,) = open_store().verify()
    assert paths[0].name in problem.what
    before = len(site.asked(f"/tlwiki/20260101/{paths[0].name}"))
    outcome = build.build(open_store(), node())
    assert outcome.ran and outcome.record.version == version
    assert {path.name: path.read_bytes() for path in published(version)} == files
    asked = {path.name: len(site.asked(f"/tlwiki/20260101/{path.name}")) for path in paths}
    assert asked == {path.name: before + (path == paths[0]) for path in paths}, "only the damaged file came again"
    assert not open_store().verify()


def test_damage_that_no_time_stamp_tells_is_found_and_repaired_too(site, tmp_path):
    """A disk that loses bits changes no times: the remembered hash of the file is still believed, until `verify`."""
    files = add_dump(site, "20260101")
    version = build.build(open_store(), node()).record.version
    path = published(version)[0]
    kept = next(each for each in (tmp_path / "home" / "downloads").glob(f"*/{path.name}") if each.samefile(path))
    flip(path)
    believe(kept, sha1=hashlib.sha1(files[path.name]).hexdigest())
    believe(path, sha256=hashlib.sha256(files[path.name]).hexdigest())
    assert open_store().intact("files", version), "this is what the test is about: nobody has noticed yet"
    assert open_store().verify()
    assert build.build(open_store(), node()).record.version == version
    assert {path.name: path.read_bytes() for path in published(version)} == files


def test_a_kept_file_that_rotted_is_never_published(site, tmp_path):
    files = add_dump(site, "20260101")
    version = build.build(open_store(), node()).record.version
    path = published(version)[0]
    kept = next(each for each in (tmp_path / "home" / "downloads").glob(f"*/{path.name}") if each.samefile(path))
    shutil.rmtree(tmp_path / "home" / "store")
    flip(kept)
    believe(kept, sha1=hashlib.sha1(files[path.name]).hexdigest())
    with pytest.raises(build.ValidationFailed, match="checksums_as_declared"):
        build.build(open_store(), node())
    assert build.build(open_store(), node()).record.version == version
    assert {path.name: path.read_bytes() for path in published(version)} == files


def believe(path: Path, **digests: str) -> None:
    """Remember digests of a file as it is now, as if it had been hashed before it was damaged."""
    entry = open_store().verified / hashlib.sha256(str(path.resolve()).encode()).hexdigest()
    entry.parent.mkdir(exist_ok=True)
    entry.write_text(json.dumps({"file": fingerprint(path), **digests}))


def test_a_run_takes_the_dump_of_its_key_whatever_another_process_resolves_meanwhile(site, monkeypatch):
    add_dump(site, "20260101")
    files = None

    def meanwhile(*words, original=open_store().staging):
        nonlocal files
        if files is None:
            files = add_dump(site, "20260201")
            sources.resolve(origin())  # what another process would do
        return original(*words)

    store = open_store()
    monkeypatch.setattr(store, "staging", meanwhile)
    record = build.build(store, node()).record
    assert record.body["asked"]["from"]["date"] == "20260101"
    assert all("20260101" in path.name for path in published(record.version))
    assert build.build(open_store(), node()).record.body["asked"]["from"]["date"] == "20260201"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_home_is_a_clear_error(site, tmp_path):
    add_dump(site, "20260101")
    (tmp_path / "home").mkdir(mode=0o500)
    with pytest.raises(Exception, match="read-only|may not write"):
        sources.resolve(origin())
