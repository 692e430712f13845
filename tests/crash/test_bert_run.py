"""Cells of the crash matrix that go through the real `bert run`."""

from pathlib import Path

import pytest

from tests.crash.bertrun import BERT_CELLS, WORK, BertCell, run_cell
from tests.crash.world import Made

LAST = WORK
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("cell", BERT_CELLS, ids=lambda cell: str(cell.name))
def test_what_is_promised_after_a_crash_holds(world: Made, tmp_path: Path, cell: BertCell) -> None:
    run_cell(cell, world, tmp_path / "cell")
