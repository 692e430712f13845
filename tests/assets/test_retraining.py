"""Retrains that run themselves: what the sensor and the schedule ask for, and what a run then does."""

import bz2
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from assets import retraining
from assets.definitions import definitions
from pipeline import champion, retrain
from pipeline.build import open_store
from pipeline.recipe import load_recipes
from tests import tiny
from tests.assets.bertcli import World
from tests.pipeline.badserver import Site, serving
from tests.pipeline.test_retrain import recipe
from tests.pipeline.test_wikimedia import add_dump, chosen, site, status  # noqa: F401


def ask(sensor: dg.SensorDefinition, cursor: str | None = None) -> dg.SensorResult:
    """One tick of a sensor."""
    with dg.DagsterInstance.ephemeral() as instance:
        told = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
    return told if isinstance(told, dg.SensorResult) else dg.SensorResult(skip_reason=told)  # type: ignore[arg-type]


def test_the_sensor_asks_once_for_each_finished_dump(tmp_path: Path, site: Site) -> None:  # noqa: F811
    asked = recipe(tmp_path, "{}")
    sensor = retraining.new_dump_sensor(asked)
    assert sensor is not None
    add_dump(site, "20260101", done="in-progress")
    assert "no finished dump of tlwiki" in str(ask(sensor).skip_reason)
    add_dump(site, "20260101")
    first = ask(sensor)
    assert first.run_requests is not None
    (request,) = first.run_requests
    assert (request.run_key, request.tags["dump"]) == ("monthly 20260101", "20260101")
    again = ask(sensor, first.cursor)  # it died before it kept its cursor, or before the run began: the same key
    assert again.run_requests is not None and again.run_requests[0].run_key == request.run_key
    retrain.settle(open_store(), asked, "20260101")  # the run has begun
    assert "nothing new: tlwiki 20260101" in str(ask(sensor, first.cursor).skip_reason)
    add_dump(site, "20260201")
    assert [r.run_key for r in ask(sensor, first.cursor).run_requests or ()] == ["monthly 20260201"]


def test_a_site_that_does_not_answer_or_lies_is_skipped_and_said(tmp_path: Path, site: Site) -> None:  # noqa: F811
    sensor = retraining.new_dump_sensor(recipe(tmp_path, "{}"))
    assert sensor is not None
    add_dump(site, "20260101", sha1="none")
    assert "sha1 'none'" in str(ask(sensor).skip_reason)
    site.always["/tlwiki/"] = status(500)
    assert "500" in str(ask(sensor).skip_reason)


def test_sensor_and_schedule_are_there_for_every_retrained_recipe_and_ship_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe(tmp_path, "{day: 3}")
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"recipes: {tmp_path / 'recipes'}\nhome: {tmp_path / 'home'}\n", encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(settings))
    defined = definitions()
    sensor, schedule = defined.get_sensor_def("new_dump_monthly"), defined.get_schedule_def("monthly_monthly")
    assert sensor.default_status == dg.DefaultSensorStatus.STOPPED
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED and schedule.cron_schedule == "0 4 3 * *"
    dg.Definitions.validate_loadable(defined)
    with dg.DagsterInstance.ephemeral() as instance:
        at = datetime(2026, 3, 3, 4, tzinfo=UTC)
        tick = schedule.evaluate_tick(dg.build_schedule_context(instance=instance, scheduled_execution_time=at))
    (request,) = tick.run_requests or ()
    assert request.run_key == "monthly monthly 20260303" and "dump" not in request.tags


# ── a real retrain ───────────────────────────────────────────────────────────────────────────────────────────────────


def put(site: Site, date: str, pages: int) -> None:  # noqa: F811
    """A finished dump of the tiny wiki."""
    name = f"tinywiki-{date}-pages-articles.xml.bz2"
    data = bz2.compress(tiny.dump(pages).encode())
    files = {name: {"size": len(data), "sha1": hashlib.sha1(data).hexdigest()}}
    site.files[f"/tinywiki/{date}/{name}"] = data
    site.files[f"/tinywiki/{date}/dumpstatus.json"] = json.dumps(
        {"version": "0.8", "jobs": {"articlesdump": {"status": "done", "files": files}}}
    ).encode()


def test_a_new_dump_is_trained_on_from_the_champion_and_a_rerun_runs_nothing(tmp_path: Path) -> None:
    world = World.make(tmp_path / "world")
    (world.folder / "recipes" / "tiny_child.yaml").unlink()
    path = world.folder / "recipes" / "again.yaml"
    path.write_text(
        "name: again\nextends: tiny\ncorpus: {sources: {books: null, wikipedia: {from: {path: null, wiki: tinywiki, dump: latest}}}}\n"
        "finetuning: {tasks: [], define: null, data: null, overrides: null}\nretrain: {start: warm}\n",
        encoding="utf-8",
    )
    with serving() as server:
        settings = world.folder / "settings.yaml"
        told = f"downloads: {{site: '{server.url}', hosts: [127.0.0.1]}}\n"
        settings.write_text(settings.read_text(encoding="utf-8") + told, encoding="utf-8")
        put(server, "20260101", 40)
        world.bert("run", "again/release")
        first = world.store.pointer("again", "release")
        assert first is not None
        steps = {row["asset"] for row in world.json("status", "again")["assets"]}
        assert "imported_checkpoint" not in steps, "there was no champion to begin from"
        champion.promote(world.store, "again", first, None, "me", "the first", "2026-01-20T00:00:00+00:00")
        assert "is up to date" in world.bert("run", "again/release")

        put(server, "20260201", 44)
        world.bert("run", "again/release")
        second = world.store.pointer("again", "release")
        assert second is not None and second.version != first.version
        chain = {step["asset"]: step for step in world.json("audit", "again/release")["chain"]}
        assert chain["imported_checkpoint"]["asked"]["version"] == first.version
        assert chain["wikipedia_dump"]["asked"]["from"]["date"] == "20260201"
        differ = {each["asset"]: each for each in world.json("diff", "again/release~1", "again/release")["differ"]}
        assert differ["wikipedia_dump"]["config"]["from.date"] == ["20260101", "20260201"]
        assert differ["wikipedia_text"]["numbers"]["read"] == [42, 46]
        assert differ["imported_checkpoint"]["versions"][0] is None and "wordpiece_vocab" not in differ
        assert "■ wikipedia_dump" in world.bert("diff", "again/release~1", "again/release")
        champion.promote(world.store, "again", second, None, "me", "the second", "2026-02-20T00:00:00+00:00")
        for dump, version in (("20260101", first.version), ("20260201", second.version)):
            output = world.bert("run", "again/release", "--dump", dump)
            assert "▸" not in output, "the memory answers: nothing runs"
            assert world.versions("again")["release"] == version or dump == "20260101"
    loaded = load_recipes(world.folder / "recipes").get("again")
    assert [m.champion for m in retrain.known(world.store, "again")] == [None, first.digest] and loaded.retrain
