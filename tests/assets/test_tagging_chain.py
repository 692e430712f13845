"""A task of tagged words through the real command: from a column file to the report, to transformers and to `bert score`."""

import json
import random
from pathlib import Path

import polars as pl
import pytest

from model.scoring.column_files import read_tagged
from tests.assets.bertcli import World
from tests.model import trainings
from tests.tiny import NOUNS, PLACES, VERBS

RECIPE = """\
name: tagged
extends: tiny
finetuning:
  tasks: [people]
  define:
    places: null
    people:
      title: People and places
      kind: tagging
      files: {train: {path: ../text/people.txt}, dev: {path: ../text/people_dev.txt}}
  learning_rate: 5e-3
  epochs: 6
  pooling: cls
  baselines: null
"""


def sentence(random_: random.Random) -> list[tuple[str, str]]:
    """Words and tags in IOB1, as CoNLL-2003's own files have them; a number in some place, so that sentences differ. Whether
    a noun is a person can't always be told, so that the score is not 100."""
    person, place = random_.choice(NOUNS), random_.choice(PLACES)
    kind = "I-PER" if random_.random() < 0.9 else "I-ORG"
    first = [("The", "O"), ("old", kind), (person, kind)]
    return [*first, (random_.choice(VERBS), "O"), (str(random_.randint(1700, 1999)), "O"), (place, "I-LOC"), (".", "O")]


def write(path: Path, seed: int, count: int) -> None:
    random_ = random.Random(seed)
    rows = (("".join(f"{word} {tag}\n" for word, tag in sentence(random_))) for _ in range(count))
    path.write_text("\n".join(rows), encoding="utf-8")


@pytest.fixture(scope="module")
def world(made: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The made world with one more recipe, which has run: all that comes before fine-tuning is reused."""
    world = made.copy(tmp_path_factory.mktemp("tagging") / "world")
    write(world.folder / "text" / "people.txt", 1, 120)
    write(world.folder / "text" / "people_dev.txt", 2, 40)
    (world.folder / "recipes" / "tagged.yaml").write_text(RECIPE, encoding="utf-8")
    assert "tagged is up to date" in world.bert("run", "tagged")
    return world


def finetuned(world: World) -> Path:
    pointer = world.store.pointer("tagged", "finetuned_people")
    assert pointer is not None
    return world.store.content("finetuned", pointer.version)


def test_predictions_scored_by_bert_score_give_the_number_of_the_report(world: World, tmp_path: Path) -> None:
    report = world.store.pointer("tagged", "benchmark_report")
    assert report is not None
    content = json.loads((world.store.content("benchmark_report", report.version) / "report.json").read_text())
    (task,) = content["tasks"]
    (row,) = task["rows"]
    assert (task["metric"], row["part"], row["examples"]) == ("entity_f1", "dev", 40)
    table = pl.read_parquet(finetuned(world) / "predictions" / f"dev-seed-{task['published_seed']}.parquet")
    gold = world.folder / "text" / "people_dev.txt"
    assert table["word"].to_list() == [word for each in read_tagged(gold) for word in each.words]
    sentences = table.group_by("example_id", maintain_order=True).agg("word", "prediction").rows()
    predictions = tmp_path / "predictions.txt"
    predictions.write_text(
        "\n".join("".join(f"{word} {tag}\n" for word, tag in zip(*rest, strict=True)) for _, *rest in sentences)
    )
    scored = world.json("score", "conll2003", "--gold", str(gold), "--predictions", str(predictions))
    points = {score["metric"]: score["points"] for score in scored["scores"] if not score["part"]}
    assert points["entity_f1"] == pytest.approx(row["ours"], abs=0.005)
    assert 30 < row["ours"] < 100, "something was learned, and something is wrong: else all readings agree"


def test_the_export_computes_in_transformers_what_was_scored(world: World, tmp_path: Path) -> None:
    """Labels, and the logits of our own network with the published weights, on the dev file's own sentences."""
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    from model import checkpoint
    from model.layers.classifier import Classifier
    from pipeline.config import Architecture

    world.bert("export", "tagged/finetuned_people", str(tmp_path / "out"))
    theirs, told = AutoModelForTokenClassification.from_pretrained(
        tmp_path / "out", local_files_only=True, output_loading_info=True
    )
    assert not any(told.values())
    labels = json.loads((finetuned(world) / "config.json").read_text())["labels"]
    assert theirs.config.id2label == dict(enumerate(labels))
    assert labels == ["O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER"]
    texts = [each.words for each in read_tagged(world.folder / "text" / "people_dev.txt")]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    inputs = tokenizer(texts, is_split_into_words=True, padding=True, return_tensors="pt")
    mask = inputs["attention_mask"].bool()
    described = json.loads((finetuned(world) / "config.json").read_text())
    weights = checkpoint.load_tensors(finetuned(world) / "model.safetensors")
    ours = Classifier(
        Architecture.model_validate(described["architecture"]), len(tokenizer), len(labels), "tokens"
    ).eval()
    ours.load_state_dict(weights)
    with torch.inference_mode():
        wanted = ours(trainings.given(inputs, torch.arange(mask.numel())))
        given = theirs.eval()(**inputs).logits
    torch.testing.assert_close(given[mask], wanted.reshape(given.shape)[mask], atol=1e-5, rtol=0)

    # and the tag of a word's first piece is what was published as its prediction
    scores = json.loads((finetuned(world) / "scores.json").read_text())
    table = pl.read_parquet(finetuned(world) / "predictions" / f"dev-seed-{scores['published_seed']}.parquet")
    guesses = [
        labels[given[row, inputs.word_ids(row).index(number)].argmax()]
        for row, words in enumerate(texts)
        for number in range(len(words))
    ]
    assert guesses == table["prediction"].to_list()
