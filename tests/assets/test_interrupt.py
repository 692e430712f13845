"""Ctrl-C while `bert` still begins: quiet, exit code 130."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.assets.bertcli import World, when
from tests.conftest import ROOT

LOADED = ("pydantic_core", "pyarrow")
"""extensions that importing the command loads, early and late"""


@pytest.mark.parametrize("loaded", LOADED)
def test_an_interrupt_while_it_is_imported_ends_it_quietly(tmp_path: Path, loaded: str) -> None:
    world = World.make(tmp_path / "world")
    process = subprocess.Popen(
        [sys.executable, "-m", "assets.command", "status", "tiny"],
        cwd=ROOT,
        env=world.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # in the background it would be ignored
    )
    deadline = time.monotonic() + 120
    while loaded not in Path(f"/proc/{process.pid}/maps").read_text():
        assert time.monotonic() < deadline and process.poll() is None, "it was never seen to import"
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130


def test_the_command_that_is_installed_is_this_one() -> None:
    assert 'bert = "assets.command:main"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_as_the_last_asset_is_published_is_one_sentence(tmp_path: Path, number: signal.Signals) -> None:
    world = World.make(tmp_path / "world")
    process = world.start("run", "tiny/books_text")
    output = when(process, lambda line: line.startswith("books_text made"), lambda: process.send_signal(number))
    assert "Stack Trace" not in output and "Traceback" not in output
    assert "Left: " not in output and "tiny/books_text is up to date" in output
    states = world.states("tiny")
    assert states["books_text"] == states["books_files"] == "up to date"
    assert "ended run" not in world.bert("run", "tiny/books_text")
