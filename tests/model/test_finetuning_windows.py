"""Fine-tuning on long texts: what stands late is learnt in windows, in bounded memory, and resumed to the same bytes."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from model import checkpoint
from model.layers.classifier import Classifier
from model.processes.child import Stop
from model.task_files.task_kinds import SCHEMAS
from model.tuning.answers import SCORING_BATCH
from model.tuning.examples import read_examples, read_scored
from model.tuning.finetuning_loop import train
from pipeline import tokenizer
from pipeline.config import Architecture, FinetuneConfig
from tests.model.tiny import write_vocabulary
from tests.model.trainings import StopAfter, batch, content, logits, pretrained, run_folder, run_stage, run_undisturbed

PLAIN = ("the", "a", "of", "in", "old", "wind", "cloud", "bird", "tree", "fire", "is", "was", "near", "far")
WET, DRY = ("river", "sea", "water"), ("rock", "sand", "stone")
ARCHITECTURE = Architecture(layers=1, hidden=32, heads=2, max_positions=16)
pytestmark = pytest.mark.usefixtures("one_thread_of_the_cpu")
CONFIG = FinetuneConfig(
    task="places",
    seeds=1,
    learning_rate=1e-2,
    epochs=4,
    batch_size=8,
    max_length=12,
    dropout=0.0,
    pooling="cls",
    long_texts="windows",
    max_windows=4,
)
COUNTS = {"train": 320, "dev": 100, "test": 40}


def write_task(folder: Path, kind: str = "classification") -> Path:
    """Texts of 26 to 34 words, of which three of the last ten give the class away. A window of 12 tokens holds 10 words."""
    folder.mkdir()
    draw = random.Random(1)
    for part, count in COUNTS.items():
        rows = []
        for number in range(count):
            label = number % 2
            words = [draw.choice(PLAIN) for _ in range(draw.randint(26, 34))]
            for place in draw.sample(range(1, 11), 3):
                words[-place] = draw.choice((DRY, WET)[label])
            row = {"example_id": f"{part}:{number}", "text_a": " ".join(words), "text_b": None}
            rows.append({**row, "score": 4.0 * label} if kind == "regression" else {**row, "label": label})
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS[kind]), folder / f"{part}.parquet")  # type: ignore[index]
    more = {"metric": "spearman", "labels": []} if kind == "regression" else {"metric": "accuracy"}
    task = {"name": "places", "title": "Places", "kind": kind, "labels": ["dry", "wet"], "counts": COUNTS, **more}
    (folder / "task.json").write_text(json.dumps(task))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Inputs of the stage."""
    base = tmp_path_factory.mktemp("inputs")
    vocabulary = [*tokenizer.SPECIAL_TOKENS, *PLAIN, *WET, *DRY]
    return {
        "wordpiece_vocab": write_vocabulary(base / "wordpiece_vocab", vocabulary),
        "pretrained": pretrained(base / "pretrained", len(vocabulary), ARCHITECTURE),
        "task_data": write_task(base / "task_data"),
    }


def test_a_task_without_a_test_part(made: dict[str, Path], tmp_path: Path) -> None:
    data = write_task(tmp_path / "data")
    pq.write_table(pa.Table.from_pylist([], schema=SCHEMAS["classification"]), data / "test.parquet")
    short = CONFIG.model_copy(update={"seeds": 1, "epochs": 1})
    _, out = run_undisturbed({**made, "task_data": data}, tmp_path, short)
    assert json.loads((out / "scores.json").read_text())["summary"]["test"] is None
    assert pq.read_metadata(out / "predictions" / "test-seed-42.parquet").num_rows == 0


@contextmanager
def rows_computed() -> Iterator[dict[bool, list[int]]]:
    """How many rows a classifier gets at once: in training (True), in scoring (False)."""
    seen: dict[bool, list[int]] = {True: [], False: []}

    def note(module: nn.Module, given: tuple[Any, ...]) -> None:
        if isinstance(module, Classifier):
            seen[module.training].append(len(given[0].rows.starts) - 1)

    handle = nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield seen
    finally:
        handle.remove()


@pytest.fixture(scope="module")
def learnt(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    return run_undisturbed(made, tmp_path_factory.mktemp("learnt"), CONFIG)


def test_what_stands_late_is_learnt_in_windows(learnt: tuple[dict[str, Any], Path]) -> None:
    statistics, out = learnt
    scores = json.loads((out / "scores.json").read_text())
    assert scores["summary"]["test"]["accuracy"]["median"] >= 0.95
    assert (scores["sizes"], scores["truncated"]) == (COUNTS, dict.fromkeys(COUNTS, 0))
    # ⌈(words − 10) / 8⌉ + 1 windows: 3 of 26 words, 4 of 27 to 34
    counts = {part: scores["counts"][part]["windows"] for part in COUNTS}
    assert all(3.5 * COUNTS[part] < counts[part] <= 4 * COUNTS[part] for part in COUNTS)
    assert scores["counts"]["dev"]["windowed_texts"] == 100
    assert statistics["train_windows"] == counts["train"]
    assert json.loads((out / "config.json").read_text())["long_texts"] == "windows"
    assert scores["hyperparameters"]["long_texts"] == "windows"


def test_truncated_it_is_at_chance(made: dict[str, Path], tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"long_texts": "truncate", "epochs": 3})
    _, out = run_stage(made, tmp_path, config)
    scores = json.loads((out / "scores.json").read_text())
    # 140 guesses of dev and test, half of them right: a deviation of 4 points
    assert 0.34 < scores["seeds"][0]["test"]["accuracy"] < 0.66
    assert scores["truncated"] == COUNTS and "counts" not in scores
    assert "long_texts" not in json.loads((out / "config.json").read_text())


