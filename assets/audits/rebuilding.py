"""`bert rebuild --check ASSET`: make an artifact again from its record, in a scratch folder, and compare.

The configuration is the record's, not today's recipe's, and the inputs are the very versions that it names. Nothing is
published. A recipe is only asked where files lie that a record names by their digests.
"""

import tempfile
import time
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assets import graph
from assets.commands.named import named
from assets.commands.told import on_one_line
from pipeline import sources
from pipeline.build import ABSENT, RECORDED_LIBRARIES, failed, git_state
from pipeline.config import Frozen, PathFrom, UrlFrom, WheelFrom, WikimediaFrom
from pipeline.errors import BertError, DataError, StoreError
from pipeline.progress import tell
from pipeline.settings import settings
from pipeline.stage import Stage, version
from pipeline.storage import manifest
from pipeline.storage.content import file_sha256
from pipeline.storage.sameness import TOLERANCE, Difference, differences
from pipeline.store import Record, Store, open_store
from pipeline.system.places import is_url

Plain = dict[str, Any]
IDENTICAL, WITHIN, DIFFERENT, IMPOSSIBLE = "identical", "within tolerance", "different", "can't be rebuilt"
EXIT_CODES = {IDENTICAL: 0, WITHIN: 0, DIFFERENT: 1, IMPOSSIBLE: 2}
_TRAINING = ("device", "threads", "ranks", "micro_batch_tokens")


def check(target: str, scratch: Path | None) -> Plain:
    """Make `RECIPE/ASSET` (its current record), `RECIPE/ASSET~1` or the record of a digest again, below `scratch` or the
    store's staging, and say whether the same came out. Raises nothing that a person can act on: that is the verdict."""
    begun = time.monotonic()
    found: Plain = {"asset": target, "version": None, "record": None, "verdict": IMPOSSIBLE, "why": "", "todo": ""}
    found |= {"circumstances": [], "rebuilt": None, "same_bytes": None, "files": [], "tolerance": None}
    try:
        store = open_store()
        record = named(store, target)
        found |= {"asset": record.path, "version": record.version, "record": record.digest}
        stage = _stage(record)
        found["circumstances"] = _circumstances(record, stage)
        found |= _hashed(store, record) if stage.name == "files" else _rebuilt(store, record, stage, scratch)
    except BertError as error:
        found |= {"verdict": IMPOSSIBLE, "why": error.what, "todo": error.todo}
    return {**found, "seconds": round(time.monotonic() - begun, 1)}


def _stage(record: Record) -> Stage:
    for stage in graph.STAGES:
        if stage.name == record.stage:
            break
    else:
        raise DataError(f"this code has no stage {record.stage}", "Check out the commit that its record names.")
    if failed(record):
        raise DataError("its record says that it failed: there is nothing to compare with", "bert status RECIPE")
    return stage


def _circumstances(record: Record, stage: Stage) -> list[str]:
    """What is not as it was when it was made."""
    body, lines = record.body, list[str]()
    if body["code_version"] != stage.code_version:
        lines.append(f"code version {body['code_version']}, now {stage.code_version}")
    then, now = body.get("git") or {}, git_state()
    if then.get("commit") != now["commit"] or then.get("dirty") or now["dirty"]:
        lines.append(f"commit {_commit(then)}, now {_commit(now)}")
    for name in (*RECORDED_LIBRARIES, *stage.libraries):
        had = (body.get("libraries") or {}).get(name)
        if had is not None and had != version(name):
            lines.append(f"{name} {had}, now {version(name)}")
    if not stage.deterministic:
        had, has = (body.get("settings") or {}).get("training", {}), settings().training.plain()
        lines += [f"training.{n} {had[n]}, now {has[n]}" for n in _TRAINING if n in had and had[n] != has[n]]
        if device := body["statistics"].get("device_name"):
            lines.append(f"made on {device}")
    return lines


def _commit(git: Mapping[str, Any]) -> str:
    return f"{(git.get('commit') or 'unknown')[:12]}{' with changes' if git.get('dirty') else ''}"


# ── files from outside: hashed, not fetched ──────────────────────────────────────────────────────────────────────────


