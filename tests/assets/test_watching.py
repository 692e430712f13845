"""What follows from a run that has ended: through `bert run`, and through the sensor for runs of Dagster's daemon."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from assets import watching
from assets.dagster_home import instance
from assets.definitions import definitions
from pipeline.retrains import alerts, watched
from tests.assets.bertcli import World
from tests.pipeline.receivers import Webhook, webhook

NOW = datetime.now(UTC)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as server:
        yield server


def told(world: World, hook: Webhook, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world with alerts and a metrics file, here and in the commands that it runs."""
    settings = world.folder / "settings.yaml"
    more = f"alerts: {{webhook: {{url: '{hook.url}'}}}}\nmetrics: {world.folder / 'metrics' / 'bert.prom'}\n"
    settings.write_text(settings.read_text(encoding="utf-8") + more, encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(settings))
    monkeypatch.delenv("BERT_HOME", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return world


@pytest.fixture
def world(tmp_path: Path, hook: Webhook, monkeypatch: pytest.MonkeyPatch) -> World:
    return told(World.make(tmp_path / "world"), hook, monkeypatch)


def look(opened: dg.DagsterInstance, cursor: str | None = None) -> dg.SensorResult:
    """One tick of the sensor, some seconds after the last run has ended."""
    time.sleep(watching.SETTLED_SECONDS + 0.5)
    with dg.build_sensor_context(instance=opened, cursor=cursor) as context:
        found = watching.watch_runs(context)
    assert isinstance(found, dg.SensorResult)
    return found


def outcome(world: World, recipe: str = "tiny") -> str:
    note = watched.last_run(world.home, recipe)
    assert note is not None
    return str(note["outcome"])


def test_a_run_from_the_console_that_fails_is_told_once(
    world: World, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = world.folder / "text" / "tinywiki.xml.bz2"
    dump.rename(dump.with_name("gone"))
    world.bert("run", "tiny/wikipedia_text", code=1)
    ((_, _, body),) = hook.got
    assert (body["kind"], body["recipe"], body["asset"]) == ("run failed", "tiny", "wikipedia_dump")
    assert "tinywiki.xml.bz2 does not exist" in body["cause"] and "Correct `path` in the recipe" in body["cause"]
    assert body["next"] == "bert status tiny · bert run tiny" and len(body["run"]) == 36
    metrics = (world.folder / "metrics" / "bert.prom").read_text(encoding="utf-8")
    assert 'bert_last_run_outcome{recipe="tiny",outcome="failed"} 1' in metrics and metrics.endswith("# EOF\n")
    with instance() as opened:
        cursor = look(opened).cursor
        look(opened, cursor)  # the daemon goes on
        look(opened)  # and begins anew
    assert len(hook.got) == 1 and outcome(world) == "failed"


def test_a_run_of_the_daemon_that_fails_is_told_once_and_one_that_did_nothing_says_so(
    world: World, hook: Webhook
) -> None:
    job = definitions("tiny").resolve_job_def("tiny")
    first = [dg.AssetKey(["tiny", "books_files"])]
    with instance() as opened:
        made = job.execute_in_process(instance=opened, asset_selection=first, tags={"bert/recipe": "tiny"})
        look(opened)
        assert outcome(world) == "made" and hook.got == []
        again = job.execute_in_process(instance=opened, asset_selection=first, tags={"bert/recipe": "tiny"})
        seen = look(opened)
        assert outcome(world) == "nothing to do"
        line = "tiny: nothing to do: its asset is published as of "
        assert line in str(seen.skip_reason) and "bert run tiny --force" in str(seen.skip_reason)
        assert [line in e.message for e in opened.all_logs(again.run_id)].count(True) == 1
        assert not any(line in e.message for e in opened.all_logs(made.run_id))

        for book in (world.folder / "text" / "books").iterdir():
            book.unlink()
        job.execute_in_process(
            instance=opened, asset_selection=first, tags={"bert/recipe": "tiny"}, raise_on_error=False
        )
        cursor = look(opened).cursor
        look(opened, cursor)
        look(opened)
        ((_, _, body),) = hook.got
        assert body["asset"] == "books_files" and "holds no files" in body["cause"]
        foreign = dg.materialize([_thing], instance=opened, raise_on_error=False)
        assert not foreign.success
        look(opened)
        assert len(hook.got) == 1, "a run of somebody else"


@dg.asset
def _thing() -> None:
    raise ValueError("no run of ours")


def test_one_that_dagster_tries_again_is_told_by_the_last_try_only(world: World, hook: Webhook) -> None:
    job = dg.Definitions(assets=[_thing]).resolve_implicit_global_asset_job_def()
    with instance() as opened:
        for _ in range(2):
            run = opened.create_run_for_job(job_def=job, tags={"bert/recipe": "tiny"})
            opened.report_run_failed(run, "Its process is dead.")
            assert opened.get_run_by_id(run.run_id).tags[watching.WILL_RETRY] == "true"  # type: ignore[union-attr]
        opened.add_run_tags(run.run_id, {watching.WILL_RETRY: "false"})
        look(opened)
    assert [(body["run"], body["cause"]) for _, _, body in hook.got] == [(run.run_id, "Its process is dead.")]


def test_a_webhook_that_is_down_fails_no_run(world: World, hook: Webhook) -> None:
    hook.answers = [500] * 3
    world.bert("run", "tiny/books_files")
    dump = world.folder / "text" / "tinywiki.xml.bz2"
    dump.rename(dump.with_name("gone"))
    output = world.bert("run", "tiny/wikipedia_dump", code=1)
    assert "was not sent by webhook: HTTP 500" in output and "tiny/wikipedia_dump is not up to date" in output
    with instance() as opened:
        look(opened)
    assert len(hook.got) == 4 and hook.got[3][2]["asset"] == "wikipedia_dump", "the sensor sent it again"


def test_a_second_run_says_that_there_is_nothing_to_do(made: World) -> None:
    output = made.bert("run", "tiny")
    version = made.versions()["release"][:12]
    (line,) = (each for each in output.splitlines() if "nothing to do" in each)
    assert line.startswith("tiny: nothing to do: all 17 assets are published as of 20")
    assert f"release is version {version}." in line and "bert run tiny --force" in line
    assert "tiny is up to date" in output.splitlines()[-1]
    assert outcome(made) == "nothing to do"


def test_what_could_not_be_started_is_told_once_a_day(world: World, hook: Webhook) -> None:
    from pipeline.errors import StoreError

    for _ in range(2):
        watching.stopped("tiny", StoreError("the disk is full", "Free space."))
    ((_, _, body),) = hook.got
    assert "the disk is full" in body["cause"] and body["run"] == ""
    assert alerts.Alert("run failed", "tiny", "x", "", "").title == "tiny: run failed"
    assert json.loads((world.home / "watched" / "tiny" / "run.json").read_text())["outcome"] == "failed"
