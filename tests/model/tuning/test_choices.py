"""Fine-tuning of multiple-choice tasks: rows, batches, the loss by hand, and a tiny network that learns examples by heart."""

import json
import random
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from model import checkpoint
from model.layers.classifier import Classifier, side_by_side
from model.reporting.report_task import task_result
from model.task_files.task_kinds import SCHEMAS
from model.tasks import prepare_task
from model.tuning import heads
from model.tuning.choices import read_choices
from model.tuning.examples import UNKNOWN, epoch_batches, sorted_batches
from model.tuning.finetuning_loop import train
from model.tuning.tuning_batches import Flat, Padded
from pipeline import tokenizer
from pipeline.config import FinetuneConfig, PathFrom, Task, TaskDataConfig
from pipeline.tokenizer import Tokenizer
from tests.conftest import shared
from tests.model import trainings
from tests.model.test_tagging import ARCHITECTURE
from tests.model.tiny import write_vocabulary
from tests.model.trainings import StopAfter, content, pretrained, run_folder, run_stage, run_undisturbed

WORDS = ("the", "a", "old", "river", "rock", "sea", "sand", "wind", "cloud", "bird", "tree", "##s")
COUNTS = (2, 3, 4)
"""of choices"""
pytestmark = pytest.mark.usefixtures("one_thread_of_the_cpu")
CONFIG = FinetuneConfig(
    task="endings",
    seeds=2,
    learning_rate=1e-2,
    epochs=8,
    batch_size=4,
    max_length=12,
    dropout=0.1,
    warmup=0.1,
    pooling="cls",
    baselines=("tfidf", "untrained"),
)


def write_task(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """Task data whose three parts hold the same examples: what is learnt by heart is scored. Of test, no answers are known."""
    folder.mkdir()
    for part in ("train", "dev", "test"):
        known = [{**row, "label": None} for row in rows] if part == "test" else rows
        write_rows(folder / f"{part}.parquet", known)
    counts = dict.fromkeys(("train", "dev", "test"), len(rows))
    task = {"name": "endings", "title": "Endings", "kind": "multiple_choice", "metric": "accuracy", "labels": []}
    (folder / "task.json").write_text(json.dumps({**task, "counts": counts}))
    return folder


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["multiple_choice"]), path)
    return path


def made_up(count: int) -> list[dict[str, Any]]:
    """Examples of two, three and four choices, of which any may be the right one: a word gives it away."""
    draw = random.Random(5)
    fill = [word for word in WORDS[:-1] if word not in ("sea", "rock")]
    rows = []
    for number in range(count):
        label = draw.randrange(size := draw.choice(COUNTS))
        ends = [[*draw.sample(fill, draw.randint(0, 3)), "sea" if at == label else "rock"] for at in range(size)]
        text, choices = " ".join(draw.sample(fill, draw.randint(1, 4))), [" ".join(end) for end in ends]
        rows.append({"example_id": f"train:{number}", "text_a": text, "choices": choices, "label": label})
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


@pytest.fixture
def words(made: dict[str, Path]) -> Tokenizer:
    return tokenizer.load(made["wordpiece_vocab"])


