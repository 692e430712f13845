"""Metrics of downstream tasks: their data, the fine-tuned models, contamination, and the report."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.config import (
    Comparison,
    ContaminationConfig,
    DecisionConfig,
    FinetuneConfig,
    PredictConfig,
    ReportConfig,
    TaskDataConfig,
)
from pipeline.profiles import task_tables
from pipeline.profiles.training import infinite_numbers, infinite_weights, read_json
from pipeline.suites import DOES_NOT_APPLY

PARTS = ("train", "dev", "test")
REPORT_FILES = ("report.md", "report.html", "report.json")
COMPARISON_FILES = ("comparison.md", "comparison.html", "comparison.json")
NAMED = 5
"""labels that a check names"""
_OUTSIDE = re.compile(
    r"<(?:script|img|iframe|link|image)\b[^>]*?\b(?:src|href)\s*=\s*[\"']?+(?!data:|\#)|@import|url\(\s*[\"']?(?:https?:)?//"
)
"""What a browser would load by itself: a picture, script or style that is not written into the page."""


def task_data(folder: Path, config: TaskDataConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`task_data_T` with data; without, the folder holds not_run.json and is not measured."""
    task = read_json(folder / "task.json")
    labels, kind = task["labels"], task.get("kind", "classification")
    parts = {part: pl.read_parquet(folder / f"{part}.parquet") for part in task["counts"]}
    official = task.get("official_counts") or {}
    seen = task_tables.seen_tests(parts)
    unseen = task_tables.unseen_labels(parts["train"], labels) if "train" in parts else []
    return {
        "data_present": 1,
        "smallest_part": min(len(parts[part]) for part in _wanted(config, task)),
        "dev_examples": len(parts["dev"]) if "dev" in _wanted(config, task) else DOES_NOT_APPLY,
        "repeated_ids": sum(len(frame) - frame["example_id"].n_unique() for frame in parts.values()),
        "empty_texts": sum(
            task_tables.empty_texts(part, frame, bool(official) and part.startswith("test"))
            for part, frame in parts.items()
        ),
        "bad_labels": sum(task_tables.bad_labels(part, frame, labels) for part, frame in parts.items()),
        "wrong_counts": sum(task["counts"][part] != len(frame) for part, frame in parts.items()),
        "seen_tests": DOES_NOT_APPLY if official else seen,
        "seen_official_tests": seen if official else DOES_NOT_APPLY,
        "unseen_labels": len(unseen) if "train" in parts else DOES_NOT_APPLY,
        "unseen_label_names": ", ".join(map(repr, unseen[:NAMED])),
        "unofficial_counts": _unofficial(task, official) if official else DOES_NOT_APPLY,
        "notes": "; ".join(task.get("notes", [])),
        **task_tables.of_kind(kind, parts, labels),
    }


def _unofficial(task: Mapping[str, Any], official: Mapping[str, int]) -> int:
    """Parts of another size than the official one; examples that were dropped for want of text count, malformed lines don't."""
    dropped = {
        part: sum(n for why, n in task["dropped"].items() if why.startswith(f"{part}: ") and "malformed" not in why)
        for part in official
    }
    return sum(task["counts"][part] + dropped[part] != count for part, count in official.items())


