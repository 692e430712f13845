"""Start a training process, follow what it writes, end it when the caller is ended.

The process is `python -m MODULE RUN_DIR` in a session of its own, or several that torchrun starts, or whatever a command
template starts on whatever host that sees the run folder. It reads RUN_DIR/config.json, appends to metrics.jsonl and
timing.jsonl, writes heartbeats, and what it prints lies in stderr.log. It knows nothing of its caller but a file that the
caller touches, and a file `cancel` by which the caller asks it to stop.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from model import checkpoint
from model.processes import child, heartbeat, lines
from pipeline import progress
from pipeline.errors import BertError, ProcessLost, TrainingError, retold
from pipeline.settings import TrainingSettings
from pipeline.stage import ROOT
from pipeline.system import atomic

POLL_SECONDS = 0.5
LAUNCHER_SECONDS = 300.0
"""a launcher that touches nothing for so long is dead to a process on another host"""
SHARED_SECONDS = 90.0
"""for so long a shared disk may hide what another host wrote: NFS asks again after a minute"""
SHOWN = ("loss", "mlm_accuracy", "learning_rate")  # of a row of metrics.jsonl, in the progress line and as live plots
LOG = child.LOG
TORCHRUN_LOG = "torchrun.log"
LOG_LINES = 20
_FAILED_RANK = re.compile(r"^\s+rank\s+: (\d+) .*\n\s+exitcode\s+: (-?\d+) \(pid: (\d+)\)", re.M)
"""how torchrun tells of a process that failed"""


@dataclass(frozen=True)
class Way:
    """How a process is started."""

    command: tuple[str, ...]
    direct: bool = False
    """it is our own child: signals reach it, and it is told our process id"""
    far: bool = False
    """it may run on another host: it can't be killed from here, and what it writes may be seen late"""
    log: str = LOG
    """file of the run folder that gets what the started command itself prints"""


def way(module: str, folder: Path, settings: TrainingSettings, ranks: int) -> Way:
    """How the settings want `module` to be started on the run folder, in `ranks` processes that train together.

    A template is given to the shell with {module}, {run} (the folder's path) and {ranks} filled in.

    Raises:
        TrainingError: the path has characters that the shells on its way would change.
    """
    if settings.launcher:
        if shlex.quote(str(folder)) != str(folder):
            raise TrainingError(
                f"{folder}: a path with spaces or signs can't be handed through training.launcher",
                "Set `home` in settings.yaml to a folder without.",
            )
        values = {"module": module, "run": str(folder), "ranks": str(ranks)}
        filled = re.sub(r"(?<!\$)\{(\w+)\}", lambda found: values[found[1]], settings.launcher)
        return Way(("/bin/sh", "-c", filled), far=True)
    if ranks > 1:
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
        return Way((*torchrun, "-m", module, str(folder)), log=TORCHRUN_LOG)
    return Way((sys.executable, "-m", module, str(folder)), direct=True)


