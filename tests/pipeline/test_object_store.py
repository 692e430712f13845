"""The store in an object store: a real server that speaks S3, with crashes, two writers, flipped bytes and lost files."""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline import progress
from pipeline.errors import RecipeError, StoreError
from pipeline.settings import Settings, settings
from pipeline.storage import manifest
from pipeline.storage.ledger import ObjectLedger
from pipeline.storage.objects import Objects, checked_url
from pipeline.store import Record, Store
from pipeline.system import owners
from tests.pipeline import test_store
from tests.pipeline.killing import killed_at
from tests.pipeline.test_store import STAGE, TABLE, body, fill, publish, publish_all

# What a store promises wherever it lies: these run here with the fixture `store` below.
from tests.pipeline.test_store import (  # noqa: F401 isort: skip
    test_a_champion_beside_the_pointers_is_left_alone,
    test_a_folder_of_referenced_and_written_files_keeps_their_names,
    test_a_link_or_an_empty_stage_is_refused,
    test_a_pointer_keeps_its_history,
    test_a_record_that_is_no_json_is_refused,
    test_a_referenced_file_that_changed_is_refused_by_name,
    test_a_version_written_by_another_parquet_writer_is_the_same,
    test_equal_content_gives_equal_versions_again_and_elsewhere,
    test_nothing_is_left_in_staging_and_the_reader_gets_what_was_written,
    test_references_that_can_not_be_are_refused,
    test_rejected_content_can_be_published_later_without_running_again,
    test_rejected_content_that_was_changed_is_not_published_and_stays,
    test_the_living_keep_their_staging_even_before_its_first_file,
    test_what_is_left_of_accepted_content_is_swept_and_what_waits_is_not,
)


@pytest.fixture
def url(object_store: Callable[[], str]) -> str:
    return object_store()


@pytest.fixture
def store(url: str, tmp_path: Path) -> Store:
    return Store(tmp_path / "home", lease_seconds=2, url=url)


@pytest.fixture
def elsewhere(url: str, tmp_path: Path) -> Store:
    """The same object store, from a machine that has read nothing yet."""
    return Store(tmp_path / "elsewhere", lease_seconds=2, url=url)


def objects(store: Store) -> Objects:
    assert store.url is not None
    return Objects(store.url)


def copies(store: Store, version: str) -> list[str]:
    return objects(store).names(f"store/{STAGE}/{version}")


def object_of(store: Store, version: str, name: str) -> str:
    (copy,) = copies(store, version)
    return f"store/{STAGE}/data/{copy}/{name}"


def flip(store: Store, name: str, share: float = 0.5) -> None:
    data = bytearray(objects(store).read(name))
    data[int(share * (len(data) - 1))] ^= 1
    objects(store).write(name, bytes(data))


# ── what lies where ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_content_records_and_memory_lie_there_and_the_rest_here(store: Store) -> None:
    record = publish_all(store)
    (copy,) = copies(store, record.version)
    assert sorted(objects(store).sizes("")) == sorted(
        [
            *(f"store/{STAGE}/data/{copy}/{name}" for name in ("manifest.json", "part-00000.parquet", "sub/note.txt")),
            f"store/{STAGE}/{record.version}/{copy}",
            f"records/{record.digest}.json",
            f"memory/{record.key}/{record.digest}",
        ]
    )
    assert not (store.home / "store").exists() and not (store.home / "records").exists()
    assert (store.home / "assets" / "demo" / "documents.json").is_file()


def test_the_versions_are_those_of_a_store_on_a_disk(store: Store, tmp_path: Path) -> None:
    assert publish(store) == publish(Store(tmp_path / "disk"))


def test_another_machine_finds_what_was_published_and_reads_it(store: Store, elsewhere: Store) -> None:
    record = publish_all(store)
    assert elsewhere.remembered(record.key) == [record]
    assert elsewhere.record(record.digest) == record
    assert elsewhere.intact(STAGE, record.version)
    assert elsewhere.content(STAGE, record.version).joinpath("sub", "note.txt").read_text(encoding="utf-8") == "hello"
    assert elsewhere.manifest(STAGE, record.version)["version"] == record.version
    folder = elsewhere.folder(STAGE, record.version)
    assert (folder / "sub" / "note.txt").read_text(encoding="utf-8") == "hello"
    assert pq.read_table(folder / "part-00000.parquet").equals(TABLE)
    assert elsewhere.content(STAGE, record.version) == folder
    assert elsewhere.verify() == []


