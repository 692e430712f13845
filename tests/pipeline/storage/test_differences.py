"""What differs between two chains, by hand."""

from typing import Any

from pipeline.storage.differences import compare
from pipeline.storage.record import Record


def record(asset: str, version: str, **changes: Any) -> Record:
    body: dict[str, Any] = {
        "recipe": "r",
        "asset": asset,
        "stage": asset,
        "version": version,
        "code_version": "1",
        "asked": {},
        "statistics": {},
        "libraries": {"torch": "2.13.0"},
        "git": {"commit": "abc", "dirty": False},
        "inputs": {},
    }
    return Record(f"{asset}-{version}", body | changes)


def test_equal_chains_do_not_differ() -> None:
    chain = [record("release", "1"), record("documents", "2")]
    found = compare(chain, chain)
    assert (found.same, found.differ) == (["documents", "release"], [])


def test_each_asset_says_what_is_not_the_same() -> None:
    a = [
        record("release", "r1"),
        record(
            "pretrained_64",
            "p1",
            asked={"steps": 30, "optimizer": {"name": "adam"}},
            statistics={"loss": 2.0, "mfu": 0.3},
        ),
        record("documents", "d1", statistics={"documents": 40, "dropped": {"duplicate": 3}, "table": [1]}),
        record("wikipedia_dump", "w"),
    ]
    b = [
        record("release", "r2"),
        record(
            "pretrained_64",
            "p2",
            code_version="2",
            asked={"optimizer": {"name": "lamb"}},
            statistics={"loss": 1.5, "mfu": 0.9},
            libraries={"torch": "2.14.0"},
            git={"commit": "def", "dirty": True},
        ),
        record("documents", "d2", statistics={"documents": 44, "dropped": {"duplicate": 3}}),
        record("wikipedia_dump", "w"),
        record("imported_checkpoint", "i"),
    ]
    found = compare(a, b)
    assert found.same == ["wikipedia_dump"]
    told = {each.asset: each.plain() for each in found.differ}
    assert list(told) == ["documents", "pretrained_64", "release", "imported_checkpoint"]
    assert told["documents"]["numbers"] == {"documents": [40, 44]}
    assert told["pretrained_64"] == {
        "asset": "pretrained_64",
        "versions": ["p1", "p2"],
        "code": ["1", "2"],
        "commits": ["abc", "def with changes"],
        "config": {"steps": [30, "default"], "optimizer.name": ["adam", "lamb"]},
        "libraries": {"torch": ["2.13.0", "2.14.0"]},
        "numbers": {"loss": [2.0, 1.5]},
    }
    assert told["imported_checkpoint"]["versions"] == [None, "i"] and told["release"]["config"] == {}
