"""A process that sends hostile inputs through the doors, one after the other, and measures what each cost.

    python -m tests.hostile.child < lines of {"door": …, "folder": …} > lines of {"outcome": …, "cpu_seconds": …, "MiB": …}

What a stage imports is imported first. Memory is the most that was resident while a door was open, above what was before.
A case that takes more processor time than it may is killed by the kernel.
"""

import ctypes
import gc
import json
import os
import resource
import sys
import traceback
from pathlib import Path

from tests.hostile.doors import through

CPU_SECONDS = 30


def _status(name: str) -> int:
    """kB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])


def _used() -> float:
    own, below = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime


def _settle() -> int:
    """Give back what nobody uses and forget the peak; kB that stay."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew (man 5 proc); not ru_maxrss, which never falls
    return _status("VmRSS")


def main() -> None:
    import apache_beam
    import torch

    import assets.cli
    import model.imported
    import pipeline.beam.extraction_beam
    import pipeline.books
    import pipeline.own_text

    assert apache_beam and assets.cli and model.imported and pipeline.books and pipeline.own_text
    torch.zeros(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        before, began = _settle(), _used()
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(_used()) + CPU_SECONDS + 1, hard))
        try:
            outcome = through(asked["door"], Path(asked["folder"]))
        except BaseException:
            outcome = {"fault": traceback.format_exc()}
        told = {
            "outcome": outcome,
            "cpu_seconds": round(_used() - began, 3),
            "MiB": max(0, _status("VmHWM") - before) >> 10,
        }
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
