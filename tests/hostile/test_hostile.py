"""Every input of the list of hostile inputs comes in by its door, and is refused by its name, left out and counted, or taken for
plain text: within 30 s of processor time and 1 GiB, without a request, a program that ran or a file outside that was read.
"""

import json
from collections.abc import Iterator

import pytest

from tests.hostile.case import Case
from tests.hostile.cases import CASES
from tests.hostile.driver import Driver, traps
from tests.hostile.table import FILE, WORDS, page


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    folder = tmp_path_factory.mktemp("hostile")
    with traps(folder / "traps") as set_:
        found = Driver(folder / "cases", set_)
        try:
            yield found
        finally:
            found.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}: {case.name}")
def test_a_hostile_input(driver: Driver, case: Case) -> None:
    told = driver.send(case.make, case.door)
    outcome = told.outcome
    said = json.dumps(outcome, ensure_ascii=False)
    if case.expected.what == "refused":
        assert "refused" in outcome, said
        assert "Traceback" not in outcome["refused"]
    else:
        assert "kept" in outcome, said
        assert outcome["dropped"] == dict(case.expected.counts), said
    assert [word for word in case.expected.words if word not in said] == [], said


def test_no_number_of_the_list_is_left_out() -> None:
    assert {case.number for case in CASES} | set(WORDS) == set(range(1, 45))
    assert len({(case.number, case.name) for case in CASES}) == len(CASES)


def test_the_page_in_docs_is_what_is_tested() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), "python -m tests.hostile.table writes it"
