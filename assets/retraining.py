"""Retrains that run themselves: the sensor of new dumps, the monthly schedule, and what a run's retrain settles."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import dagster as dg

from assets import graph, monitoring
from assets.asset import DUMP, Settled
from pipeline import retrain
from pipeline.build import Node
from pipeline.errors import BertError
from pipeline.origins import wikimedia
from pipeline.recipe import Recipe
from pipeline.retrains import alerts, new_dumps, watched
from pipeline.retrains.alerts import Alert
from pipeline.settings import settings
from pipeline.store import open_store
from pipeline.system.owners import held_lock

LOOK_SECONDS = 3600
"""between two looks at the dump site"""


def settled(recipe: Recipe, asset: str) -> Settled:
    """How a step learns what its retrain settled: the first of a run settles it and tags the run, the others follow."""

    def of_run(tags: Callable[[], Mapping[str, str]], tag: Callable[[Mapping[str, str]], None]) -> Node | None:
        store = open_store()
        with held_lock(store.home / "locks" / f"moment-{recipe.name}"):  # two steps of a run may begin at once
            dump = tags().get(DUMP)
            moment = retrain.settle(store, recipe, dump)
            if dump is None:
                tag({DUMP: moment.dump})
        return graph.of_moment(store, recipe, moment).get(asset)

    return of_run


def new_dump_sensor(recipe: Recipe) -> dg.SensorDefinition | None:
    """Requests one run per new dump; None for a recipe that names no wiki's latest dump."""
    if not retrain.wikis(recipe):
        return None

    @dg.sensor(
        name=f"new_dump_{recipe.name}",
        job_name=recipe.name,
        minimum_interval_seconds=LOOK_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Retrains {recipe.name} once its wikis have a new complete dump.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            verdict, seen = _looked(recipe, json.loads(context.cursor or "{}"))
        except BertError as error:
            return dg.SkipReason(f"{recipe.name}: {error}")
        finally:
            monitoring.write(settings())
        cursor = json.dumps(seen)
        if verdict.does != "request":
            return dg.SensorResult(skip_reason=f"{recipe.name}: {verdict.why}", cursor=cursor)
        # The key makes it one run per dump, also where this process dies between the request and the cursor.
        run = dg.RunRequest(run_key=f"{recipe.name} {verdict.dump}", tags={DUMP: verdict.dump})
        return dg.SensorResult(run_requests=[run], cursor=cursor)

    return look


def _looked(
    recipe: Recipe, seen: Mapping[str, str], network: bool = True
) -> tuple[new_dumps.Verdict, Mapping[str, str]]:
    """What to do, and when each dump that is offered was seen first. It is noted, and a person hears of a held retrain."""
    assert recipe.retrain is not None
    store, now = open_store(), datetime.now(UTC)
    wikis = retrain.wikis(recipe)
    offered = {s: dump for s, wiki in wikis.items() if (dump := wikimedia.offered(wiki, network=network))}
    missing = sorted(set(wikis.values()) - {str(dump["wiki"]) for dump in offered.values()})
    noted = {name: seen.get(name, now.isoformat()) for name in map(new_dumps.seen_name, offered.values())}
    if missing:
        verdict, noted = new_dumps.Verdict("wait", "", f"no finished dump of {', '.join(missing)}"), dict(seen)
    else:
        before = retrain.known(store, recipe.name)
        first = {name: datetime.fromisoformat(time) for name, time in noted.items()}
        verdict = new_dumps.judge(offered, before[-1] if before else None, first, recipe.retrain, now)
    dumps = {str(dump["wiki"]): str(dump["date"]) for dump in offered.values()}
    watched.note_look(store.home, recipe.name, verdict.does, verdict.dump, verdict.why, dumps)
    if verdict.does == "hold":
        following = f"look at the dump; if it is as it should be: bert run {recipe.name} --dump {verdict.dump}"
        alerts.alert(settings(), Alert("retrain held", recipe.name, verdict.dump, verdict.why, following))
    return verdict, noted


def monthly(recipe: Recipe) -> dg.ScheduleDefinition:
    """The fallback: asks for a retrain once a month; where nothing is new, the store's memory answers and nothing runs."""
    assert recipe.retrain is not None

    @dg.schedule(
        name=f"monthly_{recipe.name}",
        job_name=recipe.name,
        cron_schedule=f"0 4 {recipe.retrain.day} * *",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=f"Retrains {recipe.name} once a month, whatever the sensor has seen.",
    )
    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if why := _in_vain(recipe):
            return dg.SkipReason(f"{recipe.name}: {why}")
        date = context.scheduled_execution_time.strftime("%Y%m%d")
        tags = (
            {} if retrain.wikis(recipe) else {DUMP: date}
        )  # with wikis it is named after what they offer when it begins
        return dg.RunRequest(run_key=f"{recipe.name} monthly {date}", tags=tags)

    return tick


def _in_vain(recipe: Recipe) -> str:
    """Why the schedule asks for no run: it would take a dump that is held, or find none. "": it asks."""
    if not retrain.wikis(recipe):
        return ""
    try:
        verdict, _ = _looked(recipe, {})
    except BertError:  # the run would take the newest dump that is known here
        verdict, _ = _looked(recipe, {}, network=False)
    return verdict.why if verdict.does == "hold" or not verdict.dump else ""