def test_what_was_fetched_is_read_without_the_network(
    elsewhere: Store, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = publish_all(store)
    folder = elsewhere.folder(STAGE, record.version)
    assert elsewhere.record(record.digest) == record

    def offline(*_: Any) -> Any:
        raise AssertionError("the object store was asked")

    monkeypatch.setattr("pipeline.storage.objects.filesystem", offline)
    assert elsewhere.folder(STAGE, record.version) == folder
    assert store.folder(STAGE, record.version).is_dir(), "who published has it already"
    assert elsewhere.record(record.digest) == record
    assert elsewhere.manifest(STAGE, record.version)["version"] == record.version


def test_publishing_again_sends_nothing(store: Store, elsewhere: Store) -> None:
    version = publish(store)
    before = copies(store, version)
    assert publish(store) == publish(elsewhere) == version
    assert copies(store, version) == before


def test_a_folder_here_that_was_damaged_is_fetched_again(store: Store) -> None:
    version = publish(store)
    note = store.folder(STAGE, version) / "sub" / "note.txt"
    note.write_text("hellO", encoding="utf-8")
    assert (store.folder(STAGE, version) / "sub" / "note.txt").read_text(encoding="utf-8") == "hello"


def test_what_is_sent_and_fetched_is_reported(store: Store, elsewhere: Store) -> None:
    heard = []
    with progress.listen(lambda now: heard.append((now.unit, now.done == now.total))):
        version = publish(store)
        elsewhere.folder(STAGE, version)
    assert heard == [("bytes sent to the store", True), ("bytes fetched from the store", True)]


def test_too_little_room_for_what_is_fetched_is_said_before(
    store: Store, elsewhere: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = publish(store)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: os.terminal_size((0, 0)) and type("Usage", (), {"free": 9}))
    with pytest.raises(StoreError, match=r"needs 1\.1 kB here, 9 bytes are free") as raised:
        elsewhere.folder(STAGE, version)
    assert "cache/" in raised.value.todo
    assert not (elsewhere.home / "cache" / STAGE).exists()


def test_a_large_file_goes_in_parts_and_comes_back(store: Store, elsewhere: Store) -> None:
    data = os.urandom(1 << 20) * 120
    with store.staging() as staged:
        (staged / "large").write_bytes(data)
        version = store.publish(STAGE, staged)
    assert (elsewhere.folder(STAGE, version) / "large").read_bytes() == data


def test_bytes_fill_in_what_was_only_referenced(store: Store, elsewhere: Store, tmp_path: Path) -> None:
    dump = tmp_path / "dump.xml"
    dump.write_text("<mediawiki/>", encoding="utf-8")
    version = test_store.reference(store, dump)
    with pytest.raises(StoreError, match="does not say where it lies"):
        elsewhere.folder("files", version)
    assert (elsewhere.folder("files", version, dump) / "dump.xml").is_file()
    with elsewhere.staging() as staged:
        (staged / "dump.xml").write_text("<mediawiki/>", encoding="utf-8")
        assert elsewhere.publish("files", staged) == version
    for each in (store, elsewhere):
        assert (each.folder("files", version) / "dump.xml").read_text(encoding="utf-8") == "<mediawiki/>"
    assert test_store.reference(store, dump) == version
    assert len(objects(store).names(f"store/files/{version}")) == 2
    assert store.url_of("files", version).endswith(
        next(name for name in objects(store).sizes("") if name.endswith("dump.xml")).rpartition("/")[0]
    )


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["part-00000.parquet", "sub/note.txt", "manifest.json", "record"])
def test_one_flipped_bit_in_the_bucket_is_found_by_name_and_made_anew(
    store: Store, elsewhere: Store, kind: str, share: float
) -> None:
    record = publish_all(store)
    name = f"records/{record.digest}.json" if kind == "record" else object_of(store, record.version, kind)
    flip(store, name, share)
    (problem, *others) = store.verify()
    assert name in problem.what and "set aside" in problem.todo
    assert all("is missing" in each.what for each in others)
    if kind == "record":
        assert store.pointer("demo", "documents") is None
        assert store.remembered(record.key) == []
    else:
        assert not store.intact(STAGE, record.version)
        with pytest.raises(StoreError, match="not in the store"):
            elsewhere.folder(STAGE, record.version)
    assert publish_all(store).version == record.version
    assert store.verify() == []
    assert elsewhere.folder(STAGE, record.version).is_dir()


