"""docs/own-text.md names every kind and ending, and the example is as it says."""

import re

from pipeline.formats.kinds import ENDINGS
from pipeline.starting.recipe_sizes import MOST_STEPS, PASSES, SIZES, TOKENS_PER_WEIGHT, VOCABULARY
from pipeline.starting.text_measure import SAMPLE_BYTES
from tests.conftest import ROOT

DOC = (ROOT / "docs" / "own-text.md").read_text(encoding="utf-8")


def test_it_shows_every_kind_and_names_every_ending() -> None:
    for kind, endings in ENDINGS.items():
        assert f"kind: {kind}\n" in DOC
        assert kind == "parquet" or all(f"`{ending}`" in DOC for ending in endings)


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
