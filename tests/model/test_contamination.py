"""Overlap of test texts with the corpus, counted by hand."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model import contamination
from model.task_files.task_kinds import SCHEMAS
from pipeline.config import ContaminationConfig, TaskKind
from pipeline.errors import DataError
from pipeline.schemas import DOCUMENTS_SCHEMA, write_parts

CORPUS = {
    "wiki:1": ("train", "One two three, four five six seven eight nine ten eleven twelve thirteen fourteen."),
    "wiki:2": ("held_out", "red orange yellow green blue indigo violet black white grey brown pink gold silver"),
    "wiki:3": ("train", "It ends with: a b c d e f"),
    "wiki:4": ("train", "g h i j k l m and so on. ÉTÉ comme hiver"),
}


def documents(folder: Path) -> Path:
    folder.mkdir()
    rows = [
        {"doc_id": doc_id, "source": "wiki", "text": text, "split": split, "sentence_ends": [len(text)], "repeat": 1.0}
        for doc_id, (split, text) in CORPUS.items()
    ]
    write_parts(rows, DOCUMENTS_SCHEMA, folder)
    return folder


def task(folder: Path, test: list[str | tuple[str, str]], dev: Sequence[str | tuple[str, str]] = ()) -> Path:
    folder.mkdir()
    for part, texts in (("test", test), ("dev", dev)):
        pairs = [text if isinstance(text, tuple) else (text, None) for text in texts]
        rows = [
            {"example_id": f"{part}:{n}", "text_a": a, "text_b": b, "label": 0} for n, (a, b) in enumerate(pairs, 1)
        ]
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["classification"]), folder / f"{part}.parquet")
    return folder


def measure(tmp_path: Path, words: int = 13, **tasks: Path) -> dict[str, Any]:
    inputs = {"documents": documents(tmp_path / "documents"), **{f"task_data_{n}": f for n, f in tasks.items()}}
    out = tmp_path / "out"
    out.mkdir()
    statistics = contamination.measure(inputs, ContaminationConfig(ngram_words=words), out)
    found = json.loads((out / "contamination.json").read_text(encoding="utf-8"))
    assert statistics["touched"] == sum(each["touched"] for each in found["tasks"].values())
    return found


def test_thirteen_words_touch_whatever_the_case_and_punctuation_and_twelve_do_not(tmp_path: Path) -> None:
    thirteen = "He said: ONE two — three four five six (seven) eight nine ten eleven twelve thirteen!"
    twelve = "he said two three four five six seven eight nine ten eleven twelve thirteen so"
    found = measure(tmp_path, count=task(tmp_path / "count", [twelve, thirteen, "too short", ""]))
    assert found["documents"] == 3  # the held-out one is not trained on
    assert found["words"] == 14 + 9 + 13
    assert found["tasks"]["count"] == {
        "part": "test",
        "texts": 4,
        "measurable": 2,
        "touched": 1,
        "share": 0.5,
        "sample": [
            {
                "example_id": "test:2",
                "words": "one two three four five six seven eight nine ten eleven twelve thirteen",
                "doc_id": "wiki:1",
            }
        ],
        "parts": {
            "test": {"texts": 4, "measurable": 2, "touched": 1, "share": 0.5},
            "dev": {"texts": 0, "measurable": 0, "touched": 0, "share": None},
        },
    }


def test_what_only_a_held_out_document_holds_is_untouched(tmp_path: Path) -> None:
    found = measure(tmp_path, colours=task(tmp_path / "colours", [CORPUS["wiki:2"][1]]))
    assert found["tasks"]["colours"]["touched"] == 0
    assert found["tasks"]["colours"]["measurable"] == 1


def test_a_run_does_not_span_two_documents_or_two_tests(tmp_path: Path) -> None:
    found = measure(tmp_path, 6, letters=task(tmp_path / "letters", ["d e f g h i", "a b c d e", "f", "h i j k l m"]))
    assert found["tasks"]["letters"]["measurable"] == 2
    assert [each["example_id"] for each in found["tasks"]["letters"]["sample"]] == ["test:4"]


def test_every_part_is_measured_and_every_touched_example_is_listed(tmp_path: Path) -> None:
    touching = ["a b c d", "x a b c", "b c d", "no run", "g h i"]
    folder = task(tmp_path / "letters", touching, ["d e f", "c d", "nothing of it"])
    rows = [{"example_id": "mm:1", "text_a": "a b c", "text_b": None, "label": 0}]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["classification"]), folder / "dev_mismatched.parquet")
    found = measure(tmp_path, 3, letters=folder, more=task(tmp_path / "more", ["h i j"]))["tasks"]
    assert found["letters"]["part"] == "test" and found["letters"]["touched"] == 4
    assert {part: each["touched"] for part, each in found["letters"]["parts"].items()} == {
        "test": 4,
        "dev": 1,
        "dev_mismatched": 1,
    }
    assert found["letters"]["parts"]["dev"]["measurable"] == 2
    listed = pq.read_table(tmp_path / "out" / "touched.parquet").to_pylist()
    assert [(row["task"], row["part"], row["example_id"], row["words"], row["doc_id"]) for row in listed] == [
        ("letters", "test", "test:1", "a b c", "wiki:3"),
        ("letters", "test", "test:2", "a b c", "wiki:3"),
        ("letters", "test", "test:3", "b c d", "wiki:3"),
        ("letters", "test", "test:5", "g h i", "wiki:4"),
        ("letters", "dev", "dev:1", "d e f", "wiki:3"),
        ("letters", "dev_mismatched", "mm:1", "a b c", "wiki:3"),
        ("more", "test", "test:1", "h i j", "wiki:4"),
    ]


def test_pairs_and_accents_and_several_tasks_are_kept_apart(tmp_path: Path) -> None:
    pairs = task(tmp_path / "pairs", [("été", "Comme hiver"), ("ete", "comme hiver")])
    dev_only = task(tmp_path / "dev_only", [], ["nothing of it", "a b c", "a b d"])
    absent = tmp_path / "absent"
    absent.mkdir()
    (absent / "not_run.json").write_text("{}")
    found = measure(tmp_path, 3, pairs=pairs, dev_only=dev_only, absent=absent)["tasks"]
    assert [each["example_id"] for each in found["pairs"]["sample"]] == ["test:1"]
    assert found["dev_only"]["part"] == "dev"
    assert [each["example_id"] for each in found["dev_only"]["sample"]] == ["dev:2"]
    assert found["absent"]["part"] is found["absent"]["share"] is None
    assert found["absent"]["texts"] == 0


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("regression", {"text_a": "a b", "text_b": "c d"}),
        ("sentence_similarity", {"text_a": "a b", "text_b": "c d"}),
        ("multiple_choice", {"text_a": "a b", "choices": ["c", "d x"]}),
        ("tagging", {"words": ["a", "b", "c", "d"]}),
        ("span", {"question": "x?", "context": "a b c d", "answers": []}),
    ],
)
def test_the_text_of_every_kind_of_task(tmp_path: Path, kind: TaskKind, row: dict[str, Any]) -> None:
    folder = tmp_path / kind
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist([{"example_id": "1", **row}], SCHEMAS[kind]), folder / "test.parquet")
    pq.write_table(SCHEMAS[kind].empty_table(), folder / "dev.parquet")
    found = measure(tmp_path, 4, mine=folder)["tasks"]["mine"]
    assert [(each["example_id"], each["words"]) for each in found["sample"]] == [("1", "a b c d")]


def test_without_any_test_text(tmp_path: Path) -> None:
    found = measure(tmp_path, empty=task(tmp_path / "empty", []))
    assert found["tasks"]["empty"]["share"] is None


def test_broken_task_data_is_named(tmp_path: Path) -> None:
    broken = task(tmp_path / "broken", ["a"])
    (broken / "test.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="broken/test.parquet can't be read"):
        measure(tmp_path, broken=broken)