def test_a_reader_names_the_flipped_byte_and_sets_the_copy_aside(store: Store, elsewhere: Store) -> None:
    record = publish_all(store)
    name = object_of(store, record.version, "sub/note.txt")
    flip(store, name)
    with pytest.raises(StoreError, match="its bytes are not those that were published") as raised:
        elsewhere.folder(STAGE, record.version)
    assert name in raised.value.what and "makes it anew" in raised.value.todo
    assert list((elsewhere.home / "staging").iterdir()) == []
    assert not elsewhere.intact(STAGE, record.version) and elsewhere.remembered(record.key) == []
    assert publish(elsewhere) == record.version
    assert (elsewhere.folder(STAGE, record.version) / "sub" / "note.txt").is_file()
    assert objects(store).names(f"broken/{STAGE}/{record.version}"), "what was broken can be looked at"


def test_a_lost_file_and_a_strange_one_are_found(store: Store) -> None:
    version = publish(store)
    objects(store).remove(object_of(store, version, "sub/note.txt"))
    (problem,) = store.verify_version(STAGE, version)
    assert problem.what.endswith("sub/note.txt: missing")
    assert not store.intact(STAGE, version)

    assert publish(store) == version
    objects(store).write(object_of(store, version, "extra"), b"x")
    (problem,) = store.verify_version(STAGE, version)
    assert problem.what.endswith("extra: not in the manifest")


@pytest.mark.parametrize("number", [0, 1])
def test_another_whole_copy_answers_for_a_broken_one(store: Store, elsewhere: Store, number: int) -> None:
    """Readers try copies by name: they meet the broken one first, or never."""
    version = publish(store)
    (first,) = copies(store, version)
    objects(store).remove(f"store/{STAGE}/{version}/{first}")
    assert publish(elsewhere) == version
    objects(store).write(f"store/{STAGE}/{version}/{first}", b"")  # two writers that did not see each other
    broken, whole = sorted(copies(store, version), reverse=bool(number))
    flip(store, f"store/{STAGE}/data/{broken}/sub/note.txt")
    third = Store(store.home.parent / "third", url=store.url)
    assert (third.folder(STAGE, version) / "sub" / "note.txt").read_text(encoding="utf-8") == "hello"
    assert copies(store, version) == ([whole] if number == 0 else sorted([broken, whole]))
    problems = store.verify_version(STAGE, version)
    assert len(problems) == number and all("another copy of this version is whole" in p.todo for p in problems)
    assert copies(store, version) == [whole]
    assert store.intact(STAGE, version)


def test_a_record_that_vanished_is_missed_by_verify(store: Store) -> None:
    record = publish_all(store)
    objects(store).remove(f"records/{record.digest}.json")
    (problem,) = store.verify()
    assert f"names record {record.digest[:12]}, which is missing" in problem.what


def test_a_manifest_that_names_a_file_elsewhere_writes_nothing_there(store: Store, elsewhere: Store) -> None:
    """Whoever may write to the bucket may not write to this machine."""
    files = [{"path": "../../evil", "size_bytes": 4, "sha256": "0" * 64, "digest": "0" * 64}]
    version = manifest.version_in(files)
    sealed = manifest.sealed({"stage": STAGE, "version": version, "files": files})
    objects(store).write(f"store/{STAGE}/data/c/manifest.json", sealed)
    objects(store).write(f"store/{STAGE}/{version}/c", b"")
    objects(store).write(f"store/{STAGE}/data/c/../../evil", b"evil")
    with pytest.raises(StoreError):
        elsewhere.folder(STAGE, version)
    assert not [path for path in elsewhere.home.rglob("*") if path.name == "evil"]