def _wanted(config: TaskDataConfig, task: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts that need examples: a task of one's own need not have a test part, a public one says itself."""
    own = config.define
    if own is None:
        return tuple(task.get("needed", PARTS))
    return PARTS[:2] if own.files.test is None and own.test_share is None else PARTS


def finetuned(folder: Path, config: FinetuneConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`finetuned_T` with data; without, the folder holds not_run.json and is not measured."""
    sound = 0
    distinct = []
    scores = read_json(folder / "scores.json")
    lengths: dict[str, set[int]] = {part: set() for part in scores["sizes"] if part != "train"}
    for part, found in lengths.items():
        for seed in range(config.seed, config.seed + config.seeds):
            file = folder / "predictions" / f"{part}-seed-{seed}.parquet"
            if file.exists():
                predictions = pl.read_parquet(file, columns=["example_id", "prediction"])
                found.add(len(predictions))
                if len(predictions) or part != "dev":  # a task may have no test part
                    sound += predictions["prediction"].null_count() == 0
                if len(predictions):
                    distinct.append(predictions["prediction"].n_unique())
    unequal = sum(max(0, len(found) - 1) for found in lengths.values())
    metric = scores["metric"]
    dev = scores["summary"]["dev"][metric]["median"]
    majority = scores["baselines"]["majority"]["dev"][metric] or 0.0  # a constant has no correlation
    return {
        "data_present": 1,
        "seeds_missing": len(lengths) * config.seeds - sound + unequal,
        "infinite_scores": infinite_numbers(scores),
        "infinite_weights": infinite_weights(folder / "model.safetensors"),
        "distinct_predictions": min(distinct, default=0),
        "dev_score": dev,
        "majority_score": majority,
        "dev_gain": dev - majority,
    }


def predicted(folder: Path, config: PredictConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`predicted_T` with data; without, the folder holds not_run.json and is not measured."""
    scores = read_json(folder / "scores.json")
    file = folder / "predictions" / f"test-seed-{scores['published_seed']}.parquet"
    answers = pl.read_parquet(file, columns=["prediction"])["prediction"] if file.exists() else pl.Series([])
    return {
        "data_present": 1,
        "unanswered": scores["sizes"]["test"] - len(answers) + answers.null_count(),
        "infinite_scores": infinite_numbers(scores),
        "distinct_predictions": answers.n_unique(),
    }


def contamination(folder: Path, config: ContaminationConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`contamination`."""
    found = read_json(folder / "contamination.json")
    tasks = list(found["tasks"].values())
    shares = [task["share"] for task in tasks if task["share"] is not None]
    unsound = sum(not task["touched"] <= task["measurable"] <= task["texts"] for task in tasks)
    return {
        "documents": found["documents"],
        "bad_shares": sum(not 0 <= share <= 1 for share in shares) + unsound,
        "largest_share": max(shares, default=0.0),
    }


def benchmark_report(folder: Path, config: ReportConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`benchmark_report`."""
    missing = _missing(folder, REPORT_FILES)
    if missing:
        return {"files_missing": missing}
    content = read_json(folder / "report.json")
    tasks = content["tasks"]
    rows = [row for task in tasks for row in task.get("rows", [])]
    scored = [task["task"] for task in tasks if task.get("rows")]
    leaderboards = content["leaderboards"]
    handed_in = [file for files in leaderboards["squad"].values() for file in files]
    if leaderboards["glue"] and leaderboards["glue"]["file"]:
        handed_in.append(leaderboards["glue"]["file"])
    return {
        "files_missing": 0,
        "tasks_missing": len(set(config.tasks) - {task["task"] for task in tasks}),
        "scores_without_interval": sum(not _has_interval(row) for row in rows),
        "examples_missing": _missing(folder, [f"examples/{task}.parquet" for task in scored]),
        "submissions_missing": _missing(folder, handed_in),
        "outside_links": len(_OUTSIDE.findall((folder / "report.html").read_text(encoding="utf-8"))),
    }


def _has_interval(row: Mapping[str, Any]) -> bool:
    """Whether a score has two ends that are points, the lower one first."""
    low, high = row["low"], row["high"]
    return low is not None and high is not None and -100 <= low <= high <= 100


DECISION_FILES = ("decision.json", "decision.md")


def promotion_decision(folder: Path, config: DecisionConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`promotion_decision`."""
    missing = _missing(folder, DECISION_FILES)
    if missing:
        return {"files_missing": missing}
    content = read_json(folder / "decision.json")
    failed = [gate["name"] for gate in content["gates"] if gate["passed"] is False]
    silent = [gate["name"] for gate in content["gates"] if not gate["observed"]]
    follows = content["verdict"] == ("keep" if failed else "promote")
    return {
        "files_missing": 0,
        "wrong_verdicts": (not follows) + (not content["gates"]) + len(silent),
        "gates_failed": len(failed),
        "failed_gates": ", ".join(failed),
    }


def comparison(folder: Path, config: Comparison, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`comparisons/NAME`."""
    missing = _missing(folder, COMPARISON_FILES)
    if missing:
        return {"files_missing": missing}
    rows = read_json(folder / "comparison.json")["rows"]
    cells = [cell for row in rows for cell in row["cells"].values()]
    return {
        "files_missing": 0,
        "rows_missing": len({row.label for row in config.rows} - {row["label"] for row in rows}),
        "infinite_numbers": infinite_numbers(rows),
        "cells_not_run": sum(bool(cell["not_run"]) for cell in cells),
        "outside_links": len(_OUTSIDE.findall((folder / "comparison.html").read_text(encoding="utf-8"))),
    }


def _missing(folder: Path, names: Iterable[str]) -> int:
    """Files that are not there, or empty."""
    return sum(not (folder / name).is_file() or not (folder / name).stat().st_size for name in names)
