"""`pretrained_L`: one phase of pretraining, run as a process of its own.

The run folder is kept between attempts, so that a run that was cancelled or killed goes on from its last checkpoint:

    config.json     what the process reads
    metrics.jsonl   losses, accuracies, gradient norm, learning rate, padding; published
    timing.jsonl    speed, memory, starts; not published
    tensorboard/    the same numbers for TensorBoard; not published
    checkpoints/    model/checkpoint.py
    heartbeat-N     signs of life of each process
    result/         what is published, with a manifest; it is there when the training has finished
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from model import checkpoint, launcher, lines
from pipeline import atomic
from pipeline.config import PretrainConfig
from pipeline.settings import settings
from pipeline.stage import Stage
from pipeline.tokenizer import read_vocabulary

STAGE = Stage(
    name="pretrained",
    function="model.pretraining:pretrain",
    version="3",  # 2: rows are read a row group at a time, in another order; 3: the vocabulary is filled up to 64
    sources=(
        "model/pretrain.py",
        "model/pretraining.py",
        "model/pretraining_loop.py",
        "model/bert.py",
        "model/optimizer.py",
        "model/guard.py",
        "model/replicas.py",
        "model/lamb.py",
        "model/schedule.py",
        "model/order.py",
        "model/batches.py",
        "model/feed.py",
        "model/buckets.py",
        "model/devices/*.py",
        "pipeline/shard_schema.py",
        "pipeline/shard_reader.py",
        "pipeline/masking.py",
        "pipeline/streams.py",
        "pipeline/ragged.py",
    ),
    deterministic=False,
    resumable="model.run_folder",
)


def pretrain(inputs: Mapping[str, Path], config: PretrainConfig, out: Path) -> dict[str, Any]:
    """Train one phase, or go on with it, in `inputs["run"]`, and copy its result into `out`.

    Reads `pretraining_shards`, `wordpiece_vocab` and, for a later phase, `previous`. Writes model.safetensors,
    config.json, optimizer.safetensors, optimizer.json, metrics.jsonl and held_out.json; for a schedule with a constant
    part also stable/, weights and optimizer of its end, where a later run can go on.

    Raises:
        TrainingError: the process failed; what it saved stays in the run folder, and the next attempt goes on there.
    """
    run = inputs["run"]
    vocabulary_size = len(read_vocabulary(inputs["wordpiece_vocab"] / "vocab.txt"))
    atomic.write_json(
        run / "config.json",
        {
            "config": config.plain(),
            "vocabulary_size": vocabulary_size,
            "vocabulary": str(inputs["wordpiece_vocab"].resolve()),
            "shards": str(inputs["pretraining_shards"].resolve()),
            "previous": str(inputs["previous"].resolve()) if "previous" in inputs else None,
            "training": settings().training.plain(),
        },
    )
    training = settings().training
    result = launcher.result("model.pretrain", run, config.steps, training, training.ranks)
    shutil.copytree(result, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns(checkpoint.MANIFEST))
    return _statistics(run, config, vocabulary_size)


def _statistics(run: Path, config: PretrainConfig, vocabulary_size: int) -> dict[str, Any]:
    """What a person wants to know of the run; speeds and the device come from timing.jsonl, never from `out`."""
    timing = lines.read(run / "timing.jsonl")
    starts = [row for row in timing if "device" in row]
    speeds = [row for row in timing if "tokens_per_second" in row]
    logged = [row for row in lines.read(run / "result" / "metrics.jsonl") if "loss" in row]
    held_out = json.loads((run / "result" / "held_out.json").read_text(encoding="utf-8"))
    final = {name: value for name, value in logged[-1].items() if name not in ("step", "skipped_steps")}
    return {
        "steps": config.steps,
        "sequences": config.steps * config.batch_size,
        "epochs": starts[-1]["epochs"],
        "vocabulary_size": vocabulary_size,
        "parameters": starts[-1]["parameters"],
        **final,
        "skipped_steps": logged[-1]["skipped_steps"],
        "held_out": held_out,
        "tokens_per_second": median(row["tokens_per_second"] for row in speeds) if speeds else None,
        "peak_memory_bytes": max((row["memory_bytes"] for row in speeds), default=None),
        "accelerator_hours": _seconds(timing) / 3600,
        "device": starts[-1]["device"],
        "device_name": starts[-1]["device_name"],
        "threads": starts[-1]["threads"],
        "resume_count": len(starts) - 1,
    }


def _seconds(timing: list[dict[str, Any]]) -> float:
    """Time of all processes of the run: each counts its own seconds, the last row of each says how long it ran."""
    total, last = 0.0, 0.0
    for row in timing:
        if "device" in row:
            total, last = total + last, 0.0
        else:
            last = row["seconds"]
    return total + last
