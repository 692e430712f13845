"""Rows in files that grow (model/processes/lines.py)."""

from pathlib import Path

import pytest

from model.processes import lines
from pipeline.errors import TrainingError


def test_half_a_row_of_a_killed_process_goes_when_the_next_one_appends(tmp_path: Path) -> None:
    path = tmp_path / "timing.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "sec')
    assert lines.read(path) == [{"step": 1}]
    file = lines.Lines(path)
    file.append({"step": 3})
    file.close()
    assert lines.read(path) == [{"step": 1}, {"step": 3}]


def test_a_file_is_cut_back_to_what_a_checkpoint_counts_on_and_never_filled_up(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n')
    lines.Lines(path, keep=12).close()
    assert lines.read(path) == [{"step": 1}]
    with pytest.raises(TrainingError, match="holds 12 bytes, its checkpoint was saved after 24"):
        lines.Lines(path, keep=24)
