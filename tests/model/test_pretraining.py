"""Pretraining: learns, never loses or repeats a step, refuses what does not fit."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from model import checkpoint
from model.bert import BertForPretraining, initialize
from model.optimization.schedule import learning_rate
from model.pretraining import pretrain
from model.processes import lines
from model.processes.child import Stop
from model.training.baselines import baselines
from model.training.pretraining_loop import train
from pipeline.config import PretrainConfig, Shards, ShardsConfig
from pipeline.errors import DataError, StoreError, TrainingError
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import shard_schema
from pipeline.stage import ROOT
from pipeline.system import atomic
from tests.model.tiny import ARCHITECTURE, VOCABULARY, read_shards, write_rows, write_shards, write_vocabulary

RESULT = [
    "config.json",
    "held_out.json",
    "metrics.jsonl",
    "model.safetensors",
    "optimizer.json",
    "optimizer.safetensors",
]


def config_of(**changes: Any) -> PretrainConfig:
    plain = {
        "architecture": ARCHITECTURE,
        "sequence_length": 16,
        "steps": 48,
        "schedule_steps": 48,
        "warmup_steps": 5,
        "batch_size": 6,
        "learning_rate": 0.01,
        "max_predictions_per_seq": 3,
        "log_every": 7,
        "evaluate_every": 20,
    }
    return PretrainConfig.model_validate(plain | changes)


def job(
    folder: Path,
    shards: Path,
    config: PretrainConfig,
    previous: Path | None = None,
    seconds: float = 60,
    **training: Any,
) -> Path:
    folder.mkdir(exist_ok=True)
    atomic.write_json(
        folder / "config.json",
        {
            "config": config.plain(),
            "vocabulary_size": len(VOCABULARY),
            "vocabulary": str(folder),
            "shards": str(shards),
            "previous": None if previous is None else str(previous),
            "training": {"device": "cpu", "threads": 1, "checkpoint_seconds": seconds, **training},
        },
    )
    return folder


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


class StopAt(Stop):
    """Asks to stop at the n-th time that the loop looks."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    @property
    def asked(self) -> bool:  # type: ignore[override]
        self.left -= 1
        return self.left < 0


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, shards: Path) -> Path:
    """A run without interruption."""
    folder = job(tmp_path_factory.mktemp("whole"), shards, config_of())
    assert train(folder, Stop())
    return folder


def unmasked(folder: Path) -> Path:
    """The shards of `folder` as they are without stored masks and sentence task."""
    out = folder.parent / f"{folder.name}-unmasked"
    for part in ("train", "held_out"):
        (out / part).mkdir(parents=True, exist_ok=True)
        rows = pq.read_table(folder / part / "shard-00000-of-00001.parquet").to_pylist()
        for row in rows:
            for position, original in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
                row["input_ids"][position] = original
        kept = [{"input_ids": row["input_ids"], "documents": row["documents"]} for row in rows]
        schema = shard_schema(len(VOCABULARY), Shards(masking="dynamic", sentence_task="none"))
        pq.write_table(pa.Table.from_pylist(kept, schema), out / part / "shard.parquet")
    return out


MASKS = ShardsConfig(sequence_length=16, max_predictions_per_seq=3, masking="dynamic", sentence_task="none")


@pytest.mark.parametrize(
    "changes",
    [
        {"masks": MASKS.plain()},
        {"objective": "clm", "architecture": ARCHITECTURE.model_copy(update={"attention": "causal"}).plain()},
    ],
    ids=["dynamic masks", "left to right"],
)
def test_rows_without_stored_masks_train_and_resume_exactly(
    tmp_path: Path, shards: Path, changes: dict[str, Any]
) -> None:
    config = config_of(sentence_task="none", batch_size=24, learning_rate=0.003, **changes)
    whole = job(tmp_path / "whole", unmasked(shards), config)
    write_vocabulary(whole)
    assert train(whole, Stop())
    rows = [row for row in lines.read(whole / "result" / "metrics.jsonl") if "loss" in row]
    assert rows[-1]["loss"] < rows[0]["loss"] < math.log(20) + 0.5
    assert rows[-1]["loss"] < math.log(15)  # better than who knows only how frequent each of the 15 words is
    scores = json.loads((whole / "result" / "held_out.json").read_text())
    assert scores["masked_words"] > 0
    assert scores["nsp_accuracy"] is None
    halved = job(tmp_path / "halved", unmasked(shards), config)
    write_vocabulary(halved)
    assert not train(halved, StopAt(25))
    assert train(halved, Stop())
    assert files(halved / "result") == files(whole / "result")


