"""Fine-tuning of regression tasks: the loss by hand, and a tiny network that learns scored pairs by heart."""

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
from scipy.stats import pearsonr, spearmanr

from model import checkpoint
from model.layers.classifier import Classifier
from model.reporting.leaderboard import glue_file
from model.reporting.report_task import task_result
from model.task_files.task_kinds import SCHEMAS
from model.tasks import prepare_task
from model.tuning import heads
from model.tuning.examples import read_scored
from model.tuning.finetuning_loop import train
from pipeline import tokenizer
from pipeline.config import FinetuneConfig, PathFrom, Task, TaskDataConfig
from pipeline.profiles.tasks import finetuned
from tests.conftest import shared
from tests.model.test_report import make
from tests.model.test_tagging import ARCHITECTURE
from tests.model.tiny import write_vocabulary
from tests.model.trainings import StopAfter, content, logits, pretrained, run_folder, run_stage, run_undisturbed

WORDS = ("the", "a", "old", "river", "rock", "sea", "sand", "wind", "cloud", "bird", "tree", "##s")
pytestmark = pytest.mark.usefixtures("one_thread_of_the_cpu")
CONFIG = FinetuneConfig(
    task="near",
    seeds=2,
    learning_rate=5e-3,
    epochs=60,
    batch_size=8,
    max_length=16,
    dropout=0.0,
    warmup=0.1,
    pooling="cls",
    baselines=("tfidf", "untrained"),
)


def write_task(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """Task data whose three parts hold the same examples: what is learnt by heart is scored. Of test, no scores are known."""
    folder.mkdir()
    for part in ("train", "dev", "test"):
        write_rows(folder / f"{part}.parquet", [{**row, "score": None} for row in rows] if part == "test" else rows)
    counts = dict.fromkeys(("train", "dev", "test"), len(rows))
    task = {"name": "near", "title": "Near", "kind": "regression", "metric": "spearman", "labels": []}
    (folder / "task.json").write_text(json.dumps({**task, "metrics": ["spearman"], "counts": counts}))
    return folder


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["regression"]), path)
    return path


