"""One run of a world of hostile words and secrets, made once for the tests of this folder."""

import pytest

from tests.hostile import wild
from tests.hostile.wild import Wild


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Wild:
    """The world after its run, its exports and its audits. Tests leave it as they found it."""
    return wild.make(tmp_path_factory.mktemp("wild") / "world")
