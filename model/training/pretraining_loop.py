"""The pretraining loop: what `python -m model.pretrain` runs, in one process or in several that train together.

Everything that decides a step is a pure function of the configuration and the step's number: its rows (model/feeding/order.py),
its learning rate, its dropout. A checkpoint holds the rest: weights, both moments, the sums since the last row of
metrics.jsonl and that file's size, to which a resumed run cuts it back. So a run that is killed and resumed gives the
bytes of one that never was, on the same kind of device with the same number of threads.

A step has two halves. `_step` asks the device for it; `_settle` is what the host makes of its results: the counters, the
guards, the rows. Between the two a device may be some steps ahead (`Device.steps_ahead`); results are read in order, and
all of them before a row of metrics.jsonl, an evaluation, a checkpoint and the end, so that nothing that a run leaves
depends on how far ahead the device was.
"""

import copy
import math
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model import checkpoint
from model.artifact import read_json, short
from model.bert import BertForPretraining, Losses, initialize, pretraining_losses
from model.devices import Device, open_device
from model.feeding.batches import (
    Batch,
    batch_of,
    check,
    held_out_rows,
)
from model.feeding.feed import Feed, Place
from model.feeding.order import mix
from model.feeding.targets import targets_of
from model.layers.unpadded import UnpaddedBatch, unpadded_of
from model.optimization.chosen_optimizer import optimizer_of
from model.optimization.optimizer import clip_gradients, clip_gradients_ahead
from model.optimization.schedule import learning_rate
from model.processes import lines
from model.processes.child import Stop
from model.processes.curves import Curves
from model.processes.fingerprint import fingerprint
from model.processes.heartbeat import Heartbeat
from model.processes.lines import Lines
from model.processes.replicas import Replicas
from model.processes.saver import Saver
from model.training import budget, guard, micro_batch
from model.training.checkpoint_room import check_room, needed_bytes, room_bytes
from model.training.flops import peak_flops, training_flops
from model.training.found import Found
from model.training.pretraining_job import METRICS, STABLE, Job, State, Window, mean, rows_at_once
from model.training.pretraining_result import publish, published_scores
from pipeline import progress, units
from pipeline.config import TrainConfig
from pipeline.errors import DataError, TrainingError
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import Shards
from pipeline.system import atomic

TIMING_SECONDS = 5.0
"""between two rows of timing.jsonl"""
REHEARSED = 2
"""parts of a batch that are timed before the first step, after one that warms up"""


def train(folder: Path, stop: Stop) -> bool:
    """Train the job of `folder` to its end, or until `stop.asked`; True when it is finished.

    Raises:
        DataError: shards or the phase before do not fit the model.
        TrainingError: a checkpoint of another job lies there, or the gradients stay without a finite value.
        StoreError: the disk is full.
    """
    job = Job.read(folder / "config.json")
    replicas = Replicas()
    auto, tokens = job.training.micro_batch_tokens == "auto", None
    if auto and replicas.first:  # while the device is free
        tokens = micro_batch.settled(folder, job, replicas.count, lambda: stop.asked)
    device = open_device(job.training.device, job.training.threads, replicas.local_rank)
    heartbeat = Heartbeat(folder, replicas.rank, job.training.hang_seconds)
    replicas.join(device.torch_device, 2 * job.training.hang_seconds + 60)  # later than the watchdog
    try:
        result = folder / "result"
        if replicas.first:  # two that rename the same folders would fail
            checkpoint.put_back(folder)
        if replicas.told(replicas.first and checkpoint.broken(result) is None):
            if replicas.first:
                print(f"this run has finished before: {result}", file=sys.stderr, flush=True)
            return True
        if auto:
            tokens = replicas.told(tokens)
            if tokens is None:
                return False
            job = job.with_micro_batch_tokens(tokens)
        if replicas.first:
            shutil.rmtree(result, ignore_errors=True)
        with _shown() if replicas.first and sys.stderr.isatty() else nullcontext():
            return _Run(folder, job, stop, device, replicas, heartbeat).to_the_end()
    finally:
        replicas.leave()
        heartbeat.end()


