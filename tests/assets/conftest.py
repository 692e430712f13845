"""One undisturbed run of recipe `tiny`, made once for all tests of this folder."""

from pathlib import Path

import pytest

from tests.assets.bertcli import World
from tests.conftest import made_once


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world in which `bert run tiny` has run once, undisturbed: this process's own copy. Tests leave it as they found it."""
    return World(made_once(tmp_path_factory, "tiny-made", _make)).copy(tmp_path_factory.mktemp("made") / "world")


def _make(folder: Path) -> None:
    output = World.make(folder).bert("run", "tiny")
    assert "tiny is up to date" in output
