"""The answers of an audit, from records made by hand: sums by hand, and what no record tells is unknown."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.attestations.chain import UNKNOWN, Chain, chain_of
from pipeline.audits import checked, origins, overlap, removed, trained, workings
from pipeline.books import BOOKS_SCHEMA
from pipeline.store import Record, Store

NOW, LATER = "2026-01-02T03:04:05.000000+00:00", "2026-01-02T05:04:05.000000+00:00"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def made(store: Store, stage: str, asset: str, content: str = "", **body: Any) -> Record:
    """A published version with its record; `files`: path → table of other files in it."""
    tables: Mapping[str, pa.Table] = body.pop("files", {})
    with store.staging() as staged:
        (staged / "data.txt").write_text(f"{stage} {asset} {content}", encoding="utf-8")
        for name, table in tables.items():
            pq.write_table(table, staged / name)
        version = store.publish(stage, staged)
    known = {
        "recipe": "r",
        "asset": asset,
        "stage": stage,
        "key": f"{asset} {content}",
        "version": version,
        "code_version": "1",
        "config": {},
        "asked": {},
        "inputs": {},
        "statistics": {},
        "validation": {"suite_digest": "5" * 64, "results": []},
        "waivers": [],
        "reused": None,
        "git": {"commit": "c" * 40, "dirty": False},
        "libraries": {"numpy": "2.0"},
        "user": "ann",
        "host": "h",
        "started": NOW,
        "finished": LATER,
    }
    return store.append({**known, **body})


def corpus(store: Store, text: Mapping[str, Any], documents: Mapping[str, Any]) -> Chain:
    """A dump, its text and documents made of it."""
    dump = made(store, "files", "wikipedia_dump")
    read = made(store, "wikipedia_text", "wikipedia_text", statistics=text, inputs={"dump": dump.digest})
    table = made(store, "documents", "documents", statistics=documents, inputs={"wikipedia": read.digest})
    return chain_of(store, table)


TEXT = {"read": 100, "dropped": {"redirect": 12, "empty": 8, "never": 0}, "row_count": 80}
DOCUMENTS = {
    "documents": {"wikipedia": {"train": 60, "held_out": 10}},
    "dropped_by_source": {"wikipedia": {"duplicate": 7, "too_short": 3}},
    "waterfall": {
        "wikipedia": [
            *(["read", 100], ["wikipedia_text: redirect", -12], ["wikipedia_text: empty", -8]),
            *(["documents: duplicate", -7], ["documents: too_short", -3], ["documents", 70]),
        ]
    },
}


def test_accounts_come_to_zero(store: Store) -> None:
    text, documents = removed.accounts(corpus(store, TEXT, DOCUMENTS))
    assert (text["in"], text["removed"], text["out"], text["difference"]) == (100, {"redirect": 12, "empty": 8}, 80, 0)
    assert (documents["in"], documents["out"], documents["lost_in_between"]) == (80, 70, 0)
    assert documents["source"] == "wikipedia" and documents["given_by"] == "wikipedia_text"
    assert [removed.sound(each) for each in (text, documents)] == [True, True]
    assert removed.verdict(documents) == "comes to 0"


def test_an_account_that_is_wrong_says_by_how_much(store: Store) -> None:
    (text, _) = removed.accounts(corpus(store, {**TEXT, "row_count": 77}, DOCUMENTS))
    assert text["difference"] == 3 and text["adds_up"] is False and removed.sound(text) is False
    assert removed.verdict(text) == "DOES NOT ADD UP: +3 pages"


def test_what_gets_lost_between_two_stages_is_seen(store: Store) -> None:
    _, documents = removed.accounts(corpus(store, {**TEXT, "read": 105, "row_count": 85}, DOCUMENTS))
    assert documents["adds_up"] is True and removed.sound(documents) is False
    assert removed.verdict(documents) == "DOES NOT ADD UP: wikipedia_text gave 85, 80 were taken in"


@pytest.mark.parametrize(
    ("without", "says"),
    [
        ("read", "how many were read"),
        ("dropped", "what was removed"),
        ("row_count", "how many were left"),
    ],
)
def test_a_missing_number_is_unknown_and_not_zero(store: Store, without: str, says: str) -> None:
    told = {name: value for name, value in TEXT.items() if name != without}
    (text, documents) = removed.accounts(corpus(store, told, DOCUMENTS))
    assert text["difference"] == text["adds_up"] == removed.sound(text) == UNKNOWN
    assert removed.verdict(text) == f"unknown: no record tells {says}"
    assert (documents["given"] == UNKNOWN) == (without == "row_count")


def test_shards_and_task_data_are_accounted_for(store: Store) -> None:
    documents = made(store, "documents", "documents", statistics={"row_count": 70})
    told = {"documents": {"train": 60, "held_out": 10}, "dropped": {"no tokens": 4}, "documents_in_pools": 66}
    shards = made(store, "pretraining_shards", "shards", statistics=told, inputs={"documents": documents.digest})
    (account,) = removed.accounts(chain_of(store, shards))
    assert account["removed"] == {"no tokens": 4} and removed.sound(account) is True
    task = {"read": {"train": 50, "dev": 10}, "dropped": {"train: in test": 5}, "examples": 55}
    (account,) = removed.accounts(chain_of(store, made(store, "task_data", "task_data_t", statistics=task)))
    assert (account["in"], account["out"]) == (60, 55) and removed.sound(account) is True
    absent = made(store, "task_data", "task_data_u", statistics={"not_run": "no files", "dropped": {}})
    assert removed.accounts(chain_of(store, absent)) == []


def test_a_dump_is_named_by_url_date_and_checksums(store: Store) -> None:
    entry = {"name": "w.xml.bz2", "sha1": "1" * 40, "size_bytes": 9}
    statistics = {"origin": "wikimedia", "url": "https://dumps.example.org/w/20260101", "dump_date": "20260101"}
    dump = made(store, "files", "wikipedia_dump", asked={"from": {"files": [entry]}}, statistics=statistics)
    (file,) = origins.files(chain_of(store, dump))
    assert file["url"] == "https://dumps.example.org/w/20260101/w.xml.bz2"
    assert (file["date"], file["acquired"], file["sha1"]) == ("2026-01-01", "2026-01-02", "1" * 40)
    assert file["sha256"] == UNKNOWN and file["size_bytes"] == 9
    local = {"path": "a.txt", "sha256": "2" * 64, "size_bytes": 3}
    books = made(store, "files", "books_files", asked={"from": {"files": [local]}}, statistics={"origin": "path"})
    (file,) = origins.files(chain_of(store, books))
    assert (file["url"], file["date"], file["sha1"], file["sha256"]) == ("none", "none", "none", "2" * 64)


def shelf(store: Store) -> Record:
    rows: list[dict[str, Any]] = [
        {"path": "a.txt", "title": "A", "author": "Ann", "licence": "CC0-1.0", "documents": 1},
        {"path": "b.txt", "title": "B", "licence": None, "documents": 1},
        {"path": "c.bin", "licence": "CC0-1.0", "documents": 0, "dropped": "unknown format"},
    ]
    empty = {"format": "txt", "bytes": 1, "mojibake_repaired": False, "pretokenised": False, "lowercased": False}
    table = pa.Table.from_pylist([{**empty, "characters": 1, **row} for row in rows], schema=BOOKS_SCHEMA)
    return made(store, "books_text", "books_text", files={"books.parquet": table})


def test_books_are_listed_with_their_licences(store: Store) -> None:
    (found,) = origins.books(store, chain_of(store, shelf(store)))
    assert found["licences"] == {"CC0-1.0": 1, UNKNOWN: 1}, "a dropped file is no book"
    assert [(book["path"], book["author"], book["dropped"]) for book in found["books"]] == [
        ("a.txt", "Ann", None),
        ("b.txt", None, None),
        ("c.bin", None, "unknown format"),
    ]


def test_books_of_an_altered_or_lost_list_are_unknown(store: Store) -> None:
    record = shelf(store)
    file = store.content(record.stage, record.version) / "books.parquet"
    file.chmod(0o644)
    data = file.read_bytes()
    file.write_bytes(data.replace(b"CC0-1.0", b"CC1-1.0"))
    (found,) = origins.books(store, chain_of(store, record))
    assert found["licences"] == UNKNOWN and found["books"] == [] and "not what its digest says" in found["why"]
    file.unlink()
    (found,) = origins.books(store, chain_of(store, record))
    assert found["licences"] == UNKNOWN and "not in the store" in found["why"]


def test_checks_tell_thresholds_results_and_waivers(store: Store) -> None:
    def result(name: str, passed: bool, observed: str) -> dict[str, Any]:
        return {"name": name, "passed": passed, "severity": "critical", "observed": observed, "expected": "≥ 2"}

    results = [
        result("a", True, "3"),
        result("b", False, "1"),
        result("c", False, "0"),
        result("d", True, "does not apply"),
    ]
    waiver = {"check": "b", "reason": "small on purpose", "user": "ann", "time": NOW}
    record = made(
        store, "documents", "documents", validation={"suite_digest": "5" * 64, "results": results}, waivers=[waiver]
    )
    (found,) = checked.checked(chain_of(store, record))
    assert [(each["check"], each["result"], each["threshold"]) for each in found["checks"]] == [
        ("a", "passed", "≥ 2"),
        ("b", "waived", "≥ 2"),
        ("c", "failed", "≥ 2"),
        ("d", "not asked", "≥ 2"),
    ]
    assert found["waivers"] == [
        {
            "check": "b",
            "reason": "small on purpose",
            "by": "ann",
            "time": NOW,
            "recorded_in": f"records/{record.digest}.json",
        }
    ]


def test_what_is_reused_was_made_with_the_code_of_then(store: Store) -> None:
    first = made(store, "documents", "documents", git={"commit": "a" * 40, "dirty": True}, libraries={"polars": "1.0"})
    again = made(store, "documents", "documents", reused=first.digest, git={"commit": "b" * 40, "dirty": False})
    (found,) = workings.workings(chain_of(store, again))
    assert (found["commit"], found["changed_since_commit"], found["libraries"]) == ("a" * 40, True, {"polars": "1.0"})
    outside = made(store, "documents", "documents", "other", git={"commit": None, "dirty": None}, libraries={})
    (found,) = workings.workings(chain_of(store, outside))
    assert found["commit"] == found["changed_since_commit"] == found["libraries"] == UNKNOWN
    lost = made(store, "documents", "documents", "lost", reused="f" * 64)
    (found,) = workings.workings(chain_of(store, lost))
    assert found["commit"] == found["started"] == UNKNOWN, "who made it is not known, not who reused it"


def test_training_tells_its_timeline_or_that_it_is_unknown(store: Store) -> None:
    timeline = {"starts": [{"step": 0, "resumed": False}, {"step": 4, "resumed": True}], "counts": {"spikes": 0}}
    told = {"steps": 9, "resume_count": 1, "skipped_steps": 2, "mfu": None, "timeline": timeline}
    (found,) = trained.trained(chain_of(store, made(store, "pretrained", "pretrained_32", statistics=told)))
    assert (found["steps"], found["resume_count"], found["skipped_steps"], found["hours"]) == (9, 1, 2, 2.0)
    assert found["timeline"] == timeline and found["device"] == UNKNOWN
    (old,) = trained.trained(chain_of(store, made(store, "pretrained", "pretrained_64", statistics={"steps": 9})))
    assert old["timeline"] == old["skipped_steps"] == UNKNOWN


def test_contamination_is_told_with_the_scores_of_the_report(store: Store) -> None:
    counts = {"texts": 50, "measurable": 40, "touched": 3, "share": 0.075}
    looked = {"ngram_words": 13, "parts_by_task": {"t": {"test": counts, "dev": {**counts, "touched": 0}}}}
    found = made(store, "contamination", "contamination", statistics=looked)
    row = {"task": "t", "part": "dev", "metric": "accuracy", "all": 90.0, "untouched": 90.0, "alone": None}
    report = made(
        store,
        "benchmark_report",
        "benchmark_report",
        statistics={"with_and_without": [row]},
        inputs={"contamination": found.digest},
    )
    test, dev = overlap.overlap(chain_of(store, report))
    assert (test["touched"], test["measurable"], test["all"], test["metric"]) == (3, 40, UNKNOWN, UNKNOWN)
    assert (dev["touched"], dev["all"], dev["alone"]) == (0, 90.0, None)
    assert overlap.overlap(chain_of(store, made(store, "contamination", "contamination", "old"))) == []
