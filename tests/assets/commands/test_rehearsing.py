"""`bert run R --sample SHARE` through the real command: assets of its own, and nothing of the recipe's is touched."""

import json
from pathlib import Path

import pytest

from tests.assets.bertcli import ASSETS, World

LONG_BOOKS = 260


@pytest.fixture(scope="module")
def world(made: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The world of `tiny`, with another recipe over more books than a rehearsal reads."""
    world = made.copy(tmp_path_factory.mktemp("rehearsing") / "world")
    books = world.folder / "text" / "many"
    books.mkdir()
    first = (world.folder / "text" / "books" / "book0.txt").read_text(encoding="utf-8")
    for number in range(LONG_BOOKS):
        (books / f"{number:03}.txt").write_text(f"Book {number} begins. {first[number * 7 :]}", encoding="utf-8")
    (world.folder / "recipes" / "shelf.yaml").write_text(
        "name: shelf\nextends: tiny\ndescription: Many books.\n"
        "corpus: {near_duplicates: 1, sources: {wikipedia: null, books: {from: {path: ../text/many}}}}\n"
        "pretraining: {phases: [{sequence_length: 32, steps: 4000}], warmup_steps: 100}\n",
        encoding="utf-8",
    )
    return world


def test_a_rehearsal_has_assets_of_its_own_and_tells_what_the_whole_would_take(world: World) -> None:
    before, noted = world.versions(), world.home / "samples"
    assert "shelf@sample" in world.bert("run", "shelf", "--sample", "0.01", "--dry-run") and not noted.exists()
    output = world.bert("run", "shelf", "--sample", "0.01")
    assert "shelf@sample is up to date" in output and "Next: bert report shelf@sample" in output
    told = output[output.index("The whole of shelf") :]
    assert "books_text" in told and "documents" in told and "bert run shelf --dry-run" in told
    assert "200 read = 200 kept" in output, "of 260 books"
    assert "40 steps" in output, "a hundredth of 4,000"

    assert world.versions() == before
    assert not (world.home / "assets" / "shelf").exists()
    rows = {row["recipe"]: row for row in world.json("status")["recipes"]}
    assert rows["shelf"]["made"] == 0 and rows["shelf@sample"]["made"] == rows["shelf@sample"]["assets"] > 10
    assert set(world.states("shelf@sample").values()) == {"up to date"}
    assert "Rehearsal of shelf with a share of 0.01. Many books." in world.bert("report", "shelf@sample")
    assert world.json("audit", "shelf@sample/release")["asset"] == "shelf@sample/release"
    again = world.bert("run", "shelf@sample")
    assert "▸" not in again, "the share is remembered, and nothing is made twice"

    # Its settings: another share asks anew for what reads less or more, and for nothing else.
    states = {
        row["asset"]: row["state"] for row in world.json("run", "shelf", "--sample", "0.9", "--dry-run")["assets"]
    }
    assert states["books_files"] == "up to date" and states["books_text"] == "will run"
    assert json.loads((noted / "shelf.json").read_text())["share"] == 0.01


def test_what_a_rehearsal_made_goes_first(world: World, tmp_path: Path) -> None:
    copied = world.copy(tmp_path / "world")
    gone = copied.json("gc", "--dry-run")["goes"]
    assert gone and all("rehearsal" in each["why"] for each in gone)
    copied.bert("gc")
    assert set(copied.states().values()) == {"up to date"} and set(copied.versions()) == set(ASSETS)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "tiny", "--sample", "0"), "is not a share"),
        (("run", "tiny", "--sample", "1"), "is not a share"),
        (("run", "tiny", "--sample", "nan"), "is not a share"),
        (("run", "nix", "--sample", "0.1"), "there is no recipe nix"),
        (("run", "tiny/nix", "--sample", "0.1"), "has no asset 'nix'"),
        (("run", "tiny", "--sample", "0.1", "--dump", "20260101"), "don't go together"),
        (("run", "comparisons", "--sample", "0.1"), "comparisons train nothing"),
        (("status", "tiny@sample"), "was not rehearsed"),
        (("promote", "shelf@sample", "--reason", "x"), "is a rehearsal"),
    ],
)
def test_what_can_not_be(world: World, arguments: tuple[str, ...], told: str) -> None:
    output = world.bert(*arguments, code=1)
    assert told in output and "→" in output and "Traceback" not in output
