"""Measure sentence ends: speed beside the bare library, and errors on the judged sample, before and after the repairs.

    python -m benchmarks.sentences [FOLDER of .txt] [--rounds 5]

Speed in MB of UTF-8 a second of one core, rounds in turns. Errors by kind, in both halves of
tests/pipeline/sentences_judged.txt: boundaries that are no sentence's end, and ends that are missed. The rows "outside
quotations" leave out the ends between sentences of one quotation, which some count as one sentence.
"""

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from sentencex import segment

from pipeline.prose.sentences import sentence_ends
from tests.pipeline.judged_sentences import Judged, errors, read_judged

JUDGED = Path("tests/pipeline/sentences_judged.txt")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    if asked.folder:
        speed(sorted(asked.folder.glob("*.txt")), asked.rounds)
    if JUDGED.is_file():
        table(read_judged(JUDGED))


def speed(files: list[Path], rounds: int) -> None:
    """Print MB/s of the library alone (a paragraph at a time) and of sentence_ends (a book, ten paragraphs a document)."""
    from pipeline.books import decode, strip_gutenberg, unwrap

    books = [unwrap(strip_gutenberg(decode(file.read_bytes())[0] or "")[0]) for file in files]
    paragraphs = [paragraph for book in books for paragraph in book.split("\n\n")]
    short = ["\n\n".join(paragraphs[start : start + 10]) for start in range(0, len(paragraphs), 10)]
    megabytes = sum(len(paragraph.encode()) for paragraph in paragraphs) / 1e6
    ways: dict[str, Callable[[], object]] = {
        "sentencex alone, by paragraph": lambda: [segment("en", paragraph) for paragraph in paragraphs],
        "sentence_ends, books": lambda: [sentence_ends(book, "en") for book in books],
        "sentence_ends, short documents": lambda: [sentence_ends(text, "en") for text in short],
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.process_time()
            way()
            times[name].append(time.process_time() - started)
    print(f"{len(books)} books, {megabytes:.1f} MB, median of {rounds}")
    for name, found in times.items():
        print(f"{name:32} {megabytes / statistics.median(found):7.1f} MB/s")


def library_ends(text: str) -> list[int]:
    """The ends of the bare library."""
    ends: list[int] = []
    for sentence in segment("en", text):
        ends.append((ends[-1] if ends else 0) + len(sentence))
    return ends


def table(judged: Collection[Judged]) -> None:
    """Print the errors by half and kind."""
    for half in ("development", "held_back"):
        sentences, before, after = Counter[str](), Counter[str](), Counter[str]()
        for one in judged:
            if one.half != half:
                continue
            inner = one.inside_quotation()
            for name, ends in (("before", library_ends(one.text)), ("after", sentence_ends(one.text, "en"))):
                count = before if name == "before" else after
                false, missed = errors(one, ends)
                for kind in (one.kind, "all"):
                    count[kind, "false"] += len(false)  # type: ignore[index]
                    count[kind, "missed"] += len(missed)  # type: ignore[index]
                count["outside quotations", "false"] += len(false - inner)  # type: ignore[index]
                count["outside quotations", "missed"] += len(missed - inner)  # type: ignore[index]
            for kind in (one.kind, "all"):
                sentences[kind] += len(one.ends) + 1
            sentences["outside quotations"] += len(one.ends - inner) + 1
        print(f"\n{half:26} sentences   sentencex false, missed   ours false, missed")
        for kind in [*sorted(set(sentences) - {"all", "outside quotations"}), "all", "outside quotations"]:
            row = [count[kind, error] for count in (before, after) for error in ("false", "missed")]  # type: ignore[index]
            print(f"{kind:26} {sentences[kind]:9}   {row[0]:15} {row[1]:7}   {row[2]:10} {row[3]:7}")


if __name__ == "__main__":
    main()
