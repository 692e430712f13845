"""torch-xla, for real, on the CPU: what it computes is what torch does, and a resumed run repeats itself. `make test-xla`.

Compiling is nearly all of the time, so that the runs of this file have the same few forms, compiled with little optimisation.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model import checkpoint
from model.devices import open_device
from model.feeding.batches import batch_of
from model.feeding.feed import Feed
from model.feeding.order import mix
from model.processes import lines
from model.processes.child import Stop
from model.training import pretraining_loop
from model.training.pretraining_loop import train
from pipeline.config import Shards
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import shard_schema
from pipeline.stage import ROOT
from tests.model.test_pretraining import StopAt, config_of, files, job
from tests.model.tiny import ARCHITECTURE, VOCABULARY, rows_of, write_rows, write_shards

pytestmark = [pytest.mark.xla, pytest.mark.slow]

TOLERANCE = 2e-5
"""relative, of losses that are rounded to six digits, after up to 24 steps"""
FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
ROWS = 30
"""of a row group: five batches of 8 tokens and five of 16"""


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PJRT_DEVICE", "CPU")
        patch.setenv("XLA_FLAGS", FLAGS)
        open_device("xla", 1)  # before anything is differentiated on the CPU
        yield


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    rows = [*rows_of(ROWS, 8, 1), *rows_of(ROWS, 16, 2)]
    (folder / "train").mkdir()
    table = pa.Table.from_pylist(rows, schema=shard_schema(len(VOCABULARY), Shards()))
    pq.write_table(table, folder / "train" / "shard-00000-of-00001.parquet", row_group_size=ROWS)
    write_rows(folder / "held_out", rows_of(10, 16, 3), len(VOCABULARY))
    return folder


def prepared(folder: Path, shards: Path, device: str, dropout: float = 0.0, **training: Any) -> Path:
    """24 steps, of which the sixth is the first with the longer rows; 10 rows held out, a batch and a part of one."""
    config = config_of(
        architecture=ARCHITECTURE.model_copy(update={"dropout": dropout}).plain(),
        learning_rate=1e-3,
        steps=24,
        schedule_steps=24,
        log_every=4,
        bias_correction=True,
    )
    return job(folder, shards, config, **{"device": device, **training})


def numbers(folder: Path) -> list[dict[str, float]]:
    """The rows of metrics.jsonl, without the padding, which differs where batches are filled up."""
    rows = lines.read(folder / "metrics.jsonl")
    return [{name: value for name, value in (row | row.get("held_out", {})).items() if name not in ("held_out", "padding_share")} for row in rows]  # fmt: skip


def assert_close(found: Path, expected: Path) -> None:
    assert len(numbers(found)) == len(numbers(expected)) == 8
    for row, wanted in zip(numbers(found), numbers(expected), strict=True):
        assert row == pytest.approx(wanted, rel=TOLERANCE)


@pytest.fixture(scope="module")
def torchs(tmp_path_factory: pytest.TempPathFactory, shards: Path, environment: None) -> Path:
    """The run on torch's CPU, which neither fills batches up nor pads them."""
    folder = prepared(tmp_path_factory.mktemp("torch"), shards, "cpu")
    assert train(folder, Stop())
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, shards: Path, environment: None) -> Path:
    folder = prepared(tmp_path_factory.mktemp("whole"), shards, "xla")
    assert train(folder, Stop())
    return folder


def test_losses_are_those_of_torch_and_each_length_is_compiled_once(shards: Path, whole: Path, torchs: Path) -> None:
    assert_close(whole, torchs)
    rows = [row for row in lines.read(whole / "timing.jsonl") if "compilations" in row]
    feed = Feed(ShardReader(shards / "train"), 6, mix(config_of().seed, 0), 16)
    lengths = {feed.padded_length(step) for step in range(24)}
    assert {8, 16} <= lengths
    # weights and moments, twice; gradients and the update of a rehearsal; the steps; held-out batches, all of 16 tokens, and
    # the sums they begin with
    assert rows[-1]["compilations"] == 2 + 2 + len(lengths) + 2
    assert not any("warning" in row for row in lines.read(whole / "timing.jsonl"))


def test_a_run_moves_from_torch_to_xla_and_back(tmp_path: Path, shards: Path, torchs: Path) -> None:
    folder = prepared(tmp_path / "run", shards, "cpu")
    for device, looks in (("cpu", 7), ("xla", 9), ("cpu", 4)):
        prepared(folder, shards, device)
        assert not train(folder, StopAt(looks))
        saved = checkpoint.newest(folder / "checkpoints")
        assert saved is not None and saved.state["place"]["device"] == device
    prepared(folder, shards, "xla")
    assert train(folder, Stop())
    assert_close(folder, torchs)


def test_a_resumed_run_with_dropout_gives_the_bytes_of_one_that_was_not(tmp_path: Path, shards: Path) -> None:
    whole = prepared(tmp_path / "whole", shards, "xla", dropout=0.1)
    assert train(whole, Stop())
    stopped = prepared(tmp_path / "stopped", shards, "xla", dropout=0.1)
    stops = 0
    while not train(stopped, StopAt(9)):
        stops += 1
    assert stops > 1
    assert files(stopped / "result") == files(whole / "result")


def test_two_devices_give_what_one_gives(tmp_path: Path, shards: Path, whole: Path) -> None:
    two = prepared(tmp_path / "two", shards, "xla")
    variables = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "2", "XLA_FLAGS": FLAGS}
    subprocess.run(
        [sys.executable, "-m", "model.pretrain", str(two)],
        cwd=ROOT,
        env=os.environ | variables,
        check=True,
        timeout=900,
    )
    assert next(row["device_name"] for row in lines.read(two / "timing.jsonl")) == "2 × XLA CPU"
    assert_close(two, whole)
    config = json.loads((two / "config.json").read_text())["config"]
    odd = job(tmp_path / "odd", shards, config_of(**config | {"batch_size": 5}), device="xla")
    refused = subprocess.run(
        [sys.executable, "-m", "model.pretrain", str(odd)],
        cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert refused.returncode == 1 and "5 rows can't be split over 2 devices" in refused.stderr


class StopAtWarning(Stop):
    """Ends the run once the warning is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def asked(self) -> bool:  # type: ignore[override]
        return any("warning" in row for row in lines.read(self.folder / "timing.jsonl"))


def test_programs_for_lengths_that_are_not_new_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batches with as many masked words as there are: another program for every number of them."""
    monkeypatch.setattr(pretraining_loop, "batch_of", lambda rows, length, **fixed: batch_of(rows, length))
    config = config_of(log_every=1)
    folder = job(tmp_path / "run", write_shards(tmp_path / "shards"), config, device="xla")
    assert not train(folder, StopAtWarning(folder))
    assert "although no length was new" in capsys.readouterr().err
