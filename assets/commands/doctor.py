"""`bert doctor`: what is wrong on this machine, and what to do about it."""

import os
import platform
import re
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assets import graph
from assets.audits import approved
from assets.commands.told import once
from assets.curves_to_mlflow import INSTALL
from pipeline import units
from pipeline.errors import BertError
from pipeline.settings import settings
from pipeline.stage import ROOT
from pipeline.storage import garbage
from pipeline.storage.objects import Objects
from pipeline.store import open_store
from pipeline.system import owners
from pipeline.system.disk import free_bytes

LOW_DISK_GB = 5
Check = dict[str, Any]


def checks() -> list[Check]:
    """Every check as {name, state: ok | warning | error, found, todo}."""
    found = [_python(), *_versions()]
    try:
        chosen = settings()
    except BertError as error:
        return [*found, _check("settings", "error", error.what, error.todo)]
    found.append(_check("settings", "ok", os.environ.get("BERT_SETTINGS", "settings.yaml")))
    return [
        *found,
        _disk(chosen.home_path),
        _writable(),
        *_objects(chosen.store),
        *_recipes(),
        _leftovers(),
        _trash(),
        _in_use(),
        *_told(),
        _training_runs(),
        _dagster_runs(),
    ]


def _check(name: str, state: str, found: str, todo: str = "") -> Check:
    return {"name": name, "state": state, "found": found, "todo": todo}


def _python() -> Check:
    good = sys.version_info[:2] == (3, 11)
    return _check(
        "python",
        "ok" if good else "error",
        platform.python_version(),
        "" if good else "bertworks is locked for Python 3.11.",
    )


def _versions() -> list[Check]:
    """Installed versions against requirements.lock."""
    lock = ROOT / "requirements.lock"
    pins = (
        dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)$", lock.read_text(encoding="utf-8"), re.M)) if lock.exists() else {}
    )
    wrong = []
    for name, wanted in pins.items():
        try:
            installed = version(name).partition("+")[0]
        except PackageNotFoundError:
            installed = "nothing"
        if installed != wanted:
            wrong.append(f"{name} {installed} (locked {wanted})")
    if wrong:
        return [_check("versions", "warning", ", ".join(wrong[:5]), "pip install -r requirements.lock")]
    return [_check("versions", "ok", f"{len(pins)} packages as in requirements.lock")]


def _disk(home: Path) -> Check:
    free = free_bytes(home)
    low = free < LOW_DISK_GB * 1e9
    todo = f"Below {LOW_DISK_GB} GB: free some, or set `home` in settings.yaml to another disk." if low else ""
    return _check("disk", "warning" if low else "ok", f"{units.size(free)} free for {home}", todo)


def _writable() -> Check:
    store = open_store()
    there = next(p for p in (store.home, *store.home.parents) if p.exists())
    if os.access(there, os.W_OK):
        return _check("store", "ok", str(store.home))
    return _check(
        "store",
        "warning",
        f"{store.home} is read-only",
        "status, audit, verify and report work; to run, set BERT_HOME to a writable folder.",
    )


def _objects(url: str | None) -> list[Check]:
    """The object store: whether its bucket is there and can be written."""
    if url is None:
        return []
    try:
        Objects(url).check()
    except BertError as error:
        return [_check("object store", "error", error.what, error.todo)]
    return [_check("object store", "ok", f"{url} can be read and written")]


def _recipes() -> list[Check]:
    loaded = graph.load()
    wrong = once((name, e.what, e.todo) for name, e in sorted(loaded.errors.items()))
    broken = [_check(f"recipe {', '.join(names)}", "error", *told) for told, names in wrong.items()]
    compared = graph.load_compared(loaded)
    wrong = once((name, e.what, e.todo) for name, e in sorted(compared.errors.items()))
    broken += [_check(f"comparison {', '.join(names)}", "error", *told) for told, names in wrong.items()]
    told = f"{len(loaded.recipes)} and {len(compared.found)} comparisons can be used, of {settings().recipes_path}"
    return [_check("recipes", "ok", told), *broken]


def _leftovers() -> Check:
    """Staging whose owner is dead; the next run sweeps it."""
    left = open_store().leftovers()
    return _check(
        "leftovers",
        "warning" if left else "ok",
        f"{len(left)} of dead owners",
        "The next bert run sweeps them." if left else "",
    )


