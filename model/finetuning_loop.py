"""The fine-tuning loop: what `python -m model.finetune` runs.

A job is a list of runs, one per network (the pretrained one and, if asked for, the same network as it was initialised)
and seed. A finished run is kept whole; the run in progress saves checkpoints. As in pretraining, a step is a pure
function of configuration, seed and step number, so that a job that is killed and resumed gives the bytes of one that
never was, on the same kind of device with the same number of threads.
"""

import json
import math
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from model import checkpoint, child, lines, metrics
from model.bert import initialize
from model.child import Stop
from model.classifier import Classifier, Pooling
from model.devices import Device, open_device
from model.examples import Examples, Ints, Labels, epoch_batches, padded, sorted_batches
from model.heads import Head, head_of, scored_by
from model.lines import Lines
from model.optimizer import AdamW, clip_gradients
from model.schedule import learning_rate
from pipeline import atomic
from pipeline.config import Architecture, FinetuneConfig
from pipeline.errors import DataError, TrainingError
from pipeline.settings import TrainingSettings
from pipeline.tokenizer import Tokenizer, load

PARTS = ("train", "dev", "test")
PRETRAINED, UNTRAINED = "pretrained", "untrained"
MAX_GRADIENT_NORM = 1.0
"""as in google-research/bert optimization.py"""
LOG_EVERY, LOG_TIMES = 20, 20
"""most steps between two rows of metrics.jsonl; short runs have LOG_TIMES rows"""
TIMING_SECONDS = 5.0
SKIPPED_IN_A_ROW = 10
SCORING_BATCH = 64


