"""Measure how fast rows come out of shards, on one core, beside what training takes.

    python -m benchmarks.reader TEXT VOCAB.txt [--rounds 3] [--lengths 128 512]

TEXT is a file (.xz too), a sentence a line, a blank line between documents; shards are built of it with stored and with
drawn masks, and an epoch is read in batches of 32 rows of 128 tokens, or 8 of 512. Tokens are those that are not padding;
seconds are the processor's, with one thread. "CPU" is the need of a model of 4 layers of 256 that trains on all cores here:
its rate on one core, measured in the same run, times the cores. "H200" is the need of BERT base at half of the card's peak, computed: 989 TFLOPS of bf16 · 0.5 /
(6 · 110 million parameters, a multiplication and an addition each, forward once and backward twice) = 749,000 tokens/s.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import torch

from benchmarks.shards import made, read
from model.bert import BertForPretraining, initialize, pretraining_losses
from model.feeding.batches import batch_of, padded_length, training_rows
from model.feeding.feed import Feed, Place
from model.feeding.targets import Targets, drawn_masks
from model.layers.unpadded import unpadded_of
from model.optimization.optimizer import AdamW, clip_gradients
from pipeline.config import Architecture, ShardsConfig
from pipeline.sharding.masking import Control, control
from pipeline.sharding.shard_reader import ShardReader
from pipeline.shards import build_shards
from pipeline.tokenizer import read_vocabulary, tokenizer_json

ROWS = {128: 32, 512: 8}
PREDICTIONS = {128: 20, 512: 77}
H200_TOKENS = 989e12 * 0.5 / (6 * 110e6)
TRAINED_STEPS, WARM_STEPS = 12, 2


def epoch(folder: Path, length: int, targets: Targets | None, what: str) -> float:
    """Tokens per processor second of an epoch."""
    reader = ShardReader(folder / "train")
    place = Place(rank=0, ranks=8) if "8 ranks" in what else Place()
    batch = ROWS[length] * place.ranks
    feed = Feed(reader, batch, 1, length, targets, place)
    steps = len(reader) // batch

    def batches() -> Iterator[int]:
        for step in range(steps):
            if "a batch at a time" in what:
                rows = training_rows(reader, step, batch, 1, targets)
            else:
                rows = feed.rows(step)
            if "unpadded" in what:
                unpadded_of(rows)
            elif "static" in what:
                batch_of(rows, length, feed.padded_length(step), PREDICTIONS[length])
            elif "padded" in what:
                batch_of(rows, length)
            yield len(rows.input_ids)

    started = time.process_time()
    tokens = sum(batches())
    return tokens / (time.process_time() - started)


def padding(folder: Path, length: int, shapes: int) -> float:
    """Share of padding of an epoch, where batches are padded to so many lengths."""
    reader = ShardReader(folder / "train")
    feed = Feed(reader, ROWS[length], 1, length)
    tokens = computed = 0
    for step in range(len(reader) // ROWS[length]):
        lengths = feed.rows(step).lengths
        tokens += int(lengths.sum())
        computed += padded_length(int(lengths.max()), length, shapes) * len(lengths)
    return 1 - tokens / computed


def trained(folder: Path, length: int, vocabulary_size: int) -> float:
    """Tokens per processor second of training a model of 4 layers of 256."""
    architecture = Architecture(layers=4, hidden=256, heads=4, intermediate=1024, max_positions=length)
    model = BertForPretraining(architecture, vocabulary_size, "nsp")
    initialize(model, 1)
    optimizer = AdamW(
        model.named_parameters(), beta1=0.9, beta2=0.999, epsilon=1e-6, weight_decay=0.01, bias_correction=False
    )
    feed = Feed(ShardReader(folder / "train"), ROWS[length], 1, length)
    tokens, started = 0, 0.0
    for step in range(WARM_STEPS + TRAINED_STEPS):
        if step == WARM_STEPS:
            tokens, started = 0, time.process_time()
        batch = batch_of(feed.rows(step), length)
        words, sentences = model(*batch.model_inputs)
        pretraining_losses(words, batch.masked_ids, sentences, batch.labels).total.backward()
        clip_gradients(model.parameters(), 1.0)
        optimizer.step(1e-4)
        optimizer.zero_grad()
        tokens += batch.tokens
    return tokens / (time.process_time() - started)


READINGS = (
    "rows, a batch at a time",
    "rows",
    "padded",
    "unpadded",
    "static shapes",
    "unpadded, one of 8 ranks",
)


def measure(scratch: Path, options: argparse.Namespace, of_vocabulary: Control) -> None:
    """Build the shards and print the tables."""
    documents = made(scratch / "documents", read(options.text), 1)
    cores = len(os.sched_getaffinity(0))
    for length in options.lengths:
        configs = {
            masking: ShardsConfig(
                sequence_length=length, max_predictions_per_seq=PREDICTIONS[length], dupe_factor=1, masking=masking
            )
            for masking in ("static", "dynamic")
        }
        folders = {masking: scratch / f"{masking}-{length}" for masking in configs}
        for masking, config in configs.items():
            folders[masking].mkdir()
            build_shards({"documents": documents, "wordpiece_vocab": scratch / "vocabulary"}, config, folders[masking])
        need = cores * trained(folders["static"], length, of_vocabulary.vocab_size)
        reader = ShardReader(folders["static"] / "train")
        print(f"\nlength {length}, {len(reader):,} rows, {options.rounds} rounds in turns")
        print(
            f"training takes {need:,.0f} tokens/s (CPU, {cores} cores), {H200_TOKENS:,.0f} (H200, computed)",
            flush=True,
        )
        masks = {"static": None, "dynamic": drawn_masks(configs["dynamic"], of_vocabulary, 1)}
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.rounds):
            for what in READINGS:
                for masking, targets in masks.items():
                    rate = epoch(folders[masking], length, targets, what)
                    found.setdefault((masking, what), []).append(rate)
        for (masking, what), rates in sorted(found.items()):
            rate = statistics.median(rates)
            name = f"{'stored' if masking == 'static' else 'drawn'} masks, {what}"
            print(
                f"{name:<44} {rate / 1e6:6.1f} million tokens/s of a core"
                f" ({min(rates) / 1e6:.1f}–{max(rates) / 1e6:.1f}), × CPU {rate / need:6,.0f}, × H200 {rate / H200_TOKENS:5.1f}"
            )
        shares = [f"{padding(folders['static'], length, shapes):.1%} ({shapes})" for shapes in (1, 4, 8)]
        print(f"padding (lengths to pad to): {', '.join(shares)}", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512], choices=sorted(ROWS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    tokens = read_vocabulary(options.vocabulary)
    cls_id, sep_id, mask_id = (tokens.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        vocabulary = Path(folder) / "vocabulary"
        vocabulary.mkdir()
        (vocabulary / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        described = tokenizer_json(tokens, lowercase=True, strip_accents=True)
        (vocabulary / "tokenizer.json").write_text(described, encoding="utf-8")
        measure(Path(folder), options, control(tokens, cls_id=cls_id, sep_id=sep_id, mask_id=mask_id))


if __name__ == "__main__":
    main()
