"""What a version holds: the list of its files, sealed by a digest over itself, and whether the files still are what it says.

A manifest is {stage, version, files: [{path, size_bytes, sha256, digest}], seal}. An entry with `"referenced": true` is
a file that lies elsewhere and is only named: where, the reader's recipe says, never the store.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.errors import StoreError
from pipeline.formats import foreign_json
from pipeline.storage.content import content_digest, file_sha256, parquet_digest, version_of
from pipeline.system.atomic import canonical_digest, explained, fsync_file, fsync_folder, make_folder, write_bytes

MANIFEST = "manifest.json"
REFERENCES = "references.json"  # written by a stage: files that lie elsewhere, as content.reference describes them
TEMPORARY = f".{MANIFEST}."  # what a crash while the manifest is written may leave
FAULT = "This is a fault of the stage."

Entry = Mapping[str, Any]


def list_files(staged: Path) -> list[dict[str, Any]]:
    """Entries of all files under `staged`, made durable, and of those that its `references.json` names, by path.

    Raises StoreError for what is not a plain file, for references that can't be, and when there is nothing.
    """
    entries = _referenced(staged / REFERENCES) or _published_before(staged)
    for path in sorted(staged.rglob("*")):
        name = path.relative_to(staged).as_posix()
        if name in (MANIFEST, REFERENCES) or name.startswith(TEMPORARY) or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink() or not path.is_file():
            raise StoreError(f"{path}: a stage may write plain files only", FAULT)
        fsync_file(path)
        sha256 = file_sha256(path)
        digest = content_digest(path) if path.suffix == ".parquet" else sha256
        entries.append({"path": name, "size_bytes": path.stat().st_size, "sha256": sha256, "digest": digest})
    names = [entry["path"] for entry in entries]
    if not names:
        raise StoreError(f"{staged}: the stage wrote nothing", FAULT)
    if len(set(names)) < len(names):
        raise StoreError(f"{staged}: a file is both written and referenced, or referenced twice", FAULT)
    return sorted(entries, key=lambda entry: str(entry["path"]))


def _referenced(path: Path) -> list[dict[str, Any]]:
    try:
        listed = foreign_json.parsed(path.read_bytes())
        entries = []
        for named in listed:
            name = PurePosixPath(named["path"])
            if name.is_absolute() or ".." in name.parts or str(name) != named["path"]:
                raise ValueError(f"not a relative path: {named['path']!r}")
            sha256 = str(named["sha256"])
            entry = {"path": str(name), "size_bytes": int(named["size_bytes"]), "sha256": sha256}
            entries.append({**entry, "digest": str(named.get("digest", sha256)), "referenced": True})
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: not a list of path, size_bytes, sha256 ({error})", FAULT) from error
    return entries


def _published_before(staged: Path) -> list[dict[str, Any]]:
    """Referenced entries of a manifest that a publication left which was killed. A stage may not write one."""
    try:
        body = foreign_json.parsed((staged / MANIFEST).read_bytes())
        seal_, files = body.pop("seal"), body["files"]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, AttributeError):
        seal_ = None
    if seal_ is None or seal_ != canonical_digest(body):
        raise StoreError(f"{staged / MANIFEST}: this name belongs to the store", FAULT)
    return [entry for entry in files if entry.get("referenced")]


def version_in(files: Sequence[Entry]) -> str:
    """The version that these entries make; whether a file is referenced makes no difference."""
    return version_of({entry["path"]: entry["digest"] for entry in files})


def seal(folder: Path, stage: str, version: str, files: Sequence[Entry]) -> None:
    """Write the manifest of a folder, durably."""
    for left in folder.glob(f"{TEMPORARY}*"):
        left.unlink()
    write_bytes(folder / MANIFEST, sealed({"stage": stage, "version": version, "files": list(files)}))


def sealed(body: Mapping[str, Any]) -> bytes:
    """A manifest with a digest over itself, so that any changed byte shows."""
    digest = canonical_digest(body)
    return (json.dumps({**body, "seal": digest}, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def read(folder: Path, stage: str, version: str) -> dict[str, Any]:
    """The manifest of a version: {stage, version, files}.

    Raises StoreError when it is missing or altered, OSError when it can't be read.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise StoreError(
            f"{stage} {version[:12]}: its content is not in the store ({path} is missing)",
            "The next `bert run` makes it anew.",
        ) from None
    body = parsed(data, stage, version)
    if body is None:
        raise StoreError(
            f"{path}: the manifest was altered", "`bert verify` sets it aside; the next `bert run` makes it anew."
        )
    return body