def result(module: str, folder: Path, total: int | None, settings: TrainingSettings, ranks: int = 1) -> Path:
    """RUN_DIR/result, verified: as it lies there already, else as `run` leaves it.

    Raises:
        TrainingError: see `run`; or the command ended well and left no result.
    """
    made = folder / "result"
    if checkpoint.broken(made) is None:
        return made
    run(module, folder, total, settings=settings, ranks=ranks)
    deadline = time.monotonic() + (SHARED_SECONDS if settings.launcher else 0)
    while (problem := checkpoint.broken(made)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    if problem:
        raise TrainingError(
            f"{module} ended well, but {made} is not there: {problem}",
            "The command of training.launcher must last as long as the process (`sbatch --wait`, `kubectl wait`), and both "
            "hosts must see the run folder under the same path.",
        )
    return made


def run(
    module: str,
    folder: Path,
    total: int | None,
    settings: TrainingSettings | None = None,
    ranks: int = 1,
    poll_seconds: float = POLL_SECONDS,
    launcher_seconds: float = LAUNCHER_SECONDS,
) -> None:
    """Run `module` on the run folder to its end and report its progress, `total` being the last step.

    Whatever ends the caller in the meantime (cancel, Ctrl-C, an error) ends the process too: it is asked to stop, has
    `settings.stop_seconds` to save, then it is killed; then the exception goes on.

    Raises:
        TrainingError: the process ended without its result; the message ends with the last lines of its log. Where it ended by
            an error that it told, an error of that kind with that advice: DataError, StoreError.
        ProcessLost: it was killed, hung, or was told by a signal to make room.
    """
    settings = settings or TrainingSettings()
    how = way(module, folder, settings, ranks)
    for name in (child.CANCEL, child.ERROR):
        (folder / name).unlink(missing_ok=True)
    heartbeat.clear(folder)
    mark = folder / child.LAUNCHER
    atomic.write_json(mark, {"id": uuid4().hex, "seconds": launcher_seconds})
    said = _told(folder)
    beginnings = {name: _size(folder / name) for name in {LOG, how.log}}
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
    asked = True
    try:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(poll_seconds)
            with suppress(OSError):  # a shared disk that does not answer for a moment
                os.utime(mark)
            said = _tell(folder, said)
            _report(folder, total)
            hung = watch.silent(folder, 1.5 * settings.hang_seconds + 5)  # later than it would end itself
            if hung:
                raise ProcessLost(
                    f"{module}: {', '.join(hung)} gave no sign of life for {settings.hang_seconds:g} s and did not end by "
                    f"itself; it was killed\n{_tail(folder / LOG, beginnings[LOG])}",
                    "Look whether its host lives, it was stopped, or the machine sleeps; run the asset again to go on from "
                    "the last checkpoint.",
                )
        asked = False
        by_hand = (folder / child.CANCEL).exists()
    except ProcessLost:
        (folder / child.CANCEL).touch()
        _kill(process, folder)
        raise
    except BaseException:
        asked = not _end(process, folder, how, settings.stop_seconds)
        raise
    finally:
        mark.unlink(missing_ok=True)
        if not (how.far and asked):  # a far process that has not ended yet will find it
            (folder / child.CANCEL).unlink(missing_ok=True)
    _report(folder, total)
    if process.returncode:
        _kill(process, folder)  # a replica may be left where another one failed
        raise _failure(module, process.returncode, folder, how, beginnings, by_hand)


def _failure(module: str, code: int, folder: Path, how: Way, beginnings: dict[str, int], by_hand: bool) -> BertError:
    """The error of a process that ended with `code`. beginnings: where what it wrote begins in each of its logs."""
    who, code = _first_to_fail(folder / how.log, beginnings[how.log]) or (module, code)
    command = f"\n    its command: {how.command[-1]}" if how.far else ""
    log_says = _tail(folder / LOG, beginnings[LOG])
    if _lost(code, how, by_hand):
        return ProcessLost(f"{who} {_ending(code)}{command}\n{log_says}", _next(folder, _advice(code, how)))
    told = _error_of(folder)
    if told is not None:  # what it asks for helps, and running it again does not
        log_says = _tail(folder / LOG, beginnings[LOG], without=f"error: {told}\n")
        return type(told)(f"{told.what}{command}\n{log_says}", f"{told.todo} Its log is {folder / LOG}.".strip())
    last = log_says.rstrip().rpartition("\n")[2].strip()
    return TrainingError(f"{who} {_ending(code)}: {last}{command}\n{log_says}", _next(folder, _advice(code, how)))


def _environment(settings: TrainingSettings) -> dict[str, str]:
    """What the process finds in its environment: ours, and who must not be outlived, where that is on this host."""
    named = {name: value for name, value in os.environ.items() if name != child.PARENT}
    return named if settings.launcher else {**named, child.PARENT: str(os.getpid())}


def follow(folder: Path, who: str) -> None:
    """Report how far a training process that another launcher follows is; `who` says which."""
    _report(folder, None, f"steps of {who}")


def _told(folder: Path) -> str | None:
    """What the process said last of how long it will take."""
    row = lines.newest(folder / "timing.jsonl", "told")
    return None if row is None else row["told"]


def _tell(folder: Path, said: str | None) -> str | None:
    """Tell what the process says of itself, unless it was `said` already; returns what was said."""
    now = _told(folder)
    if now is not None and now != said:
        progress.tell(now)
    return now


def _report(folder: Path, total: int | None, unit: str = "steps") -> None:
    timing = lines.newest(folder / "timing.jsonl", "tokens_per_second")
    metrics = lines.newest(folder / "metrics.jsonl", "loss")
    reached = max(row["step"] for row in (timing, metrics) if row) if timing or metrics else 0
    measured = {
        name: float(row[name])
        for row, names in ((metrics, SHOWN), (timing, ("tokens_per_second",)))
        for name in names
        if row and row.get(name) is not None
    }
    place = lines.newest(folder / "timing.jsonl", "where")
    total = _planned(folder) if total is None else total
    progress.report_at(place["where"] if place else "", reached, total, unit, measured)


def _planned(folder: Path) -> int | None:
    """The steps that a run with a budget of hours has planned for itself."""
    try:
        steps: int = json.loads((folder / child.PLAN).read_text(encoding="utf-8"))["steps"]
    except (OSError, ValueError, KeyError):
        return None
    return steps


def _end(process: "subprocess.Popen[bytes]", folder: Path, how: Way, grace_seconds: float) -> bool:
    """Ask to stop, wait, kill what is left; a second interrupt while waiting skips the wait. Whether it ended by itself."""
    (folder / child.CANCEL).touch()
    if how.direct:
        _signal(process, signal.SIGTERM)
    try:
        process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        print(f"process {process.pid} did not end within {grace_seconds:g} s and is killed", file=sys.stderr)
        return False
    finally:
        _kill(process, folder)
    return True


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


def _first_to_fail(log: Path, beginning: int) -> tuple[str, int] | None:
    """Who of the replicas that torchrun names failed, and its exit code; a killed one rather than those that missed it, and
    those last that torchrun itself ended, by SIGTERM."""
    found = [
        (f"rank {rank} (pid {pid})", int(code)) for rank, code, pid in _FAILED_RANK.findall(_since(log, beginning))
    ]
    return min(
        found, key=lambda each: (each[1] == -signal.SIGTERM, each[1] > 0, each[1] != heartbeat.HUNG), default=None
    )


def _lost(code: int, how: Way, by_hand: bool) -> bool:
    """Whether an exit code is that of a process that was killed or hung, was told to make room (unless `by_hand`, by the file
    `cancel`), or whose host can't be reached any more (ssh's 255)."""
    if code == child.STOPPED:
        return not by_hand
    return code < 0 or code == heartbeat.HUNG or (how.far and code > 128)


def _ending(code: int) -> str:
    if code == child.STOPPED:
        return "was asked to stop from outside; it has saved a checkpoint"
    if code == heartbeat.HUNG:
        return "hung and has ended itself"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _advice(code: int, how: Way) -> str:
    if how.far and code in (126, 127):
        return "the shell can't run the command of training.launcher in settings.yaml: try it by hand."
    memory = (
        " If nobody killed it, the memory was full: lower training.micro_batch_tokens, or set it to auto."
        if code == -9
        else ""
    )
    return f"run the asset again to go on from the last checkpoint.{memory}"


def _next(folder: Path, advice: str) -> str:
    return f"Its log is {folder / LOG}; {advice}"


def _error_of(folder: Path) -> BertError | None:
    """The error by which a process ended; None: it told none."""
    try:
        return retold(json.loads((folder / child.ERROR).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _since(log: Path, beginning: int) -> str:
    """The end of what was written to a log from `beginning` on: of this process, not of earlier ones of the same run."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(beginning, _size(log) - lines.TAIL_BYTES))
        return file.read().decode(errors="replace")


def _tail(log: Path, beginning: int, without: str = "") -> str:
    """The last lines that the process wrote, indented; `without` what is said already."""
    since = _since(log, beginning)
    written = (since.replace(without, "") if without else since).splitlines()[-LOG_LINES:]
    nothing = "    (it wrote nothing else)" if without else "    (it wrote nothing)"
    return "\n".join(f"    {line}" for line in written) or nothing
