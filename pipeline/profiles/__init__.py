"""Measure an artifact: a dict of metrics, which the checks of `pipeline.suites` then judge.

A metric is a number; `DOES_NOT_APPLY` where the configuration leaves nothing to measure (no next-sentence pairs). A
metric that is missing, null or not finite fails its check.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from safetensors import SafetensorError

from pipeline.config import Frozen
from pipeline.errors import DataError
from pipeline.profiles import shards, tables, tasks, training
from pipeline.suites import DOES_NOT_APPLY, OLDER

Measure = Callable[[Path, Any, Mapping[str, Any]], dict[str, Any]]

MEASURES: Mapping[str, Measure] = {
    "files": tables.files,
    "wikipedia_text": tables.wikipedia_text,
    "books_text": tables.books_text,
    "own_text": tables.own_text,
    "documents": tables.documents,
    "wordpiece_vocab": tables.vocabulary,
    "pretraining_shards": shards.instances,
    "imported_checkpoint": training.imported,
    "pretrained": training.pretrained,
    "release": training.release,
    "task_data": tasks.task_data,
    "finetuned": tasks.finetuned,
    "predicted": tasks.predicted,
    "contamination": tasks.contamination,
    "benchmark_report": tasks.benchmark_report,
    "promotion_decision": tasks.promotion_decision,
    "comparison": tasks.comparison,
}
SIZES = {
    "files": "size_bytes",
    "wikipedia_text": "characters_millions",
    "books_text": "characters_millions",
    "own_text": "characters_millions",
    "documents": "characters_millions",
}
"""Which statistic tells how large it is, of stages that are compared with what the recipe had before."""
UNREADABLE = (
    OSError,
    UnicodeDecodeError,
    json.JSONDecodeError,
    pa.ArrowInvalid,
    pl.exceptions.PolarsError,
    SafetensorError,
)


def _shrinkage(size: str, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """By which part of the older one it is smaller."""
    older = statistics.get(OLDER)
    if older is None:
        return {"shrinkage": DOES_NOT_APPLY}
    before = older[size]
    return {"shrinkage": 1 - statistics[size] / before if before else 0.0, OLDER: f"{older['date']}: {before:,}"}


def measure(stage: str, folder: Path, config: Frozen, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a staged or published folder. Raises DataError where a file is missing or can't be read."""
    try:
        metrics = MEASURES[stage](folder, config, statistics)
        return metrics | _shrinkage(SIZES[stage], statistics) if stage in SIZES else metrics
    except UNREADABLE as error:
        raise DataError(f"the {stage} can't be read: {error}", "Run the stage again.") from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError(
            f"the {stage} has not the form agreed: {type(error).__name__} {error}", "Run the stage again."
        ) from error
