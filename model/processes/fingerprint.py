"""Whether files are those of before, told without reading all of them."""

import hashlib
from pathlib import Path

ENDS = 1 << 16
"""bytes at the beginning and at the end of each file that count"""


def fingerprint(root: Path) -> str:
    """Twelve hexadecimal digits from the name, size, first and last 64 KiB of a file, or of every file in a folder, wherever it
    lies.

    Shards of other rows, or of the same in another order, differ in those; so do weights. It is no proof, as a version of the
    store is one: it is there to notice that somebody put something else in the same place.
    """
    digest = hashlib.sha256()
    for path in [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file()):
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(ENDS)
            file.seek(max(0, size - ENDS))
            tail = file.read(ENDS)
        named = f"{path.relative_to(root).as_posix()}\n{size}\n{len(head)}\n".encode()
        digest.update(named + head + tail)
    return digest.hexdigest()[:12]
