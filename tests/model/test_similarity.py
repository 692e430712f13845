"""Fine-tuning of sentence vectors: a tiny network learns which texts mean the same, and what it said before is a baseline."""

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
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr, spearmanr

from model import checkpoint
from model.bert import Bert
from model.imported import import_checkpoint
from model.layers.classifier import Classifier
from model.processes.child import Stop
from model.reporting.report_task import task_result
from model.task_files.task_kinds import SCHEMAS
from model.tasks import prepare_task
from model.tuning import heads
from model.tuning.examples import Examples
from model.tuning.finetuning_loop import train
from model.tuning.sentence_vectors import NONE, contrastive_loss, read_sentence_pairs, texts_of
from pipeline import tokenizer
from pipeline.config import Architecture, FinetuneConfig, ImportedConfig, PathFrom, TaskDataConfig
from pipeline.profiles.tasks import finetuned
from tests.conftest import shared
from tests.model.layers.test_weights import public_model
from tests.model.test_report import make
from tests.model.tiny import write_vocabulary
from tests.model.trainings import StopAfter, batch, content, pretrained, run_folder, run_stage, run_undisturbed

WORDS = ("the", "a", "old", "river", "rock", "sea", "sand", "wind", "cloud", "bird", "tree", "fire")
OTHERS = tuple(f"x{word}" for word in WORDS)
"""the same words in another language"""
ARCHITECTURE = Architecture(layers=1, hidden=32, heads=2, max_positions=32)
pytestmark = pytest.mark.usefixtures("one_thread_of_the_cpu")
CONFIG = FinetuneConfig(
    task="alike",
    seeds=2,
    learning_rate=5e-3,
    epochs=12,
    batch_size=8,
    max_length=16,
    dropout=0.0,
    baselines=("tfidf",),
)
PAIRS = 32


