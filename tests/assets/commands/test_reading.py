"""`bert status` of a home in which something is wrong, or under way."""

import os
import shutil
from pathlib import Path

import pytest

from pipeline.system.owners import held_lock, holder
from tests.assets.bertcli import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path / "world")


def test_who_makes_a_recipe_now_is_told(world: World) -> None:
    assert world.json("status", "tiny")["made_now_by"] is None
    with held_lock(world.home / "locks" / "run-tiny", what="bert run tiny"):
        told = world.json("status", "tiny")["made_now_by"]
        assert told.startswith(f"bert run tiny (pid {os.getpid()} on ")
        assert f"It is being made now, by {told}; `bert run tiny` shows how far it is." in world.bert("status", "tiny")
        assert world.json("status", "tiny_child")["made_now_by"] is None
    assert world.json("status", "tiny")["made_now_by"] is None


def test_a_lock_that_nobody_holds_or_that_is_none_has_no_holder(tmp_path: Path) -> None:
    assert holder(tmp_path / "nothing") is None
    (tmp_path / "folder").mkdir()
    assert holder(tmp_path / "folder") is None
    (tmp_path / "left").write_text("{}", encoding="utf-8")
    assert holder(tmp_path / "left") is None


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\0[", "is damaged"),
        (b'{"champion": "%s", "previous": null, "history": []}' % (b"a" * 64), "does not begin with its champion"),
    ],
)
def test_a_damaged_champion_hides_no_asset(world: World, content: bytes, what: str) -> None:
    folder = world.home / "assets" / "tiny"
    folder.mkdir(parents=True)
    (folder / "champion.json").write_bytes(content)
    text = world.bert("status", "tiny")
    assert "documents" in text and "✗ champion: " in text and what in text and "Restore it from a backup" in text
    assert what in world.json("status", "tiny")["champion"]["error"]
    assert what in world.bert("verify", code=1)


def test_what_stands_in_the_place_of_something_else_is_named_with_what_to_do(world: World) -> None:
    pointer = world.home / "assets" / "tiny" / "documents.json"
    pointer.mkdir(parents=True)
    output = world.bert("status", "tiny", code=1)
    assert f"{pointer}: Is a directory" in output and "A folder stands where a file belongs: move it away" in output
    assert f"{pointer}: not a pointer" in world.bert("verify", code=1) and not pointer.exists(), "it is set aside"
    assert "documents" in world.bert("status", "tiny")
    shutil.rmtree(world.home)
    world.home.write_text("x", encoding="utf-8")
    for command in (("status", "tiny"), ("run", "tiny"), ("verify",), ("doctor",)):
        output = world.bert(*command, code=1)
        assert f"{world.home}: " in output and "A file stands where a folder belongs: move it away" in output, command


def test_a_file_in_the_place_of_a_version_is_set_aside_and_the_version_made_anew(world: World) -> None:
    world.bert("run", "tiny/books_text")
    (place,) = (world.home / "store" / "books_text").iterdir()
    version = world.versions("tiny")["books_text"]
    shutil.rmtree(place)
    place.write_bytes(b"x")
    assert f"{place} is no folder" in world.bert("verify", code=1)
    world.bert("run", "tiny/books_text")
    assert place.is_dir() and world.versions("tiny")["books_text"] == version
    shutil.rmtree(place)
    place.write_bytes(b"x")
    world.bert("run", "tiny/books_text", "--force")
    assert place.is_dir() and "everything" in world.bert("verify")
