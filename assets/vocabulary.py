"""`wordpiece_vocab`: vocab.txt and tokenizer.json."""

from pathlib import Path

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import numbers
from pipeline.store import Record


def metadata(record: Record, folder: Path) -> Metadata:
    """Size, unknown rate, pieces per word on held-out text, and every twentieth part of the list."""
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    step = max(1, len(pieces) // 20)
    sample = [dg.TableRecord({"id": i, "token": pieces[i]}) for i in range(0, len(pieces), step)]
    return {**numbers(record.body["statistics"]), "sample": dg.MetadataValue.table(sample)}


WIRING = Wiring(
    description="The WordPiece vocabulary, trained on the training documents, as vocab.txt and tokenizer.json.",
    kinds=frozenset({"json", "huggingface"}),
    metadata=metadata,
)
