"""`benchmark_report`: what the model scores, beside what is worth comparing it with, as Markdown, HTML and JSON.

Scores are shown in points, hundredths of the metric, with 95 % bootstrap intervals. The test part is shown where its labels
are known, dev always, and each says which it is.

report_task        one task: scores, intervals, grid, errors
predicted          published predictions, and scores in resamples of them
report_examples    right and wrong per example
glue_average       the GLUE average in both ways
submissions        files for the leaderboards
report_chance      what chance makes of a score
report_contamination   scores with and without what the training text holds
report_settings    the settings that apply
report_words       plain sentences and warnings
report_plots       the plots
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from model.artifact import read_json, write_json
from model.imported import TOLD as IMPORTED
from model.processes import lines
from model.release import SENTENCE_VECTORS
from model.reporting import bootstrap, glue_average, pages, report_contamination, report_settings, report_words
from model.reporting.report_examples import right_and_wrong
from model.reporting.report_task import METRIC_TITLES, TaskResult, task_result
from model.reporting.report_words import UNKNOWN
from model.reporting.shown_numbers import decimal, interval, number
from model.reporting.submissions import write_submissions
from model.task_files.known_tasks import title_of
from pipeline.config import ReportConfig
from pipeline.stage import Stage

STAGE = Stage(
    name="benchmark_report",
    function="model.report:make_report",
    # 4: scores with and without the examples that the training text holds
    version="4",
    libraries=("matplotlib",),
    sources=(
        "model/report.py",
        "model/reporting/report_*.py",
        "model/reporting/predicted.py",
        "model/reporting/bootstrap.py",
        "model/reporting/shown_numbers.py",
        "model/reporting/weighted_metrics.py",
        "model/reporting/glue_average.py",
        "model/reporting/submissions.py",
        "model/reporting/leaderboard.py",
        "model/scoring/entities.py",
        "model/scoring/entity_scores.py",
        "model/reporting/pages.py",
        "model/reporting/isolated.py",
        "model/reporting/templates/report*.j2",
        "model/reporting/templates/style.css.j2",
        "model/metrics.py",
        "model/task_files/known_tasks.py",
        "model/release.py",
    ),
)


ERRORS_IN_MARKDOWN = 3
"""of each task's worst errors; the page shows all that were found"""


def make_report(inputs: Mapping[str, Path], config: ReportConfig, out: Path) -> dict[str, Any]:
    """Write report.md, report.html, report.json, examples/TASK.parquet and leaderboards/.

    inputs: every `finetuned_T`; `pretrained`, which of a recipe that only fine-tunes is its `imported_checkpoint`; `contamination`,
    which such a recipe does not have, and every `task_data_T`, as far as they are there.

    Raises:
        DataError: an input lacks a file, or a task of the recipe has no `finetuned_T`.
    """
    overlap = report_contamination.read_overlap(inputs["contamination"]) if "contamination" in inputs else {}
    encoder = inputs.get("pretrained")
    results = {task: task_result(task, inputs, overlap) for task in config.tasks}
    tasks = [result.entry for result in results.values()]
    folders = {task["task"]: inputs[f"finetuned_{task['task']}"] for task in tasks if task["ran"]}
    absent = {task["task"]: f"{_absent(task)}: {task['why']}" for task in tasks if not task["ran"]}
    content: dict[str, Any] = {
        "recipe": config.recipe,
        "description": config.description,
        "pretraining": _pretraining(encoder) if encoder else None,
        "intervals": {
            "method": "percentile bootstrap",
            "share": bootstrap.SHARE,
            "resamples": bootstrap.RESAMPLES,
        },
        "glue": _glue(results),
        "tasks": tasks,
        "leaderboards": write_submissions(folders, absent, out),
    }
    content["in_words"] = report_words.in_words(content)
    titles, values = report_settings.table([task["settings"] for task in tasks if task["ran"]])
    content["settings"] = {"titles": titles, "rows": values}
    reading = [task for task in tasks if task["ran"] and task["hyperparameters"].get("pooling") == "cls"]
    content["reads_cls"] = f"Pooling cls reads [CLS] alone. {SENTENCE_VECTORS}" if reading else ""
    content["few"] = bootstrap.FEWEST_GROUPS
    content["with_and_without"] = report_contamination.rows_of([task for task in tasks if task["ran"]])
    content["warnings"] = report_words.warnings(tasks, content["pretraining"] or {})
    _write_examples(results, out)
    write_json(out / "report.json", content)
    pages.write(out / "report.md", _render("report.md.j2", content, shown_errors=ERRORS_IN_MARKDOWN))
    curves = _curves(encoder) if encoder else {}
    losses = {task: _loss_curves(folder) for task, folder in folders.items()}
    pages.write(out / "report.html", _render("report.html.j2", content, plots=_plots(content, curves, losses)))
    return _statistics(content)


def _absent(task: Mapping[str, Any]) -> str:
    """What stands for the scores of a task without any."""
    return "failed" if task.get("failed") else "not run"


def _write_examples(results: Mapping[str, TaskResult], out: Path) -> None:
    """examples/TASK.parquet, right and wrong per example, of every task with scores."""
    for task, result in results.items():
        if result.predicted:
            (out / "examples").mkdir(exist_ok=True)
            pq.write_table(right_and_wrong(result.predicted), out / "examples" / f"{task}.parquet", compression="zstd")


def _glue(results: Mapping[str, TaskResult]) -> dict[str, list[dict[str, Any]]]:
    """Averages of dev and test; none where no task of GLUE was run."""
    if not any(results[task].measured for task in glue_average.TASKS if task in results):
        return {"dev": [], "test": []}

    def measured(task: str, part: str) -> glue_average.Measured | None:
        return results[task].measured.get(part) if task in results else None

    return {part: glue_average.averages(part, measured, title_of) for part in ("dev", "test")}