# ── crashes and two at once ──────────────────────────────────────────────────────────────────────────────────────────

WRITES = ("write", "upload", "remove", "remove_all")


def make(store: Store) -> Record:
    """What an asset does: answered by the memory, or made; then the pointer."""
    known = store.remembered("n" * 64)
    record = known[0] if known else store.append(body(publish(store, "new"), key="n" * 64))
    store.point("demo", "new", record)
    return record


@pytest.mark.slow
@pytest.mark.parametrize("broken_before", [False, True])
def test_killed_before_any_write_leaves_nothing_that_is_not_whole(
    object_store: Callable[[], str], tmp_path: Path, broken_before: bool
) -> None:
    expected = Store(tmp_path / "disk")
    with expected.staging() as staged:
        fill(staged, "new")
        version = expected.publish(STAGE, staged)
    number, killed = 0, True
    while killed:
        number += 1
        store = Store(tmp_path / str(number), lease_seconds=2, url=object_store())
        kept = publish_all(store, "kept")
        if broken_before:
            objects(store).remove(object_of(store, make(store).version, "sub/note.txt"))
        killed = killed_at(number, lambda store=store: make(store), Objects, WRITES)  # type: ignore[misc]

        elsewhere = Store(tmp_path / f"{number}-elsewhere", url=store.url)
        if not broken_before:
            assert store.verify() == []
        for record in elsewhere.remembered("n" * 64):
            assert elsewhere.folder(STAGE, record.version).is_dir(), "what is visible is whole"
        assert elsewhere.folder(STAGE, kept.version).is_dir()
        store.sweep()
        assert list((store.home / "staging").glob("*")) == list((store.home / "leases").glob("*")) == []

        assert make(store).version == version
        assert store.verify() == []
        assert elsewhere.folder(STAGE, version).is_dir()
        named = {c for v in (version, kept.version) for c in copies(store, v)} | {
            name
            for v in objects(store).names(f"broken/{STAGE}")
            for name in objects(store).names(f"broken/{STAGE}/{v}")
        }
        assert set(objects(store).names(f"store/{STAGE}/data")) == named, "what dead writers left was swept"
    assert number > 5, "the writes were not counted"


def test_the_copy_of_a_living_writer_is_not_swept_and_that_of_a_dead_one_is(store: Store) -> None:
    with store.upload(STAGE) as upload:
        name = upload.url().removeprefix(f"{store.url}/")
        objects(store).write(f"{name}/part", b"by a worker")
        assert store.sweep() == []
        assert objects(store).sizes(name) == {"part": 11}
        (lease,) = (store.home / "leases").iterdir()
        dead = str(owners.Owner.this()).rpartition(" ")[0] + " 1"
        lease.write_text(dead, encoding="utf-8")
        assert store.sweep() == [f"leases/{lease.name}"]
        assert objects(store).sizes(name) == {}


