"""What a terminal shows of a run: the lines that stay, what runs now, and the command in a real terminal."""

import errno
import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from assets.commands.live import Shown, drawn, view
from tests.assets.bertcli import World
from tests.conftest import ROOT

LINES = (
    "2 of 5 assets are up to date: dump, files",
    "  will run  text: the recipe changed",
    "  may run   documents: after text",
    "  may run   shards: after documents",
    "▸ text",
    "text: 1,000/4,000 pages · 251.2/s · 12s left",
    "▸ documents",
    "documents: measured on 3 files",
    "shards waits for its turn in the pool beam, 1 at a time: other/shards has it",
    "text: 4,000/4,000 pages · 251.2/s",
)


def text(shown: Shown, now: float) -> list[str]:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(drawn(shown, now, 100))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_what_runs_and_waits_is_told_below_the_lines_that_stay() -> None:
    shown = Shown(begun=100.0)
    kept = [line for number, line in enumerate(LINES) if shown.hear(line, 100.0 + number)]
    assert kept == [*LINES[:4], LINES[7]]
    running, second, waiting, whole = text(shown, 130.0)
    assert running.split()[:2] == ["▸", "text"] and running.endswith(" 26s 4,000/4,000 pages · 251.2/s")
    assert second.split() == ["▸", "documents", "24s"]
    assert "shards" in waiting and "waits for its turn in the pool beam" in waiting
    assert whole.endswith("0 of 3 done · 30s")

    assert shown.hear("✓ text", 131.0) and shown.hear("✗ documents: it failed\n    → mend it", 132.0)
    waiting, whole = text(shown, 133.0)
    assert "shards" in waiting and whole.endswith("2 of 3 done · 33s")


def test_where_there_is_no_terminal_every_line_is_printed() -> None:
    for environment in ({}, {"TERM": "dumb", "FORCE_COLOR": "1"}):
        file = io.StringIO()
        with view(Console(file=file, _environ=environment)) as say:
            for line in LINES:
                say(line)
        assert file.getvalue().splitlines() == list(LINES)


def in_a_terminal(world: World, *arguments: str) -> str:
    """What `bert` prints into a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    environment = {**world.environment, "TERM": "xterm-256color", "COLUMNS": "100"}
    command = [sys.executable, "-m", "assets.command", *arguments]
    child = subprocess.Popen(command, env=environment, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    printed = b""
    try:
        while data := os.read(ours, 65536):
            printed += data
    except OSError as error:
        assert error.errno == errno.EIO, "the other end was closed"
    os.close(ours)
    assert child.wait() == 0, printed.decode()
    return printed.decode()


def test_in_a_terminal_lines_move_and_those_that_count_stay(made: World, tmp_path: Path) -> None:
    world = made.copy(tmp_path / "world")
    printed = in_a_terminal(world, "run", "tiny/documents", "--force")
    assert "\x1b[2K" in printed and "of 1 done" in printed, "it draws over itself"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed)
    assert "✓ documents" in plain and "48 read = 48 kept" in plain
    assert "tiny/documents is up to date" in plain.splitlines()[-1]

    assert "\x1b[32m✓\x1b[0m" in in_a_terminal(world, "status", "tiny")
    assert "\x1b" not in world.bert("status", "tiny")
