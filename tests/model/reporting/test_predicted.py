"""Scores of published predictions in resamples, against scipy's bootstrap, scikit-learn, hand calculation and `bert score`."""

import json
import math
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from model.reporting.predicted import Predicted, _entities, answers, exactly_right, read_predicted, resampled, right
from model.scoring.command import score
from pipeline.errors import DataError
from tests.model import made_up


def table(**columns: Any) -> pa.Table:
    count = len(next(iter(columns.values())))
    return pa.table({"example_id": [f"dev:{number}" for number in range(count)], **columns})


def binary(examples: int, seeds: int, share: float = 0.8) -> tuple[Predicted, np.ndarray, list[np.ndarray]]:
    random = np.random.default_rng(1)
    labels = random.integers(0, 2, examples)
    guesses = [np.where(random.random(examples) < share, labels, 1 - labels) for _ in range(seeds)]
    names = np.array(["no", "yes"], dtype=object)
    tables = {42 + n: table(label=names[labels], prediction=names[each]) for n, each in enumerate(guesses)}
    return Predicted("classification", ("no", "yes"), tables), labels, guesses


@pytest.mark.parametrize(
    ("metric", "theirs"),
    [
        ("accuracy", lambda labels, guesses: np.mean(labels == guesses)),
        ("f1", f1_score),
        ("matthews", matthews_corrcoef),
    ],
)
def test_the_interval_of_the_median_of_three_seeds_is_that_of_scipy(metric: str, theirs: Any) -> None:
    """scipy.stats.bootstrap, other random numbers. Tolerance: 20 % of the width; two quantiles of 1,000 resamples each err by
    0.084 standard deviations, which are a quarter of the width."""
    predicted, labels, guesses = binary(400, 3)

    def median(*columns: np.ndarray) -> float:
        return float(np.median([theirs(columns[0], each) for each in columns[1:]]))

    found = stats.bootstrap(
        (labels, *guesses),
        median,
        paired=True,
        vectorized=False,
        n_resamples=1000,
        method="percentile",
        rng=np.random.default_rng(5),
    ).confidence_interval
    ours = resampled(predicted, [metric])[metric]
    tolerance = 0.2 * (found.high - found.low)
    assert ours.interval == (pytest.approx(found.low, abs=tolerance), pytest.approx(found.high, abs=tolerance))
    assert ours.drawn == 400


def test_the_median_of_seeds_moves_less_than_one_seed() -> None:
    """Seeds that err independently: the median of nine is a better measure, and its interval narrower."""
    one, _, _ = binary(1000, 1)
    nine, _, _ = binary(1000, 9)
    low, high = resampled(one, ["accuracy"])["accuracy"].interval
    narrow = resampled(nine, ["accuracy"])["accuracy"].interval
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(0.8 * 0.2 / 1000), rel=0.2)
    assert narrow[1] - narrow[0] < 0.6 * (high - low)


def test_spearman_of_scores_is_that_of_scipy() -> None:
    random = np.random.default_rng(2)
    truth = random.uniform(0, 5, 500)
    given = (truth + random.normal(0, 1, 500)).astype(np.float32)
    predicted = Predicted("regression", (), {42: table(label=truth, prediction=given)})
    low, high = resampled(predicted, ["spearman"])["spearman"].interval
    rho = stats.spearmanr(truth, given).statistic
    # Bonett and Wright 2000: (1 − r²)·√((1 + r²/2)/n); 20 % for the shape and the resamples
    width = 2 * 1.96 * (1 - rho**2) * math.sqrt((1 + rho**2 / 2) / 500)
    assert low < rho < high
    assert high - low == pytest.approx(width, rel=0.2)
    assert right(predicted, 42) == pytest.approx(given - truth)
    assert not exactly_right(predicted, 42).any()


def test_squad_has_the_interval_of_bert_score(tmp_path: Path) -> None:
    """One seed, 30 articles of 25 questions: the same articles are drawn, so the ends are the same numbers."""
    folder = made_up.spans(tmp_path, "squad1_1", "SQuAD 1.1", (0.7,), 750)
    predicted = read_predicted(folder, "dev", [42], "span", [], tmp_path / "task_data_squad1_1")
    rows = pq.read_table(tmp_path / "task_data_squad1_1" / "dev.parquet").to_pylist()
    golds = predicted.first["answers"].to_pylist()
    articles: dict[str, list[Any]] = {}
    for row, gold in zip(rows, golds, strict=True):
        found = [{"text": text, "answer_start": 0} for text in gold]
        entry = {"id": row["example_id"], "question": row["question"], "answers": found}
        articles.setdefault(row["title"], []).append({"context": row["context"], "qas": [entry]})
    data = [{"title": title, "paragraphs": paragraphs} for title, paragraphs in articles.items()]
    (tmp_path / "dev.json").write_text(json.dumps({"version": "1.1", "data": data}))
    ids, given = (predicted.first[name].to_pylist() for name in ("example_id", "prediction"))
    (tmp_path / "predictions.json").write_text(json.dumps(dict(zip(ids, given, strict=True))))
    theirs = {
        row["metric"]: row for row in score("squad1.1", tmp_path / "dev.json", tmp_path / "predictions.json")["scores"]
    }
    ours = resampled(predicted, ["f1", "exact_match"])
    assert (ours["f1"].drawn, predicted.unit) == (30, "articles")
    for name, found in ours.items():
        assert 100 * np.array(found.interval) == pytest.approx([theirs[name]["low"], theirs[name]["high"]])


