"""Which release is in use: promotions, rollbacks, bans."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.errors import StoreError
from pipeline.storage import champion
from pipeline.store import Record, Store
from tests.assets.bertcli import recorded

TIME = "2026-01-02T03:04:05.000000+00:00"


def release(store: Store, text: str, recipe: str = "monthly", inputs: Mapping[str, str] | None = None) -> Record:
    """A release of a recipe."""
    with store.staging() as staged:
        (staged / "model.safetensors").write_text(text, encoding="utf-8")
        (staged / "README.md").write_text(f"---\ntags: []\n---\n# {text}\n", encoding="utf-8")
        version = store.publish("release", staged)
    return recorded(store, recipe, "release", "release", version, dict(inputs or {}))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


@pytest.fixture
def three(store: Store) -> list[Record]:
    """Three releases, promoted one after the other."""
    made = [release(store, text) for text in ("january", "february", "march")]
    for record in made:
        champion.promote(store, "monthly", record, None, "me", "new", TIME)
    return made


def test_the_champion_before_becomes_previous_and_every_change_is_kept(store: Store, three: list[Record]) -> None:
    found = champion.read(store, "monthly")
    assert (found.champion, found.previous) == (three[2].digest, three[1].digest)
    assert [(c.did, c.champion, c.instead_of) for c in found.history] == [
        ("promoted", three[2].digest, three[1].digest),
        ("promoted", three[1].digest, three[0].digest),
        ("promoted", three[0].digest, None),
    ]
    assert champion.promote(store, "monthly", three[2], None, "me", "again", TIME) == found, "it is champion already"
    assert champion.read(store, "other") == champion.Champion()


def test_a_rollback_bars_what_goes_and_can_be_repeated(store: Store, three: list[Record]) -> None:
    found = champion.rollback(store, "monthly", "you", "answers are worse", TIME)
    assert (found.champion, found.previous) == (three[1].digest, three[0].digest)
    assert (found.history[0].did, found.history[0].who, found.history[0].why) == (
        "rolled back",
        "you",
        "answers are worse",
    )
    assert list(champion.barred(store)) == [three[2].version]
    with pytest.raises(StoreError, match="is barred since 2026-01-02 by you: rolled back: answers are worse"):
        champion.promote(store, "monthly", three[2], None, "me", "", TIME)
    assert champion.read(store, "monthly") == found
    again = champion.rollback(store, "monthly", "you", "still", TIME)
    assert (again.champion, again.previous) == (three[0].digest, None)
    with pytest.raises(StoreError, match="no earlier champion that is not barred"):
        champion.rollback(store, "monthly", "you", "", TIME)
    assert champion.read(store, "monthly") == again


def test_a_rollback_to_a_named_version_and_a_lifted_ban(store: Store, three: list[Record]) -> None:
    with pytest.raises(StoreError, match="no earlier champion of version ffff"):
        champion.rollback(store, "monthly", "you", "", TIME, to="ffff")
    found = champion.rollback(store, "monthly", "you", "", TIME, to=three[0].version[:12])
    assert (found.champion, found.previous) == (three[0].digest, three[1].digest)
    champion.bar(store, three[2].version, "me", "the fault was elsewhere", TIME, lift=True)
    assert champion.barred(store) == {}
    assert champion.promote(store, "monthly", three[2], None, "me", "", TIME).previous == three[0].digest
    log = json.loads((store.home / champion.BARRED).read_text(encoding="utf-8"))
    assert [(entry["did"], entry["who"]) for entry in log] == [("unbarred", "me"), ("barred", "you")]
    with pytest.raises(StoreError, match="is not barred"):
        champion.bar(store, three[2].version, "me", "", TIME, lift=True)


def test_what_is_not_whole_is_neither_promoted_nor_gone_back_to(store: Store, three: list[Record]) -> None:
    shutil.rmtree(store.content("release", three[1].version))
    with pytest.raises(StoreError, match="is missing or broken"):
        champion.rollback(store, "monthly", "you", "", TIME)
    assert champion.read(store, "monthly").champion == three[2].digest and champion.barred(store) == {}
    broken = release(store, "april")
    (store.content("release", broken.version) / "model.safetensors").write_text("apr1l", encoding="utf-8")
    with pytest.raises(StoreError, match="is missing or broken"):
        champion.promote(store, "monthly", broken, None, "me", "", TIME)
    assert champion.read(store, "monthly").champion == three[2].digest


def test_a_rollback_that_died_after_its_ban_goes_on(store: Store, three: list[Record]) -> None:
    champion.bar(store, three[2].version, "you", "rolled back: worse", TIME)  # and then it was killed
    assert champion.rollback(store, "monthly", "you", "worse", TIME).champion == three[1].digest


@pytest.mark.parametrize("damage", ["null", '{"champion": "', "[]", '{"champion": null}', '{"history": [{"did": 1}]}'])
def test_a_damaged_file_is_named_and_not_taken_for_none(store: Store, three: list[Record], damage: str) -> None:
    path = store.home / "assets" / "monthly" / "champion.json"
    path.write_text(damage, encoding="utf-8")
    with pytest.raises(StoreError, match=r"champion.json is damaged"):
        champion.read(store, "monthly")
    assert path.read_text(encoding="utf-8") == damage
    (store.home / champion.BARRED).write_text('[{"version": 1}]', encoding="utf-8")
    with pytest.raises(StoreError, match=r"barred.json is damaged"):
        champion.barred(store)
