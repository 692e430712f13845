"""The world of the crash matrix: a recipe of seconds, made once, with a copy of the home as it was before each of its assets."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from pipeline.store import Store
from tests import tiny
from tests.conftest import ROOT
from tests.crash import shim
from tests.pipeline.badserver import Site, serving

LEASE_SECONDS = 2.0
ASSETS = (
    *("notes_files", "notes_text", "wikipedia_dump", "wikipedia_text", "books_files", "books_text", "documents"),
    *("wordpiece_vocab", "pretraining_shards_32", "pretrained_32", "release", "task_data_places", "finetuned_places"),
    *("contamination", "benchmark_report"),
)
"""in the order in which they are made"""
WORKS = {
    **{name: f"make tiny/{name}" for name in ASSETS},
    "promotion": "promote tiny",
    "gc": "gc 7",
    "gc for good": "gc 0",
    "restore": "restore",
}
AFTER = {"gc for good": "gc", "restore": "gc", "promotion": "benchmark_report", "gc": "promotion"}
"""what has to be done before, where that is not the asset above"""


def recipe(url: str, digest: str) -> str:
    """The tiny recipe with one phase, one task, and one source that is downloaded."""
    text = tiny.RECIPE
    for old, new in (
        (
            "    books:",
            f"    notes: {{kind: text, from: {{url: {url}, sha256: {digest}}}, licence: public domain}}\n    books:",
        ),
        (
            "phases: [{sequence_length: 32, steps: 30}, {sequence_length: 64, steps: 10}]",
            "phases: [{sequence_length: 32, steps: 30}]",
        ),
        ("tasks: [places, cola]", "tasks: [places]"),
        ("baselines: [untrained, tfidf]", "baselines: []"),
        ("log_every: 5", "log_every: 2"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@dataclass
class Process:
    """A piece of work in a child of the warm process."""

    crew: "Crew"
    pid: int
    output: Path
    code: int | None = None

    def ended(self, seconds: float = 120) -> int | None:
        """Its exit code, a negative signal, or None where it runs still after so long."""
        if self.code is None:
            self.code = self.crew.ask({"wait": self.pid, "seconds": seconds})
        return self.code

    @property
    def said(self) -> str:
        """What it has printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")


class Crew:
    """The warm process."""

    def __init__(self, library: Path) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in ("BERT_HOME", "DAGSTER_HOME")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.warm"],
            cwd=ROOT,
            env={**environment, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline()) == "ready"

    def ask(self, told: Mapping[str, Any]) -> Any:
        """Its answer."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        """End it."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)


@dataclass(frozen=True)
class Place:
    """A folder with text, recipes, settings and home, to break."""

    folder: Path
    crew: Crew

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def store(self) -> Store:
        return Store(self.home, lease_seconds=LEASE_SECONDS)

    def copy(self, folder: Path) -> "Place":
        """The same elsewhere."""
        shutil.copytree(self.folder, folder, symlinks=True)
        text = (folder / "settings.yaml").read_text(encoding="utf-8")
        (folder / "settings.yaml").write_text(text.replace(str(self.folder), str(folder)), encoding="utf-8")
        return Place(folder, self.crew)

    def start(self, work: str, more: Mapping[str, str] | None = None) -> Process:
        """Begin a piece of work (tests/crash/warm.py)."""
        scratch = self.folder / "tmp"
        scratch.mkdir(exist_ok=True)
        output = self.folder / f"said-{time.monotonic_ns()}"
        output.touch()
        environment = {"BERT_SETTINGS": str(self.folder / "settings.yaml"), "TMPDIR": str(scratch), **(more or {})}
        pid = self.crew.ask({"start": work, "environment": environment, "output": str(output)})
        return Process(self.crew, pid, output)

    def do(self, work: str, more: Mapping[str, str] | None = None) -> str:
        """Do it, and give what it said; it has to go well."""
        process = self.start(work, more)
        code = process.ended()
        assert code == 0, f"{work}: {code}\n{process.said}"
        return process.said

    def state(self) -> dict[str, Any]:
        """Everything that the home holds, so that it can be compared: names and bytes, records by what they say."""
        store = self.store
        records = store.records()
        # A crash between a record and the memory of it leaves one that says the same as the next.
        found: dict[str, Any] = {"records": sorted({f"{r.recipe}/{r.asset} {r.version}" for r in records.values()})}
        for path in sorted(self.home.rglob("*")):
            name = path.relative_to(self.home)
            kind = name.parts[0]
            if (
                path.is_dir() or kind in VOLATILE or name.name.startswith(".")
            ):  # what is left is looked for by the driver
                continue
            if kind in ("records", "memory"):
                continue
            if kind == "assets" and path.name == "champion.json":
                told = json.loads(path.read_text(encoding="utf-8"))
                found[str(name)] = [store.record(told["champion"]).version]
            elif kind == "assets":
                pointed = json.loads(path.read_text(encoding="utf-8"))
                found[str(name)] = [store.record(digest).version for digest in (pointed["record"], *pointed["history"])]
            elif kind in ("store", "trash", "downloads"):
                found[str(name)] = sha256(path.read_bytes()).hexdigest()
            else:
                found[str(name)] = "there"
        return found


VOLATILE = frozenset(
    {"locks", "verified", "views", "audits", "runs", "failures", "dagster", "watched", "attestations", "alerts"}
)
"""notes and traces of how it went; what of them must not be left is asked for by name (tests/crash/cells.py)"""


@dataclass
class Made:
    """What is made once: the home before each piece of work, and as it was after it, undisturbed."""

    folder: Path
    crew: Crew
    site: Site
    library: Path
    before: dict[str, Place] = field(default_factory=dict)
    after: dict[str, dict[str, Any]] = field(default_factory=dict)


@contextmanager
def made(folder: Path, last: str = "") -> Iterator[Made]:
    """Make everything once, or all up to one asset."""
    library = shim.library(folder)
    with serving() as site:
        crew = Crew(library)
        try:
            yield _made(folder, crew, site, library, last)
        finally:
            crew.end()


def _made(folder: Path, crew: Crew, site: Site, library: Path, last: str) -> Made:
    notes = "\n\n".join(tiny.paragraphs(500, 60)).encode()
    site.files["/notes.txt"] = notes
    tiny.write(folder / "now")
    text = recipe(f"{site.url}/notes.txt", sha256(notes).hexdigest())
    (folder / "now" / "recipes" / "tiny.yaml").write_text(text, encoding="utf-8")
    (folder / "now" / "recipes" / "tiny_child.yaml").unlink()
    now = Place(folder / "now", crew)
    found = Made(folder, crew, site, library)
    for work in (*ASSETS, "promotion", "gc"):
        found.before[work] = now.copy(folder / f"before-{work}")
        now.do(WORKS[work])
        found.after[work] = now.state()
        if work == last:
            return found
    for work in ("gc for good", "restore"):
        found.before[work] = now.copy(folder / f"before-{work.replace(' ', '-')}")
        other = now.copy(folder / f"after-{work.replace(' ', '-')}")
        other.do(work_of(work, other))
        found.after[work] = other.state()
    return found


def work_of(work: str, place: Place) -> str:
    """What the warm process is told."""
    if work == "restore":
        return f"restore {sorted(place.store.trashed())[0][1]}"
    return WORKS[work]
