"""What failed the last time, asset by asset, until it is made well:

    failures/<recipe>/<asset>.json    {"what", "todo", "time"}

Notes for people, below the home folder: nothing is decided by them, and a home that can't be written goes without.
"""

import json
from contextlib import suppress
from pathlib import Path

from pipeline.errors import BertError, StoreError
from pipeline.storage.record import utc_now
from pipeline.system import atomic


def note(home: Path, recipe: str, asset: str, error: Exception) -> None:
    """Keep why an asset failed, in one line."""
    told = error if isinstance(error, BertError) else BertError(f"{type(error).__name__}: {error}")
    path = _path(home, recipe, asset)
    with suppress(StoreError, OSError):
        atomic.write_json(path, {"what": told.line, "todo": told.todo, "time": utc_now()})


def forget(home: Path, recipe: str, asset: str) -> None:
    """It was made well."""
    with suppress(OSError):
        _path(home, recipe, asset).unlink(missing_ok=True)


def last(home: Path, recipe: str, asset: str) -> dict[str, str] | None:
    """Why an asset failed that was not made well since; None: it did not, or the note can't be read."""
    try:
        said = json.loads(_path(home, recipe, asset).read_text(encoding="utf-8"))
        return {name: str(said[name]) for name in ("what", "todo", "time")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(home: Path, recipe: str, asset: str) -> Path:
    return home / "failures" / recipe / f"{asset}.json"