def test_shards_of_another_kind_are_refused(tmp_path: Path, shards: Path) -> None:
    with pytest.raises(DataError, match="hold no masks"):
        train(job(tmp_path / "a", unmasked(shards), config_of(sentence_task="none")), Stop())
    folder = job(tmp_path / "b", shards, config_of(masks=MASKS.plain()))
    with pytest.raises(DataError, match="hold masks"):
        train(folder, Stop())


def test_what_a_run_leaves(whole: Path) -> None:
    result = whole / "result"
    assert sorted(set(files(result)) - {"manifest.json"}) == RESULT
    rows = lines.read(result / "metrics.jsonl")
    trained = [row for row in rows if "loss" in row]
    assert [row["step"] for row in trained] == [7, 14, 21, 28, 35, 42, 48]
    assert [row["step"] for row in rows if "held_out" in row] == [20, 40, 48]
    for row in trained:
        assert row["loss"] == pytest.approx(row["mlm_loss"] + row["nsp_loss"], rel=1e-4)
        assert row["learning_rate"] == pytest.approx(learning_rate(row["step"] - 1, 0.01, 5, 48), rel=1e-5)
        assert 0 <= row["padding_share"] < 0.5 and row["gradient_norm"] > 0 and row["skipped_steps"] == 0
    # untrained: about ln 20 + ln 2; at the end better than who knows only how frequent each of the 15 words is
    assert trained[0]["loss"] == pytest.approx(math.log(20) + math.log(2), abs=0.5)
    assert trained[-1]["mlm_loss"] < math.log(15)
    scores = json.loads((result / "held_out.json").read_text())
    assert {name: scores[name] for name in ("mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy")} == rows[-1][
        "held_out"
    ]
    assert (scores["step"], scores["sequences"]) == (48, 12)
    assert json.loads((result / "optimizer.json").read_text()) == {"optimizer": "adamw", "step": 48, "updates": 48}
    described = json.loads((result / "config.json").read_text())
    assert described["vocabulary_size"] == len(VOCABULARY) and described["architecture"]["hidden"] == 16
    text = b"".join(data for name, data in files(result).items() if name.endswith(("json", "jsonl")))
    assert str(whole).encode() not in text and b"second" not in text


