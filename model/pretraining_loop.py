"""The pretraining loop: what `python -m model.pretrain` runs.

Everything that decides a step is a pure function of the configuration and the step's number: its rows (model/order.py),
its learning rate, its dropout. A checkpoint holds the rest: weights, both moments, the sums since the last row of
metrics.jsonl and that file's size, to which a resumed run cuts it back. So a run that is killed and resumed gives the
bytes of one that never was, on the same kind of device with the same number of threads.
"""

import json
import math
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model import checkpoint
from model.batches import (
    Batch,
    Targets,
    batch_of,
    check,
    drawn_masks,
    held_out_rows,
    next_words,
    training_rows,
)
from model.bert import BertForPretraining, initialize, pretraining_losses
from model.child import Stop
from model.devices import Device, open_device
from model.lamb import Lamb
from model.lines import Lines
from model.optimizer import AdamW, Optimizer, clip_gradients
from model.order import mix
from model.schedule import learning_rate
from pipeline import progress
from pipeline.config import PretrainConfig
from pipeline.errors import DataError, TrainingError
from pipeline.masking import control
from pipeline.settings import TrainingSettings
from pipeline.shard_reader import ShardReader
from pipeline.shard_schema import Shards
from pipeline.tokenizer import read_vocabulary

SKIPPED_IN_A_ROW = 10
"""so many steps without a finite gradient end the run"""
TIMING_SECONDS = 5.0
"""between two rows of timing.jsonl"""


