"""The store: content, records, memory, pointers; what happens on flipped bits, full disks, and with two writers.

Crashes have a file of their own: test_store_crash.py.
"""

import errno
import json
import multiprocessing
import os
import resource
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import StoreError
from pipeline.storage import content
from pipeline.store import MANIFEST, Record, Store
from pipeline.system import owners
from pipeline.system.atomic import write_bytes

STAGE = "documents"
TABLE = pa.table({"doc_id": ["a", "b", None], "text": ["one", "", "three"], "ends": [[1, 3], None, []]})


def fill(folder: Path, note: str = "hello") -> None:
    """What a stage would write: a table and a note in a subfolder."""
    (folder / "sub").mkdir()
    (folder / "sub" / "note.txt").write_text(note, encoding="utf-8")
    pq.write_table(TABLE, folder / "part-00000.parquet")


def body(
    version: str, key: str = "k" * 64, inputs: dict[str, str] | None = None, second: int = 0, asset: str = "documents"
) -> dict[str, Any]:
    time = f"2026-01-01T00:00:{second:02d}.000000+00:00"
    return {
        "recipe": "demo",
        "asset": asset,
        "stage": STAGE,
        "key": key,
        "version": version,
        "inputs": inputs or {},
        "started": time,
        "finished": time,
    }


def publish(store: Store, note: str = "hello") -> str:
    with store.staging() as staged:
        fill(staged, note)
        return store.publish(STAGE, staged)


def publish_all(store: Store, note: str = "hello") -> Record:
    """Content, record, memory, pointer: everything that a finished stage leaves."""
    record = store.append(body(publish(store, note)))
    store.point("demo", "documents", record)
    return record


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home", lease_seconds=2)


# ── versions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_equal_content_gives_equal_versions_again_and_elsewhere(store: Store, tmp_path: Path) -> None:
    assert publish(store) == publish(store) == publish(Store(tmp_path / "elsewhere"))
    assert publish(store, "other") != publish(store)


def test_a_version_written_by_another_parquet_writer_is_the_same(store: Store) -> None:
    first = publish(store)
    with store.staging() as staged:
        fill(staged)
        frame = pl.from_arrow(TABLE)
        assert isinstance(frame, pl.DataFrame)
        frame.write_parquet(staged / "part-00000.parquet", compression="lz4", row_group_size=1)
        assert store.publish(STAGE, staged) == first


def test_nothing_is_left_in_staging_and_the_reader_gets_what_was_written(store: Store) -> None:
    folder = store.folder(STAGE, publish(store))
    assert (folder / "sub" / "note.txt").read_text(encoding="utf-8") == "hello"
    assert pq.read_table(folder / "part-00000.parquet").equals(TABLE)
    assert list((store.home / "staging").iterdir()) == []
    assert store.verify() == []


def test_a_link_or_an_empty_stage_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="wrote nothing"), store.staging() as staged:
        store.publish(STAGE, staged)
    with pytest.raises(StoreError, match="plain files only"), store.staging() as staged:
        (staged / "link").symlink_to(tmp_path)
        store.publish(STAGE, staged)
    assert not (store.home / "store").exists()


# ── references ───────────────────────────────────────────────────────────────────────────────────────────────────────


def reference(store: Store, path: Path) -> str:
    with store.staging() as staged:
        (staged / "references.json").write_text(json.dumps([content.reference(path, path.name)]), encoding="utf-8")
        return store.publish("files", staged)


