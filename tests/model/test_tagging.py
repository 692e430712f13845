"""Fine-tuning of tagging tasks: windows, words, and a tiny network that learns a handful of sentences by heart."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model import checkpoint
from model.layers.classifier import Classifier
from model.processes.child import Stop
from model.scoring.command import score
from model.task_files.conll import iob2, read_sentences
from model.task_files.task_kinds import SCHEMAS
from model.tasks import prepare_task
from model.tuning import heads
from model.tuning.examples import UNKNOWN, Asked, Examples
from model.tuning.finetuning_loop import train
from model.tuning.tagged_words import best_windows, read_words, windows
from pipeline import tokenizer
from pipeline.config import Architecture, FinetuneConfig, PathFrom, TaskDataConfig, TaskKind
from pipeline.errors import DataError
from tests.conftest import shared
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

SENTENCES = """\
Anna I-PER
Müller I-PER
met O
Bob I-PER
in O
Rome I-LOC
. O

Rome I-LOC
Paris B-LOC
Anna I-PER

The O
unaffordable O
river O
met O
the O
old O
river O
in O
old O
Paris I-LOC
and O
Bob I-PER
and O
Müller B-PER
met O
the O
sea O
and O
Rome I-LOC
met O
Anna I-PER
"""
PIECES = (
    *(
        "anna",
        "mu",
        "##ller",
        "met",
        "bob",
        "in",
        "rome",
        "paris",
        ".",
        "the",
        "una",
        "##ff",
        "##ord",
        "##able",
        "river",
    ),
    *("old", "and", "sea"),
)
LABELS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
ARCHITECTURE = Architecture(layers=1, hidden=32, heads=2, max_positions=32)
pytestmark = pytest.mark.usefixtures("one_thread_of_the_cpu")
CONFIG = FinetuneConfig(
    task="people", seeds=2, learning_rate=1e-2, epochs=40, batch_size=2, max_length=12, dropout=0.1, warmup=0.1
)


def write_task(folder: Path, rows: list[dict[str, Any]], labels: list[str], metric: str = "entity_f1") -> Path:
    """Task data whose three parts hold the same sentences: what is learnt by heart is scored."""
    folder.mkdir()
    for part in ("train", "dev", "test"):
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["tagging"]), folder / f"{part}.parquet")
    counts = dict.fromkeys(("train", "dev", "test"), len(rows))
    task = {"name": "people", "title": "People", "kind": "tagging", "metric": metric, "labels": labels}
    (folder / "task.json").write_text(json.dumps({**task, "counts": counts}))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Inputs of the stage: a vocabulary, a network, sentences that are longer and shorter than a row."""
    base = tmp_path_factory.mktemp("inputs")
    (base / "people.conll").write_text(SENTENCES, encoding="utf-8")
    vocabulary = [*tokenizer.SPECIAL_TOKENS, *PIECES]
    rows = [
        {"example_id": f"train:{n}", "words": s.words, "tags": [LABELS.index(tag) for tag in iob2(s.tags or [])]}
        for n, s in enumerate(read_sentences(base / "people.conll"), 1)
    ]
    return {
        "wordpiece_vocab": write_vocabulary(base / "wordpiece_vocab", vocabulary),
        "pretrained": pretrained(base / "pretrained", len(vocabulary), ARCHITECTURE),
        "task_data": write_task(base / "task_data", rows, LABELS),
    }


