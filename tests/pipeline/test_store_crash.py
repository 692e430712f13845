"""The store under kill -9 between any two operations on the file system, and what has to be durable before what.

Every scenario is run in a child that is killed before its first operation, before its second, … until it ends by itself;
a killed write leaves half of its bytes. After each: what was published before stands, what is visible is whole, `verify`
finds nothing, what was left is swept, and doing it again gives what an undisturbed run gives.
"""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import StoreError
from pipeline.storage import content
from pipeline.store import Record, Store
from tests.pipeline.killing import killed_at

OPERATIONS = ("open", "write", "fsync", "replace", "rename", "unlink", "rmdir", "mkdir", "symlink")


# ── scenarios ────────────────────────────────────────────────────────────────────────────────────────────────────────


def body(asset: str, version: str = "") -> dict[str, Any]:
    time = "2026-01-01T00:00:00.000000+00:00"
    named = {"recipe": "demo", "asset": asset, "stage": "documents", "key": asset.ljust(64, "0"), "inputs": {}}
    return {**named, "version": version, "started": time, "finished": time}


def fill(staged: Path, note: str) -> None:
    (staged / "sub").mkdir()
    (staged / "sub" / "note.txt").write_text(note, encoding="utf-8")
    (staged / "other.txt").write_text("other", encoding="utf-8")


def make(store: Store, asset: str = "new", forced: bool = False) -> Record:
    """What an asset does: answered by the memory, or made; then the pointer."""
    known = [] if forced else store.remembered(asset.ljust(64, "0"))
    if known:
        record = known[0]
    else:
        with store.staging() as staged:
            fill(staged, asset)
            version = store.publish("documents", staged)
        record = store.append(body(asset, version))
    store.point("demo", asset, record)
    return record


def make_again(store: Store) -> Record:
    return make(store, forced=True)


def break_new(store: Store) -> None:
    (store.content("documents", make(store).version) / "sub" / "note.txt").write_text("nEw", encoding="utf-8")


def publish_reference(store: Store) -> Record:
    """The version of `make`, with one file that is only named."""
    outside = store.home.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "other.txt").write_text("other", encoding="utf-8")
    with store.staging() as staged:
        fill(staged, "new")
        (staged / "other.txt").unlink()
        named = content.reference(outside / "other.txt", "other.txt")
        (staged / "references.json").write_text(json.dumps([named]), encoding="utf-8")
        version = store.publish("documents", staged)
    record = store.append(body("referring", version))
    store.point("demo", "referring", record)
    return record


def read_reference(store: Store) -> Record:
    (record,) = store.remembered("referring".ljust(64, "0"))
    folder = store.folder("documents", record.version, references=store.home.parent / "outside")
    assert (folder / "other.txt").read_text(encoding="utf-8") == "other"
    return record


def reject(store: Store, note: str = "new") -> None:
    with store.staging() as staged:
        fill(staged, note)
        store.reject(staged, body("new"))


def reject_bad(store: Store) -> Record:
    reject(store, "bad")
    reject(store, "bad")  # once more: it takes the place of the first
    (_,) = store.rejections("documents")
    return make(store)


def accept(store: Store) -> Record:
    known = store.remembered("new".ljust(64, "0"))
    if not known:
        (rejected,) = store.rejections("documents")
        known = [store.append({**rejected.body, "version": store.accept(rejected)})]
    store.point("demo", "new", known[0])
    return known[0]


def nothing(_: Store) -> None:
    pass


SCENARIOS: dict[str, tuple[Callable[[Store], object], Callable[[Store], Record], bool]] = {
    # before, what is killed and then done again, whether something is broken before
    "publish": (nothing, make, False),
    "publish what exists": (make, make_again, False),
    "mend broken content": (break_new, make, True),
    "publish references": (nothing, publish_reference, False),
    "fill in referenced bytes": (publish_reference, make, False),
    "read references": (publish_reference, read_reference, False),
    "reject": (make, reject_bad, False),
    "accept what was rejected": (reject, accept, False),
}


