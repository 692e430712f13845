"""Steps of a throw-away model with random rows, as the pretraining loop makes them: what they take of time and of memory.

    python -m model.training.trial PID      a process of its own; model/training/trial_questions.py starts it and says what is asked and answered

Nothing of it reaches a run: its weights, random numbers and memory end with the process.
"""

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

from model.bert import BertForPretraining, initialize, pretraining_losses
from model.devices import Device, open_device
from model.feeding.batches import batch_of
from model.feeding.random_rows import random_rows
from model.layers.unpadded import unpadded_of
from model.optimization.chosen_optimizer import optimizer_of
from model.optimization.optimizer import clip_gradients
from model.pretraining import STAGE
from model.processes.child import end_with_parent
from model.training.trial_questions import Question
from pipeline.errors import BertError
from pipeline.stage import ROOT
from pipeline.system import atomic

SECONDS = 20.0
"""About how long one step is measured: parts are doubled while the next would end in time"""
TOKENS = 1 << 15
"""Parts are not made larger than this to measure their time: a device is busy with them"""
TRIED_TOKENS = 1024
"""of the smaller of two parts whose memory is measured on a CPU"""
REMEMBERED_SECONDS = 3.0
"""What took longer is kept in the cache"""
CUDA_SHARE = 0.9
"""of the memory of a card that is free, a part may take: the rest is for what a long run fragments"""
Say = Callable[[dict[str, Any]], None]


class Trial:
    """A model and its optimizer, to be thrown away."""

    def __init__(self, question: Question, device: Device) -> None:
        config = question.config
        self.question, self.config, self.device = question, config, device
        self.rss_bytes = psutil.Process().memory_info().rss
        """of the process before there was a model"""
        model = BertForPretraining(config.architecture, question.vocabulary_size, config.sentence_task)
        initialize(model, config.seed)
        self.model = model.to(device.torch_device).train()
        self.model.encoder.checkpointing = question.training.activation_checkpointing
        self.parameters = sum(p.numel() for p in model.parameters())
        self.optimizer = optimizer_of(config, self.model.named_parameters())

    def step(self, count: int) -> tuple[float, float]:
        """A step with one part of `count` rows; seconds of forward and backward, and of the update."""
        length, config, device = self.question.length, self.config, self.device
        rows = random_rows(count, length, config, self.question.vocabulary_size)
        began = time.monotonic()
        padded = (
            unpadded_of(rows) if device.unpadded else batch_of(rows, config.sequence_length, config.sequence_length)
        )
        batch = padded.on(device)
        device.seed_step(config.seed, count)
        with device.autocast(config.precision):
            words, pairs = batch.logits(self.model)
            losses = pretraining_losses(words, batch.masked_ids, pairs, batch.labels)
        losses.total.backward()
        device.wait()
        computed = time.monotonic()
        clip_gradients(self.model.parameters(), config.max_gradient_norm)
        self.optimizer.step(config.learning_rate)
        self.optimizer.zero_grad()
        device.wait()
        return computed - began, time.monotonic() - computed


