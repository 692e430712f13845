"""`release`: the model folder that people load."""

from pathlib import Path

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import numbers
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """The model card and the size of the model."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    return {
        **numbers(record.body["statistics"]),
        "model_card": dg.MetadataValue.md(card.partition("\n---\n")[2] or card),
    }


WIRING = Wiring(
    description="The model folder that transformers loads: weights, configuration, tokenizer, card.",
    kinds=frozenset({"huggingface"}),
    metadata=metadata,
)
