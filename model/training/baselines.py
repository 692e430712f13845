"""What guessing gets on held-out rows, to read scores against."""

from typing import Any

import numpy as np

from model.artifact import short
from model.feeding.batches import held_out_rows
from model.feeding.targets import Targets
from pipeline.sharding.shard_reader import ShardReader

PART = 4096
ROWS = 100_000
"""of the training part that the most frequent word is counted in"""


def baselines(train: ShardReader, held_out: ShardReader, rows: int, targets: Targets | None = None) -> dict[str, Any]:
    """What guessing gets on the first `rows` held-out rows: always the word that is most often to be predicted in
    training, always the sentence label that is more frequent there."""
    counts = np.zeros(1, np.int64)
    for first in range(0, min(len(train), ROWS), PART):
        some = np.arange(first, min(first + PART, len(train), ROWS))
        found = np.bincount(held_out_rows(train, some, targets).masked_ids, minlength=len(counts))
        counts = found + np.pad(counts, (0, len(found) - len(counts)))
    frequent = int(counts.argmax())
    hidden = held_out_rows(held_out, np.arange(rows), targets).masked_ids
    guesses: dict[str, Any] = {
        "most_frequent_token_id": frequent,
        "most_frequent_token_accuracy": short(float((hidden == frequent).mean())),
        "nsp_majority_accuracy": None,
    }
    if "next_sentence_label" in train.columns:
        majority = int(train.column("next_sentence_label").mean() > 0.5)
        labels = held_out.column("next_sentence_label")[:rows]
        guesses["nsp_majority_accuracy"] = short(float((labels == majority).mean()))
    return guesses
