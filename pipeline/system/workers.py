"""Map a function over tasks in worker processes; results come in the order of the tasks.

    for result in workers.ordered("pipeline.selection.document_passes:read", tasks, count=2): ...

A worker is `python -m pipeline.system.workers`, a new interpreter that shares nothing with this one, takes tasks as lines of JSON on its
standard input and answers on its standard output. Large data belongs into files. When this process ends, however it ends, the
pipes close and every worker ends at once. Beam is for pipelines that may run on a cluster; here one machine is enough.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import Any

from pipeline import errors
from pipeline.errors import BertError

AHEAD = 2
"""Tasks per worker that may be done before their turn."""
LOG_CHARACTERS = 6000
ONE_THREAD = {"POLARS_MAX_THREADS": "1", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}


def ordered(function: str, tasks: Sequence[Any], count: int) -> Iterator[Any]:
    """The results of `function` (`module:name`; one JSON value in, one out) for every task, in order.

    With one worker or fewer than two tasks the function runs in this process.

    Raises:
        BertError: the one that the function raised, or one that says that a worker died.
        OSError: the one of the operating system that the function met: a full disk, a file that is gone.
        RuntimeError: the function failed in a worker for another reason; with its traceback.
    """
    if min(count, len(tasks)) < 2:
        yield from map(_named(function), tasks)
        return
    with ExitStack() as open_:
        idle: SimpleQueue[_Worker] = SimpleQueue()
        pool = open_.enter_context(ThreadPoolExecutor(count))
        for _ in range(min(count, len(tasks))):
            worker = _Worker(function)
            open_.callback(worker.end)  # before the pool waits for its threads
            idle.put(worker)

        def work(task: Any) -> Any:
            worker = idle.get()
            try:
                return worker.ask(task)
            finally:
                idle.put(worker)

        running: deque[Future[Any]] = deque()
        try:
            for task in tasks:
                running.append(pool.submit(work, task))
                if len(running) >= AHEAD * count:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for each in running:
                each.cancel()


class _Worker:
    """A worker process, seen from its parent."""

    def __init__(self, function: str) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = subprocess.Popen(
            [sys.executable, "-m", "pipeline.system.workers", function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **ONE_THREAD},
        )

    def ask(self, task: Any) -> Any:
        assert self._child.stdin and self._child.stdout
        try:
            self._child.stdin.write(json.dumps(task).encode() + b"\n")
            self._child.stdin.flush()
            answer = self._child.stdout.readline()
        except OSError:
            answer = b""
        if not answer.endswith(b"\n"):
            raise self._death()
        said = json.loads(answer)
        if "error" in said:
            raise errors.retold(said["error"])
        if "errno" in said:
            raise OSError(said["errno"], said["strerror"], said["filename"])
        if "traceback" in said:
            raise RuntimeError(f"A worker failed:\n{said['traceback']}")
        return said["result"]

    def _death(self) -> BertError:
        code = self._child.wait()
        self._log.seek(0)
        log = self._log.read().decode("utf-8", "replace")[-LOG_CHARACTERS:].strip()
        return BertError(
            f"A worker process died ({f'signal {-code}' if code < 0 else f'exit code {code}'})"
            + (f": {log}" if log else ""),
            "It may have run out of memory: run again, if need be with fewer workers (beam.workers in settings.yaml).",
        )

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout, self._log):
            if stream:
                with suppress(OSError):
                    stream.close()


def _named(function: str) -> Callable[[Any], Any]:
    module, _, name = function.partition(":")
    found: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    return found


# ── in the worker process ────────────────────────────────────────────────────────────────────────────────────────────


def main() -> None:
    """`python -m pipeline.system.workers MODULE:NAME`."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints goes to the log
    tasks: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    function = _named(sys.argv[1])
    while True:
        answers.write(json.dumps(_answer(function, json.loads(tasks.get()))).encode() + b"\n")
        answers.flush()


def _listen(tasks: "SimpleQueue[bytes]") -> None:
    """Pass lines on; the end of the input is the end of the parent, and of this process."""
    rest = b""
    while data := os.read(0, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            tasks.put(line)
    os._exit(0)


def _answer(function: Callable[[Any], Any], task: Any) -> dict[str, Any]:
    try:
        return {"result": function(task)}
    except BertError as error:
        return {"error": errors.told(error)}
    except OSError as error:
        if error.errno is None:
            return {"traceback": traceback.format_exc()}
        named = None if error.filename is None else os.fspath(error.filename)
        return {"errno": error.errno, "strerror": error.strerror, "filename": named}
    except BaseException:
        return {"traceback": traceback.format_exc()}


if __name__ == "__main__":
    main()