@dataclass(frozen=True)
class Job:
    """RUN_DIR/config.json."""

    config: PretrainConfig
    vocabulary_size: int
    vocabulary: Path
    shards: Path
    previous: Path | None
    training: TrainingSettings

    @staticmethod
    def read(path: Path) -> "Job":
        """Read the file. Raises TrainingError when it is not what the stage writes."""
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            return Job(
                config=PretrainConfig.model_validate(plain["config"]),
                vocabulary_size=plain["vocabulary_size"],
                vocabulary=Path(plain["vocabulary"]),
                shards=Path(plain["shards"]),
                previous=Path(plain["previous"]) if plain["previous"] else None,
                training=TrainingSettings.model_validate(plain["training"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TrainingError(f"{path} can't be used: {error!r}", "The pretrained stage writes this file.") from None


@dataclass
class Window:
    """Sums over the steps since the last row of metrics.jsonl."""

    steps: int = 0
    loss: float = 0.0
    mlm_loss: float = 0.0
    nsp_loss: float = 0.0
    words: int = 0
    words_right: int = 0
    sentences: int = 0
    sentences_right: int = 0
    gradient_norm: float = 0.0
    padding_share: float = 0.0

    def add(self, other: "Window") -> None:
        """Add another's sums to these."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def means(self) -> dict[str, float | None]:
        """Means per step, accuracies per prediction; None where nothing was counted."""
        return {
            "loss": _mean(self.loss, self.steps),
            "mlm_loss": _mean(self.mlm_loss, self.steps),
            "nsp_loss": _mean(self.nsp_loss, self.steps) if self.sentences else None,
            "mlm_accuracy": _mean(self.words_right, self.words),
            "nsp_accuracy": _mean(self.sentences_right, self.sentences),
            "gradient_norm": _mean(self.gradient_norm, self.steps),
            "padding_share": _mean(self.padding_share, self.steps),
        }


@dataclass
class State:
    """What a checkpoint holds beside tensors."""

    step: int = 0
    """steps done, of this phase"""
    evaluated: int = 0
    """the last step that was evaluated"""
    skipped: int = 0
    """steps without a finite gradient"""
    skipped_in_a_row: int = 0
    updates: int = 0
    """of the optimizer, all phases"""
    window: Window = field(default_factory=Window)


def train(folder: Path, stop: Stop) -> bool:
    """Train the job of `folder` to its end, or until `stop.asked`; True when it is finished.

    Raises:
        DataError: shards or the phase before do not fit the model.
        TrainingError: a checkpoint of another job lies there, or the gradients stay without a finite value.
        StoreError: the disk is full.
    """
    result = folder / "result"
    if checkpoint.broken(result) is None:
        return True
    shutil.rmtree(result, ignore_errors=True)
    job = Job.read(folder / "config.json")
    with _shown() if sys.stderr.isatty() else nullcontext():
        return _Run(folder, job, stop).to_the_end()


class _Run:
    """One process's part of a run."""

    def __init__(self, folder: Path, job: Job, stop: Stop) -> None:
        self.started = self.measured = time.monotonic()
        self.measured_tokens = 0
        self.folder, self.job, self.config, self.stop = folder, job, job.config, stop
        config = job.config
        self.train_shards = self._reader("train")
        self.held_out_shards = self._reader("held_out")
        self.targets = _targets(job)
        self.device: Device = open_device(job.training.device, job.training.threads)
        self.model = BertForPretraining(config.architecture, job.vocabulary_size, config.sentence_task)
        self.state = State()
        found = checkpoint.newest(folder / "checkpoints")
        if found is None and job.previous is None:
            initialize(self.model, config.seed)
        self.model.to(self.device.torch_device)
        self.optimizer = _optimizer(config, self.model)
        tokens = job.training.micro_batch_tokens
        self.rows_at_once = config.batch_size if tokens is None else max(1, tokens // config.sequence_length)
        self.saved: tuple[int, int] | None = None
        """step and last evaluation of the newest checkpoint"""
        kept = 0
        if found is not None:
            kept = self._resume(found)
        elif job.previous is not None:
            self._continue(job.previous)
        self.metrics = Lines(folder / "metrics.jsonl", keep=kept)
        self.timing = Lines(folder / "timing.jsonl")
        self._announce(found)

    def _reader(self, part: str) -> ShardReader:
        """The rows of a part, each row group checked when it is read; DataError where the first does not fit."""
        job, config = self.job, self.config
        stored = config.objective == "mlm" and config.masks is None

        def checked(rows: Shards, name: str) -> None:
            check(rows, name, job.vocabulary_size, config.sequence_length, config.sentence_task, stored)

        reader = ShardReader(job.shards / part, checked)
        if not len(reader):
            raise DataError(f"the {part} shards hold no rows", "The corpus is too small for this sequence length.")
        if stored != reader.stores_masks:
            has = "no masks" if stored else "masks"
            raise DataError(f"the {part} shards hold {has}, which this recipe does not expect", "Build them again.")
        reader.take(np.arange(1))
        return reader

    def to_the_end(self) -> bool:
        """Train; True when the run is finished, False when it was asked to stop and has saved."""
        try:
            self._train()
            self._save()
            self._time(now=True)
            finished = self.state.step == self.config.steps == self.state.evaluated
            if finished:
                self._publish()
        finally:
            self.metrics.close()
            self.timing.close()
        return finished

    def _train(self) -> None:
        config, state = self.config, self.state
        saved = time.monotonic()
        self.measured, self.measured_tokens = saved, 0
        while True:
            due = state.step == config.steps or state.step % config.evaluate_every == 0
            if due and state.step > state.evaluated and not self._evaluate():
                return  # asked to stop: the evaluation begins anew after the resume
            if state.step == config.steps or self.stop.asked:
                return
            if time.monotonic() - saved >= self.job.training.checkpoint_seconds:
                self._save()
                saved = time.monotonic()
            self._step()
            self._time()

    # ── one step ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _step(self) -> None:
        config, state = self.config, self.state
        seed = mix(config.seed, config.first_step)
        rows = training_rows(self.train_shards, state.step, config.batch_size, seed, self.targets)
        self.device.seed_step(config.seed, config.first_step + state.step)
        rate = learning_rate(
            config.first_step + state.step,
            config.learning_rate,
            config.warmup_steps,
            config.schedule_steps,
            power=config.decay_power,
            decay_steps=config.decay_steps,
        )
        if rate <= 0:
            raise TrainingError(
                f"the learning rate of step {config.first_step + state.step} is {rate:g}",
                "Give the schedule more steps.",
            )
        sums = self._gradients(rows)
        # With several processes their gradients are summed here, before the norm of the whole is clipped.
        norm = clip_gradients(self.model.parameters(), config.max_gradient_norm)
        if math.isfinite(norm) and math.isfinite(sums.loss):
            self.optimizer.step(rate)
            state.skipped_in_a_row = 0
            sums.steps, sums.gradient_norm = 1, norm
            state.window.add(sums)
        else:
            state.skipped += 1
            state.skipped_in_a_row += 1
        self.optimizer.zero_grad()
        state.step += 1
        state.updates = self.optimizer.updates
        self.measured_tokens += int(rows.lengths.sum())
        if state.skipped_in_a_row >= SKIPPED_IN_A_ROW:
            raise TrainingError(
                f"{SKIPPED_IN_A_ROW} steps in a row, up to step {state.step}, had a gradient norm or loss that is not "
                f"finite (the last: norm {norm}, loss {sums.loss})",
                "Lower learning_rate, lengthen warmup_steps, or use precision fp32.",
            )
        if state.step % config.log_every == 0 or state.step == config.steps:
            means = {name: _short(value) for name, value in state.window.means().items()} if state.window.steps else {}
            row = {"step": state.step, **means, "learning_rate": _short(rate), "skipped_steps": state.skipped}
            self.metrics.append(row)
            state.window = Window()
            progress.report(state.step, config.steps, "steps", **{k: v for k, v in means.items() if v is not None})

    def _gradients(self, rows: Shards) -> Window:
        """Gradients of a batch, added up over as many rows at once as settings allow; what metrics.jsonl says of it."""
        self.model.train()
        sums, padding, losses = Window(), 0, []
        for some in _parts(np.arange(len(rows)), self.rows_at_once):
            part = rows if len(some) == len(rows) else rows.take(some)
            batch = batch_of(part, self.config.sequence_length).on(self.device)
            with self.device.autocast(self.config.precision):
                words, sentences = self.model(*batch.model_inputs)
                found = pretraining_losses(
                    words,
                    batch.masked_ids,
                    sentences,
                    batch.labels,
                    batch_words=len(rows.masked_ids),
                    batch_rows=len(rows),
                )
            found.total.backward()
            pairs = torch.zeros_like(found.total) if found.next_sentence is None else found.next_sentence
            losses.append(torch.stack([loss.detach() for loss in (found.total, found.masked_words, pairs)]))
            _count(sums, words, sentences, batch)
            padding += batch.input_ids.numel()
        sums.loss, sums.mlm_loss, sums.nsp_loss = torch.stack(losses).sum(0).tolist()
        sums.padding_share = 1 - int(rows.lengths.sum()) / padding
        return sums

    # ── held-out evaluation ──────────────────────────────────────────────────────────────────────────────────────────

    def _evaluate(self) -> bool:
        """Add a row of held-out scores; False: asked to stop on the way, nothing added."""
        self._time(now=True)
        scores = self._scores()
        if scores is None:
            return False
        if not math.isfinite(scores["mlm_loss"] or 0.0):
            raise TrainingError(
                f"the held-out loss after step {self.state.step} is {scores['mlm_loss']}",
                "Lower learning_rate, lengthen warmup_steps, or use precision fp32.",
            )
        self.metrics.append({"step": self.state.step, "held_out": scores})
        self.state.evaluated = self.state.step
        return True

    @torch.inference_mode()
    def _scores(self) -> dict[str, float | None] | None:
        self.model.eval()
        sums = Window()
        for rows in _parts(self._held_out_rows(), min(self.config.batch_size, self.rows_at_once)):
            if self.stop.asked:
                return None
            found = held_out_rows(self.held_out_shards, rows, self.targets)
            batch = batch_of(found, self.config.sequence_length).on(self.device)
            with self.device.autocast(self.config.precision):
                words, sentences = self.model(*batch.model_inputs)
                losses = pretraining_losses(words, batch.masked_ids, sentences, batch.labels)
            sums.mlm_loss += losses.masked_words.item() * len(batch.masked_ids)
            if losses.next_sentence is not None:
                sums.nsp_loss += losses.next_sentence.item() * len(rows)
            _count(sums, words, sentences, batch)
        self.measured, self.measured_tokens = time.monotonic(), 0  # speed is that of training
        return {
            "mlm_loss": _short(_mean(sums.mlm_loss, sums.words)),
            "mlm_accuracy": _short(_mean(sums.words_right, sums.words)),
            "nsp_loss": _short(_mean(sums.nsp_loss, sums.sentences)),
            "nsp_accuracy": _short(_mean(sums.sentences_right, sums.sentences)),
        }

    def _held_out_rows(self) -> np.ndarray:
        return np.arange(min(len(self.held_out_shards), self.config.evaluate_sequences))

    # ── where a run begins ───────────────────────────────────────────────────────────────────────────────────────────

    def _identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be this job's."""
        sizes = {"vocabulary_size": self.job.vocabulary_size, "train_rows": len(self.train_shards)}
        return self.config.plain() | sizes

    def _place(self) -> dict[str, Any]:
        """What may change between resumes, but changes last bits (and, by the shapes of its parts, dropout)."""
        training = self.job.training
        return {
            "device": self.device.kind,
            "threads": training.threads,
            "micro_batch_tokens": training.micro_batch_tokens,
        }

    def _resume(self, found: checkpoint.Checkpoint) -> int:
        """Go on from a checkpoint of this run; returns the size to cut metrics.jsonl back to."""
        saved = found.state
        changes = _differences(saved["identity"], self._identity())
        if changes:
            raise TrainingError(
                f"{found.folder} belongs to another job: {'; '.join(changes)}",
                "A changed recipe is a new run: use another run folder, or start anew with --force.",
            )
        for change in _differences(saved["place"], self._place()):
            print(
                f"resumed with another {change}: same samples in the same order, last bits may differ", file=sys.stderr
            )
        self.model.load_state_dict(found.tensors("model"))
        self.state = State(**saved["progress"] | {"window": Window(**saved["progress"]["window"])})
        self.optimizer.load_state(found.tensors("optimizer"), self.state.updates)
        self.saved = self.state.step, self.state.evaluated
        return int(saved["metrics_bytes"])

    def _continue(self, previous: Path) -> None:
        """Go on with weights and optimizer of the phase before.

        Raises:
            DataError: that phase trained another model.
        """
        before = json.loads((previous / "config.json").read_text(encoding="utf-8"))
        changes = _differences(before, {name: value for name, value in self._shape().items() if name in before})
        if changes:
            raise DataError(
                f"the phase before trained another model: {'; '.join(changes)}", "Materialize that phase again."
            )
        self.model.load_state_dict(checkpoint.load_tensors(previous / "model.safetensors"))
        updates = json.loads((previous / "optimizer.json").read_text(encoding="utf-8"))["updates"]
        self.optimizer.load_state(checkpoint.load_tensors(previous / "optimizer.safetensors"), updates)
        self.state.updates = updates

    def _shape(self) -> dict[str, Any]:
        """What decides names and shapes of the weights."""
        return {
            "architecture": self.config.architecture.plain(),
            "vocabulary_size": self.job.vocabulary_size,
            "sentence_task": self.config.sentence_task,
        }

    def _announce(self, found: checkpoint.Checkpoint | None) -> None:
        config = self.config
        rows, parameters = len(self.train_shards), sum(p.numel() for p in self.model.parameters())
        epochs = config.steps * config.batch_size / rows
        self.timing.append(
            {
                "step": self.state.step,
                "resumed": found is not None,
                "device": self.device.kind,
                "device_name": self.device.name,
                "threads": self.job.training.threads,
                "epochs": epochs,
                "parameters": parameters,
            }
        )
        disk = parameters * 12 * (self.job.training.keep_checkpoints + 1) / 1e6
        print(
            f"{config.steps:,} steps of {config.batch_size} × {config.sequence_length} tokens: {epochs:.2f} epochs of "
            f"{rows:,} sequences, {parameters:,} parameters, {disk:,.0f} MB of checkpoints, on {self.device.name}; "
            + (f"goes on from step {self.state.step:,}" if found else "from the start"),
            file=sys.stderr,
            flush=True,
        )

    # ── what a run leaves ────────────────────────────────────────────────────────────────────────────────────────────

    def _save(self) -> None:
        """Save a checkpoint, unless this state is saved already, or the last step shows that it may be poisoned."""
        if self.state.skipped_in_a_row or self.saved == (self.state.step, self.state.evaluated):
            return
        checkpoint.save(
            self.folder / "checkpoints",
            self.state.step,
            {"model": self.model.state_dict(), "optimizer": self.optimizer.state()},
            {
                "identity": self._identity(),
                "place": self._place(),
                "progress": asdict(self.state),
                "metrics_bytes": self.metrics.sync(),
            },
            keep=self.job.training.keep_checkpoints,
        )
        self.saved = self.state.step, self.state.evaluated

    def _time(self, now: bool = False) -> None:
        """A row of timing.jsonl, when one is due."""
        clock = time.monotonic()
        passed = clock - self.measured
        if not now and passed < TIMING_SECONDS:
            return
        row = {"step": self.state.step, "seconds": round(clock - self.started, 3)}
        if self.measured_tokens:
            row["tokens_per_second"] = round(self.measured_tokens / passed, 1)
        row["memory_bytes"] = self.device.peak_memory_bytes()
        self.timing.append(row)
        self.measured, self.measured_tokens = clock, 0

    def _publish(self) -> None:
        """RUN_DIR/result: what the stage publishes, with nothing in it that depends on the machine's speed."""
        config = self.config
        scores = self._last_scores()

        def fill(place: Path) -> None:
            checkpoint.save_tensors(self.model.state_dict(), place / "model.safetensors")
            checkpoint.save_tensors(self.optimizer.state(), place / "optimizer.safetensors")
            _write(place / "optimizer.json", {"updates": self.state.updates, "step": config.first_step + config.steps})
            _write(place / "config.json", self._shape())
            _write(place / "held_out.json", scores)
            shutil.copyfile(self.folder / "metrics.jsonl", place / "metrics.jsonl")

        checkpoint.write_verified(self.folder / "result", fill)

    def _last_scores(self) -> dict[str, Any]:
        rows = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        last = next(row["held_out"] for row in reversed(rows) if "held_out" in row)
        held_out = self._held_out_rows()
        return {
            "step": self.config.first_step + self.config.steps,
            "sequences": len(held_out),
            "masked_words": len(held_out_rows(self.held_out_shards, held_out, self.targets).masked_ids),
            **last,
            "baselines": baselines(self.train_shards, self.held_out_shards, len(held_out), self.targets),
        }


def _optimizer(config: PretrainConfig, model: torch.nn.Module) -> Optimizer:
    return {"adamw": AdamW, "lamb": Lamb}[config.optimizer](
        model.named_parameters(),
        beta1=config.adam_beta1,
        beta2=config.adam_beta2,
        epsilon=config.adam_epsilon,
        weight_decay=config.weight_decay,
        bias_correction=config.bias_correction,
    )


def _targets(job: Job) -> Targets | None:
    """What rows without stored masks are given to predict."""
    config = job.config
    if config.objective == "clm":
        return next_words
    if config.masks is None:
        return None
    vocabulary = read_vocabulary(job.vocabulary / "vocab.txt")
    cls_id, sep_id, mask_id = (vocabulary.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
    of_vocabulary = control(vocabulary, cls_id=cls_id, sep_id=sep_id, mask_id=mask_id)
    return drawn_masks(config.masks, of_vocabulary, mix(config.seed, config.first_step))


BASELINE_PART = 4096
BASELINE_ROWS = 100_000
"""of the training part that the most frequent word is counted in"""


def baselines(train: ShardReader, held_out: ShardReader, rows: int, targets: Targets | None = None) -> dict[str, Any]:
    """What guessing gets on the first `rows` held-out rows: always the word that is most often to be predicted in
    training, always the sentence label that is more frequent there."""
    counts = np.zeros(1, np.int64)
    for some in _parts(np.arange(min(len(train), BASELINE_ROWS)), BASELINE_PART):
        found = np.bincount(held_out_rows(train, some, targets).masked_ids, minlength=len(counts))
        counts = found + np.pad(counts, (0, len(found) - len(counts)))
    frequent = int(counts.argmax())
    hidden = held_out_rows(held_out, np.arange(rows), targets).masked_ids
    guesses: dict[str, Any] = {
        "most_frequent_token_id": frequent,
        "most_frequent_token_accuracy": _short(float((hidden == frequent).mean())),
        "nsp_majority_accuracy": None,
    }
    if "next_sentence_label" in train.columns:
        majority = int(train.column("next_sentence_label").mean() > 0.5)
        labels = held_out.column("next_sentence_label")[:rows]
        guesses["nsp_majority_accuracy"] = _short(float((labels == majority).mean()))
    return guesses


def _count(sums: Window, words: torch.Tensor, sentences: torch.Tensor | None, batch: Batch) -> None:
    """Add how many predictions there were and how many of them are right."""
    sums.words += len(batch.masked_ids)
    sums.words_right += int((words.detach().argmax(1) == batch.masked_ids).sum())
    if sentences is not None and batch.labels is not None:
        sums.sentences += len(batch.labels)
        sums.sentences_right += int((sentences.detach().argmax(1) == batch.labels).sum())


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


def _short(value: float | None) -> float | None:
    """Six significant digits: enough for every curve, and rows stay readable."""
    return None if value is None else float(f"{value:.6g}")


def _parts(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} {old.get(name)!r} → {new.get(name)!r}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


@contextmanager
def _shown() -> Iterator[None]:
    """A line of progress in a terminal."""
    with progress.listen(lambda p: print(f"\r{p}\x1b[K", end="", file=sys.stderr, flush=True)):
        yield
    print(file=sys.stderr)
