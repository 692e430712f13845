"""Folders of links: what a stage reads where some files of a version lie elsewhere."""

import atexit
import errno
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pipeline.system.atomic import canonical_digest, make_folder
from pipeline.system.owners import held_lock

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


def view(views: Path, links: Mapping[str, Path]) -> Path:
    """A folder of links (relative path → absolute target) under `views`, named by what it holds.

    In a home that can't be written, a temporary one that lives as long as this process. Raises OSError.
    """
    plain = sorted((path, str(target)) for path, target in links.items())
    place = views / canonical_digest(plain)
    if _holds(place, links):
        return place
    try:
        make_folder(views)
        with held_lock(views / ".lock"):
            if not _holds(place, links):
                shutil.rmtree(place, ignore_errors=True)
                made = Path(tempfile.mkdtemp(prefix=".", dir=views))
                _link(made, links)
                made.rename(place)
        return place
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        made = Path(tempfile.mkdtemp(prefix="bertworks-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        _link(made, links)
        return made


def dangling(place: Path) -> bool:
    """Whether what a view links to is gone, or the view itself was made by half."""
    found = [path for path in place.rglob("*") if path.is_symlink()]
    return not found or not all(path.exists() for path in found)


def _holds(place: Path, links: Mapping[str, Path]) -> bool:
    with suppress(OSError):
        return all((place / path).readlink() == target for path, target in links.items())
    return False


def _link(place: Path, links: Mapping[str, Path]) -> None:
    for path, target in links.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).symlink_to(target)