def _hashed(store: Store, record: Record) -> Plain:
    """Read every byte again and compare with the record's digests and with what the site declared."""
    entries = store.manifest(record.stage, record.version)["files"]
    folder, held = store.content(record.stage, record.version), store.removed(record.stage, record.version)
    if held is not None or is_url(folder):
        folder = store.folder(record.stage, record.version)
    references = _references(record)
    declared = {each["name"]: each for each in record.body["statistics"].get("files", []) if isinstance(each, Mapping)}
    files = []
    for entry in entries:
        path = folder / entry["path"]
        if entry.get("referenced"):
            if references is None:
                raise DataError(
                    f"{entry['path']} is only referenced, and no recipe {record.recipe} says where it lies",
                    "Name its path in the recipe.",
                )
            path = references if references.is_file() else references / entry["path"]
        if not path.is_file():
            raise DataError(f"{path} is gone", "Put it back, or run the asset again.")
        told = declared.get(entry["path"], {})
        wrong = [
            f"{name} {of_file[:12]}…, published {expected[:12]}…"
            for name, expected in (("sha256", entry["sha256"]), ("sha1", told.get("sha1")))
            if expected and (of_file := _digest(path, name)) != expected
        ]
        files += [{"path": entry["path"], "within": False, "what": "; ".join(wrong)}] if wrong else []
    return {
        "verdict": DIFFERENT if files else IDENTICAL,
        "why": f"{len(entries)} file(s) from outside were hashed again, not fetched",
        "rebuilt": None if files else record.version,
        "same_bytes": not files,
        "files": files,
    }


def _digest(path: Path, name: str) -> str:
    if name == "sha256":
        return file_sha256(path)
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, name).hexdigest()


# ── everything else: run again ───────────────────────────────────────────────────────────────────────────────────────


def _rebuilt(store: Store, record: Record, stage: Stage, scratch: Path | None) -> Plain:
    with ExitStack() as held:
        folders = {}
        for name, digest in record.inputs.items():
            made_of = store.record(digest)
            held.enter_context(store.lease(made_of.stage, made_of.version))
            folders[name] = _input(store, made_of)
        function = stage.load()
        config = _config(record, typing.get_type_hints(function)["config"])
        folder = held.enter_context(_scratch(store, scratch))
        out = folder / "out"
        out.mkdir()
        if stage.resumable:
            folders["run"] = folder / "run"
            folders["run"].mkdir()
        tell(f"{record.asset} is made again in {folder}")
        function(folders, config, out)
        return _compared(store, record, stage, out)


def _input(store: Store, record: Record) -> Path:
    try:
        return store.folder(record.stage, record.version, references=_references(record))
    except StoreError as error:
        raise StoreError(f"its input {record.path} {record.version[:12]}: {error.what}", error.todo) from None


@contextmanager
def _scratch(store: Store, parent: Path | None) -> Iterator[Path]:
    """A folder of our own, removed at the end."""
    if parent is None:
        with store.staging() as staged:
            yield staged
        return
    if not parent.is_dir():
        raise DataError(f"{parent} is no folder", "Make it, or leave --scratch out.")
    with tempfile.TemporaryDirectory(dir=parent, prefix="rebuild-") as made:
        yield Path(made)


def _compared(store: Store, record: Record, stage: Stage, out: Path) -> Plain:
    entries = manifest.list_files(out)
    rebuilt = manifest.version_in(entries)
    published = {entry["path"]: entry for entry in store.manifest(record.stage, record.version)["files"]}
    found: Plain = {"rebuilt": rebuilt}
    altered = _altered(store, record)
    if rebuilt == record.version:
        found["same_bytes"] = all(entry["sha256"] == published[entry["path"]]["sha256"] for entry in entries)
        if altered:
            why = "what was made again is what the record names; what lies in the store is not"
            return found | _verdict(
                DIFFERENT, altered, why, "bert verify sets it aside; the next bert run makes it anew."
            )
        gone = store.removed(record.stage, record.version)
        return found | _verdict(IDENTICAL, [], f"compared by digests: {gone.told}" if gone else "")
    found["same_bytes"] = False
    if altered:
        return found | _verdict(
            DIFFERENT, altered, "what lies in the store is not what its record names", "bert verify"
        )
    if store.removed(record.stage, record.version) is not None:
        names = [
            name
            for name in {*published, *(e["path"] for e in entries)}
            if _digest_in(entries, name) != published.get(name, {}).get("digest")
        ]
        told = [
            Difference(name, False, "its digest; the content to compare with was removed") for name in sorted(names)
        ]
        return found | _verdict(DIFFERENT, told)
    told = differences(store.folder(record.stage, record.version), out, tolerant=not stage.deterministic)
    within = all(each.within for each in told)
    return (
        found
        | _verdict(WITHIN if within else DIFFERENT, told)
        | ({} if stage.deterministic else {"tolerance": TOLERANCE})
    )


