"""What chance makes of scores, where we predict one answer for all: numbers of simulations, and by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef

from model import metrics
from model.reporting.predicted import Predicted
from model.reporting.report_chance import chance
from model.reporting.report_task import task_result
from tests.model import made_up

LABELS = ["no"] * 300 + ["yes"] * 700


def predicted(kind: str, labels: tuple[str, ...], **columns: Any) -> Predicted:
    rows = len(next(iter(columns.values())))
    return Predicted(kind, labels, {42: pa.table({"example_id": [str(n) for n in range(rows)], **columns})})


def guessed(score: Callable[[Any, Any], float], answers: Any) -> float:
    """Half of where 95 % of the scores of shuffled answers lie."""
    random = np.random.default_rng(5)
    found = [score(answers, random.permutation(answers)) for _ in range(2000)]
    low, high = np.quantile(found, [0.025, 0.975])
    return float(high - low) / 2


def test_correlations_of_guesses() -> None:
    numbers = np.array([label == "yes" for label in LABELS], dtype=int)
    found = chance(predicted("classification", ("no", "yes"), label=LABELS), "matthews", 1000)
    assert found == pytest.approx(guessed(matthews_corrcoef, numbers), rel=0.08)
    scores = np.random.default_rng(1).uniform(0, 5, 400)
    ranks = guessed(lambda a, b: float(spearmanr(a, b).statistic), scores)
    assert chance(predicted("regression", (), label=scores), "spearman", 400) == pytest.approx(ranks, rel=0.08)


def test_the_best_constant_answer() -> None:
    """F1 of always yes, of test sets with other shares of yes; always no is 0 in each, and says nothing of chance."""
    random = np.random.default_rng(6)
    drawn = [random.binomial(1000, 0.7) for _ in range(2000)]
    each = [f1_score([1] * yes + [0] * (1000 - yes), [1] * 1000) for yes in drawn]
    low, high = np.quantile(each, [0.025, 0.975])
    told = predicted("pair_classification", ("no", "yes"), label=LABELS)
    assert chance(told, "f1", 1000) == pytest.approx((high - low) / 2, rel=0.1)
    # the share of questions without an answer, 20 of 100: 1.96 √(0.2 · 0.8 / 100)
    none = predicted("span", (), answers=pa.array([[]] * 20 + [["a"]] * 80, pa.list_(pa.string())))
    assert chance(none, "exact_match", 100) == pytest.approx(0.0784, rel=0.1)


def test_where_no_constant_gets_anything_chance_is_not_0() -> None:
    """1.96 √(1/1002 · 1001/1002 / 1002), a share of one right among 1,002."""
    rows = predicted("tagging", ("O", "B-X"), label=["O", "B-X"] * 500)
    answered = predicted("span", (), answers=pa.array([["a"]] * 1000, pa.list_(pa.string())))
    same = predicted("classification", ("a", "b"), label=["a"] * 1000)
    for found, metric in ((rows, "entity_f1"), (answered, "f1"), (same, "macro_f1")):
        assert chance(found, metric, 1000) == pytest.approx(0.001955, rel=0.01)


def constant(base: Path, kind: str, untrained: float) -> dict[str, Any]:
    """The report's entry of a task for which every seed gives one answer, and the untrained network a little more or less."""
    names: tuple[str, ...] = ("matthews", "accuracy") if kind == "matthews" else ("f1", "accuracy")
    folder = made_up.classes(base, kind, kind, ["0", "1"], (0.8, 0.8), {"dev": 400}, metric=names[0], names=names)
    scores = json.loads((folder / "scores.json").read_text())
    for run in scores["seeds"]:
        path = folder / "predictions" / f"dev-seed-{run['seed']}.parquet"
        table = pq.read_table(path).to_pydict() | {"prediction": ["0"] * 400}
        pq.write_table(pa.table(table), path)
        run["dev"] = made_up.of_labels(names, table)
    spread = {name: [run["dev"][name] for run in scores["seeds"]] for name in names}
    scores["summary"]["dev"] = {name: vars(metrics.spread(values)) for name, values in spread.items()}
    other = {names[0]: vars(metrics.spread([untrained]))}
    scores["baselines"]["untrained"] = {"seeds": [], "summary": {"dev": other}}
    (folder / "scores.json").write_text(json.dumps(scores))
    return task_result(kind, {f"finetuned_{kind}": folder}, {}).entry


@pytest.mark.parametrize(("kind", "untrained"), [("matthews", -0.03), ("matthews", 0.03), ("f1", 0.02)])
def test_one_answer_for_all_is_no_certainty(tmp_path: Path, kind: str, untrained: float) -> None:
    entry = constant(tmp_path, kind, untrained)
    row = entry["rows"][0]
    assert row["low"] == row["high"] == row["ours"] == 0.0
    assert entry["verdict"]["noise"] == row["chance"] > 1
    assert entry["verdict"]["pretraining"] == "same"
