"""The whole recipe with its store in an object store, as a user runs it; versions are those of a store on a disk."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.storage.objects import Objects
from pipeline.store import Store
from tests.assets.bertcli import ASSETS, World


def use(world: World, url: str) -> World:
    """Let the settings name this store."""
    settings = world.folder / "settings.yaml"
    settings.write_text(settings.read_text(encoding="utf-8") + f"store: {url}\n", encoding="utf-8")
    return world


@pytest.fixture(scope="module")
def url(object_store: Callable[[], str]) -> str:
    return object_store()


@pytest.fixture(scope="module")
def there(url: str, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world whose store lies there, in which `bert run tiny` has run once."""
    world = use(World.make(tmp_path_factory.mktemp("there")), url)
    assert "tiny is up to date" in world.bert("run", "tiny")
    return world


def test_every_version_is_that_of_a_store_on_a_disk(made: World, there: World, url: str) -> None:
    assert there.versions() == made.versions()
    assert there.states() == dict.fromkeys(ASSETS, "up to date")
    assert there.json("verify")["problems"] == []
    assert not (there.home / "store").exists() and not (there.home / "records").exists()
    assert not list((there.home / "staging").iterdir()) and not list((there.home / "leases").iterdir())
    assert set(Objects(url).names("store")) >= {"documents", "pretraining_shards", "release"}
    output = there.bert("run", "tiny")
    assert "17 of 17 assets are up to date" in output and "▸" not in output
    (check,) = [c for c in there.json("doctor") if c["name"] == "object store"]
    assert check["state"] == "ok"


def test_another_machine_takes_everything_from_there(there: World, url: str, tmp_path: Path) -> None:
    world = use(World.make(tmp_path / "world"), url)
    output = world.bert("run", "tiny")
    assert "17 of 17 assets are up to date" in output and "▸" not in output
    assert world.versions() == there.versions()
    fetched = {path.name for path in (world.home / "cache").iterdir()} - {"records"}
    assert fetched == set(), "nothing was fetched only to be shown"
    world.bert("export", "tiny/release", str(tmp_path / "model"))
    assert world.json("verify", str(tmp_path / "model"))["problems"] == []
    assert world.json("audit", "tiny/release")["chain"]


def test_shards_by_url_are_the_same_and_a_referenced_dump_is_refused(there: World, tmp_path: Path) -> None:
    world = there.copy(tmp_path / "copy")
    settings = world.folder / "settings.yaml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace("beam: {workers: 1}", "beam: {workers: 2, files: store}"), encoding="utf-8")
    before = world.versions()
    world.bert("run", "tiny/pretraining_shards_64", "--force")
    assert world.versions() == before
    output = world.bert("run", "tiny/wikipedia_text", "--force", code=1)
    assert "can't see this file: it is only referenced" in output and "Traceback" not in output
    assert world.versions() == before


def test_a_flipped_byte_in_the_bucket_is_named_and_made_anew(there: World, url: str, tmp_path: Path) -> None:
    world = there.copy(tmp_path / "copy")
    version = world.versions()["books_text"]
    (copy,) = Objects(url).names(f"store/books_text/{version}")
    name = f"store/books_text/data/{copy}/part-00000.parquet"
    data = bytearray(Objects(url).read(name))
    data[len(data) // 2] ^= 1
    Objects(url).write(name, bytes(data))
    (problem,) = world.json("verify", "tiny/documents", code=1)["problems"]
    assert name in problem["what"] and "makes it anew" in problem["todo"]
    assert "tiny/documents is up to date" in world.bert("run", "tiny/documents")
    assert world.versions()["books_text"] == version
    assert Store(world.home, url=url).intact("books_text", version)
    assert world.json("verify", "tiny/documents")["problems"] == []


def test_a_bucket_that_is_gone_is_said_without_a_traceback(object_store: Callable[[], str], tmp_path: Path) -> None:
    world = use(World.make(tmp_path / "world"), "s3://no-such-bucket/folder")
    for command, code in ((["status", "tiny"], 1), (["run", "tiny"], 1), (["verify"], 1)):
        output = world.bert(*command, code=code)
        assert "the bucket s3://no-such-bucket does not exist" in output and "Traceback" not in output
    (check,) = [c for c in world.json("doctor", code=1) if c["name"] == "object store"]
    assert check["state"] == "error" and "does not exist" in check["found"]
    assert "correct `store` in settings.yaml" in check["todo"]
