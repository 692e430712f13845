"""Measure the stage `documents`: MB of text a second and core beside `datasketch` alone, and peak memory.

    python -m benchmarks.documents TEXT [--copies 1 4 16] [--workers 2] [--rounds 3]

TEXT is a file (.xz too), a sentence a line, a blank line between documents. It is repeated under other ids with every fifth word
changed, so that copies are no duplicates of each other; one document in fifty stands a second time with a few words changed. Each
size is measured in a process of its own. "Per core" divides by the processor seconds of the stage and its workers, start
included.
"""

import argparse
import json
import lzma
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.extraction import peaks
from pipeline.config import DocumentsConfig
from pipeline.documents import build_documents
from pipeline.schemas import TEXT_SCHEMA, count_rows, iter_rows, write_parts

PARAGRAPH_SENTENCES = 5


def read(path: Path) -> list[str]:
    """The documents of the file, five sentences a paragraph."""
    data = path.read_bytes()
    text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
    found = []
    for document in text.split("\n\n"):
        lines = document.split("\n")
        starts = range(0, len(lines), PARAGRAPH_SENTENCES)
        found.append("\n\n".join(" ".join(lines[start : start + PARAGRAPH_SENTENCES]) for start in starts))
    return found


def rows(documents: list[str], copies: int) -> Iterator[dict[str, Any]]:
    """`copies` times the documents, changed."""
    vocabulary = sorted({word for text in documents[:50] for word in text.split() if word.isalpha()})
    for copy in range(copies):
        draw = random.Random(copy)
        for number, text in enumerate(documents):
            changed = replaced(text, 5, draw, vocabulary) if copy else text
            yield row(f"bench:{copy}-{number}", changed)
            if number % 50 == 0:
                yield row(f"bench:{copy}-{number}-near", replaced(changed, 200, draw, vocabulary))


def row(doc_id: str, text: str) -> dict[str, Any]:
    return {"doc_id": doc_id, "source": "bench", "title": doc_id, "language": "en", "text": text}


def replaced(text: str, every: int, draw: random.Random, vocabulary: list[str]) -> str:
    """One word in `every` is another one; white space stays."""
    words = text.split(" ")
    for place in range(draw.randrange(every), len(words), every):
        if "\n" not in words[place]:
            words[place] = draw.choice(vocabulary)
    return " ".join(words)


def stage(folder: Path, workers: int, config: DocumentsConfig) -> dict[str, Any]:
    """Run the stage and return its statistics."""
    settings = folder.parent / f"settings-{workers}.yaml"
    settings.write_text(f"beam: {{workers: {workers}}}\n", encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=folder.parent) as out, patch.dict(os.environ, BERT_SETTINGS=str(settings)):
        return build_documents({"bench": folder}, config, Path(out))


def cpu_seconds() -> float:
    """Of this process and of its children that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """(wall seconds, processor seconds)."""
    started, used = time.perf_counter(), cpu_seconds()
    work()
    return time.perf_counter() - started, cpu_seconds() - used


def datasketch_alone(folder: Path) -> None:
    """MinHash and LSH by datasketch, on sets of word 5-grams, and nothing else."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=0.8, num_perm=256)
    for each in iter_rows(folder, ["doc_id", "text"]):
        words = each["text"].lower().split()
        signature = MinHash(num_perm=256)
        signature.update_batch({" ".join(words[i : i + 5]).encode() for i in range(max(1, len(words) - 4))})
        if not index.query(signature):
            index.insert(each["doc_id"], signature)


def first_pass_alone(folder: Path) -> None:
    """What pass 1 does, in this process."""
    from pipeline import documents
    from pipeline.selection import document_passes

    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        tasks, _ = documents._tasks({"bench": folder})
        plan = documents._plan(Path(scratch), DocumentsConfig(), tasks)
        documents._prepare(plan)
        document_passes.forget()
        documents._first_pass(plan, 1)


def measure(folder: Path, workers: int) -> dict[str, Any]:
    """Speed and peaks of the stage on one folder."""
    found: dict[str, Any] = {}

    def work() -> None:
        found["statistics"] = stage(folder, workers, DocumentsConfig())

    taken: list[tuple[float, float]] = []
    own, largest = peaks(lambda: taken.append(timed(work)))
    dropped = found["statistics"]["dropped"]
    return {"wall": taken[0][0], "cpu": taken[0][1], "own": own, "worker": largest, "dropped": dropped}


def alone(folder: Path, rounds: int, megabytes: float) -> None:
    """Print the speed of parts, in turns."""
    document_numbers: dict[str, list[float]] = {"pass 1, one process": [], "datasketch alone": []}
    for _ in range(rounds):
        for name, way in (("pass 1, one process", first_pass_alone), ("datasketch alone", datasketch_alone)):
            document_numbers[name].append(timed(lambda way=way: way(folder))[1])  # type: ignore[misc]
    for name, taken in document_numbers.items():
        print(f"{name:24} {megabytes / min(taken):6.1f} MB a second and core (best of {rounds})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(asked.text, asked.workers)))
        return
    documents = read(asked.text)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for copies in asked.copies:
            folder = Path(scratch) / f"copies{copies}"
            folder.mkdir()
            write_parts(rows(documents, copies), TEXT_SCHEMA, folder)
            megabytes = sum(len(each["text"].encode()) for each in iter_rows(folder, ["text"])) / 1e6
            command = [
                sys.executable,
                "-m",
                "benchmarks.documents",
                str(folder),
                "--measure",
                "--workers",
                str(asked.workers),
            ]
            said = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
            )
            print(
                f"{copies:3} copies, {count_rows(folder):6,} documents, {megabytes:6.1f} MB: {said['wall']:6.1f} s, "
                f"{megabytes / said['cpu']:5.1f} MB a second and core; peak MB: stage {said['own']:.0f}, "
                f"largest worker {said['worker']:.0f}; dropped {said['dropped']}",
                flush=True,
            )
            if copies == asked.copies[0] and asked.rounds:
                alone(folder, asked.rounds, megabytes)


if __name__ == "__main__":
    main()
