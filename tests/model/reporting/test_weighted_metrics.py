"""Metrics of weights against scikit-learn and scipy on the resamples themselves."""

import warnings

import numpy as np
import pytest

from model import metrics
from model.reporting.weighted_metrics import WEIGHTED


def drawn(name: str, examples: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions with ties, and labels that some resamples lack."""
    if name in ("pearson", "spearman"):
        return random.integers(0, 6, examples) / 2, np.round(random.normal(size=examples), 1)
    classes = 2 if name == "f1" else 4
    labels = random.integers(0, classes, examples)
    return labels, np.where(random.random(examples) < 0.7, labels, random.integers(0, classes, examples))


@pytest.mark.parametrize("name", metrics.METRICS)
@pytest.mark.parametrize("examples", [2, 3, 7, 40])
def test_a_metric_of_weights_is_the_metric_of_the_resample(name: str, examples: int) -> None:
    """Few examples, so that constant resamples, missing labels and ties are common. Seed 1, tolerance 1e-9."""
    random = np.random.default_rng(1)
    for _ in range(40):
        labels, predictions = drawn(name, examples, random)
        weights = np.stack([np.bincount(random.integers(0, examples, examples), minlength=examples) for _ in range(5)])
        found = WEIGHTED[name](labels, predictions)(weights.astype(float))
        for row, value in zip(weights, found, strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # scikit-learn warns of resamples of a single label
                expected = metrics.METRICS[name](np.repeat(labels, row), np.repeat(predictions, row))
            assert value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", metrics.METRICS)
def test_what_is_not_defined_is_0(name: str) -> None:
    labels = np.zeros(4, int)
    found = WEIGHTED[name](labels, labels + 2)(np.ones((3, 4)))
    assert found.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_correlations_keep_their_digits_far_from_zero(offset: float) -> None:
    random = np.random.default_rng(2)
    x = random.normal(size=100)
    y = x + random.normal(size=100)
    found = WEIGHTED["pearson"](x + offset, y - offset)(np.ones((1, 100)))
    assert found[0] == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-8)


def test_every_metric_has_an_interval() -> None:
    assert set(WEIGHTED) == set(metrics.METRICS)
