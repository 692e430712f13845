"""Fine-tuning for real, in seconds: a tiny network on texts whose class a word gives away."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from model import checkpoint, finetuning
from model.bert import initialize
from model.layers.attention import Rows
from model.layers.classifier import Classifier, mean_pool
from model.processes.child import Stop
from model.task_files.task_kinds import SCHEMAS
from model.tuning import examples
from model.tuning.finetuning_loop import train
from model.tuning.finetuning_run import load_encoder
from pipeline import tokenizer
from pipeline.config import Architecture, FinetuneConfig
from pipeline.errors import DataError, TrainingError
from tests.model.tiny import write_vocabulary
from tests.model.trainings import (
    batch,
    content,
    kill_at_its_first_checkpoint,
    logits,
    pretrained,
    run_folder,
    run_stage,
    run_undisturbed,
)

WORDS = [
    *("the", "a", "of", "in", "old", "river", "rock", "sea", "sand", "wind", "cloud", "bird", "tree", "stone", "water"),
    *("fire", "is", "was", "near", "far"),
]
WET, DRY = ("river", "sea", "water"), ("rock", "sand", "stone")
ARCHITECTURE = Architecture(layers=1, hidden=32, heads=2, max_positions=32)
pytestmark = pytest.mark.usefixtures("one_thread_of_the_cpu")
CONFIG = FinetuneConfig(
    task="places",
    seeds=2,
    learning_rate=1e-2,
    epochs=2,
    batch_size=16,
    max_length=12,
    dropout=0.1,
    pooling="mean",
    baselines=("untrained", "tfidf"),
)


def write_task(folder: Path, test_labels: bool = True) -> None:
    random_ = random.Random(1)
    plain = [word for word in WORDS if word not in (*WET, *DRY)]
    for part, count in (("train", 400), ("dev", 30), ("test", 40)):
        rows = []
        for number in range(1, count + 1):
            label = int(random_.random() < 0.6)
            text = [random_.choice(plain) for _ in range(random_.randint(2, 14))]
            text.insert(random_.randrange(min(6, len(text))), random_.choice((DRY, WET)[label]))
            known = label if part != "test" or test_labels else None
            rows.append({"example_id": f"{part}:{number}", "text_a": " ".join(text), "text_b": None, "label": known})
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["classification"]), folder / f"{part}.parquet")
    counts = {"train": 400, "dev": 30, "test": 40}
    task = {"title": "Places", "kind": "classification", "metric": "accuracy", "labels": ["dry", "wet"]}
    (folder / "task.json").write_text(json.dumps({"name": "places", "counts": counts, **task}))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Inputs of the stage: a vocabulary, a network that is trained on nothing, and data."""
    base = tmp_path_factory.mktemp("inputs")
    vocabulary = [*tokenizer.SPECIAL_TOKENS, *WORDS]
    (base / "task_data").mkdir()
    write_task(base / "task_data")
    return {
        "wordpiece_vocab": write_vocabulary(base / "wordpiece_vocab", vocabulary),
        "pretrained": pretrained(base / "pretrained", len(vocabulary), ARCHITECTURE),
        "task_data": base / "task_data",
    }


