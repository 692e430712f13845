"""`benchmark_report`: tables and curves in Markdown, HTML and JSON."""

import re
from pathlib import Path

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import numbers, rows
from pipeline.store import Record

COLUMNS = ("task", "part", "metric", "score", "published", "difference", "untrained", "tfidf", "majority")
"""Before all others."""


def metadata(record: Record, folder: Path) -> Metadata:
    """The report itself, its table of tasks, and the file to open."""
    statistics = record.body["statistics"]
    table = statistics.get("table") or []
    text = (folder / "report.md").read_text(encoding="utf-8")
    return {
        **numbers(statistics),
        **({"tasks": rows(table, COLUMNS)} if table else {}),
        "report": dg.MetadataValue.md(re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)),
        "html": dg.MetadataValue.path(str(folder / "report.html")),
    }


WIRING = Wiring(
    description="Scores of every task beside baselines and published numbers, with the pretraining curves.",
    kinds=frozenset({"report", "json"}),
    metadata=metadata,
)
