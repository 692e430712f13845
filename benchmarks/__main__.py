"""Time every stage of a made recipe again, alone, on its own published inputs.

    python -m benchmarks [RECIPE] [ROUNDS]        the recipe's assets must have been made: bert run demo

Each stage runs in a scratch folder, `ROUNDS` times (default 3; training once); nothing of the store changes. The table shows the
median, the spread, and the rate in the stage's own unit.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from assets import graph
from pipeline.build import Node, references_of
from pipeline.errors import BertError
from pipeline.storage.content import content_digest
from pipeline.store import Record, Store, open_store

STAGES = (
    "wikipedia_text",
    "books_text",
    "documents",
    "wordpiece_vocab",
    "pretraining_shards",
    "contamination",
    "release",
)
TRAINING = ("pretrained",)


def main() -> None:
    """Print the table."""
    recipe = sys.argv[1] if len(sys.argv) > 1 else "demo"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    store = open_store()
    nodes, _ = graph.find(recipe)
    table = Table(title=f"recipe {recipe}, {rounds} rounds, seconds of the stage function alone")
    for heading in ("asset", "median", "min", "max", "input", "rate"):
        table.add_column(heading, justify="left" if heading == "asset" else "right")
    for node in nodes.values():
        record = store.pointer(recipe, node.name)
        if record is None:
            raise BertError(f"{node.path} was never made", f"Make it first: bert run {recipe}")
        if node.stage.name in STAGES + TRAINING:
            times = [measure(store, node, record) for _ in range(1 if node.stage.name in TRAINING else rounds)]
            table.add_row(node.name, *_row(times, *_amount(store, node, record)))
    texts = store.pointer(recipe, "documents")
    assert texts is not None
    part = store.content(texts.stage, texts.version) / "part-00000.parquet"
    times = [_timed(lambda: content_digest(part)) for _ in range(rounds)]
    table.add_row("content digest of documents", *_row(times, part.stat().st_size / 1e6, "MB"))
    Console().print(table)


def measure(store: Store, node: Node, record: Record) -> float:
    """Seconds of one run of the stage on the inputs of its record."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        out = Path(scratch) / "out"
        out.mkdir()
        inputs: dict[str, Path] = {}
        for name, digest in record.inputs.items():
            source = store.record(digest)
            inputs[name] = store.folder(source.stage, source.version, references=references_of(node.inputs[name]))
        if node.stage.resumable:
            inputs["run"] = Path(scratch) / "run"
            inputs["run"].mkdir()
        stage: Callable[..., Mapping[str, Any]] = node.stage.load()
        return _timed(lambda: stage(inputs, node.config, out))


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _amount(store: Store, node: Node, record: Record) -> tuple[float, str]:
    """How much the stage read or made, and its unit."""
    if node.stage.name in TRAINING:
        return float(node.config.plain()["steps"]), "steps"
    if node.stage.name == "wikipedia_text":
        dump = store.record(record.inputs["dump"])
        return sum(f["size_bytes"] for f in store.manifest(dump.stage, dump.version)["files"]) / 1e6, "MB"
    rows = {"pretraining_shards": "instances", "documents": "documents"}.get(node.stage.name)
    found = record.body["statistics"]
    count = found.get("row_count") or found.get("instances") or found.get("size")
    return (float(count), rows or "rows") if isinstance(count, int | float) else (1.0, "run")


def _row(times: list[float], amount: float, unit: str) -> tuple[str, ...]:
    middle = statistics.median(times)
    return (
        f"{middle:.2f}",
        f"{min(times):.2f}",
        f"{max(times):.2f}",
        f"{amount:,.1f} {unit}",
        f"{amount / middle:,.1f} {unit}/s",
    )


if __name__ == "__main__":
    try:
        main()
    except BertError as error:
        sys.exit(f"error: {error}")
