"""Start a training process, follow what it writes, end it when the caller is ended.

The process is `python -m MODULE RUN_DIR` in a session of its own. It reads RUN_DIR/config.json, appends to
metrics.jsonl and timing.jsonl, and what it prints lies in stderr.log. It knows nothing of its caller.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from model import child, lines
from pipeline import progress
from pipeline.errors import TrainingError
from pipeline.stage import ROOT

POLL_SECONDS = 0.5
GRACE_SECONDS = 60.0
SHOWN = ("loss", "mlm_accuracy", "learning_rate")  # of a row of metrics.jsonl, in the progress line and as live plots
LOG = "stderr.log"
LOG_LINES = 20


def run(
    module: str,
    folder: Path,
    total: int | None,
    unit: str = "steps",
    grace_seconds: float = GRACE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Run `module` on the run folder to its end and report its progress, `total` being the last step.

    Whatever ends the caller in the meantime (cancel, Ctrl-C, an error) ends the process too: SIGTERM to its group,
    `grace_seconds` to save, SIGKILL; then the exception goes on.

    Raises:
        TrainingError: the process ended without its result; the message ends with the last lines of its log.
    """
    with (folder / LOG).open("ab") as log:
        beginning = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)],
            cwd=ROOT,
            # Threads that wait sleep instead of spinning: on a machine that does something else too, spinning halves the
            # speed or worse (torch's matrix products wait for the slowest thread).
            env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ, child.PARENT: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            try:
                process.wait(poll_seconds)
            except subprocess.TimeoutExpired:
                _report(folder, total, unit)
    except BaseException:
        _end(process, grace_seconds)
        raise
    _report(folder, total, unit)
    if process.returncode:
        raise TrainingError(
            f"{module} {_ending(process.returncode)}\n{_tail(folder / LOG, beginning)}",
            f"Its log is {folder / LOG}; run the asset again to go on from the last checkpoint.",
        )


def _report(folder: Path, total: int | None, unit: str) -> None:
    timing = lines.newest(folder / "timing.jsonl", "tokens_per_second")
    metrics = lines.newest(folder / "metrics.jsonl", "loss")
    reached = max(row["step"] for row in (timing, metrics) if row) if timing or metrics else 0
    measured = {
        name: float(row[name])
        for row, names in ((metrics, SHOWN), (timing, ("tokens_per_second",)))
        for name in names
        if row and row.get(name) is not None
    }
    progress.report(reached, total, unit, **measured)


def _end(process: "subprocess.Popen[bytes]", grace_seconds: float) -> None:
    """SIGTERM, wait, SIGKILL to whatever is left of the group; a second interrupt while waiting skips the wait."""
    _signal(process, signal.SIGTERM)
    try:
        process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        print(f"process {process.pid} did not end within {grace_seconds:g} s and is killed", file=sys.stderr)
    finally:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return  # the whole group has ended


def _ending(code: int) -> str:
    if code == child.STOPPED:
        return "was asked to stop from outside; it has saved a checkpoint"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _tail(log: Path, beginning: int) -> str:
    """The last lines that the process wrote, indented; this process only, not earlier ones of the same run."""
    with log.open("rb") as file:
        file.seek(max(beginning, log.stat().st_size - lines.TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join(f"    {line}" for line in text.splitlines()[-LOG_LINES:]) or "    (it wrote nothing)"
