"""Submissions, line by line as the servers take them."""

import json

import pytest

from model.reporting.leaderboard import GLUE_FILES, glue_file, glue_submission, squad_file, squad_no_answer_file
from pipeline.errors import DataError
from tests.conftest import shared

# gluebenchmark.com/faq: names of the files of a submission
NAMES = {"AX", "CoLA", "MNLI-m", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI"}


def test_the_files_of_a_submission() -> None:
    assert {name for parts in GLUE_FILES.values() for name in parts.values()} == {f"{name}.tsv" for name in NAMES}


@pytest.mark.parametrize(
    ("task", "predictions", "rows"),
    [
        ("cola", ["acceptable", "unacceptable"], ["0\t1", "1\t0"]),
        ("sst2", ["negative", "positive"], ["0\t0", "1\t1"]),
        ("mrpc", ["equivalent", "not_equivalent"], ["0\t1", "1\t0"]),
        ("qqp", ["duplicate"], ["0\t1"]),
        ("wnli", ["entailment", "not_entailment"], ["0\t1", "1\t0"]),
        ("mnli", ["neutral", "contradiction", "entailment"], ["0\tneutral", "1\tcontradiction", "2\tentailment"]),
        ("qnli", ["not_entailment"], ["0\tnot_entailment"]),
        ("rte", ["entailment"], ["0\tentailment"]),
        ("ax", ["contradiction"], ["0\tcontradiction"]),
        ("stsb", [4.98765, -0.3, 5.2, 3, 0.0004], ["0\t4.988", "1\t0.000", "2\t5.000", "3\t3.000", "4\t0.000"]),
    ],
)
def test_lines_of_every_task(task: str, predictions: list[str] | list[float], rows: list[str]) -> None:
    assert glue_file(task, predictions) == "\n".join(["index\tprediction", *rows]) + "\n"


@pytest.mark.parametrize(
    ("task", "predictions", "message"),
    [
        ("cola", ["acceptable", "1"], "prediction 1 of cola is '1'"),
        ("rte", ["Entailment"], "prediction 0 of rte"),
        ("stsb", [float("nan")], "prediction 0 of stsb is nan, which is no number"),
        ("stsb", ["3.0"], "is no number"),
        ("squad1_1", ["x"], "no task of GLUE"),
    ],
)
def test_what_no_server_would_take(task: str, predictions: list[str] | list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        glue_file(task, predictions)


@pytest.mark.parametrize(
    ("folder", "task", "part", "file"),
    [
        ("CoLA", "cola", "test", "test.tsv"),
        ("RTE", "rte", "test", "test.tsv"),
        ("WNLI", "wnli", "test", "test.tsv"),
        ("STS-B", "stsb", "test", "test.tsv"),
        ("QNLI", "qnli", "test", "test.tsv"),
    ],
)
def test_the_index_is_that_of_the_official_test_file(folder: str, task: str, part: str, file: str) -> None:
    lines = shared(f"data/finetune/glue/{folder}/{file}").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    official = [line.split("\t")[0] for line in lines]
    one = {"cola": "acceptable", "stsb": 2.5}.get(task, "entailment")
    count = len(official) - 1
    (text,) = glue_submission({task: {part: [one] * count}}).values()  # type: ignore[list-item]
    assert [line.split("\t")[0] for line in text.removesuffix("\n").split("\n")] == official
    with pytest.raises(DataError, match=f"{count - 1:,} predictions, but the test set has {count:,}"):
        glue_submission({task: {part: [one] * (count - 1)}})  # type: ignore[list-item]


def test_both_parts_of_mnli_have_their_own_file_and_dev_has_none() -> None:
    parts = {"test": ["neutral"] * 9_796, "test_mismatched": ["neutral"] * 9_847}
    assert set(glue_submission({"mnli": parts})) == {"MNLI-m.tsv", "MNLI-mm.tsv"}
    with pytest.raises(DataError, match="dev of mnli is no part"):
        glue_submission({"mnli": {"dev": ["neutral"]}})


def test_answers_as_squads_script_reads_them() -> None:
    answers = {"56ddde6b": "Frânce\n", "56ddde6c": ""}
    assert json.loads(squad_file(answers)) == answers
    published = shared("data/finetune/squad/predictions-bert-single-v2.0.json")
    theirs = json.loads(published.read_text(encoding="utf-8"))
    assert json.loads(squad_file(theirs)) == theirs


def test_scores_of_no_answer() -> None:
    assert json.loads(squad_no_answer_file({"a": 0.25, "b": -3.5})) == {"a": 0.25, "b": -3.5}
    with pytest.raises(DataError, match="question b is inf"):
        squad_no_answer_file({"a": 0.25, "b": float("inf")})
