"""How much of each benchmark stands in the training text, and what that does to its score, as the records tell it."""

from collections.abc import Mapping
from typing import Any

from pipeline.attestations.chain import UNKNOWN, Chain

Plain = dict[str, Any]
Told = Mapping[str, Any]
CONTAMINATION, REPORT = "contamination", "benchmark_report"


def overlap(chain: Chain) -> list[Plain]:
    """A row for each task and part that was looked through: counts, and scores with and without the touched examples; UNKNOWN for
    what no record tells, `None` for a score that too few examples have."""
    scores = {
        (row["task"], row["part"]): row
        for work in chain.of(REPORT)
        for row in work.statistics.get("with_and_without") or ()
    }
    found = []
    for work in chain.of(CONTAMINATION):
        told = work.statistics
        for task, parts in sorted((told.get("parts_by_task") or {}).items()):
            for part, counts in sorted(parts.items(), key=lambda each: each[0].startswith("dev")):
                found.append(_row(task, part, counts, told, scores.get((task, part), {})))
    return found


def _row(task: str, part: str, counts: Told, told: Told, scored: Told) -> Plain:
    return {
        "task": task,
        "part": part,
        "ngram_words": told.get("ngram_words", UNKNOWN),
        **{name: counts.get(name, UNKNOWN) for name in ("texts", "measurable", "touched")},
        "metric": scored.get("metric", UNKNOWN),
        **{name: scored.get(name, UNKNOWN) for name in ("all", "untouched", "alone")},
    }
