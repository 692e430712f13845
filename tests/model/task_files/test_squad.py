"""SQuAD's files, and answers that do not stand where they should."""

import json
from pathlib import Path
from typing import Any

import pytest

from model.task_files.squad import Question, place, read_squad
from pipeline.errors import DataError
from tests.conftest import shared


@pytest.mark.parametrize(
    ("text", "start", "found"),
    [
        ("Paris", 4, (4, "right")),
        ("Paris", 14, (14, "right")),  # the second one, as said
        ("Paris", 5, (None, "unplaced")),  # two of them: which?
        ("café", 0, (23, "repaired")),
        ("café", None, (23, "repaired")),
        ("café", -4, (23, "repaired")),  # never counted from the end
        ("Lyon", 4, (None, "unplaced")),
        ("", 3, (None, "unplaced")),
    ],
)
def test_where_an_answer_stands(text: str, start: int | None, found: tuple[int | None, str]) -> None:
    assert place("In  Paris and Paris: a café, 𝄞 too", text, start) == found


def test_overlapping_places_are_two() -> None:
    assert place("aaa", "aa", 9) == (None, "unplaced")


def test_places_are_characters_not_bytes_or_utf_16() -> None:
    assert place("𝄞é x", "x", 3) == (3, "right")


def file(tmp_path: Path, *qas: dict[str, Any], context: str = "Ada was here.") -> Path:
    path = tmp_path / "train.json"
    content = {"version": "x", "data": [{"title": "T", "paragraphs": [{"context": context, "qas": list(qas)}]}]}
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(content).encode())
    return path


def test_versions_1_and_2(tmp_path: Path) -> None:
    plain = {"id": "1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
    never = {"id": 2, "question": "Why?", "is_impossible": True, "answers": [], "plausible_answers": [{"text": "x"}]}
    open_ = {"id": "3", "question": "Where?"}
    at = "data[0].paragraphs[0].qas"
    assert list(read_squad(file(tmp_path, plain, never, open_))) == [
        Question(f"{at}[0]", "1", "Who?", "Ada was here.", "T", [("Ada", 0)], False),
        Question(f"{at}[1]", "2", "Why?", "Ada was here.", "T", [], True),
        Question(f"{at}[2]", "3", "Where?", "Ada was here.", "T", [], None),
    ]


@pytest.mark.parametrize(
    ("qa", "message"),
    [
        ({"id": "1", "answers": []}, r"data\[0\]\.paragraphs\[0\]\.qas\[0\]\.question is missing, not a str"),
        ({"id": "1", "question": "Q", "answers": {}}, r"qas\[0\]\.answers is dict, not a list"),
        ({"id": "1", "question": "Q", "answers": [{"text": 7}]}, r"qas\[0\]\.answers\[0\]\.text is int, not a str"),
        (
            {"id": "1", "question": "Q", "answers": [{"text": "a", "answer_start": "0"}]},
            "answer_start is str, not a int",
        ),
    ],
)
def test_what_is_not_of_the_form_is_named_with_its_place(tmp_path: Path, qa: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_squad(file(tmp_path, qa)))


@pytest.mark.parametrize("text", ["{", "[]", '{"data": 3}', "[" * 100_000])
def test_a_file_of_something_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"a\.json"):
        list(read_squad(path))


@pytest.mark.parametrize(
    ("name", "questions", "impossible"),
    [("dev-v1.1.json", 10_570, 0), ("dev-v2.0.json", 11_873, 5_945)],  # Rajpurkar et al. 2016; 2018, table 2
)
def test_the_dev_sets(name: str, questions: int, impossible: int) -> None:
    found = list(read_squad(shared(f"data/finetune/squad/{name}")))
    assert len(found) == questions == len({question.id for question in found})
    assert sum(bool(question.impossible) for question in found) == impossible
    for question in found:
        assert bool(question.answers) != question.impossible
        for text, start in question.answers:
            assert place(question.context, text, start) == (start, "right")
