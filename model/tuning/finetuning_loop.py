"""The fine-tuning loop: what `python -m model.finetune` runs.

A job is a list of runs (model/tuning/finetuning_job.py). A finished run is kept; the run in progress saves checkpoints. As in
pretraining, a step is a pure function of configuration, seed and step number, so that a job that is killed and resumed gives
the bytes of one that never was, on the same kind of device with the same number of threads.
"""

import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from model import checkpoint
from model.artifact import read_json
from model.devices import Device, open_for_many_shapes
from model.layers.classifier import Pooling, pooling_over
from model.processes import child
from model.processes.child import Stop
from model.processes.lines import Lines
from model.processes.run_folder import WORK
from model.tuning.features import by_sequence
from model.tuning.finetuning_job import PRETRAINED, Found, Job, Ranking, Run, runs_of
from model.tuning.finetuning_result import constant_scores, publish
from model.tuning.finetuning_run import Setup, Training
from model.tuning.frozen_encoder import kept_features
from model.tuning.heads import head_of, scored_by
from pipeline.config import Architecture, FinetuneConfig
from pipeline.errors import DataError, TrainingError
from pipeline.settings import TrainingSettings
from pipeline.system import atomic
from pipeline.tokenizer import Tokenizer, load


def train(folder: Path, stop: Stop) -> bool:
    """Train the job of `folder` to its end, or until `stop.asked`; True when it is finished.

    Raises:
        DataError: the task's data, the vocabulary and the pretrained model do not fit together.
        TrainingError: the folder belongs to another job, or every run's gradients stay without a finite value.
        StoreError: the disk is full.
    """
    if checkpoint.broken(folder / "result") is None:
        return True
    shutil.rmtree(folder / "result", ignore_errors=True)
    started = time.monotonic()
    setup = _setup(folder, Job.read(folder / "config.json"), stop)
    _check_identity(setup)
    runs = runs_of(setup.job.config, len(setup.examples["train"].lengths))
    atomic.write_json(folder / child.PLAN, {"steps": sum(run.steps for run in runs)})
    found = _finished(setup, runs)
    current = checkpoint.newest(setup.checkpoints(runs[len(found)])) if len(found) < len(runs) else None
    kept = current.state["metrics_bytes"] if current else _metrics_bytes(found)
    metrics, timing = Lines(folder / "metrics.jsonl", keep=int(kept)), Lines(folder / "timing.jsonl")
    _announce(setup, runs, len(found), current.step if current else 0, timing)
    network, features = "", None
    try:
        for run in runs[len(found) :]:
            if setup.job.config.encoder == "frozen" and run.network != network:
                network, features = run.network, kept_features(setup, run.network)
                if features is None:
                    return False
            if not Training(setup, run, features, current, metrics, timing, started).to_the_end():
                return False
            current = None
            found[run] = _read(setup, run)
            _forget_weights(setup, runs, found)
        _refuse_if_none_trained(setup.job.config, found)
        untouched = {}
        if setup.head.untouched:
            scored = Training(setup, runs[0], None, None, metrics, timing, started).scored_parts()
            if scored is None:
                return False
            untouched = scored
        metrics.sync()
        publish(setup, found, untouched, folder / "metrics.jsonl")
    finally:
        metrics.close()
        timing.close()
    for name in WORK:
        shutil.rmtree(folder / name, ignore_errors=True)
    return True


# ── where a job begins ───────────────────────────────────────────────────────────────────────────────────────────────


def _setup(folder: Path, job: Job, stop: Stop) -> Setup:
    """Read everything that the runs share. Raises DataError where it does not fit together."""
    config, task = job.config, read_json(job.task_data / "task.json")
    head = head_of(task)
    read = head.read if config.long_texts == "truncate" else head.read_windows
    if read is None:
        raise DataError(f"a task of kind {task['kind']} is not read as windows", "Write long_texts: truncate.")
    tokenizer = load(job.wordpiece_vocab)
    pooling = head.pooling or pooling_over(config.pooling, config.bilstm)
    architecture = _architecture(job, tokenizer, pooling)
    encoded = {
        part: read(job.task_data / f"{part}.parquet", tokenizer, config.max_length)
        for part in dict.fromkeys(("train", "dev", "test", *task.get("counts", ())))
    }
    examples = {part: by_sequence(each) for part, each in encoded.items()} if config.encoder == "frozen" else encoded
    for part in ("train", "dev"):
        known = examples[part].known
        if len(known) == 0 or (part in head.labelled and not known.all()):
            raise DataError(
                f"the {part} part of task {config.task} has no examples, or some without a label",
                f"Materialize task_data_{config.task} again.",
            )
    setup = Setup(
        folder=folder,
        job=job,
        stop=stop,
        device=_device(job.training),
        task={**task, "labels": head.labels(task, examples.values())},
        head=head,
        scored=scored_by(head, task),
        ranking=Ranking(task["metric"], head.loss_name),
        pooling=pooling,
        tokenizer=tokenizer,
        architecture=architecture,
        examples=examples,
        encoded=encoded,
        floor=0.0,
    )
    constant = constant_scores(setup, "dev")
    assert constant is not None  # every label of dev is known
    return replace(setup, floor=constant[task["metric"]] or 0.0)


