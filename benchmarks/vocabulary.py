"""Measure the stage `wordpiece_vocab`: MB of text a second and core, peak memory, and merging alone.

    python -m benchmarks.vocabulary TEXT [--copies 1 4 16] [--workers 2] [--size 30522]
    python -m benchmarks.vocabulary TEXT --merge 100000 1000000 3000000

TEXT is a file (.xz too), a blank line between documents. It is repeated, once as it is (the same words), once with every fifth word
replaced by a made one, more of them with every copy (new words), and for the first size the trainer of `tokenizers` is timed on the
same counts. `--merge` makes so many distinct words out of the letter trigrams of the text, with counts by Zipf's law, and merges
them. Each measurement is a process of its own; "per core" divides by the processor seconds of the stage and its workers.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.documents import read, timed
from benchmarks.extraction import peaks
from pipeline.config import VocabularyConfig
from pipeline.schemas import DOCUMENTS_SCHEMA, iter_rows, write_parts
from pipeline.vocabulary import learn, train_vocabulary
from pipeline.words.word_counts import Words, text_bytes

SYLLABLES = [a + b for a in "bcdfghjklmnpqrstvwz" for b in "aeiou"]
NEW_WORDS = 400_000
"""of each copy"""


def rows(documents: list[str], copies: int, new: bool) -> Iterator[dict[str, Any]]:
    """`copies` times the documents; one in two hundred is held out."""
    for copy in range(copies):
        draw = random.Random(copy)
        for number, text in enumerate(documents):
            if new:
                words = text.split(" ")
                for place in range(draw.randrange(5), len(words), 5):
                    words[place] = made(copy * NEW_WORDS + draw.randrange(NEW_WORDS))
                text = " ".join(words)
            split = "held_out" if number % 200 == 7 else "train"
            yield {"doc_id": f"bench:{copy}-{number}", "source": "bench", "text": text, "split": split} | {
                "sentence_ends": [len(text)],
                "repeat": 1.0,
            }


def made(number: int) -> str:
    """A word of syllables for each number."""
    word = ""
    while number or not word:
        number, rest = divmod(number, len(SYLLABLES))
        word += SYLLABLES[rest]
    return word


def measure(folder: Path, workers: int, size: int) -> dict[str, Any]:
    """Speed and peaks of the stage on one folder."""
    settings = folder.parent / f"settings-{workers}.yaml"
    settings.write_text(f"beam: {{workers: {workers}}}\n", encoding="utf-8")
    taken: dict[str, Any] = {}

    def work() -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as out, patch.dict(os.environ, BERT_SETTINGS=str(settings)):
            config = VocabularyConfig(size=size)
            taken["time"] = timed(lambda: taken.update(train_vocabulary({"documents": folder}, config, Path(out))))

    own, largest = peaks(work)
    wall, cpu = taken["time"]
    return {"wall": wall, "cpu": cpu, "own": own, "worker": largest, "distinct": taken["train_words_distinct"]}


def trigram_words(texts: list[str], number: int) -> Words:
    """So many distinct words, each letter drawn by the two before it, counted by Zipf's law."""
    follow = defaultdict(list)
    for word in Counter(" ".join(texts).lower().split()):
        if word.isalpha():
            for place, letter in enumerate(f"{word}$"):
                follow[f"^^{word}"[place : place + 2]].append(letter)
    draw = random.Random(1)
    words: dict[str, int] = {}
    while len(words) < number:
        word = "^^"
        while (letter := draw.choice(follow[word[-2:]])) != "$" and len(word) < 25:
            word += letter
        words[word[2:]] = max(1, int(5 * number / (len(words) + 1) ** 1.05))
    return Words(pa.array(list(words), pa.large_string()), np.array(list(words.values()), np.int64))


def merge(texts: list[str], number: int, size: int) -> dict[str, Any]:
    """Seconds and peak memory of merging alone, and what the words take before."""
    words = trigram_words(texts, number)
    texts.clear()
    tokens: list[str] = []
    before = psutil.Process().memory_info().rss / 1e6
    taken: list[tuple[float, float]] = []

    def work() -> None:
        tokens.extend(learn(words, VocabularyConfig(size=size)))

    own, _ = peaks(lambda: taken.append(timed(work)))
    return {"cpu": taken[0][1], "own": own, "before": before, "tokens": len(tokens)}


def library(folder: Path, size: int) -> float:
    """Processor seconds of the trainer of `tokenizers`, fed with the texts."""
    from tokenizers import BertWordPieceTokenizer

    texts = [each["text"] for each in iter_rows(folder, ["text"])]
    return timed(lambda: BertWordPieceTokenizer().train_from_iterator(texts, vocab_size=size, show_progress=False))[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--size", type=int, default=30522)
    parser.add_argument("--merge", type=int, nargs="+", default=[])
    parser.add_argument("--measure", choices=["stage", "merge"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        stage = asked.measure == "stage"
        found = (
            measure(asked.text, asked.workers, asked.size)
            if stage
            else merge(read(asked.text), asked.merge[0], asked.size)
        )
        print(json.dumps(found))
        return
    for number in asked.merge:
        found = alone(asked.text, "--measure", "merge", "--merge", str(number), "--size", str(asked.size))
        print(
            f"{number:9,} distinct words: {found['cpu']:6.1f} s; peak MB {found['own']:.0f}, before {found['before']:.0f}; "
            f"{found['tokens']:,} tokens",
            flush=True,
        )
    if asked.merge:
        return
    documents = read(asked.text)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for new in (False, True):
            for copies in asked.copies:
                folder = Path(scratch) / f"copies{copies}-{new}"
                folder.mkdir()
                write_parts(rows(documents, copies, new), DOCUMENTS_SCHEMA, folder)
                size = text_bytes(folder) / 1e6
                found = alone(folder, "--measure", "stage", "--workers", str(asked.workers), "--size", str(asked.size))
                print(
                    f"{copies:3} copies, {'new' if new else 'same'} words: {size:6.1f} MB, {found['distinct']:9,} distinct: "
                    f"{found['wall']:5.1f} s, {size / found['cpu']:5.1f} MB a second and core; peak MB: stage "
                    f"{found['own']:.0f}, largest worker {found['worker']:.0f}",
                    flush=True,
                )
                if copies == asked.copies[0] and not new:
                    print(
                        f"    tokenizers alone: {size / library(folder, asked.size):5.1f} MB a second and core",
                        flush=True,
                    )


def alone(path: Path, *arguments: str) -> dict[str, Any]:
    """What this module measures in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.vocabulary", str(path), *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    found: dict[str, Any] = json.loads(said)
    return found


if __name__ == "__main__":
    main()
