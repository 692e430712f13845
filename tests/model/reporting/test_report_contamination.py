"""Scores with and without touched examples, against scikit-learn, scipy and hand calculation."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from model import contamination
from model.reporting.predicted import Predicted
from model.reporting.report_contamination import cell, read_overlap, sentences, with_and_without

COUNTS = {"texts": 100, "measurable": 90, "touched": 30, "share": 0.333333}


def overlap(ids: list[str]) -> dict[str, Any]:
    return {"parts": {"test": COUNTS}, "ids": {"test": set(ids)}}


def classes(seeds: list[list[str]], truth: list[str], kind: str = "classification") -> Predicted:
    ids = [f"test:{n}" for n in range(len(truth))]
    tables = {n: pa.table({"example_id": ids, "label": truth, "prediction": given}) for n, given in enumerate(seeds)}
    return Predicted(kind, ("no", "yes"), tables)


def test_counted_by_hand() -> None:
    # 100 texts, the first 20 wrong; touched are the first 30, so 10 of 30 are right, and all of the 70 others
    truth = ["yes"] * 100
    given = ["no"] * 20 + ["yes"] * 80
    (row,) = with_and_without(overlap([f"test:{n}" for n in range(30)]), {"test": classes([given], truth)}, "accuracy")
    assert (row["all"]["score"], row["untouched"]["score"], row["touched"]["score"]) == (80.0, 100.0, 33.3333)
    assert [row[name]["examples"] for name in ("all", "untouched", "touched")] == [100, 70, 30]
    assert row["difference"] == 20.0 and row["too_short"] == 10
    # 1.96 · √(1/3 · 2/3 / 30) = 16.9 points
    assert row["touched"]["high"] - row["touched"]["low"] == pytest.approx(2 * 16.9, abs=4)
    assert (row["untouched"]["low"], row["untouched"]["high"]) == (100.0, 100.0)


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews"])
def test_classes_as_scikit_learn_counts_them_by_the_median_seed(metric: str) -> None:
    drawn = random.Random(7)
    truth = [drawn.choice(["no", "yes"]) for _ in range(200)]
    seeds = [[t if drawn.random() < 0.7 else drawn.choice(["no", "yes"]) for t in truth] for _ in range(3)]
    touched = sorted(drawn.sample(range(200), 60))
    (row,) = with_and_without(overlap([f"test:{n}" for n in touched]), {"test": classes(seeds, truth)}, metric)
    peer = {
        "accuracy": accuracy_score,
        "f1": lambda gold, given: f1_score(gold, given, pos_label="yes"),
        "matthews": matthews_corrcoef,
    }[metric]
    for name, chosen in (("all", range(200)), ("touched", touched), ("untouched", sorted({*range(200)} - {*touched}))):
        gold = [truth[n] for n in chosen]
        expected = np.median([peer(gold, [given[n] for n in chosen]) for given in seeds])
        assert row[name]["score"] == pytest.approx(100 * expected, abs=1e-3), name
        assert row[name]["low"] <= row[name]["score"] <= row[name]["high"]


def test_scores_as_scipy_ranks_them() -> None:
    drawn = random.Random(3)
    truth = [drawn.uniform(0, 5) for _ in range(120)]
    given = [value + drawn.gauss(0, 1) for value in truth]
    table = pa.table({"example_id": [f"test:{n}" for n in range(120)], "label": truth, "prediction": given})
    touched = list(range(40, 80))
    predicted = Predicted("regression", (), {0: table})
    (row,) = with_and_without(overlap([f"test:{n}" for n in touched]), {"test": predicted}, "spearman")
    assert row["touched"]["score"] == pytest.approx(100 * spearmanr(truth[40:80], given[40:80]).statistic, abs=1e-3)
    assert row["all"]["score"] == pytest.approx(100 * spearmanr(truth, given).statistic, abs=1e-3)


def test_sentences_go_as_wholes_and_their_entities_are_counted_together() -> None:
    # every sentence has two people; of touched ones one is found, of the others both: F1 2·1·½ / (1 + ½) = 2/3, and 1
    gold, half = ["B-PER", "O", "B-PER", "I-PER"], ["B-PER", "O", "O", "O"]
    touched = [n for n in range(80) if n % 3 == 0]
    rows = [
        {"example_id": f"test:{n}", "label": a, "prediction": b}
        for n in range(80)
        for a, b in zip(gold, half if n in touched else gold, strict=True)
    ]
    predicted = Predicted("tagging", ("O", "B-PER", "I-PER"), {0: pa.Table.from_pylist(rows)}, np.arange(80) // 2)
    (row,) = with_and_without(overlap([f"test:{n}" for n in touched]), {"test": predicted}, "entity_f1")
    assert (row["touched"]["score"], row["untouched"]["score"]) == (pytest.approx(200 / 3, abs=1e-3), 100.0)
    assert (row["touched"]["examples"], row["untouched"]["examples"], row["unit"]) == (27, 53, "documents")
    found = 27 + 2 * 53
    assert row["all"]["score"] == pytest.approx(100 * 2 * found / (found + 160), abs=1e-3)


def test_spans_by_their_own_f1() -> None:
    values = [n / 50 for n in range(50)]
    columns = {"example_id": [f"test:{n}" for n in range(50)], "f1": values, "exact_match": [0.0] * 50}
    predicted = Predicted("span", (), {0: pa.table(columns)})
    (row,) = with_and_without(overlap([f"test:{n}" for n in range(25)]), {"test": predicted}, "f1")
    assert row["touched"]["score"] == pytest.approx(100 * sum(values[:25]) / 25)
    assert row["untouched"]["score"] == pytest.approx(100 * sum(values[25:]) / 25)


def task(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": "T", "unit": "texts", "with_and_without": rows}


def test_too_few_is_said_and_not_scored() -> None:
    predicted = {"test": classes([["yes"] * 40], ["yes"] * 40)}
    (row,) = with_and_without(overlap([f"test:{n}" for n in range(19)]), predicted, "accuracy")
    assert row["touched"] == {"examples": 19, "score": None, "low": None, "high": None}
    assert cell(row["touched"]) == "too few to say: 19" and row["untouched"]["score"] == 100.0
    assert "they alone are too few to say anything" in sentences(task([row]))[0]
    (row,) = with_and_without(overlap([f"test:{n}" for n in range(25)]), predicted, "accuracy")
    assert row["untouched"]["score"] is row["difference"] is None and row["touched"]["score"] == 100.0
    assert "The 15 others are too few to say" in sentences(task([row]))[0]
    (row,) = with_and_without(overlap([]), predicted, "accuracy")
    assert cell(row["touched"]) == "none" and sentences(task([row])) == [] and row["difference"] == 0.0


def test_what_was_not_measured_has_no_row() -> None:
    predicted = {"dev": classes([["yes"] * 40], ["yes"] * 40)}
    assert with_and_without(overlap([]), predicted, "accuracy") == []
    assert with_and_without(None, predicted, "accuracy") == []


def test_the_ids_come_from_the_stage_that_looked_for_them(tmp_path: Path) -> None:
    entry = {"part": "test", "parts": {"test": COUNTS, "dev": COUNTS}}
    content = {"tasks": {"a": entry, "b": dict(entry)}}
    (tmp_path / "contamination.json").write_text(json.dumps(content), encoding="utf-8")
    rows = [("a", "test", "x"), ("a", "dev", "x"), ("b", "dev", "y")]
    columns = [dict(zip(("task", "part", "example_id"), row, strict=True)) for row in rows]
    pq.write_table(pa.Table.from_pylist(columns), tmp_path / contamination.TOUCHED)
    found = read_overlap(tmp_path)
    assert found["a"]["ids"] == {"test": {"x"}, "dev": {"x"}} and found["b"]["ids"] == {"dev": {"y"}}
