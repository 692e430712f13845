"""`benchmark_report`: what the model scores, beside what is worth comparing it with, as Markdown, HTML and JSON.

Scores are shown in points, hundredths of the metric. The test part is shown where its labels are known, dev always, and
each says which it is.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from model import lines, metrics, pages
from model.imported import TOLD as IMPORTED
from model.known_tasks import published_of
from model.tasks import NOT_RUN
from pipeline.config import ReportConfig
from pipeline.errors import DataError
from pipeline.stage import Stage

STAGE = Stage(
    name="benchmark_report",
    function="model.report:make_report",
    version="1",
    libraries=("matplotlib",),
    sources=(
        "model/report.py",
        "model/report_plots.py",
        "model/pages.py",
        "model/report_templates/report.*.j2",
        "model/report_templates/style.css.j2",
        "model/metrics.py",
        "model/known_tasks.py",
    ),
)

METRIC_TITLES = {
    "accuracy": "accuracy",
    "f1": "F1",
    "macro_f1": "macro F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson's r",
    "spearman": "Spearman's ρ",
    "entity_f1": "entity F1",
    "exact_match": "exact match",
}
CONFUSION_LABELS = 20
"""larger confusion matrices are left to the predictions"""
SAMPLE = 5
UNKNOWN = "unknown: the text that this checkpoint was trained on is not here"
"""what there is to say of contamination where a model was made elsewhere"""


def make_report(inputs: Mapping[str, Path], config: ReportConfig, out: Path) -> dict[str, Any]:
    """Write report.md, report.html and report.json from `pretrained`, `contamination` and every `finetuned_T`. Of a recipe that
    only fine-tunes, `pretrained` is its `imported_checkpoint`, and there is no `contamination`.

    Raises:
        DataError: an input lacks a file, or a task of the recipe has no `finetuned_T`.
    """
    overlap: dict[str, Any] = {"tasks": {}}
    if "contamination" in inputs:
        overlap = lines.read_json(inputs["contamination"] / "contamination.json")
    curves = _curves(inputs["pretrained"])
    tasks = [_task(task, inputs, overlap) for task in config.tasks]
    content = {
        "recipe": config.recipe,
        "description": config.description,
        "pretraining": _pretraining(inputs["pretrained"]),
        "tasks": tasks,
    }
    content["in_words"] = in_words(content)
    pages.write(out / "report.json", json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False))
    pages.write(out / "report.md", _render("report.md.j2", content))
    losses = {task["task"]: _loss_curves(inputs[f"finetuned_{task['task']}"]) for task in tasks if task["ran"]}
    pages.write(out / "report.html", _render("report.html.j2", content, plots=_plots(content, curves, losses)))
    return _statistics(content)


# ── what is read ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _pretraining(folder: Path) -> dict[str, Any]:
    """Held-out scores with their baselines, None for a model made elsewhere, and the shape of the network."""
    described = lines.read_json(folder / "config.json")
    return {
        "held_out": None if (folder / IMPORTED).exists() else lines.read_json(folder / "held_out.json"),
        "architecture": described["architecture"],
        "vocabulary_size": described["vocabulary_size"],
        "sentence_task": described["sentence_task"],
    }


def _curves(folder: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """metric → {training, held-out} → points (step, value), from metrics.jsonl; empty for a model made elsewhere."""
    if (folder / IMPORTED).exists():
        return {}
    rows = lines.read(folder / "metrics.jsonl")
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name in ("mlm_accuracy", "mlm_loss", "nsp_accuracy", "nsp_loss"):
        held_out = [
            (row["step"], row["held_out"][name]) for row in rows if row.get("held_out", {}).get(name) is not None
        ]
        training = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        if held_out or training:
            found[name] = {"held-out": held_out, "training": training}
    return found


def _loss_curves(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """network → points (step, training loss), the mean over the seeds."""
    found: dict[str, dict[int, list[float]]] = {}
    for row in lines.read(folder / "metrics.jsonl"):
        if row.get("loss") is not None:
            found.setdefault(row["network"], {}).setdefault(row["run_step"], []).append(row["loss"])
    return {
        network: [(step, sum(losses) / len(losses)) for step, losses in sorted(steps.items())]
        for network, steps in found.items()
    }


# ── one task ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _task(task: str, inputs: Mapping[str, Path], overlap: Mapping[str, Any]) -> dict[str, Any]:
    """A task's entry in report.json."""
    folder = inputs.get(f"finetuned_{task}")
    if folder is None:
        raise DataError(f"the report has no input finetuned_{task}", f"Materialize finetuned_{task} first.")
    if (folder / NOT_RUN).exists():
        wanted = lines.read_json(folder / NOT_RUN)
        kept = {name: wanted[name] for name in ("title", "why", "wants")}
        return {"task": task, "ran": False, **kept, "published": published_of(task)}
    scores = lines.read_json(folder / "scores.json")
    metric = scores["metric"]
    parts = [part for part in ("test", "dev") if scores["summary"][part] is not None]
    rows = [_row(scores, part, metric) for part in parts]
    return {
        "task": task,
        "ran": True,
        "title": scores["title"],
        "metric": metric,
        "metric_title": METRIC_TITLES.get(metric, metric),
        "rows": rows,
        "verdict": verdict(rows[0], metric) if rows else None,
        "published": [_beside(row, rows, metric) for row in scores.get("published") or published_of(task)],
        "contamination": overlap["tasks"].get(task),
        "seeds": scores["seeds"],
        "published_seed": scores["published_seed"],
        "labels": scores["labels"],
        "sizes": scores["sizes"],
        "truncated": scores["truncated"],
        "hyperparameters": scores["hyperparameters"],
        "confusion": scores["confusion"] if len(scores["labels"]) <= CONFUSION_LABELS else None,
    }


