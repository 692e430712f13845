"""Places on a disk and in an object store do the same."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.config import Frozen
from pipeline.errors import DataError, StoreError
from pipeline.storage import objects
from pipeline.storage.objects import Objects
from pipeline.system import places


@pytest.fixture(params=["disk", "url"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "disk":
        return tmp_path / "folder"
    make: Callable[[], str] = request.getfixturevalue("object_store")
    return places.place(make())


class Plan(Frozen):
    at: places.Place


def test_a_place_goes_through_a_plan_as_text(folder: Path) -> None:
    plan = Plan.model_validate_json(Plan(at=folder / "a").model_dump_json())
    assert str(plan.at) == str(folder / "a")
    assert places.is_url(plan.at) == places.is_url(folder)


def test_what_is_written_is_read_again(folder: Path) -> None:
    places.make(folder)
    with places.replaced(folder / "b.bin") as written:
        written.write_bytes(b"0123456789")
    places.write_json(folder / "a.json", {"x": 1})
    assert (folder / "b.bin").read_bytes() == b"0123456789"
    assert places.names(folder, "*") == ["a.json", "b.bin"]
    assert places.names(folder, "*.json") == ["a.json"]
    assert {name: json.loads(data) for name, data in places.read_all(folder, "*.json").items()} == {"a.json": {"x": 1}}
    assert places.read_all(folder, "*.txt") == {}
    with places.opened(folder / "b.bin") as file:
        file.seek(7)
        assert file.read() == b"789"
    with places.mapped(folder / "b.bin") as file:
        assert file.read() == b"0123456789"


def test_a_write_that_fails_leaves_nothing(folder: Path) -> None:
    places.make(folder)
    with pytest.raises(ValueError, match="half"), places.replaced(folder / "b.bin") as written:
        written.write_bytes(b"0123")
        raise ValueError("half")
    assert places.names(folder, "*") == []
    places.write_json(folder / "b.bin", 1)
    with pytest.raises(ValueError, match="half"), places.replaced(folder / "b.bin") as written:
        written.write_bytes(b"0123")
        raise ValueError("half")
    assert places.read_all(folder, "*") == {"b.bin": b"1"}


def test_ranges_come_near_in_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "NEAR_RANGES", 2)
    places.make(folder)
    for name, data in (("a", b"abcdef"), ("b", b"ghijkl")):
        with places.replaced(folder / name) as written:
            written.write_bytes(data)
    wanted = [("b", 1, 3, 7), ("a", 0, 6, 8), ("b", 5, 6, 9)]
    with places.near(folder, wanted) as (here, ranges):
        assert [number for *_, number in ranges] == [7, 8, 9]
        assert [(here / name).read_bytes()[start:end] for name, start, end, _ in ranges] == [b"hi", b"abcdef", b"l"]
    assert here == folder or not here.exists()


def test_a_range_beyond_the_end_is_an_error(object_store: Callable[[], str]) -> None:
    there = Objects(object_store())
    there.write("a", b"abc")
    with pytest.raises(StoreError, match="it ends before byte 9"):
        there.ranges([("a", 1, 9)])


def test_a_small_folder_comes_near(folder: Path) -> None:
    places.make(folder / "sub")
    places.write_json(folder / "sub" / "a.json", 1)
    places.write_json(folder / "b.json", 2)
    with places.near_folder(folder) as here:
        found = sorted(p.relative_to(here).as_posix() for p in here.rglob("*") if p.is_file())
        assert found == ["b.json", "sub/a.json"]


def test_a_folder_is_seen_by_its_url_only_where_it_is_shared(tmp_path: Path, object_store: Callable[[], str]) -> None:
    assert places.shared(tmp_path / "out") == tmp_path.resolve() / "out"
    asked = []
    urls = {tmp_path.resolve() / "out": lambda: asked.append(1) or "s3://bucket/out"}
    with places.sharing(urls):  # type: ignore[arg-type]
        assert asked == [], "only when it is needed"
        assert str(places.shared(tmp_path / "out")) == "s3://bucket/out"
        assert str(places.shared(tmp_path / "out" / "a" / "b")) == "s3://bucket/out/a/b"
        with pytest.raises(DataError, match="can't see this file: it is only referenced") as raised:
            places.shared(tmp_path / "dump.xml.bz2")
        assert "beam.files: disk" in raised.value.todo
    assert places.shared(tmp_path) == tmp_path.resolve()


def test_what_workers_wrote_is_fetched_without_what_they_wrote_on_their_way(
    tmp_path: Path, object_store: Callable[[], str]
) -> None:
    url = object_store()
    for name in ("train/a.parquet", ".scratch-x/tokens/a.arrow", "b"):
        Objects(url).write(name, name.encode())
    places.fetch(places.place(url), tmp_path)
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()) == [
        "b",
        "train/a.parquet",
    ]


def test_errors_of_the_network_are_told_and_faults_of_ours_are_not(object_store: Callable[[], str]) -> None:
    with pytest.raises(StoreError, match="s3://none: FileNotFoundError: gone"), objects.told("s3://none"):
        raise FileNotFoundError("gone")
    with pytest.raises(ZeroDivisionError), objects.told("s3://none"):
        _ = 1 / 0
    with pytest.raises(pa.ArrowInvalid), objects.told("s3://none"):
        raise pa.ArrowInvalid("no Arrow file")
