"""A task that is only a test set, answered by the model of another task: GLUE's diagnostics by MNLI's, on a tiny network."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from model import checkpoint
from model.layers.classifier import Classifier
from model.predicting import predict
from model.reporting.leaderboard import glue_file
from model.tasks import prepare_task
from model.tuning.examples import read_examples
from pipeline import tokenizer
from pipeline.config import Architecture, FinetuneConfig, PathFrom, PredictConfig, TaskDataConfig
from pipeline.errors import DataError
from pipeline.profiles.tasks import predicted
from tests.model.tiny import write_vocabulary
from tests.model.trainings import logits, pretrained, run_undisturbed

ARCHITECTURE = Architecture(layers=1, hidden=32, heads=2, max_positions=64)
PAIRS = [
    ("the cat sat", "a cat", "entailment"),
    ("no dog ran", "a dog ran", "contradiction"),
    ("a cat", "paris", "neutral"),
]
CONFIG = PredictConfig(task="ax", model="mnli")
pytestmark = pytest.mark.usefixtures("one_thread_of_the_cpu")


def mnli(folder: Path) -> Path:
    """MNLI's official files with three pairs over and over."""
    folder.mkdir()
    columns = ["index", "promptID", "pairID", "genre", "sentence1", "sentence2", "gold_label"]
    for name in ("train", "dev_matched", "dev_mismatched"):
        rows = [f"{n}\t1\t1\tfiction\t{a}\t{b}\t{label}" for n, (a, b, label) in enumerate(PAIRS * 4)]
        (folder / f"{name}.tsv").write_text("\n".join(["\t".join(columns), *rows]) + "\n")
    return folder


def data_of(task: str, files: Path, out: Path) -> Path:
    out.mkdir()
    prepare_task({}, TaskDataConfig(task=task, **{"from": PathFrom(path=str(files))}), out)
    return out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model of MNLI, and the diagnostics' data in their official form."""
    base = tmp_path_factory.mktemp("inputs")
    vocabulary = [*tokenizer.SPECIAL_TOKENS, *("the", "cat", "sat", "a", "no", "dog", "ran", "paris")]
    words = write_vocabulary(base / "wordpiece_vocab", vocabulary)
    trained = {
        "wordpiece_vocab": words,
        "pretrained": pretrained(base / "pretrained", len(vocabulary), ARCHITECTURE),
        "task_data": data_of("mnli", mnli(base / "mnli"), base / "mnli_data"),
    }
    config = FinetuneConfig(
        task="mnli", seeds=2, learning_rate=1e-2, epochs=30, batch_size=4, max_length=32, dropout=0.0, pooling="mean"
    )
    _, finetuned = run_undisturbed(trained, base, config)
    (base / "ax").mkdir()
    rows = [f"{n}\t{a}\t{b}" for n, (a, b, _) in enumerate(PAIRS)]
    (base / "ax" / "diagnostic.tsv").write_text("\n".join(["index\tsentence1\tsentence2", *rows]) + "\n")
    return {"task_data": data_of("ax", base / "ax", base / "ax_data"), "finetuned": finetuned, "wordpiece_vocab": words}


def answered(made: dict[str, Path], out: Path) -> dict[str, Any]:
    out.mkdir()
    return predict(made, CONFIG, out)


def test_mnli_is_scored_on_both_dev_parts(made: dict[str, Path]) -> None:
    scores = json.loads((made["finetuned"] / "scores.json").read_text())
    assert scores["summary"]["dev"]["accuracy"]["median"] == 1
    assert scores["summary"]["dev_mismatched"]["accuracy"]["median"] == 1
    assert scores["summary"]["test_mismatched"] is None
    assert (made["finetuned"] / "predictions" / "dev_mismatched-seed-43.parquet").exists()


def test_the_published_model_answers(made: dict[str, Path], tmp_path: Path) -> None:
    statistics = answered(made, tmp_path / "out")
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    trained = json.loads((made["finetuned"] / "scores.json").read_text())
    assert (scores["model_of"], scores["published_seed"]) == ("mnli", trained["published_seed"])
    assert scores["summary"] == {"test": None}, "nobody knows its labels"
    frame = pl.read_parquet(tmp_path / "out" / "predictions" / f"test-seed-{scores['published_seed']}.parquet")
    assert frame["prediction"].to_list() == [label for _, _, label in PAIRS]
    assert frame["label"].null_count() == 3
    assert glue_file("ax", frame["prediction"].to_list()).splitlines()[1:] == [
        f"{n}\t{p[2]}" for n, p in enumerate(PAIRS)
    ]
    model = Classifier(ARCHITECTURE, 13, 3, "mean")
    model.load_state_dict(checkpoint.load_tensors(made["finetuned"] / "model.safetensors"))
    part = read_examples(made["task_data"] / "test.parquet", tokenizer.load(made["wordpiece_vocab"]), 32)
    expected = logits(model, part, np.arange(3)).softmax(1)
    assert np.allclose(frame.select(pl.col("^p_.*$")).to_numpy(), expected, atol=1e-5)
    assert statistics["test_examples"] == 3
    checked = predicted(tmp_path / "out", CONFIG, statistics)
    assert (checked["unanswered"], checked["distinct_predictions"]) == (0, 3)


def test_what_is_missing_is_said(made: dict[str, Path], tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    absent.mkdir()
    (absent / "not_run.json").write_text('{"task": "x", "title": "X", "why": "none", "wants": ["train: train.tsv"]}')
    for name, why, title in (
        ("task_data", "none", "X"),
        ("finetuned", "it needs the model of mnli: none", "AX (GLUE diagnostics)"),
    ):
        out = tmp_path / name
        statistics = answered({**made, name: absent}, out)
        said = json.loads((out / "not_run.json").read_text())
        assert (statistics["not_run"], said["why"], said["title"], said["task"]) == (why, why, title, "ax")


def test_a_model_of_other_labels_is_refused(made: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("config.json", "scores.json"):
        (other / name).write_text((made["finetuned"] / name).read_text().replace('"neutral"', '"unclear"'))
    with pytest.raises(DataError, match=r"task ax has labels .*neutral.*, the model of mnli .*unclear"):
        answered({**made, "finetuned": other}, tmp_path / "out")