def made_up(count: int) -> list[dict[str, Any]]:
    """Pairs and single texts with scores from -1 to 5: one of them is -1, which of labels means that none is known."""
    draw = random.Random(5)
    rows = []
    for number in range(count):
        first, second = (" ".join(draw.sample(WORDS[:-1], draw.randint(1, 6))) for _ in range(2))
        score = -1.0 if number == 0 else round(draw.uniform(0, 5), 1)
        second_or_none = None if number % 5 == 0 else second
        rows.append({"example_id": f"train:{number}", "text_a": first, "text_b": second_or_none, "score": score})
    return rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Inputs of the stage."""
    base = tmp_path_factory.mktemp("inputs")
    vocabulary = [*tokenizer.SPECIAL_TOKENS, *WORDS]
    return {
        "wordpiece_vocab": write_vocabulary(base / "wordpiece_vocab", vocabulary),
        "pretrained": pretrained(base / "pretrained", len(vocabulary), ARCHITECTURE),
        "task_data": write_task(base / "task_data", made_up(30)),
    }


@pytest.fixture(scope="module")
def learnt(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    return run_undisturbed(made, tmp_path_factory.mktemp("learnt"), CONFIG)


def test_scored_pairs_are_learnt_by_heart(learnt: tuple[dict[str, Any], Path]) -> None:
    statistics, out = learnt
    scores = json.loads((out / "scores.json").read_text())
    assert scores["summary"]["dev"]["spearman"]["lowest"] > 0.95
    assert statistics["dev_spearman"] == scores["summary"]["dev"]["spearman"]["median"]
    assert set(scores["summary"]["dev"]) == {"pearson", "spearman"}
    assert (scores["labels"], scores["confusion"], scores["summary"]["test"]) == ([], None, None)
    assert set(scores["baselines"]) == {"majority", "untrained"}  # TF-IDF does not apply
    # a constant has no correlation
    mean = sum(row["score"] for row in made_up(30)) / 30
    assert scores["baselines"]["majority"] == {
        "label": pytest.approx(mean, rel=1e-5),
        "dev": {"pearson": None, "spearman": None},
        "test": None,
    }
    for run in scores["seeds"]:
        epochs = [epoch["dev"] for epoch in run["epochs"]]
        assert run["dev"] == max(epochs, key=lambda dev: (dev["spearman"], -dev["mean_squared_error"]))


def test_the_published_predictions_have_the_published_scores(learnt: tuple[dict[str, Any], Path]) -> None:
    _, out = learnt
    scores = json.loads((out / "scores.json").read_text())
    for run in scores["seeds"]:
        frame = pl.read_parquet(out / "predictions" / f"dev-seed-{run['seed']}.parquet")
        assert frame.schema == {"example_id": pl.String, "label": pl.Float64, "prediction": pl.Float32}
        assert frame["example_id"].to_list() == [row["example_id"] for row in made_up(30)]
        assert frame["label"].to_list() == [row["score"] for row in made_up(30)]
        label, given = frame["label"].to_numpy(), frame["prediction"].to_numpy().astype(np.float64)
        assert run["dev"]["spearman"] == pytest.approx(spearmanr(label, given).statistic, abs=1e-5)
        assert run["dev"]["pearson"] == pytest.approx(pearsonr(label, given).statistic, abs=1e-5)
        assert run["dev"]["mean_squared_error"] == pytest.approx(((label - given) ** 2).mean(), rel=1e-4)
        unknown = pl.read_parquet(out / "predictions" / f"test-seed-{run['seed']}.parquet")
        assert unknown["label"].null_count() == 30
        assert np.allclose(unknown["prediction"].to_numpy(), given, atol=1e-6)  # the same texts
    lines = glue_file("stsb", unknown["prediction"].to_list()).splitlines()
    assert len(lines) == 31


def test_the_published_weights_give_the_published_predictions(
    learnt: tuple[dict[str, Any], Path], made: dict[str, Path]
) -> None:
    """One row at a time."""
    _, out = learnt
    words = tokenizer.load(made["wordpiece_vocab"])
    model = Classifier(ARCHITECTURE, len(words.vocabulary), 1, "cls")
    model.load_state_dict(checkpoint.load_tensors(out / "model.safetensors"))
    seed = json.loads((out / "scores.json").read_text())["published_seed"]
    frame = pl.read_parquet(out / "predictions" / f"dev-seed-{seed}.parquet")
    part = read_scored(made["task_data"] / "dev.parquet", words, 16)
    for row, given in enumerate(frame["prediction"]):
        assert logits(model, part, np.array([row])).item() == pytest.approx(given, abs=1e-5)


def test_stopped_and_resumed_it_gives_the_same_bytes(
    made: dict[str, Path], learnt: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    run = run_folder(made, tmp_path, CONFIG)
    for _ in range(2):
        assert not train(run, StopAfter(26))
        assert list(run.glob("current/pretrained-0-42/step-*"))
    statistics, out = run_stage(made, tmp_path, CONFIG)
    assert statistics["resume_count"] == 2
    assert content(out) == content(learnt[1])


def test_sts_b_as_it_is_published(tmp_path: Path) -> None:
    """Read from GLUE's files, in Google's vocabulary; three dozen pairs are learnt by heart."""
    files = shared("data/finetune/glue/STS-B")
    vocabulary = shared("data/reference/vocab-bert-base-uncased.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "data").mkdir()
    prepare_task({}, TaskDataConfig(task="stsb", **{"from": PathFrom(path=str(files))}), tmp_path / "data")
    made = {
        "wordpiece_vocab": write_vocabulary(tmp_path / "words", vocabulary),
        "pretrained": pretrained(tmp_path / "pretrained", len(vocabulary), ARCHITECTURE),
    }
    words = tokenizer.load(made["wordpiece_vocab"])
    dev, test = (read_scored(tmp_path / "data" / f"{part}.parquet", words, 128) for part in ("dev", "test"))
    assert " ".join(words.tokens(dev.input_ids[1])) == (
        "[CLS] a young child is riding a horse . [SEP] a child is riding a horse . [SEP]"
    )
    assert (len(dev), dev.labels[1], bool(dev.known.all())) == (1500, 4.75, True)
    assert (len(test), bool(test.known.any())) == (1379, False)
    made["task_data"] = write_task(
        tmp_path / "task", pq.read_table(tmp_path / "data" / "train.parquet").to_pylist()[:36]
    )
    config = CONFIG.model_copy(update={"seeds": 1, "max_length": 32, "baselines": (), "epochs": 100})
    statistics, _ = run_stage(made, tmp_path, config)
    assert statistics["dev_spearman"] > 0.95


def test_the_report_and_the_checks_show_it(learnt: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    statistics, out = learnt
    task = task_result("near", {"finetuned_near": out}, {}).entry
    (row,) = task["rows"]
    assert (row["part"], row["examples"], row["tfidf"], row["majority"]) == ("dev", 30, None, None)
    assert row["ours"] > 95
    assert task["confusion"] is None
    made = make(tmp_path, {"near": out})
    assert f"| Spearman's ρ | {row['ours']:.1f} |" in (made / "report.md").read_text()
    assert f'<td class="ours">{row["ours"]:.1f}</td>' in (made / "report.html").read_text()
    measured = finetuned(out, CONFIG, statistics)
    assert measured["seeds_missing"] == measured["infinite_scores"] == 0
    assert measured["dev_gain"] == measured["dev_score"] == statistics["dev_spearman"]


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_loss_by_hand(made: dict[str, Path]) -> None:
    """Scores 2 and 5, predicted 1 and 5.5: (1² + 0.5²) / 2, and the derivative 2 (prediction − score) / 2."""
    logits = torch.tensor([[1.0], [5.5]], requires_grad=True)
    head = heads.HEADS["regression"]
    loss = head.loss(logits, torch.tensor([2.0, 5.0], dtype=torch.float64), torch.ones(2))
    assert (loss.item(), loss.dtype) == (0.625, torch.float32)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[-1.0], [0.5]]
    part = read_scored(made["task_data"] / "dev.parquet", tokenizer.load(made["wordpiece_vocab"]), 16)
    assert head.guesses(part, logits.detach(), {}).tolist() == [1.0, 5.5]


def test_constant_predictions_score_zero_and_unknown_scores_are_left_out(made: dict[str, Path], tmp_path: Path) -> None:
    rows = [
        {"example_id": str(number), "text_a": "sea", "text_b": "rock", "score": score}
        for number, score in enumerate([-1.0, None, 0.5, 5.0])
    ]
    part = read_scored(write_rows(tmp_path / "x.parquet", rows), tokenizer.load(made["wordpiece_vocab"]), 16)
    assert part.known.tolist() == [True, False, True, True]
    head = heads.HEADS["regression"]
    names = ("pearson", "spearman")
    assert head.scores(names, part, np.full(4, 2.5), []) == {"pearson": 0.0, "spearman": 0.0}
    # (−1, 0.5, 5) against (0, 2, 1): deviations (−2.5, −1, 3.5) and (−1, 1, 0), so r = 1.5 / √(19.5 · 2); ranks (1, 2, 3)
    # against (1, 3, 2): ρ = 1 − 6 · 2 / 24
    expected = {"pearson": pytest.approx(1.5 / 39**0.5, rel=1e-5), "spearman": 0.5}
    assert head.scores(names, part, np.array([0.0, 9.0, 2.0, 1.0]), []) == expected
    table, files = head.predictions(part, torch.tensor([[0.0], [9.0], [2.0], [1.0]]), [], {})
    assert not files
    assert table["label"].to_pylist() == [-1.0, None, 0.5, 5.0]


def test_own_single_texts_are_read(made: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\nthe rivers,2.5\n")
    (tmp_path / "dev.csv").write_text("text,label\nsea,-1\n")
    files = {part: {"path": str(tmp_path / f"{part}.csv")} for part in ("train", "dev")}
    define = Task.model_validate({"kind": "regression", "files": files})
    (tmp_path / "out").mkdir()
    prepare_task({}, TaskDataConfig(task="own", define=define), tmp_path / "out")
    words = tokenizer.load(made["wordpiece_vocab"])
    parts = [read_scored(tmp_path / "out" / f"{part}.parquet", words, 16) for part in ("train", "dev")]
    found = {
        " ".join(words.tokens(ids)): score
        for part in parts
        for ids, score in zip(part.input_ids, part.labels.tolist(), strict=True)
    }
    assert found == {"[CLS] the river ##s [SEP]": 2.5, "[CLS] sea [SEP]": -1.0}
