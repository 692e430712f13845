"""One run of fine-tuning: one network, one combination of the grid, one seed."""

import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model import checkpoint
from model.artifact import short
from model.bert import initialize
from model.devices import Device
from model.layers.classifier import Classifier, Pooling
from model.optimization.optimizer import AdamW, clip_gradients
from model.optimization.schedule import learning_rate
from model.processes.child import Stop
from model.processes.lines import Lines
from model.tuning.answers import answers_of
from model.tuning.examples import Examples, Ints, epoch_batches
from model.tuning.features import Kept
from model.tuning.finetuning_job import PRETRAINED, Job, Ranking, Run, State
from model.tuning.heads import Head, Task
from model.tuning.tuning_batches import Batch, batch_of, kept_batch, tokens_of
from pipeline.config import Architecture
from pipeline.errors import DataError
from pipeline.system import atomic
from pipeline.tokenizer import Tokenizer

MAX_GRADIENT_NORM = 1.0
"""as in google-research/bert optimization.py"""
LOG_EVERY, LOG_TIMES = 20, 20
"""most steps between two rows of metrics.jsonl; short runs have LOG_TIMES rows"""
TIMING_SECONDS = 5.0
SKIPPED_IN_A_ROW = 10


@dataclass(frozen=True)
class Setup:
    """What all runs of a job share."""

    folder: Path
    job: Job
    stop: Stop
    device: Device
    task: Task
    """task.json with the names of the head's labels"""
    head: Head
    scored: tuple[str, ...]
    """metrics"""
    ranking: Ranking
    pooling: Pooling
    tokenizer: Tokenizer
    architecture: Architecture
    """the encoder's, with the dropout of fine-tuning"""
    examples: Mapping[str, Examples]
    """by part, as the classifier gets them"""
    encoded: Mapping[str, Examples]
    """by part, as the encoder reads them: of a frozen one, other rows where words are tagged (model/tuning/features.py)"""
    floor: float
    """the metric of a guess that reads nothing, on dev"""

    def scores(self, part: str, guesses: Any) -> dict[str, float] | None:
        """Scores of a part's guesses; None where none of its labels are known."""
        return self.head.scores(self.scored, self.examples[part], guesses, self.task["labels"])

    def runs(self) -> Path:
        """Where finished runs lie."""
        return self.folder / "runs"

    def weights(self, run: Run) -> Path:
        """Where a finished run's weights lie, as long as they may be published."""
        return self.folder / "weights" / run.name

    def checkpoints(self, run: Run) -> Path:
        """Where a run in progress saves."""
        return self.folder / "current" / run.name


