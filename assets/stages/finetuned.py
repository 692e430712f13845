"""`finetuned_T`: the best fine-tuned model of one task, and the scores of every seed."""

import json
from pathlib import Path

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import numbers
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """Scores of every seed beside the baselines, or what is missing."""
    scores = folder / "scores.json"
    found = {"scores": dg.MetadataValue.json(json.loads(scores.read_text(encoding="utf-8")))} if scores.exists() else {}
    return {**numbers(record.body["statistics"]), **found}


WIRING = Wiring(
    description="The best fine-tuned model of this task, with scores and predictions of every seed and the baselines.",
    kinds=frozenset({"pytorch"}),
    metadata=metadata,
    pool="accelerator",
    retry=dg.RetryPolicy(max_retries=2, delay=15),
)
