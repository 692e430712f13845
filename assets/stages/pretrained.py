"""`pretrained_L`: weights, optimizer state and held-out scores of one phase."""

import json
from pathlib import Path
from typing import Any

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import numbers, plot
from pipeline.store import Record

FIRST = ("steps", "epochs", "loss", "mlm_accuracy", "tokens_per_second", "device", "accelerator_hours")
"""Of the last step, and of its speed; what was held out stands before them."""


def metadata(record: Record, folder: Path) -> Metadata:
    """Final scores beside their baselines, speed, and the curves."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    curve = [json.loads(line) for line in lines]
    trained = [row for row in curve if "loss" in row]
    held_out = [(row["step"], row["held_out"]) for row in curve if "held_out" in row]
    scores = json.loads((folder / "held_out.json").read_text(encoding="utf-8"))

    def draw(axes: Any) -> None:
        axes.plot([row["step"] for row in trained], [row["mlm_loss"] for row in trained], lw=1, label="training")
        axes.plot(
            [step for step, _ in held_out], [row["mlm_loss"] for _, row in held_out], "o-", ms=3, label="held out"
        )
        axes.set_xlabel("step")
        axes.set_ylabel("masked-word loss")
        axes.legend(frameon=False)

    return {
        "loss_curve": plot(draw, "Masked-word loss"),
        "held_out": dg.MetadataValue.json(scores),
        **numbers(record.body["statistics"], first=FIRST),
        "config": dg.MetadataValue.json(record.body["config"]),
    }


WIRING = Wiring(
    description="The pretrained checkpoint of this phase: weights, optimizer state, held-out scores, curves.",
    kinds=frozenset({"pytorch"}),
    metadata=metadata,
    pool="accelerator",
    # Only of a process that was killed, hung or had to make room: it goes on where it stopped, and a retry costs the time since its last
    # checkpoint.
    retry=dg.RetryPolicy(max_retries=2, delay=15),
)
