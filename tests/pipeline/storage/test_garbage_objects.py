"""`bert gc` on a store in an object store: a real server that speaks S3. Killed requests: test_garbage_crash.py."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import StoreError
from pipeline.settings import RetentionSettings
from pipeline.storage import garbage
from pipeline.storage.objects import Objects
from pipeline.store import Store
from pipeline.system import owners
from tests.pipeline.storage.test_garbage import chain, published, there, versions

SOLE = RetentionSettings(history=0, sole_home=True)


@pytest.fixture
def store(object_store: Callable[[], str], tmp_path: Path) -> Store:
    return Store(tmp_path / "home", lease_seconds=2, url=object_store())


def objects(store: Store) -> Objects:
    assert store.url is not None
    return Objects(store.url)


def test_content_is_marked_first_and_removed_later(store: Store, tmp_path: Path) -> None:
    old, new = chain(store, "demo", "old"), chain(store, "demo", "new")
    bytes_before = objects(store).sizes("store/pretrained/data")
    with pytest.raises(StoreError, match="what other machines have there") as caught:
        garbage.collect(store, RetentionSettings(history=0))
    assert "sole_home" in caught.value.todo and there(store) == versions(old, new)

    garbage.collect(store, SOLE)
    assert there(store) == versions(new) and store.verify() == []
    assert objects(store).sizes("store/pretrained/data") == bytes_before, "nothing is moved"
    elsewhere = Store(tmp_path / "elsewhere", url=store.url)
    record = old["model"]
    assert not elsewhere.intact(record.stage, record.version)
    assert [file["path"] for file in elsewhere.manifest(record.stage, record.version)["files"]] == ["sub/note.txt"]
    with pytest.raises(StoreError, match="its content was removed on") as caught:
        elsewhere.folder(record.stage, record.version)
    assert f"bert gc --restore {record.version}" in caught.value.todo

    garbage.restore(store, record.version[:12])
    assert (elsewhere.folder(record.stage, record.version) / "sub" / "note.txt").read_text() == "model old"
    stone = f"tombstones/documents/{old['documents'].version}.json"
    told = json.loads(objects(store).read(stone))
    assert told["reason"] and told["files"][0]["path"] == "sub/note.txt"
    _, done = garbage.collect(store, RetentionSettings(history=0, sole_home=True, grace_days=0))
    assert {each.version[1] for each in done.removed} == {old["documents"].version, old["shards"].version}
    assert len(objects(store).sizes("store/documents/data")) == 2, "the manifest and the file of what stays"
    assert store.verify() == []
    _, done = garbage.collect(store, RetentionSettings(history=0, sole_home=True, grace_days=0))
    assert [each.version[1] for each in done.removed] == [record.version], "its grace time is over at once here"
    assert set(objects(store).names("tombstones/pretrained")) == {f"{record.version}.json"}


def test_what_no_record_names_goes_once_it_is_older_than_a_lease(store: Store) -> None:
    chain(store, "demo", "new")
    left = published(store, "documents", "left")
    patient = Store(store.home, lease_seconds=3600, url=store.url)
    assert garbage.collect(patient, SOLE)[1].moved == []
    time.sleep(1.1)  # S3 tells full seconds
    hasty = Store(store.home, lease_seconds=1e-3, url=store.url)
    assert [each.version[1] for each in garbage.collect(hasty, SOLE)[1].moved] == [left]


def test_the_lease_of_a_dead_writer_does_not_take_what_is_in_the_trash(store: Store) -> None:
    old, _ = chain(store, "demo", "old"), chain(store, "demo", "new")
    record = old["model"]
    (copy,) = objects(store).names(f"store/pretrained/{record.version}")
    garbage.collect(store, SOLE)
    lease = store.home / "leases" / f"upload-pretrained-{copy}"
    lease.write_text(str(owners.Owner.this()).rpartition(" ")[0] + " 1", encoding="utf-8")
    store.sweep()
    assert garbage.restore(store, record.version) == ("pretrained", record.version)
    assert store.intact("pretrained", record.version)
