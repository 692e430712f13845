"""Batches without a finite gradient are gone around, spikes are told, the best weights are published."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from model import checkpoint
from model.bert import BertForPretraining, initialize
from model.feeding.order import mix, rows_at
from model.optimization.optimizer import AdamW
from model.processes import lines
from model.processes.child import Stop
from model.training.pretraining_loop import train
from pipeline.config import Shards
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import shard_schema
from tests.model.test_pretraining import StopAt, config_of, files, job
from tests.model.tiny import ARCHITECTURE, VOCABULARY, rows_of, write_rows

BAD = 72
"""rows of the row group that has no finite gradient: 12 batches"""


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Shards, and the phase before, whose last position embedding is so large that a sum over it overflows: a row that
    reaches position 15 has no finite gradient. One row group of three holds such rows."""
    folder = tmp_path_factory.mktemp("poisoned")
    good, bad = rows_of(2 * BAD, 12, 1), rows_of(BAD, 12, 2)
    for row in bad:
        row["input_ids"] = (row["input_ids"] * 3)[:16]
    rows = [*good[:BAD], *bad, *good[BAD:]]
    (folder / "shards" / "train").mkdir(parents=True)
    table = pa.Table.from_pylist(rows, schema=shard_schema(len(VOCABULARY), Shards()))
    pq.write_table(table, folder / "shards" / "train" / "shard-00000-of-00001.parquet", row_group_size=BAD)
    write_rows(folder / "shards" / "held_out", rows_of(12, 12, 3), len(VOCABULARY))
    model = BertForPretraining(ARCHITECTURE, len(VOCABULARY), "nsp")
    initialize(model, 1)
    with torch.no_grad():
        model.encoder.embeddings.position.weight[15] = 3e38
    before = folder / "before"
    before.mkdir()
    checkpoint.save_tensors(model.state_dict(), before / "model.safetensors")
    checkpoint.save_tensors(AdamW(model.named_parameters()).state(), before / "optimizer.safetensors")
    (before / "optimizer.json").write_text('{"updates": 0}')
    shape = {"architecture": ARCHITECTURE.plain(), "vocabulary_size": len(VOCABULARY), "sentence_task": "nsp"}
    (before / "config.json").write_text(json.dumps(shape))
    return folder / "shards", before


def expected(bad: set[int], steps: int) -> tuple[list[int], int]:
    """Batches that are passed over, and steps that are skipped, by walking: the 11th bad one in a row leads back."""
    passed: list[int] = []
    while True:
        batches = [n for n in range(1000) if n not in passed][:steps]
        in_a_row: list[int] = []
        for batch in batches:
            in_a_row = [*in_a_row, batch] if batch in bad else []
            if len(in_a_row) == 11:
                break
        else:
            return passed, sum(batch in bad for batch in batches)
        passed += in_a_row


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_run_goes_around_batches_without_a_finite_gradient(
    tmp_path: Path, poisoned: tuple[Path, Path], seed: int
) -> None:
    """An epoch is 36 batches, 12 of them bad in a row: 11 are gone around, the last is skipped."""
    shards, before = poisoned
    config = config_of(seed=seed, steps=60, schedule_steps=60, log_every=1, learning_rate=0.003)
    whole = job(tmp_path / "whole", shards, config, before)
    assert train(whole, Stop())
    reader = ShardReader(shards / "train")
    order = rows_at(0, 6 * 120, reader.sizes, mix(seed, 0)).reshape(-1, 6)
    bad = {number for number, rows in enumerate(order) if (reader.take(rows).lengths == 16).any()}
    passed, skipped = expected(bad, 60)
    rows = lines.read(whole / "result" / "metrics.jsonl")
    told = [n for row in rows if "passed_over" in row for n in range(*row["passed_over"])]
    assert told == sorted(passed) and passed
    assert all(row["samples"] == [6 * n for n in row["passed_over"]] for row in rows if "passed_over" in row)
    trained = [row for row in rows if "learning_rate" in row]
    assert [row["step"] for row in trained] == list(range(1, 61))
    assert trained[-1]["skipped_steps"] == skipped
    events = [row["batches"] for row in lines.read(whole / "timing.jsonl") if "rolled_back_from" in row]
    assert [n for first, last in events for n in range(first, last + 1)] == passed
    weights = checkpoint.load_tensors(whole / "result" / "model.safetensors")
    assert all(weight.isfinite().all() for weight in weights.values())

    # Checkpoints at other steps, and stops on the way, change nothing of it.
    for name, seconds, looks in (("often", 1e-9, 1000), ("stopped", 60.0, 40)):
        folder = job(tmp_path / name, shards, config, before, seconds=seconds)
        while not train(folder, StopAt(looks)):
            pass
        assert files(folder / "result") == files(whole / "result")


def test_the_best_weights_are_published_where_the_recipe_says_so(tmp_path: Path) -> None:
    """A learning rate that ruins the model after a while: the last weights are not the best."""
    shards = tmp_path / "shards"
    write_rows(shards / "train", rows_of(40, 16, 1), len(VOCABULARY))
    write_rows(shards / "held_out", rows_of(12, 16, 2), len(VOCABULARY))
    config = config_of(learning_rate=0.3, warmup_steps=40, evaluate_every=4, publish="best")
    whole = job(tmp_path / "whole", shards, config)
    assert train(whole, Stop())
    rows = [row for row in lines.read(whole / "result" / "metrics.jsonl") if "held_out" in row]
    losses = {row["step"]: row["held_out"]["mlm_loss"] for row in rows}
    best = min(losses, key=lambda step: (losses[step], step))
    assert best < 48
    scores = json.loads((whole / "result" / "held_out.json").read_text())
    assert (scores["step"], scores["mlm_loss"]) == (best, losses[best])
    assert json.loads((whole / "result" / "optimizer.json").read_text()) == {
        "optimizer": "adamw",
        "step": best,
        "updates": best,
    }
    assert [path.name for path in whole.glob("best-*")] == [f"best-{best}"]
    stopped = job(tmp_path / "stopped", shards, config)
    while not train(stopped, StopAt(7)):
        pass
    assert files(stopped / "result") == files(whole / "result")
    # They are the weights of that step: held-out scores computed from them are those.
    again = config_of(**config.plain() | {"steps": 1, "evaluate_every": 1, "warmup_steps": 0, "learning_rate": 1e-30})
    follower = job(tmp_path / "follower", shards, again, whole / "result")
    assert train(follower, Stop())
    followed = json.loads((follower / "result" / "held_out.json").read_text())
    assert followed["mlm_loss"] == pytest.approx(losses[best], rel=1e-5)
