"""Fine-tuning here against a plain loop around transformers' model: sequences per second, dev score, memory.

    python -m benchmarks.finetuning [CHECKPOINT TASK FOLDER] [--rounds 1] [--steps 5] [--epochs 3] [--precision fp32]

CHECKPOINT is a folder in the Hugging Face layout, TASK a task of classes that is known by name (mrpc, rte, sst2), FOLDER has
its official files. Without them: a small random network and made-up pairs as long as MRPC's. A round is one seed. In it three
processes with two threads each train the same examples from the same weights, batches of 32, to the end: transformers' model
padded to 128 tokens, as the paper and the examples of transformers do, the same padded to the longest of a batch, and ours,
model/tuning/finetuning_loop.py on a run folder as the stage writes it. They take turns of `--steps` steps, and all make the same
number of steps in a turn, so that whatever else the machine does meets them alike.

Theirs is what Trainer does without the Trainer (which needs accelerate): the tokenizer, collators, model with its default
attention and schedule of transformers, torch's DataLoader, its fused AdamW, norms of gradients cut at 1. Tokens are made
before the clock starts, on all sides; batches inside. No checkpoint is saved. Dev is scored after every epoch; that is timed apart,
and only between two epochs. Dropout and the order of examples differ between the sides as they do between seeds, and so do scores.
A useful token is one that is not padding. Ratios are medians over neighbouring turns, processor seconds beside those of the wall.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from model import checkpoint, metrics
from model.artifact import read_json
from model.bert import BertForPretraining, initialize
from model.devices import open_device
from model.imported import import_checkpoint
from model.layers.classifier import Classifier
from model.layers.weights import to_hugging_face
from model.optimization.optimizer import Optimizer
from model.processes.child import Stop
from model.reporting.shown_numbers import decimal, interval
from model.task_files.task_kinds import SCHEMAS
from model.tasks import CLASSES, NOT_RUN, prepare_task
from model.tuning import finetuning_loop
from model.tuning.examples import read_columns, read_examples
from model.tuning.finetuning_run import load_encoder
from model.tuning.tuning_batches import batch_of
from pipeline.config import Architecture, FinetuneConfig, ImportedConfig, PathFrom, TaskDataConfig
from pipeline.errors import BertError, DataError
from pipeline.settings import TrainingSettings
from pipeline.system import atomic
from pipeline.tokenizer import SPECIAL_TOKENS, load, tokenizer_json

THREADS = 2
PADDED, DYNAMIC, OURS = "padded to 128", "to the longest", "bertworks"
SIDES = (PADDED, DYNAMIC, OURS)
SCORING_BATCH = 64
WHOLE_RUN = 1e9
"""seconds between two checkpoints: there is none"""
MADE = {"train": 640, "dev": 128}
SMALL = Architecture(layers=2, hidden=64, heads=2, max_positions=128)


@dataclass(frozen=True)
class Inputs:
    """What all sides read."""

    checkpoint: Path
    """in the Hugging Face layout, with its tokenizer"""
    imported: Path
    """the same as `imported_checkpoint` publishes it"""
    task_data: Path


@dataclass(frozen=True)
class Side:
    """What one side took in one round: a figure for every turn, and its dev scores after the last epoch."""

    steps: list[int]
    wall: list[float]
    cpu: list[float]
    memory_bytes: int
    """most of the process before dev was scored for the first time"""
    scoring_seconds: float | None
    """of dev once; None: there was one epoch only"""
    scores: dict[str, float]


# ── the clock ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Turns(Stop):
    """Lets a loop make so many steps as standard input says, then tells what they took.

    A loop looks at `asked` before every step and every batch that it scores. A step lasts from the last look before its
    update to the first look after it: everything that it costs, and no scoring.
    """

    def __init__(self, telling: int) -> None:
        super().__init__()
        self._telling = telling
        """file descriptor: standard output belongs to whatever the loop prints"""
        self._left = self._looks = self._scored = 0
        self._updated = False
        self._began = self._rested = (0.0, 0.0)
        self._steps, self._wall, self._cpu, self._scoring = 0, 0.0, 0.0, 0.0

    @property
    def asked(self) -> bool:  # type: ignore[override]
        """False: nobody stops a benchmark. Waits where the turn is another's."""
        now = _clocks()
        if self._updated:
            self._updated, self._looks = False, 0
            self._steps += 1
            self._wall += now[0] - self._began[0]
            self._cpu += now[1] - self._began[1]
            self._left -= 1
        if self._left <= 0 and self._looks == 0:
            if self._steps:
                self._tell()
            line = sys.stdin.readline()
            if not line:  # whoever measured has ended
                sys.exit(1)
            self._left = int(line)
            now = _clocks()
        if self._looks == 0:
            self._rested = now
        self._looks += 1
        self._began = now
        return False

    def updated(self) -> None:
        """The loop has made a step."""
        self._updated = True
        if self._looks > 1:  # it scored dev before this step
            self._scored += 1
            self._scoring += self._began[0] - self._rested[0]

    def end(self, scores: dict[str, float]) -> None:
        """Tell that everything is done."""
        self._say({"scores": scores, "scoring": self._scoring / self._scored if self._scored else None})

    def _tell(self) -> None:
        self._say({"steps": self._steps, "wall": self._wall, "cpu": self._cpu, "memory": _largest_size()})
        self._steps, self._wall, self._cpu = 0, 0.0, 0.0

    def _say(self, row: dict[str, Any]) -> None:
        os.write(self._telling, f"{json.dumps(row)}\n".encode())


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _largest_size() -> int:
    """Most memory of this process so far. Not getrusage, which counts what it was forked from."""
    told = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in told if line.startswith("VmHWM:")) * 1024


