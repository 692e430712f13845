"""`bert gc` on a store: what it moves, the trash and its time, tombstones, leases, restoring. Crashes: test_garbage_crash.py."""

import hashlib
import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import lineage
from pipeline.errors import StoreError
from pipeline.settings import RetentionSettings
from pipeline.storage import garbage, manifest, retention, tombstones
from pipeline.store import Record, Store

KEEP_ONE = RetentionSettings(history=0, shards_days=30)


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is killed here: the disk is spared."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home", lease_seconds=2)


def published(store: Store, stage: str, note: str) -> str:
    with store.staging() as staged:
        (staged / "sub").mkdir()
        (staged / "sub" / "note.txt").write_text(note, encoding="utf-8")
        return store.publish(stage, staged)


def laid_out(store: Store, stage: str, note: str) -> str:
    """The same without leases and locks, for stores of many."""
    digest = hashlib.sha256(note.encode()).hexdigest()
    files = [{"path": "sub/note.txt", "size_bytes": len(note), "sha256": digest, "digest": digest}]
    version = manifest.version_in(files)
    place = store.content(stage, version)
    (place / "sub").mkdir(parents=True)
    (place / "sub" / "note.txt").write_text(note, encoding="utf-8")
    manifest.seal(place, stage, version, files)
    return version


def made(
    store: Store,
    recipe: str,
    asset: str,
    stage: str,
    note: str,
    inputs: Mapping[str, Record] | None = None,
    days: float = 0,
    asked: Mapping[str, Any] | None = None,
) -> Record:
    """Content, record, memory, pointer, as a finished stage leaves them, `days` ago."""
    version = published(store, stage, note)
    key = hashlib.sha256(f"{stage} {note}".encode()).hexdigest()
    when = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    read = {name: record.digest for name, record in (inputs or {}).items()}
    body: dict[str, Any] = {
        "recipe": recipe,
        "asset": asset,
        "stage": stage,
        "key": key,
        "version": version,
        "inputs": read,
        "started": when,
        "finished": when,
        "asked": dict(asked or {}),
        "reused": None,
    }
    record = store.append(body)
    store.point(recipe, asset, record)
    return record


def chain(store: Store, recipe: str, mark: str, days: float = 0) -> dict[str, Record]:
    """documents → shards → model."""
    documents = made(store, recipe, "documents", "documents", f"documents {mark}", days=days)
    shards = made(store, recipe, "shards", "pretraining_shards", f"shards {mark}", {"documents": documents}, days)
    model = made(store, recipe, "model", "pretrained", f"model {mark}", {"shards": shards}, days)
    return {"documents": documents, "shards": shards, "model": model}


def there(store: Store) -> set[str]:
    return {version for _, version in store.versions()}


def versions(*chains: Mapping[str, Record]) -> set[str]:
    return {record.version for each in chains for record in each.values()}


