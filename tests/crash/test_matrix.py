"""The cells of the crash matrix that every test run does; all of them: `make crash-matrix`."""

from pathlib import Path

import pytest

from tests.crash.cells import FAULTS, OF, POINTS, TIMES, Input, Point, cells
from tests.crash.driver import run
from tests.crash.fixed import FIXED
from tests.crash.world import Made

CELLS = {cell.name: cell for cell in cells()}


@pytest.mark.parametrize("name", FIXED)
def test_what_is_promised_after_a_crash_holds(world: Made, tmp_path: Path, name: str) -> None:
    run(CELLS[name], world, tmp_path / "cell")


def test_sixty_cells_and_every_kind_of_fault_are_among_those_that_every_test_run_does() -> None:
    chosen = [CELLS[name] for name in FIXED]
    assert len(set(FIXED)) == len(FIXED) >= 60
    assert len(CELLS) == len(list(cells())), "two cells have one name"
    assert {cell.fault for cell in chosen} >= {
        *FAULTS,
        "truncated",
        "flipped",
        "missing",
        "extra",
        "duplicate",
        "two runs",
    }
    assert {cell.work for cell in chosen} >= {point.work for point in POINTS} - {"wikipedia_dump", "task_data_places"}


def test_every_fault_that_is_asked_for_is_told() -> None:
    known = {*FAULTS, *TIMES}
    assert {fault for faults in OF.values() for fault in faults} <= known
    assert all(cell.fault in known for cell in CELLS.values() if not isinstance(cell.point, Input))
    assert all(isinstance(cell.point, Point | Input | str) for cell in CELLS.values())
