"""How far chance alone moves the score of one who reads nothing, on the answers of a part: it follows from the data, never
from what we predicted. A model that gives one answer for all has the same score in every resample of the test set, and one that
is always right too; neither makes chance 0.
"""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model import metrics
from model.reporting import bootstrap
from model.reporting.bootstrap import Statistic
from model.reporting.predicted import SCORED, Predicted
from model.reporting.weighted_metrics import WEIGHTED, mean

_CORRELATIONS = ("matthews", *metrics.CORRELATIONS)


def chance(predicted: Predicted, metric: str, units: int) -> float:
    """Half the width of the 95 % interval of a score that comes of guessing, as a fraction of 1; above 0.

    Of correlations, Matthews' among them, guesses have 1 / √(n − 1) as standard deviation, over all orders of the answers
    (Pitman 1937). Of all else it is the bootstrap interval of the best constant answer, and at least that of a share of 0 of n
    (metrics.noise): of entities and found spans no constant gets any. units: n, what is drawn for intervals.
    """
    if metric in _CORRELATIONS:
        return metrics.Z / math.sqrt(max(1, units - 1))
    least = metrics.noise(0.0, 0.0, units) / math.sqrt(2)
    statistic = _best_constant(predicted, metric)
    if statistic is None:
        return least
    groups, rows = predicted.groups, len(predicted.first)
    if predicted.kind == "tagging":
        lengths = np.diff(predicted.starts)
        groups = np.repeat(np.arange(len(lengths)) if groups is None else groups, lengths)
    found = bootstrap.intervals({metric: statistic}, rows, groups)[metric]
    return max(least, (found.high - found.low) / 2)


def _best_constant(predicted: Predicted, metric: str) -> Statistic | None:
    """The score of the one answer that is best for all: the most frequent label, of F1 the label it is of, of spans "no answer";
    None where there is none."""
    if predicted.kind == "span":
        lengths = pc.list_value_length(predicted.first["answers"])
        return mean((lengths.to_numpy() == 0).astype(np.float64))
    if metric not in WEIGHTED or predicted.kind in SCORED:
        return None
    names = pa.array(predicted.labels, pa.string())
    labels = pc.index_in(predicted.first["label"].cast(pa.string()), names).fill_null(-1).to_numpy()
    best = 1 if metric == "f1" else int(np.bincount(labels + 1).argmax()) - 1
    return WEIGHTED[metric](labels, np.full(len(labels), best))
