"""Dagster's own folder and instance, and the runs that a killed process left behind."""

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._check import CheckError

from assets.asset import process_of
from pipeline.errors import StoreError
from pipeline.recipes import yamlfile
from pipeline.recipes.secret_words import secret_in_text
from pipeline.settings import settings
from pipeline.system.atomic import explained
from pipeline.system.owners import held_lock

UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.CANCELING,
]


def prepare() -> Path:
    """Make DAGSTER_HOME with its dagster.yaml, and set what child processes need. Raises StoreError if it can't be made."""
    chosen = settings()
    home = chosen.dagster_home_path
    if home.exists() and not home.is_dir():
        raise StoreError(
            f"{home} is a file, and Dagster's folder belongs there", f"Move it away: mv {home} {home}.away"
        )
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
    """The instance of DAGSTER_HOME. StoreError where its database can't be opened."""
    home = prepare()
    with explains_database(home):
        # Two processes that make Dagster's tables at once fail.
        with explained(home), held_lock(home / "creating.lock"):
            with _explains_settings(home / "dagster.yaml"):
                opened = dg.DagsterInstance.get()
                for part in ("run_launcher", "run_coordinator", "compute_log_manager"):  # else made when they are used
                    getattr(opened, part)
            opened.get_runs(limit=1)
            opened.event_log_storage.get_maximum_record_id()
            opened.all_instigator_state()
        with opened:
            yield opened


DAMAGED = ("is not a database", "malformed", "no such table", "no such column")
"""Words of SQLite about a file that it can't read as its own."""


@contextmanager
def explains_database(home: Path) -> Iterator[None]:
    """What the database says of a full disk, or of a server that is gone, as a StoreError."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except Exception as error:
        if type(error).__name__ == "DagsterPostgresException":  # of a package that need not be installed
            raise _no_server(error.__cause__ or error, home) from error
        if not isinstance(error, DBAPIError):
            raise
        if type(error.orig).__module__.startswith("psycopg"):
            raise _no_server(error.orig, home) from error
        if any(words in str(error.orig) for words in DAMAGED):
            raise StoreError(
                f"Dagster's database in {home} is damaged: {error.orig}",
                f"Move it aside: mv {home} {home}.damaged (with a dagster.yaml of your own: put that one back). Only the "
                "history of runs is lost, the store is whole: run again.",
            ) from error
        raise StoreError(
            f"Dagster's database in {home} can't be used: {error.orig}",
            "Free space, lift the file-size limit (ulimit -f), or set DAGSTER_HOME to a folder on another disk. The store "
            "is whole: run again.",
        ) from error


SCHEME = "postgresql+psycopg2"
ADDRESS = f"{SCHEME}://USER:PASSWORD@HOST:5432/DATABASE"
_ORIGINAL = "Correct it; assets/dagster.yaml is the original."


def _check_settings(file: Path) -> None:
    """StoreError, or RecipeError of the reader, for a dagster.yaml that Dagster would answer with a traceback, or whose address it
    would tell a part of. No line of the file is told: a password may stand in it."""
    import yaml
    from ruamel.yaml.error import YAMLError

    text = yamlfile.text_of(file)
    try:
        yamlfile.check_size(file, text)
        loaded = yaml.safe_load(text)
    except (YAMLError, yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise StoreError(f"{file}: not YAML{where}", _ORIGINAL) from None
    if not isinstance(loaded, dict | None):
        raise StoreError(f"{file}: holds no map of keys at its top level", _ORIGINAL)
    found: Any = loaded
    for key in ("storage", "postgres", "postgres_url"):
        found = found.get(key) if isinstance(found, dict) else None
    variable = found.get("env") if isinstance(found, dict) else None
    if isinstance(variable, str):
        found = os.environ.get(variable)
    if isinstance(found, str) and not _is_address(found):
        where = f"the environment variable {variable}" if variable else f"postgres_url in {file}"
        raise StoreError(
            f"{where} is no address of a PostgreSQL database",
            f"Write it as {ADDRESS}, and of a user or password @ as %40, / as %2F, : as %3A, # as %23, ? as %3F, % as %25.",
        )


def _is_address(url: str) -> bool:
    """Whether SQLAlchemy reads the address as people mean it: with a second @, it takes the end of a password for the host."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parts = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: of the port
        return False
    one = url.partition("?")[0].count("@") <= 1
    return one and parts.drivername.startswith("postgresql") and re.fullmatch(r"[\w.:-]*", parts.host or "") is not None


