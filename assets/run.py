"""`bert run`: settle what the store remembers, and let Dagster make the rest, in a run that its UI shows too.

The run executes in a process of its own (`python -m assets.run RUN_ID RECIPE`); this process follows its events, prints
them, and turns Ctrl-C into a clean cancel of the run and everything under it.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any
from uuid import uuid4

import dagster as dg

from assets import watching
from assets.asset import (
    DUMP,
    FORCE,
    NO_MORE_TRIES,
    RECIPE,
    WANTED,
    check_results,
    failure_of,
    key_of,
    metadata_of,
    process_tag,
    safe_name,
)
from assets.commands.nothing import nothing_to_do
from assets.commands.plan import plan
from assets.commands.reading import run_lock
from assets.dagster_home import UNFINISHED, end_dead_runs, explains_database, instance
from assets.definitions import WIRING, definitions
from assets.graph import clear_run
from assets.run_events import asset_of_step, failure_text, untold, was_interrupted
from pipeline.build import Node, failed, needed, refuse_red, settle
from pipeline.errors import BertError
from pipeline.store import Record, Store, open_store
from pipeline.system.atomic import explained
from pipeline.system.owners import Owner, held_lock

Say = Callable[[str], None]


def run(
    recipe: str,
    graph: Mapping[str, Node],
    forced: Sequence[str],
    say: Say,
    wanted: Sequence[str] = (),
    dump: str | None = None,
) -> bool:
    """Bring every asset of `graph` up to date, and have the content of those `wanted` there; `dump`: the retrain that it is.
    Returns whether all of them are. What follows from it (assets/watching.py) is done.

    Raises BertError when nothing could be started.
    """
    try:
        return _run(recipe, graph, forced, say, wanted, dump)
    except BertError as error:
        watching.stopped(recipe, error)
        raise


def _run(
    recipe: str, graph: Mapping[str, Node], forced: Sequence[str], say: Say, wanted: Sequence[str], dump: str | None
) -> bool:
    store = open_store()
    with ExitStack() as held:
        lock = run_lock(store.home, recipe)
        # Before Dagster's database is opened: a read-only or full disk is said here.
        with explained(lock), _first_followed(recipe, say) as waiting:
            descriptor = held.enter_context(held_lock(lock, waiting=waiting, what=f"bert run {recipe}"))
        opened = held.enter_context(instance())
        for ended in end_dead_runs(opened):
            say(f"ended run {ended[:8]}: its process is dead")
            _follows(opened, ended, lambda _: None)
        for swept in store.sweep():
            say(f"swept {swept}: its owner is dead")
        for cleared in store.clear_runs(clear_run):
            say(f"cleared {cleared}: its result is published")
        planned = plan(store, graph, forced, wanted)
        settled, records, red = [], [], False
        for node, content in [(p.node, p.wanted) for p in planned if not p.needs_step]:
            record = settle(store, needed(store, node, wanted=content))
            _tell_dagster(opened, store, node, record)
            try:
                refuse_red(node, record)
                settled.append(node.name)
                after = WIRING[node.stage.name].after
                if after is not None and (line := after(store, record)):
                    say(line)
                records.append(record)
            except BertError as error:
                say(f"✗ {error}")
                watching.stopped(recipe, error)
                red = True
        if settled:
            say(f"{len(settled)} of {len(graph)} assets are up to date: {', '.join(settled)}")
        steps = [p for p in planned if p.needs_step]
        for p in steps:
            say(f"  {p.state:8}  {p.node.name}: {p.why}")
        again = [p.node.name for p in steps if p.wanted]
        told = {FORCE: ",".join(forced), WANTED: ",".join(again), DUMP: dump or ""}
        tags = {name: value for name, value in told.items() if value}
        if not steps and not red:
            watching.did_nothing(recipe)
            say(nothing_to_do(store, recipe, records, dump))
        done = not steps or _execute(opened, recipe, [p.node.name for p in steps], tags, say, descriptor)
        left = [store.pointer(p.node.recipe, p.node.name) for p in steps]
        return done and not red and not any(failed(record) for record in left if record is not None)


@contextmanager
def _first_followed(recipe: str, say: Say) -> Iterator[Say]:
    """What a second `bert run` says while it waits for the first: how to go on, and what the first one's run says."""
    done = threading.Event()

    def follow() -> None:
        # Without Dagster's database nothing is shown; `run` says so once it is this one's turn.
        with suppress(BertError), instance() as opened:
            wanted = dg.RunsFilter(tags={RECIPE: recipe}, statuses=UNFINISHED)
            found = opened.get_runs(wanted, limit=1)
            cursor, new = None, False
            while found and not done.is_set():
                page = opened.get_records_for_run(found[0].run_id, cursor)
                cursor = page.cursor
                lines = [line for record in page.records if (line := _line(opened, record.event_log_entry))]
                for line in lines if new else lines[-1:]:  # where it is now, not all that it said before
                    say(line)
                new = new or not page.has_more
                done.wait(1)

    def waiting(line: str) -> None:
        say(
            f"{line}. It is shown here; Ctrl-C ends the waiting, not that run: cancel it there, or in Dagster (make ui)"
        )
        threading.Thread(target=follow, daemon=True, name="follow-first").start()

    try:
        yield waiting
    finally:
        done.set()