class _Run:
    """One process's part of a run."""

    def __init__(
        self, folder: Path, job: Job, stop: Stop, device: Device, replicas: Replicas, heartbeat: Heartbeat
    ) -> None:
        self.started = self.measured = time.monotonic()
        self.measured_tokens = self.measured_flops = 0.0
        self.folder, self.job, self.stop = folder, job, stop
        self.device, self.replicas, self.heartbeat = device, replicas, heartbeat
        self.config: TrainConfig = job.config
        self.train_shards = self._reader("train")
        self.held_out_shards = self._reader("held_out")
        self.targets = targets_of(self.config, job.vocabulary / "vocab.txt")
        self.model = BertForPretraining(self.config.architecture, job.vocabulary_size, self.config.sentence_task)
        self.model.to(device.torch_device)
        self.model.encoder.checkpointing = job.training.activation_checkpointing
        self.optimizer = optimizer_of(self.config, self.model.named_parameters())
        own = -(-self.config.batch_size // replicas.count)
        self.rows_at_once = rows_at_once(own, self.config.sequence_length, job.training.micro_batch_tokens)
        self.parts = -(-own // self.rows_at_once)
        """a batch is computed in so many, in each replica"""
        if self.rows_at_once % device.count:
            raise TrainingError(
                f"{self.rows_at_once} rows can't be split over {device.count} devices",
                "Change batch_size, or micro_batch_tokens in settings.yaml, which says how many rows are computed at once.",
            )
        self.shapes: set[tuple[bool, int]] = set()
        """of the batches so far: in training or not, padded length"""
        self.compiled = 0, 0
        """compilations of the device so far, and how many shapes there were then"""
        self.feed = Feed(
            self.train_shards,
            self.config.batch_size,
            mix(self.config.seed, self.config.first_step),
            self.config.sequence_length,
            self.targets,
            place=Place(replicas.rank, replicas.count, self.parts),
        )
        self.read_from = {
            "shards": fingerprint(job.shards),
            "vocabulary": fingerprint(job.vocabulary / "vocab.txt"),
            "previous": None if job.previous is None else fingerprint(job.previous / "model.safetensors"),
        }
        self.state = State()
        """after the last step that is settled"""
        self.ahead: list[_Asked] = []
        """the steps behind it, in order, that the device was asked for"""
        self.good: tuple[State, int] | None = None
        """After steps without a finite gradient: the state before the first of them, and the size of metrics.jsonl then.
        They changed no weight, so that this is what a checkpoint holds meanwhile."""
        self.rolled_back = 0
        """times in a row that the run went back without getting beyond the last bad step"""
        self.last_bad = 0
        self.saved: tuple[int, int] | None = None
        """step and last evaluation of the newest checkpoint"""
        training = job.training
        self.saver = Saver(folder / "checkpoints", training.keep_checkpoints, training.milestone_steps)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        if replicas.first:
            check_room(folder, self.parameters)
        self.step_seconds = self._rehearse()
        self.config = self._planned()
        kept = self._begin_on_device()
        first = replicas.first
        self.metrics = Lines(folder / METRICS, keep=kept) if first else None
        self.timing = Lines(folder / "timing.jsonl") if first else None
        self.curves = Curves(folder / "tensorboard", self.config.first_step + self.state.step) if first else None
        self._announce(resumed=self.saved is not None)

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
            self._settle_all()
            self._save()
            self.saver.wait()
            self._time(now=True)
            finished = self.state.step == self.config.steps == self.state.evaluated
            if finished and self.replicas.first:
                self._publish()
            self.replicas.told(None)  # none leaves before the result is there
        finally:
            for file in (self.metrics, self.timing, self.curves):
                if file is not None:
                    file.close()
        return finished

    def _train(self) -> None:
        config, training = self.config, self.job.training
        saved = time.monotonic()
        self.measured, self.measured_tokens, self.measured_flops = saved, 0, 0
        while True:
            asked_for = self._asked_for
            due = asked_for == config.steps or asked_for % config.evaluate_every == 0
            if due and asked_for > self.state.evaluated and not self._evaluate():
                return  # asked to stop: the evaluation begins anew after the resume
            if asked_for == config.stable_step and self.replicas.first:
                checkpoint.write_verified(self.folder / STABLE, self._weights)
            if asked_for == config.steps:
                return
            late = time.monotonic() - saved >= training.checkpoint_seconds
            counted = bool(training.checkpoint_steps) and asked_for % (training.checkpoint_steps or 1) == 0
            asked, save = self.replicas.sums([self.stop.asked, self.replicas.first and (late or counted)])
            if asked:
                return
            if save:
                self._settle_all()
                self._save()
                saved = time.monotonic()
            self.saver.check()
            if not self._step():
                return
            self._time()

    # ── one step ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _asked_for(self) -> int:
        """Steps that the device was asked for."""
        return self.state.step + len(self.ahead)

    def _step(self) -> bool:
        """Ask the device for a step, and settle those that must be; False: asked to stop between the parts of its batch,
        and nothing has changed."""
        config, step = self.config, self._asked_for
        number = config.first_step + step
        self.heartbeat.beat(number)
        rate = learning_rate(
            number,
            config.learning_rate,
            config.warmup_steps,
            config.schedule_steps,
            power=config.decay_power,
            decay_steps=config.decay_steps,
        )
        if rate <= 0:
            raise TrainingError(f"the learning rate of step {number} is {rate:g}", "Give the schedule more steps.")
        found = self._gradients(guard.batch_number(step, self.state.passed_over), number)
        if found is None:
            self.optimizer.zero_grad()
            return False
        self.replicas.sum_gradients(self.model.parameters())
        self._update(found, rate)
        self.ahead.append(_Asked(rate, found))
        self.optimizer.zero_grad()
        self.device.begin()
        if len(self.ahead) > self.device.steps_ahead or self._results_are_due():
            self._settle_all()
        return True

    def _update(self, found: "Found", rate: float) -> None:
        """Clip and apply the gradients, unless they or the loss are not finite, and add their norm to what was found.

        Where the device is ahead, it decides that itself, from the same numbers.
        """
        config, parameters = self.config, self.model.parameters()
        if self.device.steps_ahead:
            norm = clip_gradients_ahead(parameters, config.max_gradient_norm)
            finite = norm.isfinite() & found.loss_on(self.device).isfinite()
            self.optimizer.step(self.device.scalar(rate), finite)
            found.sums[4] = norm
        else:
            found.sums[4] = clip_gradients(parameters, config.max_gradient_norm)
            if found.read().is_finite:
                self.optimizer.step(rate)

    def _results_are_due(self) -> bool:
        """Whether what comes after the last step that was asked for needs the results of all of them."""
        config, step = self.config, self._asked_for
        every = (config.log_every, config.evaluate_every, self.job.training.checkpoint_steps)
        return step in (config.steps, config.stable_step) or any(n is not None and step % n == 0 for n in every)

    def _settle_all(self) -> None:
        """Read the results of the steps that the device was asked for, and settle them in order."""
        while self.ahead:
            asked = self.ahead.pop(0)
            self.heartbeat.beat(self.config.first_step + self.state.step)
            self._settle(asked.rate, asked.found.read())
        self._watch_compilations()

    def _settle(self, rate: float, found: "Found") -> None:
        """What follows from a step's results: counters, guards, rows."""
        config, state = self.config, self.state
        size = self.metrics.size if self.metrics is not None else 0
        self._tell_of_batches_passed_over()
        if found.is_finite:
            state.updates += 1
            self.good, state.skipped_in_a_row = None, 0
            if state.step > self.last_bad:
                self.rolled_back = 0
            self._look_for_a_spike(found.loss)
            found.add_to(state.window)
        else:
            if self.good is None:
                self.good = copy.deepcopy(state), size
            state.skipped += 1
            state.skipped_in_a_row += 1
        state.step += 1
        self.measured_tokens += found.tokens
        self.measured_flops += found.flops
        if state.skipped_in_a_row > guard.SKIPPED_IN_A_ROW:
            self._roll_back(found.gradient_norm, found.loss)
            return
        if state.step % config.log_every == 0 or state.step == config.steps:
            means = {name: short(value) for name, value in state.window.means().items()} if state.window.steps else {}
            row = {"step": state.step, **means, "learning_rate": short(rate), "skipped_steps": state.skipped}
            self._record(row)
            state.window = Window()
            progress.report(state.step, config.steps, "steps", **{k: v for k, v in means.items() if v is not None})

    def _gradients(self, batch_number: int, number: int, rehearsal: bool = False) -> "Found | None":
        """Gradients of this replica's share of a batch, a part at a time, and what all replicas found; None: asked to stop.

        The loss is the mean over all masked words of the whole batch plus the mean over all its pairs: every part weighs as
        much as it has of them, so that the number of parts and of replicas changes nothing but rounding.
        `rehearsal`: the first part only, of this replica alone.
        """
        config = self.config
        rows = [self.feed.rows(batch_number, part) for part in range(1 if rehearsal else self.parts)]
        totals = [sum(len(some.masked_ids) for some in rows), sum(map(len, rows))]
        words_total, pairs_total = map(self.device.scalar, totals if rehearsal else self.replicas.sums(totals))
        self.model.train()
        found = Found(self.device)
        for part, some in enumerate(rows):
            if part and any(self.replicas.sums([self.stop.asked])):
                return None
            if not len(some):
                continue  # another replica has one more
            if part:
                self.device.begin()
            batch = self._made(some)
            unlike = self.replicas.rank or part
            self.device.seed_step(mix(config.seed, self.replicas.rank, part) if unlike else config.seed, number)
            words, pairs, losses = self._said(batch, words_total, pairs_total)
            losses.total.backward()
            found.add(losses, words, pairs, batch, words_total, pairs_total)
            found.count(some, batch, training_flops(config.architecture, self.job.vocabulary_size, some))
        return found if rehearsal else found.of_all(self.replicas)

    def _said(
        self, batch: Batch | UnpaddedBatch, words_total: float | Tensor, pairs_total: float | Tensor
    ) -> tuple[Tensor, Tensor | None, Losses]:
        """The model's logits of words and of pairs, and their share in the losses of a batch of so many of both."""
        with self.device.autocast(self.config.precision):
            words, pairs = batch.logits(self.model)
            losses = pretraining_losses(
                words,
                batch.masked_ids,
                pairs,
                batch.labels,
                masked_weights=batch.masked_weights,
                batch_words=words_total,
                batch_rows=pairs_total,
            )
        return words, pairs, losses

    def _made(self, rows: Shards) -> Batch | UnpaddedBatch:
        """The rows as the model takes them here, on the device."""
        if self.device.unpadded:
            return unpadded_of(rows).on(self.device)
        length = self.config.sequence_length
        if not self.device.fixed_shapes:
            return batch_of(rows, length).on(self.device)
        predictions = length - 1 if self.config.objective == "clm" else self.config.max_predictions_per_seq
        batch = batch_of(rows, length, predictions=predictions, height=self.rows_at_once)
        self.shapes.add((self.model.training, batch.input_ids.shape[1]))
        return batch.on(self.device)

    def _watch_compilations(self) -> None:
        """Warn where the device compiled although no shape was new."""
        compilations, (before, shapes) = self.device.compilations(), self.compiled
        if compilations is None:
            return
        self.compiled = compilations, len(self.shapes)
        if compilations > before and len(self.shapes) == shapes:
            what = f"compiled {compilations - before} programs up to step {self.state.step} although no length was new"
            self._say(f"{self.device.name} {what}: each costs minutes; something changes from step to step")
            if self.timing is not None:
                self.timing.append({"step": self.state.step, "warning": what})

    def _look_for_a_spike(self, loss: float) -> None:
        state = self.state
        if guard.is_spike(loss, state.recent):
            batch = guard.batch_number(state.step, state.passed_over)
            self._record({"step": state.step + 1, "spike": short(loss), "batch": batch})
        state.recent = [*state.recent, loss][-guard.SPIKE_WINDOW :]

    def _tell_of_batches_passed_over(self) -> None:
        """A row where this step takes another batch than the next one: it follows from the state alone, so that it
        stands in the same place wherever the run went back to."""
        passed = guard.just_passed(self.state.step, self.state.passed_over)
        if passed is None:
            return
        first, end = passed
        size = self.config.batch_size
        self._record({"step": self.state.step, "passed_over": [first, end], "samples": [first * size, end * size]})

    def _roll_back(self, norm: float, loss: float) -> None:
        """Back to the checkpoint before the bad steps; their batches are passed over from now on."""
        assert self.good is not None
        state, first_bad = self.state, self.good[0].step
        what = (
            f"{state.skipped_in_a_row} steps in a row, up to step {state.step}, had a gradient norm or loss that is not "
            f"finite (the last: norm {norm}, loss {loss})"
        )
        self.rolled_back += 1
        if self.rolled_back > guard.MOST_ROLL_BACKS:
            raise TrainingError(
                f"{what}; going back and around {guard.MOST_ROLL_BACKS} times did not help",
                "Lower learning_rate, lengthen warmup_steps, or use precision fp32.",
            )
        passed_over = guard.pass_over(first_bad, state.step - 1, state.passed_over)
        self.good, self.last_bad = None, state.step
        self.ahead.clear()
        self.state = State()
        kept = self._begin_on_device()
        self.state.passed_over = passed_over
        if self.metrics is not None:
            self.metrics.cut(kept)
        self.saved = None  # the same step, with what was learned: a process that is killed now need not learn it again
        self._save()
        batches = (
            guard.batch_number(first_bad, state.passed_over),
            guard.batch_number(state.step - 1, state.passed_over),
        )
        event = {"step": self.state.step, "rolled_back_from": state.step, "batches": batches}
        if self.timing is not None:
            self.timing.append(event)
        self._say(
            f"{what}; back to step {self.state.step}, and around batches {batches[0]} to {batches[1]} (sequences "
            f"{batches[0] * self.config.batch_size} to {(batches[1] + 1) * self.config.batch_size - 1} of the order)"
        )

    # ── held-out evaluation ──────────────────────────────────────────────────────────────────────────────────────────

    def _evaluate(self) -> bool:
        """Add a row of held-out scores; False: asked to stop on the way, nothing added."""
        self._time(now=True)
        scores = self._scores()
        self.measured, self.measured_tokens, self.measured_flops = time.monotonic(), 0, 0  # speed is that of training
        if scores is None:
            return False
        state, loss = self.state, scores["mlm_loss"]
        if loss is None or not math.isfinite(loss):
            raise TrainingError(
                f"the held-out loss after step {state.step} is {loss}",
                "Lower learning_rate, lengthen warmup_steps, or use precision fp32.",
            )
        self._record({"step": state.step, "held_out": scores})
        state.evaluated = state.step
        if self.config.publish == "best" and (state.best is None or loss < state.best):
            state.best, state.best_step = loss, state.step
            self._keep_best()
        return True

    @torch.no_grad()  # XLA can't take views in inference mode
    def _scores(self) -> dict[str, float | None] | None:
        self.model.eval()
        found = Found(self.device)
        self.device.begin()  # so that it adds to the same kind of thing in every part
        replicas = self.replicas
        parts = list(_parts(self._held_out_rows(), self.rows_at_once))
        for turn in range(0, len(parts), replicas.count):
            self.heartbeat.beat(self.config.first_step + self.state.step)
            if any(replicas.sums([self.stop.asked])):
                return None
            if turn + replicas.rank >= len(parts):
                continue
            rows = held_out_rows(self.held_out_shards, parts[turn + replicas.rank], self.targets)
            batch = self._made(rows)
            words_total, pairs_total = (self.device.scalar(count) for count in (len(rows.masked_ids), len(rows)))
            words, pairs, losses = self._said(batch, words_total, pairs_total)
            found.add(losses, words, pairs, batch, words_total, pairs_total)
            found.count(rows, batch)
            self.device.begin()
        found = found.of_all(replicas).read()
        return {
            "mlm_loss": short(mean(found.words_loss, found.words)),
            "mlm_accuracy": short(mean(found.words_right, found.words)),
            "nsp_loss": short(mean(found.sentences_loss, found.sentences)),
            "nsp_accuracy": short(mean(found.sentences_right, found.sentences)),
        }

    def _held_out_rows(self) -> np.ndarray:
        return np.arange(min(len(self.held_out_shards), self.config.evaluate_sequences))

    # ── where a run begins ───────────────────────────────────────────────────────────────────────────────────────────

    def _begin_on_device(self) -> int:
        """`_begin`, and weights and moments are numbers on the device, not expressions of how they were drawn: the first
        step is the same program as the others."""
        kept = self._begin()
        self.device.begin()
        self.compiled = self.device.compilations() or 0, 0
        return kept

    def _begin(self) -> int:
        """Set weights, optimizer and state: the newest checkpoint's, else those of the phase before or of an imported
        model, else drawn ones. Returns the size that metrics.jsonl is cut back to."""
        self.saver.wait()
        place = None
        if self.replicas.first:
            found = checkpoint.newest(self.folder / "checkpoints", self._has_its_rows)
            place = None if found is None else found.folder
        place = self.replicas.told(place)
        if place is not None:
            return self._resume(checkpoint.read(place))
        self.optimizer.forget()
        if self.job.previous is None or self.config.start_mode == "warm":
            initialize(self.model, self.config.seed)
        if self.job.previous is not None:
            self._continue(self.job.previous)
        return 0

    def _has_its_rows(self, found: checkpoint.Checkpoint) -> bool:
        """Whether metrics.jsonl is as long as it was when this checkpoint was saved."""
        return int(found.state["metrics_bytes"]) <= lines.whole_bytes(self.folder / METRICS)

    def _identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be this job's."""
        sizes = {"vocabulary_size": self.job.vocabulary_size, "train_rows": len(self.train_shards)}
        # `config` as planned: of other hours or another plan is another run
        return self.config.plain() | sizes | self.read_from

    def _place(self) -> dict[str, Any]:
        """What may differ between two parts of a run: the order of samples stays, last bits may not."""
        training = self.job.training
        return {
            "device": self.device.kind,
            "threads": training.threads,
            "ranks": self.replicas.count,
            "micro_batch_tokens": training.micro_batch_tokens,
        }

    def _resume(self, found: checkpoint.Checkpoint) -> int:
        """Go on from a checkpoint of this run; returns the size to cut metrics.jsonl back to."""
        saved = found.state
        identity = self._identity()
        changes = _differences(identity | saved["identity"], identity)  # an older checkpoint may not tell everything
        if changes:
            raise TrainingError(
                f"{found.folder} belongs to another job: {'; '.join(changes)}",
                "A changed recipe is a new run: use another run folder, or start anew with --force.",
            )
        for change in _differences(saved["place"], self._place()):
            self._say(f"resumed with another {change}: same samples in the same order, last bits may differ")
        self.model.load_state_dict(found.tensors("model"))
        self.state = State.of(saved["progress"])
        self.optimizer.load_state(found.tensors("optimizer"), self.state.updates)
        self.saved = self.state.step, self.state.evaluated
        kept, there = int(saved["metrics_bytes"]), self.replicas.told(lines.whole_bytes(self.folder / METRICS))
        if there < kept:
            self._say(
                f"{METRICS} lacks rows from before step {self.state.step}: the curve has a gap, the training has none"
            )
            self.state.best = self.state.best_step = None  # the scores of the best evaluation may be among them
        return min(kept, there)

    def _continue(self, previous: Path) -> None:
        """Go on with weights and optimizer of the phase before or of an imported model; mode warm: with its weights alone,
        and what it lacks stays as it was drawn.

        Raises:
            DataError: that is another model.
        """
        before = read_json(previous / "config.json")
        changes = _differences(before, {name: value for name, value in self._shape().items() if name in before})
        if changes:
            raise DataError(
                f"the phase before trained another model: {'; '.join(changes)}", "Materialize that phase again."
            )
        warm = self.config.start_mode == "warm"
        # What the imported model lacks, its stage has told; names and shapes that do not fit are refused here.
        unknown = self.model.load_state_dict(checkpoint.load_tensors(previous / "model.safetensors"), strict=not warm)
        if unknown.unexpected_keys:
            raise DataError(f"{previous} holds {unknown.unexpected_keys[0]}, which the model lacks", "Import it again.")
        if warm:
            return
        updates = read_json(previous / "optimizer.json")["updates"]
        self.optimizer.load_state(checkpoint.load_tensors(previous / "optimizer.safetensors"), updates)
        self.state.updates = updates

    def _shape(self) -> dict[str, Any]:
        """What decides names and shapes of the weights."""
        return {
            "architecture": self.config.architecture.plain(),
            "vocabulary_size": self.job.vocabulary_size,
            "sentence_task": self.config.sentence_task,
        }

    def _announce(self, resumed: bool) -> None:
        config, training = self.config, self.job.training
        rows = len(self.train_shards)
        epochs = config.steps * config.batch_size / rows
        seconds = self.step_seconds
        hours = (config.steps - self.state.step) * seconds * (1 + self._evaluating_share()) / 3600
        row = {
            "step": self.state.step,
            "resumed": resumed,
            "device": self.device.kind,
            "device_name": self.device.name,
            "threads": training.threads,
            "ranks": self.replicas.count,
            "steps": config.steps,
            "epochs": epochs,
            "parameters": self.parameters,
        }
        disk, free = needed_bytes(self.parameters, config, training), room_bytes(self.folder)
        told = (
            f"{config.steps:,} steps of {config.batch_size} × {config.sequence_length} tokens: {epochs:.2f} epochs of "
            f"{rows:,} sequences, {self.parameters:,} parameters; about {_duration(hours)} at {seconds:.3g} s a step, "
            f"{units.size(disk)} of checkpoints, on {self.replicas.count} × {self.device.name}; "
            + (f"goes on from step {self.state.step:,}" if resumed else "from the start")
        )
        if free < disk:
            told += f". ONLY {units.size(free)} ARE FREE for them: free space before it ends there"
        if self.timing is not None:
            self.timing.append(row | {"told": told})
        self._say(told)

    def _planned(self) -> TrainConfig:
        """The configuration with as many steps as `max_hours` leaves, and its schedule in proportion. Decided once: a run
        that goes on, on whatever machine, keeps its plan."""
        config = self.config
        if config.max_hours is None:
            return config
        steps = None
        if self.replicas.first:
            steps = budget.steps_of(self.folder, config, self.step_seconds * (1 + self._evaluating_share()))
        return budget.fitted(config, self.replicas.told(steps))

    def _evaluating_share(self) -> float:
        """About how long evaluating takes, for every second of training: of forward and backward, forward is a third."""
        batches = len(self._held_out_rows()) / self.config.batch_size
        return batches / 3 / min(self.config.evaluate_every, self.config.steps)

    def _rehearse(self) -> float:
        """About how many seconds a step takes: a part of a batch, forward and backward, and an update. What it does to weights
        and optimizer, `_begin` undoes."""
        took: list[tuple[float, float]] = []
        self.device.begin()  # what was asked for so far is no part of it
        for _ in range(1 + REHEARSED):
            began = time.monotonic()
            found = self._gradients(0, self.config.first_step, rehearsal=True)
            self.device.wait()
            computed = time.monotonic()
            if found is not None and found.tokens:  # of many replicas one may have no row
                self._update(found, self.config.learning_rate)
            self.optimizer.zero_grad()
            self.device.begin()
            self.device.wait()
            took.append((computed - began, time.monotonic() - computed))
        return min(part for part, _ in took[1:]) * self.parts + min(update for _, update in took[1:])

    # ── what a run leaves ────────────────────────────────────────────────────────────────────────────────────────────

    def _record(self, row: dict[str, Any]) -> None:
        """Add a row of metrics.jsonl and to the curves."""
        if self.metrics is not None and self.curves is not None:
            self.metrics.append(row)
            self.curves.add(row, self.config.first_step)

    def _say(self, what: str) -> None:
        if self.replicas.first:
            print(what, file=sys.stderr, flush=True)

    def _save(self) -> None:
        """Begin to save a checkpoint, unless this state is saved already."""
        state = self.state if self.good is None else self.good[0]
        if self.saved == (state.step, state.evaluated):
            return
        self.saved = state.step, state.evaluated
        self.heartbeat.beat(self.config.first_step + self.state.step)
        if self.metrics is None:
            return
        size = self.metrics.sync()
        if self.timing is not None:
            self.timing.append({"step": state.step, "checkpoint": True})
        self.saver.save(
            state.step,
            {"model": self.model.state_dict(), "optimizer": self.optimizer.state()},
            {
                "identity": self._identity(),
                "place": self._place(),
                "progress": asdict(state),
                "metrics_bytes": size if self.good is None else self.good[1],
            },
        )

    def _time(self, now: bool = False) -> None:
        """A row of timing.jsonl, when one is due."""
        clock = time.monotonic()
        passed = clock - self.measured
        if self.timing is None or (not now and passed < TIMING_SECONDS):
            return
        row: dict[str, Any] = {"step": self.state.step, "seconds": round(clock - self.started, 3)}
        if self.measured_tokens:
            row["tokens_per_second"] = round(self.measured_tokens / passed, 1)
            peak = peak_flops(self.device.name, self.config.precision)
            if peak is not None:
                row["mfu"] = short(self.measured_flops / passed / (peak * self.replicas.count))
        row["memory_bytes"] = self.device.peak_memory_bytes()
        compilations = self.device.compilations()
        if compilations is not None:
            row["compilations"] = compilations
        self.timing.append(row)
        self.measured, self.measured_tokens, self.measured_flops = clock, 0, 0

    def _keep_best(self) -> None:
        """Keep the weights of now, the best so far, until better ones are as safe as they are."""
        step = self.state.step
        if self.replicas.first:
            checkpoint.write_verified(self.folder / f"best-{step}", self._weights)
        self._save()
        self.saver.wait()
        if self.replicas.first:
            for old in self.folder.glob("best-*"):
                if old.name != f"best-{step}":
                    shutil.rmtree(old)

    def _weights(self, place: Path) -> None:
        """Write weights and optimizer of now into a folder."""
        checkpoint.save_tensors(self.model.state_dict(), place / "model.safetensors")
        checkpoint.save_tensors(self.optimizer.state(), place / "optimizer.safetensors")
        done = {
            "optimizer": self.config.optimizer,
            "updates": self.state.updates,
            "step": self.config.first_step + self.state.step,
        }
        atomic.write_json(place / "optimizer.json", done)

    def _publish(self) -> None:
        """RUN_DIR/result: what the stage publishes."""
        best, rows = self.state.best_step, self._held_out_rows()
        scores = published_scores(
            self.folder, self.config, best, self.train_shards, self.held_out_shards, rows, self.targets
        )
        publish(self.folder, self.config, best, self._weights, self._shape(), scores)


@dataclass(frozen=True)
class _Asked:
    """A step that the device was asked for."""

    rate: float
    found: Found


def _duration(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.0f} min" if hours * 60 >= 2 else f"{hours * 3600:.0f} s"


def _parts(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} {old.get(name)!r} → {new.get(name)!r}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


@contextmanager
def _shown() -> Iterator[None]:
    """A line of progress in a terminal."""
    with progress.listen(lambda p: print(f"\r{p}\x1b[K", end="", file=sys.stderr, flush=True)):
        yield
    print(file=sys.stderr)
