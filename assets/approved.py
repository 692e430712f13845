"""Whether an exported release is the approved one: what the home says of it, and not only what the folder says of itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assets.results import CARD
from pipeline import champion
from pipeline.attestations import kept
from pipeline.content import file_sha256
from pipeline.contents import Problem
from pipeline.errors import StoreError
from pipeline.store import CHAMPION, Store

Plain = dict[str, Any]
APPROVED = "the champion"


def approval(store: Store, folder: Path) -> Plain:
    """{state, told} of a folder with a release that `bert export` wrote; `state` is APPROVED where it is the champion's.

    Its files are held against the store's own manifest; the card was filled at export, and only the export's list knows it.
    """
    told = json.loads((folder / "lineage.json").read_text(encoding="utf-8"))
    first = told["chain"][0]
    try:
        record = store.record(first["record"])
        files = store.manifest(record.stage, record.version)["files"]
    except (StoreError, KeyError):
        return {"state": "not known here", "told": f"{told['asset']}: this home has no record of it"}
    changed = [
        file["path"]
        for file in files
        if file["path"] != CARD
        and (not (folder / file["path"]).is_file() or file_sha256(folder / file["path"]) != file["sha256"])
    ]
    version = record.version[:12]
    if changed:
        return {"state": "altered", "told": f"{', '.join(changed)}: not what release {version} has in this home"}
    state, why = _state(store, record.recipe, record.version)
    return {"state": state, "told": f"release {version} of {record.recipe}: {state}{f', {why}' if why else ''}"}


def _state(store: Store, recipe: str, version: str) -> tuple[str, str]:
    ban = champion.barred(store).get(version)
    known = champion.read(store, recipe)
    changes = [each for each in known.history if store.record(each.champion).version == version]
    since = f"since {changes[0].time[:10]}, by {changes[0].who}: {changes[0].why}" if changes else ""
    if known.champion is not None and store.record(known.champion).version == version:
        return APPROVED, since + (f"; barred since {ban.time[:10]} by {ban.who}: {ban.why}" if ban else "")
    if ban is not None:
        return "barred", f"since {ban.time[:10]}, by {ban.who}: {ban.why}"
    return ("an earlier champion", "") if changes else ("never promoted", "")


def problems(store: Store) -> Iterator[Problem]:
    """What is damaged of what the home says about releases: champions, bans, attestations."""
    try:
        champion.barred(store)
    except StoreError as error:
        yield Problem(error.what, error.todo)
    for path in sorted((store.home / "assets").glob(f"*/{CHAMPION}")):
        try:
            known = champion.read(store, path.parent.name)
            for digest in (known.champion, known.previous):
                if digest is not None:
                    store.record(digest)
        except StoreError as error:
            yield Problem(f"{path}: {error.what}", error.todo)
    for what in kept.faults(store):
        yield Problem(what, "bert export RECIPE/release DIR writes them anew, and keeps these as an older set")
