"""GLUE and SWAG: one label, or number, an example."""

from pathlib import Path
from typing import Any

import numpy as np

from model import metrics
from model.reporting.weighted_metrics import WEIGHTED
from model.scoring import label_files
from model.scoring.result import Entry, result


def scores_of_labels(task: str, gold: Path, predictions: Path) -> dict[str, Any]:
    """The official metrics of a GLUE task or `swag`."""
    if task == "swag":
        column = label_files.SWAG
        wanted = label_files.swag_gold(gold)
        given = label_files.swag_predictions(predictions, gold, len(wanted))
    else:
        column = label_files.GLUE[task]
        wanted = label_files.glue_gold(task, gold)
        given = label_files.glue_predictions(predictions, gold, len(wanted))
    labels = label_files.encoded(gold, wanted, column.labels)
    predicted = label_files.encoded(predictions, given, column.labels)
    entries = [
        Entry(
            metric=name,
            part="",
            count=len(labels),
            points=100 * metrics.METRICS[name](labels, predicted),
            statistic=WEIGHTED[name](labels, predicted),
        )
        for name in column.metrics
    ]
    notes = [f"every prediction is {given[0][1].strip()!r}"] if np.all(predicted == predicted[0]) else []
    if not column.labels:
        label_files.refuse_outside(gold, wanted, labels)
        notes += [told] if (told := label_files.outside(given, predicted)) else []
    return result(len(labels), "examples", entries, notes)
