"""The ordered map over worker processes: order, errors, and what happens when someone dies."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.errors import BertError, DataError
from pipeline.system import workers
from tests.conftest import ROOT

HERE = "tests.pipeline.system.test_workers"


def echo(task: dict[str, Any]) -> dict[str, Any]:
    print("what a task prints disturbs nothing")
    time.sleep(task.get("seconds", 0))
    return {**task, "pid": os.getpid()}


def failing(task: int) -> int:
    if task == 2:
        raise DataError("record 7 is no word", "Correct it.")
    if task == 3:
        raise KeyError("missing")
    return task


class OddError(DataError):
    """A kind of error that only this module knows."""


def full(task: int) -> int:
    with Path("/dev/full").open("wb", buffering=0) as file:
        return file.write(b"a row")


def odd(task: int) -> int:
    raise OddError("record 7 is odd", "Make it even.")


def dying(task: int) -> int:
    if task == 1:
        sys.stderr.write("the end is near\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return task


def test_a_kind_of_error_that_only_a_module_knows_comes_as_the_one_above_it() -> None:
    with pytest.raises(DataError, match="record 7 is odd") as error:
        list(workers.ordered(f"{HERE}:odd", [1, 2], 2))
    assert error.value.todo == "Make it even."


def test_results_come_in_the_order_of_the_tasks_from_several_processes() -> None:
    tasks = [{"n": n, "seconds": 0.2 if n == 0 else 0, "text": "é\n" * 50_000} for n in range(9)]
    found = list(workers.ordered(f"{HERE}:echo", tasks, 2))
    assert [{k: v for k, v in each.items() if k != "pid"} for each in found] == tasks
    pids = {each["pid"] for each in found}
    assert len(pids) == 2 and os.getpid() not in pids
    assert not any(map(psutil.pid_exists, pids))


@pytest.mark.parametrize(("count", "tasks"), [(1, 3), (4, 1), (2, 0)])
def test_one_worker_or_one_task_needs_no_other_process(count: int, tasks: int) -> None:
    found = list(workers.ordered(f"{HERE}:echo", [{"n": n} for n in range(tasks)], count))
    assert found == [{"n": n, "pid": os.getpid()} for n in range(tasks)]


def test_errors_come_as_they_were_raised() -> None:
    results = workers.ordered(f"{HERE}:failing", [0, 1, 2, 3, 4, 5], 2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(DataError, match="record 7 is no word") as raised:
        next(results)
    assert raised.value.todo == "Correct it."
    with pytest.raises(RuntimeError, match="KeyError: 'missing'"):
        list(workers.ordered(f"{HERE}:failing", [0, 3], 2))
    assert children() == []


def test_an_error_of_the_disk_comes_as_one() -> None:
    """So that whoever runs the stage says what a person can do, as for one in its own process."""
    with pytest.raises(OSError) as failed:
        list(workers.ordered(f"{HERE}:full", [1, 2], 2))
    assert failed.value.errno == errno.ENOSPC
    assert "No space left" in str(failed.value)


def test_a_worker_that_dies_is_an_error_that_says_how() -> None:
    with pytest.raises(BertError, match=r"died \(signal 9\): the end is near") as raised:
        list(workers.ordered(f"{HERE}:dying", list(range(20)), 2))
    assert "fewer workers" in raised.value.todo
    assert children() == []


def test_who_stops_listening_leaves_no_process() -> None:
    results = workers.ordered(f"{HERE}:echo", [{"n": n, "seconds": 0 if n < 2 else 60} for n in range(9)], 2)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert children() == []


def test_workers_end_with_a_parent_that_is_killed() -> None:
    code = (
        f"import json; from pipeline.system import workers\n"
        f"found = workers.ordered('{HERE}:echo', [{{'n': n, 'seconds': n // 2 * 60}} for n in range(6)], 2)\n"
        "print(json.dumps([next(found)['pid'], next(found)['pid']]), flush=True)\nnext(found)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    json.loads(child.stdout.readline())
    processes = psutil.Process(child.pid).children(recursive=True)
    assert len(processes) == 2
    child.kill()
    child.wait()
    child.stdout.close()
    gone, alive = psutil.wait_procs(processes, timeout=5)
    assert (len(gone), alive) == (2, [])


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "pipeline.system.workers" in " ".join(child.cmdline())]
