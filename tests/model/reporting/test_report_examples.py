"""Right and wrong per example, and the examples that are shown."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.reporting.predicted import Predicted, read_predicted
from model.reporting.report_examples import CHARACTERS, right_and_wrong, worst


def labels() -> Predicted:
    ids = ["dev:1", "dev:2", "dev:3", "dev:4"]

    def seed(given: list[str], sure: list[float]) -> pa.Table:
        no = [p if label == "no" else 1 - p for p, label in zip(sure, given, strict=True)]
        columns: dict[str, Any] = {"label": ["no", "yes", "no", "yes"], "prediction": given}
        return pa.table({"example_id": ids, **columns, "p_no": no, "p_yes": [1 - p for p in no]})

    tables = {
        42: seed(["no", "no", "yes", "yes"], [0.9, 0.6, 0.8, 0.7]),
        43: seed(["no", "no", "no", "no"], [0.9] * 4),
    }
    return Predicted("pair_classification", ("no", "yes"), tables)


def test_labels(tmp_path: Path) -> None:
    found = right_and_wrong({"dev": labels()}).to_pylist()
    assert found == [
        {**row, "part": "dev", "example_id": f"dev:{number}"}
        for number, row in enumerate(
            [
                {"answer": "no", "right_seed_42": True, "right_seed_43": True, "n_right": 2},
                {"answer": "yes", "right_seed_42": False, "right_seed_43": False, "n_right": 0},
                {"answer": "no", "right_seed_42": False, "right_seed_43": True, "n_right": 1},
                {"answer": "yes", "right_seed_42": True, "right_seed_43": False, "n_right": 1},
            ],
            1,
        )
    ]
    rows = [{"example_id": f"dev:{n}", "text_a": f"first  {n}", "text_b": "x" * 1000, "label": 0} for n in range(1, 5)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "dev.parquet")
    surest, other = worst(labels(), 42, tmp_path / "dev.parquet")
    assert surest == {
        "example_id": "dev:3",
        "texts": ["first 3", "x" * CHARACTERS + "…"],
        "answer": "no",
        "prediction": "yes",
        "how": "80 % sure",
        "right_seeds": 1,
    }
    assert (other["example_id"], other["right_seeds"]) == ("dev:2", 0)
    assert worst(labels(), 42, None)[0]["texts"] == []


def test_choices_are_shown_with_their_texts(tmp_path: Path) -> None:
    columns = {"example_id": ["dev:1"], "label": ["2"], "prediction": ["0"], "p_0": [0.75], "p_1": [0.05], "p_2": [0.2]}
    row = {"example_id": "dev:1", "text_a": "She opens", "choices": ["a fire", "a cloud", "the door"], "label": 2}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "dev.parquet")
    predicted = Predicted("multiple_choice", ("0", "1", "2"), {1: pa.table(columns)})
    (found,) = worst(predicted, 1, tmp_path / "dev.parquet")
    assert (found["texts"], found["answer"], found["prediction"]) == (["She opens"], "2: the door", "0: a fire")


def test_spans(tmp_path: Path) -> None:
    (tmp_path / "predictions").mkdir()
    columns = {
        "example_id": ["a", "b", "c", "d"],
        "answers": [["in 1901", "1901"], ["Oslo"], [], ["hidden"]],
        "prediction": ["1901", "Oslo and Bergen", "Rome", "?"],
        "exact_match": [1.0, 0.0, 0.0, None],
        "f1": [1.0, 0.5, 0.0, None],
    }
    pq.write_table(pa.table(columns), tmp_path / "predictions" / "dev-seed-42.parquet")
    rows = [{"example_id": name, "question": f"{name}?", "title": "T"} for name in "abcd"]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "dev.parquet")
    predicted = read_predicted(tmp_path, "dev", [42], "span", [], tmp_path)
    assert predicted.groups is None  # one article is too few to be drawn
    found = right_and_wrong({"dev": predicted}).to_pylist()
    assert [(row["answer"], row["right_seed_42"], row["n_right"]) for row in found] == [
        (["in 1901", "1901"], 1.0, 1),
        (["Oslo"], 0.5, 0),
        ([], 0.0, 0),
    ]
    shown = worst(predicted, 42, tmp_path / "dev.parquet")
    assert [(row["texts"], row["answer"], row["prediction"], row["how"]) for row in shown] == [
        (["c?"], "no answer", "Rome", "F1 0"),
        (["b?"], "Oslo", "Oslo and Bergen", "F1 50"),
    ]


def test_tags_and_scores() -> None:
    words = {"word": ["Ann", "Lee", "left", "Rome"], "label": ["B-PER", "I-PER", "O", "B-LOC"]}
    columns = {"example_id": ["s"] * 4, **words, "prediction": ["B-PER", "O", "O", "B-LOC"]}
    tagged = Predicted("tagging", ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"), {1: pa.table(columns)})
    (found,) = worst(tagged, 1, None)
    assert (found["answer"], found["prediction"]) == ("Ann Lee (PER) · Rome (LOC)", "Ann (PER) · Rome (LOC)")
    assert (found["texts"], found["how"]) == (["Ann Lee left Rome"], "75 % of words right")
    (row,) = right_and_wrong({"dev": tagged}).to_pylist()
    assert (row["answer"], row["right_seed_1"], row["n_right"]) == (words["label"], 0.75, 0)

    given = pa.table({"example_id": ["a", "b"], "label": [4.0, 1.0], "prediction": [3.5, 3.0]})
    scored = Predicted("regression", (), {1: given})
    assert [row["error_seed_1"] for row in right_and_wrong({"dev": scored}).to_pylist()] == [-0.5, 2.0]
    assert "n_right" not in right_and_wrong({"dev": scored}).column_names
    assert [(row["example_id"], row["how"]) for row in worst(scored, 1, None)] == [
        ("b", "off by +2.00"),
        ("a", "off by −0.50"),
    ]


def test_similarity_is_wrong_by_ranks() -> None:
    """Cosines and scores of 0 to 5 have no difference; their ranks have: of four examples the first and the last change places."""
    given = pa.table({"example_id": [*"abcd"], "label": [0.0, 2.0, 3.0, 5.0], "prediction": [0.9, 0.5, 0.6, 0.1]})
    predicted = Predicted("sentence_similarity", (), {1: given})
    assert [row["error_seed_1"] for row in right_and_wrong({"dev": predicted}).to_pylist()] == [1.0, 0.0, 0.0, -1.0]
    assert [(row["example_id"], row["how"]) for row in worst(predicted, 1, None)] == [
        ("a", "off by +1.00 of the ranking"),
        ("d", "off by −1.00 of the ranking"),
    ]
