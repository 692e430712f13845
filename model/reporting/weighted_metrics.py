"""The metrics of model/metrics.py for many resamples at once: functions of how often each example counts.

Weights are float64 [resamples, examples], a metric of them float64 [resamples]. With weights of 1, a metric equals that
of scikit-learn or scipy. What is not defined, as a correlation with a constant, is 0 here as there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from model.reporting import bootstrap
from model.reporting.bootstrap import Interval, Statistic

Numbers = npt.NDArray[Any]

_CONSTANT = 1e-13
"""Variance that only rounding makes, of values scaled to variance 1 over all examples."""


def intervals(
    names: Sequence[str], labels: Numbers, predictions: Numbers, groups: Sequence[int] | Numbers | None = None
) -> dict[str, Interval]:
    """95 % bootstrap intervals of metrics of model/metrics.py; labels and predictions as there."""
    statistics = {name: WEIGHTED[name](labels, predictions) for name in names}
    return bootstrap.intervals(statistics, len(labels), groups)


def mean(values: Numbers) -> Statistic:
    """Mean of `values`, float [examples]."""
    values = np.asarray(values, dtype=np.float64)
    return lambda weights: ratio(weights @ values, weights.sum(axis=1))


def median(statistics: Sequence[Statistic]) -> Statistic:
    """The median of several statistics in each resample: of a score's seeds, which all saw the same examples."""
    return lambda weights: np.median([statistic(weights) for statistic in statistics], axis=0)


def ratio(above: Numbers, below: Numbers) -> Numbers:
    """`above / below`, 0 where `below` is 0."""
    return np.divide(above, below, out=np.zeros_like(above, dtype=np.float64), where=below != 0)


def accuracy(labels: Numbers, predictions: Numbers) -> Statistic:
    """As metrics.accuracy."""
    return mean(labels == predictions)


def f1(labels: Numbers, predictions: Numbers) -> Statistic:
    """As metrics.f1: of label 1."""
    right = ((labels == 1) & (predictions == 1)).astype(np.float64)
    either = (labels == 1).astype(np.float64) + (predictions == 1)
    return lambda weights: ratio(2 * (weights @ right), weights @ either)


def macro_f1(labels: Numbers, predictions: Numbers) -> Statistic:
    """As metrics.macro_f1: over the labels that a resample holds."""
    tables = _one_hot(labels, predictions)

    def statistic(weights: Numbers) -> Numbers:
        right, labelled, predicted = (weights @ table for table in tables)
        each = ratio(2 * right, labelled + predicted)
        return ratio(each.sum(axis=1), ((labelled + predicted) > 0).sum(axis=1))

    return statistic


def matthews(labels: Numbers, predictions: Numbers) -> Statistic:
    """As metrics.matthews, for any number of labels (Gorodkin 2004)."""
    tables = _one_hot(labels, predictions)

    def statistic(weights: Numbers) -> Numbers:
        right, labelled, predicted = (weights @ table for table in tables)
        all_squared = weights.sum(axis=1) ** 2
        together = right.sum(axis=1) * weights.sum(axis=1) - (labelled * predicted).sum(axis=1)
        spread = (all_squared - (labelled**2).sum(axis=1)) * (all_squared - (predicted**2).sum(axis=1))
        return ratio(together, np.sqrt(spread))

    return statistic


def pearson(labels: Numbers, predictions: Numbers) -> Statistic:
    """As metrics.pearson."""
    x, y = _scaled(labels), _scaled(predictions)
    moments = np.stack([x, y, x * x, y * y, x * y], axis=1)

    def statistic(weights: Numbers) -> Numbers:
        mean_x, mean_y, xx, yy, xy = (weights @ moments / weights.sum(axis=1, keepdims=True)).T
        return _correlation(xy - mean_x * mean_y, xx - mean_x**2, yy - mean_y**2)

    return statistic


def spearman(labels: Numbers, predictions: Numbers) -> Statistic:
    """As metrics.spearman: Pearson's r of the ranks within each resample, ties at their mean rank."""
    ranks_of_labels, ranks_of_predictions = _ranks(labels), _ranks(predictions)

    def statistic(weights: Numbers) -> Numbers:
        total = weights.sum(axis=1, keepdims=True)
        # the mean of ranks is known, ties or not: (total + 1) / 2
        x = ranks_of_labels(weights) / total - (total + 1) / (2 * total)
        y = ranks_of_predictions(weights) / total - (total + 1) / (2 * total)
        weighted_x, weighted_y = weights / total * x, weights / total * y
        variance_x, variance_y = _dot(weighted_x, x), _dot(weighted_y, y)
        return _correlation(_dot(weighted_x, y), variance_x, variance_y)

    return statistic


WEIGHTED: Mapping[str, Callable[[Numbers, Numbers], Statistic]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}
"""The names of metrics.METRICS."""


def _one_hot(labels: Numbers, predictions: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """float64 [examples, distinct labels] each: 1 for the label where it is predicted, for the label, the prediction."""
    distinct = np.unique(np.concatenate([labels, predictions]))
    labelled = (np.asarray(labels)[:, None] == distinct).astype(np.float64)
    predicted = (np.asarray(predictions)[:, None] == distinct).astype(np.float64)
    return labelled * predicted, labelled, predicted


def _scaled(values: Numbers) -> Numbers:
    """Values of mean 0 and variance 1; a correlation does not change, and its sums keep their digits."""
    values = np.asarray(values, dtype=np.float64)
    centred = values - values.mean()
    return centred / (centred.std() or 1.0)


def _ranks(values: Numbers) -> Callable[[Numbers], Numbers]:
    """A function of weights: the mid-rank of every example among the weighted examples, from 1."""
    distinct, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(distinct)))

    def ranks(weights: Numbers) -> Numbers:
        counts = np.add.reduceat(weights[:, order], starts, axis=1)
        return (counts.cumsum(axis=1) - (counts - 1) / 2)[:, place]

    return ranks


def _dot(first: Numbers, second: Numbers) -> Numbers:
    """Row by row, float64 [resamples]."""
    return np.einsum("re,re->r", first, second)


def _correlation(covariance: Numbers, variance_x: Numbers, variance_y: Numbers) -> Numbers:
    constant = (variance_x <= _CONSTANT) | (variance_y <= _CONSTANT)
    spread = np.sqrt(np.where(constant, 0.0, variance_x) * np.where(constant, 0.0, variance_y))
    return ratio(np.where(constant, 0.0, covariance), spread)
