"""Single examples in the report: which seeds were right about each, and the ones that the published seed got most wrong."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.artifact import read_table
from model.reporting.isolated import isolated
from model.reporting.predicted import SCORED, Predicted, answers, exactly_right, right
from model.reporting.shown_numbers import decimal
from model.scoring.entities import entities
from pipeline.formats.iob import TAG

SHOWN = 10
CHARACTERS = 400
"""longer texts are cut where they are shown"""


def right_and_wrong(parts: Mapping[str, Predicted]) -> pa.Table:
    """A row for every example whose answer is known, of every part: part, example_id, answer, `right_seed_N` of every seed and
    n_right.

    right_seed_N: bool; of spans the F1 of the answer and of sentences the share of right words, float; n_right counts the
    seeds that were wholly right. Scores are never quite right: there `error_seed_N` (`predicted.right`) takes its place, and
    there is no n_right.
    """
    tables = []
    for part, predicted in parts.items():
        rows = len(predicted.starts) - 1
        columns: dict[str, Any] = {
            "part": pa.array([part] * rows, pa.string()),
            "example_id": pa.array(predicted.example_ids, pa.string()),
            "answer": answers(predicted),
        }
        whole = predicted.kind not in ("span", "tagging", *SCORED)
        name = "error" if predicted.kind in SCORED else "right"
        for seed in predicted.tables:
            found = right(predicted, seed)
            columns[f"{name}_seed_{seed}"] = pa.array(found == 1.0) if whole else pa.array(found, pa.float32())
        if name == "right":
            counts = np.sum([exactly_right(predicted, seed) for seed in predicted.tables], axis=0)
            columns["n_right"] = pa.array(counts, pa.int32())
        tables.append(pa.table(columns))
    return pa.concat_tables(tables, promote_options="default")


def worst(predicted: Predicted, seed: int, data: Path | None) -> list[dict[str, Any]]:
    """The examples that a seed got most wrong, at most SHOWN; of equal ones those first that most seeds got wrong.

    data: the part's file of the task's data, for the texts; None: not at hand. Each has example_id, texts, answer,
    prediction, how (wrong it is) and right_seeds.
    """
    found = right(predicted, seed)
    wrong = np.flatnonzero(found != 0) if predicted.kind in SCORED else np.flatnonzero(found < 1.0)
    others = np.sum([exactly_right(predicted, each) for each in predicted.tables], axis=0)
    chosen = sorted(wrong.tolist(), key=lambda at: (*_badness(predicted, seed, at, found), others[at], at))[:SHOWN]
    ids = predicted.example_ids
    texts = {} if data is None else _rows(data, {ids[at] for at in chosen})
    return [
        {
            "example_id": ids[at],
            **_shown(predicted, seed, at, texts.get(ids[at], {}), float(found[at])),
            "right_seeds": None if predicted.kind in SCORED else int(others[at]),
        }
        for at in chosen
    ]


def _badness(predicted: Predicted, seed: int, at: int, found: Any) -> tuple[float, ...]:
    """Sorts the worst first: the lowest F1 or share of words, the largest error, the greatest certainty in a wrong label."""
    if predicted.kind in ("span", "tagging"):
        return (float(found[at]),)
    if predicted.kind in SCORED:
        return (-abs(float(found[at])),)
    return (-_certainty(predicted, seed, at),)


def _certainty(predicted: Predicted, seed: int, at: int) -> float:
    """The probability of the predicted label."""
    table = predicted.tables[seed]
    column = f"p_{table['prediction'][at].as_py()}"
    return float(table[column][at].as_py() or 0.0) if column in table.column_names else 0.0


def _rows(path: Path, ids: set[str]) -> dict[str, dict[str, Any]]:
    table = read_table(path)
    chosen = table.filter(pc.is_in(table["example_id"], pa.array(sorted(ids), pa.string())))
    return {row["example_id"]: row for row in chosen.to_pylist()}


# ── how one is shown, by kind ────────────────────────────────────────────────────────────────────────────────────────


def _shown(predicted: Predicted, seed: int, at: int, row: Mapping[str, Any], found: float) -> dict[str, Any]:
    """texts, answer, prediction and how, as texts."""
    table = predicted.tables[seed]
    match predicted.kind:
        case "span":
            given = table["prediction"][at].as_py()
            gold = table["answers"][at].as_py()
            return {
                "texts": _cut([row.get("question")]),
                "answer": " · ".join(map(isolated, _cut(dict.fromkeys(gold)))) or "no answer",
                "prediction": "".join(_cut([given])) or "no answer",
                "how": f"F1 {100 * found:.0f}",
            }
        case "tagging":
            first, end = predicted.starts[at : at + 2].tolist()
            words, gold, given = (table[name][first:end].to_pylist() for name in ("word", "label", "prediction"))
            return {
                "texts": _cut([" ".join(words)]),
                "answer": _tagged(words, gold),
                "prediction": _tagged(words, given),
                "how": f"{100 * found:.0f} % of words right",
            }
        case "regression" | "sentence_similarity":
            of_ranks = "" if predicted.kind == "regression" else " of the ranking"
            return {
                "texts": _cut([row.get("text_a"), row.get("text_b")]),
                "answer": decimal(table["label"][at].as_py(), 2),
                "prediction": decimal(table["prediction"][at].as_py(), 2),
                "how": f"off by {found:+.2f}{of_ranks}".replace("-", "−"),
            }
    answer, prediction = str(table["label"][at].as_py()), str(table["prediction"][at].as_py())
    if choices := row.get("choices"):
        answer, prediction = (
            f"{number}: {isolated(''.join(_cut([choices[int(number)]])))}" for number in (answer, prediction)
        )
    return {
        "texts": _cut([row.get("text_a"), row.get("text_b")]),
        "answer": answer,
        "prediction": prediction,
        "how": f"{100 * _certainty(predicted, seed, at):.0f} % sure",
    }


def _cut(texts: Any) -> list[str]:
    """Those that are there, each on one line and not too long."""
    lines = [" ".join(text.split()) for text in texts if text]
    return [line if len(line) <= CHARACTERS else f"{line[:CHARACTERS]}…" for line in lines]


def _tagged(words: list[str], tags: list[str]) -> str:
    """Entities with their types; tags that are none, as they are."""
    if not all(TAG.fullmatch(tag) for tag in tags):
        return "".join(_cut([" ".join(tags)]))
    found = entities(tags)
    shown = [f"{isolated(' '.join(words[entity.start : entity.end]))} ({isolated(entity.type)})" for entity in found]
    return "".join(_cut([" · ".join(shown)])) or "no entity"
