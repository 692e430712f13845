"""Tags of entities, and names for them."""

import pytest

from pipeline.formats.iob import is_iob, naming_faults


def test_which_tags_are_of_entities() -> None:
    assert is_iob(["O", "I-creative-work"])
    assert not is_iob(["O", "O"])
    assert not is_iob(["NN", "O"])
    assert not is_iob(["B-PER", "S-PER"])


@pytest.mark.parametrize(
    ("labels", "names", "wrong"),
    [
        ("O B-A I-A", "O B-x I-x", []),
        ("I-A O B-A", "I-x O B-x", []),
        ("0 1 2", "O B-x I-y", []),  # only the names are tags
        ("0 1 2", "O x S-x", ["x", "S-x"]),
        ("O B-A I-A", "B-x O I-x", ["B-x", "O"]),
        ("O B-A I-A B-C I-C", "O B-x I-z B-z I-x", ["I-z", "I-x"]),
        ("B-A I-A", "B-x-y I-x-y", []),
    ],
)
def test_names_keep_the_entities(labels: str, names: str, wrong: list[str]) -> None:
    assert [fault.split()[0] for fault in naming_faults(labels.split(), names.split())] == wrong