class Training:
    """The run in progress."""

    def __init__(
        self,
        setup: Setup,
        run: Run,
        kept: Mapping[str, Kept] | None,
        found: checkpoint.Checkpoint | None,
        metrics: Lines,
        timing: Lines,
        started: float,
    ) -> None:
        """kept: what a frozen encoder says, by part; None: it is trained."""
        self.setup, self.config, self.run, self.variant = setup, setup.job.config, run, run.variant
        self.device, self.examples, self.head = setup.device, setup.examples, setup.head
        self.metrics, self.timing, self.started = metrics, timing, started
        self.state = State()
        self.kept = kept
        self.model = Classifier(
            setup.architecture,
            len(setup.tokenizer.vocabulary),
            setup.head.classes(setup.task),
            setup.pooling,
            self.config.bilstm,
            run.variant.layers,
        )
        initialize(self.model, run.seed)
        if self.model.chosen is not None and kept is not None:
            self.kept = {part: each.only(self.model.chosen.numbers) for part, each in kept.items()}
        elif run.network == PRETRAINED:
            load_encoder(self.model, setup.job.pretrained)
        self.model.to(self.device.torch_device)
        self.optimizer = AdamW(
            self.model.named_parameters(),
            weight_decay=self.config.weight_decay,
            bias_correction=self.config.bias_correction,
        )
        self.best: dict[str, Tensor] = {}
        if found is not None:
            self._resume(found)

    def _resume(self, found: checkpoint.Checkpoint) -> None:
        self.model.load_state_dict(found.tensors("model"))
        self.state = State(**found.state["progress"])
        self.optimizer.load_state(found.tensors("optimizer"), int(found.state["updates"]))
        if self.state.best_epoch and self.state.best_epoch < self.variant.epochs:
            self.best = found.tensors("best")

    def to_the_end(self) -> bool:
        """Train, score and keep the run; False: asked to stop on the way, and saved."""
        state, variant = self.state, self.variant
        saved = time.monotonic()
        self.measured, self.measured_tokens, self.measured_examples = saved, 0, 0
        lengths = self.examples["train"].lengths
        self.train = self.examples["train"]
        while state.step < self.run.steps and not state.ended:
            epoch, first = divmod(state.step, self.run.steps_per_epoch)
            self.train = self.examples["train"].drawn(self.config.max_windows, self.run.seed, epoch)
            by_length = not self.device.unpadded
            for rows in epoch_batches(lengths, variant.batch_size, self.run.seed, epoch, by_length)[first:]:
                if self.setup.stop.asked:
                    self._save()
                    return False
                if time.monotonic() - saved >= self.setup.job.training.checkpoint_seconds:
                    self._save()
                    saved = time.monotonic()
                self._step(rows)
                self._time()
                if state.ended:
                    break
            # A run that broke off is scored where no epoch was: whatever ends leaves predictions.
            if (not state.ended or not state.epochs) and not self._end_epoch():
                return False
        return self._finish()

    # ── one step, one epoch ──────────────────────────────────────────────────────────────────────────────────────────

    def _step(self, rows: Ints) -> None:
        config, state = self.config, self.state
        self.device.seed_step(self.run.seed, state.step)
        rate = learning_rate(
            state.step, self.variant.learning_rate, round(config.warmup * self.run.steps), self.run.steps
        )
        self.model.train()
        train = self.train
        batch = self._batch(train, "train", rows)
        targets = self.device.put(torch.from_numpy(self.head.targets(train, rows)))
        with self.device.autocast(config.precision):
            outputs = self.model(batch).float()
        loss = self.head.loss(outputs, targets, batch.read.rows.starts.diff())
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
        tokens, sequences = tokens_of(train, rows)
        self.measured_tokens += tokens
        self.measured_examples += sequences
        if state.skipped_in_a_row >= SKIPPED_IN_A_ROW:
            state.ended = (
                f"{SKIPPED_IN_A_ROW} steps in a row, up to step {state.step}, had a gradient norm or loss that is not finite "
                f"(the last: norm {norm}, loss {value})"
            )
        if state.step % max(1, min(LOG_EVERY, self.run.steps // LOG_TIMES)) == 0 or state.step == self.run.steps:
            self._log(
                {"loss": short(state.window_loss / state.window_steps) if state.window_steps else None}
                | {"learning_rate": short(rate), "skipped_steps": state.skipped}
            )
            state.window_steps, state.window_loss = 0, 0.0

    def _batch(self, examples: Examples, part: str, rows: Ints) -> Batch:
        if self.kept is not None:
            return kept_batch(examples, rows, self.kept[part], self.device)
        return batch_of(examples, rows, self.model.whole, self.device, self.setup.tokenizer.pad_id)

    def _end_epoch(self) -> bool:
        """Score dev, remember the best weights; False: asked to stop on the way."""
        self._time(now=True)
        state = self.state
        epoch = len(state.epochs) + 1
        logits = self._logits("dev")
        if logits is None:
            # The checkpoint before this epoch's end is the newest that is whole: an epoch ends with its scores.
            return False
        dev = self._dev_scores(logits)
        mean = short(state.epoch_loss / state.epoch_steps) if state.epoch_steps else None
        state.epochs.append({"epoch": epoch, "train_loss": mean, "dev": dev})
        state.epoch_steps, state.epoch_loss = 0, 0.0
        self._log({"epoch": epoch, "train_loss": mean, "dev": dev})
        self._time(now=True)  # with the score
        ranking = self.setup.ranking
        before = state.epochs[state.best_epoch - 1]["dev"] if state.best_epoch else None
        if before is None or ranking.of(dev) > ranking.of(before):
            state.best_epoch = epoch
            if epoch < self.variant.epochs:
                self.best = {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}
        if epoch == self.config.early_exit and epoch < self.variant.epochs and (why := self._at_the_floor()):
            state.ended = f"given up after epoch {epoch}: {why}"
        return True

    def _dev_scores(self, logits: Tensor) -> dict[str, float]:
        head, dev = self.head, self.examples["dev"]
        found = self.setup.scores("dev", head.guesses(dev, logits, head.decide(dev, logits)))
        assert found is not None  # a dev example without a label was refused at the start
        if head.loss_name is None:
            return found
        loss = head.loss(logits.double(), torch.from_numpy(dev.labels), torch.from_numpy(dev.lengths)).item()
        return {head.loss_name: short(loss), **found}

    def _at_the_floor(self) -> str:
        """That the best epoch learnt nothing; "" where it did."""
        metric = self.setup.ranking.metric
        best = self.state.epochs[self.state.best_epoch - 1]["dev"][metric]
        if best > self.setup.floor:
            return ""
        return f"{metric} {best:.4g} on dev is not above {self.setup.floor:.4g}, that of a guess that reads nothing"

    def _logits(self, part: str) -> Tensor | None:
        """float [outputs, classes] of a part, in its own order; None: asked to stop on the way.

        What is not finite is 0, and the run has diverged.
        """
        found = answers_of(
            self.model,
            self.examples[part],
            lambda examples, rows: self._batch(examples, part, rows),
            self.head,
            self.setup.task,
            self.device,
            self.config.precision,
            lambda: self.setup.stop.asked,
        )
        if found is None:
            return None
        logits, finite = found
        if not finite:
            self.state.ended = self.state.ended or "the network's outputs are not finite"
        self.measured, self.measured_tokens, self.measured_examples = time.monotonic(), 0, 0  # speed is of training
        return logits

    def scored_parts(self) -> dict[str, Tensor] | None:
        """`_logits` of every part but train, by the network as it is now; None: asked to stop on the way."""
        logits: dict[str, Tensor] = {}
        for part in self.examples:
            if part != "train":
                found = self._logits(part)
                if found is None:
                    return None
                logits[part] = found
        return logits

    # ── what a run leaves ────────────────────────────────────────────────────────────────────────────────────────────

    def _finish(self) -> bool:
        state, head = self.state, self.head
        if state.best_epoch < self.variant.epochs:
            self.model.load_state_dict(self.best)
        logits = self.scored_parts()
        if logits is None:
            return False
        decided = head.decide(self.examples["dev"], logits["dev"])
        scores = {
            part: self.setup.scores(part, head.guesses(self.examples[part], found, decided))
            for part, found in logits.items()
        }
        result = {
            "best_epoch": state.best_epoch,
            "epochs": state.epochs,
            **scores,
            "dev": state.epochs[state.best_epoch - 1]["dev"],
            "decided": dict(decided),
            "ended": state.ended,
            "diverged": state.ended or self._at_the_floor(),
            "skipped_steps": state.skipped,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "metrics_bytes": self.metrics.sync(),
        }

        def weights(place: Path) -> None:
            checkpoint.save_tensors(self.model.state_dict(), place / "model.safetensors")

        def fill(place: Path) -> None:
            checkpoint.save_tensors(logits, place / "logits.safetensors")
            atomic.write_json(place / "run.json", result)

        if self.run.network == PRETRAINED:
            checkpoint.write_verified(self.setup.weights(self.run), weights)
        checkpoint.write_verified(self.setup.runs() / self.run.name, fill)
        shutil.rmtree(self.setup.checkpoints(self.run), ignore_errors=True)
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
            "metrics_bytes": self.metrics.sync(),
        }
        keep = self.setup.job.training.keep_checkpoints
        checkpoint.save(self.setup.checkpoints(self.run), state.step, tensors, saved, keep=keep)

    def _log(self, row: dict[str, Any]) -> None:
        """Add a row to metrics.jsonl: `step` counts through all runs, `run_step` in this one."""
        place = {"step": self.run.first_step + self.state.step, "run_step": self.state.step}
        run = {"network": self.run.network, "variant": self.run.number, "seed": self.run.seed}
        self.metrics.append({**place, **run, **row})

    def _where(self) -> str:
        """`seed 43, epoch 2 of 3, learning_rate 5e-05 (2 of 6), dev accuracy 0.912`: which run this is, and its last score."""
        run, config = self.run, self.config
        epochs = run.variant.epochs
        told = [f"seed {run.seed}", f"epoch {min(len(self.state.epochs) + 1, epochs)} of {epochs}"]
        if run.network != PRETRAINED:
            told.insert(0, run.network)
        if len(config.variants) > 1:
            tried = [each.plain() for each in config.variants]
            named = [f"{n} {v}" for n, v in tried[run.number].items() if any(each[n] != v for each in tried)]
            told.append(f"{' '.join(named)} ({run.number + 1} of {len(tried)})")
        if self.state.epochs:
            metric = self.setup.ranking.metric
            told.append(f"dev {metric} {self.state.epochs[-1]['dev'][metric]:.4g}")
        return ", ".join(told)

    def _time(self, now: bool = False) -> None:
        """A row of timing.jsonl, when one is due."""
        clock = time.monotonic()
        passed = clock - self.measured
        if not now and passed < TIMING_SECONDS:
            return
        row: dict[str, Any] = {"step": self.run.first_step + self.state.step}
        row |= {"seconds": round(clock - self.started, 3), "where": self._where()}
        if self.measured_tokens:
            row["tokens_per_second"] = round(self.measured_tokens / passed, 1)
            row["sequences_per_second"] = round(self.measured_examples / passed, 1)
            row["memory_bytes"] = self.device.peak_memory_bytes()
        self.timing.append(row)
        self.measured, self.measured_tokens, self.measured_examples = clock, 0, 0


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