def _row(scores: Mapping[str, Any], part: str, metric: str) -> dict[str, Any]:
    """The scores of one part, in points; None: not measured."""
    baselines = scores["baselines"]
    spread = scores["summary"][part][metric]
    untrained = baselines["untrained"]["summary"][part][metric]["median"] if "untrained" in baselines else None
    return {
        "part": part,
        "examples": scores["sizes"][part],
        "ours": _points(spread["median"]),
        "lowest": _points(spread["lowest"]),
        "highest": _points(spread["highest"]),
        "seeds": [_points(run[part][metric]) for run in scores["seeds"]],
        "untrained": _points(untrained),
        "tfidf": _points(baselines["tfidf"][part][metric]) if "tfidf" in baselines else None,
        "majority": _points(baselines["majority"][part][metric]),
    }


def _points(value: float | None) -> float | None:
    """Of 100, two decimals."""
    return None if value is None else round(100 * value, 2)


def _beside(published: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """A published score with our difference to it; None where ours is of another part or metric."""
    same = [row["ours"] for row in rows if row["part"] == published["split"] and metric == published["metric"]]
    ours = same[0] if same else None
    return {**published, "difference": None if ours is None else round(ours - published["points"], 2)}


# ── in words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def verdict(row: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """What a task's scores say about pretraining: `pretraining` and `tfidf` are helped, hurt, same or None (unknown).

    For accuracies, a difference counts only above what chance makes of it (metrics.noise); for other metrics, only
    where no seed contradicts it.
    """

    def compare(other: float | None) -> tuple[str | None, float | None]:
        if other is None:
            return None, None
        if metric == "accuracy":
            bound = 100 * metrics.noise(row["ours"] / 100, other / 100, row["examples"])
        else:
            bound = max(row["highest"] - row["ours"], row["ours"] - row["lowest"])
        difference = row["ours"] - other
        return ("same" if abs(difference) <= bound else "helped" if difference > 0 else "hurt"), round(bound, 2)

    untrained, noise = compare(row["untrained"])
    tfidf, _ = compare(row["tfidf"])
    return {"part": row["part"], "pretraining": untrained, "tfidf": tfidf, "noise": noise}


def in_words(content: Mapping[str, Any]) -> list[str]:
    """The result in plain sentences, good or bad."""
    sentences = [*_held_out_words(content["pretraining"])]
    ran = [task for task in content["tasks"] if task["ran"] and task["verdict"]]
    judged = [task for task in ran if task["verdict"]["pretraining"] is not None]
    helped = [task for task in judged if task["verdict"]["pretraining"] == "helped"]
    for task in ran:
        sentences.append(_task_words(task))
    if judged and not helped:
        sentences.append(
            "So on none of these tasks did pretraining help measurably. Fine-tuning alone learns what these texts ask for"
            + (
                "; what shows that pretraining works, and how far it came, is the held-out curve, not these scores."
                if content["pretraining"]["held_out"]
                else "."
            )
        )
    elif judged and len(helped) < len(judged):
        names = ", ".join(task["title"] for task in helped)
        sentences.append(f"So pretraining helped measurably on {len(helped)} of {len(judged)} tasks: {names}.")
    missing = [task for task in content["tasks"] if not task["ran"]]
    if missing:
        number = "1 task was" if len(missing) == 1 else f"{len(missing)} tasks were"
        sentences.append(f"{number} not run; the last table says why, and which files are wanted.")
    return sentences


def _held_out_words(pretraining: Mapping[str, Any]) -> Iterator[str]:
    held_out = pretraining["held_out"]
    if held_out is None:
        yield f"The model was made elsewhere and only fine-tuned here. Contamination is {UNKNOWN}."
        return
    guess, reached = held_out["baselines"]["most_frequent_token_accuracy"], held_out["mlm_accuracy"]
    if reached is None or not guess:
        return
    times = reached / guess
    comparison = f"{times:.1f} times as many as" if times >= 1.05 else "no more than" if times > 0.95 else "fewer than"
    yield (
        f"On text that training never saw, the model guesses {100 * reached:.1f} % of the masked words: {comparison} "
        f"always guessing the most frequent one would ({100 * guess:.1f} %)."
    )
    majority, sentence = held_out["baselines"].get("nsp_majority_accuracy"), held_out.get("nsp_accuracy")
    if sentence is not None and majority is not None:
        bound = metrics.noise(sentence, majority, held_out["sequences"])
        learnt = "more than" if sentence - majority > bound else "not measurably more than"
        yield (
            f"It tells whether a sentence follows another in {100 * sentence:.1f} % of the pairs, {learnt} always "
            f"giving the more frequent answer ({100 * majority:.1f} %)."
        )


def _task_words(task: Mapping[str, Any]) -> str:
    row, found = task["rows"][0], task["verdict"]
    seeds = "" if len(row["seeds"]) == 1 else f", median of {len(row['seeds'])} seeds"
    text = f"{task['title']}: {row['ours']:.1f} points of {task['metric_title']} on {row['part']}{seeds}."
    if found["pretraining"] is not None:
        difference = row["ours"] - row["untrained"]
        text += {
            "helped": f" Pretraining helped: the same network without it gets {row['untrained']:.1f}.",
            "hurt": f" Pretraining did not help: the same network without it gets more, {row['untrained']:.1f}.",
            "same": f" Pretraining made no measurable difference: the same network without it gets "
            f"{row['untrained']:.1f}, and on {row['examples']:,} texts a difference of {abs(difference):.1f} is within "
            f"chance (up to {found['noise']:.1f}).",
        }[found["pretraining"]]
    if found["tfidf"] is not None:
        text += {
            "helped": f" It is above TF-IDF with logistic regression ({row['tfidf']:.1f}).",
            "hurt": f" TF-IDF with logistic regression, which knows no word order, gets more: {row['tfidf']:.1f}.",
            "same": f" TF-IDF with logistic regression gets as much, within chance: {row['tfidf']:.1f}.",
        }[found["tfidf"]]
    return text


# ── what is written ──────────────────────────────────────────────────────────────────────────────────────────────────


def _render(template: str, content: Mapping[str, Any], **more: Any) -> str:
    filters = {
        "points": lambda value: "–" if value is None else f"{value:.1f}",
        "range": lambda row: "–" if len(row["seeds"]) == 1 else f"{row['lowest']:.1f}–{row['highest']:.1f}",
        "signed": lambda value: "–" if value is None else f"{value:+.1f}".replace("-", "−"),
        "percent": lambda value: "–" if value is None else f"{100 * value:.1f} %",
        "count": lambda value: f"{value:,}",
        "number": lambda value: "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4g}",
        "overlap": _overlap_words,
        "metric": lambda name: METRIC_TITLES.get(name, name),
    }
    return pages.render(template, filters, **content, **more)


def _overlap_words(entry: Mapping[str, Any] | None) -> str:
    """`3 of 2,000 (0.2 %)`, or why there is no number."""
    if entry is None or entry["part"] is None:
        return "–"
    if not entry["measurable"]:
        return "texts too short"
    return f"{entry['touched']:,} of {entry['measurable']:,} ({100 * entry['share']:.1f} %)"


def _plots(
    content: Mapping[str, Any],
    curves: Mapping[str, Mapping[str, list[tuple[float, float]]]],
    losses: Mapping[str, Mapping[str, list[tuple[float, float]]]],
) -> dict[str, Any]:
    """name → <svg>, marked as markup."""
    from markupsafe import Markup

    from model import report_plots

    guesses = (content["pretraining"]["held_out"] or {}).get("baselines", {})
    levels = {
        "mlm_accuracy": ("most frequent word", guesses.get("most_frequent_token_accuracy")),
        "nsp_accuracy": ("more frequent answer", guesses.get("nsp_majority_accuracy")),
    }
    titles = {
        "mlm_accuracy": "masked words right, share",
        "mlm_loss": "masked words, loss",
        "nsp_accuracy": "sentence pairs right, share",
        "nsp_loss": "sentence pairs, loss",
    }
    pretraining = {}
    for name, drawn in curves.items():
        baseline = levels.get(name)
        level = baseline if baseline and baseline[1] is not None else None
        pretraining[name] = Markup(report_plots.curve(name, titles[name], drawn, level))
    compared = [
        {
            "title": task["title"],
            "seeds": task["rows"][0]["seeds"],
            **{name: task["rows"][0][name] for name in ("ours", "untrained", "tfidf", "majority")},
        }
        for task in content["tasks"]
        if task["ran"] and task["rows"]
    ]
    named = {"pretrained": "pretrained", "untrained": "same network, no pretraining"}
    return {
        "pretraining": pretraining,
        "comparison": Markup(report_plots.comparison(compared)) if compared else None,
        "losses": {
            task: Markup(
                report_plots.curve(
                    f"loss-{task}", "training loss", {named[name]: points for name, points in drawn.items()}
                )
            )
            for task, drawn in losses.items()
            if drawn
        },
    }


def _statistics(content: Mapping[str, Any]) -> dict[str, Any]:
    """Flat numbers that the UI draws over time, and the table of tasks."""
    table, scores = [], {}
    for task in content["tasks"]:
        shown: dict[str, Any] = {"task": task["title"], "part": "–", "metric": "–", "score": "not run"}
        empty: dict[str, Any] = dict.fromkeys(
            ("untrained", "tfidf", "majority", "published", "difference", "contaminated"), "–"
        )
        if task["ran"] and task["rows"]:
            row = task["rows"][0]
            beside = next((p for p in task["published"] if p["difference"] is not None), None)
            shown |= {"part": row["part"], "metric": task["metric_title"], "score": row["ours"]}
            empty |= {name: row[name] for name in ("untrained", "tfidf", "majority") if row[name] is not None}
            known = content["pretraining"]["held_out"] is not None
            empty["contaminated"] = _overlap_words(task["contamination"]) if known else UNKNOWN
            if beside:
                empty |= {"published": f"{beside['points']} ({beside['system']})", "difference": beside["difference"]}
            scores[f"{task['task']}_{task['metric']}"] = row["ours"]
        table.append({**shown, **empty})
    held_out = content["pretraining"]["held_out"]
    reached = held_out and {
        "mlm_accuracy": held_out["mlm_accuracy"],
        "mlm_accuracy_baseline": held_out["baselines"]["most_frequent_token_accuracy"],
    }
    return {
        "tasks": len(content["tasks"]),
        "tasks_not_run": sum(not task["ran"] for task in content["tasks"]),
        **(reached or {}),
        **scores,
        "table": table,
        "dropped": {},
    }