def older(store: Store, record: Record, days: float) -> None:
    """Say that the content of a record was removed `days` earlier."""
    path = store.home / "tombstones" / record.stage / f"{record.version}.json"
    stone = store.tombstone(record.stage, record.version)
    assert stone is not None
    when = datetime.fromisoformat(stone.time) - timedelta(days=days)
    path.write_bytes(replace(stone, time=when.isoformat()).data())


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time and bytes."""
    return {
        path.relative_to(folder).as_posix(): (path.lstat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


# ── what it does ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_old_generations_go_into_the_trash_and_later_for_good(store: Store) -> None:
    old, new = chain(store, "demo", "old"), chain(store, "demo", "new")
    before = tree(store.home)
    found = garbage.look(store, KEEP_ONE)
    assert {each.version[1] for each in found.verdict.goes} == versions(old)
    assert tree(store.home) == before, "looking writes nothing"

    _, done = garbage.collect(store, KEEP_ONE)
    assert {each.version[1] for each in done.moved} == versions(old) and not done.removed and not done.busy
    assert there(store) == versions(new)
    assert store.verify() == []
    for record in old.values():
        assert store.record(record.digest) == record
        told = store.manifest(record.stage, record.version)
        assert [file["path"] for file in told["files"]] == ["sub/note.txt"]
        stone = store.removed(record.stage, record.version)
        assert stone is not None and not stone.again and "newer versions took its place" in stone.reason
    assert store.remembered(old["model"].key) == []
    assert garbage.trash_of(store) == (3, sum(len(f"{each} old") for each in ("documents", "shards", "model")))

    assert garbage.collect(store, KEEP_ONE)[1] == garbage.Done([], [], [], [])
    older(store, old["model"], days=7.1)
    _, done = garbage.collect(store, KEEP_ONE)
    assert [each.version[1] for each in done.removed] == [old["model"].version]
    assert garbage.trash_of(store)[0] == 2
    assert not list((store.home / "trash").rglob(f"*{old['model'].version}*"))
    assert store.removed("pretrained", old["model"].version) is not None, "its tombstone stays"
    assert store.verify() == []


def test_the_audit_lists_the_files_of_removed_content_and_says_when_and_why(store: Store) -> None:
    old, _ = chain(store, "demo", "old"), chain(store, "demo", "new")
    before = [step.plain() for step in lineage.audit(store, old["model"])]
    assert all(step["removed"] is None for step in before)
    garbage.collect(store, KEEP_ONE)
    for name in ("trash", "store"):
        shutil.rmtree(store.home / name)
    after = [step.plain() for step in lineage.audit(store, old["model"])]
    assert [{**step, "removed": None} for step in after] == before
    for step in after:
        assert step["removed"]["time"][:10] == datetime.now(UTC).isoformat()[:10]
        assert step["removed"]["by"] == tombstones.who()
        assert "newer versions" in step["removed"]["reason"]


def test_content_that_two_recipes_share_stays_until_both_have_left_it(store: Store) -> None:
    shared = chain(store, "one", "shared")
    chain(store, "two", "shared")
    chain(store, "one", "new")
    garbage.collect(store, KEEP_ONE)
    assert versions(shared) <= there(store)
    chain(store, "two", "newer")
    garbage.collect(store, KEEP_ONE)
    assert not versions(shared) & there(store)


def by_hand(release: Record) -> dict[str, Any]:
    """A change of champions without a decision."""
    said = {"who": "ann", "why": "it is better", "time": "2026-01-02T03:04:05+00:00"}
    return {"did": "promoted", "champion": release.digest, "instead_of": None, "decision": None, **said}


def test_a_champion_and_the_one_before_stay(store: Store) -> None:
    chains = [chain(store, "demo", str(number)) for number in range(4)]
    champion = {"champion": chains[0]["model"].digest, "previous": None, "history": [by_hand(chains[0]["model"])]}
    path = store.home / "assets" / "demo" / "champion.json"
    path.write_text(json.dumps(champion), encoding="utf-8")
    garbage.collect(store, KEEP_ONE)
    assert there(store) == versions(chains[0], chains[3])
    path.write_text(json.dumps({**champion, "previous": chains[3]["model"].digest}), encoding="utf-8")
    newest = chain(store, "demo", "newest")
    garbage.collect(store, KEEP_ONE)
    assert there(store) == versions(chains[0], chains[3], newest)


def test_the_scores_of_a_champion_and_what_its_decision_compared_with_stay(store: Store) -> None:
    """They are what the next release is held against."""
    first, second = chain(store, "demo", "first"), chain(store, "demo", "second")
    scored = {
        "model": second["model"],
        "finetuned": made(store, "demo", "finetuned_x", "finetuned", "scores of the second"),
    }
    decision = made(
        store, "demo", "decision", "promotion_decision", "yes", scored, asked={"champion": first["model"].digest}
    )
    made(store, "demo", "finetuned_x", "finetuned", "scores of the third")
    made(store, "demo", "decision", "promotion_decision", "no", chain(store, "demo", "third"))
    promoted = {"champion": second["model"].digest, "instead_of": first["model"].digest, "decision": decision.digest}
    promoted |= {"did": "promoted", "who": "ann", "why": "it is better", "time": "2026-01-02T03:04:05+00:00"}
    champion = {"champion": second["model"].digest, "previous": None, "history": [promoted]}
    path = store.home / "assets" / "demo" / "champion.json"
    path.write_text(json.dumps(champion), encoding="utf-8")
    garbage.collect(store, KEEP_ONE)
    kept = there(store)
    assert versions(first, second, scored) | {decision.version} <= kept
    path.write_text(
        json.dumps({**champion, "history": [by_hand(second["model"])]}), encoding="utf-8"
    )  # promoted by hand: nothing says that they count
    garbage.collect(store, KEEP_ONE)
    assert there(store) == kept - versions(first) - {scored["finetuned"].version, decision.version}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"champion": "x"}', '{"champion": 7}'])
def test_a_champion_that_can_not_be_read_stops_everything(store: Store, text: str) -> None:
    chain(store, "demo", "old"), chain(store, "demo", "new")
    path = store.home / "assets" / "demo" / "champion.json"
    path.write_text(text, encoding="utf-8")
    before = tree(store.home)
    with pytest.raises(StoreError, match=r"champion\.json is damaged"):
        garbage.collect(store, KEEP_ONE)
    after = tree(store.home)
    assert after.pop("locks/gc") and after == before


def test_a_broken_pointer_or_a_missing_record_stops_everything(store: Store) -> None:
    old, new = chain(store, "demo", "old"), chain(store, "demo", "new")
    path = store.home / "assets" / "demo" / "model.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    with pytest.raises(StoreError, match="is not a pointer"):
        garbage.collect(store, KEEP_ONE)
    path.write_bytes(whole)
    record = store.home / "records" / f"{new['documents'].digest}.json"
    kept = record.read_bytes()
    record.unlink()
    with pytest.raises(StoreError, match=f"{new['documents'].digest[:12]}.*nothing goes") as caught:
        garbage.collect(store, KEEP_ONE)
    assert "bert restore FILE" in caught.value.todo
    assert there(store) == versions(old, new)
    record.write_bytes(kept)
    assert len(garbage.collect(store, KEEP_ONE)[1].moved) == 3


def test_attestations_and_unfinished_trainings_keep_what_they_need(store: Store) -> None:
    attested, read, unknown, new = (chain(store, "demo", mark) for mark in ("attested", "read", "unknown", "new"))
    (store.home / "attestations" / attested["model"].version).mkdir(parents=True)
    with store.run_folder("r" * 64):
        store.note_inputs("r" * 64, {"shards": read["shards"].digest})
    garbage.collect(store, KEEP_ONE)
    assert there(store) == versions(attested, new) | {read["documents"].version, read["shards"].version}
    assert not versions(unknown) & there(store)


def test_shards_are_taken_by_their_age_unless_an_unfinished_training_reads_them(store: Store) -> None:
    old = chain(store, "demo", "old", days=40)
    with store.run_folder("r" * 64) as run:
        assert garbage.collect(store, KEEP_ONE)[1].moved == [], "it does not say what it reads"
        store.note_inputs("r" * 64, {"shards": old["shards"].digest})
        assert garbage.collect(store, KEEP_ONE)[1].moved == []
        (run / "published.json").write_text("{}", encoding="utf-8")
    (going,) = garbage.collect(store, KEEP_ONE)[1].moved
    assert going.version == ("pretraining_shards", old["shards"].version) and going.again
    stone = store.removed(*going.version)
    assert stone is not None and stone.again and "the last use was 40 days ago" in stone.told
    assert store.verify() == []
    older(store, old["shards"], days=8)
    _, done = garbage.collect(store, KEEP_ONE)
    assert [each.version for each in done.removed] == [going.version], "it is needed, and does not come back by itself"
    assert store.verify() == []


def test_what_a_crash_left_goes_and_strange_names_and_broken_content_are_left_alone(store: Store) -> None:
    chain(store, "demo", "new")
    with store.staging() as staged:
        (staged / "a.txt").write_text("left", encoding="utf-8")
        left = store.publish("documents", staged)
    assert garbage.collect(store, KEEP_ONE)[1].moved == []
    place = store.content("documents", left)
    os.utime(place, (time.time() - 3,) * 2)
    (store.home / "store" / "documents" / "notes").mkdir()
    broken = made(store, "demo", "documents", "documents", "broken")
    chain(store, "demo", "new")
    (store.content("documents", broken.version) / "manifest.json").write_text("{}", encoding="utf-8")
    found, done = garbage.collect(store, KEEP_ONE)
    assert [each.version[1] for each in done.moved] == [left]
    assert "the manifest was altered" in found.broken[0]
    assert (store.home / "store" / "documents" / "notes").is_dir()


# ── leases and others at work ────────────────────────────────────────────────────────────────────────────────────────


def test_what_somebody_reads_stays_until_he_is_done_or_dead(store: Store) -> None:
    old, _ = chain(store, "demo", "old"), chain(store, "demo", "new")
    with store.lease("documents", old["documents"].version):
        _, done = garbage.collect(store, KEEP_ONE)
        assert old["documents"].version in there(store) and len(done.moved) == 2
        assert store.put_away("documents", old["documents"].version, "late", again=False) is None
    assert [each.version[1] for each in garbage.collect(store, KEEP_ONE)[1].moved] == [old["documents"].version]


def reading(home: Path, record: Record, seconds: float) -> None:
    """Take a lease, look, read, again and again; ends with 1 where something vanished while it was leased."""
    store = Store(home, lease_seconds=2)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with store.lease(record.stage, record.version):
            if store.intact(record.stage, record.version):
                for _ in range(20):
                    if not (store.content(record.stage, record.version) / "sub" / "note.txt").is_file():
                        os._exit(1)
    os._exit(0)


def test_nothing_vanishes_under_a_lease_while_it_is_put_away_and_brought_back(store: Store) -> None:
    old, _ = chain(store, "demo", "old"), chain(store, "demo", "new")
    record = old["documents"]
    reader = multiprocessing.get_context("fork").Process(target=reading, args=(store.home, record, 3.0))
    reader.start()
    moved = 0
    while reader.is_alive():
        moved += store.put_away(record.stage, record.version, "test", again=False) is not None
        store.bring_back(record.stage, record.version)
    reader.join()
    assert reader.exitcode == 0
    assert moved > 3


def publishing(home: Path, seconds: float) -> None:
    """Publish the same again and again; ends with 1 where it is not there, or not whole."""
    store = Store(home, lease_seconds=2)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        made(store, "other", "documents", "documents", "documents old")
    os._exit(0)


def test_content_that_is_published_again_meanwhile_is_there_or_comes_back(store: Store) -> None:
    old, _ = chain(store, "demo", "old"), chain(store, "demo", "new")
    record = old["documents"]
    writer = multiprocessing.get_context("fork").Process(target=publishing, args=(store.home, 3.0))
    writer.start()
    while writer.is_alive():
        store.put_away(record.stage, record.version, "test", again=False)
    writer.join()
    assert writer.exitcode == 0
    garbage.collect(store, KEEP_ONE)
    assert store.intact(record.stage, record.version), "what an asset has now comes back from the trash"
    assert store.verify() == []


# ── bringing back ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_version_comes_back_from_the_trash_by_its_beginning_and_stays_for_the_grace_time(store: Store) -> None:
    old, _ = chain(store, "demo", "old"), chain(store, "demo", "new")
    garbage.collect(store, KEEP_ONE)
    record = old["model"]
    assert garbage.restore(store, record.version[:10]) == ("pretrained", record.version)
    assert store.remembered(record.key) == [record]
    assert store.removed(record.stage, record.version) is None
    assert garbage.collect(store, KEEP_ONE)[1].moved == []
    shutil.rmtree(store.content(record.stage, record.version))
    assert len(store.verify_version(record.stage, record.version)) == 1, "what is lost after that is missing"
    for prefix, said in (("", "nothing in the trash"), ("x", "nothing in the trash"), (record.version, "nothing")):
        with pytest.raises(StoreError, match=said):
            garbage.restore(store, prefix)


def test_a_beginning_of_several_versions_is_refused(store: Store) -> None:
    for number in range(40):
        made(store, "demo", "documents", "documents", str(number))
    garbage.collect(store, KEEP_ONE)
    first = [version[0] for _, version in store.trashed()]
    (twice, *_) = [letter for letter in first if first.count(letter) > 1]
    with pytest.raises(StoreError, match="beginning of several versions"):
        garbage.restore(store, twice)


def test_broken_content_of_the_trash_is_not_brought_back_as_whole(store: Store) -> None:
    old, _ = chain(store, "demo", "old"), chain(store, "demo", "new")
    garbage.collect(store, KEEP_ONE)
    note = store.home / "trash" / "pretrained" / old["model"].version / "sub" / "note.txt"
    note.write_text("mOdel old", encoding="utf-8")
    with pytest.raises(StoreError, match=r"note\.txt: its bytes"):
        garbage.restore(store, old["model"].version)
    assert not store.intact("pretrained", old["model"].version)


def test_an_altered_or_lost_tombstone_is_found_and_its_content_judged_anew(store: Store) -> None:
    old, new = chain(store, "demo", "old"), chain(store, "demo", "new")
    garbage.collect(store, KEEP_ONE)
    record = old["model"]
    path = store.home / "tombstones" / "pretrained" / f"{record.version}.json"
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert store.tombstone(record.stage, record.version) is None, at
    (problem,) = store.verify()
    assert "the tombstone was altered" in problem.what and not path.exists()
    _, done = garbage.collect(store, KEEP_ONE)
    assert [each.version[1] for each in done.returned] == [record.version]
    _, done = garbage.collect(store, KEEP_ONE)
    assert [each.version[1] for each in done.moved] == [record.version]
    assert there(store) == versions(new)


def test_a_link_out_of_the_home_is_not_followed(store: Store, tmp_path: Path) -> None:
    old, new = chain(store, "demo", "old"), chain(store, "demo", "new")
    outside = tmp_path / "outside"
    (store.home / "store" / "pretrained").rename(outside)
    (store.home / "store" / "pretrained").symlink_to(outside)
    before = tree(outside)
    with pytest.raises(StoreError, match="lies outside of"):
        garbage.collect(store, KEEP_ONE)
    assert tree(outside) == before
    (store.home / "store" / "pretrained").unlink()
    outside.rename(store.home / "store" / "pretrained")

    trash = store.home / "trash"
    garbage.collect(store, KEEP_ONE)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine", encoding="utf-8")
    shutil.rmtree(trash / "pretrained" / old["model"].version)
    (trash / "pretrained" / old["model"].version).symlink_to(precious)
    older(store, old["model"], days=8)
    garbage.collect(store, KEEP_ONE)
    assert (precious / "file").read_text(encoding="utf-8") == "mine"
    assert not os.path.lexists(trash / "pretrained" / old["model"].version)
    assert there(store) == versions(new)


def test_a_home_that_can_not_be_written_is_looked_at(store: Store) -> None:
    old = chain(store, "demo", "old")
    chain(store, "demo", "new")
    shutil.rmtree(store.home / "locks")
    folders = [store.home, *(path for path in store.home.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        if os.access(store.home, os.W_OK):
            before = tree(store.home)
            found = garbage.look(store, KEEP_ONE)
            assert tree(store.home) == before and not (store.home / "locks").exists()
        else:
            found = garbage.look(store, KEEP_ONE)
            with pytest.raises(StoreError, match="may not write there"):
                garbage.collect(store, KEEP_ONE)
    finally:
        for path in folders:
            path.chmod(0o755)
    assert {each.version[1] for each in found.verdict.goes} == versions(old)


# ── size ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_thousand_artifacts_are_looked_at_and_put_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "published", laid_out)
    for number in range(334):
        chain(store, f"recipe{number % 50}", str(number))
    assert len(there(store)) == 1002
    begun = time.process_time()
    found = garbage.look(store, RetentionSettings(history=1))
    looked = time.process_time()
    assert len(found.verdict.goes) == 1002 - 2 * 150
    told = retention.sums(found.there, found.verdict.stays)
    held = sum(found.sizes[going.version] for going in found.verdict.goes)
    assert sum(size for _, _, size in told) + held == sum(found.there.values())
    _, done = garbage.collect(store, RetentionSettings(history=1))
    collected = time.process_time()
    assert len(done.moved) == 702 and len(there(store)) == 300
    print(f"1,002 artifacts: looked at in {looked - begun:.2f} s, 702 put away in {collected - looked:.2f} s of CPU")
