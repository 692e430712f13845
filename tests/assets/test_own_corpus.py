"""The worked example of docs/own-text.md: recipe `german`, as it is shipped, from its text to a trained model."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.store import Record
from tests.assets.bertcli import World
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples" / "german"


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world in which `bert run german/pretrained_64` has run, on the recipe as it is but for where its text lies."""
    world = World.make(tmp_path_factory.mktemp("german") / "world")
    recipe = (ROOT / "recipes" / "examples" / "german.yaml").read_text(encoding="utf-8")
    assert recipe.count("../../examples/german") == 2
    (world.folder / "recipes" / "examples").mkdir()
    file = world.folder / "recipes" / "examples" / "german.yaml"
    file.write_text(recipe.replace("../../examples/german", str(EXAMPLES)), encoding="utf-8")
    assert "german/pretrained_64 is up to date" in world.bert("run", "german/pretrained_64")
    return world


def record(world: World, asset: str) -> Record:
    found = world.store.pointer("german", asset)
    assert found is not None
    return found


def table(world: World, asset: str, pattern: str = "part-*.parquet") -> list[dict[str, Any]]:
    made = record(world, asset)
    folder = world.store.folder(made.stage, made.version)
    return [row for path in sorted(Path(folder).glob(pattern)) for row in pq.read_table(path).to_pylist()]


def test_every_document_of_the_example_is_there_with_its_columns(german: World) -> None:
    rows = {row["doc_id"]: row for row in table(german, "documents")}
    assert len(rows) == 47 + 12
    assert {(row["language"], row["licence"]) for row in rows.values()} == {("de", "CC0-1.0")}
    beacon = rows["articles:leuchtturm"]
    assert (beacon["title"], beacon["date"], beacon["source"]) == ("Leuchtturm", "2024-03-02", "articles")
    tales = {row["title"]: row for row in rows.values() if row["source"] == "tales"}
    assert set(tales) == {path.stem for path in (EXAMPLES / "tales").iterdir()}
    assert tales["der_faehrmann"]["text"] + "\n" == (EXAMPLES / "tales" / "der_faehrmann.txt").read_text(
        encoding="utf-8"
    )
    assert all(len(row["sentence_ends"]) >= 4 for row in rows.values())


def test_the_weight_is_the_passes_over_what_is_trained_on(german: World) -> None:
    repeats = Counter((row["source"], row["repeat"]) for row in table(german, "documents") if row["split"] == "train")
    assert set(repeats) == {("articles", 1.0), ("tales", 2.0)}


def test_held_out_documents_are_passed_over_once_and_never_trained_on(german: World) -> None:
    splits = {row["doc_id"]: row["split"] for row in table(german, "documents")}
    held_out = {doc_id for doc_id, split in splits.items() if split == "held_out"}
    assert held_out and any(doc_id.startswith("tales:") for doc_id in splits.keys() - held_out)
    train = table(german, "pretraining_shards_64", "train/*.parquet")
    tested = table(german, "pretraining_shards_64", "held_out/*.parquet")
    assert not held_out & {doc_id for row in train for doc_id in row["documents"]}
    assert {doc_id for row in tested for doc_id in row["documents"]} == held_out
    # A document begins an instance at most once for each of its sentences in each pass: A moves on by one at least.
    sentences = {row["doc_id"]: len(row["sentence_ends"]) for row in table(german, "documents")}
    begun = Counter(row["documents"][0] for row in tested)
    assert all(begun[doc_id] <= sentences[doc_id] for doc_id in held_out)


def test_tales_are_passed_over_twice_as_often(german: World) -> None:
    """Rows of train by source, per character of text."""
    characters: Counter[str] = Counter()
    for row in table(german, "documents"):
        if row["split"] == "train":
            characters[row["source"]] += len(row["text"])
    begun = Counter(
        row["documents"][0].split(":")[0] for row in table(german, "pretraining_shards_64", "train/*.parquet")
    )
    ratio = (begun["tales"] / characters["tales"]) / (begun["articles"] / characters["articles"])
    assert 1.7 < ratio < 2.5


def test_the_vocabulary_is_german_and_cased(german: World) -> None:
    made = record(german, "wordpiece_vocab")
    words = (german.store.folder(made.stage, made.version) / "vocab.txt").read_text(encoding="utf-8").split("\n")
    assert {"und", "der", "Die", "die", "für"} <= set(words)


def test_the_checks_of_every_asset_passed(german: World) -> None:
    for asset in ("articles_text", "tales_text", "documents", "wordpiece_vocab", "pretraining_shards_64"):
        results = record(german, asset).body["validation"]["results"]
        assert results and not [r["name"] for r in results if not r["passed"] and r["severity"] == "critical"]
    results = {r["name"]: r for r in record(german, "articles_text").body["validation"]["results"]}
    assert all(result["passed"] for result in results.values())
    assert results["licence_demanded"]["observed"] == "0"


def test_the_terminal_says_where_the_rows_went(german: World, tmp_path: Path) -> None:
    assert "\n    rows     59 read = 59 kept + 0 dropped\n" in german.bert("audit", "german/documents")
    world = german.copy(tmp_path / "copy")
    tales = world.folder / "tales"
    tales.mkdir()
    for path in (EXAMPLES / "tales").iterdir():
        (tales / path.name).write_bytes(path.read_bytes())
    (tales / "a\nb.txt").write_bytes((EXAMPLES / "tales" / "der_faehrmann.txt").read_bytes())
    (tales / "notes.md").write_text("# Notes", encoding="utf-8")
    (tales / "list.md").write_text("# List", encoding="utf-8")
    recipe = world.folder / "recipes" / "examples" / "german.yaml"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace(str(EXAMPLES / "tales"), str(tales)), encoding="utf-8")
    output = world.bert("run", "german/documents")
    assert "\n    15 read = 13 kept + 2 dropped: unknown_file_type 2\n" in output
    assert "\n    not passed: nearly_all_rows_used: 0.1333 (expected ≤ 0.1)\n" in output
    assert "\n    60 read = 59 kept + 1 dropped: duplicate_text 1\n" in output
    audit = world.bert("audit", "german/documents")
    assert "\n    file     a\\nb.txt  " in audit
    assert "\n    failed   nearly_all_rows_used: 0.1333 (expected ≤ 0.1)\n" in audit


def test_a_document_without_a_licence_is_not_published_where_licences_are_required(
    german: World, tmp_path: Path
) -> None:
    world = german.copy(tmp_path / "copy")
    file = world.folder / "articles.jsonl"
    text = (EXAMPLES / "articles.jsonl").read_text(encoding="utf-8")
    file.write_text(
        text.replace('"licence": "CC0-1.0", "date": "2024-03-05"', '"date": "2024-03-05"'), encoding="utf-8"
    )
    recipe = world.folder / "recipes" / "examples" / "german.yaml"
    recipe.write_text(
        recipe.read_text(encoding="utf-8").replace(str(EXAMPLES / "articles.jsonl"), str(file)), encoding="utf-8"
    )
    output = world.bert("run", "german/articles_text", code=1)
    assert "licence_demanded: 1 (no_licence_names articles:hefe) (expected = 0)" in output and "Traceback" not in output
