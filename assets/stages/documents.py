"""`documents`: one table of all text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.asset import Wiring
from assets.shown import counts, lengths, numbers, rows, schema
from pipeline.store import Record

DOCUMENT = ("doc_id", "source", "title", "characters", "size", "begins")


def metadata(record: Record, folder: Path) -> dict[str, Any]:
    """Where every document went, what the sources hold, and some documents to look at."""
    statistics = record.body["statistics"]
    shown = ("sample", "longest", "shortest", "largest_duplicate_groups")
    return {
        "dagster/row_count": statistics["row_count"],
        **numbers(statistics),
        "waterfall": rows(list(_waterfall(statistics["waterfall"])), ("source", "step", "documents")),
        "sources": rows(list(_sources(statistics)), ("source",)),
        "languages": rows(statistics["languages"]["table"], ("declared", "detected", "documents")),
        **{name: rows(statistics[name], DOCUMENT) for name in shown if statistics[name]},
        **({"withdrawals": _withdrawals(statistics["withdrawals"])} if statistics["withdrawals"]["lines"] else {}),
        **({"benchmarks": rows(list(_benchmarks(statistics["benchmarks"])))} if statistics["benchmarks"] else {}),
        **schema(folder),
        **lengths(statistics),
    }


def _waterfall(sources: Mapping[str, Any]) -> Any:
    for source, steps in sources.items():
        yield from ({"source": source, "step": step, "documents": count} for step, count in steps)


def _sources(statistics: Mapping[str, Any]) -> Any:
    for source, splits in statistics["documents"].items():
        tokens = statistics["tokens_millions_by_source"][source]
        dropped = sum(statistics["dropped_by_source"][source].values())
        yield {"source": source, **splits, "dropped": dropped, "tokens_millions": tokens}


def _withdrawals(said: Mapping[str, Any]) -> Any:
    unmatched = dict.fromkeys(said["unmatched_lines"], "matched nothing")
    return counts({"lines": said["lines"], "documents": said["documents"], **unmatched}, "withdrawals", "count")


def _benchmarks(benchmarks: Mapping[str, Any]) -> Any:
    for name, said in benchmarks.items():
        yield {"benchmark": name, **said}


WIRING = Wiring(
    description="All text in one table: deduplicated, split into sentences, train and held-out documents.",
    kinds=frozenset({"parquet", "polars"}),
    metadata=metadata,
)
