"""Assets whose content `bert gc` removed: settled while nothing reads them, brought back or made again when something does.

The chain of toy stages of test_build.py: words → upper → count; here a rule has taken the content of `upper`.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assets.commands.plan import CLEARED, KNOWN, UP_TO_DATE, WILL_RUN, plan
from pipeline import build
from pipeline.build import ValidationFailed, needed, settle
from pipeline.store import Record, Store
from tests.pipeline import test_build
from tests.pipeline.test_build import _no_checks, build_all, chain, stage, store, training  # noqa: F401 (fixtures)


def clear(store: Store, name: str, again: bool = True, for_good: bool = True) -> Record:  # noqa: F811
    """Let `bert gc` take the content of what an asset has now."""
    record = store.pointer("toy", name)
    assert record is not None
    assert store.put_away(record.stage, record.version, "old", again) is not None
    if for_good:
        store.remove_for_good(record.stage, record.version)
    return record


def states(store: Store, nodes: dict[str, build.Node], **more: list[str]) -> dict[str, str]:  # noqa: F811
    return {planned.node.name: planned.state for planned in plan(store, nodes, **more)}


@pytest.fixture
def made(store: Store) -> Iterator[Store]:  # noqa: F811
    build_all(store, chain())
    yield store


def test_cleared_content_settles_its_asset_and_nothing_runs(made: Store) -> None:
    clear(made, "upper")
    assert states(made, chain()) == {"words": UP_TO_DATE, "upper": CLEARED, "count": UP_TO_DATE}
    (told,) = [planned.why for planned in plan(made, chain()) if planned.state == CLEARED]
    assert "its content was removed on 20" in told and "made again when something needs it" in told
    records = sorted((made.home / "records").iterdir())
    assert build_all(made, chain()) == []
    assert sorted((made.home / "records").iterdir()) == records
    assert made.verify() == []


def test_it_is_made_again_as_it_was_when_a_child_must_run(made: Store) -> None:
    record = clear(made, "upper")
    edited = chain()
    edited["count"] = replace(edited["count"], stage=stage("count", version="2"))
    assert states(made, edited) == {"words": UP_TO_DATE, "upper": WILL_RUN, "count": WILL_RUN}
    (why,) = [planned.why for planned in plan(made, edited) if planned.node.name == "upper"]
    assert "count reads it" in why
    test_build.RUNS.clear()
    assert build.build(made, edited["count"]).ran, "a step of the child alone, as Dagster's UI may start"
    assert test_build.RUNS == ["upper", "count"]
    assert made.pointer("toy", "upper") == record, "what it is now is not another: nothing else below it changes"
    assert made.intact("upper", record.version)
    assert made.tombstone("upper", record.version) is None
    assert len(made.records_of("upper", record.version)) == 2, "that it was made again is on record"
    assert states(made, edited) == dict.fromkeys(edited, UP_TO_DATE)


def test_what_it_is_made_of_is_made_again_first(made: Store) -> None:
    clear(made, "words"), clear(made, "upper")
    edited = chain()
    edited["count"] = replace(edited["count"], stage=stage("count", version="2"))
    assert states(made, chain()) == {"words": CLEARED, "upper": CLEARED, "count": UP_TO_DATE}
    assert states(made, edited) == dict.fromkeys(edited, WILL_RUN)
    test_build.RUNS.clear()
    build.build(made, edited["count"])
    assert test_build.RUNS == ["words", "upper", "count"]
    assert made.verify() == []


def test_it_is_made_again_when_it_is_asked_for_by_name(made: Store) -> None:
    record = clear(made, "upper")
    nodes = chain()
    assert states(made, nodes, wanted=["upper"]) == {"words": UP_TO_DATE, "upper": WILL_RUN, "count": UP_TO_DATE}
    test_build.RUNS.clear()
    assert not build.build(made, nodes["upper"]).ran
    assert build.build(made, nodes["upper"], wanted=True) == build.Outcome(record, ran=True)
    assert test_build.RUNS == ["upper"]
    assert states(made, nodes) == dict.fromkeys(nodes, UP_TO_DATE)


def test_the_trash_saves_making_it_again(made: Store) -> None:
    record = clear(made, "upper", for_good=False)
    nodes = chain()
    assert states(made, nodes) == {"words": UP_TO_DATE, "upper": CLEARED, "count": UP_TO_DATE}
    assert states(made, nodes, wanted=["upper"])["upper"] == KNOWN
    test_build.RUNS.clear()
    assert not build.build(made, nodes["upper"], wanted=True).ran
    assert test_build.RUNS == [] and made.intact("upper", record.version)
    clear(made, "upper", for_good=False)
    edited = {**nodes, "count": replace(nodes["count"], stage=stage("count", version="2"))}
    assert states(made, edited) == {"words": UP_TO_DATE, "upper": KNOWN, "count": WILL_RUN}
    build.build(made, edited["count"])
    assert test_build.RUNS == ["count"]


def test_what_is_reverted_to_comes_back_from_the_trash_and_is_made_anew_after_it(made: Store) -> None:
    """Content that nothing needed any more: its recipe was edited. The edit is undone before, and after, the grace time."""
    old = made.pointer("toy", "count")
    build_all(made, chain(text="other words"))
    assert old is not None and made.put_away("count", old.version, "old", again=False)
    assert {p.state for p in plan(made, chain())} == {KNOWN}
    assert build_all(made, chain()) == []
    assert made.intact("count", old.version)

    build_all(made, chain(text="other words"))
    assert made.put_away("count", old.version, "old", again=False)
    made.remove_for_good("count", old.version)
    assert states(made, chain()) == {"words": KNOWN, "upper": KNOWN, "count": WILL_RUN}
    assert build_all(made, chain()) == ["count"]


def test_another_recipe_settles_on_cleared_work_of_the_first(made: Store) -> None:
    record = clear(made, "upper")
    assert states(made, chain("other")) == {"words": KNOWN, "upper": CLEARED, "count": KNOWN}
    assert build_all(made, chain("other")) == []
    theirs = made.pointer("other", "upper")
    assert theirs is not None and theirs.version == record.version and theirs.body["reused"] == record.digest
    assert states(made, chain("other")) == {"words": UP_TO_DATE, "upper": CLEARED, "count": UP_TO_DATE}


def test_another_result_than_before_is_not_published(made: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record = clear(made, "upper")
    monkeypatch.setattr(test_build, "upper", lambda inputs, config, out: (out / "upper.txt").write_text("?") and {})
    with pytest.raises(ValidationFailed, match="reproducible"):
        build.build(made, chain()["upper"], wanted=True)
    assert made.pointer("toy", "upper") == record
    assert not made.intact("upper", record.version)
    assert states(made, chain())["upper"] == CLEARED


def test_content_lost_by_accident_is_made_anew_as_before(made: Store) -> None:
    import shutil

    record = clear(made, "upper")
    build.build(made, chain()["upper"], wanted=True)
    shutil.rmtree(made.content("upper", record.version))
    assert states(made, chain())["upper"] == WILL_RUN
    assert len(made.verify()) == 1


def test_a_training_notes_what_it_reads(store: Store) -> None:  # noqa: F811
    nodes = chain()
    build_all(store, nodes)
    node = replace(training(""), inputs={"upper": nodes["upper"]})
    build.build(store, node)
    (noted,) = (store.home / "runs").glob("*/inputs.json")
    upper = store.pointer("toy", "upper")
    assert upper is not None and json.loads(noted.read_text(encoding="utf-8")) == {"upper": upper.digest}


def test_settling_needs_no_content(made: Store, tmp_path: Path) -> None:
    """The chain above was made again and came out equal: the cleared asset gets today's inputs."""
    record = clear(made, "upper")
    nodes = chain()
    again = build.build(made, nodes["words"], forced=True).record
    need = needed(made, nodes["upper"])
    assert need.gone is not None and not need.up_to_date and not need.must_run
    now = settle(made, need)
    assert now.inputs == {"words": again.digest} and now.version == record.version
    assert not made.intact("upper", record.version)
