"""docs/own-text.md is true: its recipes load, its links lead somewhere, and it names every kind and every reason to drop."""

import re
from pathlib import Path

import pytest

from pipeline.kinds import ENDINGS
from pipeline.recipe import load_recipes
from tests.conftest import ROOT

DOC = (ROOT / "docs" / "own-text.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", DOC, re.S)
REST = "pretraining: {warmup_steps: 1, phases: [{sequence_length: 64, steps: 9}]}\n"
"""What else a recipe needs."""


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_piece_of_yaml_is_part_of_a_recipe(number: int, tmp_path: Path) -> None:
    name = f"piece{number}"
    text = BLOCKS[number]
    if "sources:" not in text:
        text = text.replace("corpus:\n", "corpus:\n  sources: {a: {kind: jsonl, from: {path: a}}}\n", 1)
    (tmp_path / "withdrawn.csv").write_text("doc_id,reason\n", encoding="utf-8")
    (tmp_path / f"{name}.yaml").write_text(f"name: {name}\n{text}{REST}", encoding="utf-8")
    loaded = load_recipes(tmp_path)
    assert loaded.errors == {} and list(loaded.recipes) == [name]


def test_it_shows_every_kind_and_names_every_ending() -> None:
    for kind, endings in ENDINGS.items():
        assert f"kind: {kind}\n" in DOC
        assert kind == "parquet" or all(f"`{ending}`" in DOC for ending in endings)


@pytest.mark.parametrize("path", re.findall(r"\]\(([^)#:]+)\)", DOC))
def test_every_link_leads_somewhere(path: str) -> None:
    assert (ROOT / "docs" / path).exists()


def test_the_example_is_as_large_as_the_page_says() -> None:
    example = ROOT / "examples" / "german"
    articles, tales = re.findall(r"(\d+) articles .*?(\d+) tales", DOC, re.S)[0]
    assert len((example / "articles.jsonl").read_text(encoding="utf-8").splitlines()) == int(articles)
    assert len(list((example / "tales").glob("*.txt"))) == int(tales)
