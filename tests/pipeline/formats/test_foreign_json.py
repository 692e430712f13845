"""JSON from outside: a value, or ValueError, whatever it is."""

import pytest

from pipeline.formats import foreign_json
from pipeline.storage import manifest, tombstones
from pipeline.storage.record import record_of

DEEP = "[" * 100_000


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 100_000, "9" * 10_000, "", "nope", b"\xff", b"\x00", '{"a": 1'])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        foreign_json.parsed(text)


def test_what_is_json_is_its_value() -> None:
    assert foreign_json.parsed('{"a": [1, "ü", null]}') == {"a": [1, "ü", None]}


def test_files_of_the_store_that_nest_too_deep_are_told_as_altered() -> None:
    assert manifest.parsed(DEEP.encode(), "documents", "v") is None and manifest.version_told(DEEP.encode()) == ""
    assert tombstones.parsed(DEEP.encode(), "documents", "v") is None
    with pytest.raises(ValueError):
        record_of(DEEP.encode())