def test_the_published_predictions_are_those_of_the_mean_of_all_windows(
    learnt: tuple[dict[str, Any], Path], made: dict[str, Path]
) -> None:
    """Window by window, with the published weights."""
    _, out = learnt
    words = tokenizer.load(made["wordpiece_vocab"])
    model = Classifier(ARCHITECTURE, len(words.vocabulary), 2, "cls")
    model.load_state_dict(checkpoint.load_tensors(out / "model.safetensors"))
    part = read_examples(made["task_data"] / "dev.parquet", words, 12, "windows")
    assert part.windows is not None
    frame = pl.read_parquet(out / "predictions" / "dev-seed-42.parquet")
    assert frame["example_id"].to_list() == [f"dev:{number}" for number in range(100)]
    alone = part.apart
    for number in range(0, 100, 9):
        rows = np.arange(part.windows[number], part.windows[number + 1])
        each = torch.stack([logits(model, alone, np.array([row]))[0] for row in rows])
        wet = each.mean(0).softmax(0)[1].item()
        assert frame["p_wet"][number] == pytest.approx(wet, abs=1e-5)
        together = logits(model, part, np.array([number, (number + 1) % 100]))
        torch.testing.assert_close(together[0], each.mean(0), atol=1e-5, rtol=1e-4)


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


@pytest.mark.parametrize("most", [1, 3])
def test_memory_does_not_follow_the_longest_text(made: dict[str, Path], tmp_path: Path, most: int) -> None:
    """One text of 300 windows in every part: no step sees more than batch_size × max_windows rows, no scoring more than 64."""
    data = tmp_path / "data"
    data.mkdir()
    for part in COUNTS:
        rows = pq.read_table(made["task_data"] / f"{part}.parquet").to_pylist()[:20]
        rows[3]["text_a"] = " ".join([PLAIN[0]] * 2400 + ["sea"])
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["classification"]), data / f"{part}.parquet")
    (data / "task.json").write_bytes((made["task_data"] / "task.json").read_bytes())
    config = CONFIG.model_copy(update={"epochs": 1, "batch_size": 8, "max_windows": most})
    with rows_computed() as seen:
        run = run_folder({**made, "task_data": data}, tmp_path, config)
        assert train(run, Stop())
    assert len(seen[True]) == 3 and max(seen[True]) <= 8 * most
    assert max(seen[False]) == SCORING_BATCH and sum(seen[False]) > 3 * 300
    assert json.loads((run / "result" / "scores.json").read_text())["counts"]["dev"]["windows"] > 300


def test_scores_of_long_texts_are_learnt_too(made: dict[str, Path], tmp_path: Path) -> None:
    data = write_task(tmp_path / "data", "regression")
    statistics, out = run_stage({**made, "task_data": data}, tmp_path, CONFIG)
    assert statistics["test_spearman"] > 0.8
    assert pl.read_parquet(out / "predictions" / "test-seed-42.parquet").columns == [
        *("example_id", "label", "prediction")
    ]


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_an_epoch_sees_and_what_a_batch_holds(made: dict[str, Path]) -> None:
    words = tokenizer.load(made["wordpiece_vocab"])
    part = read_examples(made["task_data"] / "dev.parquet", words, 12, "windows")
    assert part.windows is not None and part.drawn(9, 1, 0).input_ids == part.input_ids
    first, again, later = part.drawn(2, 1, 0), part.drawn(2, 1, 0), part.drawn(2, 1, 1)
    assert first.windows is not None and first.windows.tolist() == list(range(0, 201, 2))
    assert [ids.tolist() for ids in first.input_ids] == [ids.tolist() for ids in again.input_ids]
    assert [ids.tolist() for ids in first.input_ids] != [ids.tolist() for ids in later.input_ids]
    for number in range(100):
        own = [ids.tolist() for ids in part.input_ids[part.windows[number] : part.windows[number + 1]]]
        assert all(ids.tolist() in own for ids in first.input_ids[2 * number : 2 * number + 2])
    assert (first.outputs, first.labels.tolist(), len(first.lengths)) == (100, part.labels.tolist(), 100)
    found = batch(first, np.array([7, 4]))
    assert found.read.windows is not None and found.read.windows.tolist() == [2, 2]
    assert found.read.row_of.tolist() == [0, 1, 2, 3]
    alone = part.apart
    assert (alone.outputs, alone.windows, len(alone.lengths)) == (len(part.input_ids), None, len(part.input_ids))
    assert alone.labels[part.windows[:-1]].tolist() == part.labels.tolist()
    assert batch(alone, np.array([7, 4])).read.windows is None


def test_pairs_of_which_something_is_in_no_window_are_truncated(made: dict[str, Path], tmp_path: Path) -> None:
    """Rows of 12 hold 9 tokens of a pair; of the shorter text 4 at most."""
    words = tokenizer.load(made["wordpiece_vocab"])
    texts = [("the sea", "old " * 40), ("the " * 9, "a " * 9), ("wind", "bird")]
    rows = [{"example_id": str(number), "text_a": a, "text_b": b, "score": 1.0} for number, (a, b) in enumerate(texts)]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["regression"]), tmp_path / "x.parquet")
    part = read_scored(tmp_path / "x.parquet", words, 12, "windows")
    assert (part.truncated, part.counts) == (1, {"windows": 10, "windowed_texts": 2})
    assert part.windows is not None and part.windows.tolist() == [0, 7, 9, 10]
    empty = pa.Table.from_pylist([], schema=SCHEMAS["regression"])
    pq.write_table(empty, tmp_path / "none.parquet")
    none = read_scored(tmp_path / "none.parquet", words, 12, "windows")
    assert (len(none), none.outputs, len(none.lengths), len(none.apart)) == (0, 0, 0, 0)
