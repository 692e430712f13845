"""SQuAD's scores: small cases by hand, and BERT's published predictions with the official scripts' results."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.scoring import squad_metrics
from model.scoring.command import score
from pipeline.errors import DataError
from tests.conftest import shared


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  U.S. owl's\tnest!", "us owls nest"),
        ("An apple a day, the Anthem", "apple day anthem"),
        ("— an—owl", "— —owl"),  # only ASCII punctuation goes, and an article ends where a word does
        ("a.n. the-ory", "theory"),  # punctuation goes before articles
        ("…the…", "… …"),
        ("A, an, THE!", ""),
        ("\u00a010,000\u3000", "10000"),
    ],
)
def test_normalised(text: str, expected: str) -> None:
    assert squad_metrics.normalised(text) == expected


@pytest.mark.parametrize(
    ("answers", "prediction", "exact", "f1"),
    [
        (["Denver Broncos"], "the denver broncos!", 1, 1),
        (["in the Santa Clara, California"], "Santa Clara", 0, 2 * 1 * 0.5 / 1.5),
        (["new york new york"], "New York", 0, 2 / 3),  # words count as often as they occur
        (["cat"], "dog", 0, 0),
        (["a big dog", "dog"], "dog", 1, 1),
        (["very big dog", "old cat"], "big old cat", 0, 0.8),  # 2 of 3 and 1 of 1 words: the better answer
    ],
)
@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_answers_that_both_versions_score_alike(
    version: str, answers: list[str], prediction: str, exact: float, f1: float
) -> None:
    score_of = {"1.1": squad_metrics.scores_1_1, "2.0": squad_metrics.scores_2_0}[version]
    assert score_of(answers, prediction) == (exact, pytest.approx(f1))


@pytest.mark.parametrize(
    ("answers", "prediction", "in_1_1", "in_2_0"),
    [
        (["the"], "", (1, 0), (1, 1)),  # no word in common: F1 0 in 1.1
        (["the", "dog"], "", (1, 0), (0, 0)),  # 2.0 drops "the", and "" is wrong
        (["...", "dog"], "dog", (1, 1), (1, 1)),
        (["?"], "an", (1, 0), (1, 1)),
        (["dog"], "", (0, 0), (0, 0)),
    ],
)
def test_answers_that_normalise_to_nothing(
    answers: list[str], prediction: str, in_1_1: tuple[int, int], in_2_0: tuple[int, int]
) -> None:
    assert squad_metrics.scores_1_1(answers, prediction) == in_1_1
    assert squad_metrics.scores_2_0(answers, prediction) == in_2_0


@pytest.mark.parametrize(("prediction", "points"), [("", 1), ("the", 1), ("dog", 0)])
def test_no_answer_wants_the_empty_string(prediction: str, points: int) -> None:
    assert squad_metrics.scores_2_0([], prediction) == (points, points)


class Files:
    """A small data set and what was predicted for it, as files."""

    def __init__(self, folder: Path, answers: dict[str, list[str]], predictions: Any, no_answer: Any = None) -> None:
        self.gold, self.predictions, self.no_answer = (folder / f"{name}.json" for name in ("gold", "pred", "na"))
        questions = [{"id": key, "answers": [{"text": text} for text in texts]} for key, texts in answers.items()]
        self.gold.write_text(json.dumps({"data": [{"paragraphs": [{"qas": questions}]}]}))
        self.predictions.write_text(json.dumps(predictions))
        self.no_answer.write_text(json.dumps(no_answer))

    def score(self, task: str = "squad2.0", no_answer: bool = False) -> dict[str, Any]:
        found = score(task, self.gold, self.predictions, self.no_answer if no_answer else None)
        assert found["notes"].pop().startswith("no official part of SQuAD"), "so few questions has none"
        return found

    def points(self, task: str = "squad2.0", no_answer: bool = False) -> dict[tuple[str, str], float]:
        return {(row["part"], row["metric"]): row["points"] for row in self.score(task, no_answer)["scores"]}


ANSWERS = {"q1": ["red dog"], "q2": [], "q3": ["blue"], "q4": []}


def test_a_question_without_a_prediction_scores_0_and_is_named(tmp_path: Path) -> None:
    files = Files(tmp_path, ANSWERS, {"q1": "red", "q2": "", "q3": "blue"})
    found = files.score()
    assert found["missing"] == ["q4"]
    assert found["notes"] == ["1 question has no prediction and scores 0: 'q4'"]
    points = files.points()
    assert points["", "f1"] == pytest.approx(100 * (2 / 3 + 1 + 1 + 0) / 4)
    assert points["", "exact_match"] == pytest.approx(100 * 2 / 4)
    assert points["has answer", "f1"] == pytest.approx(100 * (2 / 3 + 1) / 2)
    assert points["has answer", "exact_match"] == points["no answer", "exact_match"] == points["no answer", "f1"] == 50


def test_version_1_1_has_no_parts(tmp_path: Path) -> None:
    files = Files(tmp_path, {"q1": ["red dog"], "q2": ["blue", "dark blue"]}, {"q1": "red"})
    assert files.points("squad1.1") == {("", "f1"): pytest.approx(100 / 3), ("", "exact_match"): 0}


def test_thresholds_are_searched_as_in_the_official_script(tmp_path: Path) -> None:
    """One point for q2 at first; q1 adds 1, q3 half a point of F1, q2's answer takes its point away."""
    answers = {"q1": ["red"], "q2": [], "q3": ["dark blue sea"]}
    predictions = {"q1": "red", "q2": "x", "q3": "blue"}
    files = Files(tmp_path, answers, predictions, {"q3": 0.4, "q2": 0.9, "q1": 0.1})
    points, found = files.points(no_answer=True), files.score(no_answer=True)
    assert points["best threshold", "f1"] == pytest.approx(100 * 2.5 / 3)
    assert points["best threshold", "exact_match"] == pytest.approx(100 * 2 / 3)
    assert found["thresholds"] == {"f1": 0.4, "exact_match": 0.1}
    assert points["", "f1"] == pytest.approx(100 * 1.5 / 3), "no probability is above 1: predictions as they are"
    assert found["notes"] == []


