"""The files of a public task: found by name in a folder or in archives in it, or downloaded."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from model.task_files.known_tasks import KnownTask
from pipeline import sources
from pipeline.config import OfficialFrom, TaskFrom
from pipeline.errors import DataError, SourceError
from pipeline.formats.unpacked import SUFFIX, opened

MEMBER_BYTES = 4 << 30
"""A larger member of an archive is no part of a task."""


def official_files(task: KnownTask, origin: TaskFrom, scratch: Path) -> dict[str, Path]:
    """part → file, for the parts whose file is there.

    Raises:
        SourceError: a download that fails, or a task that can't be downloaded.
        DataError: an archive that can't be read, or two files of one name.
    """
    place = scratch / "files"
    place.mkdir()
    if isinstance(origin, OfficialFrom):
        if not task.downloads:
            raise SourceError(
                f"{task.title} can't be downloaded", f"Get {', '.join(task.files.values())} from {task.home}."
            )
        for download in task.downloads:
            sources.open_files(download, place)
        folder = place
    else:
        folder = sources.open_files(origin, place)
    found: dict[str, Path] = {}
    for name, part in task.parts.items():
        for file in (part.file, *part.also):
            path = _in_folder(folder, file) or _in_archives(folder, file, scratch)
            if path is not None:
                found[name] = path
                break
    return found


def _in_folder(folder: Path, name: str) -> Path | None:
    """The file of this name: in the folder itself, else the only one below it."""
    if (folder / name).is_file():
        return folder / name
    found = [path for path in _files(folder) if path.name == name]
    if len(found) > 1:
        raise DataError(
            f"{folder} holds {len(found)} files named {name} ({found[0]}, {found[1]}, …)",
            "Name the folder of the one task in the recipe.",
        )
    return found[0] if found else None


def _files(folder: Path) -> Iterator[Path]:
    """Files below a folder, by path, hidden ones left out."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _in_archives(folder: Path, name: str, scratch: Path) -> Path | None:
    """The file of this name out of the .zip files of a folder: of several, the one nearest the top."""
    for archive in _files(folder):
        if archive.suffix.lower() != SUFFIX:
            continue
        with opened(archive.resolve()) as held:  # where it lies, not where it is linked to
            members = [member for member in held.sizes if PurePosixPath(member).name == name]
            if members:
                held.unpack(min(members, key=lambda member: member.count("/")), scratch / name, MEMBER_BYTES)
                return scratch / name
    return None


def where_to_get(task: KnownTask) -> str:
    """What to write into a recipe so that the task has its data, and where its files come from."""
    if not task.downloads:
        return f"Get the files from {task.home}, and write finetuning.data: {{{task.name}: {{path: FOLDER}}}} into the recipe."
    urls = ", ".join(f"{each.url} (SHA-256 {each.sha256})" for each in task.downloads)
    return (
        f"Write finetuning.data: {{{task.name}: {{official: true}}}} into the recipe to download {urls}; or "
        f"{{path: FOLDER}} for a folder, or a .zip, that holds the files."
    )
