"""How much memory a process may still take on this machine before it is killed: the system's and the control groups' word."""

from collections.abc import Iterator
from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes that are free or that the kernel would give up for a program, in the machine and in every control group (both
    versions) that this process is in. `root`: where proc and sys are.

    Raises:
        OSError: there is no /proc/meminfo.
    """
    told = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in told)
    free = int(fields["MemAvailable"].split()[0]) * 1024
    return max(0, min([free, *_left_in_groups(root)]))


def _left_in_groups(root: Path) -> Iterator[int]:
    """What each group that has a limit leaves: its limit less what it holds, but for files that were not used lately."""
    try:
        memberships = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    top = root / "sys/fs/cgroup"
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            yield from _left(top, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _left(top / "memory", path, *names)


def _left(top: Path, path: str, limit: str, usage: str, reclaimable: str) -> Iterator[int]:
    """Of a group and all above it; in a container, where the path is the host's, of the group that is mounted there."""
    own = top / path.lstrip("/")
    for group in (own, *own.parents):
        if group == top.parent:
            return
        try:
            most, held = ((group / name).read_text(encoding="ascii").strip() for name in (limit, usage))
            files = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        except OSError:
            continue
        if most != "max":
            yield int(most) - int(held) + int(files.get(reclaimable, 0))
