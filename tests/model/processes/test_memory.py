"""Memory that is left, in trees of files as the kernel shows them."""

from pathlib import Path

import psutil
import pytest

from model.processes.memory import available_bytes

GIB = 1 << 30
MEMINFO = f"MemTotal:       {16 * GIB // 1024} kB\nMemFree:        1000 kB\nMemAvailable:   {10 * GIB // 1024} kB\n"


def tree(root: Path, cgroup: str | None, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(MEMINFO)
    if cgroup is not None:
        (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def group(folder: str, limit: str, held: int, inactive: int) -> dict[str, str]:
    return {
        f"{folder}memory.max": f"{limit}\n",
        f"{folder}memory.current": f"{held}\n",
        f"{folder}memory.stat": f"anon 5\ninactive_file {inactive}\n",
    }


def test_without_groups_it_is_what_the_system_says(tmp_path: Path) -> None:
    assert available_bytes(tree(tmp_path / "a", None, {})) == 10 * GIB
    assert available_bytes(tree(tmp_path / "b", "0::/\n", {})) == 10 * GIB


def test_a_group_leaves_its_limit_less_what_it_holds_but_for_idle_files(tmp_path: Path) -> None:
    files = group("job/", str(8 * GIB), 3 * GIB, GIB)
    assert available_bytes(tree(tmp_path, "0::/job\n", files)) == 6 * GIB


def test_the_narrowest_of_a_group_and_those_above_it_counts(tmp_path: Path) -> None:
    files = group("pod/", str(4 * GIB), 2 * GIB, 0) | group("pod/job/", "max", GIB, 0)
    assert available_bytes(tree(tmp_path / "a", "0::/pod/job\n", files)) == 2 * GIB
    files = group("pod/", str(9 * GIB), 2 * GIB, 0) | group("pod/job/", str(GIB), GIB - 7, 0)
    assert available_bytes(tree(tmp_path / "b", "0::/pod/job\n", files)) == 7


def test_in_a_container_the_group_is_what_is_mounted(tmp_path: Path) -> None:
    """/proc/self/cgroup has the host's path, which does not exist there."""
    files = group("", str(5 * GIB), GIB, 0)
    assert available_bytes(tree(tmp_path, "0::/kubepods/pod1\n", files)) == 4 * GIB


def test_the_first_version_of_control_groups(tmp_path: Path) -> None:
    files = {
        "memory/docker/x/memory.limit_in_bytes": f"{3 * GIB}\n",
        "memory/docker/x/memory.usage_in_bytes": f"{2 * GIB}\n",
        "memory/docker/x/memory.stat": f"total_inactive_file {GIB // 2}\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.usage_in_bytes": f"{4 * GIB}\n",
        "memory/memory.stat": "total_inactive_file 0\n",
    }
    assert available_bytes(tree(tmp_path, "5:cpu:/\n4:memory:/docker/x\n0::/\n", files)) == GIB * 3 // 2


def test_a_group_beyond_its_limit_leaves_nothing(tmp_path: Path) -> None:
    assert available_bytes(tree(tmp_path, "0::/job\n", group("job/", "100", 200, 0))) == 0


def test_here_it_is_at_most_what_is_available() -> None:
    assert 0 < available_bytes() <= psutil.virtual_memory().available + (1 << 29)
    with pytest.raises(OSError):
        available_bytes(Path("/nowhere"))