def _tell_dagster(opened: dg.DagsterInstance, store: Store, node: Node, record: Record) -> None:
    """Where Dagster's latest materialization says something else than the store, report what the store says."""
    key = key_of(node)
    event = opened.get_latest_materialization_event(key)
    latest = event.asset_materialization if event else None
    tags = {
        "dagster/data_version": record.version,
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": node.code_version,
        **{
            f"dagster/input_data_version/{key_of(source).to_user_string()}": store.record(record.inputs[name]).version
            for name, source in node.inputs.items()
            if name in record.inputs  # a comparison leaves out what was never made
        },
    }
    if latest is not None and all((latest.tags or {}).get(name) == value for name, value in tags.items()):
        return
    for source in node.inputs.values():  # which event of each input it was made from: the one that Dagster has now
        events = opened.fetch_materializations(key_of(source), limit=1).records
        pointer = str(events[0].storage_id) if events else "NULL"
        tags[f"dagster/input_event_pointer/{key_of(source).to_user_string()}"] = pointer
    metadata = metadata_of(store, WIRING[node.stage.name], record)
    opened.report_runless_asset_event(dg.AssetMaterialization(key, metadata=metadata, tags=tags))
    validation = record.body["validation"]
    for result in check_results(node, validation["results"], record.body["waivers"]):
        opened.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=key,
                check_name=str(result.check_name),
                passed=result.passed,
                metadata=result.metadata,
                severity=result.severity,
            )
        )


def job_of(recipe: str) -> dg.JobDefinition:
    """The recipe's job; importable by name, so that the run's process can rebuild it."""
    return definitions(recipe).resolve_job_def(safe_name(recipe))


def _reconstructable(recipe: str) -> Any:
    return dg.build_reconstructable_job("assets.run", "job_of", reconstructable_args=(recipe,))


def _execute(
    opened: dg.DagsterInstance, recipe: str, steps: Sequence[str], tags: Mapping[str, str], say: Say, lock: int
) -> bool:
    """Run these assets in a process of its own, which holds the recipe's lock too: should this one be killed, the next
    `bert run` waits for what still runs."""
    selection = frozenset(dg.AssetKey([safe_name(recipe), name]) for name in steps)
    job = _reconstructable(recipe).get_definition().get_subset(asset_selection=selection)
    run_id = str(uuid4())  # named here, so that from its first moment on the run says whose it is
    told = {RECIPE: recipe, **tags, **process_tag(run_id, Owner.this())}
    created = opened.create_run_for_job(job_def=job, run_id=run_id, asset_selection=selection, tags=told)
    command = [sys.executable, "-m", "assets.run", created.run_id, recipe]
    with tempfile.TemporaryFile() as printed, _cancels(opened, created.run_id):
        child = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=printed, pass_fds=[lock]
        )
        succeeded = _follow(opened, created.run_id, child, say, printed)
        _follows(opened, created.run_id, say)
        return succeeded


def _follows(opened: dg.DagsterInstance, run_id: str, say: Say) -> None:
    """What follows from a run that has ended; where that goes wrong, it is said."""
    try:
        if line := watching.ended(opened, run_id, by_hand=True):
            say(line)
    except BertError as error:
        say(f"! what follows from the run could not be done: {error}")


def _tail(printed: IO[bytes], lines: int = 12, size: int = 8192) -> list[str]:
    """The last lines that a process printed."""
    printed.seek(max(0, printed.seek(0, os.SEEK_END) - size))
    return printed.read().decode("utf-8", "replace").splitlines()[-lines:]


@contextmanager
def _cancels(opened: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """Within the block, SIGINT and SIGTERM ask Dagster to cancel the run instead of ending this process."""

    def ask(number: int, frame: FrameType | None) -> None:
        run = opened.get_run_by_id(run_id)
        if run is not None and not run.is_finished and run.status != dg.DagsterRunStatus.CANCELING:
            opened.report_run_canceling(run)
            opened.add_run_tags(run_id, NO_MORE_TRIES)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _follow(
    opened: dg.DagsterInstance, run_id: str, child: "subprocess.Popen[bytes]", say: Say, printed: IO[bytes]
) -> bool:
    """Print the run's events until its process has ended; pass a cancel on to it."""
    cursor, sent, said = None, False, set[str]()
    while True:
        ended = child.poll() is not None
        run = opened.get_run_by_id(run_id)
        wanted = run is not None and run.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)
        if wanted and not sent and not ended:
            child.send_signal(signal.SIGINT)
            sent = True
        page = opened.get_records_for_run(run_id, cursor)
        cursor = page.cursor
        for record in page.records:
            event, line = record.event_log_entry.dagster_event, _line(opened, record.event_log_entry)
            if wanted and event is not None and event.is_step_up_for_retry:
                continue  # it is not tried again: the run is being canceled
            if event is not None and event.is_step_success and _told_to_fail(asset_of_step(event.step_key), said):
                continue
            if line and (event is None or line not in said):
                said.add(line)
                say(line)
        if ended and not page.has_more:
            break
        time.sleep(0.5)
    run = opened.get_run_by_id(run_id)
    if run is not None and not run.is_finished:
        code = child.returncode
        how = f"was killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with code {code}"
        say("\n    ".join([f"✗ the run's process {how}", *(_tail(printed) if code > 0 else [])]))
        opened.report_run_failed(run, f"Its process {how}.")
        run = opened.get_run_by_id(run_id)
    elif (
        run is not None and run.status == dg.DagsterRunStatus.FAILURE and not any(line.startswith("✗") for line in said)
    ):
        say(f"✗ {untold(opened, run_id)}")
    opened.event_log_storage.free_concurrency_slots_for_run(run_id)  # of a step that broke off before it said so
    if run is not None and run.status == dg.DagsterRunStatus.CANCELED:
        say("canceled; what was finished stays, and training goes on from its last checkpoint next time")
    return run is not None and run.status == dg.DagsterRunStatus.SUCCESS