def test_a_failed_publication_takes_back_what_it_sent(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Objects.upload

    def failing(there: Objects, source: Path, name: str, *rest: Any) -> None:
        if name.endswith("note.txt"):
            raise StoreError("the network is gone")
        real(there, source, name, *rest)

    monkeypatch.setattr(Objects, "upload", failing)
    with pytest.raises(StoreError, match="the network is gone"):
        publish(store)
    assert objects(store).sizes("") == {}
    assert list((store.home / "leases").iterdir()) == []


def write_many(home: Path, url: str, mine: int, count: int) -> None:
    store = Store(home, lease_seconds=2, url=url)
    for n in range(count):
        record = store.append(body(publish(store, f"shared {n}"), key=f"{n:064d}", second=mine))
        store.point("demo", "documents", record)


@pytest.mark.parametrize("homes", [1, 2])
def test_two_writers_at_once_lose_nothing(store: Store, elsewhere: Store, homes: int) -> None:
    fork = multiprocessing.get_context("fork")
    assert store.url is not None
    places = [store.home, elsewhere.home if homes == 2 else store.home]
    writers = [fork.Process(target=write_many, args=(home, store.url, n, 4)) for n, home in enumerate(places, 1)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert store.verify() == []
    for n in range(4):
        assert {r.body["finished"][17:19] for r in store.remembered(f"{n:064d}")} == {"01", "02"}
    assert store.sweep() == []


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_bucket_that_is_gone_is_named(tmp_path: Path, object_store: Callable[[], str]) -> None:
    store = Store(tmp_path / "home", url="s3://no-such-bucket/folder")
    for ask in (lambda: publish(store), lambda: store.remembered("k" * 64), store.verify, objects(store).check):
        with pytest.raises(StoreError, match="the bucket s3://no-such-bucket does not exist") as raised:
            ask()
        assert "settings.yaml" in raised.value.todo


def test_a_server_that_can_not_be_reached_is_no_lost_content(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = publish_all(store)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    code = (
        "import sys; from pathlib import Path; from pipeline.store import Store; from pipeline.errors import StoreError\n"
        "try: Store(Path(sys.argv[1]), url=sys.argv[2]).intact(*sys.argv[3:])\n"
        "except StoreError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "other"), str(store.url), STAGE, record.version],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Could not connect to the endpoint URL" in done.stdout and "AWS_ENDPOINT_URL" in done.stdout


def test_a_filesystem_that_is_not_installed_is_named(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(StoreError, match="adlfs is not installed") as raised:
        publish(Store(tmp_path / "home", url="abfs://container/folder"))
    assert raised.value.todo == "pip install adlfs"
    with pytest.raises(StoreError, match="Protocol not known"):
        publish(Store(tmp_path / "home", url="nosuch://container/folder"))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3://user:secret@bucket/folder", "must not hold a user or password"),
        ("s3://key@bucket/folder", "must not hold a user or password"),
        ("/mnt/disk", "for another disk set `home`"),
        ("file:///mnt/disk", "for another disk set `home`"),
        ("s3://", "must be the URL"),
        ("s3://bucket/folder?versionId=1", "must not hold"),
    ],
)
def test_urls_that_can_not_be_are_refused(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        checked_url(url)
    assert checked_url("s3://bucket/folder/") == "s3://bucket/folder"


def test_settings_refuse_secrets_because_they_stand_in_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.yaml"
    monkeypatch.setenv("BERT_SETTINGS", str(path))
    for number, (text, why) in enumerate(
        [
            ("store: s3://me:hunter2@bucket/x", "store: a URL with a user or password may not stand here"),
            (
                "beam: {options: {s3_secret_access_key: hunter2}}",
                "s3_secret_access_key: a secret, by its name, may not stand here",
            ),
            ("beam: {files: store}", "needs `store`"),
        ]
    ):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("BERT_SETTINGS", str(path))
        with pytest.raises(RecipeError, match=why) as raised:
            settings()
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("beam", "by_url"),
    [
        ({}, False),
        ({"runner": "FlinkRunner"}, True),
        ({"runner": "apache_beam.runners.DataflowRunner"}, True),
        ({"runner": "PrismRunner"}, False),
        ({"runner": "FlinkRunner", "files": "disk"}, False),
        ({"files": "store"}, True),
    ],
)
def test_workers_reach_files_by_url_where_they_are_elsewhere(beam: dict[str, str], by_url: bool) -> None:
    assert Settings.model_validate({"store": "s3://bucket/x", "beam": beam}).beam_by_url == by_url
    if beam.get("files") != "store":
        assert not Settings.model_validate({"beam": beam}).beam_by_url


def test_a_record_that_lies_is_not_taken_from_the_bucket(store: Store) -> None:
    record = publish_all(store)
    other = store.append(body(record.version, second=9))
    ledger = ObjectLedger(objects(store), store.home.parent / "fresh")
    objects(store).write(f"records/{record.digest}.json", objects(store).read(f"records/{other.digest}.json"))
    with pytest.raises(ValueError, match="altered"):
        ledger.load(record.digest)
    assert json.loads(objects(store).read(f"records/{other.digest}.json"))["version"] == record.version