@pytest.fixture(autouse=True)
def no_fsync(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that was not fsynced: calls are counted, the disk is spared."""
    if "durable" not in request.node.name:
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def content_of(store: Store) -> dict[str, bytes]:
    """Every file under store/, and where the pointers lead."""
    found = {p.relative_to(store.home).as_posix(): p.read_bytes() for p in (store.home / "store").rglob("*.txt")}
    for path in (store.home / "assets").glob("*/*.json"):
        record = store.pointer("demo", path.stem)
        found[path.stem] = record.version.encode() if record else b""
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_between_any_two_operations(tmp_path: Path, scenario: str) -> None:
    before, work, broken = SCENARIOS[scenario]
    undisturbed = Store(tmp_path / "undisturbed" / "home")
    kept = make(undisturbed, "kept")
    before(undisturbed)
    expected = work(undisturbed)

    number, killed = 0, True
    while killed:
        number += 1
        store = Store(tmp_path / str(number) / "home")
        assert make(store, "kept") == kept
        before(store)
        killed = killed_at(number, partial(work, store), os, OPERATIONS)

        if not broken:
            assert store.verify() == []
        for path in (store.home / "assets").glob("*/*.json"):
            record = store.pointer("demo", path.stem)
            assert record is not None
            assert record.version in (kept.version, expected.version)
            assert broken or store.intact(record.stage, record.version), "what is visible is whole"
        store.sweep()
        assert not list((store.home / "staging").glob("[!.]*"))
        assert not list((store.home / "leases").glob("[!.]*"))

        again = work(store)

        assert again.version == expected.version
        assert content_of(store) == content_of(undisturbed)
        assert store.verify() == []
        assert store.pointer("demo", "kept") == kept
        Store(store.home, lease_seconds=0).sweep()
        assert [p.name for p in store.home.rglob(".*") if p.name != ".lock"] == [], "no temporary file is left"
    assert number > 5, "the operations were not counted"


def test_a_reader_beside_a_writer_that_is_killed_sees_nothing_unpublished(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    number, killed = 0, True
    while killed and store.pointer("demo", "new") is None:
        number += 1
        killed = killed_at(number, partial(make, store), os, OPERATIONS)
        for record in store.remembered("new".ljust(64, "0")):
            assert (store.folder("documents", record.version) / "sub" / "note.txt").read_text(encoding="utf-8") == "new"
    assert number > 10
    assert store.pointer("demo", "new") is not None


# ── durability ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Disk:
    """What a power loss could still take: entries of folders that were changed and not fsynced since."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.pending: set[Path] = set()
        self.synced: set[Path] = set()
        self.commits: list[str] = []
        for name in ("mkdir", "rename", "replace", "fsync"):
            monkeypatch.setattr(os, name, self._watch(name, getattr(os, name)))

    def _watch(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **named: Any) -> Any:
            getattr(self, f"_{name}")(*arguments)
            return real(*arguments, **named)

        return operation

    def _lasting(self, path: Path) -> bool:
        inside = path.relative_to(self.home).parts if path.is_relative_to(self.home) else ()
        return not inside or inside[0] in ("store", "records", "memory", "assets")

    def _fsync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self.synced.add(path)
        self.pending.discard(path)

    def _mkdir(self, path: Any, *_: Any) -> None:
        if self._lasting(Path(path)):
            self.pending.add(Path(path).parent)

    def _rename(self, source: Any, target: Any) -> None:
        source, target = Path(source), Path(target)
        for path in (source, *source.rglob("*")):
            assert path in self.synced, f"{path} became {target} before it was durable"
        self.synced.add(target)
        if self._lasting(target):
            assert not self.pending, f"{target} is visible before {self.pending} are durable"
            self.pending.add(target.parent)
            self.commits.append(target.relative_to(self.home).parts[0])

    _replace = _rename


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the paths of open files are read from /proc")
def test_what_is_visible_is_durable_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "home")
    store.home.mkdir()
    disk = Disk(store.home, monkeypatch)
    record = make(store)
    assert disk.commits == ["store", "records", "memory", "assets"]
    assert not disk.pending
    assert store.folder("documents", record.version).is_dir()


# ── errors at any operation ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["write", "fsync", "replace", "rename", "mkdir"])
def test_a_full_disk_at_any_operation_is_one_message_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store = Store(tmp_path / "home")
    kept = make(store, "kept")
    for number in failing_at(store, monkeypatch, name):
        assert store.pointer("demo", "kept") == kept
        assert store.pointer("demo", "new") is None, number
        assert store.verify() == []
        for folder in ("staging", "leases"):
            assert list((store.home / folder).iterdir()) == []
    assert make(store).version == store.manifest("documents", make(store).version)["version"]
    assert store.verify() == []


def failing_at(store: Store, monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[int]:
    """Yields after each run of `make` whose n-th operation `name` found the disk full; ends when it came through."""
    real = getattr(os, name)
    number, failed = 0, True
    while failed:
        number += 1
        count = 0

        def full(*arguments: Any, number: int = number, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                raise OSError(28, "No space left on device")
            return real(*arguments, **named)

        failed = False
        with monkeypatch.context() as patched:
            patched.setattr(os, name, full)
            try:
                make(store)
            except StoreError as error:
                failed = True
                assert "No space left on device" in error.what and "free space" in error.todo
        if failed:
            yield number
    assert number > 1