def test_entities_have_the_interval_of_bert_score(tmp_path: Path) -> None:
    folder = made_up.tags(tmp_path, "people", "People", (0.9,), {"dev": 120})
    predicted = read_predicted(folder, "dev", [42], "tagging", made_up_labels(folder), None)
    lines: dict[str, list[str]] = {"label": [], "prediction": []}
    rows = predicted.first.to_pylist()
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        for name, written in lines.items():
            written.append(f"{row['word']} {row[name]}")
            if after is None or after["example_id"] != row["example_id"]:
                written.append("")
    for name, written in lines.items():
        (tmp_path / name).write_text("\n".join(written) + "\n")
    theirs = {
        row["metric"]: row
        for row in score("ner", tmp_path / "label", tmp_path / "prediction")["scores"]
        if not row["part"]
    }
    names = ("entity_f1", "precision", "recall", "accuracy")
    ours = resampled(predicted, names)
    assert list(ours) and predicted.unit == "sentences"
    for name in names[:3]:
        assert 100 * np.array(ours[name].interval) == pytest.approx([theirs[name]["low"], theirs[name]["high"]])
    words = theirs["token_accuracy"]
    assert 100 * np.array(ours["accuracy"].interval) == pytest.approx([words["low"], words["high"]])
    assert ours["accuracy"].drawn == 120  # sentences, not words


def made_up_labels(folder: Path) -> list[str]:
    return list(json.loads((folder / "scores.json").read_text())["labels"])


def test_words_are_read_as_sentences() -> None:
    """By hand: of 2 entities, seed 0 predicts 3, one of them right (F1 2/5), seed 1 predicts 2, one right (2/4)."""
    gold = [["B-PER", "I-PER", "O"], ["O", "B-LOC", "O", "O"], ["O", "O"]]
    seeds = [
        [["B-PER", "I-PER", "O"], ["O", "B-PER", "O", "B-LOC"], ["O", "O"]],
        [["B-PER", "O", "O"], ["O", "B-LOC", "O", "O"], ["O", "O"]],
    ]
    ids = [f"s{number}" for number, sentence in enumerate(gold) for _ in sentence]
    tables = {
        seed: pa.table({"example_id": ids, "label": [*chain(*gold)], "prediction": [*chain(*given)]})
        for seed, given in enumerate(seeds)
    }
    predicted = Predicted("tagging", ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"), tables)
    assert _entities(predicted)["entity_f1"](np.ones((1, 3)))[0] == pytest.approx((2 / 5 + 2 / 4) / 2)
    assert predicted.example_ids == ["s0", "s1", "s2"]
    assert right(predicted, 0).tolist() == [1.0, 0.5, 1.0]
    assert exactly_right(predicted, 1).tolist() == [False, True, True]
    assert answers(predicted).to_pylist() == gold


def test_rows_without_an_answer_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "predictions").mkdir()
    pq.write_table(
        table(label=["yes", None, "no"], prediction=["yes"] * 3), tmp_path / "predictions/dev-seed-1.parquet"
    )
    found = read_predicted(tmp_path, "dev", [1], "classification", ["no", "yes"], None)
    assert found.example_ids == ["dev:0", "dev:2"]
    assert right(found, 1).tolist() == [1.0, 0.0]


def test_predictions_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "predictions").mkdir()
    pq.write_table(table(label=["yes"], prediction=["yes"]), tmp_path / "predictions/dev-seed-1.parquet")
    with pytest.raises(DataError, match="dev-seed-2.parquet can't be read"):
        read_predicted(tmp_path, "dev", [1, 2], "classification", ["no", "yes"], None)
    other = table(label=["yes", "no"], prediction=["yes", "no"])
    pq.write_table(other, tmp_path / "predictions/dev-seed-2.parquet")
    with pytest.raises(DataError, match="seed 2 predicted other examples of dev than seed 1"):
        read_predicted(tmp_path, "dev", [1, 2], "classification", ["no", "yes"], None)
