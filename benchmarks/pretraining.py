"""Pretraining here against transformers' BertForPreTraining in a plain training loop: useful tokens per second, loss, memory.

    python -m benchmarks.pretraining TEXT VOCAB.txt [--rounds 5] [--steps 2] [--lengths 128 512] [--equal 10]

TEXT is a file (.xz too), a sentence a line, a blank line between documents; shards are built of it. Both sides train a model of
4 layers of 256 from the same weights on the same rows in the same order, 32 of 128 tokens or 8 of 512, with two threads, in fp32
and in bf16 (torch's autocast), each in a process of its own that lives through all rounds; in a round each makes `--steps` steps,
one process after the other. Theirs is padded to 128 or 512, as the examples of transformers do, with torch's fused AdamW; ours is the
step of model/training/pretraining_loop.py. A useful token is one that is not padding. Wall seconds depend on what else the machine does,
processor seconds less so: both are shown, and the ratios are medians over rounds of neighbouring measurements. The losses of
`--equal` steps are compared first, without dropout, which draws other units on each side.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks.shards import made, read
from model.bert import BertForPretraining, initialize, pretraining_losses
from model.devices import open_device
from model.feeding.batches import batch_of
from model.feeding.feed import Feed
from model.layers.unpadded import unpadded_of
from model.layers.weights import to_hugging_face
from model.optimization.optimizer import AdamW, clip_gradients
from model.optimization.schedule import learning_rate
from pipeline.config import Architecture, ShardsConfig
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import Shards
from pipeline.shards import build_shards
from pipeline.tokenizer import read_vocabulary, tokenizer_json

ROWS = {128: 32, 512: 8}
PREDICTIONS = {128: 20, 512: 77}
THREADS = 2
SIDES = [(side, precision) for precision in ("fp32", "bf16") for side in ("transformers", "bertworks")]
RATE, WARM_UP, STEPS = 1e-4, 10, 1000
"""of the learning rate's schedule"""


class Ours:
    """A step of the pretraining loop."""

    def __init__(self, model: BertForPretraining, precision: str, length: int) -> None:
        self.device = open_device("cpu", THREADS)
        self.model, self.precision, self.length = model.train(), precision, length
        self.optimizer = AdamW(model.named_parameters(), bias_correction=True)

    def step(self, number: int, rows: Shards) -> float:
        """Train; the loss."""
        batch = (unpadded_of(rows) if self.device.unpadded else batch_of(rows, self.length)).on(self.device)
        self.device.seed_step(1, number)
        with self.device.autocast(self.precision):
            words, pairs = batch.logits(self.model)
            losses = pretraining_losses(words, batch.masked_ids, pairs, batch.labels)
        losses.total.backward()
        int((words.detach().argmax(1) == batch.masked_ids).sum())  # the loop reports accuracies
        clip_gradients(self.model.parameters(), 1.0)
        self.optimizer.step(learning_rate(number, RATE, WARM_UP, STEPS))
        self.optimizer.zero_grad()
        return losses.total.item()


class Theirs:
    """A plain training loop around transformers' model with the weights of ours."""

    def __init__(self, model: BertForPretraining, precision: str, length: int) -> None:
        from transformers import BertConfig, BertForPreTraining

        torch.set_num_threads(THREADS)
        architecture = model.encoder.architecture
        self.model = BertForPreTraining(
            BertConfig(
                vocab_size=model.encoder.vocabulary_size,
                hidden_size=architecture.hidden,
                num_hidden_layers=architecture.layers,
                num_attention_heads=architecture.heads,
                intermediate_size=architecture.intermediate or 4 * architecture.hidden,
                max_position_embeddings=architecture.max_positions,
                hidden_dropout_prob=architecture.dropout,
                attention_probs_dropout_prob=architecture.dropout,
            )
        )
        weights = to_hugging_face(model.state_dict())
        decoder = "cls.predictions.decoder"
        weights |= {
            f"{decoder}.weight": weights["bert.embeddings.word_embeddings.weight"],
            f"{decoder}.bias": weights["cls.predictions.bias"],
        }
        self.model.load_state_dict(weights)
        self.model.train()
        self.precision, self.length = precision, length
        decayed = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim == 1]
        groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda number: learning_rate(number, RATE, WARM_UP, STEPS) / RATE
        )

    def step(self, number: int, rows: Shards) -> float:
        """Train; the loss."""
        batch = batch_of(rows, self.length, padded=self.length)
        labels = torch.full(batch.input_ids.shape, -100)
        width = batch.positions.shape[1]
        labels[batch.masked_places // width, batch.positions.flatten()[batch.masked_places]] = batch.masked_ids
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            loss = self.model(
                input_ids=batch.input_ids,
                token_type_ids=batch.token_type_ids,
                attention_mask=batch.attention_mask.long(),
                labels=labels,
                next_sentence_label=batch.labels,
            ).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return float(loss.detach())


def work(folder: Path, length: int, vocabulary_size: int, side: str, precision: str, dropout: float) -> None:
    """A process of one side: for every number of steps on standard input, one line of what they took."""
    architecture = Architecture(layers=4, hidden=256, heads=4, intermediate=1024, max_positions=512, dropout=dropout)
    model = BertForPretraining(architecture, vocabulary_size, "nsp")
    initialize(model, 1)
    torch.manual_seed(1)
    trainer = (Ours if side == "bertworks" else Theirs)(model, precision, length)
    del model  # theirs has a copy
    feed = Feed(ShardReader(folder / "train"), ROWS[length], 1, length)
    number = 0
    for line in sys.stdin:
        tokens, losses, used, started = 0, [], time.process_time(), time.perf_counter()
        for _ in range(int(line)):
            rows = feed.rows(number)
            losses.append(trainer.step(number, rows))
            tokens += len(rows.input_ids)
            number += 1
        wall, cpu = time.perf_counter() - started, time.process_time() - used
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"tokens": tokens, "losses": losses, "wall": wall, "cpu": cpu, "memory": memory}), flush=True)


