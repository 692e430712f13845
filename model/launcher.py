"""Start a training process, follow what it writes, end it when the caller is ended.

The process is `python -m MODULE RUN_DIR` in a session of its own, or several that torchrun starts, or whatever a command
template starts on whatever host that sees the run folder. It reads RUN_DIR/config.json, appends to metrics.jsonl and
timing.jsonl, writes heartbeats, and what it prints lies in stderr.log. It knows nothing of its caller but a file that the
caller touches, and a file `cancel` by which the caller asks it to stop.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from model import child, heartbeat, lines
from pipeline import progress
from pipeline.errors import TrainingError
from pipeline.settings import TrainingSettings
from pipeline.stage import ROOT

POLL_SECONDS = 0.5
GRACE_SECONDS = 60.0
SHOWN = ("loss", "mlm_accuracy", "learning_rate")  # of a row of metrics.jsonl, in the progress line and as live plots
LOG = child.LOG
TORCHRUN_LOG = "torchrun.log"
LOG_LINES = 20


@dataclass(frozen=True)
class Way:
    """How a process is started."""

    command: tuple[str, ...]
    direct: bool
    """it is our own child: signals reach it, and it is told our process id"""
    log: str = LOG
    """file of the run folder that gets what the started command itself prints"""


def way(module: str, folder: Path, settings: TrainingSettings, ranks: int) -> Way:
    """How the settings want `module` to be started on the run folder, in `ranks` processes that train together.

    A template is given to the shell with {module}, {run} (the folder's path) and {ranks} filled in.
    """
    if settings.launcher:
        filled = settings.launcher
        for name, value in {"module": module, "run": shlex.quote(str(folder)), "ranks": str(ranks)}.items():
            filled = filled.replace(f"{{{name}}}", value)
        return Way(("/bin/sh", "-c", filled), direct=False)
    if ranks > 1:
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
        return Way((*torchrun, "-m", module, str(folder)), direct=False, log=TORCHRUN_LOG)
    return Way((sys.executable, "-m", module, str(folder)), direct=True)


def run(
    module: str,
    folder: Path,
    total: int | None,
    unit: str = "steps",
    settings: TrainingSettings | None = None,
    ranks: int = 1,
    grace_seconds: float = GRACE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Run `module` on the run folder to its end and report its progress, `total` being the last step.

    Whatever ends the caller in the meantime (cancel, Ctrl-C, an error) ends the process too: it is asked to stop, has
    `grace_seconds` to save, then it is killed; then the exception goes on.

    Raises:
        TrainingError: the process ended without its result, or hung; the message ends with the last lines of its log.
    """
    settings = settings or TrainingSettings()
    how = way(module, folder, settings, ranks)
    (folder / child.CANCEL).unlink(missing_ok=True)
    heartbeat.clear(folder)
    mark = folder / child.LAUNCHER
    mark.touch()
    beginning = (folder / LOG).stat().st_size if (folder / LOG).exists() else 0
    with (folder / how.log).open("ab") as log:
        process = subprocess.Popen(
            how.command,
            cwd=ROOT,
            # Threads that wait sleep instead of spinning: on a machine that does something else too, spinning halves the
            # speed or worse (torch's matrix products wait for the slowest thread).
            env={"OMP_WAIT_POLICY": "PASSIVE", **_environment(settings), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    watch = heartbeat.Watch()
    try:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(poll_seconds)
            os.utime(mark)
            _report(folder, total, unit)
            hung = watch.silent(folder, 1.5 * settings.hang_seconds + 5)  # later than it would end itself
            if hung:
                raise TrainingError(
                    f"{module}: {', '.join(hung)} gave no sign of life for {settings.hang_seconds:g} s and did not end by "
                    f"itself; it was killed\n{_tail(folder / LOG, beginning)}",
                    "Look whether it was stopped, or the machine sleeps; run the asset again to go on from the last "
                    "checkpoint.",
                )
    except TrainingError:
        _kill(process, folder)
        raise
    except BaseException:
        _end(process, folder, how, grace_seconds)
        raise
    finally:
        mark.unlink(missing_ok=True)
        (folder / child.CANCEL).unlink(missing_ok=True)
    _report(folder, total, unit)
    if process.returncode:
        _kill(process, folder)  # a replica may be left where another one failed
        raise TrainingError(
            f"{module} {_ending(process.returncode)}\n{_tail(folder / LOG, beginning)}",
            f"Its log is {folder / LOG}; run the asset again to go on from the last checkpoint.",
        )


def _environment(settings: TrainingSettings) -> dict[str, str]:
    """What the process finds in its environment: ours, and who must not be outlived, where that is on this host."""
    named = {name: value for name, value in os.environ.items() if name != child.PARENT}
    return named if settings.launcher else {**named, child.PARENT: str(os.getpid())}


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


def _end(process: "subprocess.Popen[bytes]", folder: Path, how: Way, grace_seconds: float) -> None:
    """Ask to stop, wait, kill what is left; a second interrupt while waiting skips the wait."""
    (folder / child.CANCEL).touch()
    if how.direct:
        _signal(process, signal.SIGTERM)
    try:
        process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        print(f"process {process.pid} did not end within {grace_seconds:g} s and is killed", file=sys.stderr)
    finally:
        _kill(process, folder)


def _kill(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """End the process group, and the replicas that torchrun put into groups of their own."""
    _signal(process, signal.SIGKILL)
    process.wait()
    for pid in heartbeat.pids(folder):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if os.fsencode(folder) in command:  # not another process that was given the same number since
                os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in heartbeat.pids(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    heartbeat.clear(folder)


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return  # the whole group has ended


def _ending(code: int) -> str:
    if code == child.STOPPED:
        return "was asked to stop from outside; it has saved a checkpoint"
    if code == heartbeat.HUNG:
        return "hung and has ended itself"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _tail(log: Path, beginning: int) -> str:
    """The last lines that the process wrote, indented; this process only, not earlier ones of the same run."""
    if not log.exists():
        return "    (it wrote nothing)"
    with log.open("rb") as file:
        file.seek(max(beginning, log.stat().st_size - lines.TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join(f"    {line}" for line in text.splitlines()[-LOG_LINES:]) or "    (it wrote nothing)"
