"""Measure the extraction of a dump: speed of one and two workers beside bz2 alone, and peak memory.

    python -m benchmarks.extraction DUMP.xml.bz2 [--copies 8] [--rounds 5] [--workers 2] [--single-stream]
    python -m benchmarks.extraction DUMP.xml.bz2 --memory 1 4 16

DUMP is a small dump; its pages are repeated under other ids. Speeds are in MB of XML a second. The start of Beam and its workers
is measured on an empty dump and subtracted. What is compared runs in turns, so that other load of the machine falls on all alike.
"""

import argparse
import bz2
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import apache_beam as beam
import psutil

from benchmarks import dumps
from pipeline import extraction
from pipeline.beam import extraction_beam
from pipeline.beam.extraction_beam import Extract
from pipeline.beam.options_beam import pipeline_options
from pipeline.config import WikipediaTextConfig
from pipeline.extraction import Plan, extract_text


class Copy(Extract):
    """The same pipeline with an extractor that returns its input."""

    def process(self, number: int) -> Any:
        """Extract one part."""
        with patch.object(extraction_beam, "to_text", lambda wikitext, site, rules: wikitext):
            yield from super().process(number)


def run_copy(plan_json: str) -> None:
    plan = Plan.model_validate_json(plan_json)
    with beam.Pipeline(options=pipeline_options(plan.beam, plan.workers)) as pipeline:
        extraction_beam.build(pipeline, plan, Copy)


def stage_seconds(folder: Path, workers: int, pipeline: str = extraction.PIPELINE) -> float:
    """Wall seconds of the stage with so many workers."""
    settings = folder.parent / f"settings-{workers}.yaml"
    settings.write_text(f"beam: {{workers: {workers}}}\n", encoding="utf-8")
    with (
        tempfile.TemporaryDirectory(dir=folder.parent) as out,
        patch.dict(os.environ, BERT_SETTINGS=str(settings)),
        patch.multiple(extraction, WORK_PER_WORKER=1, PIPELINE=pipeline),
    ):
        started = time.perf_counter()
        extract_text({"dump": folder}, WikipediaTextConfig(source="bench"), Path(out))
        return time.perf_counter() - started


def bz2_seconds(path: Path) -> float:
    """Seconds that Python's bz2 needs for the file."""
    started = time.perf_counter()
    with bz2.open(path) as file:
        while file.read(1 << 20):
            pass
    return time.perf_counter() - started


def xml_bytes(path: Path) -> int:
    with bz2.open(path) as file:
        return sum(len(data) for data in iter(lambda: file.read(1 << 20), b""))


def made(source: Path, folder: Path, copies: int, single: bool) -> Path:
    """A folder with a dump."""
    folder.mkdir()
    dumps.write(source, folder / "bench-pages-articles.xml.bz2", copies, None if single else 20)
    return folder


def speed(source: Path, scratch: Path, copies: int, rounds: int, workers: int, single: bool) -> None:
    """Print the table of speeds."""
    folder = made(source, scratch / "dump", copies, single)
    (scratch / "empty").mkdir()
    for number in range(workers):
        (scratch / "empty" / f"empty{number}.xml").write_text("<mediawiki></mediawiki>")
    path = folder / "bench-pages-articles.xml.bz2"
    megabytes = xml_bytes(path) / 1e6
    print(f"{path.stat().st_size / 1e6:.1f} MB of .bz2, {megabytes:.1f} MB of XML, {rounds} rounds in turns")
    copy = "benchmarks.extraction:run_copy"
    ways: dict[str, Callable[[], float]] = {
        "bz2 alone": lambda: bz2_seconds(path),
        "start, 1 worker": lambda: stage_seconds(scratch / "empty", 1),
        f"start, {workers} workers": lambda: stage_seconds(scratch / "empty", workers),
        "returning its input, 1 worker": lambda: stage_seconds(folder, 1, copy),
        f"returning its input, {workers} workers": lambda: stage_seconds(folder, workers, copy),
        "extraction, 1 worker": lambda: stage_seconds(folder, 1),
        f"extraction, {workers} workers": lambda: stage_seconds(folder, workers),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(way())
    start = {1: statistics.median(times["start, 1 worker"])}
    start[workers] = statistics.median(times[f"start, {workers} workers"])
    net = {
        name: [t - (start[workers] if f"{workers} workers" in name else start[1]) for t in taken]
        if "worker" in name and "start" not in name
        else taken
        for name, taken in times.items()
    }
    for name, taken in net.items():
        rate = f"{megabytes / statistics.median(taken):8.1f} MB/s" if "start" not in name else ""
        print(f"{name:36} median {statistics.median(taken):7.2f} s   min {min(taken):7.2f} s {rate}")
    for name in ("returning its input", "extraction"):
        pairs = zip(net[f"{name}, 1 worker"], net[f"{name}, {workers} workers"], strict=True)
        print(f"{name}: {workers} workers are {statistics.median(one / many for one, many in pairs):.2f} × one")
    both = zip(net["extraction, 1 worker"], net["returning its input, 1 worker"], strict=True)
    print(f"extraction takes {statistics.median(a / b for a, b in both):.2f} × of returning its input")


def peaks(work: Callable[[], object]) -> tuple[float, float]:
    """Peak MiB of RSS of this process, and of its largest child, while `work` runs."""
    me, ended = psutil.Process(), threading.Event()
    own = largest = 0

    def watch() -> None:
        nonlocal own, largest
        while not ended.wait(0.05):
            own = max(own, me.memory_info().rss)
            for child in me.children(recursive=True):
                try:
                    largest = max(largest, child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        ended.set()
        watcher.join()
    return own / 2**20, largest / 2**20


def memory(source: Path, scratch: Path, copies: list[int], workers: int, single: bool) -> None:
    """Print peak memory for dumps of several sizes, each measured in a process of its own."""
    for count in copies:
        folder = made(source, scratch / f"dump{count}", count, single)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        command = [sys.executable, "-m", "benchmarks.extraction", str(folder), "--peak", "--workers", str(workers)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        print(f"{count:3} copies, {size:7.1f} MB of .bz2: {found}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--single-stream", action="store_true")
    parser.add_argument("--memory", type=int, nargs="+", metavar="COPIES")
    parser.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.peak:
        own, largest = peaks(lambda: stage_seconds(asked.dump, asked.workers))
        print(f"peak MiB of RSS: stage {own:.0f}, largest process of Beam {largest:.0f}")
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        if asked.memory:
            memory(asked.dump, Path(scratch), asked.memory, asked.workers, asked.single_stream)
        else:
            speed(asked.dump, Path(scratch), asked.copies, asked.rounds, asked.workers, asked.single_stream)


if __name__ == "__main__":
    main()
