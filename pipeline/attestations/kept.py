"""Where sets of attestations lie: `attestations/VERSION/` under the home holds the newest of a version, `attestations/older/VERSION/N/`
those before it, from 1 on.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline.attestations import provenance
from pipeline.store import Store
from pipeline.system import owners
from pipeline.system.atomic import explained, rename_folder, write_bytes

FOLDER = "attestations"


def keep(store: Store, version: str, files: Mapping[str, bytes]) -> Path:
    """Make these files, by relative path, what is said of a version. An equal set stays as it is, another one becomes an older
    one. Returns the folder; raises StoreError where the home can't be written."""
    place = store.home / FOLDER / version
    with explained(place), owners.held_lock(store.home / "locks" / f"{FOLDER}-{version}"):
        if _read(place) != files:
            with store.staging() as staged:
                for name, data in files.items():
                    write_bytes(staged / name, data)
                if place.exists():
                    rename_folder(place, _free(store.home / FOLDER / "older" / version))
                store.check_ours(staged)
                rename_folder(staged, place)
    return place


def digests(store: Store, version: str) -> dict[str, set[str]]:
    """File → SHA-256 that it has in any set that is or was said of a version."""
    older = store.home / FOLDER / "older" / version
    found: dict[str, set[str]] = {}
    for folder in (store.home / FOLDER / version, *(older.iterdir() if older.is_dir() else ())):
        for name, data in _read(folder).items():
            found.setdefault(name, set()).add(hashlib.sha256(data).hexdigest())
    return found


def faults(store: Store) -> Iterator[str]:
    """What of the newest sets is not what their own provenance says: missing, changed or added files."""
    for folder in sorted(path for path in (store.home / FOLDER).glob("*") if path.name != "older"):
        files = _read(folder)
        try:
            last = json.loads(files[provenance.FILE].splitlines()[-1])
            told = {subject["name"]: subject["digest"]["sha256"] for subject in last["subject"]}
        except (KeyError, IndexError, ValueError, TypeError) as error:
            yield f"{folder / provenance.FILE} can't be read: {error!r}"
            continue
        for name in sorted(files.keys() - {provenance.FILE}):
            if hashlib.sha256(files[name]).hexdigest() != told.get(name):
                yield f"{folder / name} is not what {provenance.FILE} beside it says"


def _read(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _free(folder: Path) -> Path:
    number = 1
    while (folder / str(number)).exists():
        number += 1
    return folder / str(number)