# ── what is read ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _pretraining(folder: Path) -> dict[str, Any]:
    """Held-out scores with their baselines, None for a model made elsewhere, and the shape of the network."""
    described = read_json(folder / "config.json")
    return {
        "held_out": None if (folder / IMPORTED).exists() else read_json(folder / "held_out.json"),
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
    """network → points (step, training loss), the mean over the seeds of the combination that was chosen of a grid."""
    scores = read_json(folder / "scores.json")
    chosen = {"pretrained": scores, **scores.get("baselines", {})}
    found: dict[str, dict[int, list[float]]] = {}
    for row in lines.read(folder / "metrics.jsonl"):
        network = row["network"]
        if row.get("loss") is not None and row.get("variant", 0) == chosen.get(network, {}).get("chosen", 0):
            found.setdefault(network, {}).setdefault(row["run_step"], []).append(row["loss"])
    return {
        network: [(step, sum(losses) / len(losses)) for step, losses in sorted(steps.items())]
        for network, steps in found.items()
    }


def _held_out(content: Mapping[str, Any]) -> dict[str, Any] | None:
    held_out: dict[str, Any] | None = content["pretraining"]["held_out"] if content["pretraining"] else None
    return held_out


def _made_elsewhere(content: Mapping[str, Any]) -> bool:
    return content["pretraining"] is not None and content["pretraining"]["held_out"] is None


# ── what is written ──────────────────────────────────────────────────────────────────────────────────────────────────


def _render(template: str, content: Mapping[str, Any], **more: Any) -> str:
    filters: dict[str, Callable[..., Any]] = {
        "points": lambda value: "–" if value is None else decimal(value),
        "range": lambda row: "–" if len(row["seeds"]) < 2 else interval(row["lowest"], row["highest"]),
        "spread": lambda row: "–" if row["median"] is None else interval(row["lowest"], row["highest"]),
        "interval": lambda row: "–" if row["low"] is None else interval(row["low"], row["high"]),
        "signed": _signed,
        "percent": lambda value: "–" if value is None else f"{100 * value:.1f} %",
        "count": lambda value: "–" if value is None else f"{value:,}",
        "number": number,
        "overlap": _overlap_words,
        "beside": report_contamination.cell,
        "absent": _absent,
        "metric": lambda name: METRIC_TITLES.get(name, name),
        "part": lambda name: report_words.PARTS_IN_WORDS.get(name, name),
        "task_title": title_of,
        "setting": lambda name: name.replace("_", " "),
    }
    return pages.render(template, filters, **content, **more)


def _signed(value: float | None) -> str:
    """A difference with its sign, none where it is rounded to 0."""
    if value is None:
        return "–"
    shown = decimal(value)
    return f"+{shown}" if value > 0 and shown != "0.0" else shown


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

    from model.reporting import report_plots

    guesses = (_held_out(content) or {}).get("baselines", {})
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
        told, value = levels.get(name, ("", None))
        level = None if value is None else (told, value)
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
        "spreads": {
            task["task"]: Markup(report_plots.spread(f"spread-{task['task']}", task))
            for task in content["tasks"]
            if task["ran"] and task["rows"]
        },
        "comparison": Markup(report_plots.comparison(compared)) if compared else None,
        "losses": {
            task: Markup(
                report_plots.curve(
                    f"loss-{task}",
                    "training loss",
                    {named.get(name, name): points for name, points in drawn.items()},
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
        shown: dict[str, Any] = {"task": task["title"], "part": "–", "metric": "–", "score": _absent(task)}
        empty: dict[str, Any] = dict.fromkeys(
            ("interval", "untrained", "tfidf", "majority", "published", "difference", "contaminated"), "–"
        )
        if task["ran"] and not task["rows"]:
            by = f" by the model of {title_of(task['model_of'])}" if task["model_of"] else ""
            shown |= {"part": "test", "metric": task["metric_title"], "score": f"predicted{by}, answers not known"}
        elif task["ran"]:
            row = task["rows"][0]
            beside = next((p for p in task["published"] if p["difference"] is not None), None)
            shown |= {"part": row["part"], "metric": task["metric_title"], "score": row["ours"]}
            empty |= {name: row[name] for name in ("untrained", "tfidf", "majority") if row[name] is not None}
            if row["low"] is not None:
                empty["interval"] = interval(row["low"], row["high"])
            empty["contaminated"] = UNKNOWN if _made_elsewhere(content) else _overlap_words(task["contamination"])
            if beside:
                empty |= {"published": f"{beside['points']} ({beside['system']})", "difference": beside["difference"]}
            scores[f"{task['task']}_{task['metric']}"] = row["ours"]
        table.append({**shown, **empty})
    for average in content["glue"]["dev"]:
        if average["points"] is not None:
            scores[f"glue_dev_{average['name']}"] = average["points"]
    held_out = _held_out(content)
    learned = (
        {
            "mlm_accuracy": held_out["mlm_accuracy"],
            "mlm_accuracy_baseline": held_out["baselines"]["most_frequent_token_accuracy"],
        }
        if held_out
        else {}
    )
    return {
        "tasks": len(content["tasks"]),
        "tasks_not_run": sum(not task["ran"] for task in content["tasks"]),
        "tasks_failed": sum(task.get("failed", False) for task in content["tasks"]),
        **learned,
        **scores,
        "table": table,
        "with_and_without": [
            {
                **{name: row[name] for name in ("task", "part", "metric")},
                **{
                    name: row[of]["score"]
                    for name, of in (("all", "all"), ("untouched", "untouched"), ("alone", "touched"))
                },
            }
            for row in content["with_and_without"]
        ],
        "dropped": {},
    }