def test_a_referenced_file_and_its_bytes_give_one_version_and_it_is_found_where_it_moved(
    store: Store, tmp_path: Path
) -> None:
    dump = tmp_path / "dump.xml"
    dump.write_text("<mediawiki/>", encoding="utf-8")
    version = reference(store, dump)
    assert [f.name for f in (store.home / "store" / "files" / version).iterdir()] == [MANIFEST]
    assert (store.folder("files", version, dump) / "dump.xml").read_text(encoding="utf-8") == "<mediawiki/>"

    moved = tmp_path / "disk2"
    moved.mkdir()
    dump.rename(moved / "dump.xml")
    assert (store.folder("files", version, moved / "dump.xml") / "dump.xml").read_text(
        encoding="utf-8"
    ) == "<mediawiki/>"
    assert (store.folder("files", version, moved) / "dump.xml").is_file()
    with pytest.raises(StoreError, match=r"dump\.xml: the file that the recipe references is gone"):
        store.folder("files", version, dump)

    with store.staging() as staged:  # another recipe downloads the same bytes: the version then holds them
        (staged / "dump.xml").write_text("<mediawiki/>", encoding="utf-8")
        assert store.publish("files", staged) == version
    assert (store.folder("files", version) / "dump.xml").read_text(encoding="utf-8") == "<mediawiki/>"
    assert reference(store, moved / "dump.xml") == version  # and keeps them
    assert (store.folder("files", version) / "dump.xml").is_file()


def test_a_referenced_file_that_changed_is_refused_by_name(store: Store, tmp_path: Path) -> None:
    dump = tmp_path / "dump.xml"
    dump.write_text("<mediawiki/>", encoding="utf-8")
    version = reference(store, dump)
    dump.write_text("<mediawikj/>", encoding="utf-8")
    with pytest.raises(StoreError, match=r"dump\.xml: the file changed"):
        store.folder("files", version, dump)


def test_a_referenced_table_has_the_version_of_its_bytes_and_may_be_written_anew(store: Store, tmp_path: Path) -> None:
    table = tmp_path / "corpus.parquet"
    pq.write_table(TABLE, table)
    version = reference(store, table)
    other = Store(tmp_path / "other")
    with other.staging() as staged:
        pq.write_table(TABLE, staged / "corpus.parquet", compression="gzip")
        assert other.publish("files", staged) == version
    pq.write_table(TABLE, table, compression="none")
    assert pq.read_table(store.folder("files", version, table) / "corpus.parquet").equals(TABLE)
    pq.write_table(TABLE.slice(1), table)
    with pytest.raises(StoreError, match=r"corpus\.parquet: the file changed"):
        store.folder("files", version, table)


def test_a_folder_of_referenced_and_written_files_keeps_their_names(store: Store, tmp_path: Path) -> None:
    outside = tmp_path / "books" / "a"
    outside.mkdir(parents=True)
    (outside / "one.txt").write_text("one", encoding="utf-8")
    with store.staging() as staged:
        named = content.reference(outside / "one.txt", "a/one.txt")
        (staged / "references.json").write_text(json.dumps([named]), encoding="utf-8")
        (staged / "note").write_text("note", encoding="utf-8")
        version = store.publish("files", staged)
    view = store.folder("files", version, tmp_path / "books")
    assert sorted(p.relative_to(view).as_posix() for p in view.rglob("*") if p.is_file()) == ["a/one.txt", "note"]
    assert store.folder("files", version, tmp_path / "books") == view
    assert store.sweep() == []
    with pytest.raises(StoreError, match="does not say where it lies"):
        store.folder("files", version)

    (outside / "one.txt").rename(tmp_path / "gone.txt")
    assert store.sweep() == [f"views/{view.name}"]
    assert store.verify() == [], "a referenced file is not the store's"


@pytest.mark.parametrize(
    "named",
    [
        {"path": "../outside", "size_bytes": 1, "sha256": "0"},
        {"path": "/outside", "size_bytes": 1, "sha256": "0"},
        {"path": "note", "size_bytes": 1, "sha256": "0"},
        {"path": "other", "sha256": "0"},
    ],
)
def test_references_that_can_not_be_are_refused(store: Store, named: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="fault of the stage"), store.staging() as staged:
        (staged / "note").write_text("note", encoding="utf-8")
        (staged / "references.json").write_text(json.dumps([named]), encoding="utf-8")
        store.publish("files", staged)
    assert not (store.home / "store").exists()


