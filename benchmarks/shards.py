"""Measure the stage `pretraining_shards` beside the tokenizer of `tokenizers` alone: speed, memory, bytes on disk.

    python -m benchmarks.shards TEXT VOCAB.txt [--copies 1] [--dupe 1 5] [--rounds 3] [--workers 1 2] [--set masking=dynamic …]
    python -m benchmarks.shards TEXT VOCAB.txt --memory 1 4 16
    python -m benchmarks.shards TEXT VOCAB.txt --matrix

TEXT is a file (.xz too), a sentence a line, a blank line between documents; it is repeated under other ids. "Per core" divides
the megabytes of text by the processor seconds (user and system) of the stage and all its processes; "net" leaves out those of
the same pipeline over two documents of one sentence, which is what Beam itself costs. What is compared runs in turns.
`--matrix` prints a digest of all shard files for every engine that can run here (`benchmarks.engines`), numbers of workers,
orders of the documents and sizes of their row groups; it ends with 1 if one differs.
"""

import argparse
import hashlib
import json
import lzma
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
from ruamel.yaml import YAML

from benchmarks import engines
from benchmarks.extraction import peaks
from pipeline import shards
from pipeline.config import ShardsConfig
from pipeline.schemas import DOCUMENTS_SCHEMA, write_parts
from pipeline.shards import build_shards
from pipeline.tokenizer import load, read_vocabulary, tokenizer_json

HELD_OUT_EVERY = 200


def read(path: Path) -> list[list[str]]:
    """The documents of the file, each a list of sentences."""
    data = path.read_bytes()
    text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
    documents = [[line for line in document.split("\n") if line] for document in text.split("\n\n")]
    return [document for document in documents if document]


def rows(documents: Sequence[Sequence[str]], copies: int) -> Iterator[dict[str, Any]]:
    """`copies` times the documents, as rows of the documents table."""
    for copy in range(copies):
        for number, sentences in enumerate(documents):
            ends, end = [], 0
            for sentence in sentences:
                end += len(sentence) + 1
                ends.append(end)
            yield {
                "doc_id": f"bench:{copy}-{number}",
                "source": "bench",
                "text": "\n".join(sentences) + "\n",
                "split": "held_out" if number % HELD_OUT_EVERY == 1 else "train",
                "sentence_ends": ends,
                "repeat": 1.0,
            }


def made(folder: Path, documents: Sequence[Sequence[str]], copies: int) -> Path:
    """A documents table in a new folder."""
    folder.mkdir()
    write_parts(rows(documents, copies), DOCUMENTS_SCHEMA, folder)
    return folder


def cpu_seconds() -> float:
    """Processor seconds of this process and of all that it has waited for."""
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in both)


def build(documents: Path, vocabulary: Path, config: ShardsConfig, engine: engines.Engine) -> dict[str, Any]:
    """Run the stage; its statistics with processor and wall seconds, and the bytes and a digest of the shards."""
    settings = Path(tempfile.mkstemp(dir=vocabulary.parent, suffix=".yaml")[1])
    YAML().dump({"beam": engine}, settings)
    with (
        tempfile.TemporaryDirectory(dir=vocabulary.parent) as out,
        patch.dict(os.environ, BERT_SETTINGS=str(settings)),
        patch.object(shards, "WORK_PER_WORKER", 1),
    ):
        used, started = cpu_seconds(), time.perf_counter()
        found = build_shards({"documents": documents, "wordpiece_vocab": vocabulary}, config, Path(out))
        return found | {
            "cpu": cpu_seconds() - used,
            "wall": time.perf_counter() - started,
            "bytes": sum(path.stat().st_size for path in Path(out).rglob("*.parquet")),
            "digest": digest(Path(out)),
        }