def _trash() -> Check:
    """What `bert gc` removed and can be brought back still."""
    try:
        count, size = garbage.trash_of(open_store())
    except BertError as error:
        return _check("trash", "error", error.what, error.todo)
    if not count:
        return _check("trash", "ok", "empty")
    days = settings().retention.grace_days
    todo = f"`bert gc` removes for good what lies there for {days:g} days; bert gc --restore VERSION brings it back."
    return _check("trash", "ok", f"{count} version(s), {units.size(size)}", todo)


def _in_use() -> Check:
    """Champions, bans and what is said of releases; contents are looked at, not read."""
    broken = [f"{each.what} → {each.todo}" for each in approved.problems(open_store())]
    if broken:
        return _check("champions", "error", broken[0], f"and {len(broken) - 1} more: bert verify" if broken[1:] else "")
    return _check("champions", "ok", "what is named is there")


def _told() -> list[Check]:
    """Where alerts and metrics go: what would only be noticed when something has to be told."""
    chosen, found = settings(), []
    if chosen.alerts is not None:
        missing = [name for name in chosen.alerts.variables if not os.environ.get(name)]
        todo = "Set it for whoever runs bert and Dagster's daemon." if missing else ""
        state = f"not set: {', '.join(missing)}" if missing else "all that they need is set"
        found.append(_check("alerts", "error" if missing else "ok", state, todo))
    if chosen.metrics_path is not None:
        folder = chosen.metrics_path.parent
        good = folder.is_dir() and os.access(folder, os.W_OK)
        todo = "" if good else "Make the folder, or set `metrics` in settings.yaml to another."
        found.append(_check("metrics", "ok" if good else "error", f"{chosen.metrics_path}", todo))
    if chosen.mlflow is not None:
        installed = find_spec("mlflow") is not None
        found.append(_check("mlflow", "ok" if installed else "error", chosen.mlflow.uri, "" if installed else INSTALL))
    return found


def _training_runs() -> Check:
    """Trainings that were begun and are not finished: what they hold is what they would go on with."""
    unfinished = open_store().unfinished_runs()
    size = 0
    for path in (path for folder in unfinished for path in folder.rglob("*")):
        with suppress(OSError):  # a process that trains there replaces its checkpoints
            size += path.stat().st_size
    where = f", {size / 1e6:,.0f} MB: {', '.join(map(str, unfinished))}" if unfinished else ""
    now = sum(owners.holder(folder.parent / "lock") is not None for folder in unfinished)
    return _check(
        "training runs", "ok", f"{len(unfinished)} unfinished{f', {now} of them under way' if now else ''}{where}"
    )


def _dagster_runs() -> Check:
    """Runs that Dagster believes alive and whose process is dead."""
    home = settings().dagster_home_path
    if (home.is_dir() or not home.exists()) and not (home / "dagster.yaml").exists():
        return _check("dagster", "ok", "no run yet")
    if not os.access(home, os.W_OK):
        return _check("dagster", "warning", f"{home} is read-only", "Its runs can't be looked at.")
    from assets.dagster_home import START_SECONDS, end_dead_runs, instance, unbegun_runs

    try:
        with instance() as opened:
            ended, unbegun = end_dead_runs(opened), unbegun_runs(opened)
    except BertError as error:
        return _check("dagster", "error", error.what, error.todo)
    found = [f"ended {len(ended)} run{'s' if len(ended) > 1 else ''} whose process was dead"] if ended else []
    found += [f"{len(unbegun)} launched and not begun: {', '.join(each[:8] for each in unbegun)}"] if unbegun else []
    return _check(
        "dagster",
        "warning" if unbegun else "ok",
        "; ".join(found) or "no run without a process",
        f"Where what launched them is dead, bert doctor or bert run ends them {START_SECONDS / 60:g} minutes after that."
        if unbegun
        else "",
    )


_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}


def text(found: list[Check]) -> str:
    """A line per check, and the next step where one is needed."""
    lines = [
        f"{_MARKS[c['state']]} {c['name']:16} {c['found']}" + (f"\n{'':19}→ {c['todo']}" if c["todo"] else "")
        for c in found
    ]
    return "\n".join(lines)
