"""`bert metrics` and the metrics file (`metrics` in settings.yaml): how retrains go, for people's monitoring.

From the store and notes of a home alone; Dagster's database is not asked.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from assets import graph
from assets.commands.promoting import DECISION
from model.promotion.decision import DECISION as DECISION_FILE
from pipeline import retrain
from pipeline.errors import BertError
from pipeline.retrains import watched
from pipeline.retrains.openmetrics import Gauge, families, text
from pipeline.settings import Settings
from pipeline.storage import champion
from pipeline.store import Store, open_store
from pipeline.system.atomic import write_bytes
from pipeline.system.disk import free_bytes

_log = logging.getLogger(__name__)
SECONDS, BYTES = "seconds", "bytes"


def metrics() -> str:
    """All that is known now, in the OpenMetrics text format."""
    return text(_filled(open_store(), datetime.now(UTC)))


def write(chosen: Settings) -> None:
    """Replace the metrics file, where the settings name one. Raises nothing: monitoring fails no run, what goes wrong is logged."""
    path = chosen.metrics_path
    if path is None:
        return
    try:
        write_bytes(path, metrics().encode())
    except (OSError, BertError) as error:
        _log.warning("the metrics file %s was not written: %s", path, error)


def gauges() -> list[Gauge]:
    """Every metric, without a sample."""
    return [
        Gauge("bert_champion_since_timestamp_seconds", "When the champion came into use.", SECONDS),
        Gauge("bert_champion_age_seconds", "Since the champion came into use.", SECONDS),
        Gauge("bert_champion_version", "The version of the release that is in use."),
        Gauge("bert_last_run_timestamp_seconds", "When the last run ended.", SECONDS),
        Gauge("bert_last_run_outcome", "1: the last run ended so."),
        Gauge("bert_last_look_timestamp_seconds", "When the sensor of new dumps looked last.", SECONDS),
        Gauge("bert_dump_seen_timestamp_seconds", "The date of the newest finished dump that was seen.", SECONDS),
        Gauge("bert_dump_retrained_timestamp_seconds", "The date of the dump of the last retrain.", SECONDS),
        Gauge("bert_dump_held", "1: a newer dump is held, because it shrank."),
        Gauge("bert_gate_passed", "Whether the last promotion decision passed a gate."),
        Gauge("bert_store_disk_bytes", "Disk space that the home folder takes.", BYTES),
        Gauge("bert_store_disk_free_bytes", "Free space of its disk.", BYTES),
    ]


def _filled(store: Store, now: datetime) -> list[Gauge]:
    """With what is known now."""
    known = gauges()
    named = families(known)
    for recipe in _recipes(store):
        for add in (_champion, _runs, _dumps, _gates):
            try:
                add(store, recipe, named, now)
            except (BertError, ValueError, KeyError, TypeError, AttributeError) as error:
                _log.warning("metrics of %s are left out: %s", recipe, error)
    named["bert_store_disk_bytes"].add(_taken(store.home))
    named["bert_store_disk_free_bytes"].add(free_bytes(store.home))
    return known


def _recipes(store: Store) -> list[str]:
    """Those that the store knows, and those that are retrained."""
    known = {
        path.name for folder in ("assets", "watched") for path in (store.home / folder).glob("[!.]*") if path.is_dir()
    }
    try:
        known |= {name for name, recipe in graph.load().recipes.items() if recipe.retrain is not None}
    except BertError as error:
        _log.warning("recipes that were never made are left out of the metrics: %s", error)
    return sorted(known)


def _champion(store: Store, recipe: str, named: Mapping[str, Gauge], now: datetime) -> None:
    found = champion.read(store, recipe)
    if found.champion is None:
        return
    version = store.record(found.champion).version
    since = datetime.fromisoformat(found.history[0].time).timestamp()
    named["bert_champion_since_timestamp_seconds"].add(since, recipe=recipe)
    named["bert_champion_age_seconds"].add(round(now.timestamp() - since, 3), recipe=recipe)
    named["bert_champion_version"].add(1, recipe=recipe, version=version)


def _runs(store: Store, recipe: str, named: Mapping[str, Gauge], now: datetime) -> None:
    last = watched.last_run(store.home, recipe)
    if last is None:
        return
    named["bert_last_run_timestamp_seconds"].add(datetime.fromisoformat(last["time"]).timestamp(), recipe=recipe)
    for outcome in get_args(watched.Outcome):
        value = outcome == last["outcome"]
        named["bert_last_run_outcome"].add(int(value), recipe=recipe, outcome=outcome)


def _dumps(store: Store, recipe: str, named: Mapping[str, Gauge], now: datetime) -> None:
    look, retrains = watched.last_look(store.home, recipe), retrain.known(store, recipe)
    if retrains:
        named["bert_dump_retrained_timestamp_seconds"].add(_date(retrains[-1].dump), recipe=recipe)
    if look is None:
        return
    named["bert_last_look_timestamp_seconds"].add(datetime.fromisoformat(look["time"]).timestamp(), recipe=recipe)
    for wiki, date in sorted(look["dumps"].items()):
        named["bert_dump_seen_timestamp_seconds"].add(_date(date), recipe=recipe, wiki=wiki)
    taken = retrains and retrains[-1].dump >= look["dump"]  # a person asked for it since
    named["bert_dump_held"].add(int(look["does"] == "hold" and not taken), recipe=recipe)


def _date(dump: str) -> float:
    """`20260101` → the begin of that day, UTC."""
    return datetime.strptime(dump, "%Y%m%d").replace(tzinfo=UTC).timestamp()


def _gates(store: Store, recipe: str, named: Mapping[str, Gauge], now: datetime) -> None:
    record = store.pointer(recipe, DECISION)
    if record is None:
        return
    path = store.folder(record.stage, record.version) / DECISION_FILE
    told: Any = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    passed: dict[str, bool] = {}
    for gate in told.get("gates", []):
        if gate["passed"] is None:  # it did not count
            continue
        # a name may stand there more than once
        passed[str(gate["name"])] = passed.get(str(gate["name"]), True) and bool(gate["passed"])
    for name, value in passed.items():
        named["bert_gate_passed"].add(int(value), recipe=recipe, gate=name)


def _taken(folder: Path) -> int:
    """Bytes of disk below a folder; a file with several names counts once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for entry in _entries(folder):
        try:
            stat = entry.stat(follow_symlinks=False)
        except OSError:  # removed meanwhile
            continue
        if stat.st_nlink == 1 or (stat.st_dev, stat.st_ino) not in seen:
            seen.add((stat.st_dev, stat.st_ino))
            total += stat.st_blocks * 512
    return total


def _entries(folder: Path) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    yield from _entries(Path(entry.path))
    except OSError:  # not there, or removed meanwhile
        return
