"""The README is true: its commands run, its recipe trains, its folders and files exist."""

import re
import shlex
from pathlib import Path

import pytest

from tests.assets.bertcli import World
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.S)
    for line in block.splitlines()
]
BERT = [line for line in SHELL if line.startswith("bert ")]
MAKE = [
    target for block in re.findall(r"```sh\n(.*?)```", README, re.S) for target in re.findall(r"make ([a-z]+)", block)
]
ON_DEMO = [line for line in BERT if " my_model" not in line]


def test_there_is_something_to_test() -> None:
    assert len(ON_DEMO) >= 7
    assert {"demo", "ui", "test", "lint", "bench"} <= set(MAKE)


@pytest.mark.parametrize("target", sorted(set(MAKE)))
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize("path", re.findall(r"\]\(([^)#:]+)\)", README))
def test_every_link_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("line", ON_DEMO)
def test_every_command_on_the_demo_runs(line: str, made: World, tmp_path: Path) -> None:
    """On recipe `tiny`, which has the demo's shape and takes seconds."""
    arguments = [word.replace("demo", "tiny") for word in shlex.split(line)[1:]]
    arguments = [str(tmp_path / word) if word == "my-model" else word for word in arguments]
    made.bert(*arguments)


def test_the_exported_model_loads_as_the_readme_says(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.bert("export", "tiny/release", str(tmp_path / "my-model"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    found: dict[str, object] = {}
    exec(code, found)
    assert found["tokenizer"]("the river")["input_ids"]  # type: ignore[operator]


def test_the_recipe_of_the_readme_trains_on_ones_own_text(tmp_path: Path) -> None:
    world = World.make(tmp_path / "world")
    (recipe,) = re.findall(r"```yaml\n# recipes/my_model.yaml\n(.*?)```", README, re.S)
    assert (
        "extends: demo" in recipe and "held_out: 0.1" in recipe and "/data/tales" in recipe and "size: 4000" in recipe
    )
    recipe = (
        recipe.replace("demo", "tiny")
        .replace("/data/tales", str(world.folder / "text" / "books"))
        .replace("4000", "260")
        .replace("held_out: 0.1", "held_out: 0.5")  # of eight books, a tenth by hash is none
    )
    (world.folder / "recipes" / "my_model.yaml").write_text(recipe, encoding="utf-8")
    commands = [shlex.split(line)[1:] for line in BERT if line.startswith("bert run my_model")]
    assert commands == [["run", "my_model", "--dry-run"], ["run", "my_model"], ["run", "my_model", "--sample", "0.001"]]
    output = world.bert(*commands[0])
    assert "tales_text" in output and "wikipedia" not in output
    assert "my_model is up to date" in world.bert(*commands[1])
