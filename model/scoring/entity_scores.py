"""CoNLL column files: F1, precision and recall of entities, of all and by type, and the accuracy of tags."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model.reporting.bootstrap import Statistic
from model.reporting.weighted_metrics import ratio
from model.scoring.column_files import read_tagged, require_same_tokens
from model.scoring.entities import Counts, added, counts_by_type
from model.scoring.result import Entry, result
from model.scoring.text import named

Numbers = npt.NDArray[Any]


def scores_of_entities(types: Sequence[str], gold: Path, predictions: Path) -> dict[str, Any]:
    """Entities of the `types` only, where some are named; of any type else."""
    wanted, given = read_tagged(gold, types), read_tagged(predictions, types)
    require_same_tokens(gold, wanted, predictions, given)
    by_sentence = [counts_by_type(one.tags, other.tags) for one, other in zip(wanted, given, strict=True)]
    names = sorted({name for counts in by_sentence for name in counts})
    of_type = {name: [counts.get(name, Counts(0, 0, 0)) for counts in by_sentence] for name in names}
    of_all = [added(counts.values()) for counts in by_sentence]
    entries = _of_counts("", of_all)
    for name in names:
        entries += _of_counts(name, of_type[name])
    right = np.array([sum(map(str.__eq__, one.tags, other.tags)) for one, other in zip(wanted, given, strict=True)])
    tokens = np.array([len(sentence.words) for sentence in wanted])
    entries.append(
        Entry(
            metric="token_accuracy",
            part="",
            count=int(tokens.sum()),
            points=100 * float(right.sum() / tokens.sum()),
            statistic=lambda weights: ratio(weights @ right, weights @ tokens),
        )
    )
    notes = []
    total = added(of_all)
    if not total.predicted:
        notes.append("no entity is predicted")
    if strange := [name for name in names if not added(of_type[name]).gold]:
        notes.append(f"types that the gold file never has, counted as wrong: {named(strange)}")
    documents = np.array([sentence.document for sentence in wanted])
    return result(len(wanted), "sentences", entries, notes, ("documents", documents))


def _of_counts(part: str, counts: Sequence[Counts]) -> list[Entry]:
    """F1, precision and recall; `counts` by sentence."""
    total = added(counts)
    values = {"entity_f1": total.f1, "precision": total.precision, "recall": total.recall}
    statistics = entity_statistics(counts)
    return [Entry(name, part, total.gold, 100 * value, statistics[name]) for name, value in values.items()]


def entity_statistics(counts: Sequence[Counts]) -> dict[str, Statistic]:
    """`entity_f1`, `precision` and `recall` as functions of how often each sentence counts; `counts` by sentence."""
    gold, predicted, right = (
        np.array([getattr(each, side) for each in counts], dtype=np.float64) for side in ("gold", "predicted", "right")
    )
    return {
        "entity_f1": lambda weights: ratio(2 * (weights @ right), weights @ (gold + predicted)),
        "precision": lambda weights: ratio(weights @ right, weights @ predicted),
        "recall": lambda weights: ratio(weights @ right, weights @ gold),
    }