# ── records, memory, pointers ────────────────────────────────────────────────────────────────────────────────────────


def test_memory_answers_with_the_oldest_record_whose_content_is_intact(store: Store) -> None:
    one, two = publish(store, "one"), publish(store, "two")
    newer, older = store.append(body(two, second=9)), store.append(body(one, second=1))
    assert store.remembered("k" * 64) == [older, newer]
    (store.content(STAGE, one) / "sub" / "note.txt").write_text("oNe", encoding="utf-8")
    assert store.remembered("k" * 64) == [newer]
    assert store.remembered("x" * 64) == []


def test_a_pointer_keeps_its_history(store: Store) -> None:
    first = publish_all(store, "one")
    second = publish_all(store, "two")
    store.point("demo", "documents", second)
    assert store.pointer("demo", "documents") == second
    assert store.history("demo", "documents") == [second.digest, first.digest]
    assert store.pointer("demo", "never_made") is None


def test_verify_follows_what_assets_have_back_to_the_sources(store: Store) -> None:
    source = store.append(body(publish(store, "source"), key="s" * 64, asset="dump"))
    child = store.append(body(publish(store, "child"), inputs={"dump": source.digest}))
    store.point("demo", "documents", child)
    assert store.verify() == []
    (store.home / "records" / f"{source.digest}.json").unlink()
    (problem,) = store.verify()
    assert f"{child.digest}.json, input dump, names record {source.digest[:12]}, which is missing" in problem.what


def test_content_that_an_asset_has_and_that_vanished_is_reported(store: Store) -> None:
    record = publish_all(store)
    store.content(STAGE, record.version).rename(store.home / "elsewhere")
    (problem,) = store.verify()
    assert f"{record.version[:12]}: its content is not in the store" in problem.what
    with pytest.raises(StoreError, match="its content is not in the store"):
        store.folder(STAGE, record.version)


def test_a_champion_beside_the_pointers_is_left_alone(store: Store) -> None:
    publish_all(store)
    champion = store.home / "assets" / "demo" / "champion.json"
    champion.write_text(json.dumps({"champion": "x", "previous": None, "history": []}), encoding="utf-8")
    assert store.verify() == []
    assert champion.exists()


def test_a_record_under_a_foreign_key_does_not_answer(store: Store) -> None:
    record = publish_all(store)
    foreign = store.home / "memory" / ("f" * 64) / record.digest
    foreign.parent.mkdir()
    foreign.touch()
    assert store.remembered("f" * 64) == []


@pytest.mark.parametrize("value", [float("nan"), {1, 2}])
def test_a_record_that_is_no_json_is_refused(store: Store, value: object) -> None:
    with pytest.raises(StoreError, match="the record of documents can't be written"):
        store.append({**body("v"), "statistics": {"loss": value}})
    assert not (store.home / "records").exists()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("kind", ["table", "note", "manifest", "record", "pointer"])
def test_one_flipped_bit_anywhere_is_found_and_a_rerun_restores_the_same_version(
    store: Store, kind: str, share: float
) -> None:
    """`share` is where in the file; the lowest bit of that byte is flipped."""
    record = publish_all(store)
    content = store.content(STAGE, record.version)
    path = {
        "table": content / "part-00000.parquet",
        "note": content / "sub" / "note.txt",
        "manifest": content / MANIFEST,
        "record": store.home / "records" / f"{record.digest}.json",
        "pointer": store.home / "assets" / "demo" / "documents.json",
    }[kind]
    data = bytearray(path.read_bytes())
    data[int(share * (len(data) - 1))] ^= 1
    path.write_bytes(data)

    problems = store.verify()

    if kind == "pointer" and store.pointer("demo", "documents") == record:
        return  # the flip hit white space or the name of a history entry: what is read is the same
    assert any(str(path) in p.what for p in problems), problems
    if kind in ("record", "pointer"):
        assert store.pointer("demo", "documents") is None
    else:
        assert not store.intact(STAGE, record.version)
    assert publish_all(store).version == record.version
    assert store.verify() == []
    assert store.folder(STAGE, record.version).is_dir()


