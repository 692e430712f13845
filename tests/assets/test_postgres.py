"""Dagster's database in PostgreSQL: runs, what a killed one leaves, and a server that is gone.

Needs Debian's postgresql (`make postgres`); skips with that reason elsewhere.
"""

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml

from tests.assets.bertcli import World, kill_tree, when
from tests.conftest import ROOT
from tests.hostile.test_words import contents

PASSWORD = "canaryPgCANARY000001"
PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), default=None)


def account() -> str | None:
    """Who may run a server: not root, so the user that Debian's package makes; anybody else may as themselves."""
    if os.getuid():
        return pwd.getpwuid(os.getuid()).pw_name
    return "postgres" if "postgres" in {user.pw_name for user in pwd.getpwall()} else None


pytestmark = pytest.mark.skipif(
    PROGRAMS is None or account() is None, reason="needs Debian's postgresql: make postgres"
)


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server of this test alone."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        """With a password, for which this server does not ask."""
        return f"postgresql+psycopg2://dagster:{PASSWORD}@127.0.0.1:{self.port}/bert"

    def run(self, program: str, *arguments: str) -> str:
        assert PROGRAMS is not None
        user = account()
        command = [str(PROGRAMS.parent / program), *arguments]
        done = subprocess.run(
            command, cwd=self.folder, user=user, group=user, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self.run("pg_ctl", "-w", "-D", "data", "-l", "log", "-o", options, "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-w", "-D", "data", "-m", "immediate", "stop")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="postgres-") as made:  # its owner must be able to go there
        folder = Path(made)
        shutil.chown(folder, account(), account())
        server = Server(folder, port)
        server.run("initdb", "-D", "data", "-A", "trust", "-U", "dagster")
        server.start()
        try:
            server.run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "dagster", "bert")
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="module")
def world(server: Server, made: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The made world, with a Dagster that was set up for PostgreSQL as dagster.yaml says."""
    world = made.copy(tmp_path_factory.mktemp("postgres") / "world")
    shutil.rmtree(world.home / "dagster")
    (world.home / "dagster").mkdir()
    written = (ROOT / "assets" / "dagster.yaml").read_text(encoding="utf-8").splitlines()
    begin = written.index("# storage:")
    commented = [line.removeprefix("# ") if begin <= at <= begin + 2 else line for at, line in enumerate(written)]
    text = "\n".join(commented)
    assert yaml.safe_load(text)["storage"] == {"postgres": {"postgres_url": {"env": "BERT_POSTGRES"}}}
    (world.home / "dagster" / "dagster.yaml").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_POSTGRES", server.url)
        yield world


def sqlite_files(world: World) -> list[str]:
    return [path.name for path in world.home.rglob("*.db")]


def doctor(world: World, code: int = 0) -> tuple[str, str]:
    """State and finding of the check of Dagster."""
    (found,) = [check for check in world.json("doctor", code=code) if check["name"] == "dagster"]
    return found["state"], found["found"]


def test_runs_are_kept_in_postgresql(world: World) -> None:
    output = world.bert("run", "tiny")
    assert "17 of 17 assets are up to date" in output, "the store needs no database"
    assert "✓ documents" in world.bert("run", "tiny/documents", "--force")
    assert "tiny/documents is up to date" in world.bert("run", "tiny/documents")
    assert sqlite_files(world) == []
    assert doctor(world) == ("ok", "no run without a process")
    assert PASSWORD not in output


def test_the_password_of_the_database_is_written_nowhere(world: World, server: Server) -> None:
    """Neither into files nor into the database, in a run that ends well and in one that fails."""
    world.edit("path: ../text/books", "path: ../text/none")
    try:
        output = world.bert("run", "tiny/books_text", code=1)
    finally:
        world.edit("path: ../text/none", "path: ../text/books")
    assert PASSWORD in world.environment["BERT_POSTGRES"] and PASSWORD not in output
    kept = server.run("pg_dump", "-h", "127.0.0.1", "-p", str(server.port), "-U", "dagster", "bert")
    assert "text/none" in kept, "the run's events are there"
    assert PASSWORD not in kept
    files = [path for path in world.folder.rglob("*") if path.is_file()]
    assert files and [str(path) for path in files if any(PASSWORD.encode() in part for part in contents(path))] == []


def past_the_first_checkpoint(line: str) -> bool:
    found = re.search(r" ([\d,]+)/90,000 steps", line)
    return found is not None and int(found[1].replace(",", "")) >= 100


def test_what_a_killed_run_left_is_ended_by_the_next(world: World) -> None:
    world.edit("steps: 30}", "steps: 90000}")
    try:
        run = world.start("run", "tiny/pretrained_32")
        when(run, past_the_first_checkpoint, lambda: kill_tree(run.pid))
        for process in psutil.process_iter(["cmdline"]):  # what it started in sessions of their own
            if str(world.home) in " ".join(process.info["cmdline"] or ()):
                process.send_signal(signal.SIGKILL)
        time.sleep(1)
        assert doctor(world) == ("ok", "ended 1 run whose process was dead")
        run = world.start("run", "tiny/pretrained_32")
        output = when(run, lambda line: "goes on from step" in line, lambda: os.kill(run.pid, signal.SIGINT))
        assert "canceled; what was finished stays" in output
        assert doctor(world) == ("ok", "no run without a process")
    finally:
        world.edit("steps: 90000}", "steps: 30}")


def test_a_server_that_is_gone_is_told_with_what_to_do(world: World, server: Server) -> None:
    server.stop()
    try:
        output = world.bert("run", "tiny/documents", "--force", code=1)
        assert "PostgreSQL" in output and "BERT_POSTGRES" in output and "→" in output and "Traceback" not in output
        assert world.states()["documents"] == "up to date", "reading needs no database"
        state, told = doctor(world, code=1)
        assert state == "error" and "PostgreSQL" in told
    finally:
        server.start()
    assert "✓ documents" in world.bert("run", "tiny/documents", "--force")


def test_what_is_not_set_up_is_told(world: World, tmp_path: Path) -> None:
    copied = world.copy(tmp_path / "world")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("BERT_POSTGRES")
        output = copied.bert("run", "tiny/documents", "--force", code=1)
    assert "BERT_POSTGRES" in output and "dagster.yaml" in output and "Traceback" not in output
    (copied.home / "dagster" / "dagster.yaml").write_text("storage: {postgres: {nonsense: 1}}\n", encoding="utf-8")
    output = copied.bert("run", "tiny/documents", "--force", code=1)
    assert "dagster.yaml" in output and "nonsense" in output and "→" in output and "Traceback" not in output