def seconds(trial: Trial, say: Say) -> dict[str, Any]:
    """What a part of a batch takes: the largest that is measured in about SECONDS, the quicker of two after one to warm up.

    Where every shape is compiled, only the largest is tried: compiling would take all the time, and one row keeps no TPU busy.
    """
    most, began = min(trial.question.rows, max(1, TOKENS // trial.question.length)), time.monotonic()
    rows = most if trial.device.fixed_shapes else 1
    found: dict[str, Any] = {}
    while True:
        try:
            took = list(_times(trial, rows))
        except torch.OutOfMemoryError:
            if not found:
                raise
            return found
        found = {"rows": rows, "part_seconds": min(t[0] for t in took), "update_seconds": min(t[1] for t in took)}
        say({"said": f"{rows} rows of {trial.question.length} tokens: {found['part_seconds']:.3g} s"})
        next_ends = time.monotonic() - began + 3 * (2 * found["part_seconds"] + found["update_seconds"])
        if rows == most or next_ends > SECONDS:
            return found
        rows = min(2 * rows, most)


def _times(trial: Trial, rows: int) -> Iterator[tuple[float, float]]:
    first = trial.step(rows)
    # What warming up costs does not matter to a step that is slow; compiling does.
    if sum(first) > SECONDS and not trial.device.fixed_shapes:
        yield first
        return
    for _ in range(2):
        yield trial.step(rows)


def memory(trial: Trial) -> dict[str, Any]:
    """CPU: the largest size of the process so far before any part, with one, and with one of twice the rows, unless that might
    be more than `budget_bytes`; and what the process has without rows."""
    question = trial.question
    static = trial.rss_bytes + 16 * trial.parameters  # weights, gradients and both moments
    small = max(1, min(question.rows // 2, TRIED_TOKENS // question.length))
    peaks = [(0, _largest_size())]
    for rows in (small, 2 * small):
        if 2 * peaks[-1][1] - static > question.budget_bytes and len(peaks) > 1:
            break
        for _ in range(2):  # the heap has its shape after the second
            trial.step(rows)
        peaks.append((rows, _largest_size()))
    return {"peaks": peaks, "static_bytes": static, "parameters": trial.parameters}


def _largest_size() -> int:
    """Largest resident size of this process since it runs this program. getrusage's would be that of whoever started it, if
    that is more."""
    told = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in told if line.startswith("VmHWM:")) * 1024


def fits_cuda(trial: Trial, rows: int) -> bool:
    """Whether steps with parts of so many rows fit into the card's memory."""
    try:
        for _ in range(2):
            trial.step(rows)
    except torch.OutOfMemoryError:
        fit = False
    else:
        fit = True
    if not fit:  # here, where the exception and what it holds are gone
        trial.optimizer.zero_grad()
        torch.cuda.empty_cache()
    return fit


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The most rows up to `most` that fit, to an eighth: doubled from 1 until they do not, then halved between; 0: none."""
    if not fits(1):
        return 0
    good, bad = 1, most + 1
    while 2 * good < bad and good < most:
        tried = min(2 * good, most)
        if not fits(tried):
            bad = tried
            break
        good = tried
    while bad - good > max(1, good // 8):
        tried = (good + bad) // 2
        if fits(tried):
            good = tried
        else:
            bad = tried
    return good


def answer(question: Question, device: Device, say: Say) -> dict[str, Any]:
    """What a question asks for."""
    about = {"device": device.kind, "device_name": device.name, "torch": torch.__version__}
    if question.about == "seconds":
        return about | _remembered(question, about, lambda: seconds(Trial(question, device), say))
    if device.kind == "cpu":
        return about | memory(Trial(question, device))
    free, total = torch.cuda.mem_get_info(device.torch_device)
    torch.cuda.set_per_process_memory_fraction(CUDA_SHARE * free / total, device.torch_device)
    trial = Trial(question, device)
    return about | {"rows": largest(lambda rows: fits_cuda(trial, rows), question.rows), "free_bytes": free}


def _remembered(question: Question, about: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured before of the same on the same device with the same code, or now."""
    if question.cache is None:
        return measure()
    asked = {name: value for name, value in question.plain().items() if name != "cache"}
    asked["training"] = {name: asked["training"][name] for name in ("threads", "activation_checkpointing")}
    identity = asked | about | {"code": _code()}
    path = question.cache / f"{hashlib.sha256(atomic.canonical_json(identity)).hexdigest()}.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {**found, "remembered": True}
    except (OSError, ValueError):
        began = time.monotonic()
        found = measure()
    if time.monotonic() - began > REMEMBERED_SECONDS:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_json(path, found)
        except (OSError, BertError):
            pass  # a store that can only be read: it is measured again the next time
    return found


def _code() -> str:
    """Digest of the code that makes a step."""
    names = sorted({path for glob in (*STAGE.sources, "model/training/trial.py") for path in ROOT.glob(glob)})
    return hashlib.sha256(b"".join(path.read_bytes() for path in names)).hexdigest()


def main() -> None:
    """Answer the questions on standard input, a line each; ends with the process that asked, whose id is the argument."""
    end_with_parent(signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        return  # it has ended meanwhile

    def say(row: dict[str, Any]) -> None:
        print(json.dumps(row), flush=True)

    for line in sys.stdin:
        question = Question.of(json.loads(line))
        try:
            device = open_device(question.training.device, question.training.threads)
            say({"answer": answer(question, device, say)})
        except BertError as error:
            print(f"{error.what}. {error.todo}", file=sys.stderr)
            sys.exit(1)
        except torch.OutOfMemoryError:
            print("one row does not fit into the memory of the card", file=sys.stderr)
            sys.exit(1)


if __name__ == "__main__":
    main()
