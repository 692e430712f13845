"""docs/own-text.md is true: its recipes load, its links lead somewhere, and it names every kind and every reason to drop."""

import re
from pathlib import Path

import pytest

from pipeline.kinds import ENDINGS
from pipeline.recipe import load_recipes
from pipeline.recipe_sizes import MOST_STEPS, PASSES, SIZES, TOKENS_PER_WEIGHT, VOCABULARY
from pipeline.text_measure import SAMPLE_BYTES
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


def test_what_a_new_recipe_is_sized_by_is_what_the_page_says() -> None:
    for words, tokens in VOCABULARY:
        assert f"{tokens:,}" in DOC and (not words or f"{words // 10**6} million" in DOC)
    assert f"({', '.join(size.name for size in SIZES)})" in DOC
    assert f"sees {TOKENS_PER_WEIGHT} tokens for each of its weights in {PASSES} passes" in DOC
    assert f"of more than {SAMPLE_BYTES >> 20} MiB a part" in DOC and f"at most its {MOST_STEPS:,} steps" in DOC
