"""docs/own-text.md names every kind and ending, and the example is as it says."""

import re

from pipeline.kinds import ENDINGS
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
