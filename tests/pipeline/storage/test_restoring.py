"""Deleted records come back from an audit; altered ones, and names that lead elsewhere, are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import lineage
from pipeline.errors import DataError
from pipeline.storage.record import Record, record_of
from pipeline.storage.restoring import restore
from pipeline.store import Store
from pipeline.system.atomic import canonical_json
from tests.pipeline.storage.test_garbage import chain


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home", lease_seconds=2)


def audited(store: Store, record: Record, file: Path) -> Path:
    """What `bert audit --json` prints."""
    steps = [step.plain() for step in lineage.audit(store, record)]
    text = json.dumps({"asset": "demo/model", "version": record.version, "chain": steps}, indent=2, ensure_ascii=False)
    file.write_text(text, encoding="utf-8")
    return file


def files(store: Store, *folders: str) -> dict[str, bytes]:
    found = [path for folder in folders for path in (store.home / folder).rglob("*") if path.is_file()]
    return {path.relative_to(store.home).as_posix(): path.read_bytes() for path in found}


def remove(store: Store, record: Record) -> None:
    (store.home / "records" / f"{record.digest}.json").unlink()
    (store.home / "memory" / record.key / record.digest).unlink()


def test_deleted_records_come_back_byte_by_byte_and_what_is_there_is_not_written(store: Store, tmp_path: Path) -> None:
    made = chain(store, "demo", "µ ½ 0.1")
    file = audited(store, made["model"], tmp_path / "audit.json")
    before = files(store, "records", "memory", "assets")
    assert restore(store, file)["written"] == []
    for name in ("documents", "shards"):
        remove(store, made[name])
    assert store.verify() != []
    told = restore(store, file)
    assert told["records"] == 3 and told["without_content"] == 0
    assert told["written"] == [
        {"asset": f"demo/{name}", "record": made[name].digest} for name in ("shards", "documents")
    ]
    assert files(store, "records", "memory", "assets") == before
    assert store.verify() == []


def test_into_an_empty_store_the_whole_chain_comes_back(store: Store, tmp_path: Path) -> None:
    made = chain(store, "demo", "one")
    file = audited(store, made["model"], tmp_path / "audit.json")
    other = Store(tmp_path / "other", lease_seconds=2)
    told = restore(other, file)
    assert len(told["written"]) == told["without_content"] == 3
    assert list(lineage.ancestors(other, other.record(made["model"].digest))) == list(
        lineage.ancestors(store, made["model"])
    )


def test_a_record_that_is_broken_or_not_remembered_counts_as_missing(store: Store, tmp_path: Path) -> None:
    made = chain(store, "demo", "one")
    file = audited(store, made["model"], tmp_path / "audit.json")
    before = files(store, "records", "memory")
    (store.home / "records" / f"{made['shards'].digest}.json").write_text("{}", encoding="utf-8")
    (store.home / "memory" / made["model"].key / made["model"].digest).unlink()
    assert len(restore(store, file)["written"]) == 2
    assert files(store, "records", "memory") == before


def altered(step: dict[str, Any], name: str, value: Any) -> None:
    step[name] = value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda told: altered(told["chain"][1], "finished", "2026-01-01T00:00:00+00:00"), "was changed"),
        (lambda told: altered(told["chain"][2], "inputs", {"x": "0" * 64}), "was changed"),
        (lambda told: altered(told["chain"][0], "added", 1), "was changed"),
        (lambda told: told["chain"][1].pop("key"), "is no record"),
        (lambda told: altered(told["chain"][1], "record", "0" * 64), "was changed"),
        (lambda told: told.pop("chain"), "is no audit"),
        (lambda told: altered(told, "chain", [1]), "is no audit"),
        (lambda told: altered(told, "chain", 1), "is no audit"),
    ],
)
def test_altered_audits_are_refused_and_nothing_is_written(
    store: Store, tmp_path: Path, change: Callable[[Any], Any], said: str
) -> None:
    made = chain(store, "demo", "one")
    file = audited(store, made["model"], tmp_path / "audit.json")
    remove(store, made["documents"])
    before = files(store, "records", "memory")
    told = json.loads(file.read_text(encoding="utf-8"))
    change(told)
    file.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(DataError, match=said):
        restore(store, file)
    assert files(store, "records", "memory") == before


@pytest.mark.parametrize("name", ["key", "stage", "version", "recipe", "asset"])
@pytest.mark.parametrize("value", ["../../outside", "/elsewhere/outside", "", ".hidden", "a/b", 7])
def test_a_record_that_names_a_place_elsewhere_is_refused(
    store: Store, tmp_path: Path, name: str, value: object
) -> None:
    body: dict[str, Any] = dict(chain(store, "demo", "one")["documents"].body)
    body[name] = value
    forged = record_of(canonical_json(body))
    file = tmp_path / "audit.json"
    file.write_text(json.dumps({"chain": [{"record": forged.digest, **body, "files": []}]}), encoding="utf-8")
    with pytest.raises(DataError, match=f"has no {name} that can be"):
        restore(store, file)
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"null", b"[]"])
def test_what_is_no_audit_is_refused(store: Store, tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)
    with pytest.raises(DataError, match="is no audit"):
        restore(store, file)
