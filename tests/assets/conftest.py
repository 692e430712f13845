"""One undisturbed run of recipe `tiny`, made once for all tests of this folder."""

import pytest

from tests.assets.bertcli import World


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world in which `bert run tiny` has run once, undisturbed. Tests leave it as they found it."""
    world = World.make(tmp_path_factory.mktemp("made"))
    output = world.bert("run", "tiny")
    assert "tiny is up to date" in output
    return world
