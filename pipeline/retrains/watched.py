"""How runs and retrains of a recipe went last, for people's monitoring:

    watched/<recipe>/run.json    {"outcome", "run", "time"}: the last run that ended
    watched/<recipe>/look.json   {"does", "dump", "why", "dumps", "time"}: what the sensor of new dumps last saw and decided

Notes for people, below the home folder: nothing is decided by them, and a home that can't be written goes without.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pipeline.errors import StoreError
from pipeline.storage.record import utc_now
from pipeline.system import atomic

Outcome = Literal["made", "nothing to do", "failed", "canceled"]
Note = dict[str, Any]


def note_run(home: Path, recipe: str, outcome: Outcome, run: str = "", time: str = "") -> None:
    """Keep how a run ended, unless one that ended later is known. `run`: its id in Dagster, if it has one."""
    known, time = last_run(home, recipe), time or utc_now()
    if known is None or known["time"] <= time:
        _write(home, recipe, "run", {"outcome": outcome, "run": run, "time": time})


def note_look(home: Path, recipe: str, does: str, dump: str, why: str, dumps: Mapping[str, str]) -> None:
    """Keep what a look at the dump site gave; dumps: wiki → date of its newest finished dump."""
    _write(home, recipe, "look", {"does": does, "dump": dump, "why": why, "dumps": dict(dumps), "time": utc_now()})


def last_run(home: Path, recipe: str) -> Note | None:
    """How the last run ended; None where none is known, or the note can't be read."""
    return _read(home, recipe, "run", {"outcome", "run", "time"})


def last_look(home: Path, recipe: str) -> Note | None:
    """What the sensor last saw; None where it never looked, or the note can't be read."""
    return _read(home, recipe, "look", {"does", "dump", "why", "dumps", "time"})


def _path(home: Path, recipe: str, what: str) -> Path:
    return home / "watched" / recipe / f"{what}.json"


def _write(home: Path, recipe: str, what: str, note: Note) -> None:
    with suppress(StoreError, OSError):
        atomic.write_json(_path(home, recipe, what), note)


def _read(home: Path, recipe: str, what: str, names: set[str]) -> Note | None:
    try:
        note = json.loads(_path(home, recipe, what).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) and set(note) >= names else None
