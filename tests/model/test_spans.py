"""Fine-tuning of span tasks: what is taught, the loss by hand, and a tiny network that learns answers by heart."""

import json
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
from model.layers.classifier import Classifier
from model.scoring.command import score
from model.task_files.squad import read_squad
from model.task_files.task_kinds import SCHEMAS
from model.tasks import prepare_task
from model.tuning import heads
from model.tuning.answered_spans import read_spans, span_guesses, span_loss, span_scores
from model.tuning.examples import UNKNOWN
from model.tuning.finetuning_loop import train
from model.tuning.span_windows import span_windows
from pipeline import tokenizer
from pipeline.config import Architecture, FinetuneConfig, Task, TaskDataConfig
from tests.conftest import shared
from tests.model.tiny import write_vocabulary
from tests.model.trainings import StopAfter, content, logits, pretrained, run_folder, run_stage, run_undisturbed

WORDS = (
    "who",
    "where",
    "what",
    "is",
    "?",
    "the",
    "river",
    "sea",
    "old",
    "anna",
    "bob",
    "rome",
    "paris",
    "met",
    "in",
    ".",
)
ARCHITECTURE = Architecture(layers=1, hidden=48, heads=4, max_positions=32)
pytestmark = pytest.mark.usefixtures("one_thread_of_the_cpu")
CONFIG = FinetuneConfig(
    task="questions", seeds=2, learning_rate=3e-3, epochs=40, batch_size=2, max_length=24, dropout=0.1, warmup=0.1
)
Row = dict[str, Any]


def row(number: int, question: str, context: str, *answers: str, impossible: bool = False) -> Row:
    """A question with answers that stand in its context."""
    given = [{"text": text, "start": context.index(text)} for text in answers]
    return {
        "example_id": f"q{number}",
        "question": question,
        "context": context,
        "title": None,
        "answers": given,
        "impossible": impossible,
    }


def made_up(none: bool) -> list[Row]:
    """Who and where, in one window and in two; with `none` what, which nobody knows."""
    rows = []
    for who in ("Anna", "Bob"):
        for where in ("Rome", "Paris"):
            for far in (False, True):
                context = f"{'The old river. ' * (6 if far else 1)}{who} met the sea in {where}. The sea."
                rows.append(row(len(rows), "Who is?", context, who))
                rows.append(row(len(rows), "Where is?", context, where, f"in {where}"))
                if none:
                    rows.append(row(len(rows), "What is?", context, impossible=True))
    return rows


def write_task(folder: Path, rows: list[Row]) -> Path:
    """Task data whose three parts hold the same questions: what is learnt by heart is scored."""
    folder.mkdir()
    for part in ("train", "dev", "test"):
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["span"]), folder / f"{part}.parquet")
    task = {"name": "questions", "title": "Questions", "kind": "span", "metric": "f1", "labels": []}
    (folder / "task.json").write_text(
        json.dumps({**task, "counts": dict.fromkeys(("train", "dev", "test"), len(rows))})
    )
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("inputs")
    vocabulary = [*tokenizer.SPECIAL_TOKENS, *WORDS]
    return {
        "wordpiece_vocab": write_vocabulary(base / "wordpiece_vocab", vocabulary),
        "pretrained": pretrained(base / "pretrained", len(vocabulary), ARCHITECTURE),
        "task_data": write_task(base / "task_data", made_up(none=True)),
    }