DAGSTERS_OWN = ("finished without success or failure event", "were not executed")
"""Words of messages about steps that follow from what was said already."""


def _line(opened: dg.DagsterInstance, entry: dg.EventLogEntry) -> str | None:
    """What a person should see of one event; None: nothing."""
    event = entry.dagster_event
    if event is None:
        internal = any(words in entry.user_message for words in DAGSTERS_OWN)
        return entry.user_message if int(entry.level) >= logging.INFO and not internal else None
    if event.is_engine_event and (waits := _waits(opened, event)):
        return waits
    if event.is_step_start:
        return f"▸ {asset_of_step(event.step_key)}"
    if event.is_step_up_for_retry:
        retry = event.step_retry_data
        return (
            f"! {asset_of_step(event.step_key)}: {_lost(retry.error)}\ntried again in {retry.seconds_to_wait or 0:g} s"
        )
    if event.is_step_failure and was_interrupted(event):
        return f"! {asset_of_step(event.step_key)} was interrupted"
    if event.is_step_failure:
        return f"{failure_of(asset_of_step(event.step_key))}{failure_text(event)}"
    if event.is_step_success:
        return f"✓ {asset_of_step(event.step_key)}"
    return None


def _waits(opened: dg.DagsterInstance, event: dg.DagsterEvent) -> str:
    """That a step waits for a pool, and for whom; "" where the event says something else."""
    pool = event.engine_event_data.metadata.get("pool")
    if not isinstance(pool, dg.PoolMetadataValue) or not event.step_key:
        return ""
    held = opened.event_log_storage.get_concurrency_info(pool.value)
    holders = []
    for slot in held.claimed_slots:
        run = opened.get_run_by_id(slot.run_id)
        recipe = run.tags.get(RECIPE, "") if run is not None else ""
        ours = not recipe or slot.step_key.partition("__")[0] == event.step_key.partition("__")[0]
        holders.append(asset_of_step(slot.step_key) if ours else f"{recipe}/{asset_of_step(slot.step_key)}")
    at_once = f"{held.limit} at a time" if held.limit else "one at a time"
    whom = f": {', '.join(holders)} {'has' if len(holders) == 1 else 'have'} it" if holders else ""
    return f"{asset_of_step(event.step_key)} waits for its turn in the pool {pool.value}, {at_once}{whom}"


def _told_to_fail(asset: str, said: set[str]) -> bool:
    """Whether a step that ended well has said that its asset failed."""
    return any(line.startswith(failure_of(asset)) for line in said)


def _lost(error: Any) -> str:
    """What a step that is tried again was lost to."""
    error = error.cause or error
    if error.cls_name == "ChildProcessCrashException":
        return "its process was killed"
    if error.cls_name == "DagsterExecutionInterruptedError":
        return "it was interrupted"
    return str(error.message).strip().removeprefix("dagster._core.definitions.events.Failure: ")


def _cancel_as_orphan(opened: dg.DagsterInstance, run_id: str) -> None:
    """Once the `bert run` that passes a cancel on is dead, do that in its place."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    while True:
        run = opened.get_run_by_id(run_id)
        if run is not None and run.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED):
            os.kill(os.getpid(), signal.SIGINT)
            return
        time.sleep(1)


def main(arguments: Sequence[str]) -> None:
    """The run's own process."""
    from dagster._core.execution.api import execute_run  # the one way to execute a run that exists already

    run_id, recipe = arguments
    with dg.DagsterInstance.get() as opened:
        created = opened.get_run_by_id(run_id)
        if created is None:
            raise BertError(f"there is no run {run_id}", "Start one: bert run RECIPE")
        opened.add_run_tags(run_id, process_tag(run_id, Owner.this()))
        threading.Thread(target=_cancel_as_orphan, args=(opened, run_id), daemon=True).start()
        execute_run(_reconstructable(recipe), created, opened, raise_on_error=False)


if __name__ == "__main__":
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    try:
        with explains_database(Path(os.environ["DAGSTER_HOME"])):
            main(sys.argv[1:])
    except BertError as error:
        raise SystemExit(f"error: {error}") from None
