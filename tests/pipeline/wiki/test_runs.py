"""Runs of rows and their merging, against plain sorting."""

import random

import pyarrow as pa
import pytest

from pipeline import schemas
from pipeline.wiki import runs
from pipeline.wiki.runs import Merge, RunWriter


def row(page_id, text="x"):
    return {
        "doc_id": f"w:{page_id}",
        "source": "w",
        "title": text[:9],
        "text": text,
        "page_id": page_id,
        "wikitext_characters": 1,
    }


def write(folder, name, rows):
    writer = RunWriter(folder, name)
    for each in rows:
        writer.add(each)
    return writer.close(), writer.duplicates


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(runs, "GROUP_ROWS", 7)


def test_ascending_rows_are_one_run(tmp_path, small):
    (run,), duplicates = write(tmp_path, "a", [row(n) for n in range(100)])
    assert (run.rows, run.first, run.last, duplicates) == (100, 0, 99, 0)


@pytest.mark.parametrize("seed", range(6))
def test_merging_is_sorting_and_the_first_of_equal_ids_stays(tmp_path, small, seed):
    source = random.Random(seed)
    parts = []
    for number in range(source.randint(1, 6)):
        ids = [source.randint(0, 300) for _ in range(source.randint(0, 120))]
        if source.random() < 0.7:
            ids.sort()
        parts.append([row(n, f"{number} {place}") for place, n in enumerate(ids)])
    found, left_out = [], 0
    for number, rows in enumerate(parts):
        written, duplicates = write(tmp_path, f"p{number}", rows)
        found += written
        left_out += duplicates
    merge = Merge(tmp_path, found)
    batches = list(merge)
    merged = [(r["page_id"], r["text"]) for batch in batches for r in batch.to_pylist()]
    first = {}
    for each in (r for rows in parts for r in rows):
        first.setdefault(each["page_id"], each["text"])
    assert merged == sorted(first.items())
    assert left_out + merge.duplicates == sum(map(len, parts)) - len(first)
    assert all(batch.num_rows == 7 for batch in batches[:-1])


def test_batches_follow_from_the_rows_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "GROUP_BYTES", 1000)
    rows = [row(n, "é" * (n * 37 % 300)) for n in range(200)] + [row(200, "x" * 5000), row(201)]
    layouts = []
    for name, cuts in {"a": [202], "b": [1, 50, 51, 202], "c": [100, 202]}.items():
        found, begin = [], 0
        for end in cuts:
            found += write(tmp_path, f"{name}{end}", rows[begin:end])[0]
            begin = end
        layouts.append(list(Merge(tmp_path, found)))
    assert layouts[0] == layouts[1] == layouts[2]
    sizes = [sum(len(r["text"].encode()) for r in batch.to_pylist()) for batch in layouts[0]]
    assert max(size for size in sizes if size != 5000) <= 1000 and 5000 in sizes
    assert pa.Table.from_batches(layouts[0]).num_rows == 202


def test_no_runs_no_rows(tmp_path):
    assert list(Merge(tmp_path, [])) == []
    assert write(tmp_path, "a", []) == ([], 0)
    assert schemas.GROUP_ROWS == runs.GROUP_ROWS
