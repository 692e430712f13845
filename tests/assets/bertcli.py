"""Drive the real `bert` command in a world of its own: text, recipes, settings and store of one temporary folder."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

from pipeline.store import Record, Store
from tests import tiny
from tests.conftest import ROOT

ASSETS = (
    *("wikipedia_dump", "wikipedia_text", "books_files", "books_text", "documents", "wordpiece_vocab"),
    *("pretraining_shards_32", "pretrained_32", "pretraining_shards_64", "pretrained_64", "release"),
    *("task_data_places", "finetuned_places", "task_data_cola", "finetuned_cola", "contamination", "benchmark_report"),
)


def environment_in(folder: Path) -> dict[str, str]:
    """Of a `bert` with the settings of a folder: as a user's, without what only tests install and every run would load.

    jsonschema, if it finds rfc3987_syntax (there for cyclonedx), compiles a grammar for more than a second.
    """
    clean = {k: v for k, v in os.environ.items() if k not in ("BERT_HOME", "DAGSTER_HOME", "COLUMNS")}
    path = os.pathsep.join(filter(None, [str(ROOT / "tests" / "hidden"), os.environ.get("PYTHONPATH")]))
    settings = str(folder / "settings.yaml")
    return {**clean, "BERT_SETTINGS": settings, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}


@dataclass(frozen=True)
class World:
    """One temporary folder with everything that a user has."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "World":
        folder.mkdir(exist_ok=True)
        tiny.write(folder)
        return cls(folder)

    def copy(self, folder: Path) -> "World":
        """The same world in a folder that does not exist yet, to break."""
        shutil.copytree(self.folder, folder, symlinks=True)
        settings = folder / "settings.yaml"
        text = settings.read_text(encoding="utf-8")
        settings.write_text(text.replace(str(self.folder), str(folder)), encoding="utf-8")
        return World(folder)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def store(self) -> Store:
        return Store(self.home, lease_seconds=2)

    @property
    def environment(self) -> dict[str, str]:
        return environment_in(self.folder)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "assets.command", *arguments]
        return subprocess.Popen(
            command,
            env=self.environment,
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def bert(self, *arguments: str, code: int | None = 0) -> str:
        """Run a command to its end; the output, stdout and stderr together. `code` None: any exit code."""
        done = self.start(*arguments)
        output, _ = done.communicate(timeout=900)
        assert code is None or done.returncode == code, f"bert {' '.join(arguments)} gave {done.returncode}:\n{output}"
        return output

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with --json; its standard output as a value."""
        command = [sys.executable, "-m", "assets.command", *arguments, "--json"]
        done = subprocess.run(command, env=self.environment, cwd=ROOT, text=True, capture_output=True, timeout=900)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    def states(self, recipe: str = "tiny") -> dict[str, str]:
        """Asset → state."""
        return {row["asset"]: row["state"] for row in self.json("status", recipe)["assets"]}

    def versions(self, recipe: str = "tiny") -> dict[str, str]:
        """Asset → version that it has now."""
        return {row["asset"]: row["version"] for row in self.json("status", recipe)["assets"]}

    def edit(self, old: str, new: str, recipe: str = "tiny") -> None:
        """Replace text in a recipe."""
        path = self.folder / "recipes" / f"{recipe}.yaml"
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
        path.write_text(text.replace(old, new), encoding="utf-8")


def when(
    process: "subprocess.Popen[str]", seen: Callable[[str], bool], act: Callable[[], None], seconds: float = 300
) -> str:
    """Read a process's output; at the first line that is `seen`, `act`. The whole output, after the process has ended."""
    lines: list[str] = []
    timer = threading.Timer(seconds, lambda: kill_tree(process.pid))
    timer.start()
    acted = False
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if not acted and seen(line):
            acted = True
            act()
    process.wait()
    timer.cancel()
    output = "".join(lines)
    assert acted, f"the line never came:\n{output}"
    return output


def tree(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill_tree(pid: int) -> None:
    """kill -9 a process and all that descend from it: first stop them all, so that none can react. Returns when all are
    dead: a process that holds much memory takes a while to die."""
    processes = tree(pid)
    for signal_ in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal_)
    end = time.monotonic() + 60
    while any(map(alive, processes)):
        assert time.monotonic() < end, f"they do not die: {processes}"
        time.sleep(0.01)


def alive(process: psutil.Process) -> bool:
    """Whether a process still runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def dagster_runs(home: Path) -> dict[str, str]:
    """Dagster's runs, the newest first: id → status."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DAGSTER_HOME", str(home / "dagster"))
        with dg.DagsterInstance.get() as opened:
            return {run.run_id: run.status.value for run in opened.get_runs()}


def recorded(store: Store, recipe: str, asset: str, stage: str, version: str, inputs: dict[str, str]) -> Record:
    """Say of published content that it is what an asset is now."""
    now = "2026-01-02T03:04:05.000000+00:00"
    body: dict[str, Any] = {
        "schema": "1",
        "recipe": recipe,
        "asset": asset,
        "stage": stage,
        "key": f"{recipe}-{asset}-{version}",
        "version": version,
        "code_version": "1",
        "config": {},
        "asked": {},
        "inputs": inputs,
        "statistics": {},
        "validation": {"suite_digest": "", "results": []},
        "waivers": [],
        "reused": None,
        "forced": False,
        "git": {"commit": None, "dirty": None},
        "user": "u",
        "host": "h",
        "started": now,
        "finished": now,
    }
    record = store.append(body)
    store.point(recipe, asset, record)
    return record