@dataclass(frozen=True)
class Job:
    """RUN_DIR/config.json."""

    config: FinetuneConfig
    task_data: Path
    pretrained: Path
    wordpiece_vocab: Path
    training: TrainingSettings

    @staticmethod
    def read(path: Path) -> "Job":
        """Read the file. Raises TrainingError when it is not what the stage writes."""
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            return Job(
                config=FinetuneConfig.model_validate(plain["config"]),
                task_data=Path(plain["task_data"]),
                pretrained=Path(plain["pretrained"]),
                wordpiece_vocab=Path(plain["wordpiece_vocab"]),
                training=TrainingSettings.model_validate(plain["training"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TrainingError(f"{path} can't be used: {error!r}", "The finetuned stage writes this file.") from None


@dataclass(frozen=True)
class Run:
    """One network, one seed."""

    network: str
    seed: int

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.network}-{self.seed}"


@dataclass
class State:
    """What a checkpoint of a run holds beside tensors."""

    step: int = 0
    """steps done, of this run"""
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """per finished epoch: mean training loss, dev loss and scores"""
    best_epoch: int = 0
    """counted from 1; 0: none yet"""
    skipped: int = 0
    skipped_in_a_row: int = 0
    window_steps: int = 0
    window_loss: float = 0.0
    """sum over the steps since the last row of metrics.jsonl"""
    epoch_steps: int = 0
    epoch_loss: float = 0.0


def train(folder: Path, stop: Stop) -> bool:
    """Train the job of `folder` to its end, or until `stop.asked`; True when it is finished.

    Raises:
        DataError: the task's data, the vocabulary and the pretrained model do not fit together.
        TrainingError: the folder belongs to another job, or the gradients stay without a finite value.
        StoreError: the disk is full.
    """
    if checkpoint.broken(folder / "result") is None:
        return True
    shutil.rmtree(folder / "result", ignore_errors=True)
    return _Process(folder, Job.read(folder / "config.json"), stop).to_the_end()


class _Process:
    """One process's part of a job."""

    def __init__(self, folder: Path, job: Job, stop: Stop) -> None:
        self.started = time.monotonic()
        self.folder, self.job, self.config, self.stop = folder, job, job.config, stop
        self.task = lines.read_json(job.task_data / "task.json")
        self.head = head_of(self.task)
        self.scored = scored_by(self.head, self.task)
        self.pooling: Pooling = self.head.pooling or job.config.pooling
        self.tokenizer: Tokenizer = load(job.wordpiece_vocab)
        self.architecture = self._architecture()
        self.examples = {
            part: self.head.read(job.task_data / f"{part}.parquet", self.tokenizer, job.config.max_length)
            for part in PARTS
        }
        self.task = {**self.task, "labels": self.head.labels(self.task, self.examples.values())}
        for part in ("train", "dev"):
            known = self.examples[part].known
            if len(known) == 0 or not known.all():
                raise DataError(
                    f"the {part} part of task {job.config.task} has no examples, or some without a label",
                    f"Materialize task_data_{job.config.task} again.",
                )
        self.device: Device = _device(job.training)
        networks = (PRETRAINED, UNTRAINED) if UNTRAINED in job.config.baselines else (PRETRAINED,)
        seeds = range(job.config.seed, job.config.seed + job.config.seeds)
        self.runs = [Run(network, seed) for network in networks for seed in seeds]
        self.steps_per_epoch = -(-len(self.examples["train"].lengths) // job.config.batch_size)
        self.steps_per_run = self.steps_per_epoch * job.config.epochs

    def scores(self, part: str, guesses: Labels) -> dict[str, float] | None:
        """Scores of guessed labels, [N], of a part; None where none of its labels are known."""
        return self.head.scores(self.scored, self.examples[part], guesses, self.task["labels"])

    def rank(self, dev: Mapping[str, float]) -> tuple[float, float]:
        """Of scores on dev, better is larger: the metric, then the smaller loss."""
        return dev[self.task["metric"]], -dev[self.head.loss_name]

    def to_the_end(self) -> bool:
        self._check_identity()
        atomic.write_json(self.folder / child.PLAN, {"steps": len(self.runs) * self.steps_per_run})
        finished, kept = self._finished()
        current = None
        if finished < len(self.runs):
            current = checkpoint.newest(self.folder / "current" / self.runs[finished].name)
        if current is not None:
            kept = int(current.state["metrics_bytes"])
        self.metrics = Lines(self.folder / "metrics.jsonl", keep=kept)
        self.timing = Lines(self.folder / "timing.jsonl")
        self._announce(finished, current)
        try:
            for number in range(finished, len(self.runs)):
                if not _Training(self, number, current).to_the_end():
                    return False
                current = None
            self._publish()
        finally:
            self.metrics.close()
            self.timing.close()
        for name in ("runs", "current"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        return True

    # ── where a job begins ───────────────────────────────────────────────────────────────────────────────────────────

    def _architecture(self) -> Architecture:
        """The encoder's, with the dropout of fine-tuning. Raises DataError where it does not fit the vocabulary."""
        described = lines.read_json(self.job.pretrained / "config.json")
        size = len(self.tokenizer.vocabulary)
        if described["vocabulary_size"] != size:
            raise DataError(
                f"the pretrained model knows {described['vocabulary_size']} tokens, the vocabulary has {size}",
                "Materialize pretraining with this vocabulary first.",
            )
        architecture = Architecture.model_validate(described["architecture"])
        if self.config.max_length > architecture.max_positions:
            raise DataError(
                f"max_length {self.config.max_length} is above the {architecture.max_positions} positions of the model",
                "Lower finetuning.max_length.",
            )
        return architecture.model_copy(update={"dropout": self.config.dropout})

    def _check_identity(self) -> None:
        """Refuse a folder of another job; say where device or threads changed since."""
        identity = self.config.plain() | {"sizes": {part: len(found) for part, found in self.examples.items()}}
        place = {"device": self.device.kind, "threads": self.job.training.threads}
        path = self.folder / "identity.json"
        if path.exists():
            before = lines.read_json(path)
            changed = sorted(name for name in identity if before["identity"].get(name) != identity[name])
            if changed:
                raise TrainingError(
                    f"{self.folder} belongs to another job: {', '.join(changed)} differ",
                    "A changed recipe is a new run: use another run folder, or start anew with --force.",
                )
            if before["place"] != place:
                print(
                    f"resumed on {place}, before it was {before['place']}: last bits may differ",
                    file=sys.stderr,
                )
        atomic.write_json(path, {"identity": identity, "place": place})

    def _finished(self) -> tuple[int, int]:
        """(number of finished runs, size of metrics.jsonl after them). Whatever lies behind a broken one is removed."""
        finished, kept = 0, 0
        for number, run in enumerate(self.runs):
            folder = self.folder / "runs" / run.name
            if finished == number and checkpoint.broken(folder) is None:
                finished, kept = number + 1, int(lines.read_json(folder / "run.json")["metrics_bytes"])
            else:
                shutil.rmtree(folder, ignore_errors=True)
        return finished, kept

    def _announce(self, finished: int, current: checkpoint.Checkpoint | None) -> None:
        step = finished * self.steps_per_run + (current.step if current else 0)
        self.timing.append(
            {
                "step": step,
                "resumed": step > 0,
                "device": self.device.kind,
                "device_name": self.device.name,
                "threads": self.job.training.threads,
            }
        )
        print(
            f"{len(self.runs)} runs of {self.steps_per_run:,} steps, {len(self.examples['train']):,} training examples, "
            f"on {self.device.name}; " + (f"goes on from step {step:,}" if step else "from the start"),
            file=sys.stderr,
            flush=True,
        )
        for part, found in self.examples.items():
            if told := ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in found.counts.items()):
                print(f"{part}: {told}", file=sys.stderr, flush=True)

    # ── what a job leaves ────────────────────────────────────────────────────────────────────────────────────────────

    def _publish(self) -> None:
        """RUN_DIR/result, with nothing in it that depends on the machine's speed."""
        config, labels = self.config, self.task["labels"]
        read = {run: lines.read_json(self.folder / "runs" / run.name / "run.json") for run in self.runs}
        ours = {run: found for run, found in read.items() if run.network == PRETRAINED}
        best = max(ours, key=lambda run: self.rank(ours[run]["dev"]))  # the first of equals
        self.metrics.sync()
        predicted = {
            run: checkpoint.load_tensors(self.folder / "runs" / run.name / "logits.safetensors") for run in ours
        }
        scored = "test" if ours[best]["test"] is not None else "dev"
        confusion = _confusion(self.head, self.examples[scored], predicted[best][scored], len(labels))
        counts = {part: dict(found.counts) for part, found in self.examples.items()}
        scores = {
            "task": config.task,
            "title": self.task["title"],
            "kind": self.task["kind"],
            "metric": self.task["metric"],
            "labels": labels,
            "sizes": {part: len(found) for part, found in self.examples.items()},
            "truncated": {part: found.truncated for part, found in self.examples.items()},
            **({"counts": counts} if any(counts.values()) else {}),
            "parameters": ours[best]["parameters"],
            "hyperparameters": {
                name: value for name, value in config.plain().items() if name not in ("task", "baselines")
            }
            | {"pooling": self.pooling},
            "seeds": [_shown(run, found) for run, found in ours.items()],
            "summary": _summary(list(ours.values()), self.scored),
            "published_seed": best.seed,
            "confusion": {"part": scored, "counts": confusion} if confusion is not None else None,
            "baselines": self._baselines([(run, found) for run, found in read.items() if run.network == UNTRAINED]),
            **({"published": self.task["published"]} if self.task.get("published") else {}),
        }

        def fill(place: Path) -> None:
            shutil.copyfile(self.folder / "runs" / best.name / "model.safetensors", place / "model.safetensors")
            atomic.write_json(
                place / "config.json",
                {
                    "task": config.task,
                    "title": self.task["title"],
                    "kind": self.task["kind"],
                    "labels": labels,
                    "pooling": self.pooling,
                    "max_length": config.max_length,
                    "architecture": self.architecture.plain(),
                    "vocabulary_size": len(self.tokenizer.vocabulary),
                },
            )
            atomic.write_json(place / "scores.json", scores)
            shutil.copyfile(self.folder / "metrics.jsonl", place / "metrics.jsonl")
            (place / "predictions").mkdir()
            for run, logits in predicted.items():
                for part in ("dev", "test"):
                    path = place / "predictions" / f"{part}-seed-{run.seed}.parquet"
                    table = self.head.predictions(self.examples[part], logits[part], labels)
                    pq.write_table(table, path, compression="zstd")

        checkpoint.write_verified(self.folder / "result", fill)

    def _baselines(self, untrained: list[tuple[Run, dict[str, Any]]]) -> dict[str, Any]:
        """Always the most frequent label, of scores their mean; if asked for, TF-IDF and the network without pretraining."""
        found: dict[str, Any] = {}
        dev, test = self.examples["dev"], self.examples["test"]
        if untrained:
            found["untrained"] = {
                "seeds": [_shown(run, result) for run, result in untrained],
                "summary": _summary([result for _, result in untrained], self.scored),
            }
        train = self.examples["train"]
        if "tfidf" in self.config.baselines and not train.texts:
            why = f"it labels whole texts one by one, which is no answer to a task of kind {self.task['kind']}"
            print(f"no TF-IDF baseline: {why}", file=sys.stderr, flush=True)
        elif "tfidf" in self.config.baselines:
            from model import tfidf

            print("TF-IDF baseline", file=sys.stderr, flush=True)
            guesses = tfidf.predict(train.texts, train.labels.tolist(), dev.texts, test.texts)
            found["tfidf"] = {
                "dev": self.scores("dev", guesses[0]),
                "test": self.scores("test", guesses[1]),
            }
        constant = self.head.constant(train.labels)
        found["majority"] = {
            "label": self.task["labels"][constant] if self.task["labels"] else constant,
            "dev": self._of_constant("dev", constant),
            "test": self._of_constant("test", constant),
        }
        return found

    def _of_constant(self, part: str, guess: Any) -> dict[str, float | None] | None:
        """Scores of the same guess for all; None for a correlation, which a constant has none of."""
        found = self.scores(part, np.full(len(self.examples[part].labels), guess))
        if found is None:
            return None
        return {name: None if name in metrics.CORRELATIONS else value for name, value in found.items()}


class _Training:
    """One run: one network, one seed."""

    def __init__(self, process: _Process, number: int, found: checkpoint.Checkpoint | None) -> None:
        self.process, self.config, self.run = process, process.config, process.runs[number]
        self.device, self.examples = process.device, process.examples
        self.first_step = number * process.steps_per_run
        self.checkpoints = process.folder / "current" / self.run.name
        self.state = State()
        vocabulary_size = len(process.tokenizer.vocabulary)
        self.outputs = process.head.outputs(process.task)
        classes = process.head.classes(process.task)
        self.model = Classifier(process.architecture, vocabulary_size, classes, process.pooling)
        initialize(self.model, self.run.seed)
        if self.run.network == PRETRAINED:
            load_encoder(self.model, process.job.pretrained)
        self.model.to(self.device.torch_device)
        self.optimizer = AdamW(
            self.model.named_parameters(), weight_decay=self.config.weight_decay, bias_correction=True
        )
        self.best: dict[str, Tensor] = {}
        if found is not None:
            self._resume(found)

    def _resume(self, found: checkpoint.Checkpoint) -> None:
        self.model.load_state_dict(found.tensors("model"))
        self.state = State(**found.state["progress"])
        self.optimizer.load_state(found.tensors("optimizer"), int(found.state["updates"]))
        if self.state.best_epoch and self.state.best_epoch < self.config.epochs:
            self.best = found.tensors("best")

    def to_the_end(self) -> bool:
        process, state = self.process, self.state
        saved = time.monotonic()
        self.measured, self.measured_tokens, self.measured_examples = saved, 0, 0
        total = process.steps_per_run
        while state.step < total:
            epoch, first = divmod(state.step, process.steps_per_epoch)
            batches = epoch_batches(self.examples["train"].lengths, self.config.batch_size, self.run.seed, epoch)
            for rows in batches[first:]:
                if process.stop.asked:
                    self._save()
                    return False
                if time.monotonic() - saved >= process.job.training.checkpoint_seconds:
                    self._save()
                    saved = time.monotonic()
                self._step(rows)
                self._time()
            if not self._end_epoch():
                return False
        return self._finish()

    # ── one step, one epoch ──────────────────────────────────────────────────────────────────────────────────────────

    def _step(self, rows: Ints) -> None:
        config, state = self.config, self.state
        self.device.seed_step(self.run.seed, state.step)
        total = self.process.steps_per_run
        rate = learning_rate(state.step, config.learning_rate, round(config.warmup * total), total)
        self.model.train()
        inputs = self._inputs("train", rows)
        train = self.examples["train"]
        labels = self.device.put(torch.from_numpy(train.labels[train.numbers(rows)]))
        with self.device.autocast(config.precision):
            loss = self.process.head.loss(self.model(*inputs).float(), labels)
        loss.backward()
        norm = clip_gradients(self.model.parameters(), MAX_GRADIENT_NORM)
        value = loss.item()
        if math.isfinite(norm) and math.isfinite(value):
            self.optimizer.step(rate)
            state.skipped_in_a_row = 0
            state.window_steps += 1
            state.window_loss += value
            state.epoch_steps += 1
            state.epoch_loss += value
        else:
            state.skipped += 1
            state.skipped_in_a_row += 1
        self.optimizer.zero_grad()
        state.step += 1
        self.measured_tokens += int(inputs[2].sum())
        self.measured_examples += len(inputs[0])
        if state.skipped_in_a_row >= SKIPPED_IN_A_ROW:
            raise TrainingError(
                f"{self.run.name}: {SKIPPED_IN_A_ROW} steps in a row, up to step {state.step}, had a gradient norm or "
                f"loss that is not finite (the last: norm {norm}, loss {value})",
                "Lower finetuning.learning_rate, or use precision fp32.",
            )
        if state.step % max(1, min(LOG_EVERY, total // LOG_TIMES)) == 0 or state.step == total:
            self._log(
                {"loss": lines.short(state.window_loss / state.window_steps) if state.window_steps else None}
                | {"learning_rate": lines.short(rate), "skipped_steps": state.skipped}
            )
            state.window_steps, state.window_loss = 0, 0.0

    def _end_epoch(self) -> bool:
        """Score dev, remember the best weights; False: asked to stop on the way."""
        self._time(now=True)
        state, config = self.state, self.config
        epoch = state.step // self.process.steps_per_epoch
        scored = self._logits("dev")
        if scored is None:
            # The checkpoint before this epoch's end is the newest that is whole: an epoch ends with its scores.
            return False
        dev = self._dev_scores(scored)
        mean = lines.short(state.epoch_loss / state.epoch_steps) if state.epoch_steps else None
        state.epochs.append({"epoch": epoch, "train_loss": mean, "dev": dev})
        state.epoch_steps, state.epoch_loss = 0, 0.0
        self._log({"epoch": epoch, "train_loss": mean, "dev": dev})
        before = state.epochs[state.best_epoch - 1]["dev"] if state.best_epoch else None
        if before is None or self.process.rank(dev) > self.process.rank(before):
            state.best_epoch = epoch
            if epoch < config.epochs:
                self.best = {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}
        return True

    def _dev_scores(self, logits: Tensor) -> dict[str, float]:
        loss = self.process.head.loss(logits.double(), torch.from_numpy(self.examples["dev"].labels)).item()
        found = self.process.scores("dev", self.process.head.guesses(logits))
        assert found is not None  # a dev example without a label was refused at the start
        return {self.process.head.loss_name: float(f"{loss:.6g}"), **found}

    def _inputs(self, part: str, rows: Ints) -> tuple[Tensor, ...]:
        """What the model takes; the third is the mask of what is no padding."""
        arrays = padded(self.examples[part], rows, self.config.max_length, self.process.tokenizer.pad_id)
        return tuple(self.device.put(torch.from_numpy(array)) for array in arrays)

    @torch.inference_mode()
    def _logits(self, part: str) -> Tensor | None:
        """float [N, outputs] of a part, in its own order; None: asked to stop on the way."""
        self.model.eval()
        examples = self.examples[part]
        logits = torch.full((len(examples.labels), self.outputs), -math.inf)
        for rows in sorted_batches(examples.lengths, SCORING_BATCH):
            if self.process.stop.asked:
                return None
            with self.device.autocast(self.config.precision):
                found = self.model(*self._inputs(part, rows))
            numbers = torch.from_numpy(examples.numbers(rows))
            # fewer columns where no example of the batch has all choices
            logits[numbers, : found.shape[1]] = found.float().cpu()
        self.measured, self.measured_tokens, self.measured_examples = time.monotonic(), 0, 0  # speed is of training
        return logits

    # ── what a run leaves ────────────────────────────────────────────────────────────────────────────────────────────

    def _finish(self) -> bool:
        state = self.state
        if state.best_epoch < self.config.epochs:
            self.model.load_state_dict(self.best)
        dev, test = self._logits("dev"), self._logits("test")
        if dev is None or test is None:
            return False
        result = {
            "best_epoch": state.best_epoch,
            "epochs": state.epochs,
            "dev": state.epochs[state.best_epoch - 1]["dev"],
            "test": self.process.scores("test", self.process.head.guesses(test)),
            "skipped_steps": state.skipped,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "metrics_bytes": self.process.metrics.sync(),
        }

        def fill(place: Path) -> None:
            if self.run.network == PRETRAINED:
                checkpoint.save_tensors(self.model.state_dict(), place / "model.safetensors")
            checkpoint.save_tensors({"dev": dev, "test": test}, place / "logits.safetensors")
            atomic.write_json(place / "run.json", result)

        checkpoint.write_verified(self.process.folder / "runs" / self.run.name, fill)
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        self._time(now=True)
        return True

    def _save(self) -> None:
        """Save a checkpoint, unless the last steps show that it may be poisoned."""
        state = self.state
        if state.skipped_in_a_row or state.step == 0:
            return
        tensors: dict[str, Mapping[str, Tensor]] = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state(),
        }
        if self.best:
            tensors["best"] = self.best
        saved = {
            "progress": asdict(state),
            "updates": self.optimizer.updates,
            "metrics_bytes": self.process.metrics.sync(),
        }
        keep = self.process.job.training.keep_checkpoints
        checkpoint.save(self.checkpoints, state.step, tensors, saved, keep=keep)

    def _log(self, row: dict[str, Any]) -> None:
        """Add a row to metrics.jsonl: `step` counts through all runs, `run_step` in this one."""
        place = {"step": self.first_step + self.state.step, "run_step": self.state.step}
        self.process.metrics.append({**place, "network": self.run.network, "seed": self.run.seed, **row})

    def _time(self, now: bool = False) -> None:
        """A row of timing.jsonl, when one is due."""
        clock = time.monotonic()
        passed = clock - self.measured
        if not now and passed < TIMING_SECONDS:
            return
        row = {"step": self.first_step + self.state.step, "seconds": round(clock - self.process.started, 3)}
        if self.measured_tokens:
            row["tokens_per_second"] = round(self.measured_tokens / passed, 1)
            row["sequences_per_second"] = round(self.measured_examples / passed, 1)
            row["memory_bytes"] = self.device.peak_memory_bytes()
        self.process.timing.append(row)
        self.measured, self.measured_tokens, self.measured_examples = clock, 0, 0


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _device(training: TrainingSettings) -> Device:
    """Where this trains: on the CPU of a host whose `device` is xla, since its batches have many shapes."""
    kind = "cpu" if training.device == "xla" else training.device
    if kind != training.device:
        print("fine-tuning runs on the CPU: for XLA its batches have too many shapes", file=sys.stderr, flush=True)
    return open_device(kind, training.threads)


def load_encoder(model: Classifier, pretrained: Path) -> None:
    """Put the encoder of a pretrained folder (model.safetensors) into the classifier; its head stays as it is.

    Raises:
        DataError: a tensor of the encoder is missing or has another shape.
    """
    prefix = "encoder."
    found = checkpoint.load_tensors(pretrained / "model.safetensors")
    encoder = {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
    try:
        model.encoder.load_state_dict(encoder)
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise DataError(
            f"{pretrained / 'model.safetensors'} does not fit its config.json: {first}", "Materialize it again."
        ) from None


def _confusion(head: Head, examples: Examples, logits: Tensor, classes: int) -> list[list[int]] | None:
    """Counts [label][prediction] of the known labels; None where there are no classes."""
    if not classes:
        return None
    known = examples.known
    return metrics.confusion(examples.labels[known], head.guesses(logits)[known], classes)


def _shown(run: Run, found: Mapping[str, Any]) -> dict[str, Any]:
    """A run's entry in scores.json."""
    kept = ("best_epoch", "dev", "test", "epochs", "skipped_steps")
    return {"seed": run.seed, **{name: found[name] for name in kept}}


def _summary(runs: list[dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Median, extremes and deviation over the seeds, per part and metric; None for a part without labels."""
    return {
        part: None
        if runs[0][part] is None
        else {name: asdict(metrics.spread([run[part][name] for run in runs])) for name in names}
        for part in ("dev", "test")
    }
