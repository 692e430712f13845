"""What depends on an artifact, through inputs and through models that training began from."""

from pathlib import Path

import pytest

from assets.audits.affected import made_of
from pipeline.store import Record, Store
from tests.assets.bertcli import recorded


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def published(store: Store, stage: str, text: str) -> str:
    with store.staging() as staged:
        (staged / "a.txt").write_text(text, encoding="utf-8")
        return store.publish(stage, staged)


def make(store: Store, recipe: str, asset: str, *inputs: Record) -> Record:
    version = published(store, asset, f"{recipe} {asset}")
    return recorded(store, recipe, asset, asset, version, {each.asset: each.digest for each in inputs})


def test_everything_below_is_named_and_nothing_beside(store: Store) -> None:
    dump, books = make(store, "a", "dump"), make(store, "a", "books")
    documents = make(store, "a", "documents", dump, books)
    make(store, "a", "release", documents)
    make(store, "b", "release", books)
    assert made_of(store, "dump", dump.version) == ["a/documents", "a/dump", "a/release"]
    assert made_of(store, "books", books.version) == ["a/books", "a/documents", "a/release", "b/release"]
    make(store, "a", "release", books)  # what it was before no longer counts
    assert made_of(store, "dump", dump.version) == ["a/documents", "a/dump"]


def test_a_model_that_training_began_from_counts(store: Store) -> None:
    documents = make(store, "a", "documents")
    release = make(store, "a", "release", documents)
    body = dict(make(store, "b", "imported").body) | {"statistics": {"root": {"record": release.digest}}}
    imported = store.append(body)
    store.point("b", "imported", imported)
    make(store, "b", "release", imported)
    assert made_of(store, "documents", documents.version) == ["a/documents", "a/release", "b/imported", "b/release"]


def test_a_broken_chain_hides_no_other(store: Store) -> None:
    dump = make(store, "a", "dump")
    make(store, "b", "release", dump)
    lost = make(store, "c", "dump")
    make(store, "c", "release", lost, dump)
    (store.home / "records" / f"{lost.digest}.json").unlink()
    assert "b/release" in made_of(store, "dump", dump.version)
