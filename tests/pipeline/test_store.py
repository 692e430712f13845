"""The store: content, records, memory, pointers; what happens on crashes, flipped bits, full disks, and two writers."""

import errno
import json
import multiprocessing
import os
import resource
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import StoreError
from pipeline.store import MANIFEST, Record, Store

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
    from pipeline.content import file_sha256

    with store.staging() as staged:
        named = {"path": path.name, "size_bytes": path.stat().st_size, "sha256": file_sha256(path)}
        (staged / "references.json").write_text(json.dumps([named]), encoding="utf-8")
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
    assert store.folder(STAGE, version).is_dir()
    assert store.rejections(STAGE) == []


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────────────────

OPERATIONS = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir", "open", "utime")


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Run `work` in a child that is killed before its `number`-th operation on the file system. Whether it was killed."""
    child = os.fork()
    if child == 0:
        done = 0

        def count(real: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*arguments: Any, **named: Any) -> Any:
                nonlocal done
                done += 1
                if done == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **named)

            return counted

        for name in OPERATIONS:
            setattr(os, name, count(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_killed_between_any_two_steps_nothing_is_half_published_and_a_rerun_completes(tmp_path: Path) -> None:
    expected = publish_all(Store(tmp_path / "undisturbed"))
    number = 0
    while True:
        number += 1
        home = tmp_path / f"home{number}"
        store = Store(home, lease_seconds=2)
        killed = killed_at(number, lambda store=store: publish_all(store))
        record = store.pointer("demo", "documents")
        if record is not None:  # what is visible is whole
            assert store.folder(STAGE, record.version).is_dir()
            assert record.version == expected.version
        for remembered in store.remembered("k" * 64):
            assert store.folder(STAGE, remembered.version).is_dir()
        assert store.verify() == []
        store.sweep()
        assert not list((home / "staging").glob("*"))
        again = publish_all(store)
        assert again.version == expected.version
        assert store.verify() == []
        assert store.pointer("demo", "documents") == again
        shutil.rmtree(home)
        if not killed:
            break
    assert number > 20, "the crash points were not counted"


def test_killed_while_replacing_broken_content(tmp_path: Path) -> None:
    number = 0
    while True:
        number += 1
        store = Store(tmp_path / f"home{number}", lease_seconds=2)
        version = publish_all(store).version
        (store.content(STAGE, version) / "sub" / "note.txt").write_text("hellO", encoding="utf-8")
        killed = killed_at(number, lambda store=store: publish(store))
        store.sweep()
        assert publish_all(store).version == version
        assert (store.folder(STAGE, version) / "sub" / "note.txt").read_text(encoding="utf-8") == "hello"
        assert store.verify() == []
        shutil.rmtree(store.home)
        if not killed:
            break
    assert number > 20


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
def small_disk(tmp_path: Path) -> Path:
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
