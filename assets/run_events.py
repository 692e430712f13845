"""What Dagster's events of a run tell: why it failed, and what it made."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg

from assets.asset import failure_of
from pipeline.errors import StoreError
from pipeline.store import Record, Store


@dataclass(frozen=True)
class Cause:
    """Why one asset failed, or, without an asset, the run."""

    asset: str
    why: str


def causes(opened: dg.DagsterInstance, run: dg.DagsterRun) -> list[Cause]:
    """Why a run failed, in order of time: what its assets said; where none said anything, the run's own last words. Empty where
    nothing failed."""
    found: dict[Cause, None] = {}
    for entry in opened.all_logs(run.run_id):
        event = entry.dagster_event
        if event is not None and event.is_step_failure:
            found[Cause(asset_of_step(event.step_key), _reason(event))] = None
        elif event is None and entry.step_key and entry.user_message.startswith("✗"):  # others went on without it
            asset = asset_of_step(entry.step_key)
            if entry.user_message.startswith(failure_of(asset)):
                found[Cause(asset, entry.user_message.removeprefix(failure_of(asset)))] = None
    if not found and run.status == dg.DagsterRunStatus.FAILURE:
        found[Cause("", untold(opened, run.run_id))] = None
    return list(found)


def failure_text(event: dg.DagsterEvent) -> str:
    """What a step's failure says; with a stack for what nobody foresaw."""
    data = event.step_failure_data
    failure = data.user_failure_data
    if failure and failure.description:
        return failure.description
    return data.error.to_string() if data.error else ""


def was_interrupted(event: dg.DagsterEvent) -> bool:
    """Whether a step's failure is, or came of, a signal that asked the run to end; drawing libraries handle it on its way up."""
    error: Any = event.step_failure_data.error
    while error is not None:
        if error.cls_name == "DagsterExecutionInterruptedError":
            return True
        error = error.cause or error.context
    return False


def _reason(event: dg.DagsterEvent) -> str:
    """As `failure_text`, without a stack."""
    data = event.step_failure_data
    if (data.user_failure_data and data.user_failure_data.description) or data.error is None:
        return failure_text(event)
    error = data.error.cause or data.error
    if error.cls_name == "ChildProcessCrashException":
        return "its process was killed"
    return f"{error.cls_name}: {str(error.message).strip().removeprefix(f'{error.cls_name}: ')}"


def untold(opened: dg.DagsterInstance, run_id: str) -> str:
    """Why a run failed of which no step has told anything: its own last words."""
    told = [entry.dagster_event for entry in opened.all_logs(run_id) if entry.dagster_event is not None]
    errors = [
        event.engine_event_data.error for event in told if event.is_engine_event and event.engine_event_data.error
    ]
    ends = [event.job_failure_data for event in told if event.is_job_failure]
    errors += [end.error for end in ends if end is not None and end.error]
    if errors:
        words = str((errors[-1].cause or errors[-1]).message).strip()
        # Dagster puts the child's error, with its stack, into the parent's message.
        last = re.split(r"In process \d+: ", words)[-1].splitlines()[0].removeprefix("dagster._core.errors.")
        return f"a step broke off before it began: {last}\n    Was the recipe edited meanwhile? Run it again."
    said = [event.message for event in told if event.is_job_failure and event.message]
    return said[-1] if said else "Dagster does not say why"


def records_of(opened: dg.DagsterInstance, store: Store, run: dg.DagsterRun) -> Iterator[Record]:
    """The records of what a run's assets are, those that are still there. What a retrain does without has none."""
    for entry in opened.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        event = entry.dagster_event
        made = event.step_materialization_data.materialization if event is not None else None
        digest = made.metadata.get("record") if made is not None else None
        if digest is None:
            continue
        try:
            yield store.record(str(digest.value))
        except StoreError:
            continue


def asset_of_step(step_key: str | None) -> str:
    """`tiny__documents` → `documents`."""
    return (step_key or "").partition("__")[2] or str(step_key)
