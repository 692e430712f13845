"""A task's entry in the report: scores of every part with their intervals, what stands beside them, its grid and its errors.

Scores are points, hundredths of the metric.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model import metrics
from model.artifact import read_json
from model.reporting.glue_average import Measured
from model.reporting.isolated import isolated
from model.reporting.predicted import UNITS, Predicted, Resampled, read_predicted, resampled
from model.reporting.report_chance import chance
from model.reporting.report_contamination import Overlap, told_of, with_and_without
from model.reporting.report_examples import worst
from model.reporting.report_settings import settings
from model.task_files.known_tasks import published_of
from model.task_files.task_records import MALFORMED
from model.tasks import NOT_RUN
from pipeline.errors import DataError

METRIC_TITLES = {
    "accuracy": "accuracy",
    "f1": "F1",
    "macro_f1": "macro F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson's r",
    "spearman": "Spearman's ρ",
    "entity_f1": "entity F1",
    "precision": "precision of entities",
    "recall": "recall of entities",
    "exact_match": "exact match",
}
PARTS = ("test", "test_mismatched", "dev", "dev_mismatched")
"""in the order in which they are shown; the first one with scores is the one spoken of"""
CONFUSION_LABELS = 20
"""larger confusion matrices are left to the predictions"""
_TEXTUAL = ("classification", "pair_classification")
"""kinds that TF-IDF has an answer to"""


@dataclass(frozen=True)
class TaskResult:
    """What the report has of a task."""

    entry: dict[str, Any]
    """in report.json"""
    predicted: Mapping[str, Predicted] = field(default_factory=dict)
    """part → predictions of its seeds"""
    measured: Mapping[str, Measured] = field(default_factory=dict)
    """part → all its scores"""


def task_result(task: str, inputs: Mapping[str, Path], overlap: Overlap) -> TaskResult:
    """Read `finetuned_T` and, where it is at hand, `task_data_T`.

    overlap: as report_contamination.read_overlap gives it; empty where nothing was measured.

    Raises:
        DataError: a file that is missing or can't be read.
    """
    folder = inputs.get(f"finetuned_{task}")
    if folder is None:
        raise DataError(f"the report has no input finetuned_{task}", f"Materialize finetuned_{task} first.")
    if (folder / NOT_RUN).exists():
        wanted = read_json(folder / NOT_RUN)
        kept = {name: wanted[name] for name in ("title", "why", "wants")}
        kept["failed"] = bool(wanted.get("failed"))
        return TaskResult({"task": task, "ran": False, **kept, "published": published_of(task)})
    scores, data = read_json(folder / "scores.json"), inputs.get(f"task_data_{task}")
    metric, kind = scores["metric"], scores["kind"]
    rows, predicted, measured = [], {}, {}
    told = data / "task.json" if data else None
    unofficial = not_official(read_json(told)) if told and told.exists() else {}
    for part in PARTS:
        if (summary := scores["summary"].get(part)) is None:
            continue
        runs = counted(scores, part, summary[metric]["count"])
        seeds = [run["seed"] for run in runs]
        predicted[part] = read_predicted(folder, part, seeds, kind, scores["labels"], data)
        drawn = resampled(predicted[part], list(summary))
        row = _row(scores, part, runs, drawn, predicted[part].unit)
        guessing = points(chance(predicted[part], metric, row["drawn"] or row["examples"]))
        rows.append(row | {"chance": guessing, "not_official": unofficial.get(part, "")})
        if part in unofficial:
            continue
        measured[part] = Measured(
            {name: values["ours"] for name, values in rows[-1]["metrics"].items()},
            {name: found.values for name, found in drawn.items()},
        )
    entry = {
        "task": task,
        "ran": True,
        "title": scores["title"],
        "kind": kind,
        "unit": UNITS[kind],
        "metric": metric,
        "metric_title": METRIC_TITLES.get(metric, metric),
        "rows": rows,
        "verdict": verdict(rows[0], metric, kind) if rows else None,
        "published": [_beside(row, rows) for row in scores.get("published") or published_of(task)],
        "contamination": told_of(overlap.get(task)),
        "with_and_without": with_and_without(overlap.get(task), predicted, metric),
        "seeds": scores["seeds"],
        "published_seed": scores.get("published_seed"),
        "model_of": scores.get("model_of"),
        "diverged": _diverged(scores["seeds"]),
        "variants": _variants(scores),
        "labels": scores["labels"],
        "sizes": scores["sizes"],
        "truncated": scores.get("truncated", {}),
        "hyperparameters": scores.get("hyperparameters", {}),
        "settings": settings(kind, scores.get("hyperparameters", {}), scores.get("truncated", {}).get("train")),
        "confusion": scores.get("confusion") if len(scores["labels"]) <= CONFUSION_LABELS else None,
        "constant": _constant(scores),
        "no_tfidf": _no_tfidf(scores),
        "errors": _errors(scores, predicted, data),
    }
    return TaskResult(entry, predicted, measured)


def counted(scores: Mapping[str, Any], part: str, count: int) -> list[Mapping[str, Any]]:
    """The seeds that the summary of a part is of: all that were scored, or those of them that did not diverge."""
    scored = [run for run in scores["seeds"] if run.get(part) is not None]
    sound = [run for run in scored if not run.get("diverged")]
    return sound if len(sound) == count else scored


def _row(
    scores: Mapping[str, Any],
    part: str,
    runs: Sequence[Mapping[str, Any]],
    drawn: Mapping[str, Resampled],
    unit: str,
) -> dict[str, Any]:
    """The scores of one part; None: not measured."""
    metric, summary = scores["metric"], scores["summary"][part]
    every = {}
    for name, spread in summary.items():
        low, high = drawn[name].interval if name in drawn else (None, None)
        every[name] = {
            "title": METRIC_TITLES.get(name, name),
            "ours": points(spread["median"]),
            "lowest": points(spread["lowest"]),
            "highest": points(spread["highest"]),
            "low": points(low),
            "high": points(high),
            "seeds": [points(run[part][name]) for run in runs],
        }
    baselines = scores.get("baselines", {})
    untrained = (baselines.get("untrained", {}).get("summary", {}).get(part) or {}).get(metric)
    return {
        "part": part,
        "examples": scores["sizes"][part],
        "drawn": drawn[metric].drawn if metric in drawn else None,
        "drawn_unit": unit,
        **{name: value for name, value in every[metric].items() if name != "title"},
        "untrained": points(untrained["median"]) if untrained else None,
        "untouched": points((baselines.get("untouched", {}).get(part) or {}).get(metric)),
        "tfidf": points((baselines.get("tfidf", {}).get(part) or {}).get(metric)),
        "majority": points((baselines.get("majority", {}).get(part) or {}).get(metric)),
        "metrics": every,
    }


def points(value: float | None) -> float | None:
    """Of 100, four decimals: what is shown is rounded once."""
    return None if value is None else round(100 * value, 4)


def not_official(told: Mapping[str, Any]) -> dict[str, str]:
    """Of a public task, the parts that are not those that were published, with what they are. told: task.json."""
    official = told.get("official_counts") or {}
    found = {}
    for part, count in told["counts"].items() if official else ():
        gone = (
            n for why, n in told["dropped"].items() if why.startswith(f"{part}: ") and why != f"{part}: {MALFORMED}"
        )
        read = count + sum(gone)
        if count and read != official.get(part):
            of = f"officially {official[part]:,}" if part in official else "split off from train"
            found[part] = f"{read:,} examples, {of}"
    return found


def _beside(published: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A published score with ours and the difference; None where we have none of this part, as it is published, and metric."""
    comparable = [row for row in rows if row["part"] == published["split"] and not row["not_official"]]
    same = [row["metrics"].get(published["metric"]) for row in comparable]
    ours = same[0]["ours"] if same and same[0] else None
    difference = None if ours is None else round(ours - published["points"], 4)
    return {**published, "ours": ours, "difference": difference}


