"""The world of the crash matrix, made once for the tests of a file."""

from collections.abc import Iterator

import pytest

from tests.crash.world import Made, made


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """Everything that a cell begins with; where the file names a LAST asset, up to that."""
    with made(tmp_path_factory.mktemp("crash"), getattr(request.module, "LAST", "")) as found:
        yield found
