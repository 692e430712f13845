"""Scores of predictions, as fractions of 1 (correlations: from −1 to 1). Pure functions over arrays.

Accuracy, F1 and Matthews correlation are scikit-learn's, Pearson and Spearman scipy's, as in GLUE's official scoring.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model.artifact import short

Numbers = npt.NDArray[Any]


def accuracy(labels: Numbers, predictions: Numbers) -> float:
    """Share of predictions that equal their label; int [n], int [n]."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(labels, predictions))


def f1(labels: Numbers, predictions: Numbers) -> float:
    """F1 of label 1 (MRPC, QQP); 0 where nothing is 1."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, pos_label=1, zero_division=0.0))


def macro_f1(labels: Numbers, predictions: Numbers) -> float:
    """Mean of the F1 of every label that occurs in either array: small classes count as much as large ones."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, average="macro", zero_division=0.0))


def matthews(labels: Numbers, predictions: Numbers) -> float:
    """Matthews correlation (CoLA, AX); 0 where labels or predictions are all the same."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(labels, predictions))


def pearson(labels: Numbers, predictions: Numbers) -> float:
    """Pearson's r (STS-B); 0 where either side is constant."""
    from scipy.stats import pearsonr

    return 0.0 if _constant(labels) or _constant(predictions) else float(pearsonr(labels, predictions).statistic)


def spearman(labels: Numbers, predictions: Numbers) -> float:
    """Spearman's rank correlation, ties at their mean rank (STS-B); 0 where either side is constant."""
    from scipy.stats import spearmanr

    return 0.0 if _constant(labels) or _constant(predictions) else float(spearmanr(labels, predictions).statistic)


def _constant(values: Numbers) -> bool:
    return bool(np.all(values == values[0]))


METRICS: Mapping[str, Callable[[Numbers, Numbers], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


CORRELATIONS = ("pearson", "spearman")
"""of the metrics: those that a constant guess has none of"""


def scores(names: Sequence[str], labels: Numbers, predictions: Numbers) -> dict[str, float]:
    """Several metrics by name, six significant digits. Raises ValueError for empty arrays or unequal lengths."""
    if len(labels) == 0 or len(labels) != len(predictions):
        raise ValueError(f"{len(labels)} labels and {len(predictions)} predictions can't be scored")
    return {name: short(METRICS[name](labels, predictions)) for name in names}


def confusion(labels: Numbers, predictions: Numbers, classes: int) -> list[list[int]]:
    """Counts [label][prediction], int [n] each with values below `classes`."""
    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (labels, predictions), 1)
    return [[int(count) for count in row] for row in table]


@dataclass(frozen=True)
class Spread:
    """One score over several seeds."""

    median: float
    lowest: float
    highest: float
    deviation: float | None
    """sample standard deviation; None for one seed"""
    count: int


def spread(values: Sequence[float]) -> Spread:
    """Median, extremes and standard deviation of at least one value."""
    array = np.asarray(values, dtype=np.float64)
    deviation = float(array.std(ddof=1)) if len(array) > 1 else None
    return Spread(float(np.median(array)), float(array.min()), float(array.max()), deviation, len(array))


Z = 1.96
"""of the normal distribution, 95 % lie within this many standard deviations"""


def noise(first: float, second: float, examples: int) -> float:
    """Difference of two accuracies on `examples` texts that chance alone makes in 1 of 20 cases; above 0.

    The normal approximation, with one right and one wrong answer added to each (Agresti and Caffo 2000): without them chance
    would be 0 where all are right or all wrong. Both are treated as independent, which they are not when both models see the same
    texts: a cautious bound.
    """
    shares = [(share * examples + 1) / (examples + 2) for share in (first, second)]
    return Z * math.sqrt(sum(share * (1 - share) for share in shares) / (examples + 2))
