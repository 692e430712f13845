"""What happens to a stage over Beam when one of its worker processes dies."""

import os
import signal
import subprocess
from pathlib import Path

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