def _architecture(job: Job, tokenizer: Tokenizer, pooling: Pooling) -> Architecture:
    """The encoder's, with the dropout of fine-tuning. Raises DataError where vocabulary or `pooling` do not fit it."""
    described = read_json(job.pretrained / "config.json")
    size = len(tokenizer.vocabulary)
    if described["vocabulary_size"] != size:
        raise DataError(
            f"the pretrained model knows {described['vocabulary_size']} tokens, the vocabulary has {size}",
            "Materialize pretraining with this vocabulary first.",
        )
    architecture = Architecture.model_validate(described["architecture"])
    if job.config.max_length > architecture.max_positions:
        raise DataError(
            f"max_length {job.config.max_length} is above the {architecture.max_positions} positions of the model",
            f"Lower finetuning.max_length, or that of overrides: {{{job.config.task}: …}}.",
        )
    if architecture.attention == "causal" and pooling == "cls":
        raise DataError(
            "the pretrained model reads from left to right: its [CLS] sees nothing but itself",
            "Write finetuning.pooling: last (that token sees all others, as in GPT) or pooling: mean.",
        )
    return architecture.model_copy(update={"dropout": job.config.dropout})


def _device(training: TrainingSettings) -> Device:
    """Where this trains; says so where it is not what the settings ask for."""
    if training.device == "xla":
        print("fine-tuning runs on the CPU: for XLA its batches have too many shapes", file=sys.stderr, flush=True)
    return open_for_many_shapes(training)


def _check_identity(setup: Setup) -> None:
    """Refuse a folder of another job; say where device or threads changed since."""
    config, folder = setup.job.config, setup.folder
    identity = config.plain() | {"sizes": {part: len(found) for part, found in setup.examples.items()}}
    place = {"device": setup.device.kind, "threads": setup.job.training.threads}
    path = folder / "identity.json"
    if path.exists():
        before = read_json(path)
        changed = sorted(name for name in identity if before["identity"].get(name) != identity[name])
        if changed:
            raise TrainingError(
                f"{folder} belongs to another job: {', '.join(changed)} differ",
                "A changed recipe is a new run: use another run folder, or start anew with --force.",
            )
        if before["place"] != place:
            print(
                f"resumed on {place}, before it was {before['place']}: last bits may differ",
                file=sys.stderr,
            )
    atomic.write_json(path, {"identity": identity, "place": place})


def _announce(setup: Setup, runs: list[Run], finished: int, step: int, timing: Lines) -> None:
    step += runs[finished].first_step if finished < len(runs) else runs[-1].first_step + runs[-1].steps
    timing.append(
        {
            "step": step,
            "resumed": step > 0,
            "device": setup.device.kind,
            "device_name": setup.device.name,
            "threads": setup.job.training.threads,
        }
    )
    steps = sorted({run.steps for run in runs})
    counted = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    print(
        f"{len(runs)} runs of {counted} steps, {len(setup.examples['train']):,} training examples, "
        f"on {setup.device.name}; " + (f"goes on from step {step:,}" if step else "from the start"),
        file=sys.stderr,
        flush=True,
    )
    for part, found in setup.examples.items():
        if told := ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in found.counts.items()):
            print(f"{part}: {told}", file=sys.stderr, flush=True)


# ── finished runs ────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(setup: Setup, run: Run) -> Found:
    return read_json(setup.runs() / run.name / "run.json")


def _finished(setup: Setup, runs: list[Run]) -> dict[Run, Found]:
    """The runs that are finished, up to the first of which something is missing. Whatever lies behind it is removed."""
    found: dict[Run, Found] = {}
    for run in runs:
        if checkpoint.broken(setup.runs() / run.name) is not None:
            break
        found[run] = _read(setup, run)
    while True:
        needed = setup.ranking.may_be_published(runs, found)
        broken = [
            n for n, run in enumerate(found) if run in needed and checkpoint.broken(setup.weights(run)) is not None
        ]
        if not broken:
            break
        found = {run: found[run] for run in runs[: broken[0]]}
    for run in runs[len(found) :]:
        shutil.rmtree(setup.runs() / run.name, ignore_errors=True)
        shutil.rmtree(setup.weights(run), ignore_errors=True)
    return found


def _metrics_bytes(found: Mapping[Run, Found]) -> int:
    return int(found[list(found)[-1]]["metrics_bytes"]) if found else 0


def _forget_weights(setup: Setup, runs: list[Run], found: Mapping[Run, Found]) -> None:
    """Remove the weights of finished runs that can't be the published ones any more."""
    needed = setup.ranking.may_be_published(runs, found)
    for run in found:
        if run not in needed:
            shutil.rmtree(setup.weights(run), ignore_errors=True)


def _refuse_if_none_trained(config: FinetuneConfig, found: Mapping[Run, Found]) -> None:
    """Raise TrainingError where no run of the pretrained network kept its numbers finite."""
    ended = {run: each["ended"] for run, each in found.items() if run.network == PRETRAINED}
    if all("not finite" in why for why in ended.values()):
        first = next(iter(ended))
        raise TrainingError(
            f"{first.name}: {ended[first]}" + (f"; so did the {len(ended) - 1} others" if len(ended) > 1 else ""),
            f"Lower learning_rate, {_rates(config)}: finetuning.learning_rate, or that of finetuning.grid or of "
            f"finetuning.overrides.{config.task}{'' if config.precision == 'fp32' else '; or write precision: fp32'}.",
        )


def _rates(config: FinetuneConfig) -> str:
    return f"which is {' or '.join(f'{rate:g}' for rate in sorted({v.learning_rate for v in config.variants}))}"
