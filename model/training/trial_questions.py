"""What a process of model/training/trial.py is asked, and how it is asked."""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from pipeline.config import TrainConfig
from pipeline.errors import TrainingError
from pipeline.settings import TrainingSettings
from pipeline.stage import ROOT


@dataclass(frozen=True)
class Question:
    """`seconds`: what a part of a batch and an update take; `memory`: what parts take (CPU) or the largest (CUDA)."""

    about: Literal["seconds", "memory"]
    config: TrainConfig
    vocabulary_size: int
    training: TrainingSettings
    rows: int
    """the most in a part"""
    length: int
    """tokens of each row"""
    cache: Path | None = None
    """folder where answers about seconds are kept"""
    budget_bytes: int = 0
    """memory that the process may take, on a CPU"""

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            **vars(self),
            "config": self.config.plain(),
            "training": self.training.plain(),
            "cache": None if self.cache is None else str(self.cache),
        }

    @staticmethod
    def of(plain: dict[str, Any]) -> "Question":
        """What `plain()` gave."""
        return Question(
            **{
                **plain,
                "config": TrainConfig.model_validate(plain["config"]),
                "training": TrainingSettings.model_validate(plain["training"]),
                "cache": None if plain["cache"] is None else Path(plain["cache"]),
            }
        )


def ask(
    questions: Sequence[Question],
    limit_seconds: float,
    hear: Callable[[str], None],
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[dict[str, Any]]:
    """The answers, one after the other, of a process of its own that ends with this one; fewer if `stopped` on the way. `hear`
    is told what it says meanwhile.

    Raises:
        TrainingError: it failed, was killed or took longer than `limit_seconds`; the message says what it said last.
    """
    deadline = time.monotonic() + limit_seconds
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            (sys.executable, "-m", "model.training.trial", str(os.getpid())),
            cwd=ROOT,
            env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ},  # as model/processes/launcher.py starts a training
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,  # what was read ahead would not be waited for
        )
        try:
            for question in questions:
                for row in _rows(process, question, deadline, stopped):
                    if "answer" in row:
                        yield row["answer"]
                        break
                    hear(row["said"])
                else:
                    if stopped():
                        return
                    raise _failed(process, log)
        except TimeoutError:
            raise TrainingError(
                f"a trial step was not done within {limit_seconds:.0f} s",
                "The model is large for this device, or the machine is busy.",
            ) from None
        finally:
            process.kill()
            process.communicate()


def _rows(
    process: "subprocess.Popen[bytes]", question: Question, deadline: float, stopped: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """What the process writes after a question, until it ends or `stopped`. Raises TimeoutError after the deadline."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(question.plain()).encode() + b"\n")
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while not stopped():
            if time.monotonic() > deadline:
                raise TimeoutError
            if waiting.select(0.2):
                line = process.stdout.readline()
                if not line:
                    return
                yield json.loads(line)


def _failed(process: "subprocess.Popen[bytes]", log: IO[bytes]) -> TrainingError:
    code = process.wait()
    log.seek(0)
    killed = "it was killed; the memory may have been full"
    last = log.read().decode(errors="replace").strip().splitlines()[-1:]
    said = killed if code == -9 else last[0] if last else f"it ended with exit code {code}"
    return TrainingError(f"a trial step failed: {said}", "Set the batch, its parts or the model smaller.")
