"""Metrics against values calculated by hand."""

import math

import numpy as np
import pytest

from model import metrics

# 3 true positives, 1 false positive, 2 false negatives, 4 true negatives
LABELS = np.array([1, 1, 1, 0, 1, 1, 0, 0, 0, 0])
PREDICTIONS = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])


def test_classification_scores_of_a_table_of_two() -> None:
    assert metrics.accuracy(LABELS, PREDICTIONS) == pytest.approx(7 / 10)
    assert metrics.f1(LABELS, PREDICTIONS) == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))
    mcc = (3 * 4 - 1 * 2) / math.sqrt((3 + 1) * (3 + 2) * (4 + 1) * (4 + 2))
    assert metrics.matthews(LABELS, PREDICTIONS) == pytest.approx(mcc)
    negatives = 2 * 4 / (2 * 4 + 1 + 2)  # F1 of label 0
    assert metrics.macro_f1(LABELS, PREDICTIONS) == pytest.approx((6 / 9 + negatives) / 2)
    assert metrics.confusion(LABELS, PREDICTIONS, 3) == [[4, 1, 0], [2, 3, 0], [0, 0, 0]]


def test_correlations() -> None:
    labels, predictions = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 4.0, 4.0, 10.0])
    # means 2.5 and 5: covariance 12, variances 5 and 36
    assert metrics.pearson(labels, predictions) == pytest.approx(12 / math.sqrt(5 * 36))
    # ranks 1, 2.5, 2.5, 4 around 2.5: covariance 4.5, variances 5 and 4.5
    assert metrics.spearman(labels, predictions) == pytest.approx(4.5 / math.sqrt(5 * 4.5))


@pytest.mark.parametrize("name", ["f1", "matthews", "pearson", "spearman"])
def test_where_a_score_is_not_defined_it_is_0(name: str) -> None:
    labels = np.array([0, 1, 0, 1] if name != "f1" else [0, 0, 0, 0])
    assert metrics.scores([name], labels, np.zeros(4, int)) == {name: 0.0}


def test_nothing_and_unequal_lengths_can_not_be_scored() -> None:
    with pytest.raises(ValueError, match="0 labels"):
        metrics.scores(["accuracy"], np.array([]), np.array([]))
    with pytest.raises(ValueError, match="2 labels and 1 predictions"):
        metrics.scores(["accuracy"], np.array([1, 0]), np.array([1]))


def test_spread_of_seeds() -> None:
    spread = metrics.spread([0.9, 0.7, 0.8, 0.6])
    assert (spread.median, spread.lowest, spread.highest, spread.count) == (pytest.approx(0.75), 0.6, 0.9, 4)
    assert spread.deviation == pytest.approx(math.sqrt((0.15**2 + 0.05**2) * 2 / 3))
    assert metrics.spread([0.5]).deviation is None


def test_noise_of_two_accuracies() -> None:
    """0.9 and 0.8 on 98 texts: with one right and one wrong more, 89.2 and 79.4 of 100."""
    assert metrics.noise(0.9, 0.8, 98) == pytest.approx(1.96 * math.sqrt((0.892 * 0.108 + 0.794 * 0.206) / 100))


def test_two_that_are_always_right_or_always_wrong_leave_chance_its_part() -> None:
    """With 0 of 98 right by both, 1 of 100 each: 1.96 √(2 · 0.01 · 0.99 / 100)."""
    found = [metrics.noise(share, share, 98) for share in (0, 1)]
    assert found == pytest.approx([1.96 * math.sqrt(0.000198)] * 2)