@contextmanager
def _explains_settings(file: Path) -> Iterator[None]:
    """What is wrong with dagster.yaml, or not installed, as a StoreError."""
    _check_settings(file)
    try:
        yield
    except (dg.DagsterInvalidConfigError, dg.DagsterInvariantViolationError, CheckError) as error:
        unset, told = re.search(r'"(\w+)" which is not set', str(error)), re.search(r"Error 1: (.*)", str(error))
        what = told[1].partition(". Expected:")[0] if told else " ".join(str(error).split())
        what = f"the environment variable {unset[1]} is not set" if unset else what
        what = re.sub(
            r'(Value|[Gg]ot) ".*"(?= of type)|(?<=got )[^.]+|(?<=original value ).*?(?= failed)', "the value", what
        )  # which may be a secret
        what = what[:300] if not secret_in_text(what) else "a value is not of the kind that its key has"
        raise StoreError(f"{file} can't be used: {what}", _ORIGINAL) from error
    except ImportError as error:
        todo = "Install it, or correct the name."
        if error.name in ("psycopg", "psycopg2", "dagster_postgres"):
            there = find_spec("dagster_postgres") and find_spec("psycopg2")
            todo = f'pip install -c requirements.lock ".[postgres]", and write addresses as {ADDRESS}'
            todo = f"Name the driver: postgres_url as {ADDRESS}; in postgres_db, scheme: {SCHEME}" if there else todo
        raise StoreError(f"{file} names what is not installed: {error}", todo) from error


def _no_server(error: object, home: Path) -> StoreError:
    said = (str(error).strip().splitlines() or ["no reason given"])[0]
    return StoreError(
        f"Dagster's PostgreSQL can't be used: {said}",
        f"Start the server, or correct the address that {home / 'dagster.yaml'} names (BERT_POSTGRES). The store is whole: "
        "run again.",
    )


START_SECONDS = 600.0
"""from the launch of a run until its process has said which one it is (assets/executor.py)"""


def end_dead_runs(opened: dg.DagsterInstance, start_seconds: float = START_SECONDS) -> list[str]:
    """End runs whose process is dead (Dagster's launcher leaves them STARTED for ever) and free the pool slots, for which
    runs of every recipe wait, of all runs that are finished: a step that breaks off before it says so keeps its slot.

    Returns the run ids. A run that belongs to another host is left alone; one whose process has never said which one it is,
    for `start_seconds`, and always where Dagster's launcher itself looks after its processes.
    """
    ended = []
    for run in opened.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        process = process_of(run)
        if process is not None and process.surely_dead():
            opened.report_run_failed(run, f"Its process {process} is dead; ended by bertworks.")
            ended.append(run.run_id)
        elif process is None and _silent_seconds(opened, run) > start_seconds:
            why = f"It was launched more than {start_seconds:g} s ago, and no process has begun it; ended by bertworks."
            opened.report_run_failed(run, why)
            ended.append(run.run_id)
    for run_id in opened.event_log_storage.get_concurrency_run_ids():
        holder = opened.get_run_by_id(run_id)
        if holder is None or holder.is_finished:
            opened.event_log_storage.free_concurrency_slots_for_run(run_id)
    return ended


def unbegun_runs(opened: dg.DagsterInstance) -> list[str]:
    """Runs that were launched, and of which no process has said that it begins them."""
    runs = opened.get_runs(dg.RunsFilter(statuses=UNFINISHED))
    return [run.run_id for run in runs if process_of(run) is None]


def _silent_seconds(opened: dg.DagsterInstance, run: dg.DagsterRun) -> float:
    """How long ago anything was written of a run; 0 where its launcher looks after its process itself."""
    record = opened.get_run_record_by_id(run.run_id)
    if record is None or opened.run_launcher.supports_check_run_worker_health:
        return 0.0
    return time.time() - record.update_timestamp.timestamp()