# ── the sides ────────────────────────────────────────────────────────────────────────────────────────────────────────


def ours(inputs: Inputs, config: FinetuneConfig, turns: Turns, scratch: Path) -> dict[str, float]:
    """Train as `python -m model.finetune` does; scores of dev after the last epoch."""
    update = Optimizer.step

    def step(self: Optimizer, *arguments: Any) -> None:
        update(self, *arguments)
        turns.updated()

    Optimizer.step = step  # type: ignore[method-assign] # the only thing that tells a step from a batch that is scored
    atomic.write_json(
        scratch / "config.json",
        {
            "config": config.plain(),
            "task_data": str(inputs.task_data),
            "pretrained": str(inputs.imported),
            "wordpiece_vocab": str(inputs.imported),
            "training": TrainingSettings(device="cpu", threads=THREADS, checkpoint_seconds=WHOLE_RUN).plain(),
        },
    )
    finetuning_loop.train(scratch, turns)
    found: dict[str, float] = read_json(scratch / "result" / "scores.json")["seeds"][0]["epochs"][-1]["dev"]
    return found


def theirs(inputs: Inputs, config: FinetuneConfig, turns: Turns, padding: bool) -> dict[str, float]:
    """A plain loop around transformers' model; scores of dev after the last epoch."""
    from torch.utils.data import DataLoader
    from transformers import AutoTokenizer, DataCollatorWithPadding, default_data_collator, get_scheduler

    torch.set_num_threads(THREADS)
    task = read_json(inputs.task_data / "task.json")
    tokenizer = AutoTokenizer.from_pretrained(inputs.checkpoint, local_files_only=True)
    rows = {
        part: _tokenized(inputs.task_data, part, tokenizer, config.max_length, padding) for part in ("train", "dev")
    }
    collate = default_data_collator if padding else DataCollatorWithPadding(tokenizer)
    model = _their_model(inputs, len(task["labels"]), config)
    torch.manual_seed(config.seed)
    train = DataLoader(rows["train"], config.batch_size, shuffle=True, collate_fn=collate)
    dev = DataLoader(rows["dev"], SCORING_BATCH, collate_fn=collate)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=config.learning_rate,
        eps=1e-6,
        fused=True,
    )
    total = len(train) * config.epochs
    schedule = get_scheduler("linear", optimizer, round(config.warmup * total), total)
    guesses: list[int] = []
    for _ in range(config.epochs):
        model.train()
        for batch in train:
            _ = turns.asked
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bf16"):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            turns.updated()
        guesses = []
        model.eval()
        with torch.inference_mode():
            for batch in dev:
                _ = turns.asked
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bf16"):
                    guesses += model(**batch).logits.argmax(1).tolist()
    return metrics.scores(
        dict.fromkeys((*task["metrics"], "accuracy")), [row["labels"] for row in rows["dev"]], guesses
    )


def _tokenized(folder: Path, part: str, tokenizer: Any, max_length: int, padding: bool) -> list[dict[str, Any]]:
    first, second, labels = read_columns(folder / f"{part}.parquet", "text_a", "text_b", "label")
    texts = (first,) if second[0] is None else (first, second)
    found = tokenizer(*texts, padding="max_length" if padding else False, truncation=True, max_length=max_length)
    return [{**{name: found[name][row] for name in found}, "labels": label} for row, label in enumerate(labels)]