@pytest.fixture(scope="module")
def learnt(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    return run_undisturbed(made, tmp_path_factory.mktemp("learnt"), CONFIG)


def test_answers_and_questions_without_any_are_learnt_by_heart(learnt: tuple[dict[str, Any], Path]) -> None:
    statistics, out = learnt
    scores = json.loads((out / "scores.json").read_text())
    assert scores["summary"]["test"]["f1"]["median"] > 0.9
    assert scores["summary"]["test"]["exact_match"]["median"] > 0.9
    assert statistics["dev_windows"] == scores["counts"]["dev"]["windows"] > 24
    # 8 of 24 questions have no answer: who never answers has them right
    assert scores["baselines"]["majority"]["dev"] == {"exact_match": 0.333333, "f1": 0.333333}
    assert scores["labels"] == []
    assert scores["confusion"] is None
    for run in scores["seeds"]:
        assert np.isfinite(run["null_threshold"])


def test_predictions_are_scored_by_the_scorer_as_here(learnt: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    _, out = learnt
    scores = json.loads((out / "scores.json").read_text())
    paragraphs = [
        {
            "context": each["context"],
            "qas": [
                {
                    "id": each["example_id"],
                    "question": each["question"],
                    "is_impossible": each["impossible"],
                    "answers": [{"text": a["text"], "answer_start": a["start"]} for a in each["answers"]],
                }
            ],
        }
        for each in made_up(none=True)
    ]
    (tmp_path / "gold.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    for run in scores["seeds"]:
        base = out / "predictions" / f"test-seed-{run['seed']}"
        found = score("squad2.0", tmp_path / "gold.json", base.with_suffix(".json"))["scores"]
        points = {entry["metric"]: entry["points"] for entry in found if entry["part"] == ""}
        assert points["f1"] == pytest.approx(100 * run["test"]["f1"], abs=1e-3)
        assert points["exact_match"] == pytest.approx(100 * run["test"]["exact_match"], abs=1e-3)
        frame = pl.read_parquet(base.with_suffix(".parquet"))
        assert frame.columns == ["example_id", "answers", "prediction", "exact_match", "f1", "null_odds", "n_best"]
        assert frame["f1"].mean() == pytest.approx(run["test"]["f1"], rel=1e-5)
        odds = json.loads(base.with_suffix(".null_odds.json").read_text())
        assert list(odds) == frame["example_id"].to_list()
        assert all(
            (text == "") == (odds[id_] > run["null_threshold"])
            for id_, text in frame.select("example_id", "prediction").rows()
        )


def test_the_published_weights_give_the_published_predictions(
    learnt: tuple[dict[str, Any], Path], made: dict[str, Path]
) -> None:
    """One window at a time."""
    _, out = learnt
    described = json.loads((out / "config.json").read_text())
    words = tokenizer.load(made["wordpiece_vocab"])
    model = Classifier(ARCHITECTURE, len(words.vocabulary), 2, described["pooling"])
    model.load_state_dict(checkpoint.load_tensors(out / "model.safetensors"))
    part = read_spans(made["task_data"] / "test.parquet", words, described["max_length"])
    found = torch.cat([logits(model, part, np.array([row])) for row in range(len(part.input_ids))])
    seed = json.loads((out / "scores.json").read_text())["published_seed"]
    frame = pl.read_parquet(out / "predictions" / f"test-seed-{seed}.parquet")
    guesses = span_guesses(part, found, described["decided"])
    assert list(guesses.texts) == frame["prediction"].to_list()


def test_stopped_and_resumed_it_gives_the_same_bytes(
    made: dict[str, Path], learnt: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    run = run_folder(made, tmp_path, CONFIG)
    for _ in range(2):
        assert not train(run, StopAfter(40))
        assert list(run.glob("current/pretrained-0-42/step-*"))
    statistics, out = run_stage(made, tmp_path, CONFIG)
    assert statistics["resume_count"] == 2
    assert content(out) == content(learnt[1])


def test_where_every_question_has_an_answer_none_is_left_out(made: dict[str, Path], tmp_path: Path) -> None:
    data = write_task(tmp_path / "data", made_up(none=False))
    short = CONFIG.model_copy(update={"seeds": 1, "epochs": 1})
    _, out = run_stage({**made, "task_data": data}, tmp_path, short)
    scores = json.loads((out / "scores.json").read_text())
    assert scores["baselines"]["majority"]["dev"] == {"exact_match": 0.0, "f1": 0.0}
    assert "null_threshold" not in scores["seeds"][0]
    frame = pl.read_parquet(out / "predictions" / "dev-seed-42.parquet")
    assert "null_odds" not in frame.columns
    assert (frame["prediction"] != "").all()
    assert not list(out.glob("predictions/*null_odds*"))


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_loss_by_hand() -> None:
    """Windows of 2 and 3 tokens. Beginnings 0, 1 of which the second is right, and 2, 0, 0 of which the first is; ends all
    equal; padding counts nothing, nor does a window that teaches nothing."""
    numbers = torch.tensor([[0.0, 5], [1, 5], [2, 1], [0, 1], [0, 1]], requires_grad=True)
    loss = span_loss(numbers, torch.tensor([[1, 0], [0, 2]]), torch.tensor([2, 3]))
    starts = (log(exp(0) + exp(1)) - 1) + (log(exp(2) + 2) - 2)
    assert loss.item() == pytest.approx((starts + log(2) + log(3)) / 4, abs=1e-6)
    loss.backward()
    assert numbers.grad is not None
    assert numbers.grad[2, 0].item() == pytest.approx((exp(2) / (exp(2) + 2) - 1) / 4, abs=1e-6)
    alone = span_loss(numbers.detach(), torch.tensor([[1, 0], [UNKNOWN, UNKNOWN]]), torch.tensor([2, 3]))
    assert alone.item() == pytest.approx((log(exp(0) + exp(1)) - 1 + log(2)) / 2, abs=1e-6)
    nothing = span_loss(numbers.detach(), torch.full((2, 2), UNKNOWN), torch.tensor([2, 3]))
    assert nothing.item() == 0


def test_inputs_of_the_papers_length_are_the_papers_and_shorter_ones_keep_its_proportions(tmp_path: Path) -> None:
    vocabulary = shared("data/reference/vocab-bert-base-uncased.txt").read_text(encoding="utf-8").splitlines()
    words = tokenizer.load(write_vocabulary(tmp_path / "words", vocabulary))
    asked = []
    for each in read_squad(shared("data/finetune/squad/dev-v1.1.json")):
        asked.append(each)
        if len(asked) == 300:
            break
    rows = [row(n, each.question, each.context, each.answers[0][0]) for n, each in enumerate(asked)]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["span"]), tmp_path / "x.parquet")
    texts = [each.question for each in asked], [each.context for each in asked]
    for length, stride, longest in ((384, 128, 64), (128, 42, 32)):
        part = read_spans(tmp_path / "x.parquet", words, length)
        windows = span_windows(*texts, words, length, stride, longest)
        assert len(part.input_ids) == len(windows)
        assert all(np.array_equal(a, b) for a, b in zip(part.input_ids, windows.input_ids, strict=True))
        assert part.outputs == sum(map(len, windows.input_ids))


def test_what_can_not_be_placed_teaches_nothing_and_what_is_not_known_is_not_scored(
    made: dict[str, Path], tmp_path: Path
) -> None:
    context = "Anna met the sea in Rome."
    unplaced = row(0, "Who is?", context, "Anna")
    unplaced["answers"][0]["start"] = None
    unknown = {**row(1, "Who is?", context), "impossible": None}
    rows = [unplaced, unknown, row(2, "What is?", context, impossible=True), row(3, "Where is?", context, "Rome")]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["span"]), tmp_path / "x.parquet")
    part = read_spans(tmp_path / "x.parquet", tokenizer.load(made["wordpiece_vocab"]), 24)
    assert part.labels.tolist() == [[UNKNOWN, UNKNOWN], [UNKNOWN, UNKNOWN], [0, 0], [10, 10]]
    assert part.known.tolist() == [True, False, True, True]
    assert part.counts["untaught_windows"] == 2
    head = heads.HEADS["span"]
    assert span_scores(("f1",), part, head.constantly(part, head.constant(part))) == {"f1": 0.333333}


