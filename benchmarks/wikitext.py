"""Measure markup → prose on the articles of a dump: the compiled scanner, the Python one, bz2 alone, and public peers.

    python -m benchmarks.wikitext DUMP.xml.bz2 [--rounds 5] [--peers PYTHON]

PYTHON is the interpreter of an environment of its own that has wikiextractor and mwparserfromhell (their licences and needs
are none of this project's). Rounds go in turns through all, so that other load of the machine falls on all alike; CPU
seconds of one core, speeds in MB of wikitext a second.
"""

import argparse
import bz2
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pipeline import wikitext, wikitext_scan
from pipeline.errors import SourceError
from pipeline.wiki.wikitext_templates import rules_for
from pipeline.wikipedia import read_pages, read_site

PEER = """
import json, sys, time
texts = json.load(open(sys.argv[2], encoding="utf-8"))
if sys.argv[1] == "wikiextractor":
    from wikiextractor.extract import Extractor
    run = lambda text: Extractor(1, 1, "", "Title", []).clean_text(text, expand_templates=False, html_safe=False)
else:
    import mwparserfromhell
    run = lambda text: mwparserfromhell.parse(text).strip_code()
run(texts[0])
print("ready", flush=True)
for _ in sys.stdin:
    started = time.process_time()
    for text in texts:
        run(text)
    print(time.process_time() - started, flush=True)
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=Path)
    asked = parser.parse_args()
    site = read_site(asked.dump)
    texts = []
    with suppress(SourceError):  # a sample may be cut off
        texts.extend(p.text for p in read_pages(asked.dump) if p.namespace == 0 and not p.redirect)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    names, rules = wikitext._names(site), rules_for(site.language)
    xml = _read(asked.dump)
    ways: dict[str, tuple[Callable[[], float], float]] = {
        "bz2 alone (MB of XML)": (lambda: _timed(lambda: _read(asked.dump)), len(xml) / 1e6),
        "to_text, compiled": (lambda: _timed(lambda: [wikitext.to_text(t, site, rules) for t in texts]), megabytes),
        "scanner alone, compiled": (
            lambda: _timed(lambda: [wikitext_scan.prose(t, names, rules) for t in texts]),
            megabytes,
        ),
        "scanner alone, Python": (lambda: _timed(lambda: [wikitext.prose(t, names, rules) for t in texts]), megabytes),
    }
    peers = _start(asked.peers, texts) if asked.peers else {}
    for name, process in peers.items():
        ways[name] = (lambda process=process: _ask(process), megabytes)  # type: ignore[misc]
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(asked.rounds):
        for name, (way, _) in ways.items():
            times[name].append(way())
    print(f"{len(texts)} articles, {megabytes:.1f} MB of wikitext, {asked.rounds} rounds in turns")
    for name, (_, size) in ways.items():
        median = statistics.median(times[name])
        print(f"{name:26} median {size / median:7.1f} MB/s   {median / size * 1e3:7.2f} ms per MB")
    for process in peers.values():
        process.kill()


def _read(path: Path) -> bytes:
    with bz2.open(path) as file:
        pieces = []
        with suppress(EOFError):
            while piece := file.read(1 << 20):
                pieces.append(piece)
    return b"".join(pieces)


def _timed(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _start(python: Path, texts: list[str]) -> dict[str, "subprocess.Popen[str]"]:
    held = Path("build") / "benchmark-texts.json"
    held.parent.mkdir(exist_ok=True)
    held.write_text(json.dumps(texts), encoding="utf-8")
    started = {}
    for name in ("wikiextractor", "mwparserfromhell"):
        command = [str(python), "-c", PEER, name, str(held)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n", name
        started[name] = process
    return started


def _ask(process: "subprocess.Popen[str]") -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


if __name__ == "__main__":
    main()
