"""The benchmark of fine-tuning measures what it says it does, on made-up pairs."""

import json
import os
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import finetuning
from pipeline.config import FinetuneConfig
from pipeline.errors import DataError
from tests.conftest import shared

CONFIG = FinetuneConfig(task="made_up", seeds=1, learning_rate=1e-3, epochs=2)


def test_all_sides_make_the_same_steps_from_the_same_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = finetuning.made_up(tmp_path, 160)
    assert finetuning.difference(inputs, CONFIG) < 1e-5
    found = finetuning.a_round(inputs, CONFIG, 3)
    assert set(found) == set(finetuning.SIDES)
    for side in found.values():
        assert side.steps == [3, 2] * 2  # 160 examples in batches of 32: 5 steps an epoch, turns end with it
        assert min(side.wall) > 0 and min(side.cpu) > 0
        assert side.scoring_seconds is not None and side.scoring_seconds > 0
        assert 0 < side.scores["accuracy"] <= 1
    capsys.readouterr()
    finetuning.report([found], 160 * CONFIG.epochs, 128, 53.0)
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(finetuning.SIDES) + 2
    ours = sum(found[finetuning.OURS].wall)
    assert f"{160 * CONFIG.epochs / ours:,.1f} sequences/s" in told[2]


def test_the_clock_counts_steps_and_neither_scoring_nor_the_turns_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    asked, asking = os.pipe()
    lines = os.fdopen(asked)
    monkeypatch.setattr("sys.stdin", lines)
    os.write(asking, b"2\n")
    turns, own = finetuning.Turns(writing), []

    def step() -> None:
        assert not turns.asked
        began = time.perf_counter()
        time.sleep(0.01)
        turns.updated()
        own.append(time.perf_counter() - began)

    def asked_later() -> None:
        time.sleep(0.5)
        os.write(asking, b"1\n")

    step()
    step()
    other = threading.Thread(target=asked_later)
    other.start()
    for _ in range(3):  # the first look ends the turn and waits for the next
        assert not turns.asked
        time.sleep(0.2)
    step()
    other.join()
    os.write(asking, b"1\n")
    assert not turns.asked
    turns.end({"accuracy": 1.0})
    first, second, end = (json.loads(line) for line in os.read(reading, 1 << 16).splitlines())
    assert (first["steps"], second["steps"]) == (2, 1)
    assert sum(own[:2]) <= first["wall"] < sum(own[:2]) + 0.4
    assert own[2] <= second["wall"] < own[2] + 0.4
    assert first["cpu"] < first["wall"]
    assert 0.6 <= end["scoring"] < 1.1 and end["scores"] == {"accuracy": 1.0}
    lines.close()
    for descriptor in (reading, writing, asking):
        os.close(descriptor)


def test_a_task_of_real_files(tmp_path: Path) -> None:
    folder = shared("data/finetune/glue/RTE")
    (tmp_path / "network").mkdir()
    network = finetuning.made_up(tmp_path / "network").checkpoint
    (tmp_path / "real").mkdir()
    inputs = finetuning.of_files(network, "rte", folder, 64, tmp_path / "real")
    assert pq.read_metadata(inputs.task_data / "train.parquet").num_rows == 64
    assert pq.read_metadata(inputs.task_data / "dev.parquet").num_rows == 277  # GLUE's
    assert finetuning.difference(inputs, CONFIG) < 1e-5
    with pytest.raises(DataError, match="stsb is a task of kind regression"):
        (tmp_path / "other").mkdir()
        finetuning.of_files(network, "stsb", shared("data/finetune/glue/STS-B"), None, tmp_path / "other")
