"""GLUE averages against the published ones: the paper's table 1 and the README of google-research/bert (2020)."""

import numpy as np
import pytest

from model.reporting.glue_average import Measured, averages

# MNLI m/mm, QQP, QNLI, SST-2, CoLA, STS-B, MRPC, RTE, average (Devlin et al. 2019, table 1)
TABLE_1 = {
    "OpenAI GPT": (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0, 75.1),
    "BERT-base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6),
    "BERT-large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1),
}
# score, CoLA, SST-2, MRPC F1/acc, STS-B Pearson/Spearman, QQP F1/acc, MNLI m, mm, QNLI, RTE, WNLI
README = {
    "mini": (65.8, 0.0, 85.9, 81.1, 71.8, 75.4, 73.3, 66.4, 86.2, 74.8, 74.3, 84.1, 57.9, 62.3),
    "small": (71.2, 27.8, 89.7, 83.4, 76.2, 78.8, 77.0, 68.1, 87.0, 77.6, 77.0, 86.4, 61.8, 62.3),
    "medium": (73.5, 38.0, 89.6, 86.6, 81.6, 80.4, 78.4, 69.6, 87.9, 80.0, 79.1, 87.7, 62.2, 62.3),
}


def of(scores: dict[tuple[str, str], dict[str, float]], part: str = "test") -> dict[str, dict[str, object]]:
    def measured(task: str, part: str) -> Measured | None:
        return Measured(scores[task, part], {}) if (task, part) in scores else None

    return {row["name"]: row for row in averages(part, measured, str.upper)}


def paper(row: tuple[float, ...]) -> dict[tuple[str, str], dict[str, float]]:
    m, mm, qqp, qnli, sst2, cola, stsb, mrpc, rte, _ = row
    return {
        ("mnli", "test"): {"accuracy": m},
        ("mnli", "test_mismatched"): {"accuracy": mm},
        ("qqp", "test"): {"f1": qqp},
        ("qnli", "test"): {"accuracy": qnli},
        ("sst2", "test"): {"accuracy": sst2},
        ("cola", "test"): {"matthews": cola},
        ("stsb", "test"): {"spearman": stsb},
        ("mrpc", "test"): {"f1": mrpc},
        ("rte", "test"): {"accuracy": rte},
    }


@pytest.mark.parametrize("system", TABLE_1)
def test_the_papers_average(system: str) -> None:
    found = of(paper(TABLE_1[system]))
    assert found["paper"]["points"] == pytest.approx(TABLE_1[system][-1], abs=0.05)  # as printed
    assert found["paper_wnli"] == found["paper_wnli"] | {"points": None, "missing": ["WNLI"]}
    # the accuracies of QQP and MRPC and STS-B's Pearson are not in the table
    assert found["leaderboard_no_wnli"]["missing"] == ["QQP", "STSB", "MRPC"]


@pytest.mark.parametrize("system", README)
def test_the_leaderboards_average(system: str) -> None:
    score, cola, sst2, mrpc, mrpc_a, pearson, spearman, qqp, qqp_a, m, mm, qnli, rte, wnli = README[system]
    scores = paper((m, mm, qqp, qnli, sst2, cola, spearman, mrpc, rte, 0.0))
    scores["mrpc", "test"]["accuracy"], scores["qqp", "test"]["accuracy"] = mrpc_a, qqp_a
    scores["stsb", "test"]["pearson"] = pearson
    scores["wnli", "test"] = {"accuracy": wnli}
    found = of(scores)
    assert found["leaderboard"]["points"] == pytest.approx(score, abs=0.1)  # of scores that are rounded themselves
    without = (9 * found["leaderboard"]["points"] - wnli) / 8
    assert found["leaderboard_no_wnli"]["points"] == pytest.approx(without, abs=0.01)
    assert found["paper_wnli"]["points"] == pytest.approx((9 * found["paper"]["points"] + wnli) / 10, abs=0.01)


def test_dev_is_not_filled_up_from_test() -> None:
    scores = paper(TABLE_1["BERT-base"])
    del scores["mnli", "test_mismatched"]
    assert of(scores)["paper"]["missing"] == ["MNLI"]
    assert all(row["points"] is None for row in of(scores, "dev").values())


def test_the_interval_is_that_of_a_sum_of_independent_normal_scores() -> None:
    """Nine columns with standard errors of 1 to 9 points: 1.96 · √(1 + 4 + … + 81) / 9. Tolerance 5 %: 10,000 resamples."""
    random = np.random.default_rng(1)
    scores = paper(TABLE_1["BERT-base"])
    measured = {
        key: Measured(points, {name: (value + random.normal(0, error, 10_000)) / 100 for name, value in points.items()})
        for error, (key, points) in enumerate(scores.items(), 1)
    }
    (found,) = (
        row for row in averages("test", lambda task, part: measured.get((task, part)), str) if row["name"] == "paper"
    )
    width = 2 * 1.96 * np.sqrt(sum(error**2 for error in range(1, 10))) / 9
    assert found["high"] - found["low"] == pytest.approx(width, rel=0.05)
    assert (found["high"] + found["low"]) / 2 == pytest.approx(found["points"], abs=0.2)
