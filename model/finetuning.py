"""`finetuned_T`: the pretrained encoder, fine-tuned on one task with several seeds, run as a process of its own.

The run folder is kept between attempts:

    config.json     what the process reads
    identity.json   the job that the folder belongs to
    plan.json       how many steps the whole job has
    metrics.jsonl   losses and dev scores: what follows from data and seed; published
    timing.jsonl    speed, memory, starts; not published
    runs/           the finished runs, one per network (pretrained, untrained) and seed
    current/        checkpoints of the run in progress
    features/       what a frozen encoder said, per network and part
    result/         what is published, with a manifest; it is there when everything has finished
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model import checkpoint
from model.artifact import read_json
from model.processes import launcher, lines
from model.processes.timeline import starts_of
from model.tasks import NOT_RUN, say_not_run
from pipeline.config import FinetuneConfig
from pipeline.settings import settings
from pipeline.stage import Stage
from pipeline.system import atomic

STAGE = Stage(
    name="finetuned",
    function="model.finetuning:finetune",
    # 2: other dropout bits on a CPU; 3: tagging; 4: regression; 5: no padding, spans, grids; 6: frozen encoders, BiLSTM,
    # pooling last, windows, sentence vectors
    version="6",
    sources=(
        "model/finetune.py",
        "model/finetuning.py",
        "model/tuning/finetuning_loop.py",
        "model/tuning/finetuning_job.py",
        "model/tuning/finetuning_run.py",
        "model/tuning/answers.py",
        "model/tuning/finetuning_result.py",
        "model/tuning/tuning_batches.py",
        "model/layers/classifier.py",
        "model/layers/bilstm.py",
        "model/layers/layer_choices.py",
        "model/tuning/features.py",
        "model/tuning/frozen_encoder.py",
        "model/tuning/examples.py",
        "model/tuning/tagged_words.py",
        "model/tuning/choices.py",
        "model/tuning/answered_spans.py",
        "model/tuning/span_windows.py",
        "model/tuning/span_answers.py",
        "model/reporting/leaderboard.py",
        "model/tuning/long_texts.py",
        "model/tuning/sentence_vectors.py",
        "model/tuning/heads.py",
        "model/scoring/entities.py",
        "model/scoring/squad_metrics.py",
        "model/metrics.py",
        "model/processes/lines.py",
        "model/artifact.py",
        "model/processes/timeline.py",
        "model/reporting/tfidf.py",
        "model/bert.py",
        "model/layers/attention.py",
        "model/layers/dropout.py",
        "model/optimization/optimizer.py",
        "model/feeding/order.py",
        "model/optimization/schedule.py",
        "model/devices/*.py",
        "pipeline/formats/iob.py",
        "pipeline/tokenizer.py",
    ),
    deterministic=False,
    resumable="model.processes.run_folder",
    failure="model.tasks:say_failed",
)


def finetune(inputs: Mapping[str, Path], config: FinetuneConfig, out: Path) -> dict[str, Any]:
    """Fine-tune every seed, or go on with it, in `inputs["run"]`, and copy the result into `out`.

    Reads `task_data`, `pretrained` and `wordpiece_vocab`. Writes model.safetensors and config.json of the seed that is
    best on dev, scores.json, predictions/{dev,test}-seed-N.parquet and metrics.jsonl. A task without
    data, or without a training part: not_run.json.

    Raises:
        DataError: the data can't be read, or does not fit the model.
        TrainingError: the process failed; what it saved stays in the run folder, and the next attempt goes on there.
    """
    missing = inputs["task_data"] / NOT_RUN
    if missing.exists():
        shutil.copyfile(missing, out / NOT_RUN)
        wanted = read_json(missing)
        return {"not_run": wanted["why"], "wants": ", ".join(wanted["wants"]), "dropped": {}}
    task = read_json(inputs["task_data"] / "task.json")
    if not task["counts"].get("train"):
        why = "it has no training part: it tests the model of another task"
        return say_not_run(config.task, task["title"], why, [], out)
    run = inputs["run"]
    atomic.write_json(
        run / "config.json",
        {
            "config": config.plain(),
            "task_data": str(inputs["task_data"].resolve()),
            "pretrained": str(inputs["pretrained"].resolve()),
            "wordpiece_vocab": str(inputs["wordpiece_vocab"].resolve()),
            "training": settings().training.plain(),
        },
    )
    result = launcher.result("model.finetune", run, None, settings().training)
    atomic.copy_folder(result, out, without={checkpoint.MANIFEST})
    return _statistics(run, read_json(result / "scores.json"))


def _statistics(run: Path, scores: Mapping[str, Any]) -> dict[str, Any]:
    """What a person wants to know; speeds and the device come from timing.jsonl, never from `out`."""
    timing = lines.read(run / "timing.jsonl")
    starts = [row for row in timing if "device" in row]
    speeds = [row for row in timing if "tokens_per_second" in row]
    metric, baselines = scores["metric"], scores["baselines"]
    shown: dict[str, Any] = {"title": scores["title"], "metric": metric, "seeds": len(scores["seeds"])}
    for part in ("dev", "test"):
        if scores["summary"][part] is not None:
            shown[f"{part}_{metric}"] = scores["summary"][part][metric]["median"]
            for name, baseline in baselines.items():
                found = baseline["summary"][part] if name == "untrained" else baseline[part]
                shown[f"{part}_{metric}_{name}"] = found[metric]["median"] if name == "untrained" else found[metric]
    return {
        **shown,
        "published_seed": scores["published_seed"],
        **{f"{part}_examples": count for part, count in scores["sizes"].items()},
        "truncated_train_examples": scores["truncated"]["train"],
        **{
            f"{part}_{name}": count
            for part, counts in scores.get("counts", {}).items()
            for name, count in counts.items()
        },
        "parameters": scores["parameters"],
        "tokens_per_second": speeds[-1]["tokens_per_second"] if speeds else None,
        "sequences_per_second": speeds[-1]["sequences_per_second"] if speeds else None,
        "peak_memory_bytes": max((row["memory_bytes"] for row in speeds), default=None),
        "device": starts[-1]["device"],
        "device_name": starts[-1]["device_name"],
        "threads": starts[-1]["threads"],
        "resume_count": len(starts) - 1,
        "timeline": {"starts": starts_of(timing)},
        "dropped": {},
    }