def test_held_out_scores_are_those_of_the_published_weights(whole: Path, shards: Path) -> None:
    """Computed row by row and unpadded, unlike the loop."""
    model = BertForPretraining(ARCHITECTURE, len(VOCABULARY), "nsp")
    model.load_state_dict(checkpoint.load_tensors(whole / "result" / "model.safetensors"))
    model.eval()
    held_out, right, losses, pairs = read_shards(shards / "held_out"), 0, [], []
    for i in range(len(held_out)):
        row = held_out.row(i)
        ids = torch.from_numpy(row.input_ids.astype(np.int64))[None]
        types = (torch.arange(ids.shape[1]) >= row.token_type_start).long()[None]
        positions = torch.tensor([[0, *row.masked_positions.tolist()]])
        places = torch.arange(1, positions.shape[1])
        with torch.inference_mode():
            words, sentences = model(ids, types, torch.ones_like(ids, dtype=torch.bool), positions, places)
        targets = torch.from_numpy(row.masked_ids.astype(np.int64))
        losses += (-words.log_softmax(1)[torch.arange(len(targets)), targets]).tolist()
        right += int((words.argmax(1) == targets).sum())
        pairs.append(-sentences.log_softmax(1)[0, row.label].item())
    scores = json.loads((whole / "result" / "held_out.json").read_text())
    assert scores["masked_words"] == len(losses)
    assert scores["mlm_loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert scores["mlm_accuracy"] == pytest.approx(right / len(losses), rel=1e-5)
    assert scores["nsp_loss"] == pytest.approx(np.mean(pairs), rel=1e-4)


def test_baselines_by_hand(tmp_path: Path) -> None:
    def row(ids: list[int], label: int) -> dict[str, Any]:
        positions = list(range(1, len(ids) + 1))
        return {"input_ids": [2, *ids], "token_type_start": 1, "masked_lm_positions": positions, "masked_lm_ids": ids,
                "next_sentence_label": label, "documents": ["d"]}  # fmt: skip

    train_rows = [row([7, 7, 9], 1), row([7, 8], 1), row([9], 0)]
    held_out = [row([7, 9, 9, 7], 1), row([7], 0), row([9, 9], 1)]
    seen = ShardReader(write_rows(tmp_path / "train", train_rows, 20))
    guesses = baselines(seen, ShardReader(write_rows(tmp_path / "held_out", held_out, 20)), 3)
    # 7 is most frequent in training: 3 of 7 held-out words; label 1: 2 of 3
    assert guesses == {
        "most_frequent_token_id": 7,
        "most_frequent_token_accuracy": pytest.approx(3 / 7, rel=1e-5),
        "nsp_majority_accuracy": pytest.approx(2 / 3, rel=1e-5),
    }
    first_row = baselines(seen, ShardReader(tmp_path / "held_out"), 1)
    assert first_row["most_frequent_token_accuracy"] == 0.5


def test_equal_jobs_give_equal_bytes_and_another_seed_does_not(tmp_path: Path, shards: Path, whole: Path) -> None:
    again = job(tmp_path / "again", shards, config_of())
    torch.manual_seed(99)
    np.random.seed(99)
    assert train(again, Stop())
    assert files(again / "result") == files(whole / "result")
    other = job(tmp_path / "other", shards, config_of(seed=2))
    assert train(other, Stop())
    assert files(other / "result")["model.safetensors"] != files(whole / "result")["model.safetensors"]


@pytest.mark.parametrize("looks", [0, 1, 5, 7, 10, 14, 20, 21, 22, 23, 40, 47, 50, 53])
def test_stopping_and_going_on_gives_the_bytes_of_one_run(
    tmp_path: Path, shards: Path, whole: Path, looks: int
) -> None:
    """Cuts at the start, at an epoch's edge (6⅔ steps), in warm-up, in each evaluation (2 batches), at the last step."""
    folder = job(tmp_path / "run", shards, config_of())
    assert not train(folder, StopAt(looks))
    assert not (folder / "result").exists() and len(checkpoint.steps(folder / "checkpoints")) == 1
    assert train(folder, Stop())
    assert files(folder / "result") == files(whole / "result")


def test_many_stops_in_one_run(tmp_path: Path, shards: Path, whole: Path) -> None:
    folder = job(tmp_path / "run", shards, config_of())
    stops = 0
    while not train(folder, StopAt(4)):
        stops += 1
    assert stops > 10
    assert files(folder / "result") == files(whole / "result")
    assert sum("device" in row for row in lines.read(folder / "timing.jsonl")) == stops + 1


def test_killed_processes_give_the_bytes_of_one_run(tmp_path: Path, shards: Path) -> None:
    """kill −9, at several points, before and after the first checkpoint; then to the end."""
    config = config_of(steps=150, schedule_steps=150, log_every=3, evaluate_every=40)
    reference = job(tmp_path / "whole", shards, config)
    assert train(reference, Stop())
    folder = job(tmp_path / "run", shards, config, seconds=0.1)
    metrics = folder / "metrics.jsonl"
    for rows in (1, 20, 40):
        process = subprocess.Popen([sys.executable, "-m", "model.pretrain", str(folder)], cwd=ROOT)
        deadline = time.monotonic() + 60
        while len(lines.read(metrics)) < rows:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        with metrics.open("ab") as torn:
            torn.write(b'{"step": ')  # as a power cut leaves it
    assert checkpoint.steps(folder / "checkpoints")
    assert train(folder, Stop())
    assert files(folder / "result") == files(reference / "result")
    steps = [row["step"] for row in lines.read(folder / "result" / "metrics.jsonl") if "loss" in row]
    assert steps == list(range(3, 151, 3))


def test_sigterm_saves_and_exits_143(tmp_path: Path, shards: Path) -> None:
    folder = job(tmp_path / "run", shards, config_of(steps=1_000_000, schedule_steps=1_000_000))
    process = subprocess.Popen([sys.executable, "-m", "model.pretrain", str(folder)], cwd=ROOT)
    while not lines.read(folder / "metrics.jsonl"):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    saved = checkpoint.newest(folder / "checkpoints")
    assert saved is not None and saved.step >= 7


def test_a_broken_newest_checkpoint_costs_the_steps_since_the_one_before(
    tmp_path: Path, shards: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = job(tmp_path / "run", shards, config_of())
    train(folder, StopAt(12))
    train(folder, StopAt(20))
    newest = checkpoint.steps(folder / "checkpoints")[0]
    (newest / "model.safetensors").write_bytes(b"")
    assert train(folder, Stop())
    assert "is set aside" in capsys.readouterr().err
    assert files(folder / "result") == files(whole / "result")


def test_a_finished_run_is_not_trained_again_and_a_broken_result_is_made_anew(
    tmp_path: Path, shards: Path, whole: Path
) -> None:
    folder = job(tmp_path / "run", shards, config_of())
    train(folder, Stop())
    before = (folder / "timing.jsonl").read_bytes()
    assert train(folder, Stop())
    assert (folder / "timing.jsonl").read_bytes() == before
    (folder / "result" / "held_out.json").write_text("{}")
    assert train(folder, Stop())
    assert files(folder / "result") == files(whole / "result")


def test_another_recipe_in_the_same_folder_is_refused_with_the_difference(tmp_path: Path, shards: Path) -> None:
    folder = job(tmp_path / "run", shards, config_of())
    train(folder, StopAt(9))
    job(folder, shards, config_of(batch_size=12))
    with pytest.raises(TrainingError, match="batch_size 6 → 12"):
        train(folder, Stop())


def test_other_rows_in_the_same_place_are_refused(tmp_path: Path, shards: Path) -> None:
    """As many rows of the same lengths, in another order."""
    there = tmp_path / "shards"
    shutil.copytree(shards, there)
    folder = job(tmp_path / "run", there, config_of())
    train(folder, StopAt(9))
    path = sorted((there / "train").glob("*.parquet"))[0]
    table = pq.read_table(path)
    pq.write_table(table.take(list(reversed(range(len(table))))), path)
    with pytest.raises(TrainingError, match="belongs to another job: shards '[0-9a-f]{12}' → '[0-9a-f]{12}'"):
        train(folder, Stop())


def test_words_in_another_order_are_refused(tmp_path: Path, shards: Path) -> None:
    folder = job(tmp_path / "run", shards, config_of())
    write_vocabulary(folder)
    train(folder, StopAt(9))
    words = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("\n".join([*words[:-2], words[-1], words[-2]]) + "\n")
    with pytest.raises(TrainingError, match="belongs to another job: vocabulary "):
        train(folder, Stop())


def test_a_cut_curve_costs_steps_where_an_older_checkpoint_has_its_rows(
    tmp_path: Path, shards: Path, whole: Path
) -> None:
    folder = job(tmp_path / "run", shards, config_of())
    train(folder, StopAt(12))
    rows = (folder / "metrics.jsonl").read_bytes()
    train(folder, StopAt(20))
    assert len((folder / "metrics.jsonl").read_bytes()) > len(rows)
    (folder / "metrics.jsonl").write_bytes(rows)
    assert train(folder, Stop())
    assert files(folder / "result") == files(whole / "result")


@pytest.mark.parametrize("left", [None, b"", b'{"step": 7, "loss": 1.0, "skipped_steps": 0}\n{"st'])
def test_a_lost_curve_does_not_cost_the_training(
    tmp_path: Path, shards: Path, whole: Path, left: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights and optimizer are those of an undisturbed run; the curve begins where it was lost, and the log says so."""
    folder = job(tmp_path / "run", shards, config_of())
    train(folder, StopAt(25))
    saved = checkpoint.newest(folder / "checkpoints")
    assert saved is not None and 20 < saved.step < 48
    (folder / "metrics.jsonl").unlink()
    if left is not None:
        (folder / "metrics.jsonl").write_bytes(left)
    assert train(folder, Stop())
    assert f"metrics.jsonl lacks rows from before step {saved.step}" in capsys.readouterr().err
    ours, theirs = files(folder / "result"), files(whole / "result")
    for name in ("model.safetensors", "optimizer.safetensors", "held_out.json"):
        assert ours[name] == theirs[name]
    steps = [row["step"] for row in lines.read(folder / "result" / "metrics.jsonl") if "loss" in row]
    expected = [step for step in (7, 14, 21, 28, 35, 42, 48) if step > saved.step or (left and step == 7)]
    assert steps == expected


def test_a_disk_without_room_for_two_checkpoints_is_told_before_the_first_step(tmp_path: Path, shards: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root and a kernel that allows it")
    try:
        folder = job(disk / "run", shards, config_of())
        with pytest.raises(StoreError, match=r"has room for [\d.]+ kB, two checkpoints of this model take [\d.]+ kB"):
            train(folder, Stop())
        assert not (folder / "checkpoints").exists() and not (folder / "metrics.jsonl").exists()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_the_second_phase_goes_on_with_weights_optimizer_and_schedule(
    tmp_path: Path, shards: Path, whole: Path
) -> None:
    first = job(tmp_path / "first", shards, config_of(steps=30))
    assert train(first, Stop())
    second = job(tmp_path / "second", shards, config_of(steps=18, first_step=30, sequence_length=32), first / "result")
    assert train(second, Stop())
    rows = [row for row in lines.read(second / "result" / "metrics.jsonl") if "loss" in row]
    assert [row["step"] for row in rows] == [7, 14, 18]
    assert rows[0]["learning_rate"] == pytest.approx(0.01 * (1 - 36 / 48), rel=1e-5)
    before = lines.read(first / "result" / "metrics.jsonl")
    assert rows[0]["mlm_loss"] < before[0]["mlm_loss"] - 0.2
    assert json.loads((second / "result" / "optimizer.json").read_text()) == {
        "optimizer": "adamw",
        "step": 48,
        "updates": 48,
    }
    moments = checkpoint.load_tensors(second / "result" / "optimizer.safetensors")
    assert all(torch.isfinite(moment).all() for moment in moments.values())
    # a first step without the first phase's moments would differ: cut at step 0 and look what was taken over
    third = job(tmp_path / "third", shards, config_of(steps=18, first_step=30, sequence_length=32), first / "result")
    assert not train(third, StopAt(0))
    start = checkpoint.newest(third / "checkpoints")
    assert start is not None and start.step == 0
    for name in ("model", "optimizer"):
        published = checkpoint.load_tensors(first / "result" / f"{name}.safetensors")
        assert all(torch.equal(tensor, published[key]) for key, tensor in start.tensors(name).items())
    assert train(third, Stop())
    assert files(third / "result") == files(second / "result")


def test_the_phase_before_must_be_of_the_same_model(tmp_path: Path, shards: Path, whole: Path) -> None:
    other = ARCHITECTURE.model_copy(update={"layers": 1})
    folder = job(tmp_path / "run", shards, config_of(architecture=other), whole / "result")
    with pytest.raises(DataError, match="the phase before trained another model: architecture"):
        train(folder, Stop())


def test_first_weights_are_those_of_initialize(tmp_path: Path, shards: Path) -> None:
    folder = job(tmp_path / "run", shards, config_of(seed=31))
    train(folder, StopAt(0))
    start = checkpoint.newest(folder / "checkpoints")
    model = BertForPretraining(ARCHITECTURE, len(VOCABULARY), "nsp")
    initialize(model, 31)
    assert start is not None
    saved: Mapping[str, torch.Tensor] = start.tensors("model")
    assert all(torch.equal(saved[name], value) for name, value in model.state_dict().items())


def test_gradients_that_stay_infinite_end_the_run_and_poison_no_checkpoint(tmp_path: Path, shards: Path) -> None:
    config = config_of(learning_rate=1e30, warmup_steps=0, log_every=1)
    folder = job(tmp_path / "run", shards, config, seconds=1e-9)
    with pytest.raises(TrainingError, match="11 steps in a row.* 3 times did not help") as failed:
        train(folder, Stop())
    assert "Lower learning_rate" in failed.value.todo
    rows = lines.read(folder / "metrics.jsonl")
    assert rows[-1]["skipped_steps"] > 0 and "loss" not in rows[-1]
    assert all(math.isfinite(row["loss"]) for row in rows if "loss" in row)
    saved = checkpoint.newest(folder / "checkpoints")
    assert saved is not None and saved.state["progress"]["skipped_in_a_row"] == 0
    assert all(torch.isfinite(weight).all() for weight in saved.tensors("model").values())


def test_without_sentence_task(tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "shards", sentence_task="none")
    folder = job(tmp_path / "run", shards, config_of(sentence_task="none"))
    assert train(folder, Stop())
    row = lines.read(folder / "result" / "metrics.jsonl")[0]
    assert row["nsp_loss"] is None and row["loss"] == row["mlm_loss"]
    scores = json.loads((folder / "result" / "held_out.json").read_text())
    assert scores["nsp_accuracy"] is None and scores["baselines"]["nsp_majority_accuracy"] is None


@pytest.mark.parametrize("tokens", [1, 40, 64])
def test_a_batch_in_parts_gives_the_losses_of_the_batch(tmp_path: Path, shards: Path, tokens: int) -> None:
    """One, two and four rows of 16 tokens at once, of batches of 6 that never come out even; without dropout."""
    still = ARCHITECTURE.model_copy(update={"dropout": 0.0})
    config = config_of(architecture=still, log_every=1, learning_rate=1e-3, bias_correction=True)
    assert train(job(tmp_path / "whole", shards, config), Stop())
    assert train(job(tmp_path / "parts", shards, config, micro_batch_tokens=tokens), Stop())
    one, two = (lines.read(tmp_path / name / "result" / "metrics.jsonl") for name in ("whole", "parts"))
    assert len(one) == len(two)
    for whole_row, row in zip(one, two, strict=True):
        for name in ("loss", "mlm_loss", "nsp_loss", "gradient_norm"):
            if name in row:  # metrics have six digits, and rounding grows over the steps
                assert row[name] == pytest.approx(whole_row[name], rel=2e-6 if row["step"] == 1 else 2e-5)
        for name in ("mlm_accuracy", "nsp_accuracy", "learning_rate"):
            assert row.get(name) == whole_row.get(name)


def test_parts_of_another_size_go_on_with_a_warning(
    tmp_path: Path, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = job(tmp_path / "run", shards, config_of())
    assert not train(folder, StopAt(9))
    job(folder, shards, config_of(), micro_batch_tokens=32)
    assert train(folder, Stop())
    assert "resumed with another micro_batch_tokens None → 32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "rates"),
    [
        # warm-up 5 to 0.01 and the root of what is left: √(1 − 20 / 48), √(1 / 48)
        (
            {"optimizer": "lamb", "bias_correction": True, "decay_power": 0.5},
            {1: 0.002, 21: 0.00763763, 48: 0.00144338},
        ),
        # constant, then a line over the last 8
        ({"decay_steps": 8}, {1: 0.002, 6: 0.01, 41: 0.01, 45: 0.005, 48: 0.00125}),
    ],
)
def test_other_optimizers_and_schedules(
    tmp_path: Path, shards: Path, changes: dict[str, Any], rates: dict[int, float]
) -> None:
    config = config_of(log_every=1, **changes)
    folder = job(tmp_path / "run", shards, config)
    assert train(folder, Stop())
    rows = [row for row in lines.read(folder / "result" / "metrics.jsonl") if "loss" in row]
    found = {row["step"]: row["learning_rate"] for row in rows}
    assert {step: found[step] for step in rates} == pytest.approx(rates, rel=1e-5)
    assert rows[-1]["mlm_loss"] < rows[0]["mlm_loss"] - 0.2
    stopped = job(tmp_path / "stopped", shards, config)
    assert not train(stopped, StopAt(30))
    assert train(stopped, Stop())
    assert files(stopped / "result") == files(folder / "result")
    assert ("stable/model.safetensors" in files(folder / "result")) == ("decay_steps" in changes)


def test_bf16_trains(tmp_path: Path, shards: Path) -> None:
    folder = job(tmp_path / "run", shards, config_of(precision="bf16"))
    assert train(folder, Stop())
    rows = [row for row in lines.read(folder / "result" / "metrics.jsonl") if "loss" in row]
    assert rows[-1]["mlm_loss"] < math.log(15)


def test_shards_of_another_vocabulary_are_refused(tmp_path: Path, shards: Path) -> None:
    folder = job(tmp_path / "run", shards, config_of())
    plain = json.loads((folder / "config.json").read_text())
    atomic.write_json(folder / "config.json", plain | {"vocabulary_size": 10})
    with pytest.raises(DataError, match="the vocabulary has 10 tokens"):
        train(folder, Stop())


@pytest.fixture
def settings_of_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("training: {device: cpu, threads: 1}\n")
    monkeypatch.setenv("BERT_SETTINGS", str(path))


def test_the_stage(tmp_path: Path, shards: Path, whole: Path, settings_of_one_thread: None) -> None:
    run, out, again = tmp_path / "run", tmp_path / "out", tmp_path / "again"
    for folder in (run, out, again):
        folder.mkdir()
    inputs = {
        "pretraining_shards": shards,
        "wordpiece_vocab": write_vocabulary(tmp_path / "vocabulary"),
        "run": run,
    }
    statistics = pretrain(inputs, config_of(), out)
    words = {name: (tmp_path / "vocabulary" / name).read_bytes() for name in ("vocab.txt", "tokenizer.json")}
    assert sorted(files(out)) == sorted([*RESULT, *words, "begun.json"])
    trained = {name: data for name, data in files(whole / "result").items() if name != "manifest.json"}
    assert {name: data for name, data in files(out).items() if name != "begun.json"} == trained | words
    assert json.loads((out / "begun.json").read_text()) == {"begun": "scratch", "drawn": ["all"], "imported": False}
    assert statistics["begun"] == "scratch"
    assert json.loads(json.dumps(statistics)) == statistics
    assert (statistics["steps"], statistics["sequences"], statistics["epochs"]) == (48, 288, pytest.approx(288 / 40))
    assert statistics["resume_count"] == 0 and statistics["device"] == "cpu" and statistics["threads"] == 1
    assert statistics["held_out"] == json.loads((out / "held_out.json").read_text())
    assert statistics["accelerator_hours"] > 0 and statistics["tokens_per_second"] > 0
    # the process that publishes was killed after the training: its result is taken, nothing is trained again
    before = (run / "timing.jsonl").read_bytes()
    assert pretrain(inputs, config_of(), again) == statistics
    assert (run / "timing.jsonl").read_bytes() == before and files(again) == files(out)


def test_hours_shorten_the_schedule_once_and_a_resumed_run_keeps_its_plan(tmp_path: Path, shards: Path) -> None:
    """40 % of what 200,000 steps would take at the measured rate; the plan of a run is not made again."""
    long = {"steps": 200_000, "schedule_steps": 200_000, "warmup_steps": 20_000, "evaluate_every": 1_000_000}
    unlimited = job(tmp_path / "unlimited", shards, config_of(**long))
    assert not train(unlimited, StopAt(0))
    assert not (unlimited / "plan.json").exists()
    folder = job(tmp_path / "run", shards, config_of(**long, max_hours=0.0001))
    assert not train(folder, StopAt(3))
    plan = json.loads((folder / "plan.json").read_text())
    steps = plan["steps"]
    assert 2 <= steps < 200_000 and steps == pytest.approx(0.36 / plan["seconds_per_step"], rel=0.05, abs=1)
    before = (folder / "plan.json").read_bytes()
    assert train(folder, Stop())
    assert (folder / "plan.json").read_bytes() == before
    starts = [row for row in lines.read(folder / "timing.jsonl") if "steps" in row]
    assert [row["steps"] for row in starts] == [steps, steps] and starts[1]["resumed"]
    assert json.loads((folder / "result" / "optimizer.json").read_text())["step"] == steps
    rows = [row for row in lines.read(folder / "result" / "metrics.jsonl") if "learning_rate" in row]
    assert rows[-1]["step"] == steps
    # The last rate of a line to 0 over these steps, or of the warm-up where it is longer than all but one.
    warmup = min(int(20_000 * steps / 200_000), steps - 1)
    assert rows[-1]["learning_rate"] == pytest.approx(learning_rate(steps - 1, 0.01, warmup, steps), rel=1e-4)


def test_hours_that_leave_no_step_are_refused_and_not_remembered(tmp_path: Path, shards: Path) -> None:
    folder = job(tmp_path / "run", shards, config_of(max_hours=1e-9))
    with pytest.raises(TrainingError, match="leaves [01] steps"):
        train(folder, Stop())
    assert not (folder / "plan.json").exists()
    (folder / "plan.json").write_text('{"steps": 0}')  # as an earlier version left it
    assert train(job(folder, shards, config_of(max_hours=1.0)), Stop())


@pytest.mark.parametrize("left", [None, "", '{"steps": "many"}', "[1]"])
def test_a_lost_or_broken_plan_is_that_of_the_checkpoint(tmp_path: Path, shards: Path, left: str | None) -> None:
    """40 steps, as the checkpoint tells: made anew, the plan would have 48."""
    folder = job(tmp_path / "run", shards, config_of(max_hours=1.0))
    plan = folder / "plan.json"
    plan.write_text('{"steps": 40}')
    assert not train(folder, StopAt(12))
    plan.unlink()
    if left is not None:
        plan.write_text(left)
    assert train(folder, Stop())
    assert json.loads(plan.read_text())["steps"] == 40
    assert json.loads((folder / "result" / "optimizer.json").read_text())["step"] == 40


def test_curves_of_tensorboard_are_those_of_metrics(tmp_path: Path, shards: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = job(tmp_path / "run", shards, config_of(first_step=1000, schedule_steps=2000))
    assert not train(folder, StopAt(30))
    assert train(folder, Stop())
    seen = EventAccumulator(str(folder / "tensorboard"), purge_orphaned_data=True)
    seen.Reload()
    rows = [row for row in lines.read(folder / "metrics.jsonl") if "loss" in row]
    drawn = [(event.step, event.value) for event in seen.Scalars("training/loss")]
    assert [step for step, _ in drawn] == [1000 + row["step"] for row in rows]
    assert [value for _, value in drawn] == pytest.approx([row["loss"] for row in rows], rel=1e-6)
    held_out = [row["held_out"]["mlm_loss"] for row in lines.read(folder / "metrics.jsonl") if "held_out" in row]
    assert [event.value for event in seen.Scalars("held_out/mlm_loss")] == pytest.approx(held_out, rel=1e-6)
