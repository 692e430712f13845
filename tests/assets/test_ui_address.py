"""`bert ui` has no login: nothing that it starts listens where another machine could reach it."""

import socket
import time
from pathlib import Path

import psutil

from tests.assets.bertcli import World, kill_tree, tree


def free_port() -> int:
    """One of this machine that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(pid: int) -> set[tuple[str, int]]:
    """(address, port) of every socket that a process or one below it listens at."""
    found = set()
    for process in tree(pid):
        try:
            found |= {
                (c.laddr.ip, c.laddr.port) for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN
            }
        except psutil.Error:
            continue
    return found


def test_the_page_and_all_that_it_starts_listen_on_this_machine_alone(tmp_path: Path) -> None:
    world = World.make(tmp_path / "world")
    port = free_port()
    server = world.start("ui", "--port", str(port))
    try:
        deadline = time.monotonic() + 180
        while ("127.0.0.1", port) not in (found := listening(server.pid)):
            assert server.poll() is None and time.monotonic() < deadline, f"it never listened: {found}"
            time.sleep(0.3)
        assert {address for address, _ in listening(server.pid)} <= {"127.0.0.1", "::1"}
    finally:
        kill_tree(server.pid)
        server.communicate()


def test_another_address_is_warned_of(tmp_path: Path) -> None:
    """0.0.0.0 is every address of the machine. The port is taken, so that nothing is started."""
    world = World.make(tmp_path / "world")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        told = world.bert("ui", "--host", "0.0.0.0", "--port", port, code=1)
        quiet = world.bert("ui", "--port", port, code=1)
    assert "Dagster has no login: whoever reaches 0.0.0.0:" in told and "docs/security.md" in told
    assert "no login" not in quiet
