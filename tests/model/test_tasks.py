"""Task data: reading, splitting, leaks, and what is never there."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from model import tasks
from model.task_files import known_tasks
from pipeline.config import PathFrom, Task, TaskDataConfig, TaskFiles, UrlFrom
from pipeline.errors import BertError, DataError, SourceError
from pipeline.recipes.names import BUILT_IN_TASKS
from pipeline.suites import validate
from tests.conftest import shared


def table(path: Path, rows: Sequence[tuple[str, ...]], header: str = "text,label") -> PathFrom:
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


def lines(path: Path, *records: dict[str, Any]) -> PathFrom:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return PathFrom(path=str(path))


@pytest.mark.parametrize("empty", [None, "", "absent"])
def test_of_a_test_set_with_some_answers_the_others_are_dropped_and_counted(tmp_path: Path, empty: str | None) -> None:
    left: dict[str, Any] = {} if empty == "absent" else {"label": empty}
    train = table(tmp_path / "train.csv", [(f"a {n}", "xy"[n % 2]) for n in range(40)])
    some = [{"text": f"known {n}", "label": "x"} for n in range(3)] + [{"text": f"not {n}", **left} for n in range(6)]
    statistics, out = prepare(tmp_path, Task(files=TaskFiles(train=train, test=lines(tmp_path / "test.jsonl", *some))))
    assert [text for text, _ in examples(out, "test").values()] == ["known 0", "known 1", "known 2"]
    assert statistics["dropped"]["test: empty label"] == 6

    (out / "again").mkdir()
    none = Task(files=TaskFiles(train=train, test=lines(tmp_path / "none.jsonl", *some[3:])))
    statistics, out = prepare(out / "again", none)
    assert [label for _, label in examples(out, "test").values()] == [None] * 6, "all are answered, none is scored"
    assert "no example of test has an answer in 'label': they are answered, and not scored" in json.dumps(statistics)


@pytest.mark.parametrize("part", ["train", "dev"])
def test_a_wrong_name_for_the_answers_is_not_taken_for_questions_without_any(tmp_path: Path, part: str) -> None:
    good = [
        {"question": f"what {n}?", "context": f"the river {n} runs", "answers": {"text": ["river"]}} for n in range(40)
    ]
    bad = [{name.replace("answers", "answer"): value for name, value in record.items()} for record in good]
    files = {"train": lines(tmp_path / "train.jsonl", *good), "dev": lines(tmp_path / "dev.jsonl", *good[:5])}
    files[part] = lines(tmp_path / "bad.jsonl", *bad)
    with pytest.raises(DataError, match=r"bad\.jsonl, line 1: no 'answers'; there is 'question', 'context', 'answer'"):
        prepare(tmp_path, Task(kind="span", files=TaskFiles.model_validate(files)))


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
        (
            [("a", "x"), ("b", "y")],
            [("c", "z"), ("d", "x"), ("e", "z")],
            r"no training example has: 'z' in 2 examples of dev \(first dev:1\); there are 'x', 'y'\n.*list .* `labels`",
        ),
    ],
)
def test_labels_that_can_not_be_learnt(
    tmp_path: Path, train: list[tuple[str, ...]], dev: list[tuple[str, ...]], message: str
) -> None:
    files = TaskFiles(train=table(tmp_path / "train.csv", train), dev=table(tmp_path / "dev.csv", dev))
    with pytest.raises(DataError, match=message):
        prepare(tmp_path, Task(files=files))


def test_a_label_that_train_lost_to_a_share_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    """Of 40 texts, the one label z is put where the hash takes dev from: train has none of it."""

    def position(text: str) -> float:
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, person=b"dev").digest(), "big") / 2**64

    texts = [f"text {n}" for n in range(40)]
    rare = next(text for text in texts if position(text) < 0.2)
    rows = [(text, "z" if text == rare else "xy"[n % 2]) for n, text in enumerate(texts)]
    described, out = own(tmp_path, Path(table(tmp_path / "a.csv", rows).path), dev_share=0.2)
    assert described["labels"] == ["x", "y", "z"]
    assert described["label_counts"]["z"] == {"train": 0, "dev": 1, "test": 0}
    number = texts.index(rare) + 1
    assert f"answered wrong: 'z' in 1 example of dev (first train:{number})" in described["notes"][0]
    config = TaskDataConfig.model_validate({"task": "mine", "define": {"files": {"train": {"path": "a.csv"}}}})
    results = {check.name: check for check in validate("task_data", out, config, {})}
    assert (results["labels_all_seen"].passed, results["labels_all_seen"].severity) == (False, "warning")
    assert results["labels_all_seen"].observed == "1 (unseen_label_names 'z')"


def test_two_labels_that_are_declared_but_not_in_train_are_none_to_learn(tmp_path: Path) -> None:
    origin = table(tmp_path / "a.csv", [(f"text {n}", "x") for n in range(40)])
    with pytest.raises(DataError, match=r"the labels \['x'\]; a classifier needs two"):
        own(tmp_path, Path(origin.path), labels=("x", "y"))


def test_labels_that_are_not_declared_are_counted_with_their_part(tmp_path: Path) -> None:
    rows = [(f"text {n}", "xyz"[n % 3]) for n in range(30)]
    with pytest.raises(
        DataError, match=r"`labels` does not name: 'z' in \d+ examples of train .*\n.*add it to `labels`"
    ):
        own(tmp_path, Path(table(tmp_path / "a.csv", rows).path), labels=("x", "y"))


def test_a_type_of_entities_that_only_dev_has_is_not_said_to_be_undeclared(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text("Ada B-PER\nmet O\n\n" * 3)
    (tmp_path / "dev.conll").write_text("Rome B-LOC\nis O\n\n")
    files = {part: {"path": str(tmp_path / f"{part}.conll")} for part in ("train", "dev")}
    with pytest.raises(DataError, match=r"no training example has: 'B-LOC' in 1 example of dev"):
        prepare(tmp_path, Task.model_validate({"kind": "tagging", "files": files}))


@pytest.mark.parametrize(
    ("train", "more", "message"),
    [
        (
            3,
            {"dev_share": 0.001},
            r"no example of dev: dev_share 0.001 of .*train\.csv.* 3 different texts.*\n.*files\.dev",
        ),
        (
            9,
            {"dev_share": 0.5, "test_share": 0.001},
            r"no example of test: test_share 0.001 of .*train\.csv.*\n.*Raise test_share",
        ),
        (
            3,
            {"dev_share": 0.999},
            r"no example of train: dev_share 0.999 .*train\.csv \(read: train 3.*\n.*Lower dev_share",
        ),
        (0, {"dev": 2}, r"no example of train: .*train\.csv holds none.*\n.*files\.train"),
        (
            9,
            {"dev": 0},
            r"no example of dev: .*dev\.csv holds none \(read: train 9, dev 2; dropped: dev: empty text 2\)",
        ),
        (2, {"dev": 2}, r"no example of train: .* leave none of those of .*train\.csv.*also stands in dev 2"),
    ],
)
def test_a_part_without_examples_is_named_with_its_file_and_key(
    tmp_path: Path, train: int, more: dict[str, Any], message: str
) -> None:
    rows = [(f"text {n}", "xy"[n % 2]) for n in range(9)]
    more = dict(more)
    dev = more.pop("dev", None)
    files = {"train": {"path": table(tmp_path / "train.csv", rows[:train]).path}}
    if dev is not None:
        files["dev"] = {"path": table(tmp_path / "dev.csv", rows[:2] if dev else [(" ", "x"), ("", "y")]).path}
    with pytest.raises(DataError, match=message) as error:
        prepare(tmp_path, Task.model_validate({**more, "files": files}))
    assert str(tmp_path) in error.value.what


def test_a_wrong_column_and_a_folder_of_two_files_are_named(tmp_path: Path) -> None:
    origin = table(tmp_path / "train.csv", [("a", "x")])
    with pytest.raises(DataError, match="no column 'topic'; it has 'text', 'label'") as error:
        prepare(tmp_path, Task(files=TaskFiles(train=origin), label="topic"))
    assert error.value.what.startswith(f"{tmp_path}/train.csv "), "the file that the recipe names"
    table(tmp_path / "second.csv", [])
    (tmp_path / "out").rmdir()
    with pytest.raises(DataError, match=r"files\.train .* 2 files \(second\.csv, train\.csv\)"):
        prepare(tmp_path, Task(files=TaskFiles(train=PathFrom(path=str(tmp_path)))))


def test_tasks_known_by_name_say_what_they_want(tmp_path: Path) -> None:
    assert {name: task.kind for name, task in known_tasks.KNOWN.items()} == BUILT_IN_TASKS
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


# ── a task of one's own of every kind ────────────────────────────────────────────────────────────────────────────────


def own(tmp_path: Path, train: Path, **form: Any) -> tuple[dict[str, Any], Path]:
    """(task.json, folder) of a task with one file."""
    define = Task.model_validate({"files": {"train": {"path": str(train)}}, **form})
    _, out = prepare(tmp_path, define)
    return json.loads((out / "task.json").read_text(encoding="utf-8")), out


def both(out: Path) -> list[dict[str, Any]]:
    """The examples of train and dev, in the order of the file."""
    rows = [row for part in ("train", "dev") for row in pl.read_parquet(out / f"{part}.parquet").rows(named=True)]
    return sorted(rows, key=lambda row: int(row["example_id"].rpartition(":")[2]))


def test_pairs_with_names_for_their_labels_and_published_scores(tmp_path: Path) -> None:
    lines = [json.dumps({"a": f"a {n}", "b": f"b {n}", "same": n % 2}) for n in range(20)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    row = {"system": "ESIM", "split": "test", "metric": "f1", "points": 71.5, "source": "a paper"}
    described, out = own(
        *(tmp_path, tmp_path / "a.jsonl"),
        kind="pair_classification",
        text="a",
        text_b="b",
        label="same",
        metric="f1",
        labels=("1", "0"),
        label_names=("alike", "other"),
        published=[row],
    )
    assert (described["labels"], described["metrics"], described["published"]) == (["alike", "other"], ["f1"], [row])
    assert both(out)[3] == {"example_id": "train:4", "text_a": "a 3", "text_b": "b 3", "label": 0}


def test_f1_is_of_two_labels(tmp_path: Path) -> None:
    origin = table(tmp_path / "a.csv", [(f"{n}", "xyz"[n % 3]) for n in range(30)])
    with pytest.raises(DataError, match=r"task mine has 3 labels; F1 is of two\n.*macro_f1"):
        own(tmp_path, Path(origin.path), metric="f1")


def test_regression(tmp_path: Path) -> None:
    origin = table(tmp_path / "a.csv", [(f"text {n}", f"{n / 4}") for n in range(40)], header="text,label")
    described, out = own(tmp_path, Path(origin.path), kind="regression")
    assert (described["metric"], described["labels"]) == ("spearman", [])
    assert both(out)[7] == {"example_id": "train:8", "text_a": "text 7", "text_b": None, "score": 1.75}
    scores = pl.read_parquet(out / "train.parquet")["score"]
    assert described["score_range"] == [scores.min(), scores.max()]


def test_pairs_that_mean_the_same_with_dev_pairs_that_have_scores(tmp_path: Path) -> None:
    train = [
        {"a": "cats purr", "b": "the cat purrs", "other": "dogs bark", "label": "no number"},  # which nobody reads
        {"a": "dogs bark", "b": "a dog barks", "other": " "},
        {"a": "ants march", "b": "", "other": "x"},
        {"a": "in dev", "b": "in dev too", "other": "x"},
        {"a": "bees hum", "b": "a bee hums", "other": "Bees hum"},
        {"a": "bees hum", "b": "a bee hums", "other": "bees  hum"},
    ]
    dev = [{"a": "in dev", "b": "in dev too", "label": "2.5"}, {"a": "x", "b": "y", "label": ""}]
    for name, records in (("train", train), ("dev", dev)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
    files = {part: {"path": str(tmp_path / f"{part}.jsonl")} for part in ("train", "dev")}
    form = {"kind": "sentence_similarity", "text": "a", "text_b": "b", "negative": "other"}
    statistics, out = prepare(tmp_path, Task.model_validate({"files": files, **form}))
    found = {part: pl.read_parquet(out / f"{part}.parquet").rows() for part in ("train", "dev")}
    assert found["train"] == [
        ("train:1", "cats purr", "the cat purrs", "dogs bark", None),
        ("train:2", "dogs bark", "a dog barks", None, None),
        ("train:5", "bees hum", "a bee hums", "Bees hum", None),
    ]
    assert found["dev"] == [("dev:1", "in dev", "in dev too", None, 2.5)]
    assert statistics["dropped"] == {
        "train: also stands in dev": 1,
        "train: empty text": 1,
        "train: the negative is a text of the pair": 1,
        "dev: empty label": 1,
    }


def test_of_scored_pairs_those_that_mean_the_same_are_trained_and_a_share_of_all_is_dev(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"a {n}", "text_b": f"b {n}", "label": n % 6}) for n in range(300)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    described, out = own(tmp_path, tmp_path / "a.jsonl", kind="sentence_similarity", positive_score=4, dev_share=0.3)
    train, dev = (pl.read_parquet(out / f"{part}.parquet")["score"].to_list() for part in ("train", "dev"))
    assert set(train) == {4, 5} and set(dev) == {0, 1, 2, 3, 4, 5}
    assert described["dropped"] == {"train: a score below 4": 300 - len(train) - len(dev)}
    assert (described["metric"], described["read"]) == ("spearman", {"train": 300})


def test_entities_in_a_column_file_become_iob2_and_documents_stay_together(tmp_path: Path) -> None:
    document = "-DOCSTART- O\n\nAda I-PER\nmet O\nBo I-PER\nCy B-PER\n\nParis I-LOC\n\n"
    (tmp_path / "a.conll").write_text(document * 50)
    described, out = own(tmp_path, tmp_path / "a.conll", kind="tagging", dev_share=0.3)
    assert described["labels"] == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert described["metric"] == "entity_f1"
    first, second = both(out)[:2]
    assert (first["words"], first["tags"], first["document_id"]) == (
        ["Ada", "met", "Bo", "Cy"],
        [3, 0, 3, 3],
        "train:1",
    )
    assert (second["words"], second["tags"], second["document_id"]) == (["Paris"], [1], "train:1")
    parts = [set(pl.read_parquet(out / f"{part}.parquet")["document_id"]) for part in ("train", "dev")]
    assert len(parts[0]) + len(parts[1]) == 50 and not parts[0] & parts[1] and all(parts)


def test_parts_of_speech_are_no_entities(tmp_path: Path) -> None:
    text = "".join(f"the\tDT\ncat{n}\tNN\n\n" for n in range(30))
    (tmp_path / "pos.conll").write_text(text)
    described, out = own(tmp_path, tmp_path / "pos.conll", kind="tagging")
    assert (described["labels"], described["metric"]) == (["DT", "NN"], "accuracy")
    assert both(out)[1]["tags"] == [0, 1]


def test_questions_of_one_article_stay_on_one_side(tmp_path: Path) -> None:
    articles = [
        {"title": f"T{a}", "paragraphs": [{"context": f"Ada {a}.", "qas": [
            {"id": f"{a}-{q}", "question": f"{q}?", "answers": [{"text": "Ada", "answer_start": 0}]} for q in range(3)]}]}
        for a in range(60)
    ]  # fmt: skip
    (tmp_path / "train.json").write_text(json.dumps({"data": articles}))
    described, out = own(tmp_path, tmp_path / "train.json", kind="span", dev_share=0.25, test_share=0.25)
    assert described["metric"] == "f1" and described["answers"] == {"right": 180}
    titles = [set(pl.read_parquet(out / f"{part}.parquet")["title"]) for part in ("train", "dev", "test")]
    assert all(titles) and sum(map(len, titles)) == len(set.union(*titles)) == 60


def test_codah_as_choices(tmp_path: Path) -> None:
    """2,776 questions of four choices (Chen et al. 2019), a .tsv without a line of names whose quotes mean nothing."""
    described, out = own(
        *(tmp_path, shared("data/finetune/swag/codah.tsv")),
        kind="multiple_choice",
        text="prompt",
        choices=("a", "b", "c", "d"),
        label="answer",
        header=("category", "prompt", "a", "b", "c", "d", "answer"),
        quotes=False,
    )
    assert described["read"] == {"train": 2_776} and described["dropped"] == {}
    first = both(out)[0]
    assert first["text_a"] == "I am always very hungry before I go to bed. I am"
    assert (len(first["choices"]), first["choices"][3], first["label"]) == (
        4,
        "tempted to snack when I feel this way.",
        3,
    )