@pytest.fixture(scope="module")
def learnt(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    return run_undisturbed(made, tmp_path_factory.mktemp("learnt"), CONFIG)


def test_examples_with_unequal_numbers_of_choices_are_learnt_by_heart(learnt: tuple[dict[str, Any], Path]) -> None:
    statistics, out = learnt
    rows = made_up(30)
    assert {len(row["choices"]) for row in rows} == set(COUNTS)
    scores = json.loads((out / "scores.json").read_text())
    assert statistics["dev_accuracy"] == scores["summary"]["dev"]["accuracy"]["lowest"] == 1.0
    assert set(scores["summary"]["dev"]) == {"accuracy"}  # places have no classes to average over
    assert scores["labels"] == ["0", "1", "2", "3"]
    assert scores["sizes"] == {"train": 30, "dev": 30, "test": 30}
    assert scores["counts"]["dev"]["choices"] == statistics["dev_choices"] == sum(len(row["choices"]) for row in rows)
    # the most frequent place of the right choice
    places = np.bincount([row["label"] for row in rows])
    assert set(scores["baselines"]) == {"majority", "untrained"}  # TF-IDF does not apply
    assert scores["baselines"]["majority"]["label"] == str(places.argmax())
    assert scores["baselines"]["majority"]["dev"] == {"accuracy": float(f"{places.max() / 30:.6g}")}
    assert scores["summary"]["test"] is scores["baselines"]["majority"]["test"] is None
    assert scores["confusion"] == {"part": "dev", "counts": np.diag(places).tolist()}


def test_every_choice_has_a_probability_and_no_other(learnt: tuple[dict[str, Any], Path]) -> None:
    _, out = learnt
    rows = made_up(30)
    for part, seed in (("dev", 42), ("dev", 43), ("test", 42)):
        frame = pl.read_parquet(out / "predictions" / f"{part}-seed-{seed}.parquet")
        assert frame.columns == ["example_id", "label", "prediction", "p_0", "p_1", "p_2", "p_3"]
        assert frame["example_id"].to_list() == [row["example_id"] for row in rows]
        labels = [str(row["label"]) for row in rows]
        assert frame["label"].to_list() == (labels if part == "dev" else [None] * 30)
        assert frame["prediction"].to_list() == labels
        for row, (*given,) in zip(rows, frame.select(pl.col("^p_.*$")).iter_rows(), strict=True):
            count = len(row["choices"])
            assert given[count:] == [None] * (4 - count)
            assert sum(given[:count]) == pytest.approx(1, abs=1e-6)
            assert max(given[:count]) == given[row["label"]]


def test_the_published_weights_give_the_published_predictions(
    learnt: tuple[dict[str, Any], Path], made: dict[str, Path], words: Tokenizer
) -> None:
    """One example at a time."""
    _, out = learnt
    model = Classifier(ARCHITECTURE, len(words.vocabulary), 1, "cls")
    model.load_state_dict(checkpoint.load_tensors(out / "model.safetensors"))
    seed = json.loads((out / "scores.json").read_text())["published_seed"]
    frame = pl.read_parquet(out / "predictions" / f"dev-seed-{seed}.parquet").select(pl.col("^p_.*$"))
    part = read_choices(made["task_data"] / "dev.parquet", words, 12)
    for number, given in enumerate(frame.iter_rows()):
        expected = trainings.logits(model, part, np.array([number])).softmax(1)[0]
        assert np.allclose(expected, given[: len(expected)], atol=1e-5)


def test_stopped_and_resumed_it_gives_the_same_bytes(
    made: dict[str, Path], learnt: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    run = run_folder(made, tmp_path, CONFIG)
    for _ in range(2):
        assert not train(run, StopAfter(29))
        assert list(run.glob("current/pretrained-0-42/step-*"))
    statistics, out = run_stage(made, tmp_path, CONFIG)
    assert statistics["resume_count"] == 2
    assert content(out) == content(learnt[1])


def test_real_endings_are_learnt_by_heart(tmp_path: Path) -> None:
    """Three dozen questions of CODAH, from its official file, in Google's vocabulary."""
    file = shared("data/finetune/swag/codah.tsv")
    vocabulary = shared("data/reference/vocab-bert-base-uncased.txt").read_text(encoding="utf-8").splitlines()
    define = Task.model_validate(
        {
            "kind": "multiple_choice",
            "files": {"train": {"path": str(file)}},
            "header": ["category", "prompt", "a", "b", "c", "d", "answer"],
            "quotes": False,
            "text": "prompt",
            "choices": ["a", "b", "c", "d"],
            "label": "answer",
        }
    )
    (tmp_path / "data").mkdir()
    prepare_task({}, TaskDataConfig(task="codah", define=define), tmp_path / "data")
    rows = pq.read_table(tmp_path / "data" / "train.parquet").to_pylist()[:36]
    made = {
        "wordpiece_vocab": write_vocabulary(tmp_path / "words", vocabulary),
        "pretrained": pretrained(tmp_path / "pretrained", len(vocabulary), ARCHITECTURE),
        "task_data": write_task(tmp_path / "task", rows),
    }
    config = CONFIG.model_copy(
        update={"seeds": 1, "max_length": 32, "learning_rate": 5e-3, "dropout": 0.0, "epochs": 20, "baselines": ()}
    )
    statistics, out = run_stage(made, tmp_path, config)
    assert statistics["dev_accuracy"] == 1.0
    assert statistics["dev_choices"] == 4 * 36
    predicted = pl.read_parquet(out / "predictions" / "dev-seed-42.parquet")["prediction"].to_list()
    assert predicted == [str(row["label"]) for row in rows]


def test_the_report_shows_it(learnt: tuple[dict[str, Any], Path]) -> None:
    task = task_result("endings", {"finetuned_endings": learnt[1]}, {}).entry
    (row,) = task["rows"]
    assert (row["part"], row["examples"], row["ours"], row["tfidf"]) == ("dev", 30, 100.0, None)
    assert task["confusion"]["part"] == "dev"


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_loss_by_hand(made: dict[str, Path], words: Tokenizer) -> None:
    """Three choices with 1, 2, 0 of which the second is right, two with 3, 3 of which the first is: a row each of a batch."""
    numbers = torch.tensor([[3.0], [3.0], [1.0], [2.0], [0.0]], requires_grad=True)
    logits = side_by_side(numbers, torch.tensor([[2, 3, 4], [0, 1, -1]]))
    assert logits.tolist() == [[1, 2, 0], [3, 3, float("-inf")]]
    head = heads.HEADS["multiple_choice"]
    loss = head.loss(logits, torch.tensor([1, 0]), torch.ones(2))
    three = exp(1) + exp(2) + exp(0)
    assert loss.item() == pytest.approx(((log(three) - 2) + log(2)) / 2, abs=1e-6)
    loss.backward()
    assert numbers.grad is not None
    # (probability − 1 of the right one) / examples
    expected = [-0.25, 0.25, exp(1) / three / 2, (exp(2) / three - 1) / 2, exp(0) / three / 2]
    assert numbers.grad.flatten().tolist() == pytest.approx(expected, abs=1e-6)
    part = read_choices(made["task_data"] / "dev.parquet", words, 12)
    assert head.guesses(part, logits.detach(), {}).tolist() == [1, 0]


def test_a_row_for_every_choice_and_the_longer_text_is_cut(words: Tokenizer, tmp_path: Path) -> None:
    rows = [
        {"example_id": "a", "text_a": "the rivers", "choices": ["sea", "sand wind", ""], "label": 1},
        {"example_id": "b", "text_a": "old old old old old", "choices": ["rock", "a a a a a a"], "label": None},
    ]
    part = read_choices(write_rows(tmp_path / "x.parquet", rows), words, 8)
    assert [" ".join(words.tokens(ids)) for ids in part.input_ids] == [
        "[CLS] the river ##s [SEP] sea [SEP]",
        "[CLS] the river ##s [SEP] sand wind [SEP]",
        "[CLS] the river ##s [SEP] [SEP]",
        "[CLS] old old old old [SEP] rock [SEP]",
        "[CLS] old old old [SEP] a a [SEP]",  # the original cuts the second of two that are equally long
    ]
    assert part.labels.tolist() == [1, UNKNOWN]
    assert (len(part), part.truncated, part.texts) == (2, 1, ())
    assert part.counts == {"choices": 5, "cut_choices": 2}
    assert part.lengths.tolist() == [8, 8]
    assert heads.HEADS["multiple_choice"].labels({}, [part]) == ["0", "1", "2"]
    side_by_side, flat = (trainings.batch(part, np.array([1, 0]), padded=padded) for padded in (True, False))
    assert isinstance(side_by_side, Padded)
    assert isinstance(flat, Flat)
    ids, mask = side_by_side.input_ids.numpy(), side_by_side.attention_mask.numpy()
    rows = [words.tokens(part.input_ids[row]) for row in (3, 4, 0, 1, 2)]
    assert [words.tokens(row[kept]) for row, kept in zip(ids, mask, strict=True)] == rows
    assert words.tokens(flat.input_ids.numpy()) == [token for row in rows for token in row]
    assert side_by_side.token_type_ids.tolist()[0] == [0, 0, 0, 0, 0, 0, 1, 1]
    for batch in (side_by_side, flat):
        assert batch.read.compared is not None
        assert batch.read.compared.tolist() == [[0, 1, -1], [2, 3, 4]]


def test_a_batch_holds_all_choices_of_its_examples(made: dict[str, Path], words: Tokenizer) -> None:
    part = read_choices(made["task_data"] / "train.parquet", words, 12)
    expected = [len(row["choices"]) for row in made_up(30)]
    for batches in (
        epoch_batches(part.lengths, 4, 1, 0, False),
        epoch_batches(part.lengths, 4, 1, 0, True),
        sorted_batches(part.lengths, 4),
    ):
        assert sorted(np.concatenate(batches).tolist()) == list(range(30))
        for batch in batches:
            rows = trainings.batch(part, batch)
            compared = rows.read.compared
            assert compared is not None
            assert (compared >= 0).sum(1).tolist() == [expected[example] for example in batch]
            assert sorted(compared[compared >= 0].tolist()) == list(range(len(rows.read.tokens)))


def test_swag_as_it_is_published(tmp_path: Path) -> None:
    sample = shared("data/finetune/swag/swag-format-sample.csv").read_text(encoding="utf-8")
    vocabulary = shared("data/reference/vocab-bert-base-uncased.txt").read_text(encoding="utf-8").splitlines()
    for name in ("data", "out"):
        (tmp_path / name).mkdir()
    for name in ("train.csv", "val.csv"):
        (tmp_path / "data" / name).write_text(sample)
    prepare_task({}, TaskDataConfig(task="swag", **{"from": PathFrom(path=str(tmp_path / "data"))}), tmp_path / "out")
    words = tokenizer.load(write_vocabulary(tmp_path / "words", vocabulary))
    part = read_choices(tmp_path / "out" / "dev.parquet", words, 128)
    assert " ".join(words.tokens(part.input_ids[2])) == (
        "[CLS] students lower their eyes nervously . [SEP] she walks slowly towards someone . [SEP]"
    )
    assert part.labels.tolist()[:2] == [2, 2]
    assert part.counts == {"choices": 4 * len(part), "cut_choices": 0}
    # a part without examples, as SWAG's test where its file is missing
    none = read_choices(tmp_path / "out" / "test.parquet", words, 128)
    assert (len(none), none.lengths.tolist(), sorted_batches(none.lengths, 4)) == (0, [], [])
