"""A recipe that only fine-tunes a model made elsewhere, through the real command: from transformers' folder to transformers' folder."""

import hashlib
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from assets import graph
from assets.definitions import definitions
from pipeline.store import Record
from pipeline.tokenizer import SPECIAL_TOKENS
from tests import tiny
from tests.assets.bertcli import World

ASSETS = (
    *("imported_checkpoint", "wordpiece_vocab", "task_data_places", "finetuned_places"),
    *("task_data_cola", "finetuned_cola", "benchmark_report"),
)
RECIPE = """\
name: tuned
checkpoint: {from: ../model}
finetuning:
  tasks: [places, cola]
  define:
    places: {title: Places, files: {train: {path: ../text/places.csv}}, test_share: 0.2}
  seeds: 2
  learning_rate: 1e-3
  epochs: 2
  batch_size: 16
  max_length: 32
  baselines: [untrained]
"""
TABLE = """\
name: both
title: Before and after
columns:
  - {name: loss, title: loss, metric: held_out.mlm_loss}
  - {name: places, title: places, metric: tasks.places.test.accuracy}
rows:
  - {label: made elsewhere, recipes: [tuned]}
  - {label: never run, recipes: [tiny]}
"""


def save_model(folder: Path) -> None:
    """A model of masked words, without a pooler, and its tokenizer, as transformers saves them."""
    import transformers

    words = sorted({word.lower().strip(".,") for text in tiny.paragraphs(1, 40) for word in text.split()})
    vocabulary = [*SPECIAL_TOKENS, ".", ",", *words]
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=40,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    (folder / "words.txt").write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
    transformers.BertTokenizer(vocab=str(folder / "words.txt"), do_lower_case=True).save_pretrained(folder)
    (folder / "words.txt").unlink()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world in which `bert run tuned` has run once."""
    made = World.make(tmp_path_factory.mktemp("checkpoint") / "world")
    save_model(made.folder / "model")
    recipes = made.folder / "recipes"
    (recipes / "tuned.yaml").write_text(RECIPE, encoding="utf-8")
    (recipes / "comparisons").mkdir()
    (recipes / "comparisons" / "both.yaml").write_text(TABLE, encoding="utf-8")
    plan = made.bert("run", "tuned", "--dry-run")
    assert "No estimate: only pretraining is estimated, and none of it would run." in plan
    output = made.bert("run", "tuned")
    assert "tuned is up to date.  Next: bert report tuned · bert audit tuned/benchmark_report" in output
    return made


def record(world: World, asset: str) -> Record:
    found = world.store.pointer("tuned", asset)
    assert found is not None
    return found


def test_it_has_no_corpus_and_is_up_to_date(world: World) -> None:
    assert world.states("tuned") == dict.fromkeys(ASSETS, "up to date")
    assert "7 of 7 assets are up to date" in world.bert("run", "tuned")
    assert "7 of   7 assets made" in world.bert("status")
    assert record(world, "wordpiece_vocab").body["statistics"]["measured_on"] == "nothing"
    assert record(world, "imported_checkpoint").body["statistics"]["missing"] == ["pooler"]


def test_dagster_has_these_assets_and_a_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_SETTINGS", str(world.folder / "settings.yaml"))
    found = definitions("tuned")
    assert {key.path[1] for key in found.resolve_all_asset_keys()} == set(ASSETS)
    assert found.resolve_job_def("tuned").name == "tuned"
    nodes = graph.nodes(graph.load().get("tuned"))
    assert tuple(sorted(nodes)) == tuple(sorted(ASSETS))
    assert {name: node.name for name, node in nodes["finetuned_places"].inputs.items()} == {
        "task_data": "task_data_places",
        "pretrained": "imported_checkpoint",
        "wordpiece_vocab": "wordpiece_vocab",
    }


def test_the_audit_goes_down_to_the_files_from_outside(world: World) -> None:
    chain = {step["asset"]: step for step in world.json("audit", "tuned/finetuned_places")["chain"]}
    assert set(chain) == {"imported_checkpoint", "wordpiece_vocab", "task_data_places", "finetuned_places"}
    told = chain["imported_checkpoint"]
    assert told["statistics"]["external"] is True and told["statistics"]["root"] == {"folder": "model"}
    files = {file["path"]: file["sha256"] for file in told["asked"]["folder"]["files"]}
    there = (world.folder / "model").iterdir()
    assert files == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in there}
    text = world.bert("audit", "tuned/finetuned_places")
    assert 'root     external, {"folder": "model"}' in text and files["model.safetensors"] in text


def test_the_report_says_what_is_not_known(world: World) -> None:
    found = world.json("report", "tuned")
    assert not (found["pretraining"] or {}).get("held_out")
    ran, missing = found["tasks"]
    assert (ran["ran"], missing["ran"]) == (True, False)
    assert ran["rows"][0]["part"] == "test" and ran["rows"][0]["untrained"] is not None
    text = world.bert("report", "tuned")
    assert "unknown: the text that this checkpoint was trained on is not here" in text
    assert "masked words" not in text and "held-out" not in text


def test_a_comparison_shows_that_it_has_no_held_out_text(world: World) -> None:
    rows = {row["label"]: row["cells"] for row in world.json("compare", "both")["rows"]}
    ours, other = rows["made elsewhere"], rows["never run"]
    assert (ours["loss"]["state"], ours["places"]["state"]) == ("has none", "run")
    assert (other["loss"]["state"], other["places"]["state"]) == ("not run", "not run")
    world.bert("run", "comparisons/both")


def test_what_it_does_not_have_is_said_without_a_traceback(world: World) -> None:
    for command in (["fill-mask", "tuned", "the [MASK]"], ["export", "tuned/release", str(world.folder / "none")]):
        output = world.bert(*command, code=1)
        assert "recipe tuned has no asset release" in output and "imported_checkpoint" in output
        assert "Traceback" not in output


def predicted(folder: Path, texts: list[str]) -> list[int]:
    """Labels by transformers."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    auto: Any = AutoModelForSequenceClassification
    model, told = auto.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    assert not any(told.values())
    tokens = AutoTokenizer.from_pretrained(folder, local_files_only=True)(
        texts, truncation=True, max_length=32, padding=True, return_tensors="pt"
    )
    with torch.inference_mode():
        return list(model.eval()(**tokens).logits.argmax(1).tolist())


