"""`imported_checkpoint`: a model made elsewhere that a recipe begins from, or fine-tunes."""

from pathlib import Path

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import numbers
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """Where it comes from, its architecture and size, what is taken of it, what it lacks and what was left out."""
    statistics = record.body["statistics"]
    return {
        **numbers(statistics),
        "taken": "weights and optimizer" if statistics["mode"] == "continue" else "weights",
        "made": "elsewhere" if statistics.get("external", "record" not in statistics["root"]) else "here",
        "comes_from": dg.MetadataValue.json(statistics["root"]),
        "architecture": dg.MetadataValue.json(statistics["architecture"]),
        "missing": ", ".join(statistics["missing"]) or "nothing",
        "ignored": ", ".join(statistics["ignored"]) or "nothing",
        "tokenizer": f"lowercase {statistics['lowercase']}, strip_accents {statistics['strip_accents']}",
    }


WIRING = Wiring(
    description="A model made elsewhere, with its vocabulary: pretraining begins with it, or it is only fine-tuned.",
    kinds=frozenset({"huggingface"}),
    metadata=metadata,
)
