"""Task data: reading, splitting, leaks, and what is never there."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from model import known_tasks, tasks
from pipeline.config import PathFrom, Task, TaskDataConfig, TaskFiles, UrlFrom
from pipeline.errors import BertError, DataError, SourceError
from pipeline.recipe import BUILT_IN_TASKS


def table(path: Path, rows: list[tuple[str, ...]], header: str = "text,label") -> PathFrom:
    path.write_text("\n".join([header, *(",".join(f'"{value}"' for value in row) for row in rows)]) + "\n")
    return PathFrom(path=str(path))


def prepare(tmp_path: Path, define: Task | None = None, task: str = "mine", **more: Any) -> tuple[dict[str, Any], Path]:
    out = tmp_path / "out"
    out.mkdir()
    return tasks.prepare_task({}, TaskDataConfig(task=task, define=define, **more), out), out


def examples(out: Path, part: str) -> dict[str, tuple[str, int | None]]:
    frame = pl.read_parquet(out / f"{part}.parquet")
    assert frame.schema == {"example_id": pl.String, "text_a": pl.String, "text_b": pl.String, "label": pl.Int32}
    return {
        example: (text, label) for example, text, label in frame.select("example_id", "text_a", "label").iter_rows()
    }


def test_leaks_empty_texts_and_duplicates(tmp_path: Path) -> None:
    train = [
        ("cats purr", "cat"),
        ("dogs  bark", "dog"),  # white space does not hide that this is test's second text
        ("dogs bark", "dog"),
        ("  ", "cat"),
        ("cats purr", "cat"),
        ("no label", " "),
        ("in dev too", "dog"),
        ("dogs dig", "dog"),
        ("ants march", "ant"),
    ]
    dev = [("in dev too", "dog"), ("cats meow", "cat"), ("dogs bark", "dog")]
    test = [("cats climb", "cat"), ("dogs bark", "dog")]
    files = TaskFiles(
        train=table(tmp_path / "train.csv", train),
        dev=table(tmp_path / "dev.csv", dev),
        test=table(tmp_path / "test.csv", test),
    )
    statistics, out = prepare(tmp_path, Task(title="Pets", files=files))
    described = json.loads((out / "task.json").read_text())
    assert described["labels"] == ["ant", "cat", "dog"]
    assert (described["name"], described["title"], described["metric"]) == ("mine", "Pets", "accuracy")
    assert examples(out, "train") == {
        "train:1": ("cats purr", 1),
        "train:5": ("cats purr", 1),
        "train:8": ("dogs dig", 2),
        "train:9": ("ants march", 0),
    }
    assert examples(out, "dev") == {"dev:1": ("in dev too", 2), "dev:2": ("cats meow", 1)}
    assert examples(out, "test") == {"test:1": ("cats climb", 1), "test:2": ("dogs bark", 2)}
    assert statistics["dropped"] == {
        "train: also stands in test": 2,
        "train: also stands in dev": 1,
        "train: empty text": 1,
        "train: empty label": 1,
        "dev: also stands in test": 1,
    }
    assert statistics["leaked_texts"] == 2
    assert statistics["duplicates_in_train"] == 1
    assert statistics["labels"] == {"ant": 1, "cat": 2, "dog": 1}
    assert described["counts"] == {"train": 4, "dev": 2, "test": 2}
    assert sum(statistics["read"].values()) == 14 == 8 + sum(statistics["dropped"].values())


def test_shares_are_taken_by_a_hash_of_the_text(tmp_path: Path) -> None:
    rows = [(f"text {n}", "even" if n % 2 else "odd") for n in range(1000)]
    files = TaskFiles(train=table(tmp_path / "all.csv", [*rows, *rows[:100]]))
    _, out = prepare(tmp_path, Task(files=files, dev_share=0.2, test_share=0.3))
    train, dev, test = (examples(out, part) for part in ("train", "dev", "test"))

    def position(name: bytes, text: str) -> float:
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, person=name).digest(), "big") / 2**64

    expected = {f"train:{n}" for n, (text, _) in enumerate([*rows, *rows[:100]], 1) if position(b"test", text) < 0.3}
    assert set(test) == expected
    assert 250 < len({text for text, _ in test.values()}) < 350
    # dev is a fifth of what is left, and equal texts are never on two sides
    assert 100 < len({text for text, _ in dev.values()}) < 180
    sides = Counter(text for part in (train, dev, test) for text in {text for text, _ in part.values()})
    assert set(sides.values()) == {1}
    assert len(sides) == 1000


def test_an_unlabelled_test_set(tmp_path: Path) -> None:
    files = TaskFiles(
        train=table(tmp_path / "train.csv", [(f"a {n}", "xy"[n % 2]) for n in range(40)]),
        test=table(tmp_path / "test.csv", [("unknown",)], header="text"),
    )
    _, out = prepare(tmp_path, Task(files=files))
    assert examples(out, "test") == {"test:1": ("unknown", None)}


def test_files_that_were_never_there(tmp_path: Path) -> None:
    files = TaskFiles(train=table(tmp_path / "a.csv", []), test=PathFrom(path=str(tmp_path / "gone" / "t.csv")))
    statistics, out = prepare(tmp_path, Task(title="Mine", files=files))
    assert sorted(path.name for path in out.iterdir()) == ["not_run.json"]
    assert json.loads((out / "not_run.json").read_text()) == {
        "task": "mine",
        "title": "Mine",
        "why": "its files do not exist",
        "wants": ["test: t.csv"],
    }
    assert statistics["wants"] == "test: t.csv"


def test_a_download_that_fails_is_an_error(tmp_path: Path) -> None:
    gone = UrlFrom(url=(tmp_path / "gone.csv").as_uri(), sha256="0" * 64)
    with pytest.raises(SourceError):
        prepare(tmp_path, Task(files=TaskFiles(train=gone)))


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        ([("a", "x"), ("b", "x")], [("c", "x")], r"2 examples and the labels \['x'\]"),
        ([("a", "x"), ("b", "y")], [("c", "z")], "dev:1 .* has the label 'z'"),
    ],
)
def test_labels_that_can_not_be_learnt(
    tmp_path: Path, train: list[tuple[str, ...]], dev: list[tuple[str, ...]], message: str
) -> None:
    files = TaskFiles(train=table(tmp_path / "train.csv", train), dev=table(tmp_path / "dev.csv", dev))
    with pytest.raises(DataError, match=message):
        prepare(tmp_path, Task(files=files))


def test_a_wrong_column_and_a_folder_of_two_files_are_named(tmp_path: Path) -> None:
    origin = table(tmp_path / "train.csv", [("a", "x")])
    with pytest.raises(DataError, match="no column 'topic'; it has 'text', 'label'"):
        prepare(tmp_path, Task(files=TaskFiles(train=origin), label="topic"))
    table(tmp_path / "second.csv", [])
    (tmp_path / "out").rmdir()
    with pytest.raises(DataError, match=r"files\.train .* 2 files \(second\.csv, train\.csv\)"):
        prepare(tmp_path, Task(files=TaskFiles(train=PathFrom(path=str(tmp_path)))))


def test_tasks_known_by_name_say_what_they_want(tmp_path: Path) -> None:
    assert set(known_tasks.KNOWN) == set(BUILT_IN_TASKS)
    for number, task in enumerate(BUILT_IN_TASKS):
        place = tmp_path / str(number)
        place.mkdir()
        statistics, out = prepare(place, task=task)
        wanted = json.loads((out / "not_run.json").read_text())
        assert wanted["title"] == known_tasks.KNOWN[task].title
        assert wanted["wants"] == [f"{part}: {name}" for part, name in known_tasks.KNOWN[task].files.items()]
        assert statistics["not_run"] == "the recipe names no files for it"


def test_a_task_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(BertError, match="no task 'colla'"):
        prepare(tmp_path, task="colla")