def test_a_part_without_questions(made: dict[str, Path], tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([], schema=SCHEMAS["span"]), tmp_path / "x.parquet")
    part = read_spans(tmp_path / "x.parquet", tokenizer.load(made["wordpiece_vocab"]), 24)
    assert (len(part), part.outputs, len(part.lengths)) == (0, 0, 0)
    head = heads.HEADS["span"]
    guesses = head.guesses(part, torch.zeros(0, 2), {})
    assert head.scores(("f1",), part, guesses, []) is None
    table, files = head.predictions(part, torch.zeros(0, 2), [], {})
    assert (table.num_rows, files) == (0, {"json": "{}\n"})


def test_real_questions_are_learnt_by_heart(tmp_path: Path) -> None:
    """Two dozen questions of SQuAD 2.0, from its official file, in Google's vocabulary."""
    file = shared("data/finetune/squad/dev-v2.0.json")
    vocabulary = shared("data/reference/vocab-bert-base-uncased.txt").read_text(encoding="utf-8").splitlines()
    whole = json.loads(file.read_text(encoding="utf-8"))
    few = [paragraph for article in whole["data"][:6] for paragraph in article["paragraphs"][:1]]
    for paragraph in few:
        paragraph["qas"] = paragraph["qas"][:4]
    other = whole["data"][6]["paragraphs"][:1]
    for name, paragraphs in (("few", few), ("dev", other)):
        content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    files = {part: {"path": str(tmp_path / f"{name}.json")} for part, name in (("train", "few"), ("dev", "dev"))}
    define = Task.model_validate({"kind": "span", "files": files})
    (tmp_path / "data").mkdir()
    prepare_task({}, TaskDataConfig(task="few", define=define), tmp_path / "data")
    # what is learnt by heart is scored
    (tmp_path / "data" / "dev.parquet").write_bytes((tmp_path / "data" / "train.parquet").read_bytes())
    architecture = Architecture(layers=2, hidden=64, heads=2, max_positions=192)
    made = {
        "wordpiece_vocab": write_vocabulary(tmp_path / "words", vocabulary),
        "pretrained": pretrained(tmp_path / "pretrained", len(vocabulary), architecture),
        "task_data": tmp_path / "data",
    }
    config = FinetuneConfig(
        task="few", seeds=1, learning_rate=2e-3, epochs=30, batch_size=8, max_length=192, dropout=0.0
    )
    _, out = run_stage(made, tmp_path, config)
    best = json.loads((out / "scores.json").read_text())["summary"]["dev"]
    assert best["f1"]["median"] > 0.8, "of 24 questions, half of them without an answer"
    predictions = json.loads((out / "predictions" / "dev-seed-42.json").read_text())
    contexts = {qa["id"]: paragraph["context"] for paragraph in few for qa in paragraph["qas"]}
    assert all(text in contexts[id_] for id_, text in predictions.items())