def verdict(row: Mapping[str, Any], metric: str, kind: str) -> dict[str, Any]:
    """What a task's scores say about pretraining: `pretraining` and `tfidf` are helped, hurt, same or None (unknown).

    A difference counts only above what chance makes of it. Of accuracies of independent examples that is metrics.noise. Of all
    else the uncertainty of two scores of other examples adds up in squares (a cautious bound): of ours half the bootstrap interval,
    of the other as much, and at least that of guessing (`chance`). It is no less than our seeds differ.
    """

    def compare(other: float | None) -> tuple[str | None, float | None]:
        if other is None:
            return None, None
        if metric == "accuracy" and kind != "tagging":
            bound = 100 * metrics.noise(row["ours"] / 100, other / 100, row["examples"])
        else:
            seeds = max(row["highest"] - row["ours"], row["ours"] - row["lowest"])
            half = 0.0 if row["low"] is None else (row["high"] - row["low"]) / 2
            bound = max(seeds, math.hypot(half, max(half, row["chance"])))
        difference = row["ours"] - other
        return ("same" if abs(difference) <= bound else "helped" if difference > 0 else "hurt"), round(bound, 4)

    untrained, noise = compare(row["untrained"])
    tfidf, _ = compare(row["tfidf"])
    return {"part": row["part"], "pretraining": untrained, "tfidf": tfidf, "noise": noise}


