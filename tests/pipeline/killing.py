"""Processes that are killed: a worker of a stage over Beam, and a child between two of its operations."""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil


def kill_a_worker(child: "subprocess.Popen[str]", out: Path) -> None:
    """kill -9 one of two workers of a stage that runs in `child`: it ends with an error, and leaves neither files in `out`
    nor processes."""
    workers = [p for p in psutil.Process(child.pid).children(recursive=True) if not p.children()]
    assert len(workers) == 2
    os.kill(workers[0].pid, signal.SIGKILL)
    _, error = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "A Beam worker process died" in error
    assert list(out.iterdir()) == []
    gone, alive = psutil.wait_procs(workers, timeout=5)
    assert (len(gone), alive) == (2, [])


def killed_at(number: int, work: Callable[[], object], owner: Any, operations: Sequence[str]) -> bool:
    """Run `work` in a child that kills itself before its `number`-th call of one of `owner`'s operations; `os.write` has
    then written half of its bytes. Whether it came so far."""
    child = os.fork()
    if child == 0:
        done = 0

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def operation(*arguments: Any, **named: Any) -> Any:
                nonlocal done
                done += 1
                if done == number:
                    if real is write:
                        real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **named)

            return operation

        failed, write = 1, os.write
        try:
            for name in operations:
                setattr(owner, name, counted(getattr(owner, name)))
            work()
            failed = 0
        finally:
            os._exit(failed)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed by itself"
    return os.WIFSIGNALED(status)