def test_probabilities_above_1_are_no_answer(tmp_path: Path) -> None:
    files = Files(tmp_path, {"q1": ["red"], "q2": []}, {"q1": "red", "q2": "x"}, {"q1": 1.5, "q2": 1.0})
    points, found = files.points(no_answer=True), files.score(no_answer=True)
    assert (points["has answer", "f1"], points["no answer", "f1"]) == (0, 0), "q1 is above 1, q2 is not"
    assert found["notes"][-1].startswith("no-answer probabilities above 1, the official script's threshold: 1;")


@pytest.mark.parametrize(
    ("order", "best", "threshold", "notes"),
    [
        (("q1", "q2"), 100, 0.5, 2),  # the official search answers q1 and not q2, which no threshold does
        (("q2", "q1"), 50, 0.0, 0),
    ],
)
def test_equal_probabilities_are_taken_in_the_order_of_their_file(
    tmp_path: Path, order: tuple[str, str], best: float, threshold: float, notes: int
) -> None:
    files = Files(tmp_path, {"q1": ["red"], "q2": []}, {"q1": "red", "q2": "x"}, dict.fromkeys(order, 0.5))
    found = files.score(no_answer=True)
    assert files.points(no_answer=True)["best threshold", "f1"] == best
    assert found["thresholds"] == {"f1": threshold, "exact_match": threshold}
    assert len(found["notes"]) == notes
    assert all("reaches" in note and "50.0000" in note for note in found["notes"])


def test_a_search_that_answers_nothing_says_0_although_values_are_below(tmp_path: Path) -> None:
    """As in the official script; the prediction "the" of q3 is right by its score, but the search takes its point away."""
    answers: dict[str, list[str]] = {"q1": ["red"], "q2": [], "q3": []}
    files = Files(tmp_path, answers, {"q1": "x", "q2": "x", "q3": "the"}, {"q1": -3.0, "q2": -2.0, "q3": 0.5})
    found = files.score(no_answer=True)
    assert found["thresholds"] == {"f1": 0.0, "exact_match": 0.0}
    assert files.points(no_answer=True)["best threshold", "f1"] == pytest.approx(100 * 2 / 3)
    assert found["notes"][0].startswith("the threshold 0 reaches f1 33.3333, not the 66.6667")


def test_the_interval_of_the_best_threshold_searches_in_every_resample() -> None:
    """With weights (2, 0, 1) there is no unanswerable question: all are answered. With (0, 2, 0) only that one is left."""
    from model.scoring.squad_scores import _best

    has_answer, steps = np.array([True, False, True]), np.array([1.0, -1.0, 0.5])
    weights = np.array([[1.0, 1, 1], [2, 0, 1], [0, 2, 0]])
    assert _best(has_answer, steps, np.array([0, 2, 1]))(weights) == pytest.approx([2.5 / 3, 2.5 / 3, 1])


GOOD = {"q1": "red", "q2": "", "q3": "blue", "q4": ""}


@pytest.mark.parametrize(
    ("predictions", "said"),
    [
        ({**GOOD, "q5": "x"}, r"pred\.json: 1 id not in the gold file: 'q5'"),
        ({"a": "x"}, r"pred\.json: the gold file has 4 questions of other ids"),
        ({**GOOD, "q2": None}, r"pred\.json: the prediction of 'q2' is None, not a text"),
        ({**GOOD, "q2": ["red"]}, r"'q2' is \['red'\]"),
        ([GOOD], r"pred\.json holds a JSON list, not an object"),
        ({}, r"and none of these .0 ids."),
    ],
)
def test_predictions_that_are_refused(tmp_path: Path, predictions: Any, said: str) -> None:
    with pytest.raises(DataError, match=said) as refused:
        Files(tmp_path, ANSWERS, predictions).score()
    assert refused.value.todo