# ── what else there is ───────────────────────────────────────────────────────────────────────────────────────────────


def _diverged(seeds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"seed": run["seed"], "why": str(run["diverged"])} for run in seeds if run.get("diverged")]


def _variants(scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """The grid: its settings, and of every combination the scores on dev; None where there was nothing to choose from."""
    variants = scores.get("variants") or []
    if len(variants) < 2:
        return None
    rows = []
    for number, variant in enumerate(variants):
        spread = ((variant.get("summary") or {}).get("dev") or {}).get(scores["metric"])
        runs = [run for run in variant.get("seeds", []) if isinstance(run, Mapping)]
        rows.append(
            {
                "settings": variant["settings"],
                "median": points(spread["median"]) if spread else None,
                "lowest": points(spread["lowest"]) if spread else None,
                "highest": points(spread["highest"]) if spread else None,
                "seeds": len(variant.get("seeds", [])),
                "diverged": _diverged(runs),
                "chosen": number == scores.get("chosen"),
            }
        )
    return {"settings": list(dict.fromkeys(name for row in rows for name in row["settings"])), "rows": rows}


def _constant(scores: Mapping[str, Any]) -> str:
    """What the baseline always says, or why there is none."""
    majority = scores.get("baselines", {}).get("majority")
    if majority is None:
        return "there is no answer that fits every question" if scores["kind"] == "span" else "not calculated"
    if scores["kind"] == "sentence_similarity":
        return "a constant has no correlation"
    label = majority.get("label")
    label = isolated(label) if isinstance(label, str) else label
    match scores["kind"]:
        case "regression" if isinstance(label, float):
            return f"always {label:.4g}, the mean of the scores in train: a constant has no correlation"
        case "tagging":
            return f"every word is {label}, the most frequent tag in train"
        case "multiple_choice":
            return f"always choice {label}, where the right one stands most often in train"
        case "span":
            return 'always "no answer"'
    return f"always {label}, the most frequent label in train"


def _no_tfidf(scores: Mapping[str, Any]) -> str:
    """Why there is no TF-IDF baseline; "" where there is one."""
    if "tfidf" in scores.get("baselines", {}):
        return ""
    if scores["kind"] in _TEXTUAL:
        return "the recipe does not ask for it (baselines: [tfidf])"
    return f"it labels whole texts one by one, which is no answer to a task of {scores['kind'].replace('_', ' ')}"


def _errors(scores: Mapping[str, Any], predicted: Mapping[str, Predicted], data: Path | None) -> list[dict[str, Any]]:
    """What the published seed got most wrong of dev; test stays unread, so that nobody tunes on it."""
    seed = scores.get("published_seed")
    if seed is None or "dev" not in predicted or seed not in predicted["dev"].tables:
        return []
    return worst(predicted["dev"], seed, data / "dev.parquet" if data else None)