class Process:
    """A process of one side, asked for steps."""

    def __init__(self, stack: ExitStack, *arguments: Any) -> None:
        command = [sys.executable, "-m", "benchmarks.pretraining", "--work", json.dumps([str(a) for a in arguments])]
        environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}  # as model/processes/launcher.py starts the training
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self._process = stack.enter_context(started)
        assert started.stdin is not None
        stack.callback(started.stdin.close)

    def steps(self, count: int) -> dict[str, Any]:
        """Make them; what they took."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


def compare(folder: Path, length: int, vocabulary_size: int, options: argparse.Namespace) -> None:
    """Print the losses and the speeds at one length."""
    print(f"\n{ROWS[length]} rows of {length}")
    if options.equal:
        losses = {}
        for side, precision in SIDES:
            with ExitStack() as stack:
                process = Process(stack, folder, length, vocabulary_size, side, precision, 0.0)
                losses[side, precision] = process.steps(options.equal)["losses"]
        for precision in ("fp32", "bf16"):
            theirs, ours = losses["transformers", precision], losses["bertworks", precision]
            largest = max(abs(a - b) for a, b in zip(theirs, ours, strict=True))
            print(
                f"{precision} without dropout: loss of step 1 {theirs[0]:.6f} and {ours[0]:.6f}, "
                f"of step {len(ours)} {theirs[-1]:.6f} and {ours[-1]:.6f}, largest difference {largest:.1e}",
                flush=True,
            )
    found: dict[tuple[str, str], list[dict[str, Any]]] = {pair: [] for pair in SIDES}
    with ExitStack() as stack:
        processes = {pair: Process(stack, folder, length, vocabulary_size, *pair, 0.1) for pair in SIDES}
        for process in processes.values():
            process.steps(2)
        for _ in range(options.rounds):
            for pair in SIDES:
                found[pair].append(processes[pair].steps(options.steps))
    for pair in SIDES:
        rates = {clock: [run["tokens"] / run[clock] for run in found[pair]] for clock in ("wall", "cpu")}
        ratios = []
        for base in ("fp32", pair[1]):
            by_clock = [_ratio(found[pair], found["transformers", base], clock) for clock in ("wall", "cpu")]
            ratios.append(f"{by_clock[0]:.2f} (processor time {by_clock[1]:.2f}) × transformers in {base}")
        print(
            f"{pair[0]:<12} {pair[1]}: {statistics.median(rates['wall']):6,.0f} tokens/s "
            f"({min(rates['wall']):,.0f}–{max(rates['wall']):,.0f}), "
            f"{statistics.median(rates['cpu']):6,.0f} per processor second, {found[pair][-1]['memory'] / 2**20:5,.0f} MiB; "
            + ", ".join(dict.fromkeys(ratios)),
            flush=True,
        )


def _ratio(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], clock: str) -> float:
    """Median over the rounds; in a round both trained on the same rows."""
    return statistics.median(b[clock] / a[clock] for a, b in zip(ours, theirs, strict=True))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("vocabulary", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="of a process in a round")
    parser.add_argument("--equal", type=int, default=10, help="steps whose losses are compared")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512], choices=sorted(ROWS))
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        folder, length, vocabulary_size, side, precision, dropout = json.loads(options.work)
        work(Path(folder), int(length), int(vocabulary_size), side, precision, float(dropout))
        return
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    units = [name for name in ("avx512_bf16", "amx_bf16") if name in flags]
    print(
        f"torch {torch.__version__}, {THREADS} threads on {len(os.sched_getaffinity(0))} processors "
        f"({', '.join(units) or 'without instructions for bf16: its figures say nothing'}); "
        f"load {os.getloadavg()[0]:.1f}; {options.rounds} rounds of {options.steps} steps in turns"
    )
    tokens = read_vocabulary(options.vocabulary)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        vocabulary = Path(scratch) / "vocabulary"
        vocabulary.mkdir()
        (vocabulary / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        described = tokenizer_json(tokens, lowercase=True, strip_accents=True)
        (vocabulary / "tokenizer.json").write_text(described, encoding="utf-8")
        documents = made(Path(scratch) / "documents", read(options.text), 1)
        for length in options.lengths:
            config = ShardsConfig(sequence_length=length, max_predictions_per_seq=PREDICTIONS[length], dupe_factor=1)
            folder = Path(scratch) / str(length)
            folder.mkdir()
            build_shards({"documents": documents, "wordpiece_vocab": vocabulary}, config, folder)
            compare(folder, length, len(tokens), options)
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