def _their_model(inputs: Inputs, classes: int, config: FinetuneConfig) -> Any:
    """Transformers' classifier with its encoder from the checkpoint and the new layer on top from the seed, as ours has it."""
    from transformers import AutoModelForSequenceClassification

    dropout = {"hidden_dropout_prob": config.dropout, "attention_probs_dropout_prob": config.dropout}
    model = AutoModelForSequenceClassification.from_pretrained(
        inputs.checkpoint, num_labels=classes, local_files_only=True, dtype=torch.float32, **dropout
    )
    drawn = _our_model(inputs, classes, config.seed)
    model.classifier.load_state_dict(drawn.head.state_dict())
    return model


def _our_model(inputs: Inputs, classes: int, seed: int) -> Classifier:
    described = read_json(inputs.imported / "config.json")
    architecture = Architecture.model_validate(described["architecture"])
    model = Classifier(architecture, described["vocabulary_size"], classes, "cls")
    initialize(model, seed)
    load_encoder(model, inputs.imported)
    return model


@torch.inference_mode()
def difference(inputs: Inputs, config: FinetuneConfig) -> float:
    """Largest difference of the logits of 16 dev examples before training: what the sides begin from."""
    from transformers import AutoTokenizer

    classes = len(read_json(inputs.task_data / "task.json")["labels"])
    tokenizer = AutoTokenizer.from_pretrained(inputs.checkpoint, local_files_only=True)
    rows = _tokenized(inputs.task_data, "dev", tokenizer, config.max_length, True)[:16]
    batch = {name: torch.tensor([row[name] for row in rows]) for name in rows[0] if name != "labels"}
    expected = _their_model(inputs, classes, config).eval()(**batch).logits
    model = _our_model(inputs, classes, config.seed).eval()
    words = load(inputs.imported)
    examples = read_examples(inputs.task_data / "dev.parquet", words, config.max_length)
    found = model(batch_of(examples, np.arange(len(rows)), model.whole, open_device("cpu", THREADS), words.pad_id))
    return float((found - expected).abs().max())


# ── what they read ───────────────────────────────────────────────────────────────────────────────────────────────────


def of_files(checkpoint_folder: Path, task: str, folder: Path, examples: int | None, scratch: Path) -> Inputs:
    """A checkpoint and the official files of a task; of train the first `examples`.

    Raises:
        DataError: the task is not there, or not one of classes.
    """
    task_data = scratch / "task_data"
    task_data.mkdir()
    origin = TaskDataConfig(task=task, **{"from": PathFrom(path=str(folder))})
    prepare_task({}, origin, task_data)
    if (task_data / NOT_RUN).exists():
        wanted = read_json(task_data / NOT_RUN)
        raise DataError(f"{folder}: {wanted['why']}", f"It needs {', '.join(wanted['wants'])}.")
    kind = read_json(task_data / "task.json")["kind"]
    if kind not in CLASSES:
        raise DataError(f"{task} is a task of kind {kind}", f"This measures {' and '.join(CLASSES)}.")
    # test is scored by ours only, after the clock has stopped: it would only take time
    for part, kept in (("train", examples), ("test", 0)):
        table = pq.read_table(task_data / f"{part}.parquet")
        pq.write_table(table.slice(0, kept), task_data / f"{part}.parquet")
    return Inputs(checkpoint_folder, _imported(checkpoint_folder, scratch / "imported"), task_data)


