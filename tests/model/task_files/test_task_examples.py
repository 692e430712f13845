"""Examples out of the files that people have: every kind of task, every format."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model.task_files.task_examples import Counted, File, read_examples
from pipeline.config import TaskForm
from pipeline.errors import DataError


def read(path: Path, part: str = "train", official: bool = False, **form: Any) -> tuple[list[tuple[Any, ...]], Counted]:
    """([(example_id, values, label)], what was counted) of a file."""
    counted = Counted()
    found = read_examples(File(part, path, TaskForm.model_validate(form), official=official), counted)
    return [(each.example_id, dict(each.values), each.label) for each in found], counted


def file(tmp_path: Path, name: str, data: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def jsonl(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    return file(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def parquet(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def one(values: dict[str, Any]) -> list[Any]:
    return list(values.values())


# ── lines as GLUE's files have them ──────────────────────────────────────────────────────────────────────────────────

GLUE = {"kind": "pair_classification", "text": "s1", "text_b": "s2", "quotes": False}


def test_quotes_mean_nothing_and_only_line_feeds_end_lines(tmp_path: Path) -> None:
    data = '\ufeffindex\ts1\ts2\tlabel\r\n0\t"So he\tsaid ""no"\tyes\r\n\r\n1\tone\u2028\x85\x0btwo\t \'"\tno\n2\t a \tb\tyes'
    rows, counted = read(file(tmp_path, "train.tsv", data), **GLUE)
    assert rows == [
        ("train:1", {"text_a": '"So he', "text_b": 'said ""no"'}, "yes"),
        ("train:2", {"text_a": "one\u2028\x85\x0btwo", "text_b": " '\""}, "no"),
        ("train:3", {"text_a": " a ", "text_b": "b"}, "yes"),
    ]
    assert counted.read == {"train": 3}


def test_a_tab_inside_a_text_that_stands_last_belongs_to_it(tmp_path: Path) -> None:
    data = "gj04\t0\t*\tOne\ttwo\tthree.\n"
    form = {"header": ("source", "label", "mark", "text"), "quotes": False}
    assert read(file(tmp_path, "train.tsv", data), **form)[0] == [
        ("train:1", {"text_a": "One\ttwo\tthree.", "text_b": None}, "0")
    ]


BROKEN = "s1\ts2\tlabel\na\tb\tyes\nc\tthe text goes on\nhere\tno\nd\te\tf\tyes\ng\th\tno\n"


def test_malformed_lines_of_a_public_task_are_counted_and_those_of_ones_own_named(tmp_path: Path) -> None:
    path = file(tmp_path, "train.tsv", BROKEN)
    rows, counted = read(path, official=True, **GLUE)
    assert [row[0] for row in rows] == ["train:1", "train:5"]
    assert counted.dropped == {"train: malformed record": 3}
    with pytest.raises(DataError, match=r"train\.tsv, line 3: not 3 values"):
        read(path, **GLUE)
    with pytest.raises(DataError, match="line 3"):  # a test file's lines count by their place
        read(path, part="test", official=True, **GLUE)


def test_an_official_test_example_is_never_dropped(tmp_path: Path) -> None:
    path = file(tmp_path, "test.tsv", "s1\ts2\tlabel\n\tb\tyes\nc\td\t\n")
    rows, counted = read(path, part="test", official=True, **GLUE)
    assert [(one(values), label) for _, values, label in rows] == [(["", "b"], "yes"), (["c", "d"], None)]
    rows, counted = read(path, part="test", **GLUE)
    assert ([label for _, _, label in rows], counted.dropped) == ([None], {"test: empty text": 1})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"s1\ts2\tlabel\nM\xfcller\tb\tyes\n", "line 2: not UTF-8"),
        (b"s1\ts2\ts1\n", "line 1: column 's1' is named twice"),
        (b"", "no line of column names"),
        (b"s1\tlabel\n", "no column 's2'; it has 's1', 'label'"),
    ],
)
def test_files_that_can_not_be_read(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(file(tmp_path, "train.tsv", data), **GLUE)


# ── formats ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def quoted(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    lines = [",".join(rows[0]), *(",".join(f'"{value}"' for value in row.values()) for row in rows)]
    return file(tmp_path, "a.csv", "\n".join(lines) + "\n")


@pytest.mark.parametrize("write", [quoted, jsonl, parquet])
def test_one_task_in_every_format(tmp_path: Path, write: Callable[..., Path]) -> None:
    path = write(tmp_path, {"text": "Éins", "text_b": "b", "label": 1}, {"text": "two", "text_b": "c", "label": 0})
    assert read(path, kind="pair_classification")[0] == [
        ("train:1", {"text_a": "Éins", "text_b": "b"}, "1"),
        ("train:2", {"text_a": "two", "text_b": "c"}, "0"),
    ]


def test_a_table_without_a_line_of_names(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", '"one, two",x\nthree,y\n')
    rows, _ = read(path, header=("text", "label"))
    assert [(values["text_a"], label) for _, values, label in rows] == [("one, two", "x"), ("three", "y")]


@pytest.mark.parametrize(
    ("name", "first", "more"),
    [
        ("a.csv", "text,label", {}),
        ("a.csv", '"Text", LABEL', {}),
        ("a.tsv", "text\tlabel", {}),
        ("a.tsv", "text\tlabel", {"quotes": False}),
    ],
)
def test_a_line_of_names_is_no_example_though_header_has_them_too(
    tmp_path: Path, name: str, first: str, more: dict[str, Any]
) -> None:
    between = "\t" if name == "a.tsv" else ","
    path = file(tmp_path, name, f"{first}\none{between}x\ntext{between}label\n")
    rows, counted = read(path, header=("text", "label"), **more)
    assert [(values["text_a"], label) for _, values, label in rows] == [("one", "x"), ("text", "label")]
    assert counted.read == {"train": 2}
    assert counted.notes == ["line 1 of train names the columns as `header` does: it is no example"]


def test_a_line_of_names_in_another_order_than_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"a\.csv, line 1: a line of names, 'label', 'text', in another.*\n.*Remove `header`"
    ):
        read(file(tmp_path, "a.csv", "label,text\nx,one\n"), header=("text", "label"))


@pytest.mark.parametrize("blank", ["", "\n"])
def test_a_line_of_names_of_a_column_file_is_no_word(tmp_path: Path, blank: str) -> None:
    path = file(tmp_path, "a.conll", f"word pos tag\n{blank}Ada NNP B-PER\nmet VBD O\n\nBo NNP B-PER\n")
    form = {"kind": "tagging", "header": ("word", "pos", "tag"), "words": "word", "tags": "tag"}
    rows, counted = read(path, **form)
    assert [(values["words"], tags) for _, values, tags in rows] == [
        (["Ada", "met"], ["B-PER", "O"]),
        (["Bo"], ["B-PER"]),
    ]
    assert counted.read == {"train": 2} and len(counted.notes) == 1
    with pytest.raises(DataError, match="line 1: a line of names, 'pos', 'word'"):
        read(path, kind="tagging", header=("pos", "word", "tag"), words="word", tags="pos")


def test_labels_of_other_types(tmp_path: Path) -> None:
    path = jsonl(tmp_path, *({"text": "a", "label": label} for label in (True, False, 3, 2.0, 0.5, " x ")))
    assert [label for _, _, label in read(path)[0]] == ["true", "false", "3", "2", "0.5", "x"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a"}, "line 1: no 'label'; there is 'text'"),
        ({"label": "a"}, "line 1: no 'text'; there is 'label'"),
        ({"text": ["a"], "label": "x"}, "text is no text but list"),
        ({"text": "\ud800", "label": "x"}, "half of a surrogate pair"),
    ],
)
def test_values_that_can_not_be(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(jsonl(tmp_path, row))


def test_null_is_no_text_and_no_label(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"text": None, "label": "x"}, {"text": "a", "label": None})
    assert read(path)[1].dropped == {"train: empty text": 1, "train: empty label": 1}
    assert read(path, part="test")[0] == [("test:2", {"text_a": "a", "text_b": None}, None)]


def test_broken_json_and_parquet(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: broken line"):
        read(file(tmp_path, "a.jsonl", '{"text": "a", "label": "x"}\n{"text"\n'))
    with pytest.raises(DataError, match=r"a\.parquet can't be read as Parquet"):
        read(file(tmp_path, "a.parquet", b"PAR1"))
    with pytest.raises(DataError, match="is not a table that can be read"):
        read(file(tmp_path, "a.doc", b"text"))


# ── kinds ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_scores_are_numbers(tmp_path: Path) -> None:
    rows, _ = read(file(tmp_path, "a.csv", "text,label\na,5.000\nb,-1e-1\n"), kind="regression")
    assert [(one(values), label) for _, values, label in rows] == [(["a", None], 5.0), (["b", None], -0.1)]
    for bad in ("nan", "inf", "high"):
        with pytest.raises(DataError, match=f"line 2: label is '{bad}', which is no number"):
            read(file(tmp_path, "a.csv", f"text,label\na,{bad}\n"), kind="regression")


CHOICES = {"kind": "multiple_choice", "text": "sent1", "choice_start": "sent2", "choices": ("e0", "e1")}


def test_choices_of_columns_and_of_lists(tmp_path: Path) -> None:
    """SWAG: sentence A, and for B the beginning of the second sentence with each ending (Devlin et al. 2019, section 4.4)."""
    path = file(tmp_path, "a.csv", 'sent1,sent2,e0,e1,label\nHe sits.,She,"stands, too.",sleeps.,1\n')
    expected = {"text_a": "He sits.", "choices": ["She stands, too.", "She sleeps."]}
    assert read(path, **CHOICES)[0] == [("train:1", expected, 1)]
    lists = jsonl(tmp_path, {"q": "2 + 2?", "options": ["3", "4", "5"], "answer": 1})
    form = {"kind": "multiple_choice", "text": "q", "choices": ("options",), "label": "answer"}
    assert read(lists, **form)[0] == [("train:1", {"text_a": "2 + 2?", "choices": ["3", "4", "5"]}, 1)]
    for wrong, message in ((3, "it must be the number of the right choice, 0 to 2"), ("4", "0 to 2")):
        with pytest.raises(DataError, match=message):
            read(jsonl(tmp_path, {"q": "2 + 2?", "options": ["3", "4", "5"], "answer": wrong}), **form)


def test_tags_of_tables(tmp_path: Path) -> None:
    path = parquet(tmp_path, {"words": ["Ada", "ran"], "tags": [1, 0]}, {"words": [], "tags": []})
    rows, counted = read(path, kind="tagging", labels=("O", "B-PER"))
    assert rows == [("train:1", {"words": ["Ada", "ran"], "document_id": None}, ["B-PER", "O"])]
    assert counted.dropped == {"train: empty text": 1}
    with pytest.raises(DataError, match="no list of 2 tags, one for each word"):
        read(jsonl(tmp_path, {"words": ["Ada", "ran"], "tags": ["O"]}), kind="tagging")
    with pytest.raises(DataError, match="tags holds 2, but there are 2 labels"):
        read(jsonl(tmp_path, {"words": ["Ada"], "tags": [2]}), kind="tagging", labels=("O", "B-PER"))


def test_columns_of_a_column_file_by_name(tmp_path: Path) -> None:
    path = file(tmp_path, "eng.train", "EU NNP I-NP I-ORG\n\n")
    form = {"kind": "tagging", "header": ("word", "pos", "chunk", "ner"), "words": "word"}
    assert read(path, **form, tags="pos")[0][0][2] == ["NNP"]
    assert read(path, kind="tagging")[0][0][2] == ["I-ORG"]
    with pytest.raises(DataError, match="`header` of eng.train names no column 'tags'; it has word, pos, chunk, ner"):
        read(path, **form)


SQUAD = {"context": "Ada met Bo and Bo.", "question": "Who?"}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"text": ["Ada"], "answer_start": [0]}, [{"text": "Ada", "start": 0}]),
        ([{"text": "Bo", "answer_start": 15}, {"text": "Ada", "start": 0}], [("Bo", 15), ("Ada", 0)]),
        ("met", [{"text": "met", "start": 4}]),  # it stands there once
        ([], []),
    ],
)
def test_answers_of_tables(tmp_path: Path, answers: Any, expected: list[Any]) -> None:
    ((example_id, values, label),), _ = read(jsonl(tmp_path, SQUAD | {"id": "q7", "answers": answers}), kind="span")
    assert (example_id, label) == ("q7", None)
    assert values["answers"] == [each if isinstance(each, dict) else dict(zip(("text", "start"), each, strict=True)) for each in expected]  # fmt: skip
    assert values["impossible"] is not bool(expected)


def test_ids_that_two_questions_have_are_named_with_file_and_line(tmp_path: Path) -> None:
    rows = [SQUAD | {"id": id_, "answers": [{"text": "Ada"}]} for id_ in ("a", "b", "a", "c", "b", "a", "d")]
    message = r"a\.jsonl: 2 ids are not of one question only: 'a' \(line 1, line 3, line 6\), 'b' \(line 2, line 5\)\n"
    with pytest.raises(DataError, match=message):
        read(jsonl(tmp_path, *rows), kind="span")
    assert len(read(jsonl(tmp_path, *rows), kind="span", id="number")[0]) == 7, "without ids they are numbered"
    qas = [{"id": "x", "question": f"Who {n}?", "answers": [{"text": "Ada", "answer_start": 0}]} for n in range(2)]
    squad = {"data": [{"paragraphs": [{"context": "Ada met Bo.", "qas": qas}]}]}
    with pytest.raises(DataError, match=r"1 id is .*'x' \(data\[0\]\.paragraphs\[0\]\.qas\[0\], .*\.qas\[1\]\)"):
        read(file(tmp_path, "a.json", json.dumps(squad)), part="test", kind="span")


def test_an_answer_that_stands_nowhere_is_counted_and_kept_for_scoring_only(tmp_path: Path) -> None:
    rows = [
        SQUAD | {"answers": [{"text": "Bo", "answer_start": 3}]},
        SQUAD | {"answers": [{"text": "Bo", "answer_start": 3}, {"text": "and", "answer_start": 0}]},
    ]
    found, counted = read(jsonl(tmp_path, *rows), kind="span")
    assert [values["answers"] for _, values, _ in found] == [[{"text": "and", "start": 11}]]
    assert counted.dropped == {"train: no answer that stands in the context": 1}
    assert counted.answers == {"unplaced": 2, "repaired": 1}
    found, _ = read(jsonl(tmp_path, *rows), part="dev", kind="span")
    assert [values["answers"][0] for _, values, _ in found] == [{"text": "Bo", "start": None}] * 2


def test_a_test_part_without_answers(tmp_path: Path) -> None:
    ((_, values, _),), _ = read(jsonl(tmp_path, SQUAD), part="test", kind="span")
    assert (values["answers"], values["impossible"]) == ([], None)
    text = file(tmp_path, "a.csv", "question,context,answers,at\nWho?,Ada met Bo and Bo.,Bo,15\n")
    ((_, values, _),), _ = read(text, kind="span", answer_start="at")
    assert values["answers"] == [{"text": "Bo", "start": 15}]


def test_answers_and_places_of_unequal_number_are_refused(tmp_path: Path) -> None:
    row = {
        "question": "Who?",
        "context": "the house of a cat",
        "answers": {"text": ["house", "cat"], "answer_start": [4]},
    }
    with pytest.raises(DataError, match="answers has 2 texts, but not as many places"):
        read(jsonl(tmp_path, row), kind="span")


@pytest.mark.parametrize("score", ["3e300", "-2e6"])
def test_a_score_that_training_can_not_hold_is_refused(tmp_path: Path, score: str) -> None:
    with pytest.raises(DataError, match="training can't tell scores above 1e\\+06 apart"):
        read(jsonl(tmp_path, {"text": "a b", "label": float(score)}), kind="regression")
