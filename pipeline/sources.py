"""Where files come from: a path on this machine, a URL, a member of a wheel, Wikimedia's dumps.

    fetch_files    the stage behind `S_dump` and `S_files`
    resolve        what an origin holds now, as it enters keys: content, never a place
    open_files     the files of an origin as a folder, for stages that read the outside themselves (task data)
    present        whether a path is there at all

Local files are referenced by name, size and SHA-256 and never copied; downloads are content.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline import progress
from pipeline.config import FilesConfig, PathFrom, UrlFrom, WheelFrom, WikimediaFrom
from pipeline.errors import DataError, SourceError
from pipeline.origins import downloads, wheels, wikimedia
from pipeline.selection.sampling import FETCHED
from pipeline.settings import settings
from pipeline.stage import Stage
from pipeline.storage.content import file_sha256, reference
from pipeline.system import atomic

STAGE = Stage(
    name="files",
    function="pipeline.sources:fetch_files",
    version="2",  # 2: a multistream dump comes with its index files
    sources=(
        "pipeline/sources.py",
        "pipeline/origins/downloads.py",
        "pipeline/selection/sampling.py",
        "pipeline/origins/transfer.py",
        "pipeline/origins/wheels.py",
        "pipeline/origins/wikimedia.py",
    ),
)

Origin = PathFrom | UrlFrom | WheelFrom | WikimediaFrom


def fetch_files(inputs: Mapping[str, Path], config: FilesConfig, out: Path) -> dict[str, Any]:
    """Write the files of the origin into `out` under their names; for a local path instead `references.json`.

    `references.json`: a `content.reference` per file, its path relative to the named folder, or the file's name.
    Raises SourceError for what is missing, can't be downloaded or has the wrong digest.
    """
    origin = config.from_
    if isinstance(origin, PathFrom):
        references = _described(origin)
        atomic.write_json(out / "references.json", references)
        return _statistics("path", {each["path"]: each["size_bytes"] for each in references})
    said, paths = _kept(origin, out, config.sample)
    for path in paths:
        downloads.link_or_copy(path, out / path.name)
    kind = {UrlFrom: "url", WheelFrom: "wheel", WikimediaFrom: "wikimedia"}[type(origin)]
    found = {**_statistics(kind, {path.name: path.stat().st_size for path in sorted(out.iterdir())}), **said}
    if "sample_share" in said:
        atomic.write_json(out / FETCHED, {"share": said["sample_share"]})
    return found


def _statistics(kind: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "origin": kind,
        "file_count": len(sizes),
        "size_bytes": sum(sizes.values()),
        "files": [{"name": name, "size_bytes": size} for name, size in list(sizes.items())[:50]],
    }


def _kept(
    origin: UrlFrom | WheelFrom | WikimediaFrom, folder: Path, sample: float = 1.0
) -> tuple[dict[str, Any], list[Path]]:
    """(what there is to say of an origin's files, kept files); the member of a wheel is written into `folder` instead.
    `sample`: of a dump from the dump site."""
    if isinstance(origin, WheelFrom):
        wheels.wheel_member(origin, folder)
        return {"wheel": origin.file, "wheel_sha256": origin.sha256, "member": origin.member}, []
    if isinstance(origin, UrlFrom):
        fetched = downloads.url_file(origin)
        declared = [{"name": fetched.paths[0].name, "sha256": origin.sha256}]
        said = {"url": origin.url, "sha256": origin.sha256}
    else:
        dump, fetched = wikimedia.files(origin, sample)
        declared = dump["files"]
        said = {"wiki": origin.wiki, "dump_date": dump["date"], "url": dump["url"]}
        said |= {"sample_share": dump["share"]} if "share" in dump else {}
    sizes = {path.name: path.stat().st_size for path in fetched.paths}
    return {
        **said,
        "checksum": "sha1" if "sha1" in declared[0] else "sha256",
        "files": [{**each, "size_bytes": sizes[each["name"]]} for each in declared],
        "downloaded_bytes": fetched.bytes,
        **({"download_seconds": round(fetched.seconds, 3)} if fetched.bytes else {}),
        **({"MB_per_second": round(fetched.bytes / 1e6 / fetched.seconds, 3)} if fetched.bytes else {}),
    }, fetched.paths


def resolve(from_: Origin, network: bool = True) -> dict[str, Any]:
    """What the origin holds, as it enters keys in the place of the recipe's own words.

    Equal bytes under equal names give equal values wherever they lie. Only Wikimedia's `latest` and a date asked for
    the first time need the network; `network=False` takes what is known instead. Raises SourceError.
    """
    if isinstance(from_, PathFrom):
        return {"files": _described(from_, broken=True)}
    if isinstance(from_, UrlFrom):
        return {"sha256": from_.sha256, "name": downloads.name_of(from_)}
    if isinstance(from_, WheelFrom):
        return {"wheel_sha256": from_.sha256, "member": from_.member}
    return wikimedia.resolve(from_, network)


def open_files(from_: Origin, scratch: Path) -> Path:
    """The folder that holds the files of an origin; `scratch` is an empty folder to put them in if needed.

    Raises SourceError as `fetch_files` does.
    """
    if not isinstance(from_, PathFrom):
        for kept in _kept(from_, scratch)[1]:
            (scratch / kept.name).symlink_to(kept)
        return scratch
    path = Path(from_.path)
    files = list(local_files(path))
    if path.is_dir():
        return path
    (scratch / path.name).symlink_to(files[0].resolve())
    return scratch


def present(from_: Origin) -> bool:
    """Whether a local path exists, of a folder whether it holds anything; anything else counts as there, and fails when it is fetched
    and is not."""
    if not isinstance(from_, PathFrom):
        return True
    path = Path(from_.path)
    return any(not each.name.startswith(".") for each in path.iterdir()) if path.is_dir() else path.exists()


# ── local files ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _described(from_: PathFrom, broken: bool = False) -> list[dict[str, Any]]:
    """References (`content.reference`) to a file, or to all files below a folder, by relative path. `broken`: also to a Parquet file
    that can't be read, by its bytes: whoever reads it says so, where it can be told which asset is the worse for it."""
    root = Path(from_.path)
    files = list(local_files(root))
    base = root if root.is_dir() else root.parent
    total = sum(path.stat().st_size for path in files)
    described = []
    done = 0
    for path in files:
        name, cache = path.relative_to(base).as_posix(), settings().home_path / "verified"
        try:
            entry = reference(path, name, cache)
        except OSError as error:
            raise SourceError(
                f"{path} can't be read: {error.strerror}", "Check the file and its permissions."
            ) from error
        except DataError:
            if not broken:
                raise
            entry = {"path": name, "size_bytes": path.stat().st_size, "sha256": file_sha256(path, cache)}
        described.append(entry)
        done += entry["size_bytes"]
        progress.report(done, total, "bytes")
    return described


def local_files(path: Path) -> Iterator[Path]:
    """The file itself, or the files below a folder by relative path, hidden ones left out. SourceError if none."""
    if path.is_file():
        yield path
        return
    if not path.exists():
        parent = next(each for each in path.parents if each.exists())
        raise SourceError(
            f"{path} does not exist ({parent} does, and holds {_listing(parent)})",
            "Correct `path` in the recipe (relative paths start at the recipe's folder), or put the files there.",
        )
    found: list[Path] = []
    entered = {path.resolve()}
    for folder, folders, names in os.walk(path, followlinks=True):
        inner = [Path(folder) / name for name in sorted(folders) if not name.startswith(".")]
        folders[:] = [each.name for each in inner if each.resolve() not in entered]  # a link may lead back
        entered |= {each.resolve() for each in inner}
        inside = [Path(folder) / name for name in names if not name.startswith(".")]
        for each in inside:  # at once: /proc has no end
            _check_plain(each)
        found += inside
    files = sorted(found, key=lambda each: each.relative_to(path).as_posix())
    if not files:
        raise SourceError(f"{path} holds no files", "Put the files there, or correct `path` in the recipe.")
    yield from files


def _check_plain(path: Path) -> None:
    """SourceError for what can't be read or named: it would be left out, or fail much later."""
    if not path.is_file():
        what = "is a link that leads nowhere" if path.is_symlink() else "is no plain file"
        raise SourceError(f"{path} {what}", "Remove it; names that begin with a dot are left out.")
    try:
        path.name.encode()
    except UnicodeEncodeError:
        raise SourceError(f"the name of {str(path)!r} is not UTF-8", "Rename the file.") from None


def _listing(folder: Path) -> str:
    try:
        names = sorted(each.name for each in folder.iterdir())
    except OSError:
        return "nothing that can be read"
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "nothing"