def parsed(data: bytes, stage: str, version: str) -> dict[str, Any] | None:
    """The manifest of a version from its bytes; None when it was altered."""
    try:
        found = foreign_json.parsed(data)
        body = {name: found[name] for name in ("stage", "version", "files")}
        whole = sealed(body) == data and (body["stage"], body["version"]) == (stage, version)
    except (ValueError, KeyError, TypeError):
        return None
    return body if whole else None


def version_told(data: bytes) -> str:
    """The version that a manifest names, unverified; "" for what is none."""
    try:
        return str(foreign_json.parsed(data)["version"])
    except (ValueError, KeyError, TypeError):
        return ""


def problems(folder: Path, stage: str, version: str, remembered: Path | None) -> list[str]:
    """What is wrong with a version; empty when it is what its digests say.

    With `remembered`, a file that was hashed before and not written since is trusted; without, every byte is read.
    Raises OSError for what can't be read: that says nothing about the content.
    """
    try:
        files = read(folder, stage, version)["files"]
    except StoreError as error:
        return [error.what]
    present = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()
    }
    present = {name for name in present if name != MANIFEST and not name.startswith(TEMPORARY)}
    listed = {entry["path"]: entry for entry in files}
    found = []
    if version_in(files) != version:
        found.append(f"{folder / MANIFEST}: its digests don't make this version")
    for name in sorted({*listed, *present}):
        path = folder / name
        if name not in listed:
            found.append(f"{path}: not in the manifest")
        elif name in present:
            if not _same(path, listed[name], remembered):
                found.append(f"{path}: its bytes are not those that were published")
        elif not listed[name].get("referenced"):
            found.append(f"{path}: missing")
    return found


def _same(path: Path, entry: Entry, remembered: Path | None) -> bool:
    if path.is_symlink():  # maybe to nowhere
        return False
    return path.stat().st_size == entry["size_bytes"] and file_sha256(path, remembered) == entry["sha256"]


def fill(folder: Path, stage: str, version: str, staged: Path, files: Sequence[Entry]) -> None:
    """Move the bytes that `staged` holds (entries: `files`) into a version that only references them.

    The files come first, then the manifest: a reader finds the version whole at every moment.
    """
    held = {entry["path"]: entry for entry in files if not entry.get("referenced")}
    had = read(folder, stage, version)["files"]
    wanted = [entry["path"] for entry in had if entry.get("referenced") and entry["path"] in held]
    for name in wanted:
        make_folder((folder / name).parent)
        os.replace(staged / name, folder / name)
        fsync_folder((folder / name).parent)
    if wanted:
        seal(folder, stage, version, [held[e["path"]] if e["path"] in wanted else e for e in had])


def locate(entry: Entry, references: Path, remembered: Path) -> Path:
    """Where a referenced file lies, verified by size and SHA-256: `references` is the file, or the folder that holds it.

    Raises StoreError when it is gone or changed.
    """
    path = references if references.is_file() else references / entry["path"]
    if not path.is_file():
        raise StoreError(
            f"{path}: the file that the recipe references is gone", "Put it back, or name its new place in the recipe."
        )
    with explained(path):
        same = _same(path.resolve(), entry, remembered)
        if not same and entry["path"].endswith(".parquet"):
            same = parquet_digest(path) == entry["digest"]  # written anew with the same rows
    if not same:
        raise StoreError(f"{path}: the file changed since it was read", "Run again: what depends on it is made anew.")
    return path