@pytest.fixture(scope="module")
def learnt(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    return run_undisturbed(made, tmp_path_factory.mktemp("learnt"), CONFIG)


def test_sentences_are_learnt_by_heart_and_every_word_is_published(
    learnt: tuple[dict[str, Any], Path], made: dict[str, Path], tmp_path: Path
) -> None:
    statistics, out = learnt
    scores = json.loads((out / "scores.json").read_text())
    assert statistics["dev_entity_f1"] == scores["summary"]["dev"]["entity_f1"]["lowest"] == 1.0
    assert scores["hyperparameters"]["pooling"] == "tokens"
    assert scores["baselines"]["majority"] == {
        "label": "O",
        "dev": (nothing := {"accuracy": 0.612903, "entity_f1": 0.0, "precision": 0.0, "recall": 0.0}),  # 19 of 31 are O
        "test": nothing,
    }
    # the third sentence has 24 pieces, of which ten go into a row
    assert (statistics["dev_words"], statistics["dev_windowed_sentences"]) == (31, 1)
    gold = SENTENCES.split()[::2]
    for run in scores["seeds"]:
        frame = pl.read_parquet(out / "predictions" / f"dev-seed-{run['seed']}.parquet")
        assert frame["word"].to_list() == gold
        assert frame["word_number"].to_list() == [*range(7), *range(3), *range(21)]
        assert frame["example_id"].to_list() == ["train:1"] * 7 + ["train:2"] * 3 + ["train:3"] * 21
        assert (frame["label"] == frame["prediction"]).mean() == run["dev"]["accuracy"]
        assert np.allclose(frame.select(pl.col("^p_.*$")).to_numpy().sum(1), 1, atol=1e-6)
    # `bert score` says the same of a file that is made of them
    tags = frame["prediction"].to_list()
    lines = [f"{word} {tag}" for word, tag in zip(gold, tags, strict=True)]
    for name, text in (("gold", SENTENCES), ("predicted", "\n".join([*lines[:7], "", *lines[7:10], "", *lines[10:]]))):
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    found = {row["metric"]: row["points"] for row in score("ner", tmp_path / "gold", tmp_path / "predicted")["scores"]}
    assert found["entity_f1"] == 100 * run["dev"]["entity_f1"]


def test_the_published_weights_give_the_published_predictions(
    learnt: tuple[dict[str, Any], Path], made: dict[str, Path]
) -> None:
    _, out = learnt
    described = json.loads((out / "config.json").read_text())
    words = tokenizer.load(made["wordpiece_vocab"])
    model = Classifier(ARCHITECTURE, len(words.vocabulary), len(LABELS), described["pooling"])
    model.load_state_dict(checkpoint.load_tensors(out / "model.safetensors"))
    part = read_words(made["task_data"] / "dev.parquet", words, described["max_length"])
    seed = json.loads((out / "scores.json").read_text())["published_seed"]
    frame = pl.read_parquet(out / "predictions" / f"dev-seed-{seed}.parquet")
    for row in range(len(part.input_ids)):
        probabilities = logits(model, part, np.array([row])).softmax(1)
        expected = frame[part.labels_of(np.array([row]))].select([f"p_{label}" for label in LABELS]).to_numpy()
        assert np.allclose(probabilities, expected, atol=1e-5)


def test_killed_and_stopped_and_resumed_it_gives_the_same_bytes(
    made: dict[str, Path], learnt: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    run = run_folder(made, tmp_path, CONFIG, checkpoint_seconds=0.05)
    kill_at_its_first_checkpoint(run)

    class AfterOneRun(Stop):
        asked = property(lambda self: (run / "runs" / "pretrained-0-42").exists())  # type: ignore[assignment]

    assert not train(run, AfterOneRun())
    assert not (run / "result").exists()
    statistics, out = run_stage(made, tmp_path, CONFIG)
    assert statistics["resume_count"] == 2
    assert content(out) == content(learnt[1])


def test_real_tweets_are_learnt_by_heart(tmp_path: Path) -> None:
    """Twelve sentences of WNUT-17 with entities, from its official file, in Google's vocabulary."""
    folder = shared("data/finetune/ner")
    vocabulary = shared("data/reference/vocab-bert-base-uncased.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "data").mkdir()
    prepare_task({}, TaskDataConfig(task="wnut17", **{"from": PathFrom(path=str(folder))}), tmp_path / "data")
    labels = json.loads((tmp_path / "data" / "task.json").read_text())["labels"]
    rows = [row for row in pq.read_table(tmp_path / "data" / "train.parquet").to_pylist() if any(row["tags"])][:12]
    made = {
        "wordpiece_vocab": write_vocabulary(tmp_path / "words", vocabulary),
        "pretrained": pretrained(tmp_path / "pretrained", len(vocabulary), ARCHITECTURE),
        "task_data": write_task(tmp_path / "task", rows, labels),
    }
    config = CONFIG.model_copy(update={"seeds": 1, "max_length": 32, "epochs": 25, "baselines": ("tfidf",)})
    statistics, out = run_stage(made, tmp_path, config)
    assert statistics["dev_entity_f1"] == 1.0
    assert statistics["dev_words"] == sum(len(row["words"]) for row in rows)
    assert statistics["dev_windowed_sentences"] > 0
    assert "tfidf" not in json.loads((out / "scores.json").read_text())["baselines"]


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_kind_has_a_head() -> None:
    assert set(get_args(TaskKind)) == set(heads.HEADS)


def test_windows_of_one_piece_words_by_hand() -> None:
    ones = np.ones(10, np.int64)
    assert windows(ones, 10) == [(0, 10)]
    assert windows(ones, 6) == [(0, 6), (3, 9), (4, 10)]  # half is shared; the last is filled to its left
    # in the order of the windows, word 3 has 2, 0 on its shorter side, 4 has 1, 1, 0, 5 has 0, 2, 1, 6 has 2, 2, 7 has 1, 2
    assert [read.tolist() for read in best_windows(ones, windows(ones, 6))] == [[0, 1, 2, 3, 4], [5, 6], [7, 8, 9]]
    assert windows(np.array([4, 4, 4]), 4) == [(0, 1), (1, 2), (2, 3)]
    assert windows(np.array([3, 1, 5, 1]), 5) == [(0, 2), (2, 3), (3, 4)]
    assert windows(np.array([], np.int64), 4) == []


def test_every_word_is_read_once_where_most_stands_around_it() -> None:
    draw = random.Random(3)
    several = 0
    for _ in range(400):
        room = draw.randint(1, 24)
        lengths = np.array([draw.randint(1, min(room, draw.choice((1, 3, 30)))) for _ in range(draw.randint(1, 60))])
        ends = np.concatenate([[0], np.cumsum(lengths)])
        rows = windows(lengths, room)
        assert all(0 < ends[end] - ends[first] <= room for first, end in rows)
        assert all(a < c and b < d and c <= b for (a, b), (c, d) in pairwise(rows))
        read = best_windows(lengths, rows)
        assert sorted(np.concatenate(read).tolist()) == list(range(len(lengths)))
        for (first, end), words in zip(rows, read, strict=True):
            for word in words:
                around = [min(ends[word] - ends[a], ends[b] - ends[word + 1]) if a <= word < b else -1 for a, b in rows]
                assert min(ends[word] - ends[first], ends[end] - ends[word + 1]) == max(around)
        several += len(rows) > 1
    assert several > 100


def test_first_pieces_are_read_and_words_without_or_with_too_many_pieces_are_counted(
    made: dict[str, Path], tmp_path: Path
) -> None:
    words = tokenizer.load(made["wordpiece_vocab"])
    rows = [
        {"example_id": "a", "words": ["Anna", "unaffordable", "\u200b", "Müller"], "tags": [1, 0, 0, 2]},
        {"example_id": "b", "words": ["old", "unaffordable-unaffordable", "sea"], "tags": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["tagging"]), tmp_path / "x.parquet")
    part = read_words(tmp_path / "x.parquet", words, 10)
    assert [words.tokens(ids) for ids in part.input_ids] == [
        ["[CLS]", "anna", "una", "##ff", "##ord", "##able", "[UNK]", "mu", "##ller", "[SEP]"],
        ["[CLS]", "old", "[SEP]"],
        ["[CLS]", "una", "##ff", "##ord", "##able", "[UNK]", "una", "##ff", "##ord", "[SEP]"],
        ["[CLS]", "sea", "[SEP]"],
    ]
    assert part.asked is not None
    assert [places.tolist() for places in part.asked.places] == [[1, 2, 6, 7], [1], [1], [1]]
    assert [part.labels_of(np.array([row])).tolist() for row in range(4)] == [[0, 1, 2, 3], [4], [5], [6]]
    assert part.labels.tolist() == [1, 0, 0, 2, UNKNOWN, UNKNOWN, UNKNOWN]
    assert (len(part), part.truncated) == (2, 1)
    assert part.counts == {"words": 7, "windowed_sentences": 1, "cut_words": 1, "blank_words": 1}
    for padded, width in ((True, 16), (False, 10)):
        found = batch(part, np.array([2, 0]), padded=padded)
        assert found.read.tokens.tolist() == [1, *(width + place for place in (1, 2, 6, 7))]
        assert found.read.rows.starts.tolist() == [0, 1, 5]
        assert not found.token_type_ids.any()


def of_words(labels: list[list[int]]) -> Examples:
    """Sentences of which only the labels matter."""
    flat = [label for sentence in labels for label in sentence]
    starts = np.cumsum([0, *map(len, labels)])
    asked = Asked((), (), tuple("w" for _ in flat), starts)
    return Examples(tuple("ab"[: len(labels)]), (), (), np.array([]), np.array(flat), 0, asked)


def test_scores_are_of_entities_as_the_scorer_reads_them() -> None:
    """An I- that nothing opened begins an entity, at a sentence's first word too; the sentence of unknown tags is left out."""
    head, task = heads.HEADS["tagging"], {"labels": LABELS, "metric": "entity_f1"}
    names = heads.scored_by(head, task)
    assert names == ("accuracy", "entity_f1", "precision", "recall")
    o, b_loc, i_loc, b_per, i_per = range(5)
    gold = of_words([[o, b_per, i_per, b_loc], [i_loc, o]])
    guessed = np.array([o, i_per, i_per, b_per, i_loc, i_loc])  # PER of two words: right; PER for LOC; LOC too long
    assert head.scores(names, gold, guessed, LABELS) == {
        "accuracy": 0.5,
        "entity_f1": 0.333333,
        "precision": 0.333333,
        "recall": 0.333333,
    }
    partly = of_words([[o, b_per, i_per, b_loc], [UNKNOWN, UNKNOWN]])
    assert head.scores(names, partly, guessed, LABELS) == {
        "accuracy": 0.5,
        "entity_f1": 0.5,
        "precision": 0.5,
        "recall": 0.5,
    }
    assert head.scores(names, of_words([[UNKNOWN]]), guessed[:1], LABELS) is None


def test_tags_that_are_no_entities_are_scored_as_classes(made: dict[str, Path]) -> None:
    head = heads.HEADS["tagging"]
    assert heads.scored_by(head, {"labels": ["NN", "VB"], "metric": "accuracy"}) == ("accuracy", "macro_f1")
    task = {"name": "mine", "kind": "tagging", "labels": ["outside", "person"], "metric": "entity_f1"}
    with pytest.raises(DataError, match="task mine is scored by entities, but its labels are outside, person"):
        heads.head_of(task)
