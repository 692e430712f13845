"""What failed is noted until it is made well; a stage that stands alone publishes that it failed, and is tried again."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import build, suites
from pipeline.build import Node, failed, needed
from pipeline.config import Frozen
from pipeline.errors import BertError, DataError, ProcessLost, SourceError, StoreError, TrainingError
from pipeline.stage import Stage
from pipeline.storage import failures
from pipeline.store import Store
from pipeline.suites import Suite

ERRORS: dict[str, BertError] = {
    "data": DataError("/data/of/me/a.csv, line 3: no label\nmore", "Write one."),
    "training": TrainingError("the loss is not finite", "Lower learning_rate."),
    "lost": ProcessLost("it was killed", "Run it again."),
    "source": SourceError("the download of a.csv failed", "Try again."),
    "store": StoreError("the disk is full", "Free space."),
}


class TaskConfig(Frozen):
    error: str = ""


def task(inputs: Mapping[str, Path], config: TaskConfig, out: Path) -> dict[str, Any]:
    (out / "half.txt").write_text("half", encoding="utf-8")
    if config.error in ERRORS:
        raise ERRORS[config.error]
    return {}


def below(inputs: Mapping[str, Path], config: TaskConfig, out: Path) -> dict[str, Any]:
    (out / "read.txt").write_text(",".join(sorted(path.name for path in inputs["task"].iterdir())), encoding="utf-8")
    return {}


def say_failed(inputs: Mapping[str, Path], config: TaskConfig, out: Path, why: str) -> dict[str, Any]:
    (out / "why.txt").write_text(why, encoding="utf-8")
    return {"not_run": why}


ALONE = Stage("task", f"{__name__}:task", "1", failure=f"{__name__}:say_failed")
BELOW = Stage("below", f"{__name__}:below", "1")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name in ("task", "below"):
        monkeypatch.setitem(suites.SUITES, name, Suite(()))
    monkeypatch.setattr(suites, "validate", lambda *_: [])
    return Store(tmp_path / "home", lease_seconds=2)


def node(error: str, stage: Stage = ALONE) -> Node:
    return Node("toy", "task", stage, TaskConfig(error=error), "d")


def content(store: Store, node: Node) -> dict[str, str]:
    record = store.pointer(node.recipe, node.name)
    assert record is not None
    folder = store.folder(record.stage, record.version)
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir() if path.suffix == ".txt"}


@pytest.mark.parametrize("error", ["data", "training", "source"])
def test_what_stands_alone_says_that_it_failed_and_others_go_on(store: Store, error: str) -> None:
    top = node(error)
    outcome = build.build(store, top)
    assert outcome.failed is ERRORS[error] and failed(outcome.record)
    said = content(store, top)["why.txt"]
    assert said == {"data": "a.csv, line 3: no label"}.get(error, ERRORS[error].line), "one line, and no places"
    under = Node("toy", "below", BELOW, TaskConfig(), "d", {"task": top})
    assert build.build(store, under).failed is None
    assert content(store, under) == {"read.txt": "manifest.json,why.txt"}
    note = failures.last(store.home, "toy", "task")
    assert note is not None and note["what"] == ERRORS[error].line and note["todo"] == ERRORS[error].todo

    need = needed(store, top)
    assert need.must_run and need.why == "it failed", "it is no answer"
    assert needed(store, under).up_to_date, "what was made of it stays until something changes"
    again = build.build(store, top)
    assert again.failed is not None and again.record.version == outcome.record.version
    mended = replace(top, config=TaskConfig())
    assert needed(store, mended).why == f"it failed; recipe: error {error} → default"
    assert build.build(store, mended).failed is None
    assert failures.last(store.home, "toy", "task") is None
    assert content(store, mended) == {"half.txt": "half"}


@pytest.mark.parametrize("error", ["lost", "store"])
def test_what_the_task_is_not_to_blame_for_publishes_nothing(store: Store, error: str) -> None:
    with pytest.raises(type(ERRORS[error])):
        build.build(store, node(error))
    assert store.pointer("toy", "task") is None
    note = failures.last(store.home, "toy", "task")
    assert note is not None and note["what"] == ERRORS[error].line


def test_of_what_can_not_be_had_now_others_keep_what_they_have(store: Store) -> None:
    had = build.build(store, node("")).record
    with pytest.raises(SourceError):
        build.build(store, node("source"))
    assert store.pointer("toy", "task") == had
    assert build.build(store, node("data")).failed is not None, "what it has is broken"
    assert build.build(store, node("source")).failed is not None, "there is nothing to keep"
    assert build.build(store, node("")).record.version == had.version, "known from before"
    assert failures.last(store.home, "toy", "task") is None


def test_a_forced_run_that_fails_takes_nothing_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    had = build.build(store, node("chance")).record
    monkeypatch.setitem(ERRORS, "chance", DataError("this time", ""))
    with pytest.raises(DataError):
        build.build(store, node("chance"), forced=True)
    assert store.pointer("toy", "task") == had


def test_a_failed_check_is_a_failure_too_and_can_still_be_accepted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {"name": "enough", "passed": False, "severity": "critical", "observed": "1", "expected": "≥ 2"}

    def judged(stage: str, folder: Path, *_: Any) -> list[Any]:
        return [suites.CheckResult(**result)] if (folder / "half.txt").exists() else []  # type: ignore[arg-type]

    monkeypatch.setattr(suites, "validate", judged)
    outcome = build.build(store, node(""))
    assert outcome.failed is not None and content(store, node("")) == {"why.txt": "it failed enough: 1 (expected ≥ 2)"}
    build.accept(store, node(""), "enough", "few will do")
    assert content(store, node("")) == {"half.txt": "half"}
    assert needed(store, node("")).up_to_date and failures.last(store.home, "toy", "task") is None


def test_stages_that_do_not_stand_alone_fail_as_ever_and_are_noted(store: Store) -> None:
    other = replace(ALONE, failure="")
    with pytest.raises(DataError):
        build.build(store, node("data", other))
    assert store.pointer("toy", "task") is None
    note = failures.last(store.home, "toy", "task")
    assert note is not None and note["what"] == "/data/of/me/a.csv, line 3: no label"
    build.build(store, node("", other))
    assert failures.last(store.home, "toy", "task") is None
    with pytest.raises(DataError):
        build.build(store, node("data", other))
    assert build.build(store, node("", other)).ran is False, "the recipe was edited back"
    assert failures.last(store.home, "toy", "task") is None


def test_notes_that_can_not_be_read_are_none(tmp_path: Path) -> None:
    assert failures.last(tmp_path, "toy", "task") is None
    failures.note(tmp_path, "toy", "task", ValueError("a bug\nhere"))
    note = failures.last(tmp_path, "toy", "task")
    assert note is not None and (note["what"], note["todo"]) == ("ValueError: a bug", "")
    path = tmp_path / "failures" / "toy" / "task.json"
    for broken in ("{", "[]", json.dumps({"what": "x"})):
        path.write_text(broken, encoding="utf-8")
        assert failures.last(tmp_path, "toy", "task") is None