def _digest_in(entries: Sequence[Mapping[str, Any]], name: str) -> str | None:
    return next((str(entry["digest"]) for entry in entries if entry["path"] == name), None)


def _altered(store: Store, record: Record) -> list[Difference]:
    """What of the published content is not what was published; every byte is read, and nothing is set aside."""
    folder = store.content(record.stage, record.version)
    if store.removed(record.stage, record.version) is not None:
        return []
    if is_url(folder):
        folder = store.folder(record.stage, record.version)
    wrong = manifest.problems(folder, record.stage, record.version, None)
    return [
        Difference(line.partition(": ")[0].removeprefix(f"{folder}/"), False, line.partition(": ")[2]) for line in wrong
    ]


def _verdict(verdict: str, files: Sequence[Difference], why: str = "", todo: str = "") -> Plain:
    return {"verdict": verdict, "files": [vars(each) for each in files], "why": why, "todo": todo}


# ── configuration and places ─────────────────────────────────────────────────────────────────────────────────────────


def _node_config(record: Record) -> Frozen | None:
    """What today's recipe asks of this asset: only to look up where files lie."""
    try:
        _, node = graph.find(record.path)
    except BertError:
        return None
    return node.config if node is not None else None


def _references(record: Record) -> Path | None:
    origin = getattr(_node_config(record), "from_", None)
    return Path(origin.path) if isinstance(origin, PathFrom) else None


def _config(record: Record, kind: type[Frozen]) -> Frozen:
    """The recorded configuration, with the places of its files from the recipe: those that hold the recorded bytes.

    Raises DataError where they are not found, or where this code no longer knows such a configuration.
    """
    try:
        return kind.model_validate(_placed(record.body["config"], _node_config(record)))
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(
            f"its recorded configuration can't be used here: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            f"If that is where files lie: recipe {record.recipe} must name files with the recorded bytes. If the code has "
            f"changed: check out commit {_commit(record.body.get('git') or {})}.",
        ) from None


def _placed(recorded: Any, current: Any) -> Any:
    """`recorded` with each origin of `current` in the place of what it holds, where that is what was recorded."""
    if isinstance(current, PathFrom | UrlFrom | WheelFrom | WikimediaFrom):
        return current.plain() if _holds(current, recorded) else recorded
    if isinstance(current, Frozen) and isinstance(recorded, Mapping):
        fields = type(current).model_fields
        now = {fields[name].alias or name: part for name, part in current}
        return {name: _placed(part, now.get(name)) for name, part in recorded.items()}
    if isinstance(current, Mapping) and isinstance(recorded, Mapping):
        return {name: _placed(part, current.get(name)) for name, part in recorded.items()}
    if isinstance(current, tuple | list) and isinstance(recorded, list) and len(current) == len(recorded):
        return [_placed(part, now) for part, now in zip(recorded, current, strict=True)]
    return recorded


def _holds(origin: sources.Origin, recorded: Any) -> bool:
    if not sources.present(origin):
        return bool(recorded == ABSENT)
    try:
        return sources.resolve(origin, network=False) == recorded
    except BertError:
        return False


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_text(found: Plain) -> str:
    """The circumstances first, then the verdict, then every file that differs."""
    named = f"{found['asset']}{' ' + found['version'][:12] if found['version'] else ''}"
    lines = [f"not as it was: {on_one_line(line)}" for line in found["circumstances"]]
    lines.append(f"{named}: {found['verdict']}{_more(found)}")
    lines += [on_one_line(found["why"])] if found["why"] else []
    for file in found["files"]:
        lines.append(f"  {'≈' if file['within'] else '✗'} {on_one_line(file['path'])}: {on_one_line(file['what'])}")
    if found["tolerance"]:
        lines.append("tolerance: " + "; ".join(f"{name} {limit}" for name, limit in found["tolerance"].items()))
    lines += [f"→ {found['todo']}"] if found["todo"] else []
    return "\n".join(lines)


def _more(found: Plain) -> str:
    if found["verdict"] == IDENTICAL:
        return ", the same bytes" if found["same_bytes"] else ", the same rows in other bytes"
    return f"; made again it is {found['rebuilt'][:12]}" if found["rebuilt"] else ""