def test_a_reader_refuses_broken_content_by_name_and_sets_it_aside(store: Store) -> None:
    version = publish(store)
    path = store.content(STAGE, version) / "part-00000.parquet"
    data = bytearray(path.read_bytes())
    data[100] ^= 4
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"part-00000\.parquet: its bytes are not those that were published"):
        store.folder(STAGE, version)
    assert not store.intact(STAGE, version)
    assert publish(store) == version
    assert store.intact(STAGE, version)


def test_publishing_over_broken_content_replaces_it(store: Store) -> None:
    version = publish(store)
    note = store.content(STAGE, version) / "sub" / "note.txt"
    note.write_text("hellO", encoding="utf-8")
    assert publish(store) == version
    assert note.read_text(encoding="utf-8") == "hello"


def test_a_broken_memory_of_hashes_breaks_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "SETTLED_SECONDS", -1.0)
    version = publish(store)
    folder = store.folder(STAGE, version)
    entries = list(store.verified.iterdir())
    assert len(entries) == 2
    for entry in entries:
        known = json.loads(entry.read_bytes())
        entry.write_text(json.dumps({**known, "sha256": "0" * 64}), encoding="utf-8")
    assert store.folder(STAGE, version) == folder
    assert not (store.home / "broken").exists()


def test_a_file_that_can_not_be_read_is_an_error_and_not_broken_content(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = publish_all(store)
    real = Path.open

    def full(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.suffix == ".parquet":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return real(path, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        with pytest.raises(StoreError, match=r"part-00000\.parquet: Too many open files\n.*ulimit -n"):
            store.folder(STAGE, record.version)
        (problem,) = store.verify()
        assert "Too many open files" in problem.what
        assert not store.intact(STAGE, record.version)
    assert store.folder(STAGE, record.version).is_dir()
    assert store.verify() == []


def test_a_link_in_the_place_of_a_file_is_found(store: Store, tmp_path: Path) -> None:
    version = publish(store)
    note = store.content(STAGE, version) / "sub" / "note.txt"
    note.rename(tmp_path / "note.txt")
    note.symlink_to(tmp_path / "note.txt")
    assert [p.what for p in store.verify_version(STAGE, version)] == [
        f"{note}: its bytes are not those that were published"
    ]


def test_added_and_missing_files_are_found(store: Store) -> None:
    version = publish(store)
    (store.content(STAGE, version) / "extra").write_text("x", encoding="utf-8")
    assert [p.what.rpartition(": ")[2] for p in store.verify_version(STAGE, version)] == ["not in the manifest"]
    version = publish(store)
    (store.content(STAGE, version) / "sub" / "note.txt").unlink()
    assert [p.what.rpartition(": ")[2] for p in store.verify_version(STAGE, version)] == ["missing"]


# ── what failed its validation ───────────────────────────────────────────────────────────────────────────────────────


def test_rejected_content_can_be_published_later_without_running_again(store: Store) -> None:
    with store.staging() as staged:
        fill(staged)
        version = store.reject(staged, {k: v for k, v in body("").items() if k != "version"})
    assert not (store.home / "store").exists()
    (rejected,) = store.rejections(STAGE)
    assert rejected.body["version"] == version
    assert store.accept(rejected) == version
    assert store.rejections(STAGE) == [rejected], "a crash before its record exists: it can be accepted again"
    assert store.accept(rejected) == version
    store.append(dict(rejected.body))
    assert store.folder(STAGE, version).is_dir()
    assert store.rejections(STAGE) == []


def test_rejected_content_that_was_changed_is_not_published_and_stays(store: Store) -> None:
    with store.staging() as staged:
        fill(staged)
        store.reject(staged, {k: v for k, v in body("").items() if k != "version"})
    (rejected,) = store.rejections(STAGE)
    (rejected.folder / "content" / "sub" / "note.txt").write_text("better", encoding="utf-8")
    with pytest.raises(StoreError, match="it was changed since it was rejected"):
        store.accept(rejected)
    assert not (store.home / "store").exists()
    assert store.rejections(STAGE) == [rejected]


def test_what_is_left_of_accepted_content_is_swept_and_what_waits_is_not(store: Store) -> None:
    for note in ("one", "two"):
        with store.staging() as staged:
            fill(staged, note)
            store.reject(staged, {**body(""), "key": note * 20})
    first, second = store.rejections(STAGE)
    store.accept(first)
    store.append(dict(first.body))
    old = time.time() - 100
    for place in (first.folder, second.folder):
        os.utime(place, (old, old))
    assert store.sweep() == [f"rejected/{first.folder.name}"]
    assert store.rejections(STAGE) == [second]


# ── two at once ──────────────────────────────────────────────────────────────────────────────────────────────────────


def write_many(home: Path, mine: int, count: int) -> None:
    store = Store(home, lease_seconds=2)
    for n in range(count):
        record = store.append(body(publish(store, f"shared {n}"), key=f"{n:064d}", second=mine))
        store.point("demo", "documents", record)


def test_two_writers_of_the_same_versions_and_pointer_lose_nothing(store: Store) -> None:
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_many, args=(store.home, mine, 12)) for mine in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert store.verify() == []
    for n in range(12):
        assert {r.body["finished"][17:19] for r in store.remembered(f"{n:064d}")} == {"01", "02"}
    assert len(store.history("demo", "documents")) == 24
    assert store.sweep() == []


def read_many(home: Path, version: str, count: int) -> None:
    for _ in range(count):
        with suppress(StoreError):
            Store(home).folder(STAGE, version)


def test_a_reader_that_finds_broken_content_never_takes_away_what_another_just_mended(store: Store) -> None:
    version = publish(store)
    fork = multiprocessing.get_context("fork")
    for _ in range(8):
        (store.content(STAGE, version) / "sub" / "note.txt").write_text("hellO", encoding="utf-8")
        beside = [
            fork.Process(target=read_many, args=(store.home, version, 10)),
            fork.Process(target=publish, args=(store,)),
            fork.Process(target=publish, args=(store,)),
        ]
        for process in beside:
            process.start()
        for process in beside:
            process.join()
            assert process.exitcode == 0
        assert (store.folder(STAGE, version) / "sub" / "note.txt").read_text(encoding="utf-8") == "hello"
    assert len(list((store.home / "broken").iterdir())) == 8


# ── full, read-only ──────────────────────────────────────────────────────────────────────────────────────────────────


def in_child(work: Callable[[], str]) -> str:
    """The text that `work` returns, from a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, work().encode()[:4000])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def test_a_file_size_limit_gives_one_message_and_publishes_nothing(store: Store) -> None:
    kept = publish_all(store, "kept")

    def work() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        try:
            publish(store, "x" * 1000)
        except StoreError as error:
            return str(error)
        return "published"

    message = in_child(work)
    assert os.strerror(errno.EFBIG) in message and "ulimit -f" in message
    store.sweep()
    assert store.pointer("demo", "documents") == kept
    assert [p.name for p in (store.home / "store" / STAGE).iterdir()] == [kept.version]
    assert store.verify() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)], capture_output=True
        ).returncode
    ):
        pytest.skip("mounting a small disk needs root and a kernel that allows it")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_gives_one_message_and_loses_nothing(small_disk: Path) -> None:
    store = Store(small_disk / "home", lease_seconds=2)
    kept = publish_all(store, "kept")
    with pytest.raises(StoreError, match=r"No space left on device.*\n.*free space there"):
        publish(store, "x" * 500_000)
    assert store.pointer("demo", "documents") == kept
    assert list((store.home / "staging").iterdir()) == []
    assert store.verify() == []


def test_a_read_only_store_is_read_and_refuses_writes_with_the_way_out(small_disk: Path) -> None:
    store = Store(small_disk / "home", lease_seconds=2)
    record = publish_all(store)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert store.pointer("demo", "documents") == record
    assert store.folder(STAGE, record.version).is_dir()
    assert store.remembered("k" * 64) == [record]
    assert store.verify() == []
    with pytest.raises(StoreError, match=r"Read-only file system\n.*BERT_HOME"):
        publish(store)


def test_a_folder_without_permission_is_refused_by_name(store: Store) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    store.home.mkdir()
    store.home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(StoreError, match="Permission denied"):
        publish(store)


# ── training runs ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_folder_is_resumed_unless_a_fresh_one_is_asked_for(store: Store) -> None:
    with store.run_folder("key") as first:
        (first / "step").write_text("7", encoding="utf-8")
    with store.run_folder("key") as again:
        assert (again / "step").read_text(encoding="utf-8") == "7"
    with store.run_folder("key", fresh=True) as fresh:
        assert list(fresh.iterdir()) == []
    with store.run_folder("key") as newest:
        assert newest == fresh


def record_of_run(store: Store, key: str) -> Record:
    """A published result of the run `key`."""
    return store.append(body(publish(store), key))


def test_published_runs_are_cleared_once_and_unpublished_ones_never(store: Store) -> None:
    cleared: list[str] = []

    def clear(stage: str, folder: Path) -> None:
        cleared.append(f"{stage} {folder.name}")
        (folder / "result").rmdir()

    for key, fresh in (("done", False), ("done", True), ("going", False)):
        with store.run_folder(key, fresh) as folder:
            (folder / "result").mkdir()
    with store.run_folder("done", fresh=True):
        pass  # begun anew and given up
    assert store.clear_runs(clear) == [] and len(store.unfinished_runs()) == 2
    record_of_run(store, "done")
    with store.run_folder("done"):
        assert store.clear_runs(clear) == [], "somebody works on it"
    assert store.clear_runs(clear) == ["runs/done/0", "runs/done/1"]
    assert cleared == [f"{STAGE} 0", f"{STAGE} 1"]
    assert store.clear_runs(clear) == []
    assert [folder.parent.name for folder in store.unfinished_runs()] == ["done", "going"]
    with store.run_folder("going") as going:
        assert (going / "result").exists()


def test_a_run_whose_published_version_is_broken_is_not_cleared_and_a_published_attempt_is_over(store: Store) -> None:
    with store.run_folder("key") as folder:
        (folder / "result").mkdir()
    record = record_of_run(store, "key")
    path = store.content(STAGE, record.version) / "sub" / "note.txt"
    path.chmod(0o644)
    path.write_text("hullo", encoding="utf-8")
    assert store.clear_runs(lambda stage, folder: folder.rmdir()) == []
    record_of_run(store, "key")
    assert store.clear_runs(lambda stage, folder: (folder / "result").rmdir(), "key") == ["runs/key/0"]
    with store.run_folder("key") as anew:
        assert anew.name == "1"


def test_a_second_process_that_wants_the_same_run_is_told_for_whom(store: Store) -> None:
    fork = multiprocessing.get_context("fork")
    holding, done = fork.Event(), fork.Event()

    def train() -> None:
        with store.run_folder("key"):
            holding.set()
            done.wait(30)

    def refuse(line: str) -> None:
        raise StoreError(line, "Wait for it.")

    first = fork.Process(target=train)
    first.start()
    assert holding.wait(30)
    with (
        pytest.raises(StoreError, match=rf"waiting for training run key \(pid {first.pid} on "),
        store.run_folder("key", waiting=refuse),
    ):
        pass
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        done.set()

    with store.run_folder("key", waiting=say) as folder:
        assert folder.name == "0"
    first.join()
    assert len(said) == 1


# ── sweeping ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_living_keep_their_staging_even_before_its_first_file(store: Store) -> None:
    with store.staging() as staged:
        assert store.sweep() == []
        assert staged.is_dir()
    with store.lease(STAGE, "0" * 64):
        assert store.sweep() == []


def test_staging_of_another_host_is_swept_when_its_heartbeat_is_old(store: Store) -> None:
    place = store.home / "staging" / "abc"
    place.mkdir(parents=True)
    claim = store.home / "leases" / "staging-abc"
    claim.parent.mkdir()
    claim.write_text(str(replace(owners.Owner.this(), host="elsewhere", pid=1)), encoding="utf-8")
    assert store.sweep() == []
    old = time.time() - 3
    os.utime(claim, (old, old))
    assert store.sweep() == ["staging/abc", "leases/staging-abc"]
    assert list((store.home / "staging").iterdir()) == []


def test_who_was_swept_while_it_slept_publishes_nothing(store: Store) -> None:
    with pytest.raises(StoreError, match="took this process for dead"), store.staging() as staged:
        fill(staged)
        (store.home / "leases" / f"staging-{staged.name}").unlink()
        assert len(store.sweep()) == 1
        store.publish(STAGE, staged)
    assert not list((store.home / "store").glob("*/*"))


def test_who_was_swept_and_goes_on_writing_publishes_no_part(store: Store) -> None:
    with pytest.raises(StoreError, match="took this process for dead"), store.staging() as staged:
        fill(staged)
        (store.home / "leases" / f"staging-{staged.name}").unlink()
        assert len(store.sweep()) == 1
        write_bytes(staged / "late.txt", b"makes the folder anew")
        store.publish(STAGE, staged)
    assert not list((store.home / "store").glob("*/*"))
    assert not list((store.home / "staging").iterdir())


@pytest.mark.parametrize("to", ["nowhere", "note.txt"])
def test_a_link_that_leads_nowhere_is_broken_content_and_set_aside(store: Store, to: str) -> None:
    record = publish_all(store)
    path = store.content(STAGE, record.version) / "sub" / "note.txt"
    path.unlink()
    path.symlink_to(to)  # to itself: a loop
    with pytest.raises(StoreError, match="note.txt: its bytes are not those that were published"):
        store.folder(STAGE, record.version)
    assert publish_all(store).version == record.version
    assert store.verify() == []


def test_old_temporary_files_are_swept_and_new_ones_are_not(store: Store) -> None:
    publish_all(store)
    old, new = store.home / "records" / ".a.json.1", store.home / "records" / ".b.json.2"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    assert store.sweep() == ["records/.a.json.1"]
    assert new.exists()


@pytest.mark.parametrize(
    "folder",
    ["", "downloads/a", "runs/k", "runs/k/0", "failures/r", "audits/r", "attestations", "watched/r", "alerts"],
)
def test_old_temporary_files_are_swept_wherever_they_are_written(store: Store, folder: str) -> None:
    path = store.home / folder / "notes.json"
    write_bytes(path, b"kept")
    left = path.with_name(f".{path.name}.{'0123456789abcdef' * 2}")
    for seconds, swept in ((0, False), (-3, True), (86_400, True)):  # the last: the clock was set back since
        left.touch()
        then = time.time() + seconds
        os.utime(left, (then, then))
        assert store.sweep() == ([left.relative_to(store.home).as_posix()] if swept else [])
    assert path.read_bytes() == b"kept"


def test_what_a_killed_download_left_is_swept_unless_it_goes_on_there_or_lives(store: Store) -> None:
    folders = [store.home / "downloads" / name for name in ("half", "done", "wheel", "busy")]
    for folder in folders:
        folder.mkdir(parents=True)
    half, done, wheel, busy = folders
    (half / "partial").touch()
    for notes in (half / "partial.json", done / "partial.json"):
        notes.touch()
        os.utime(notes, (0, 0))
    (wheel / ".partial-abc").mkdir()
    (busy / ".partial-abc").mkdir()
    with owners.held_lock(busy / ".lock"):
        assert store.sweep() == ["downloads/done/partial.json", "downloads/wheel/.partial-abc"]