@pytest.mark.parametrize(
    ("no_answer", "said"),
    [
        ({"q1": 0.5}, r"na\.json: 3 questions without a no-answer probability: 'q2', 'q3', 'q4'"),
        ({**dict.fromkeys(GOOD, 0.5), "x": 1}, r"na\.json: 1 id not in the gold file: 'x'"),
        (dict.fromkeys(GOOD, float("nan")), r"'q1' is nan, not a finite number"),
        (dict.fromkeys(GOOD, True), r"'q1' is True"),
        (dict.fromkeys(GOOD, "0.5"), r"'q1' is '0\.5'"),
    ],
)
def test_no_answer_probabilities_that_are_refused(tmp_path: Path, no_answer: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Files(tmp_path, ANSWERS, GOOD, no_answer).score(no_answer=True)


def test_a_threshold_needs_every_prediction_and_squad_2_0(tmp_path: Path) -> None:
    files = Files(tmp_path, ANSWERS, {"q1": "red"}, dict.fromkeys(GOOD, 0.5))
    with pytest.raises(DataError, match=r"3 questions without a prediction: 'q2', 'q3', 'q4'"):
        files.score(no_answer=True)
    with pytest.raises(DataError, match=r"change nothing for squad1\.1"):
        files.score("squad1.1", no_answer=True)


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ('{"data": [}', r"gold\.json, line 1, column 11: no JSON"),
        ('{"data":\n [{"paragraphs": [{"qas": [{"id": "a"', r"gold\.json, line 2, column 38: no JSON"),
        ("", r"gold\.json is empty"),
        ("{}", r"gold\.json has not the form of SQuAD: data is missing, not a list"),
        (
            '{"data": [{"paragraphs": [{"qas": [{"id": "a"}]}]}]}',
            r"data\[0\]\.paragraphs\[0\]\.qas\[0\]\.answers is missing",
        ),
        ('{"data": [{"paragraphs": [{"qas": [{"id": 1, "answers": []}]}]}]}', r"qas\[0\]\.id is int, not a str"),
        ('{"data": 5}', "data is int, not a list"),
        ('{"data": []}', "holds no questions"),
        ('{"data": [], "data": []}', "'data' stands twice"),
        ("[" * 100_000, "can't be read as JSON|no JSON"),
    ],
)
def test_gold_files_that_are_refused(tmp_path: Path, gold: str, said: str) -> None:
    files = Files(tmp_path, ANSWERS, GOOD)
    files.gold.write_text(gold)
    with pytest.raises(DataError, match=said):
        files.score()


def test_questions_that_stand_twice_or_have_no_answer_in_1_1(tmp_path: Path) -> None:
    files = Files(tmp_path, ANSWERS, GOOD)
    with pytest.raises(DataError, match="'q2' has no answer, as in SQuAD 2.0"):
        files.score("squad1.1")
    files.gold.write_text(files.gold.read_text().replace('"q2"', '"q1"'))
    with pytest.raises(DataError, match="'q1' stands twice"):
        files.score()


def test_ids_of_predictions_that_stand_twice(tmp_path: Path) -> None:
    files = Files(tmp_path, ANSWERS, GOOD)
    files.predictions.write_text('{"q1": "a", "q2": "b", "q1": "c"}')
    with pytest.raises(DataError, match=r"pred\.json: the key 'q1' stands twice"):
        files.score()


@pytest.mark.parametrize(
    ("task", "gold", "predictions", "f1", "exact"),
    [
        ("squad1.1", "dev-v1.1.json", "predictions-bert-ensemble-v1.1.json", 92.1956, 86.2062),
        ("squad2.0", "dev-v2.0.json", "predictions-bert-single-v2.0.json", 81.7753, 78.7417),
    ],
)
def test_published_predictions_have_the_official_scores(
    task: str, gold: str, predictions: str, f1: float, exact: float
) -> None:
    folder = shared("data/finetune/squad")
    found = score(task, folder / gold, folder / predictions)
    rows = {(row["part"], row["metric"]): row for row in found["scores"]}
    assert round(rows["", "f1"]["points"], 4) == f1
    assert round(rows["", "exact_match"]["points"], 4) == exact
    assert found["missing"] == found["notes"] == []
    for row in found["scores"]:
        assert row["low"] < row["points"] < row["high"]
    assert found["interval"]["unit"] == "articles"
    if task == "squad2.0":  # as the official script breaks them down
        assert rows["has answer", "f1"]["points"] == pytest.approx(80.18183293833508, abs=1e-9)
        assert rows["has answer", "exact_match"]["points"] == pytest.approx(74.10593792172739, abs=1e-9)
        assert rows["no answer", "f1"]["points"] == pytest.approx(83.36417157275021, abs=1e-9)
