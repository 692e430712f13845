"""A task that fails stops no other: the report is made, names it and why, and the command says that something failed."""

from pathlib import Path
from typing import Any

import pytest

from tests.assets.bertcli import World

TASKS = """\
    broken: {title: Broken, files: {train: {path: ../text/broken.csv}}}
    parquet: {title: No Parquet, files: {train: {path: ../text/no.parquet}}}
    nothing: {title: Nothing, files: {train: {path: ../text/nothing}}}
    one: {title: One label, files: {train: {path: ../text/one.csv}}}
    wild: {title: Wild, files: {train: {path: ../text/places.csv}}}
  overrides:
    wild: {learning_rate: 1.0e+30, batch_size: 8, epochs: 2}
"""
CHILDREN = {
    *("task_data_broken", "task_data_one", "finetuned_broken", "finetuned_one", "finetuned_wild"),
    *("task_data_parquet", "finetuned_parquet"),
    *("contamination", "benchmark_report"),
}


def named(report: Any) -> dict[str, tuple[bool, str]]:
    """Task → whether it failed, and why, of those without scores."""
    return {task["task"]: (task["failed"], task["why"]) for task in report["tasks"] if not task["ran"]}


@pytest.fixture(scope="module")
def world(made: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The made world with four tasks more, all of which fail, and one whose folder is empty."""
    world = made.copy(tmp_path_factory.mktemp("failed") / "world")
    (world.folder / "text" / "broken.csv").write_text("body,team\nThe river.,a\nThe rock.,b\n", encoding="utf-8")
    (world.folder / "text" / "no.parquet").write_text("hello", encoding="utf-8")
    (world.folder / "text" / "nothing").mkdir()
    one = "".join(f"The river {number}.,a\n" for number in range(60))
    (world.folder / "text" / "one.csv").write_text(f"text,label\n{one}", encoding="utf-8")
    world.edit("tasks: [places, cola]", "tasks: [places, cola, broken, parquet, nothing, one, wild]")
    world.edit("test_share: 0.2}\n", f"test_share: 0.2}}\n{TASKS}")
    return world


def test_the_report_is_made_without_what_failed_and_names_it(world: World, tmp_path: Path) -> None:
    output = world.bert("run", "tiny", code=1)
    assert "Traceback" not in output
    for asset, said in (
        ("task_data_broken", "broken.csv has no column 'text'; it has 'body', 'team'"),
        ("task_data_parquet", "can't be read as Parquet"),
        ("task_data_one", "a classifier needs two labels at least"),
        ("finetuned_wild", "had a gradient norm or loss that is not finite"),
    ):
        assert f"✗ {asset}\n" in output and f"✓ {asset}\n" not in output
        assert said in output
    assert str(world.folder / "text" / "broken.csv") in output, "a person gets the whole path"
    assert "Lower learning_rate, which is 1e+30" in output
    assert "✓ benchmark_report" in output and "✓ finetuned_broken" in output
    assert "bert report tiny" in output
    assert "blocked by limit" not in output, "who waits for the accelerator is told in our words"
    assert "Left: " in output and "task_data_broken (failed)" in output and "benchmark_report (failed)" not in output

    report = world.json("report", "tiny")
    found = named(report)
    assert set(found) == {"cola", "broken", "parquet", "nothing", "one", "wild"}
    assert found["nothing"] == (False, "its files do not exist")
    assert found["cola"] == (False, "the recipe names no files for it")
    failed, why = found["broken"]
    assert failed and why == "broken.csv has no column 'text'; it has 'body', 'team'"
    assert found["one"][0] and "two labels at least" in found["one"][1]
    assert found["wild"][0] and "not finite" in found["wild"][1]
    assert [task["task"] for task in report["tasks"] if task["ran"]] == ["places"]
    text = world.bert("report", "tiny")
    assert "Broken failed: broken.csv has no column 'text'" in text
    assert "2 tasks were not run" in text
    assert next(line.split("|")[2].strip() for line in text.splitlines() if line.startswith("| Wild |")) == "failed"
    for asset in ("task_data_broken", "finetuned_wild"):
        record = world.store.pointer("tiny", asset)
        assert record is not None
        content = world.store.content(record.stage, record.version) / "not_run.json"
        assert str(world.folder) not in content.read_text(encoding="utf-8"), "content names no places"


def test_status_says_why_it_failed(world: World) -> None:
    rows = {row["asset"]: row for row in world.json("status", "tiny")["assets"]}
    failed = {name: row["failure"]["what"] for name, row in rows.items() if row["failure"]}
    assert set(failed) == {"task_data_broken", "task_data_parquet", "task_data_one", "finetuned_wild"}
    assert {name for name, row in rows.items() if row["state"] != "up to date"} == CHILDREN
    text = world.bert("status", "tiny").splitlines()
    (place,) = [number for number, line in enumerate(text) if " task_data_broken " in line]
    assert "✗" in text[place] and " failed " in text[place]
    assert " ago: " in text[place + 1] and "has no column 'text'" in text[place + 1]
    assert "→ Name one of these columns" in text[place + 2]


def test_what_is_mended_is_made_and_the_report_with_it(world: World) -> None:
    (world.folder / "text" / "broken.csv").write_text(
        (world.folder / "text" / "places.csv").read_text(encoding="utf-8"), encoding="utf-8"
    )
    world.edit("tasks: [places, cola, broken, parquet, nothing, one, wild]", "tasks: [places, cola, broken]")
    world.edit("  overrides:\n    wild: {learning_rate: 1.0e+30, batch_size: 8, epochs: 2}\n", "")
    for line in TASKS.splitlines()[1:5]:
        world.edit(f"{line}\n", "")
    assert "tiny is up to date" in world.bert("run", "tiny")
    assert set(named(world.json("report", "tiny"))) == {"cola"}
    assert not any(row["failure"] for row in world.json("status", "tiny")["assets"])
    assert "failed" not in world.bert("status", "tiny")
