"""The report of what fine-tuning itself publishes: a grid with a baseline, and spans without an answer to every question."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from model import report
from model.reporting.report_task import task_result
from pipeline.config import FinetuneConfig, Grid, ReportConfig
from tests.model import test_finetuning, test_spans
from tests.model.test_finetuning import made as made_of_labels  # noqa: F401
from tests.model.test_spans import made as made_of_spans  # noqa: F401
from tests.model.trainings import run_stage

pytestmark = pytest.mark.usefixtures("one_thread_of_the_cpu")


def reported(
    made: dict[str, Path], folder: Path, config: FinetuneConfig
) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """(the task's entry, scores.json, the report's folder)."""
    _, out = run_stage(made, folder, config)
    to = folder / "report"
    to.mkdir()
    inputs = {f"finetuned_{config.task}": out, f"task_data_{config.task}": made["task_data"]}
    report.make_report(inputs, ReportConfig(recipe="tiny", tasks=(config.task,)), to)
    (entry,) = json.loads((to / "report.json").read_text())["tasks"]
    # an export without a report says the same
    assert json.loads(json.dumps(task_result(config.task, inputs, {}).entry)) == entry
    return entry, json.loads((out / "scores.json").read_text()), to


def test_labels_of_a_grid(made_of_labels: dict[str, Path], tmp_path: Path) -> None:  # noqa: F811
    config = test_finetuning.CONFIG.model_copy(
        update={
            "epochs": 1,
            "batch_size": 50,
            "grid": Grid(learning_rate=(1e-6, 1e-2)),
            "baselines": ("untrained", "tfidf"),
        }
    )
    entry, scores, to = reported(made_of_labels, tmp_path, config)
    for row in entry["rows"]:
        summary = scores["summary"][row["part"]]
        assert row["ours"] == pytest.approx(100 * summary["accuracy"]["median"], abs=0.006)
        assert row["low"] <= row["ours"] <= row["high"]
        assert set(row["metrics"]) == set(summary)
        assert row["untrained"] is not None and row["tfidf"] is not None
    (chosen,) = (row for row in entry["variants"]["rows"] if row["chosen"])
    assert chosen["settings"] == scores["variants"][scores["chosen"]]["settings"]
    # seeds are right about as many examples as their accuracy says
    examples = pl.read_parquet(to / "examples" / f"{config.task}.parquet").filter(pl.col("part") == "dev")
    for run in scores["seeds"]:
        assert examples[f"right_seed_{run['seed']}"].mean() == pytest.approx(run["dev"]["accuracy"], abs=1e-5)


def test_questions(made_of_spans: dict[str, Path], tmp_path: Path) -> None:  # noqa: F811
    config = test_spans.CONFIG.model_copy(update={"epochs": 3})
    entry, scores, to = reported(made_of_spans, tmp_path, config)
    for row in entry["rows"]:
        for name, score in row["metrics"].items():
            assert score["ours"] == pytest.approx(100 * scores["summary"][row["part"]][name]["median"], abs=0.006)
            assert score["low"] <= score["ours"] <= score["high"]
    assert entry["constant"] == 'always "no answer"'
    assert all(found["texts"] and found["how"].startswith("F1 ") for found in entry["errors"])
    examples = pl.read_parquet(to / "examples" / "questions.parquet").filter(pl.col("part") == "dev")
    for run in scores["seeds"]:
        assert examples[f"right_seed_{run['seed']}"].mean() == pytest.approx(run["dev"]["f1"], abs=1e-5)
