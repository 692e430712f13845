"""`pretrained_L`: one phase of pretraining, run as a process of its own.

The run folder is kept between attempts, so that a run that was cancelled or killed goes on from its last checkpoint:

    config.json     what the process reads
    metrics.jsonl   losses, accuracies, gradient norm, learning rate, padding; published
    timing.jsonl    speed, memory, starts; not published
    tensorboard/    the same numbers for TensorBoard; not published
    checkpoints/    model/checkpoint.py
    heartbeat-N     signs of life of each process
    plan.json       how many steps `max_hours` left; decided once
    micro_batch.json  what `micro_batch_tokens: auto` found; decided once
    result/         what is published, with a manifest; it is there when the training has finished
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from model import checkpoint
from model.artifact import read_json
from model.processes import launcher, lines
from model.processes.timeline import timeline
from model.training.pretraining_job import STABLE
from pipeline.config import Architecture, PretrainConfig, TrainConfig
from pipeline.errors import DataError
from pipeline.settings import settings
from pipeline.stage import Stage
from pipeline.system import atomic
from pipeline.tokenizer import read_vocabulary

BEGUN = "begun.json"

STAGE = Stage(
    name="pretrained",
    function="model.pretraining:pretrain",
    # 2: rows are read a row group at a time, in another order; 3: the vocabulary is filled up to 64; 4: the vocabulary,
    # how the training began and the optimizer's name are published too; 5: on a CPU without padding, other dropout bits
    version="5",
    sources=(
        "model/pretrain.py",
        "model/pretraining.py",
        "model/training/pretraining_loop.py",
        "model/training/pretraining_result.py",
        "model/bert.py",
        "model/layers/attention.py",
        "model/layers/dropout.py",
        "model/optimization/optimizer.py",
        "model/training/guard.py",
        "model/processes/lines.py",
        "model/artifact.py",
        "model/processes/timeline.py",
        "model/processes/replicas.py",
        "model/optimization/lamb.py",
        "model/optimization/schedule.py",
        "model/feeding/order.py",
        "model/feeding/batches.py",
        "model/layers/unpadded.py",
        "model/feeding/feed.py",
        "model/devices/*.py",
        "pipeline/sharding/shard_schema.py",
        "pipeline/sharding/shard_reader.py",
        "pipeline/sharding/masking.py",
        "pipeline/streams.py",
        "pipeline/ragged.py",
    ),
    deterministic=False,
    resumable="model.processes.run_folder",
)


def pretrain(inputs: Mapping[str, Path], config: PretrainConfig, out: Path) -> dict[str, Any]:
    """Train one phase, or go on with it, in `inputs["run"]`, and copy its result into `out`.

    Reads `pretraining_shards`, `wordpiece_vocab` and, for a later phase, `previous`, or for a first one that does not begin
    with drawn weights, `imported_checkpoint`. Writes model.safetensors, config.json, optimizer.safetensors,
    optimizer.json, vocab.txt, tokenizer.json, begun.json, metrics.jsonl and held_out.json; for a schedule with a constant
    part also stable/, weights and optimizer of its end, where a later run can go on. The folder and stable/ in it can each
    be begun from by another recipe (`pretraining.start`).

    Raises:
        TrainingError: the process failed; what it saved stays in the run folder, and the next attempt goes on there.
    """
    run = inputs["run"]
    words = inputs["wordpiece_vocab"]
    vocabulary_size = len(read_vocabulary(words / "vocab.txt"))
    previous = inputs.get("imported_checkpoint", inputs.get("previous"))
    begun = _begun(config, previous)
    config = _with_architecture(config, previous)
    atomic.write_json(
        run / "config.json",
        {
            "config": config.plain(),
            "vocabulary_size": vocabulary_size,
            "vocabulary": str(words.resolve()),
            "shards": str(inputs["pretraining_shards"].resolve()),
            "previous": None if previous is None else str(previous.resolve()),
            "training": settings().training.plain(),
        },
    )
    training = settings().training
    steps = config.steps if config.max_hours is None else None  # not known yet
    result = launcher.result("model.pretrain", run, steps, training, training.ranks)
    atomic.copy_folder(result, out, without={checkpoint.MANIFEST})
    for place in (out, out / STABLE):
        if place.exists():
            for source in (words / "vocab.txt", words / "tokenizer.json", out / "config.json"):
                if not (place / source.name).exists():
                    shutil.copyfile(source, place / source.name)
    atomic.write_json(out / BEGUN, begun)
    return {**_statistics(run, config, vocabulary_size), "begun": begun["begun"], "drawn": begun["drawn"]}


def _begun(config: PretrainConfig, previous: Path | None) -> dict[str, Any]:
    """How the training begins: `scratch`, all weights drawn; `warm`, with the weights of an imported model (`drawn`: the
    parts that it lacks); `continue`, with the optimizer's state too, of an imported model or of the phase before. To
    `resume` is another thing: a process goes on with its own run.

    `imported`: some phase up to this one began with an imported model.
    """
    if previous is None:
        return {"begun": "scratch", "drawn": ["all"], "imported": False}
    if config.start_mode is None:
        before = read_json(previous / BEGUN)
        return {"begun": "continue", "drawn": [], "imported": before["imported"]}
    told = read_json(previous / "told.json")
    return {"begun": config.start_mode, "drawn": told["missing"], "imported": True}


def _with_architecture(config: PretrainConfig, previous: Path | None) -> TrainConfig:
    """The configuration with the architecture of the model that it goes on with, where the recipe leaves it to that."""
    architecture = config.architecture
    if architecture is None:
        if previous is None:
            raise DataError(
                "the configuration names no architecture, and there is no model to take it from", "Name it."
            )
        described = read_json(previous / "config.json")
        architecture = Architecture.model_validate(described["architecture"])
    return TrainConfig.model_validate({**dict(config), "architecture": architecture})


def _statistics(run: Path, config: TrainConfig, vocabulary_size: int) -> dict[str, Any]:
    """What a person wants to know of the run; speeds and the device come from timing.jsonl, never from `out`."""
    timing = lines.read(run / "timing.jsonl")
    starts = [row for row in timing if "device" in row]
    speeds = [row for row in timing if "tokens_per_second" in row]
    rows = lines.read(run / "result" / "metrics.jsonl")
    logged = [row for row in rows if "loss" in row]
    held_out = read_json(run / "result" / "held_out.json")
    published = held_out["step"] - config.first_step  # with publish: best not the last
    final_row = next((row for row in reversed(logged) if row["step"] <= published), logged[-1])
    final = {name: value for name, value in final_row.items() if name not in ("step", "skipped_steps")}
    return {
        "steps": starts[-1]["steps"],
        "sequences": starts[-1]["steps"] * config.batch_size,
        "epochs": starts[-1]["epochs"],
        "vocabulary_size": vocabulary_size,
        "parameters": starts[-1]["parameters"],
        **final,
        "skipped_steps": logged[-1]["skipped_steps"],
        "passed_over_batches": sum(
            end - first for first, end in (r["passed_over"] for r in rows if "passed_over" in r)
        ),
        "loss_spikes": sum("spike" in row for row in rows),
        "held_out": held_out,
        "tokens_per_second": median(row["tokens_per_second"] for row in speeds) if speeds else None,
        "peak_memory_bytes": max((row["memory_bytes"] for row in speeds), default=None),
        "mfu": median(fractions) if (fractions := [row["mfu"] for row in speeds if "mfu" in row]) else None,
        "accelerator_hours": _seconds(timing) / 3600,
        "device": starts[-1]["device"],
        "device_name": starts[-1]["device_name"],
        "threads": starts[-1]["threads"],
        "ranks": starts[-1]["ranks"],
        "resume_count": len(starts) - 1,
        "timeline": timeline(timing, rows),
    }


def _seconds(timing: list[dict[str, Any]]) -> float:
    """Time of all processes of the run: of each start the last row says how long it ran, in so many processes."""
    total, last, ranks = 0.0, 0.0, 1
    for row in timing:
        if "device" in row:
            total, last, ranks = total + last * ranks, 0.0, row["ranks"]
        else:
            last = row.get("seconds", last)
    return total + last * ranks
