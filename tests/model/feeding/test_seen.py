"""When a training saw a document: the order of samples asked backwards, against going through it forwards."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model.feeding import seen
from model.feeding.order import mix, permuted, placed, rows_of, samples_of
from model.training import guard


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 64, 100, 4097])
def test_a_permutation_is_undone(rows: int) -> None:
    positions = np.arange(rows)
    for key in (0, 5, mix(1, 2, 3)):
        images = permuted(positions, rows, key)
        assert sorted(images) == positions.tolist()
        assert (placed(images, rows, key) == positions).all()


@pytest.mark.parametrize("groups", [(1,), (5,), (3, 4), (100, 1, 37), (4096, 4097, 11)])
def test_samples_of_rows_are_those_that_take_them(groups: tuple[int, ...]) -> None:
    sizes, rows = np.array(groups), np.arange(sum(groups))
    for epoch in (0, 1, 5):
        samples = samples_of(rows, sizes, 7, epoch)
        assert sorted(samples) == list(range(epoch * len(rows), (epoch + 1) * len(rows)))
        assert (rows_of(samples, sizes, 7) == rows).all()
        assert (samples_of(rows[::-3], sizes, 7, epoch) == samples[::-3]).all()


@pytest.mark.parametrize("passed_over", [(), ((0, 2),), ((3, 5),), ((3, 5), (7, 8), (20, 30))])
def test_the_step_of_a_batch_undoes_the_batch_of_a_step(passed_over: tuple[tuple[int, int], ...]) -> None:
    batches = [guard.batch_number(step, passed_over) for step in range(40)]
    assert [guard.step_of(batch, passed_over) for batch in batches] == list(range(40))
    left_out = set(range(batches[-1])) - set(batches)
    assert all(guard.step_of(batch, passed_over) is None for batch in left_out)
    assert left_out == {batch for first, end in passed_over for batch in range(first, end) if batch < batches[-1]}


@pytest.mark.parametrize("passed_over", [(), ((2, 4), (9, 10))])
def test_steps_are_those_of_a_walk_through_the_whole_training(passed_over: tuple[tuple[int, int], ...]) -> None:
    groups, seed, batch_size, steps = np.array([13, 40, 7]), 3, 8, 25  # three epochs and a third
    taken: dict[int, list[int]] = {row: [] for row in range(60)}
    for step in range(steps):
        batch = guard.batch_number(step, passed_over)
        for row in rows_of(np.arange(batch * batch_size, (batch + 1) * batch_size), groups, seed).tolist():
            taken[row].append(step)
    found = seen.steps_of(range(60), groups, seed, batch_size, steps, passed_over)
    assert {row: list(of_row) for row, of_row in enumerate(found)} == taken


def test_rows_are_found_over_files_and_row_groups(tmp_path: Path) -> None:
    train = tmp_path / "train"
    train.mkdir()
    lists = [["a", "b"], ["b"], ["c", "c"], ["a"], [], ["b", "a"], ["d"]]
    for number, part in enumerate((lists[:4], lists[4:])):
        table = pa.table({"documents": pa.array(part, pa.list_(pa.string())), "input_ids": pa.array([[1]] * len(part))})
        pq.write_table(table, train / f"shard-{number:05d}.parquet", row_group_size=3)
    rows, files = seen.rows_with(train, ["a", "c", "missing"])
    assert rows == {"a": [0, 3, 5], "c": [2], "missing": []}
    assert files == [("shard-00000.parquet", 0), ("shard-00001.parquet", 4)]
    config = {"seed": 5, "first_step": 0, "batch_size": 7}  # a step is an epoch
    found = seen.seen(tmp_path, config, 2, (), ["a", "missing"])
    assert [(row.file[-9:-8], row.row, row.steps) for row in found["a"]] == [
        ("0", 0, (0, 1)),
        ("0", 3, (0, 1)),
        ("1", 1, (0, 1)),
    ]
    assert found["missing"] == []
