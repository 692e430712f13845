"""Whether an exported release is the approved one: what the home says of it, and not only what the folder says of itself."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.attestations import kept
from pipeline.attestations.signature import FILE as SIGNATURE
from pipeline.errors import StoreError
from pipeline.formats.foreign_json import parsed
from pipeline.storage import champion
from pipeline.storage.content import file_sha256
from pipeline.storage.contents import Problem
from pipeline.store import CHAMPION_FILE, Store

Plain = dict[str, Any]
AGAIN = "Restore it: bert gc --restore VERSION, or a backup; else make it again, or bert rollback to another."
APPROVED = "the champion"
LINEAGE = "lineage.json"


def approval(store: Store, folder: Path) -> Plain:
    """{state, told} of a folder with a release that `bert export` wrote; `state` is APPROVED where it is the champion's.

    Every file is held against what this home has: the release's manifest and the attestations that were kept of it. The folder's own
    list proves nothing here, since whoever changes the folder can change the list.
    """
    told = parsed((folder / LINEAGE).read_text(encoding="utf-8"))
    first = told["chain"][0]
    try:
        record = store.record(first["record"])
    except StoreError:
        return {"state": "not known here", "told": f"{told['asset']}: this home has no record of it"}
    version = record.version[:12]
    try:
        files = store.manifest(record.stage, record.version)["files"]
    except StoreError as error:
        return {"state": "not known here", "told": f"release {version}: its content is gone here: {error.what}"}
    wrong = sorted(_strange(store, record.version, files, folder))
    if wrong:
        return {"state": "altered", "told": f"{', '.join(wrong)}: not what this home has of release {version}"}
    state, why = _state(store, record.recipe, record.version)
    return {"state": state, "told": f"release {version} of {record.recipe}: {state}{f', {why}' if why else ''}"}


def _strange(store: Store, version: str, files: Sequence[Mapping[str, Any]], folder: Path) -> Iterator[str]:
    """Files of an exported folder that are missing, or that neither the release nor what was ever attested of it has."""
    known = kept.digests(store, version)
    for file in files:
        known.setdefault(file["path"], set()).add(file["sha256"])
        if not (folder / file["path"]).is_file():
            yield f"{file['path']} (missing)"
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in (LINEAGE, SIGNATURE) and file_sha256(path) not in known.get(name, ()):
            yield name


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
    for recipe in champion.recipes(store):
        path = store.home / "assets" / recipe / CHAMPION_FILE
        try:
            known = champion.read(store, recipe)
            for digest in filter(None, (known.champion, known.previous)):
                record = store.record(digest)
                if not store.intact(record.stage, record.version):
                    yield Problem(
                        f"{path} names release {record.version[:12]}, whose content is missing or broken", AGAIN
                    )
            for version in champion.lost_bans(store, known):
                what = f"{store.home / champion.BARRED} says nothing of {version[:12]}, which was rolled back and so barred"
                yield Problem(what, f'Restore it from a backup, or: bert bar {version[:12]} --reason "…"')
        except StoreError as error:
            yield Problem(f"{path}: {error.what}", error.todo)
    for what in kept.faults(store):
        yield Problem(what, "bert export RECIPE/release DIR writes them anew, and keeps these as an older set")