def test_transformers_predicts_the_same_with_the_export(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    output = world.bert("export", "tuned/finetuned_places", str(tmp_path / "out"))
    assert "copied as it is" not in output
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    data = world.store.content("task_data", record(world, "task_data_places").version)
    examples = pl.read_parquet(data / "test.parquet")
    file = tmp_path / "out" / "predictions" / f"test-seed-{scores['published_seed']}.parquet"
    ours = examples.join(pl.read_parquet(file), on="example_id", how="left", maintain_order="left")
    labels = [scores["labels"][label] for label in predicted(tmp_path / "out", ours["text_a"].to_list())]
    guesses = [str(guess) for guess in ours["prediction"].to_list()]
    assert len(labels) > 20 and guesses in (labels, [str(scores["labels"].index(label)) for label in labels])
    world.bert("verify", str(tmp_path / "out"))


def test_where_the_checkpoint_lies_does_not_matter_but_what_it_holds_does(world: World, tmp_path: Path) -> None:
    moved = world.copy(tmp_path / "world")
    (moved.folder / "model").rename(moved.folder / "elsewhere")
    moved.edit("../model", "../elsewhere", recipe="tuned")
    assert moved.states("tuned")["benchmark_report"] == "up to date"
    (moved.folder / "elsewhere" / "note.txt").write_text("one more file")
    assert moved.states("tuned")["imported_checkpoint"] == "will run"
    moved.bert("run", "tuned")
    assert moved.versions("tuned")["imported_checkpoint"] == record(world, "imported_checkpoint").version
    (moved.folder / "elsewhere" / "vocab.txt").unlink(missing_ok=True)
    (moved.folder / "elsewhere" / "tokenizer.json").unlink()
    output = moved.bert("run", "tuned", code=1)
    assert "tuned.yaml:2: checkpoint.from: has neither vocab.txt nor tokenizer.json" in output
    assert "Traceback" not in output