def made_up(scratch: Path, examples: int | None = None) -> Inputs:
    """A small random network, and pairs whose words tell the class: half of them occur in one class only, half in the other."""
    draw = random.Random(1)
    words = [f"{a}{b}{c}" for a in "bdfgklmnpr" for b in "aeiou" for c in "lmnrst"]
    network = scratch / "checkpoint"
    network.mkdir()
    vocabulary = [*SPECIAL_TOKENS, *words]
    model = BertForPretraining(SMALL, len(vocabulary), "nsp")
    initialize(model, 7)
    checkpoint.save_tensors(to_hugging_face(model.state_dict()), network / "model.safetensors")
    (network / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
    (network / "tokenizer.json").write_text(
        tokenizer_json(vocabulary, lowercase=True, strip_accents=True), encoding="utf-8"
    )
    atomic.write_json(network / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    atomic.write_json(
        network / "config.json",
        {
            "model_type": "bert",
            "architectures": ["BertForPreTraining"],
            "vocab_size": len(vocabulary),
            "hidden_size": SMALL.hidden,
            "num_hidden_layers": SMALL.layers,
            "num_attention_heads": SMALL.heads,
            "intermediate_size": 4 * SMALL.hidden,
            "max_position_embeddings": SMALL.max_positions,
        },
    )
    task_data = scratch / "task_data"
    task_data.mkdir()
    counts = MADE | ({"train": examples} if examples else {})
    for part, count in counts.items():
        rows = [_pair(draw, words, f"{part}:{number}") for number in range(count)]
        table = pa.Table.from_pylist(rows, schema=SCHEMAS["pair_classification"])
        pq.write_table(table, task_data / f"{part}.parquet")
    pq.write_table(table.slice(0, 0), task_data / "test.parquet")
    told = {"name": "made_up", "title": "Made up", "kind": "pair_classification", "labels": ["no", "yes"]}
    atomic.write_json(
        task_data / "task.json",
        {**told, "metric": "accuracy", "metrics": ["accuracy"], "counts": {**counts, "test": 0}},
    )
    return Inputs(network, _imported(network, scratch / "imported"), task_data)


def _pair(draw: random.Random, words: list[str], name: str) -> dict[str, Any]:
    """Two texts of about 25 words each, as MRPC's are in pieces: log-normal."""
    label = draw.randrange(2)
    lengths = (round(draw.lognormvariate(3.2, 0.3)) for _ in range(2))
    first, second = (" ".join(draw.choices(words[label::2], k=length)) for length in lengths)
    return {"example_id": name, "text_a": first, "text_b": second, "label": label}


def _imported(folder: Path, out: Path) -> Path:
    out.mkdir()
    import_checkpoint({}, ImportedConfig(folder=PathFrom(path=str(folder)), longest=128), out)
    return out


# ── the rounds ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Process:
    """A process of one side, asked for steps."""

    def __init__(self, stack: ExitStack, side: str, inputs: Inputs, config: FinetuneConfig) -> None:
        plain = {name: str(folder) for name, folder in vars(inputs).items()}
        asked = json.dumps({"side": side, "inputs": plain, "config": config.plain()})
        started = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.finetuning", "--work", asked],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},  # as model/processes/launcher.py starts the training
        )
        self._process = stack.enter_context(started)
        stack.callback(started.kill)

    def steps(self, count: int) -> dict[str, Any]:
        """Let it make so many; what they took. After its last step: its scores."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise BertError("a process of the benchmark has failed", "What it said is above.")
        found: dict[str, Any] = json.loads(line)
        return found


def work(asked: dict[str, Any]) -> None:
    """A process of one side."""
    import sklearn.metrics  # noqa: F401 — or the first scoring of dev would pay for it

    telling = os.dup(1)
    os.dup2(2, 1)
    _quiet()
    inputs = Inputs(**{name: Path(folder) for name, folder in asked["inputs"].items()})
    config, turns = FinetuneConfig.model_validate(asked["config"]), Turns(telling)
    if asked["side"] == OURS:
        with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
            turns.end(ours(inputs, config, turns, Path(scratch)))
    else:
        turns.end(theirs(inputs, config, turns, asked["side"] == PADDED))


def _quiet() -> None:
    """Transformers tells at length that the classifier on top is new."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def a_round(inputs: Inputs, config: FinetuneConfig, steps: int) -> dict[str, Side]:
    """Train to the end on every side, in turns of `steps`."""
    per_epoch = -(-len(_labels(inputs)) // config.batch_size)
    turns: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    ends: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        processes = {side: Process(stack, side, inputs, config) for side in SIDES}
        for _ in range(config.epochs):
            for first in range(0, per_epoch, steps):
                for side in SIDES:
                    turns[side].append(processes[side].steps(min(steps, per_epoch - first)))
        ends = {side: processes[side].steps(1) for side in SIDES}
    first_epoch = -(-per_epoch // steps)
    return {
        side: Side(
            steps=[turn["steps"] for turn in turns[side]],
            wall=[turn["wall"] for turn in turns[side]],
            cpu=[turn["cpu"] for turn in turns[side]],
            memory_bytes=turns[side][first_epoch - 1]["memory"],
            scoring_seconds=ends[side]["scoring"],
            scores=ends[side]["scores"],
        )
        for side in SIDES
    }


def _labels(inputs: Inputs, part: str = "train") -> list[int]:
    found: list[int] = read_columns(inputs.task_data / f"{part}.parquet", "label")[0]
    return found


def tokens_of(inputs: Inputs, max_length: int) -> float:
    """Tokens of a training example on average, padding left out."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(inputs.checkpoint, local_files_only=True)
    return statistics.fmean(
        len(row["input_ids"]) for row in _tokenized(inputs.task_data, "train", tokenizer, max_length, False)
    )


def report(rounds: list[dict[str, Side]], sequences: int, dev: int, tokens: float) -> None:
    """Print a line for every side. `sequences` are trained in a round, `dev` scored; `tokens`: of a sequence."""
    for side in SIDES:
        found = [a_round[side] for a_round in rounds]
        rates = [sequences / sum(one.wall) for one in found]
        rate = statistics.median(rates)
        per_cpu = statistics.median(sequences / sum(one.cpu) for one in found)
        scoring = [one.scoring_seconds for one in found if one.scoring_seconds is not None]
        scored = (
            f"dev at {dev / statistics.median(scoring):,.1f} sequences/s" if scoring else "scoring of dev not timed"
        )
        print(
            f"{side:<14}: {rate:6,.1f} sequences/s, {rate * tokens:6,.0f} tokens/s, {per_cpu:,.1f} sequences per processor "
            f"second, {max(one.memory_bytes for one in found) / 2**20:5,.0f} MiB; {scored}; "
            + ", ".join(f"{name} {_spread([one.scores[name] for one in found])}" for name in _metrics(rounds)),
            flush=True,
        )
    for side in SIDES[:-1]:
        wall, cpu = (
            [a / b for one in rounds for a, b in zip(getattr(one[side], clock), getattr(one[OURS], clock), strict=True)]
            for clock in ("wall", "cpu")
        )
        print(
            f"{OURS} is {statistics.median(wall):.2f} times as fast as transformers {side} (turns {min(wall):.2f}–"
            f"{max(wall):.2f}; processor time {statistics.median(cpu):.2f}; all turns together "
            f"{_total(rounds, side, 'wall') / _total(rounds, OURS, 'wall'):.2f})",
            flush=True,
        )


def _metrics(rounds: list[dict[str, Side]]) -> list[str]:
    """Those that both sides give."""
    return [name for name in rounds[0][PADDED].scores if name in rounds[0][OURS].scores]


def _spread(values: list[float]) -> str:
    median = decimal(100 * statistics.median(values))
    return median if len(values) == 1 else f"{median} ({interval(100 * min(values), 100 * max(values))})"


def _total(rounds: list[dict[str, Side]], side: str, clock: str) -> float:
    return sum(sum(getattr(one[side], clock)) for one in rounds)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, nargs="?")
    parser.add_argument("task", nargs="?")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=1, help="seeds, each trained to the end on every side")
    parser.add_argument("--steps", type=int, default=5, help="of a process in a turn")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--examples", type=int, help="train on the first so many only")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(json.loads(options.work))
        return
    if options.checkpoint and not options.folder:
        parser.error("CHECKPOINT, TASK and FOLDER go together")
    _quiet()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        inputs = (
            of_files(
                options.checkpoint.resolve(), options.task, options.folder.resolve(), options.examples, Path(scratch)
            )
            if options.checkpoint
            else made_up(Path(scratch), options.examples)
        )
        config = FinetuneConfig(
            task=options.task or "made_up",
            seeds=1,
            precision=options.precision,
            learning_rate=options.learning_rate,
            epochs=options.epochs,
        )
        examples, dev = len(_labels(inputs)), len(_labels(inputs, "dev"))
        tokens = tokens_of(inputs, config.max_length)
        print(
            f"torch {torch.__version__}, {THREADS} threads on {len(os.sched_getaffinity(0))} processors; load "
            f"{os.getloadavg()[0]:.1f}; {config.task}, {config.precision}: {examples:,} examples of {tokens:.1f} tokens, "
            f"{config.epochs} epochs at {config.learning_rate:g}, {options.rounds} rounds in turns of {options.steps} steps\n"
            f"before training, logits differ by {difference(inputs, config):.1e} at most",
            flush=True,
        )
        rounds = []
        for seed in range(config.seed, config.seed + options.rounds):
            rounds.append(a_round(inputs, config.model_copy(update={"seed": seed}), options.steps))
            print(f"\nafter seed {seed}, load {os.getloadavg()[0]:.1f}")
            report(rounds, examples * config.epochs, dev, tokens)


if __name__ == "__main__":
    try:
        main()
    except BertError as error:
        sys.exit(f"error: {error}")