@pytest.fixture(scope="module")
def undisturbed(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    return run_undisturbed(made, tmp_path_factory.mktemp("undisturbed"), CONFIG)


def test_it_learns_and_publishes_what_the_contract_says(undisturbed: tuple[dict[str, Any], Path]) -> None:
    statistics, out = undisturbed
    names = {f"predictions/{part}-seed-{seed}.parquet" for part in ("dev", "test") for seed in (42, 43)}
    assert set(content(out)) == {"model.safetensors", "config.json", "scores.json", "metrics.jsonl", *names}
    scores = json.loads((out / "scores.json").read_text())
    assert [run["seed"] for run in scores["seeds"]] == [42, 43]
    assert scores["summary"]["test"]["accuracy"]["median"] >= 0.9  # one word decides
    assert scores["sizes"] == {"train": 400, "dev": 30, "test": 40}
    assert statistics["test_accuracy"] == scores["summary"]["test"]["accuracy"]["median"]
    assert statistics["resume_count"] == 0
    assert set(scores["baselines"]) == {"untrained", "tfidf", "majority"}
    assert [run["seed"] for run in scores["baselines"]["untrained"]["seeds"]] == [42, 43]
    assert scores["baselines"]["tfidf"]["test"]["accuracy"] == 1.0
    for run in scores["seeds"]:
        epochs = run["epochs"]
        assert [epoch["epoch"] for epoch in epochs] == [1, 2]
        assert run["dev"] == max((e["dev"] for e in epochs), key=lambda dev: (dev["accuracy"], -dev["cross_entropy"]))
        assert epochs[1]["train_loss"] < epochs[0]["train_loss"]


def test_predictions_give_the_scores_and_the_published_weights_give_the_predictions(
    undisturbed: tuple[dict[str, Any], Path], made: dict[str, Path]
) -> None:
    _, out = undisturbed
    scores = json.loads((out / "scores.json").read_text())
    majority = pl.read_parquet(made["task_data"] / "train.parquet")["label"].mode().item()
    truth = pl.read_parquet(made["task_data"] / "test.parquet")["label"]
    assert scores["baselines"]["majority"]["test"]["accuracy"] == (truth == majority).mean()
    for run in scores["seeds"]:
        frame = pl.read_parquet(out / "predictions" / f"test-seed-{run['seed']}.parquet")
        assert frame.columns == ["example_id", "label", "prediction", "p_dry", "p_wet"]
        assert frame["example_id"].to_list() == [f"test:{n}" for n in range(1, 41)]
        assert (frame["label"] == frame["prediction"]).mean() == run["test"]["accuracy"]
        assert np.allclose(frame["p_dry"] + frame["p_wet"], 1, atol=1e-6)
    counts = np.array(scores["confusion"]["counts"])
    best = next(run for run in scores["seeds"] if run["seed"] == scores["published_seed"])
    assert counts.trace() / counts.sum() == best["test"]["accuracy"]

    described = json.loads((out / "config.json").read_text())
    model = Classifier(
        Architecture(**described["architecture"]),
        described["vocabulary_size"],
        len(described["labels"]),
        described["pooling"],
    )
    model.load_state_dict(checkpoint.load_tensors(out / "model.safetensors"))
    words = tokenizer.load(made["wordpiece_vocab"])
    part = examples.read_examples(made["task_data"] / "test.parquet", words, described["max_length"])
    probabilities = logits(model, part, np.arange(40)).softmax(1)
    frame = pl.read_parquet(out / "predictions" / f"test-seed-{best['seed']}.parquet")
    assert np.allclose(frame["p_wet"], probabilities[:, 1], atol=1e-5)


def test_killed_and_stopped_and_resumed_it_gives_the_same_bytes(
    made: dict[str, Path], undisturbed: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    run = run_folder(made, tmp_path, CONFIG, checkpoint_seconds=0.05)
    kill_at_its_first_checkpoint(run)
    assert not (run / "result").exists()

    class AfterTwoRuns(Stop):
        asked = property(lambda self: (run / "runs" / "pretrained-0-43").exists())  # type: ignore[assignment]

    assert not train(run, AfterTwoRuns())
    assert not (run / "result").exists()
    statistics, out = run_stage(made, tmp_path, CONFIG)
    assert statistics["resume_count"] == 2
    assert content(out) == content(undisturbed[1])
    assert not (run / "runs").exists()


def test_a_folder_of_another_job_is_refused(made: dict[str, Path], tmp_path: Path) -> None:
    run = run_folder(made, tmp_path, CONFIG)
    (run / "identity.json").write_text(json.dumps({"identity": {"seeds": 9}, "place": {}}))
    with pytest.raises(TrainingError, match="belongs to another job"):
        train(run, Stop())


def test_one_seed_without_baselines_and_without_test_labels(made: dict[str, Path], tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_task(data, test_labels=False)
    config = CONFIG.model_copy(update={"seeds": 1, "epochs": 1, "baselines": (), "pooling": "cls"})
    run = run_folder({**made, "task_data": data}, tmp_path, config)
    assert train(run, Stop())
    out = tmp_path / "out"
    out.mkdir()
    statistics = finetuning.finetune({**made, "task_data": data, "run": run}, config, out)  # only takes the result
    assert statistics["resume_count"] == 0
    scores = json.loads((out / "scores.json").read_text())
    assert scores["summary"]["test"] is scores["seeds"][0]["test"] is scores["baselines"]["majority"]["test"] is None
    assert scores["confusion"]["part"] == "dev"
    assert set(scores["baselines"]) == {"majority"}
    assert "test_accuracy" not in statistics
    frame = pl.read_parquet(out / "predictions" / "test-seed-42.parquet")
    assert frame["label"].null_count() == 40
    assert frame["prediction"].null_count() == 0


def test_a_task_without_data_is_handed_on(made: dict[str, Path], tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "not_run.json").write_text(
        '{"task": "cola", "title": "CoLA", "why": "none", "wants": ["train: train.tsv"]}'
    )
    statistics, out = run_stage({**made, "task_data": data}, tmp_path, CONFIG)
    assert content(out) == {"not_run.json": (data / "not_run.json").read_bytes()}
    assert statistics["not_run"] == "none"


def test_a_task_that_can_not_be_trained_says_why(made: dict[str, Path], tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    task = {"title": "Places", "kind": "pair_classification", "metric": "f1", "labels": [], "counts": {"test": 9}}
    (data / "task.json").write_text(json.dumps(task))
    statistics, out = run_stage({**made, "task_data": data}, tmp_path, CONFIG)
    why = "it has no training part: it tests the model of another task"
    said = {"task": "places", "title": "Places", "why": why, "wants": []}
    assert {name: json.loads(data) for name, data in content(out).items()} == {"not_run.json": said}
    assert (statistics["not_run"], statistics["wants"]) == (why, "")


def test_a_task_is_scored_by_its_own_metrics_too(made: dict[str, Path], tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_task(data)
    path = data / "task.json"
    row = {"system": "S", "split": "test", "metric": "f1", "points": 90.0, "source": "here"}
    more = {"metric": "f1", "metrics": ["f1", "matthews"], "published": [row]}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    short = CONFIG.model_copy(update={"seeds": 1, "epochs": 1, "baselines": ()})
    statistics, out = run_stage({**made, "task_data": data}, tmp_path, short)
    scores = json.loads((out / "scores.json").read_text())
    assert set(scores["summary"]["test"]) == {"accuracy", "macro_f1", "f1", "matthews"}
    found = pl.read_parquet(out / "predictions" / "test-seed-42.parquet").select("label", "prediction")
    wet = found.select((pl.col("label") == "wet").alias("label"), (pl.col("prediction") == "wet").alias("prediction"))
    both = wet.filter(pl.col("label") & pl.col("prediction")).height
    expected = 2 * both / (wet["label"].sum() + wet["prediction"].sum())
    assert statistics["test_f1"] == scores["summary"]["test"]["f1"]["median"] == pytest.approx(expected, rel=1e-5)
    assert scores["published"] == [row]


def test_a_vocabulary_of_another_model_is_named(made: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    described = {"architecture": ARCHITECTURE.plain(), "vocabulary_size": 30522, "sentence_task": "nsp"}
    (other / "config.json").write_text(json.dumps(described))
    with pytest.raises(DataError, match="knows 30522 tokens, the vocabulary has 25"):
        train(run_folder({**made, "pretrained": other}, tmp_path, CONFIG), Stop())


def test_texts_longer_than_the_model_are_named_with_their_task(made: dict[str, Path], tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"max_length": 64})
    with pytest.raises(DataError, match="max_length 64 is above the 32 positions of the model") as error:
        train(run_folder(made, tmp_path, config), Stop())
    assert "{places: …}" in error.value.todo


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_encoder_is_the_pretrained_one_and_the_head_follows_from_the_seed(made: dict[str, Path]) -> None:
    first, second = (Classifier(ARCHITECTURE, 25, 3, "cls") for _ in range(2))
    initialize(first, 1)
    initialize(second, 1)
    load_encoder(second, made["pretrained"])
    stored = checkpoint.load_tensors(made["pretrained"] / "model.safetensors")
    for name, value in second.encoder.state_dict().items():
        assert torch.equal(value, stored[f"encoder.{name}"])
    assert torch.equal(first.head.weight, second.head.weight)
    with pytest.raises(DataError, match=r"model\.safetensors does not fit its config\.json"):
        load_encoder(Classifier(ARCHITECTURE, 26, 3, "cls"), made["pretrained"])


def test_mean_pooling_is_of_each_row() -> None:
    states = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 5.0]])
    rows = Rows(torch.tensor([0, 2, 3], dtype=torch.int32), 2)
    assert mean_pool(states, torch.tensor([0, 0, 1]), rows).tolist() == [[2.0, 4.0], [5.0, 5.0]]


def test_pair_lengths_are_those_of_the_original_loop() -> None:
    def original(first: int, second: int, room: int) -> tuple[int, int]:
        while first + second > room:
            if first > second:
                first -= 1
            else:
                second -= 1
        return first, second

    for first in range(13):
        for second in range(13):
            for room in range(20):
                assert examples.pair_lengths(first, second, room) == original(first, second, room)


def test_pairs_and_long_texts_as_ids(made: dict[str, Path], tmp_path: Path) -> None:
    words = tokenizer.load(made["wordpiece_vocab"])
    rows = [
        {"example_id": "a", "text_a": "the river", "text_b": "a rock of sand", "label": 1},
        {"example_id": "b", "text_a": "the " * 20, "text_b": None, "label": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["classification"]), tmp_path / "x.parquet")
    part = examples.read_examples(tmp_path / "x.parquet", words, 8)
    assert words.tokens(part.input_ids[0]) == ["[CLS]", "the", "river", "[SEP]", "a", "rock", "of", "[SEP]"]
    assert words.tokens(part.input_ids[1]) == ["[CLS]", *["the"] * 6, "[SEP]"]
    assert part.texts == ("the river a rock of sand", "the " * 20)
    assert part.truncated == 2
    assert part.labels.tolist() == [1, examples.UNKNOWN]
    found = batch(part, np.array([0, 1]))
    assert found.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, *[0] * 8]
    assert found.read.tokens.tolist() == [0, 8]
    assert batch(part, np.array([1]), whole=True).read.tokens.tolist() == list(range(8))


@pytest.mark.parametrize("by_length", [False, True])
def test_batches_hold_every_row_once_follow_from_seed_and_epoch_and_waste_little(by_length: bool) -> None:
    lengths = np.random.default_rng(0).integers(5, 129, 1003)
    first = examples.epoch_batches(lengths, 32, seed=1, epoch=0, by_length=by_length)
    assert sorted(np.concatenate(first).tolist()) == list(range(1003))
    assert {len(batch) for batch in first} == {32, 1003 % 32}
    again = examples.epoch_batches(lengths, 32, seed=1, epoch=0, by_length=by_length)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    for seed, epoch in ((1, 1), (2, 0)):
        other = examples.epoch_batches(lengths, 32, seed, epoch, by_length)
        assert not np.array_equal(np.concatenate(first), np.concatenate(other))
    widths = [int(lengths[batch].max()) for batch in first]
    padded = sum(width * len(batch) for width, batch in zip(widths, first, strict=True))
    assert (lengths.sum() / padded > 0.9) == by_length  # in random order it is about 0.52
    # the batches are shuffled too: long and short ones are mixed
    assert abs(np.corrcoef(np.arange(len(widths)), widths)[0, 1]) < 0.5
