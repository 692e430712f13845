"""Beam stages whose workers reach inputs, scratch and output only by URLs of an object store, as on a cluster.

The workers are processes of this machine; they get URLs and nothing else. Everything comes out byte for byte as on a disk.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import extraction, progress, shards
from pipeline.config import Frozen, ShardsConfig, WikipediaTextConfig
from pipeline.errors import DataError, SourceError
from pipeline.extraction import extract_text
from pipeline.shards import build_shards
from pipeline.storage.objects import Objects
from pipeline.store import Store
from pipeline.system import places
from pipeline.wiki import dump_parts
from tests.pipeline import dumps, test_shards
from tests.pipeline.test_store import reference

STAGES: dict[str, Callable[..., dict[str, Any]]] = {"pretraining_shards": build_shards, "wikipedia_text": extract_text}


@pytest.fixture
def store(object_store: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store of two Beam workers that see nothing but the object store."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("beam: {workers: 2}\n", encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(settings))
    monkeypatch.setattr(shards, "WORK_PER_WORKER", 1)
    monkeypatch.setattr(extraction, "WORK_PER_WORKER", 1)
    monkeypatch.setattr(places, "REMOTE_SECONDS", 0.5)
    return Store(tmp_path / "home", lease_seconds=2, url=object_store())


def files(folder: Path) -> dict[str, bytes]:
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    return {name: data for name, data in found.items() if name != "manifest.json"}


def published(store: Store, stage: str, source: Path) -> str:
    """A folder as a version."""
    with store.staging() as staged:
        for name, data in files(source).items():
            (staged / name).parent.mkdir(parents=True, exist_ok=True)
            (staged / name).write_bytes(data)
        return store.publish(stage, staged)


def made_by_url(
    store: Store, stage: str, inputs: dict[str, tuple[str, str]], config: Frozen
) -> tuple[dict[str, Any], str]:
    """(statistics, version) of a stage whose inputs are versions {name: (stage, version)}, as `pipeline.build` runs it."""
    folders = {name: store.folder(*version) for name, version in inputs.items()}
    with store.staging() as staged, store.upload(stage) as upload:
        urls = {folders[name].resolve(): (lambda v=version: store.url_of(*v)) for name, version in inputs.items()}
        with places.sharing({**urls, staged.resolve(): upload.url}):
            found = STAGES[stage](folders, config, staged)
        return found, store.publish(stage, staged, upload)


# ── shards ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shard_inputs(store: Store, tmp_path: Path) -> dict[str, tuple[str, str]]:
    documents = test_shards.write_documents(tmp_path / "documents", test_shards.documents())
    vocabulary = test_shards.write_vocabulary(tmp_path / "vocabulary")
    return {
        "documents": ("documents", published(store, "documents", documents)),
        "wordpiece_vocab": ("wordpiece_vocab", published(store, "wordpiece_vocab", vocabulary)),
    }


@pytest.mark.parametrize("changes", [{}, {"masking": "dynamic", "sentence_task": "none", "dupe_factor": 1}])
def test_shards_are_the_same_bytes_as_on_a_disk(
    store: Store, shard_inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    test_shards.small_pools(monkeypatch)
    config = ShardsConfig.model_validate({**test_shards.CONFIG.plain(), **changes})
    out = tmp_path / "out"
    out.mkdir()
    statistics = build_shards({name: store.folder(*v) for name, v in shard_inputs.items()}, config, out)

    heard = []
    with progress.listen(lambda now: heard.append(now.unit)):
        found, version = made_by_url(store, "pretraining_shards", shard_inputs, config)

    assert found == statistics
    assert files(store.folder("pretraining_shards", version)) == files(out)
    there = Objects(str(store.url))
    (copy,) = there.names(f"store/pretraining_shards/{version}")
    folder = f"store/pretraining_shards/data/{copy}"
    assert sorted(there.sizes(folder)) == sorted([*files(out), "manifest.json"]), "nothing of the way is left"
    assert {name: there.read(f"{folder}/{name}") for name in files(out)} == files(out)
    assert "bytes sent to the store" not in heard, "what workers wrote is not sent again"
    assert store.verify() == []


def test_a_vocabulary_that_does_not_fit_is_told_by_a_worker(
    store: Store, shard_inputs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documents vanish between the plan and the work."""
    real = places.shared

    def gone(folder: Path) -> Path:
        return real(folder) / "gone" if folder == store.folder(*shard_inputs["documents"]) else real(folder)

    monkeypatch.setattr(shards, "shared", gone)
    with pytest.raises(Exception, match="part-00000.parquet") as raised:
        made_by_url(store, "pretraining_shards", shard_inputs, test_shards.CONFIG)
    assert "s3://" in str(raised.value) and "FileNotFoundError" in str(raised.value)
    there = Objects(str(store.url))
    assert there.sizes("store/pretraining_shards") == {}, "nothing is left"
    assert list((store.home / "leases").iterdir()) == []


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

TEXT = WikipediaTextConfig(source="wiki")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_parts, "PARTS", 9)
    monkeypatch.setattr(dump_parts, "SMALLEST", 1)


def written_dump(folder: Path) -> Path:
    from tests.pipeline import test_extraction

    folder.mkdir()
    dumps.write(folder, test_extraction.MULTI, test_extraction.NAME)
    return folder


def test_text_is_the_same_bytes_as_on_a_disk(store: Store, small_parts: None, tmp_path: Path) -> None:
    dump = written_dump(tmp_path / "dump")
    out = tmp_path / "out"
    out.mkdir()
    statistics = extract_text({"dump": dump}, TEXT, out)
    version = published(store, "files", dump)

    found, made = made_by_url(store, "wikipedia_text", {"dump": ("files", version)}, TEXT)

    assert found == statistics
    assert files(store.folder("wikipedia_text", made)) == files(out)
    there = Objects(str(store.url))
    assert not [name for name in there.sizes("store/wikipedia_text") if ".scratch" in name], (
        "nothing of the way is left"
    )
    assert store.verify() == []


def test_a_broken_dump_is_told_by_a_worker(store: Store, small_parts: None, tmp_path: Path) -> None:
    dump = written_dump(tmp_path / "dump")
    (path,) = dump.iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    version = published(store, "files", dump)
    with pytest.raises(SourceError, match="damaged"):
        made_by_url(store, "wikipedia_text", {"dump": ("files", version)}, TEXT)
    assert Objects(str(store.url)).sizes("store/wikipedia_text") == {}


def test_a_dump_that_is_only_referenced_is_refused_with_what_to_do(store: Store, tmp_path: Path) -> None:
    (path,) = written_dump(tmp_path / "dump").iterdir()
    version = reference(store, path)
    folder = store.folder("files", version, path)
    with store.staging() as staged, store.upload("wikipedia_text") as upload:
        urls = {folder.resolve(): lambda: store.url_of("files", version), staged.resolve(): upload.url}
        with (
            places.sharing(urls),
            pytest.raises(DataError, match="can't see this file: it is only referenced") as raised,
        ):
            extract_text({"dump": folder}, TEXT, staged)
    assert path.name in raised.value.what and "Let the recipe download it" in raised.value.todo
