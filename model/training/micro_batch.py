"""`training.micro_batch_tokens: auto`: the largest part of a batch that fits into memory, found before the first step.

Found once for a run folder, by the first of the processes that train together, and written down: a run that goes on, wherever,
has the same parts, and so the same bytes as one that was never interrupted. Parts change a result by rounding only (and by which
units dropout takes): tests hold the gradient's sum to 1e-9 in fp64, losses to 2e-5 in fp32.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from model.processes.memory import available_bytes
from model.training.pretraining_job import Job
from model.training.trial_questions import Question, ask
from pipeline import units
from pipeline.errors import TrainingError
from pipeline.system import atomic

FILE = "micro_batch.json"
"""of the run folder: what was found"""
CPU_SHARE = 0.8
"""of the memory that is available, parts may take: the rest is for shards, the system, and what a long run fragments"""
LIMIT_SECONDS = 600.0


def settled(
    folder: Path, job: Job, ranks: int, stopped: Callable[[], bool], available: int | None = None
) -> int | None:
    """micro_batch_tokens of a run whose settings say `auto`: what was found before, or what is found now and written down; None
    if `stopped` on the way.

    Args:
        ranks: processes that share the batch.
        available: bytes of memory for the processes on this host; None: as many as there are now. Of a CPU only.

    Raises:
        TrainingError: not even a trial fits, or it is too slow.
    """
    path = folder / FILE
    if not path.exists():
        found = _found(job, -(-job.config.batch_size // ranks), stopped, available)
        if found is None:
            return None
        atomic.write_json(path, found)
        print(_told(found), file=sys.stderr, flush=True)
    try:
        tokens = json.loads(path.read_text(encoding="utf-8"))["micro_batch_tokens"]
        if type(tokens) is not int or tokens < 1:
            raise ValueError(f"{tokens!r} is no number of tokens")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{path} can't be used: {error!r}", "Remove it: it is found anew.") from None
    return tokens


def rows_that_fit(peaks: Sequence[tuple[int, int]], static_bytes: int, budget_bytes: int) -> int:
    """The most rows in a part, at least one.

    Args:
        peaks: (rows, largest size so far of the process in bytes): before any part, with one, and with a larger one, unless that
            was not tried.
        static_bytes: what the process takes without any row.
        budget_bytes: what it may take.

    A row costs what two parts differ by. Where the smaller one did not need more than the process had taken before, or there is
    only one, it costs at most its share of all that is beyond `static_bytes`.
    """
    (_, before), (small, low), (rows, peak) = peaks[0], peaks[1], peaks[-1]
    differ = rows > small and low > before
    per_row = (peak - low) / (rows - small) if differ else (peak - static_bytes) / rows
    return max(1, int(rows + (budget_bytes - peak) / max(1.0, per_row)))


def _found(job: Job, own: int, stopped: Callable[[], bool], available: int | None) -> dict[str, Any] | None:
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    budget = int(CPU_SHARE * ((available_bytes() if available is None else available) // here))
    config, length = job.config, job.config.sequence_length
    question = Question("memory", config, job.vocabulary_size, job.training, own, length, budget_bytes=budget)
    print(f"looking for the largest part of {own} rows that fits into memory", file=sys.stderr, flush=True)
    try:
        answers = list(ask([question], min(LIMIT_SECONDS, job.training.hang_seconds / 2), lambda _: None, stopped))
    except TrainingError as error:
        what = f"micro_batch_tokens: auto found no part of a batch that fits: {error.what}"
        raise TrainingError(what, "Set training.micro_batch_tokens in settings.yaml to a number of tokens.") from None
    if not answers:
        return None
    told = answers[0]
    if told["device"] == "cpu":
        copies = 12 * told["parameters"]  # a checkpoint is written from a copy of weights and moments
        rows = min(own, rows_that_fit(told["peaks"], told["static_bytes"], budget - copies))
        limit = budget
    else:
        rows, limit = told["rows"], told["free_bytes"]
        if not rows:
            raise TrainingError(
                f"not one row of {length} tokens fits into the {units.size(limit)} of the card that are free",
                "Free the card, set training.activation_checkpointing: true, or train a smaller model.",
            )
    return {
        "micro_batch_tokens": rows * length,
        "rows": rows,
        "of_rows": own,
        "length": length,
        "memory_bytes": limit,
        "device_name": told["device_name"],
    }


def _told(found: dict[str, Any]) -> str:
    return (
        f"micro_batch_tokens: auto is {found['micro_batch_tokens']:,}: {found['rows']:,} of {found['of_rows']:,} rows of "
        f"{found['length']} tokens at once, in {units.size(found['memory_bytes'])} of {found['device_name']}"
    )
