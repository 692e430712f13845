"""The pieces between Dagster and the store that need no run."""

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from assets.asset import FORCE, is_forced, process_of, process_tag
from assets.commands.plan import ERROR, WILL_RUN, plan
from pipeline import build, suites
from pipeline.build import ValidationFailed
from pipeline.store import Store
from pipeline.suites import CheckResult, Suite
from pipeline.system.owners import Owner
from tests.pipeline.test_build import build_all, chain


@pytest.mark.parametrize(
    ("tag", "forced"), [("true", True), ("a,documents,b", True), ("documents", True), ("a,b", False), ("", False)]
)
def test_who_is_forced(tag: str, forced: bool) -> None:
    assert is_forced({FORCE: tag}, "documents") == forced


def test_the_process_of_a_run_is_told_by_a_tag_of_its_own() -> None:
    """A run that is executed again from the UI starts with the tags of the first one, whose process is dead."""
    first = dg.DagsterRun("job", run_id="1", tags=process_tag("1", Owner.this()))
    assert process_of(first) == Owner.this()
    assert process_of(dg.DagsterRun("job", run_id="2", tags=first.tags)) is None
    assert process_of(dg.DagsterRun("job", run_id="3")) is None


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name in ("words", "upper", "count"):
        monkeypatch.setitem(suites.SUITES, name, Suite(()))
    monkeypatch.setattr(suites, "validate", lambda *_: [])
    return Store(tmp_path / "home", lease_seconds=2)


def test_published_content_whose_changed_suite_fails_is_no_success(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = chain()
    build_all(store, nodes)
    failed = CheckResult("long_enough", False, "critical", "9", "≥ 10", "It is long enough.")
    monkeypatch.setitem(suites.SUITES, "count", Suite((), version="2"))
    monkeypatch.setattr(suites, "validate", lambda *_: [failed])
    build.settle(store, build.needed(store, nodes["count"]))
    planned = {p.node.name: p for p in plan(store, nodes)}
    assert planned["count"].state == ERROR
    assert "fails long_enough" in planned["count"].why
    assert "bert run toy/count --accept long_enough" in planned["count"].todo


def test_a_long_list_of_what_comes_first_is_cut(store: Store) -> None:
    tops = {name: replace(chain()["words"], name=name) for name in ("a", "b", "c", "d")}
    for count, said in ((1, "after a"), (3, "after a, b, c"), (4, "after a, b and 2 more")):
        inputs = dict(list(tops.items())[:count])
        below = replace(chain()["count"], inputs=inputs)
        assert plan(store, {**inputs, "count": below})[-1].why == said


def test_status_tells_what_failed_and_how_to_accept_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = chain()
    failed = CheckResult("long_enough", False, "critical", "9", "≥ 10", "It is long enough.")
    monkeypatch.setattr(suites, "validate", lambda *_: [failed])
    with pytest.raises(ValidationFailed, match=r"long_enough: 9 \(expected ≥ 10\). It is long enough"):
        build.build(store, nodes["words"])
    (planned, *_) = plan(store, nodes)
    assert planned.state == WILL_RUN
    assert "the last time it failed long_enough" in planned.why
    assert planned.todo.endswith('bert run toy/words --accept long_enough --reason "…"')


def test_status_does_not_offer_to_accept_what_nothing_can_be_made_of(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = chain()
    rows = suites.Check("rows", "", "ExpectColumnValuesToBeBetween", {"column": "rows", "min_value": 1}, needed=True)
    monkeypatch.setitem(suites.SUITES, "words", Suite((rows,)))
    monkeypatch.setattr(suites, "validate", lambda *_: [CheckResult("rows", False, "critical", "0", "≥ 1", "")])
    with pytest.raises(ValidationFailed):
        build.build(store, nodes["words"])
    (planned, *_) = plan(store, nodes)
    assert planned.todo == "Change what it is made of; rows can't be accepted, since nothing can be made of it."


def test_two_recipes_whose_equal_content_was_rejected_can_both_accept_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = CheckResult("long_enough", False, "critical", "9", "≥ 10", "It is long enough.")
    monkeypatch.setattr(suites, "validate", lambda *_: [failed])
    first, second = chain("first")["words"], chain("second")["words"]
    second = type(second)(**{**vars(second), "stage": type(second.stage)(**{**vars(second.stage), "version": "2"})})
    for node in (first, second):
        with pytest.raises(ValidationFailed):
            build.build(store, node)
    records = [build.accept(store, node, "long_enough", "a test") for node in (first, second)]
    assert records[0].version == records[1].version
    assert records[0].key != records[1].key
