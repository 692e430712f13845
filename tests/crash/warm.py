"""A process that has loaded what every stage needs, and forks a child for each piece of work: `python -m tests.crash.warm`.

A cell then costs what its stage costs, and not four seconds of imports. It is told on standard input, a line of JSON each, and
answers in the same way:

    {"start": "make tiny/documents", "environment": {…}, "output": FILE}   → pid
    {"wait": pid, "seconds": 60}                                           → exit code, -9 for a signal, null: it runs still

What is done stands in `WORK`. The child prints what `bert` would print: `error: …` and the next step.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import assets.graph
from assets.commands import promoting
from pipeline import build
from pipeline.errors import BertError
from pipeline.settings import RetentionSettings
from pipeline.storage import garbage
from pipeline.store import Store, open_store

PRELOADED = (
    "great_expectations",
    *(f"pipeline.{name}" for name in ("books", "own_text", "selection.document_passes", "vocabulary")),
)
"""what takes seconds to import, or is asked for by name"""


class Interrupted(BaseException):
    """What Dagster raises in a step that is canceled: no error of the step's, so nothing catches it."""


def _make(name: str) -> None:
    _, node = assets.graph.find(name)
    assert node is not None
    outcome = build.build(open_store(), node)
    if outcome.failed is not None:
        raise outcome.failed


def _remake(name: str) -> None:
    _, node = assets.graph.find(name)
    assert node is not None
    build.build(open_store(), node, forced=True)


def _promote(recipe: str) -> None:
    promoting.promote(recipe, "crash matrix")


def _gc(days: str) -> None:
    """Everything that may go, goes: into the trash, and for good after `days`."""
    rules = RetentionSettings(history=0, shards_days=0, grace_days=float(days), sole_home=True)
    garbage.collect(open_store(), rules)


def _restore(beginning: str) -> None:
    garbage.restore(open_store(), beginning)


def _sweep(lease: str) -> None:
    """As `bert run` begins."""
    store = open_store()
    if lease:
        store = Store(store.home, lease_seconds=float(lease))
    store.sweep()
    store.clear_runs(assets.graph.clear_run)


WORK: dict[str, Callable[[str], None]] = {
    "make": _make,
    "remake": _remake,
    "promote": _promote,
    "gc": _gc,
    "restore": _restore,
    "sweep": _sweep,
}


def _child(what: str, environment: dict[str, str], output: str) -> None:
    os.setpgid(0, 0)
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(written, descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.environ.update(environment)
    os.environ["CRASH_ROOT"] = str(os.getpid())

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGTERM, interrupt)
    kind, _, name = what.partition(" ")
    code = 1
    try:
        ctypes.CDLL(None).crash_arm()
        WORK[kind](name)
        code = 0
    except BertError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
    except Interrupted:
        code = 143
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _waited(pid: int, seconds: float) -> int | None:
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.005)


def main() -> None:
    """Serve until standard input ends."""
    for name in PRELOADED:
        importlib.import_module(name)
    build.git_state()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        told: dict[str, Any] = json.loads(line)
        if "start" in told:
            pid = os.fork()
            if pid == 0:
                _child(told["start"], told["environment"], told["output"])
            print(json.dumps(pid), flush=True)
        else:
            print(json.dumps(_waited(told["wait"], told["seconds"])), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()
