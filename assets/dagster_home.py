"""Dagster's own folder and instance, and the runs that a killed process left behind."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from assets.asset import PROCESS, RECIPE
from pipeline.errors import StoreError
from pipeline.owners import Owner
from pipeline.settings import settings

UNFINISHED = [
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.CANCELING,
]


def prepare() -> Path:
    """Make DAGSTER_HOME with its dagster.yaml, and set what child processes need. Raises StoreError if it can't be made."""
    chosen = settings()
    home = chosen.dagster_home_path
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not (home / "dagster.yaml").exists():
            shutil.copyfile(Path(__file__).with_name("dagster.yaml"), home / "dagster.yaml")
    except OSError as error:
        raise StoreError(
            f"{home}: can't be written ({error.strerror})",
            "Dagster keeps its runs there: make it writable, or set DAGSTER_HOME to a folder that is.",
        ) from error
    os.environ["DAGSTER_HOME"] = str(home)
    os.environ["BERT_HOME"] = str(chosen.home_path)
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    return home


@contextmanager
def instance() -> Iterator[dg.DagsterInstance]:
    """The instance of DAGSTER_HOME."""
    prepare()
    with dg.DagsterInstance.get() as opened:
        yield opened


def end_dead_runs(opened: dg.DagsterInstance, recipe: str | None = None) -> list[str]:
    """End runs whose process is dead (Dagster's launcher leaves them STARTED for ever) and free their pool slots.

    Returns the run ids. A run that belongs to another host, or whose process is not known, is left alone.
    """
    ended = []
    tags = {RECIPE: recipe} if recipe else {}
    for run in opened.get_runs(dg.RunsFilter(statuses=UNFINISHED, tags=tags)):
        process = Owner.parse(run.tags.get(PROCESS, ""))
        if process is not None and process.surely_dead():
            opened.report_run_failed(run, f"Its process {process} is dead; ended by bertworks.")
            opened.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            ended.append(run.run_id)
    return ended