def digest(folder: Path) -> str:
    """SHA-256 of the names and contents of all files."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole.update(path.relative_to(folder).as_posix().encode() + b"\0")
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def tokenizer_seconds(documents: Sequence[Sequence[str]], vocabulary: Path) -> float:
    """Processor seconds of `encode_batch_fast` over all sentences, ids taken out."""
    tokenizer = load(vocabulary)
    sentences = [sentence for document in documents for sentence in document]
    used = cpu_seconds()
    for first in range(0, len(sentences), 2000):
        tokenizer.encode_ids(sentences[first : first + 2000])
    return cpu_seconds() - used


def speed(text: Path, scratch: Path, vocabulary: Path, options: argparse.Namespace) -> None:
    """Print the table of speeds."""
    documents = read(text)
    table = made(scratch / "documents", documents, options.copies)
    few = made(scratch / "few", [["One."], ["Two."]], 1)
    megabytes = sum(len(sentence.encode()) + 1 for document in documents for sentence in document) / 1e6
    asked = {name: json.loads(value) for name, _, value in (each.partition("=") for each in options.set)}
    print(
        f"{megabytes * options.copies:.1f} MB, {len(documents) * options.copies:,} documents, {options.rounds} rounds in turns"
    )
    for workers in options.workers:
        for dupe in options.dupe:
            values = {"sequence_length": 128, "max_predictions_per_seq": 20, "dupe_factor": dupe, **asked}
            config = ShardsConfig(**values)
            runs, starts, alone = [], [], []
            for _ in range(options.rounds):
                runs.append(build(table, vocabulary, config, engines.local(workers)))
                starts.append(
                    build(few, vocabulary, config.model_copy(update={"sentence_task": "none"}), engines.local(workers))[
                        "cpu"
                    ]
                )
                alone.append(tokenizer_seconds(documents, vocabulary))
            whole = statistics.median(run["cpu"] for run in runs)
            net = statistics.median(run["cpu"] - start for run, start in zip(runs, starts, strict=True))
            tokens = sum(runs[0]["tokens"].values())
            size = megabytes * options.copies
            print(
                f"{workers} workers, dupe {dupe}: {size / whole:5.2f} MB/s per core, net of Beam {size / net:5.2f}; "
                f"wall {statistics.median(run['wall'] for run in runs):6.1f} s; "
                f"{runs[0]['bytes'] / tokens:.2f} bytes per token; "
                f"{sum(runs[0]['instances'].values()):,} instances; "
                f"encode_batch_fast alone {megabytes / statistics.median(alone):5.2f} MB/s per core"
            )


def memory(text: Path, scratch: Path, vocabulary: Path, options: argparse.Namespace) -> None:
    """Print peak RSS at several sizes, each measured in a process of its own."""
    documents = read(text)
    for copies in options.memory:
        table = made(scratch / f"documents-{copies}", documents, copies)
        command = [sys.executable, "-m", "benchmarks.shards", str(table), str(vocabulary), "--one"]
        subprocess.run(command, check=True)


def one(table: Path, vocabulary: Path) -> None:
    """Print the peaks of one run over a documents table."""
    config = ShardsConfig(sequence_length=128, max_predictions_per_seq=20, dupe_factor=5)
    own, largest = peaks(lambda: build(table, vocabulary, config, engines.local(2)))
    size = sum(path.stat().st_size for path in table.iterdir())
    print(
        f"{size / 1e6:8.1f} MB of documents: stage {own:4.0f} MiB, largest process of Beam {largest:4.0f} MiB",
        flush=True,
    )


def matrix(text: Path, scratch: Path, vocabulary: Path, options: argparse.Namespace) -> None:
    """Print the digests; SystemExit if they differ."""
    everything = list(rows(read(text), options.copies))
    config = ShardsConfig(sequence_length=128, max_predictions_per_seq=20, dupe_factor=options.dupe[0])
    known: dict[str, engines.Engine] = {f"FnApiRunner, {n}": engines.local(n) for n in (1, 2, 8)}
    digests = set()
    with ExitStack() as stack, patch.multiple(shards, POOL_DOCUMENTS=100, POOL_CHARACTERS=100_000):
        known |= stack.enter_context(engines.portable(2))
        if missing := engines.spark_is_missing():
            print(f"without Spark: {missing} missing")
        else:
            known |= stack.enter_context(engines.spark(2))
        print(
            f"{len(everything):,} documents; engine, workers | order of documents | rows a group | digest of all shards"
        )
        for number, (name, engine) in enumerate(known.items()):
            for seed, size in ((None, 1024), (number, 37)):
                table = scratch / f"documents-{number}-{size}"
                _reordered(everything, seed, size, table)
                found = build(table, vocabulary, config, engine)["digest"]
                digests.add(found)
                order = "as they come" if seed is None else f"shuffled {seed}"
                print(f"{name:20} | {order:12} | {size:5} | {found[:16]}", flush=True)
    if len(digests) > 1:
        sys.exit(f"{len(digests)} digests, where one was expected")


def _reordered(everything: Sequence[dict[str, Any]], seed: int | None, size: int, folder: Path) -> None:
    """The documents in one file in their order, or in three in another, in row groups of `size`."""
    order = np.arange(len(everything)) if seed is None else np.random.default_rng(seed).permutation(len(everything))
    folder.mkdir()
    for part, some in enumerate(np.array_split(order, 1 if seed is None else 3)):
        with tempfile.TemporaryDirectory(dir=folder.parent) as one_file:
            write_parts((everything[i] for i in some), DOCUMENTS_SCHEMA, Path(one_file))
            table = pq.read_table(one_file)
        pq.write_table(table, folder / f"part-{part:05d}.parquet", row_group_size=size)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--dupe", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--set", nargs="*", default=[], help="options of the section `shards`, as NAME=JSON")
    parser.add_argument("--memory", type=int, nargs="+")
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.text, options.vocabulary)
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        scratch = Path(folder)
        vocabulary = scratch / "vocabulary"
        vocabulary.mkdir()
        tokens = read_vocabulary(options.vocabulary)
        (vocabulary / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        described = tokenizer_json(tokens, lowercase=True, strip_accents=True)
        (vocabulary / "tokenizer.json").write_text(described, encoding="utf-8")
        measured = matrix if options.matrix else memory if options.memory else speed
        measured(options.text, scratch, vocabulary, options)


if __name__ == "__main__":
    main()
