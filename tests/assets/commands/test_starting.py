"""`bert new`, from a folder of text to a recipe that runs."""

import shlex
from pathlib import Path

import pytest

from pipeline.recipe import load_recipes
from tests.assets.bertcli import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.make(tmp_path_factory.mktemp("starting") / "world")


def next_commands(output: str) -> list[list[str]]:
    """The commands behind `Next:`, without `bert`."""
    (line,) = [line for line in output.splitlines() if line.startswith("Next: ")]
    return [shlex.split(part)[1:] for part in line.removeprefix("Next: ").split(" · ")]


def test_a_folder_becomes_a_recipe_that_runs(world: World) -> None:
    """From the text of the tiny recipe: a dump that is no text, a table of labelled sentences, eight books."""
    folder = world.folder / "text"
    output = world.bert("new", "mine", "--text", str(folder), "--language", "en")
    assert f"takes   {folder / 'places.csv'}: 1 file as csv\n" in output
    assert f"takes   {folder / 'books'}: 8 files as text\n" in output
    assert "leaves  'tinywiki.xml.bz2': not read as text" in output
    dry_run, run = next_commands(output)
    assert (dry_run, run) == (["run", "mine", "--dry-run"], ["run", "mine"])

    loaded = load_recipes(world.folder / "recipes")
    assert loaded.errors == {}
    pretraining = loaded.get("mine").pretraining
    assert pretraining is not None
    (phase,) = pretraining.phases
    length = phase.sequence_length
    shown = world.bert(*dry_run)
    assert "places_text" in shown and f"pretrained_{length}" in shown and "Pretraining would take about" in shown

    world.edit(f"steps: {phase.steps}", "steps: 10", "mine")  # it would be some minutes
    target = f"mine/pretrained_{length}"
    assert f"{target} is up to date" in world.bert("run", target)


def test_json_says_the_same(world: World) -> None:
    told = world.json("new", "json_says", "--text", str(world.folder / "text" / "books"), "--language", "en")
    assert Path(told["file"]) == world.folder / "recipes" / "json_says.yaml" and Path(told["file"]).is_file()
    assert told["documents"] == 8 and told["share_read"] == 1 and told["left"] == []
    assert [(s["kind"], s["files"]) for s in told["sources"]] == [("text", 8)]


def test_refusals_are_one_error_with_a_next_step(world: World) -> None:
    text = str(world.folder / "text" / "books")
    for arguments, what in (
        (("tiny", "--text", text, "--language", "en"), "error: there is a recipe tiny already"),
        (("a.b", "--text", text, "--language", "en"), "error: 'a.b' can't be a recipe's name"),
        (("other", "--text", text, "--language", "english"), "error: 'english' is no code of a language"),
        (("other", "--text", f"{text}/nowhere", "--language", "en"), "nowhere does not exist"),
        (("other", "--text", text, "--language", "de"), "error: only 0% of the documents are in de"),
    ):
        output = world.bert("new", *arguments, code=1)
        assert what in output and "\n  → " in output and "Traceback" not in output and output.count("error:") == 1
    assert not (world.folder / "recipes" / "other.yaml").exists()