def write_task(folder: Path) -> Path:
    """Train: texts with their translations, without scores, every fourth with another's beside. Dev and test: these pairs, and as
    many that do not belong together."""
    folder.mkdir()
    draw = random.Random(2)
    places = [draw.sample(range(len(WORDS)), 4) for _ in range(PAIRS)]
    texts = [(" ".join(WORDS[p] for p in each), " ".join(OTHERS[p] for p in each)) for each in places]
    rows: list[dict[str, Any]] = [
        {"example_id": f"train:{n}", "text_a": a, "text_b": b, "negative": texts[n - 1][1] if n % 4 == 0 else None}
        for n, (a, b) in enumerate(texts)
    ]
    scored = [{**row, "negative": None, "score": 5.0} for row in rows]
    scored += [{**row, "text_b": texts[n - 5][1], "score": 0.0} for n, row in enumerate(scored)]
    for part, some in (("train", rows), ("dev", scored), ("test", [{**row, "score": None} for row in scored])):
        write_rows(folder / f"{part}.parquet", some)
    task = {"name": "alike", "title": "Alike", "kind": "sentence_similarity", "metric": "spearman", "labels": []}
    counts = {"train": PAIRS, "dev": 2 * PAIRS, "test": 2 * PAIRS}
    (folder / "task.json").write_text(json.dumps({**task, "metrics": ["spearman", "pearson"], "counts": counts}))
    return folder


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["sentence_similarity"]), path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Inputs of the stage."""
    base = tmp_path_factory.mktemp("inputs")
    vocabulary = [*tokenizer.SPECIAL_TOKENS, *WORDS, *OTHERS]
    return {
        "wordpiece_vocab": write_vocabulary(base / "wordpiece_vocab", vocabulary),
        "pretrained": pretrained(base / "pretrained", len(vocabulary), ARCHITECTURE),
        "task_data": write_task(base / "task_data"),
    }


@pytest.fixture(scope="module")
def learnt(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    return run_undisturbed(made, tmp_path_factory.mktemp("learnt"), CONFIG)


def means(weights: dict[str, torch.Tensor], examples: Examples) -> list[np.ndarray]:
    """The mean of the hidden states of every row, one row at a time."""
    encoder = Bert(ARCHITECTURE, len(tokenizer.SPECIAL_TOKENS) + 2 * len(WORDS)).eval()
    prefix = "encoder."
    encoder.load_state_dict({n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)})
    found = []
    with torch.inference_mode():
        for row in examples.input_ids:
            ids = torch.from_numpy(row.astype(np.int64))[None]
            found.append(encoder(ids, torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool))[0].mean(0).numpy())
    return found


def cosines_of(weights: dict[str, torch.Tensor], examples: Examples) -> list[float]:
    """Of two rows each."""
    vectors = means(weights, examples)
    return [1 - cosine(a, b) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]


def dev_of(made: dict[str, Path]) -> Examples:
    return read_sentence_pairs(made["task_data"] / "dev.parquet", tokenizer.load(made["wordpiece_vocab"]), 16)


def test_translations_are_learnt_by_heart(learnt: tuple[dict[str, Any], Path], made: dict[str, Path]) -> None:
    statistics, out = learnt
    scores = json.loads((out / "scores.json").read_text())
    # of a perfect order, with half of the scores equal, Spearman's ρ is √(3 / 4)
    assert scores["summary"]["dev"]["spearman"]["lowest"] > 0.86
    assert set(scores["summary"]["dev"]) == {"pearson", "spearman"}
    assert (scores["labels"], scores["confusion"], scores["summary"]["test"]) == ([], None, None)
    assert scores["counts"]["train"] == {"texts": 2 * PAIRS + 8, "cut_texts": 0, "hard_negatives": 8}
    assert scores["hyperparameters"]["pooling"] == "mean"
    for run in scores["seeds"]:
        losses = [epoch["train_loss"] for epoch in run["epochs"]]
        assert losses[-1] < 0.2 < losses[0]
        epochs = [epoch["dev"] for epoch in run["epochs"]]
        assert run["dev"] == max(epochs, key=lambda dev: dev["spearman"])  # the first of equals
        assert run["best_epoch"] == epochs.index(run["dev"]) + 1
    assert statistics["dev_spearman"] == scores["summary"]["dev"]["spearman"]["median"]
    assert not any("head" in name for name in checkpoint.load_tensors(out / "model.safetensors"))


def test_what_the_network_said_before_is_a_baseline(learnt: tuple[dict[str, Any], Path], made: dict[str, Path]) -> None:
    statistics, out = learnt
    baselines = json.loads((out / "scores.json").read_text())["baselines"]
    assert set(baselines) == {"untouched", "majority"}  # TF-IDF does not apply
    dev = dev_of(made)
    given = cosines_of(checkpoint.load_tensors(made["pretrained"] / "model.safetensors"), dev)
    assert baselines["untouched"] == {
        "dev": {
            "pearson": pytest.approx(pearsonr(dev.labels, given).statistic, abs=1e-5),
            "spearman": pytest.approx(spearmanr(dev.labels, given).statistic, abs=1e-3),
        },
        "test": None,
    }
    assert baselines["untouched"]["dev"]["spearman"] < 0.6
    assert statistics["dev_spearman_untouched"] == baselines["untouched"]["dev"]["spearman"]
    assert baselines["majority"] == {"label": 0.0, "dev": {"pearson": None, "spearman": None}, "test": None}


def test_the_published_weights_give_the_published_predictions(
    learnt: tuple[dict[str, Any], Path], made: dict[str, Path]
) -> None:
    _, out = learnt
    scores, dev = json.loads((out / "scores.json").read_text()), dev_of(made)
    for run in scores["seeds"]:
        frame = pl.read_parquet(out / "predictions" / f"dev-seed-{run['seed']}.parquet")
        assert frame.schema == {"example_id": pl.String, "label": pl.Float64, "prediction": pl.Float32}
        assert frame["label"].to_list() == [5.0] * PAIRS + [0.0] * PAIRS
        assert run["dev"]["spearman"] == pytest.approx(spearmanr(dev.labels, frame["prediction"]).statistic, abs=1e-5)
        if run["seed"] == scores["published_seed"]:
            given = cosines_of(checkpoint.load_tensors(out / "model.safetensors"), dev)
            assert np.allclose(frame["prediction"].to_numpy(), given, atol=1e-5)
        unknown = pl.read_parquet(out / "predictions" / f"test-seed-{run['seed']}.parquet")
        assert unknown["label"].null_count() == 2 * PAIRS
        assert np.allclose(unknown["prediction"].to_numpy(), frame["prediction"].to_numpy(), atol=1e-6)


def test_stopped_and_resumed_it_gives_the_same_bytes(
    made: dict[str, Path], learnt: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    run = run_folder(made, tmp_path, CONFIG)
    for _ in range(2):
        assert not train(run, StopAfter(21))
        assert list(run.glob("current/pretrained-0-42/step-*"))

    class BeforeTheBaseline(Stop):
        asked = property(lambda self: (run / "runs" / "pretrained-0-43").exists())  # type: ignore[assignment]

    assert not train(run, BeforeTheBaseline())
    assert not (run / "result").exists()
    statistics, out = run_stage(made, tmp_path, CONFIG)
    assert statistics["resume_count"] == 3
    assert content(out) == content(learnt[1])


def test_the_report_and_the_checks_show_it(learnt: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    statistics, out = learnt
    task = task_result("alike", {"finetuned_alike": out}, {}).entry
    (row,) = task["rows"]
    assert (row["part"], row["examples"], row["majority"]) == ("dev", 2 * PAIRS, None)
    assert task["constant"] == "a constant has no correlation"
    shown = (make(tmp_path, {"alike": out}) / "report.md").read_text()
    assert f"| Spearman's ρ | {row['ours']:.1f} |" in shown
    before = 100 * statistics["dev_spearman_untouched"]
    assert f"The checkpoint before any step of fine-tuning gets {before:.1f}." in shown
    measured = finetuned(out, CONFIG, statistics)
    assert measured["seeds_missing"] == measured["infinite_scores"] == 0
    assert measured["dev_gain"] == measured["dev_score"] == statistics["dev_spearman"]


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_learns_from_the_vectors_of_its_texts(made: dict[str, Path]) -> None:
    """The vectors of a batch by rows of their own, also with padding; texts by their numbers."""
    words = tokenizer.load(made["wordpiece_vocab"])
    part = read_sentence_pairs(made["task_data"] / "train.parquet", words, 16)
    numbers = np.array([8, 3, 8, 2])
    texts = texts_of(part, numbers)
    assert texts.tolist() == [[0, 1, 2], [3, 4, NONE], [0, 1, 2], [5, 6, NONE]]
    assert texts_of(part, numbers[[1, 3]]).tolist() == [[0, 1], [2, 3]]
    model = Classifier(ARCHITECTURE, len(words.vocabulary), 0, "mean").eval()
    assert model.head is None
    weights = checkpoint.load_tensors(made["pretrained"] / "model.safetensors")
    model.load_state_dict({name: weight for name, weight in weights.items() if name.startswith("encoder.")})
    by_row = torch.from_numpy(np.stack(means(weights, part)))
    starts = part.choices
    assert starts is not None
    rows = [[starts[n], starts[n] + 1, starts[n + 1] - 1] for n in numbers]
    expected = contrastive_loss(by_row[torch.tensor(rows)], torch.from_numpy(texts)).item()
    head = heads.HEADS["sentence_similarity"]
    assert np.array_equal(head.targets(part, numbers), texts)
    for padded in (False, True):
        given = batch(part, numbers, model.whole, padded)
        with torch.inference_mode():
            vectors = model(given)
        assert vectors.shape == (4, 3, 32)
        loss = head.loss(vectors, torch.from_numpy(texts), given.read.rows.starts.diff())
        assert loss.item() == pytest.approx(expected, abs=1e-4)
        assert head.answers(vectors)[1].item() == pytest.approx(1 - cosine(*by_row[rows[1][:2]]), abs=1e-5)


@pytest.mark.slow
def test_the_untouched_public_model_has_its_published_score(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 on STS-B dev: 86.72, from GLUE's files to scores.json. Two steps of training are enough here."""
    files = shared("data/finetune/glue/STS-B")
    (tmp_path / "data").mkdir()
    prepare_task({}, TaskDataConfig(task="stsb_vectors", **{"from": PathFrom(path=str(files))}), tmp_path / "data")
    (tmp_path / "imported").mkdir()
    folder = public_model(tmp_path / "model")
    import_checkpoint({}, ImportedConfig(folder=PathFrom(path=str(folder)), longest=128), tmp_path / "imported")
    data = tmp_path / "data"
    few = pq.read_table(data / "train.parquet")[:64]
    pq.write_table(few, data / "train.parquet")
    none = pq.read_table(data / "test.parquet")[:0]
    pq.write_table(none, data / "test.parquet")
    made = {"task_data": data, "pretrained": tmp_path / "imported", "wordpiece_vocab": folder}
    config = FinetuneConfig(task="stsb_vectors", seeds=1, epochs=1)
    statistics, out = run_stage(made, tmp_path / "job", config)
    assert round(100 * statistics["dev_spearman_untouched"], 2) == 86.72
    assert len(pl.read_parquet(out / "predictions" / "dev-seed-42.parquet")) == 1500
