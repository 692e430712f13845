"""Run a Beam pipeline in a process of its own, so that whatever happens to it ends and is explained.

Beam's local runner waits forever for a worker process that was killed (Beam 2.77). Here the process that runs the
pipeline watches its workers and ends with them, and it ends with its parent; the parent may end it at any time. What
Beam and its workers print goes to a log, of which the end is shown when the pipeline fails for a reason of its own.
"""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pipeline import errors
from pipeline.errors import BertError, StoreError
from pipeline.system import places
from pipeline.system.atomic import explained, write_bytes

_MEMORY = "It may have run out of memory: run again, if need be with fewer workers (beam.workers in settings.yaml)."
WORKER_DIED = BertError("A Beam worker process died", _MEMORY)
POLL_SECONDS = 0.5
LOG_CHARACTERS = 6000
PROBE_BYTES = 1 << 16


def run(function: str, argument: str, scratch: Path, poll: Callable[[], None]) -> None:
    """Call `function` (`module:name`) with `argument` in a new process group and wait for it.

    Args:
        function: makes and runs a pipeline; takes one string.
        argument: that string, for example JSON.
        scratch: a folder of this run, for its log and notes (`leave_note`; those of workers lie where they see it).
        poll: called about twice a second meanwhile, and once at the end.

    Raises:
        BertError: the one that the pipeline raised or left a note of, or one that says that it was killed, or that the disk
            takes nothing more.
        RuntimeError: the pipeline failed for another reason; with the end of its log.
    """
    (scratch / "argument").write_text(argument, encoding="utf-8")
    temporary = scratch / "tmp"  # what Beam and its workers leave there goes with the scratch folder
    temporary.mkdir()
    with (scratch / "beam.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "pipeline.beam.beam_process", function, str(scratch)],
            stdin=subprocess.PIPE,  # never written to: it closes when this process ends, however it ends
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "TMPDIR": str(temporary),
                "ARROW_DEFAULT_MEMORY_POOL": "system",  # Arrow's own keeps what was freed, a fifth more
            },
        )
    code = None
    try:
        while code is None:
            try:
                code = child.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                poll()
        poll()
    finally:
        if code != 0:
            _kill_group(child.pid)
            child.wait()
        if child.stdin:
            child.stdin.close()
    if code != 0:
        raise _failure(code, scratch)


NOTE = "note.json"
_STEPS = re.compile(r"(?: \[while running '[^'\n]*'\])+$")


def leave_note(scratch: Path, error: BertError) -> None:
    """Let the parent raise this error: a runner passes only the text of a worker's error on.

    Beam makes an error anew from its text, with the names of steps at its end: they are taken off.
    """
    note = errors.told(error)
    if _STEPS.search(error.what):
        note["what"], _, note["todo"] = _STEPS.sub("", error.what).partition("\n  → ")
    places.write_json(scratch / NOTE, note)


def _failure(code: int, scratch: Path) -> Exception:
    for place in dict.fromkeys((scratch, places.shared(scratch))):
        with suppress(FileNotFoundError, StoreError):
            return errors.retold(json.loads((place / NOTE).read_bytes()))
    if code < 0:
        return BertError(f"The Beam process was ended by signal {-code} ({signal.Signals(-code).name})", _MEMORY)
    with explained(scratch):  # a disk that takes nothing more takes no note and no log either
        write_bytes(scratch / "probe", bytes(PROBE_BYTES))
    log = (scratch / "beam.log").read_text(encoding="utf-8", errors="replace")
    return RuntimeError(f"The Beam pipeline failed. The end of its log:\n{log[-LOG_CHARACTERS:]}")


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


# ── in the new process ───────────────────────────────────────────────────────────────────────────────────────────────


def main() -> None:
    """`python -m pipeline.beam.beam_process MODULE:NAME SCRATCH`."""
    function, scratch = sys.argv[1], Path(sys.argv[2])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    threading.excepthook = lambda failed: _end_with_worker(failed, scratch)
    try:
        module, _, name = function.partition(":")
        getattr(importlib.import_module(module), name)((scratch / "argument").read_text(encoding="utf-8"))
    except BertError as error:
        leave_note(scratch, error)
        os._exit(1)
    except BaseException as error:
        traceback.print_exc()
        if "Channel closed prematurely" in str(error):
            leave_note(scratch, WORKER_DIED)
        sys.stderr.flush()
        os._exit(1)  # no waiting for threads that wait for workers


def _end_with_parent() -> None:
    os.read(0, 1)  # unbuffered: a lock held by sys.stdin would abort the interpreter at its end
    _kill_group(os.getpgrp())


def _end_with_worker(failed: threading.ExceptHookArgs, scratch: Path) -> None:
    """Beam starts each worker in a thread, which raises when the worker ends with another code than 0."""
    threading.__excepthook__(failed)
    if "Worker subprocess exited" in str(failed.exc_value):
        leave_note(scratch, WORKER_DIED)
        _kill_group(os.getpgrp())


if __name__ == "__main__":
    main()
