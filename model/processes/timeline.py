"""How a training went, event by event, for its record: run folders may be cleared, records stay.

From timing.jsonl, which has the starts of all processes, going back and checkpoints, and the published metrics.jsonl, which has
spikes and batches that were passed over.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
SHOWN = 100
"""events of a kind that a record lists; all are counted"""
_OF_A_START = ("step", "resumed", "device", "device_name", "ranks", "threads")


def timeline(timing: Rows, metrics: Rows) -> dict[str, Any]:
    """starts: each with `seconds`, how long its process ran as far as was told. Of other events the first SHOWN of a kind, and in
    `counts` how many there were. Steps are those of the phase."""
    events = {
        "rolled_back": [
            {"step": row["rolled_back_from"], "to": row["step"], "batches": list(row["batches"])}
            for row in timing
            if "rolled_back_from" in row
        ],
        "warnings": [{"step": row["step"], "what": row["warning"]} for row in timing if "warning" in row],
        "spikes": [
            {"step": row["step"], "loss": row["spike"], "batch": row["batch"]} for row in metrics if "spike" in row
        ],
        "passed_over": [
            {"step": row["step"], "batches": row["passed_over"], "samples": row["samples"]}
            for row in metrics
            if "passed_over" in row
        ],
    }
    saved = [row["step"] for row in timing if "checkpoint" in row]
    return {
        "starts": starts_of(timing),
        **{name: rows[:SHOWN] for name, rows in events.items()},
        "counts": {name: len(rows) for name, rows in events.items()},
        "checkpoints": {
            "saved": len(saved),
            "first_step": min(saved, default=None),
            "last_step": max(saved, default=None),
        },
    }


def starts_of(timing: Rows) -> list[dict[str, Any]]:
    """Every process of a training: where it began, on what, and for how many `seconds` it ran as far as was told."""
    starts: list[dict[str, Any]] = []
    for row in timing:
        if "device" in row:
            starts.append({name: row[name] for name in _OF_A_START if name in row} | {"seconds": 0.0})
        elif starts and "seconds" in row:
            starts[-1]["seconds"] = row["seconds"]
    return starts
