"""Ask a store of 1,000 artifacts what an auditor asks, and measure each answer's time and memory.

    python -m benchmarks.audit [--recipes 50] [--rows 5000000] [--documents 500000] [--home FOLDER]

The store is made here through its own functions: so many recipes of 20 artifacts, each with a record, checks of its stage's suite and
content; the first recipe has a documents table of `--documents` and shards of `--rows` rows, the others small ones. Every question is a
`bert` command of its own process, asked twice: seconds of the first, which hashes what it reads, and of the second, and what the second took
of the processor; memory is the larger peak of both. Bars: 5 seconds, 1 GiB. `--home` keeps the store there for another time.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from pipeline import suites
from pipeline.books import BOOKS_SCHEMA
from pipeline.config import Shards
from pipeline.schemas import DOCUMENTS_SCHEMA
from pipeline.sharding.shard_schema import shard_schema
from pipeline.store import Record, Store

ROOT = Path(__file__).parents[1]
SECONDS, MEMORY_BYTES = 5.0, 1 << 30
SHARD_FILES, GROUP_ROWS, BATCH, EPOCHS = 10, 65_536, 256, 2
TASKS = ("cola", "sst2", "mrpc")
NOW, LATER = "2026-01-02T03:04:05.000000+00:00", "2026-01-02T05:04:05.000000+00:00"

Write = Callable[[Path], None]


def build(home: Path, recipes: int, documents: int, rows: int) -> None:
    """The store, and `r00/release` exported to `home/exported`."""
    store = Store(home)
    for number in range(recipes):
        big = number == 0
        _chain(store, f"r{number:02}", documents if big else 20, rows if big else 40)


def _chain(store: Store, recipe: str, documents: int, rows: int) -> None:
    """The 20 artifacts of one recipe."""

    def make(asset: str, stage: str, write: Write, inputs: Mapping[str, Record], **told: Any) -> Record:
        return _artifact(store, recipe, asset, stage, write, inputs, told)

    text = {
        "read": documents + 12,
        "dropped": {"redirect": 12},
        "row_count": documents,
        "licences": {"CC-BY-SA-4.0": documents},
    }
    dump = make("wikipedia_dump", "files", _text(recipe), {}, origin="wikimedia", dump_date="20260101", wiki="enwiki")
    wikipedia = make("wikipedia_text", "wikipedia_text", _text(recipe), {"dump": dump}, **text)
    shelf = make("books_files", "files", _text(f"{recipe} books"), {}, origin="path")
    books = make("books_text", "books_text", _books, {"files": shelf}, read=500, dropped={}, row_count=500)
    kept = {"wikipedia": {"train": documents - 1, "held_out": 1}, "books": {"train": 500, "held_out": 0}}
    falls = {"wikipedia": [["read", documents + 12], ["wikipedia_text: redirect", -12]], "books": [["read", 500]]}
    corpus = make(
        "documents",
        "documents",
        lambda out: _documents(out, recipe, documents),
        {"wikipedia": wikipedia, "books": books},
        documents=kept,
        dropped_by_source={"wikipedia": {}, "books": {}},
        waterfall=falls,
        row_count=documents + 500,
    )
    words = make("wordpiece_vocab", "wordpiece_vocab", _text(f"{recipe} words"), {"documents": corpus})
    phases: list[Record] = []
    for length, count in ((128, rows), (512, 40)):
        steps = max(1, EPOCHS * count // BATCH)
        shards = make(
            f"pretraining_shards_{length}",
            "pretraining_shards",
            partial(_shards, recipe=recipe, documents=documents, rows=count),
            {"documents": corpus, "wordpiece_vocab": words},
            documents={"train": documents + 499, "held_out": 1},
            dropped={"no tokens": 0},
            documents_in_pools=documents + 500,
            instances={"train": count, "held_out": 1},
        )
        before = {"previous": phases[0]} if phases else {}
        phases.append(
            make(
                f"pretrained_{length}",
                "pretrained",
                partial(_metrics, steps=steps),
                {"pretraining_shards": shards, "wordpiece_vocab": words, **before},
                held_out={"step": steps},
                steps=steps,
                resume_count=1,
            )
        )
    model = {"pretrained": phases[-1], "wordpiece_vocab": words}
    make("release", "release", _text(f"{recipe} release"), model, size_bytes=1)
    data = {
        f"task_data_{task}": make(
            f"task_data_{task}", "task_data", _text(f"{recipe} {task}"), {}, read={"train": 90}, dropped={}, examples=90
        )
        for task in TASKS
    }
    tuned = {
        f"finetuned_{task}": make(
            f"finetuned_{task}",
            "finetuned",
            _text(f"{recipe} {task}"),
            {"task_data": data[f"task_data_{task}"], **model},
        )
        for task in TASKS
    }
    counts = {"texts": 90, "measurable": 60, "touched": 3, "share": 0.05}
    parts = {task: {"test": counts, "dev": counts} for task in TASKS}
    overlap = make("contamination", "contamination", _text(recipe), {"documents": corpus, **data}, parts_by_task=parts)
    make(
        "benchmark_report",
        "benchmark_report",
        _text(recipe),
        {"pretrained": phases[-1], "contamination": overlap, **tuned},
    )
    make("comparison_of_r", "comparison", _text(recipe), tuned)


def _artifact(
    store: Store,
    recipe: str,
    asset: str,
    stage: str,
    write: Write,
    inputs: Mapping[str, Record],
    statistics: Mapping[str, Any],
) -> Record:
    with store.staging() as staged:
        write(staged)
        version = store.publish(stage, staged)
    config = {"seed": 12345, "first_step": 0, "batch_size": BATCH, "licence": "CC-BY-SA-4.0", "language": "en"}
    record = store.append(
        {
            "schema": "1",
            "recipe": recipe,
            "asset": asset,
            "stage": stage,
            "key": f"{recipe} {asset}",
            "version": version,
            "code_version": "1",
            "config": config,
            "asked": {"from": {"files": [{"name": f"{asset}.bz2", "sha1": "1" * 40, "size_bytes": 9}]}}
            if not inputs
            else {},
            "inputs": {name: each.digest for name, each in inputs.items()},
            "statistics": dict(statistics),
            "validation": {"suite_digest": "5" * 64, "results": list(_results(stage))},
            "waivers": [],
            "reused": None,
            "forced": False,
            "git": {"commit": "c" * 40, "dirty": False},
            "libraries": {"numpy": "2.0", "polars": "1.0"},
            "user": "u",
            "host": "h",
            "started": NOW,
            "finished": LATER,
        }
    )
    store.point(recipe, asset, record)
    return record


def _results(stage: str) -> Iterator[dict[str, Any]]:
    for check in suites.SUITES[stage].checks:
        told = {
            "name": check.name,
            "severity": check.severity,
            "expected": check.expected,
            "description": check.description,
        }
        yield {**told, "passed": True, "observed": "0"}


def _text(text: str) -> Write:
    def write(out: Path) -> None:
        (out / "content.txt").write_text(text, encoding="utf-8")

    return write


def _metrics(out: Path, steps: int) -> None:
    (out / "metrics.jsonl").write_text(json.dumps({"step": steps, "loss": 2.0}) + "\n", encoding="utf-8")


def _books(out: Path) -> None:
    rows = [
        {"path": f"{n}.txt", "format": "txt", "bytes": 9, "title": f"Book {n}", "licence": "CC0-1.0", "documents": 1}
        | {"mojibake_repaired": False, "pretokenised": False, "lowercased": False, "characters": 9}
        for n in range(500)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=BOOKS_SCHEMA), out / "books.parquet")


def _documents(out: Path, recipe: str, count: int) -> None:
    """About 1 kB of text a document, of words that no other has."""
    random = np.random.default_rng(count)
    empty = pa.Table.from_pylist([], schema=pa.schema([("doc_id", pa.string()), ("reason", pa.string())]))
    pq.write_table(empty, out / "dropped.parquet")
    with pq.ParquetWriter(out / "part-00000.parquet", DOCUMENTS_SCHEMA, compression="zstd") as writer:
        for start in range(0, count, GROUP_ROWS):
            numbers = np.arange(start, min(count, start + GROUP_ROWS))
            texts = [" ".join(map(str, row)) for row in random.integers(0, 10**6, (len(numbers), 150))]
            columns = {
                "doc_id": [f"{recipe}:{n}" for n in numbers],
                "source": ["wikipedia"] * len(numbers),
                "title": [f"Page {n}" for n in numbers],
                "text": texts,
                "split": ["held_out" if n == count - 1 else "train" for n in numbers],
                "sentence_ends": [[len(text)] for text in texts],
                "repeat": [1.0] * len(numbers),
            }
            fields = [
                pa.array(columns[field.name], field.type)
                if field.name in columns
                else pa.nulls(len(numbers), field.type)
                for field in DOCUMENTS_SCHEMA
            ]
            writer.write_table(pa.Table.from_arrays(fields, schema=DOCUMENTS_SCHEMA))


def _shards(out: Path, recipe: str, documents: int, rows: int) -> None:
    """Rows of 16 tokens, each of a document and the next."""
    schema = shard_schema(30_522, Shards())
    random = np.random.default_rng(rows)
    for part, total, files in (("train", rows, SHARD_FILES), ("held_out", 1, 1)):
        (out / part).mkdir()
        for number in range(files):
            with pq.ParquetWriter(out / part / f"shard-{number:05}.parquet", schema, compression="zstd") as writer:
                last = total * (number + 1) // files
                for start in range(total * number // files, last, GROUP_ROWS):
                    writer.write_table(_rows(schema, recipe, documents, random, min(GROUP_ROWS, last - start)))


def _rows(schema: pa.Schema, recipe: str, documents: int, random: np.random.Generator, count: int) -> pa.Table:
    def lists(values: np.ndarray, each: int, field: str) -> pa.Array:
        offsets = pa.array(np.arange(0, count * each + 1, each), pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.array(values.ravel(), schema.field(field).type.value_type))

    firsts = random.integers(0, documents, count)
    names = np.array([f"{recipe}:{n}" for first in firsts.tolist() for n in (first, (first + 1) % documents)])
    columns = {
        "input_ids": lists(random.integers(0, 30_000, (count, 16)), 16, "input_ids"),
        "token_type_start": pa.array(np.full(count, 8), pa.int32()),
        "masked_lm_positions": lists(np.tile([3, 5], (count, 1)), 2, "masked_lm_positions"),
        "masked_lm_ids": lists(random.integers(0, 30_000, (count, 2)), 2, "masked_lm_ids"),
        "next_sentence_label": pa.array(np.zeros(count), pa.int8()),
        "documents": lists(names, 2, "documents"),
    }
    return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


# ── the questions ────────────────────────────────────────────────────────────────────────────────────────────────────


def questions(home: Path, document: str) -> list[tuple[str, list[str]]]:
    """(question, command)"""
    release, report = "r00/release", "r00/benchmark_report"
    return [
        ("which exact bytes", ["audit", release]),
        ("which code, configuration, libraries", ["audit", release, "--json"]),
        ("what was removed, and why", ["audit", "r00/documents"]),
        ("is this page in it, in which shards, at which steps", ["audit", release, "--document", document]),
        ("which models are affected if a source is withdrawn", ["audit", "r00/wikipedia_dump"]),
        ("licences and attribution", ["audit", "r00/books_text", "--json"]),
        ("is a benchmark contaminated", ["audit", report]),
        ("which checks, thresholds, waivers", ["audit", report, "--json"]),
        ("was training healthy", ["audit", "r00/pretrained_512"]),
        ("is this folder the approved one, unaltered", ["verify", str(home / "exported")]),
        ("what is the champion", ["status"]),
        ("what changed between two models", ["diff", release, "r01/release"]),
        ("the page with the lineage", ["audit", report, "--html", str(home / "audit.html")]),
        ("how long are things kept, what can be read after", ["gc", "--dry-run"]),
    ]


def ask(command: list[str], settings: Path) -> tuple[float, float, int]:
    """(seconds, seconds of the processor, peak bytes of memory) of a `bert` command. Raises CalledProcessError where it fails."""
    environment = {**os.environ, "BERT_SETTINGS": str(settings)}
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "assets.command", *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), command, stderr=said)
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", type=int, default=50)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--documents", type=int, default=500_000)
    parser.add_argument("--home", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="audit-") as scratch:
        home = (asked.home or Path(scratch)).resolve()
        settings = home / "settings.yaml"
        if not settings.exists():
            home.mkdir(parents=True, exist_ok=True)
            (home / "recipes").mkdir()
            # a process of its own: a child's peak memory begins with its parent's
            arguments = (home / "store", asked.recipes, asked.documents, asked.rows)
            builder = multiprocessing.get_context("spawn").Process(target=build, args=arguments)
            builder.start()
            builder.join()
            settings.write_text(f"home: {home / 'store'}\nrecipes: {ROOT / 'recipes'}\n", encoding="utf-8")
            ask(["export", "r00/wordpiece_vocab", str(home / "exported")], settings)
        table = Table(title=f"{20 * asked.recipes:,} artifacts, {asked.rows:,} rows, {asked.documents:,} documents")
        for heading in ("question", "bert …", "first, s", "again, s", "processor, s", "memory, MB", "bar"):
            table.add_column(heading, justify="left" if heading in ("question", "bert …") else "right")
        for question, command in questions(home, f"r00:{asked.documents // 2}"):
            first, again = ask(command, settings), ask(command, settings)
            memory = max(first[2], again[2])
            held = "held" if max(first[0], again[0]) < SECONDS and memory < MEMORY_BYTES else "MISSED"
            shown = " ".join(command).replace(str(home), "…")
            table.add_row(
                question, shown, f"{first[0]:.2f}", f"{again[0]:.2f}", f"{again[1]:.2f}", f"{memory / 1e6:,.0f}", held
            )
        Console(width=160).print(table)


if __name__ == "__main__":
    main()
