"""What follows when a run has ended, whoever started it: alerts, the metrics file, and a line where it did nothing.

`bert run` does it itself; for runs of the daemon a sensor does, which ships switched on: without alerts and metrics in
settings.yaml it only says which runs did nothing, and ends those whose process is dead, so that Dagster tries them again.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from assets import monitoring, run_events
from assets.asset import DUMP, RECIPE
from assets.commands.nothing import made_anew, nothing_to_do
from assets.dagster_home import end_dead_runs
from pipeline.errors import BertError
from pipeline.retrains import alerts, watched
from pipeline.retrains.alerts import Alert
from pipeline.settings import settings
from pipeline.storage.record import utc_now
from pipeline.store import Store, open_store

OUTCOME = (
    "bert/outcome"  # run tag: `RUN_ID made`, once what follows was done; a run that is executed again begins with it
)
WILL_RETRY = "dagster/will_retry"
FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
LOOK_SECONDS = 60
SETTLED_SECONDS = 5.0
"""after a run has ended: its tags may come a moment later"""
OVERLAP = timedelta(minutes=10)
"""looks reach back beyond the last one: what was written then may have become visible later"""


def ended(opened: dg.DagsterInstance, run_id: str, by_hand: bool) -> str:
    """Do what follows from a run that has ended, once; by_hand: `bert run` waits for it. Returns the line to say where it did
    nothing, else "".

    Of a run that Dagster's daemon tries again, only the last one is told.
    """
    run = opened.get_run_by_id(run_id)
    recipe = run.tags.get(RECIPE) if run is not None else None
    if run is None or recipe is None or not run.is_finished or run.tags.get(OUTCOME, "").startswith(run_id):
        return ""
    store, chosen, line = open_store(), settings(), ""
    found = run_events.causes(opened, run) if run.status != dg.DagsterRunStatus.CANCELED else []
    outcome: watched.Outcome = "made"
    if run.status == dg.DagsterRunStatus.CANCELED:
        outcome = "canceled"
    elif found:
        outcome = "failed"
    else:
        line = _nothing(opened, store, run, recipe)
        outcome = "nothing to do" if line else "made"
    if found and (by_hand or run.tags.get(WILL_RETRY) != "true"):
        alerts.alert(chosen, _failed(run, recipe, found))
    stats = opened.get_run_stats(run_id)
    time = (
        datetime.fromtimestamp(stats.end_time, UTC).isoformat(timespec="microseconds") if stats.end_time else utc_now()
    )
    watched.note_run(store.home, recipe, outcome, run_id, time)
    if line:
        opened.report_engine_event(line, run)
    opened.add_run_tags(run_id, {OUTCOME: f"{run_id} {outcome}"})
    monitoring.write(chosen)
    return line


def _nothing(opened: dg.DagsterInstance, store: Store, run: dg.DagsterRun, recipe: str) -> str:
    """The line of a run that made nothing anew; "" where it made something."""
    records = list(run_events.records_of(opened, store, run))
    begun = opened.get_run_stats(run.run_id).start_time
    since = datetime.fromtimestamp(begun, UTC).isoformat(timespec="microseconds") if begun else ""
    if not records or made_anew(records, since):
        return ""
    return nothing_to_do(store, recipe, records, run.tags.get(DUMP))


def _failed(run: dg.DagsterRun, recipe: str, found: Sequence[run_events.Cause]) -> Alert:
    first, *others = found
    cause = "\n".join([first.why, *(f"also {each.asset}: {each.why}" for each in others)])
    again = f"bert run {recipe}{f' --dump {run.tags[DUMP]}' if DUMP in run.tags else ''}"
    return Alert("run failed", recipe, run.run_id, cause, f"bert status {recipe} · {again}", run.run_id, first.asset)


def stopped(recipe: str, error: BertError) -> None:
    """Tell of a `bert run` that could not be started, or whose published content is refused: once a day for the same cause."""
    chosen = settings()
    which = hashlib.sha256(error.what.encode()).hexdigest()[:12]
    alerts.alert(chosen, Alert("run failed", recipe, f"{utc_now()[:10]}-{which}", str(error), f"bert status {recipe}"))
    watched.note_run(chosen.home_path, recipe, "failed")
    monitoring.write(chosen)


def did_nothing(recipe: str) -> None:
    """Note a `bert run` for which no run had to be started."""
    chosen = settings()
    watched.note_run(chosen.home_path, recipe, "nothing to do")
    monitoring.write(chosen)


@dg.sensor(
    name="watch_runs",
    minimum_interval_seconds=LOOK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Says what became of runs that have ended: alerts, the metrics file, and which did nothing.",
)
def watch_runs(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Starts nothing itself."""
    now = datetime.now(UTC)
    since = datetime.fromisoformat(context.cursor) if context.cursor else now
    told = [f"ended run {run_id[:8]}: its process is dead" for run_id in end_dead_runs(context.instance)]
    finished = context.instance.get_run_records(dg.RunsFilter(statuses=FINISHED, updated_after=since - OVERLAP))
    for record in reversed(finished):
        if record.update_timestamp.timestamp() <= now.timestamp() - SETTLED_SECONDS:
            try:
                line = ended(context.instance, record.dagster_run.run_id, by_hand=False)
            except BertError as error:  # of one run: the others are told all the same
                line = str(error)
            told += [line] if line else []
    alerts.resend(settings())
    monitoring.write(settings())
    return dg.SensorResult(skip_reason="; ".join(told) or "nothing to tell", cursor=now.isoformat())
