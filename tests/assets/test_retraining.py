"""Retrains that run themselves: what the sensor and the schedule ask for, and what a run then does."""

import bz2
import hashlib
import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from assets import retraining
from assets.definitions import definitions
from pipeline import retrain
from pipeline.config import WikimediaFrom
from pipeline.origins import wikimedia
from pipeline.recipe import load_recipes
from pipeline.retrains import watched
from pipeline.storage import champion
from pipeline.store import open_store
from tests import tiny
from tests.assets.bertcli import World
from tests.pipeline.badserver import Site, serving
from tests.pipeline.origins.test_wikimedia import add_dump, chosen, site, status  # noqa: F401
from tests.pipeline.receivers import webhook
from tests.pipeline.test_retrain import recipe


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
    tmp_path: Path,
    site: Site,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe(tmp_path, "{day: 3}")
    add_dump(site, "20260301")
    settings = tmp_path / "settings.yaml"
    told = f"recipes: {tmp_path / 'recipes'}\nhome: {tmp_path / 'home'}\n"
    told += f"downloads: {{site: '{site.url}', hosts: [127.0.0.1]}}\n"
    settings.write_text(told, encoding="utf-8")
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


def test_a_held_dump_is_told_once_and_the_schedule_does_not_take_it(
    tmp_path: Path,
    site: Site,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = recipe(tmp_path, "{day: 3}")
    sensor, schedule = retraining.new_dump_sensor(asked), retraining.monthly(asked)
    assert sensor is not None
    with webhook() as hook, dg.DagsterInstance.ephemeral() as instance:
        settings = tmp_path / "alerts.yaml"
        told = f"downloads: {{site: '{site.url}', hosts: [127.0.0.1]}}\nalerts: {{webhook: {{url: '{hook.url}'}}}}\n"
        settings.write_text(told, encoding="utf-8")
        monkeypatch.setenv("BERT_SETTINGS", str(settings))
        at = datetime(2026, 3, 3, 4, tzinfo=UTC)
        context = dg.build_schedule_context(instance=instance, scheduled_execution_time=at)
        assert "no finished dump of tlwiki" in str(schedule.evaluate_tick(context).skip_message)
        add_dump(site, "20260101")
        assert len(schedule.evaluate_tick(context).run_requests or ()) == 1
        settled = retrain.settle(open_store(), asked, "20260101")
        path = open_store().home / "assets" / "monthly" / "retrains" / "20260101.json"
        larger = {source: (size or 0) * 2 for source, size in settled.sizes.items()}
        path.write_text(json.dumps({**asdict(settled), "sizes": larger}), encoding="utf-8")
        assert len(schedule.evaluate_tick(context).run_requests or ()) == 1, "nothing is new: the memory answers"
        add_dump(site, "20260201")
        first = ask(sensor)
        assert "monthly: held: tlwiki 20260201" in str(first.skip_reason)
        assert "monthly: held: tlwiki 20260201" in str(schedule.evaluate_tick(context).skip_message)
        ask(sensor, first.cursor)
        ask(sensor)  # Dagster's database was lost
        ((_, _, body),) = hook.got
        assert (body["kind"], body["recipe"]) == ("retrain held", "monthly")
        assert "% less than 20260101" in body["cause"] and "bert run monthly --dump 20260201" in body["next"]
        look = watched.last_look(open_store().home, "monthly")
        assert look is not None and (look["does"], look["dumps"]) == ("hold", {"tlwiki": "20260201"})
        wikimedia.resolve(WikimediaFrom(wiki="tlwiki", dump="20260101"))  # as a run does
        site.always["/tlwiki/"] = status(500)
        assert len(schedule.evaluate_tick(context).run_requests or ()) == 1, "the run takes the dump that is known here"


# ── a real retrain ───────────────────────────────────────────────────────────────────────────────────────────────────


def put(site: Site, date: str, pages: int, poisoned: bool = False) -> None:  # noqa: F811
    """A finished dump of the tiny wiki; in a poisoned one most articles were cut down to a paragraph, others blown up."""
    name = f"tinywiki-{date}-pages-articles.xml.bz2"
    text = tiny.dump(pages, lambda n: 5 if not poisoned else 21 if n % 5 == 0 else 1)
    data = bz2.compress(text.encode())
    files = {name: {"size": len(data), "sha1": hashlib.sha1(data).hexdigest()}}
    site.files[f"/tinywiki/{date}/{name}"] = data
    site.files[f"/tinywiki/{date}/dumpstatus.json"] = json.dumps(
        {"version": "0.8", "jobs": {"articlesdump": {"status": "done", "files": files}}}
    ).encode()


def world_of(folder: Path, site: Site, section: str) -> World:  # noqa: F811
    """A world whose recipe `again` is retrained on the dumps of a site."""
    world = World.make(folder)
    (world.folder / "recipes" / "tiny_child.yaml").unlink()
    path = world.folder / "recipes" / "again.yaml"
    path.write_text(
        "name: again\nextends: tiny\n"
        "corpus: {sources: {books: null, wikipedia: {from: {path: null, wiki: tinywiki, dump: latest}}}}\n" + section,
        encoding="utf-8",
    )
    settings = world.folder / "settings.yaml"
    told = f"downloads: {{site: '{site.url}', hosts: [127.0.0.1]}}\n"
    settings.write_text(settings.read_text(encoding="utf-8") + told, encoding="utf-8")
    return world


def test_a_new_dump_is_trained_on_from_the_champion_and_a_rerun_runs_nothing(tmp_path: Path) -> None:
    no_tasks = "finetuning: {tasks: [], define: null, data: null, overrides: null}\n"
    with serving() as server:
        world = world_of(tmp_path / "world", server, f"{no_tasks}retrain: {{start: warm}}\n")
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


# ── the drill: a good dump, a poisoned one, a rollback ───────────────────────────────────────────────────────────────

DRILL = """\
finetuning: {tasks: [places], seeds: 2, epochs: 1}
retrain:
  start: warm
  gates: {seeds: 2, held_out_loss: 0.6, sentence_pairs: 0.5, tasks: 40, drift: 0.6, floors: {mlm_accuracy: 0.1}}
"""


def gates(world: World) -> dict[str, bool | None]:
    """Gate → whether the last decision passed it."""
    decision = world.store.pointer("again", "promotion_decision")
    assert decision is not None
    folder = world.store.folder(decision.stage, decision.version)
    found = json.loads((folder / "decision.json").read_text(encoding="utf-8"))
    return {gate["name"]: gate["passed"] for gate in found["gates"]}


def in_use(world: World) -> champion.Champion:
    return champion.read(world.store, "again")


def test_a_good_dump_is_promoted_a_poisoned_one_is_not_and_what_was_rolled_back_does_not_return(tmp_path: Path) -> None:
    with serving() as server:
        world = world_of(tmp_path / "world", server, DRILL)
        put(server, "20260101", 120)
        first = world.bert("run", "again")
        assert "promoted. Release" in first and "as the first champion" in first
        january = in_use(world)
        assert january.champion is not None and january.previous is None
        assert {name for name, passed in gates(world).items() if passed is None} == {"champion"}, "there was none"
        assert january.history[0].decision == (world.store.pointer("again", "promotion_decision") or january).digest  # type: ignore[union-attr]
        version = world.store.record(january.champion).version
        assert (world.home / "attestations" / version / "provenance.intoto.jsonl").exists()

        put(server, "20260201", 124)
        world.bert("run", "again")
        february = in_use(world)
        assert february.previous == january.champion and february.champion != january.champion, gates(world)
        judged = gates(world)
        assert {"held_out.loss", "held_out.sentence_pairs", "places.accuracy", "documents.length_drift"} <= set(judged)
        assert all(passed is not False for passed in judged.values())
        again = world.bert("run", "again")
        assert "▸" not in again and in_use(world) == february, "a rerun after the promotion is the same run"

        put(server, "20260301", 128, poisoned=True)
        poisoned = world.bert("run", "again")
        march = world.store.pointer("again", "release")
        assert gates(world)["documents.length_drift"] is False and gates(world)["documents.characters"] is True
        assert "not promoted" in poisoned and "documents.length_drift" in poisoned, "it is said which number failed"
        assert march is not None and in_use(world) == february, "a failed gate leaves the champion in place"

        world.bert("rollback", "again", "--reason", "a drill")
        back = in_use(world)
        assert back.champion == january.champion and back.history[0].did == "rolled back"
        world.bert("run", "again", "--dump", "20260201")
        assert gates(world)["not_barred"] is False and in_use(world) == back, "what was rolled back does not return"
        gone = world.store.record(str(february.champion)).version
        world.bert("bar", gone[:12], "--lift", "--reason", "the drill is over")
        world.bert("run", "again", "--dump", "20260201")
        assert world.store.record(str(in_use(world).champion)).version == gone, "until it is unbarred"
