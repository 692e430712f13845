"""`bert gc` under kill -9 between any two operations on the file system, and on requests to an object store.

After each: what is needed is there and whole, `verify` finds nothing, every record's files are told, and doing it again
gives what an undisturbed run gives.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.settings import RetentionSettings
from pipeline.storage import garbage
from pipeline.storage.objects import Objects
from pipeline.store import Record, Store
from tests.pipeline.killing import killed_at
from tests.pipeline.storage.test_garbage import chain, made, older, there, versions

OPERATIONS = ("open", "write", "fsync", "replace", "rename", "unlink", "rmdir", "mkdir")
WRITES = ("write", "remove", "remove_all")
KEEP_ONE = RetentionSettings(history=0, shards_days=30, sole_home=True)
Chains = tuple[dict[str, Record], dict[str, Record], dict[str, Record]]


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def three(store: Store) -> Chains:
    """What another recipe needs, with old shards; what may go; what is there now."""
    kept = chain(store, "kept", "kept", days=40)
    return kept, chain(store, "demo", "old"), chain(store, "demo", "new")


def put_away(store: Store, _: Chains) -> None:
    garbage.collect(store, KEEP_ONE)


def put_away_again(store: Store, chains: Chains) -> None:
    """What is in the trash already was published again, and goes once more."""
    put_away(store, chains)
    chain(store, "demo", "old"), chain(store, "demo", "new")


def remove(store: Store, chains: Chains) -> None:
    """For good, after the grace time."""
    garbage.collect(store, RetentionSettings(history=0, shards_days=30, grace_days=0, sole_home=True))


def bring_back(store: Store, chains: Chains) -> None:
    version = chains[1]["model"].version
    if store.in_trash("pretrained", version):
        garbage.restore(store, version)


def publish_again(store: Store, chains: Chains) -> None:
    made(store, "demo", "documents", "documents", "documents old")


def nothing(_: Store, __: Chains) -> None:
    pass


SCENARIOS: dict[str, tuple[Callable[[Store, Chains], object], Callable[[Store, Chains], object]]] = {
    # before, what is killed and then done again
    "put away": (nothing, put_away),
    "put away what is in the trash": (put_away_again, put_away),
    "remove for good": (put_away, remove),
    "bring back": (put_away, bring_back),
    "publish what was removed": (put_away, publish_again),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_between_any_two_operations(tmp_path: Path, scenario: str) -> None:
    before, work = SCENARIOS[scenario]
    undisturbed = Store(tmp_path / "undisturbed", lease_seconds=2)
    chains = three(undisturbed)
    before(undisturbed, chains)
    work(undisturbed, chains)
    number, killed = 0, True
    while killed:
        number += 1
        store = Store(tmp_path / str(number), lease_seconds=2)
        chains = three(store)
        before(store, chains)

        def killed_work(store: Store = store, chains: Chains = chains) -> None:
            work(store, chains)

        killed = killed_at(number, killed_work, os, OPERATIONS)
        kept, old, new = chains
        shards = kept["shards"].version
        assert there(store) >= (versions(kept) - {shards}) | versions(new)
        assert store.removed("pretraining_shards", shards) is not None or store.intact("pretraining_shards", shards)
        assert store.verify() == []
        for record in (*kept.values(), *old.values(), *new.values()):
            assert [file["path"] for file in store.manifest(record.stage, record.version)["files"]] == ["sub/note.txt"]
        for record in old.values():
            stone = store.removed(record.stage, record.version)
            assert stone is not None or store.intact(record.stage, record.version)
        store.sweep()

        work(store, chains)
        assert there(store) == there(undisturbed)
        assert store.trashed() == undisturbed.trashed()
        assert store.verify() == []
        Store(store.home, lease_seconds=0).sweep()
        assert [path.name for path in store.home.rglob(".*") if path.name != ".lock"] == []
    assert number > 5, "the operations were not counted"


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["put away", "remove for good", "bring back"])
def test_killed_between_any_two_requests(object_store: Callable[[], str], tmp_path: Path, scenario: str) -> None:
    before, work = SCENARIOS[scenario]
    number, killed = 0, True
    while killed:
        number += 1
        store = Store(tmp_path / str(number), lease_seconds=2, url=object_store())
        kept, old, new = (
            {"model": made(store, recipe, "model", "pretrained", mark)}
            for recipe, mark in (("kept", "kept"), ("demo", "old"), ("demo", "new"))
        )
        before(store, (kept, old, new))

        def killed_work(store: Store = store, chains: Chains = (kept, old, new)) -> None:
            work(store, chains)

        killed = killed_at(number, killed_work, Objects, WRITES)
        assert store.verify() == []
        for record in (kept["model"], old["model"], new["model"]):
            assert [file["path"] for file in store.manifest("pretrained", record.version)["files"]] == ["sub/note.txt"]
        work(store, (kept, old, new))
        assert store.verify() == []
        assert there(store) == versions(kept, new) | (versions(old) if scenario == "bring back" else set())
    assert number > 2, "the requests were not counted"


def test_what_a_killed_removal_left_is_removed_by_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path / "home", lease_seconds=2)
    chains = three(store)
    put_away(store, chains)
    for record in chains[1].values():
        older(store, record, days=8)
    half = store.home / "trash" / ".half"
    (half / "sub").mkdir(parents=True)
    (half / "sub" / "note.txt").write_text("half", encoding="utf-8")
    put_away(store, chains)
    assert not half.exists()
    assert store.trashed() == {("pretraining_shards", chains[0]["shards"].version)}
