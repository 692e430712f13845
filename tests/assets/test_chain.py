"""The whole chain through Dagster, as a user runs it: once whole, then edits, crashes, lost databases and bad input.

One undisturbed run of recipe `tiny` (tests/tiny.py) is made for all tests of this module.
"""

import bz2
import hashlib
import json
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pyarrow.parquet as pq
import pytest

from model.feeding.order import mix, rows_of
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import shard_files
from tests.assets.bertcli import ASSETS, World, dagster_runs, kill_tree, tree, when
from tests.conftest import ROOT


@pytest.fixture
def copy(made: World, tmp_path: Path) -> World:
    """A copy of the made world, to break."""
    return made.copy(tmp_path / "copy")


# ── undisturbed ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_asset_is_made_and_a_second_run_starts_nothing(made: World) -> None:
    assert made.states() == dict.fromkeys(ASSETS, "up to date")
    before, versions = dagster_runs(made.home), made.versions()
    output = made.bert("run", "tiny")
    assert "17 of 17 assets are up to date" in output and "▸" not in output
    assert dagster_runs(made.home) == before, "no run was started"
    assert made.versions() == versions


def test_the_audit_goes_down_to_the_bytes_of_the_dump(made: World) -> None:
    dump = made.folder / "text" / "tinywiki.xml.bz2"
    chain = {step["asset"]: step for step in made.json("audit", "tiny/release")["chain"]}
    (file,) = chain["wikipedia_dump"]["files"]
    assert file["path"] == "tinywiki.xml.bz2"
    assert file["size_bytes"] == dump.stat().st_size
    assert file["sha256"] == hashlib.sha256(dump.read_bytes()).hexdigest()
    assert chain["documents"]["asked"] == {"held_out": 0.2}
    assert set(chain) == set(ASSETS[:11])
    assert all(step["validation"]["results"] for step in chain.values())
    text = made.bert("audit", "tiny/release")
    assert file["sha256"] in text and "tinywiki.xml.bz2" in text


def test_the_audit_needs_no_dagster_database(copy: World) -> None:
    before = copy.json("audit", "tiny/benchmark_report")
    shutil.rmtree(copy.home / "dagster")
    assert copy.json("audit", "tiny/benchmark_report") == before


def test_an_audit_says_where_a_document_is_and_when_it_was_seen(made: World) -> None:
    store = made.store
    records = {name: store.pointer("tiny", name) for name in ("documents", "pretraining_shards_32", "pretrained_32")}
    folders = {name: store.folder(record.stage, record.version) for name, record in records.items() if record}
    rows = pl.read_parquet(folders["documents"] / "part-*.parquet")
    trained, held = (rows.filter(pl.col("split") == split)["doc_id"][0] for split in ("train", "held_out"))
    found = made.json("audit", "tiny/release", "--document", trained, "--document", held, "--document", "tinywiki:999")
    first, second, third = found["documents"]
    assert [each["is"] for each in found["documents"]] == ["train", "held_out", "absent"]
    assert first["title"] == rows.filter(pl.col("doc_id") == trained)["title"][0]
    assert [each["asset"] for each in first["trainings"]] == ["pretrained_64", "pretrained_32"]
    assert all(each["rows"] == [] for each in [*second["trainings"], *third["trainings"]])
    assert {"tiny/release", "tiny/documents", "tiny/finetuned_places"} <= set(first["affected"])
    assert "tiny/wikipedia_text" not in first["affected"] and "affected" not in third
    # forwards: what each step of the phase took (30 steps of 8 rows)
    reader = ShardReader(folders["pretraining_shards_32"] / "train")
    taken = rows_of(np.arange(30 * 8), reader.sizes, mix(12345, 0)) if len(reader) else np.empty(0)
    files = shard_files(folders["pretraining_shards_32"] / "train")
    documents = [each for path in files for each in pq.read_table(path)["documents"].to_pylist()]
    steps = sorted({place // 8 for place, row in enumerate(taken.tolist()) if trained in documents[row]})
    (phase,) = (each for each in first["trainings"] if each["asset"] == "pretrained_32")
    assert sorted({step for row in phase["rows"] for step in row["steps"]}) == steps
    assert len(phase["rows"]) == sum(trained in of_row for of_row in documents) > 0
    text = made.bert("audit", "tiny/release", "--document", trained)
    assert f"■ {trained}: in the training text" in text and f"{trained},WHY IT IS WITHDRAWN" in text
    assert "was not made from documents" in made.bert("audit", "tiny/wikipedia_dump", "--document", trained, code=1)


def test_reading_commands_answer(made: World, tmp_path: Path) -> None:
    assert made.json("verify")["problems"] == []
    assert "tiny" in made.bert("status")
    assert made.json("diff", "tiny/release", "tiny/release~0")["differ"] == []
    assert "has 1 records of it" in made.bert("diff", "tiny/release", "tiny/release~1", code=1)
    masks = made.json("fill-mask", "tiny", "The old [MASK] crosses the [MASK].")["masks"]
    assert [len(mask) for mask in masks] == [5, 5]
    assert "[CLS] and the pooler mean nothing" in made.bert("fill-mask", "tiny", "The old [MASK].")
    assert made.json("report", "tiny")
    assert "Places" in made.bert("report", "tiny")
    made.bert("export", "tiny/release", str(tmp_path / "model"))
    assert made.json("verify", str(tmp_path / "model"))["problems"] == []
    (tmp_path / "model" / "vocab.txt").write_text("changed", encoding="utf-8")
    (problem,) = made.json("verify", str(tmp_path / "model"), code=1)["problems"]
    assert "vocab.txt was changed" in problem["what"]
    assert made.bert("export", "tiny/release", str(tmp_path / "model"), code=1).count("exists already") == 1
    assert all(check["state"] != "error" for check in made.json("doctor"))


def test_a_release_goes_out_with_an_onnx_file(made: World, tmp_path: Path) -> None:
    for name in ("onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=f"needs {name} (requirements-dev.lock)")
    assert "onnxruntime gives torch's numbers" in made.bert("export", "tiny/release", str(tmp_path / "out"), "--onnx")
    assert (tmp_path / "out" / "model.onnx").stat().st_size > 10_000
    assert made.json("verify", str(tmp_path / "out"))["problems"] == []
    refused = made.bert("export", "tiny/documents", str(tmp_path / "no"), "--onnx", code=1)
    assert "--onnx is for releases" in refused and not (tmp_path / "no").exists()


def test_shards_go_out_as_tfrecord_files_and_come_back(made: World, tmp_path: Path) -> None:
    out, back = tmp_path / "tfrecords", tmp_path / "back"
    made.bert("export", "tiny/pretraining_shards_32", str(out), "--tfrecord")
    made.bert("export", "tiny/pretraining_shards_32", str(tmp_path / "shards"))
    made.bert("export", "tiny/wordpiece_vocab", str(tmp_path / "vocabulary"))
    assert made.json("verify", str(out))["problems"] == []
    vocabulary = str(tmp_path / "vocabulary" / "vocab.txt")
    done = made.json("import-tfrecord", str(out / "train"), str(back), "--vocabulary", vocabulary)
    columns = ["input_ids", "token_type_start", "masked_lm_positions", "masked_lm_ids", "next_sentence_label"]
    ours = sorted((tmp_path / "shards" / "train").glob("*.parquet"))
    assert [file["file"] for file in done["files"]] == [f"{path.stem}.tfrecord" for path in ours]
    for path, file in zip(ours, done["files"], strict=True):
        expected = pq.read_table(path, columns=columns)
        assert expected.equals(pq.read_table(back / file["shard"], columns=columns))
        assert file["rows"] == len(expected) > 0

    first = out / "train" / done["files"][0]["file"]
    first.write_bytes(first.read_bytes()[:-1])
    (problem,) = made.json("verify", str(out), code=1)["problems"]
    assert f"{first.name} was changed" in problem["what"]
    output = made.bert("import-tfrecord", str(first), str(tmp_path / "no"), "--vocabulary", vocabulary, code=1)
    assert "the file ends within" in output and "Traceback" not in output
    refused = made.bert("export", "tiny/release", str(tmp_path / "no"), "--tfrecord", code=1)
    assert "--tfrecord is for pretraining shards" in refused
    assert not (tmp_path / "no").exists()


# ── edits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def stale(world: World) -> set[str]:
    """Assets that the UI shows as unsynced, with freshly loaded definitions."""
    query = "{ assetNodes { assetKey { path } staleStatus } }"
    environment = {**world.environment, "DAGSTER_HOME": str(world.home / "dagster"), "DAGSTER_DISABLE_TELEMETRY": "1"}
    command = [str(Path(sys.executable).with_name("dagster-graphql")), "-w", str(ROOT / "workspace.yaml"), "-t", query]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    answer, _ = json.JSONDecoder().raw_decode(done.stdout[done.stdout.index("{") :])  # log lines may follow
    nodes = answer["data"]["assetNodes"]
    return {
        n["assetKey"]["path"][1] for n in nodes if n["assetKey"]["path"][0] == "tiny" and n["staleStatus"] == "STALE"
    }


def test_an_edit_touches_exactly_its_assets_and_the_revert_costs_nothing(copy: World) -> None:
    assert stale(copy) == set()
    before = copy.versions()
    copy.edit("dupe_factor: 2", "dupe_factor: 3")
    assert stale(copy) == {"pretraining_shards_32", "pretraining_shards_64"}
    states = copy.states()
    assert {a for a, s in states.items() if s == "will run"} == {"pretraining_shards_32", "pretraining_shards_64"}
    assert {a for a, s in states.items() if s == "may run"} == {
        "pretrained_32",
        "pretrained_64",
        "release",
        "finetuned_places",
        "finetuned_cola",
        "benchmark_report",
    }
    assert "dupe_factor 2 → 3" in copy.bert("run", "tiny", "--dry-run")
    shards = copy.json("audit", "tiny/pretraining_shards_32")["chain"][0]["statistics"]
    estimated = copy.json("run", "tiny/pretrained_32", "--dry-run")["training"]["phases"][0]
    assert estimated["padding_from"] == "shards" and estimated["padding_share"] == shards["padding_fraction"]
    copy.bert("run", "tiny/pretraining_shards_64")
    assert copy.versions()["pretraining_shards_64"] != before["pretraining_shards_64"]
    copy.edit("dupe_factor: 3", "dupe_factor: 2")
    counted = len(dagster_runs(copy.home))
    output = copy.bert("run", "tiny")
    assert "17 of 17 assets are up to date" in output
    assert copy.versions() == before
    assert len(dagster_runs(copy.home)) == counted, "settled without a step"
    assert stale(copy) == set()


def test_a_child_recipe_reuses_what_it_shares(copy: World) -> None:
    copy.bert("run", "tiny_child/wordpiece_vocab")
    child, parent = copy.versions("tiny_child"), copy.versions()
    for asset in ("wikipedia_text", "documents", "wordpiece_vocab"):
        assert child[asset] == parent[asset]
    assert len(dagster_runs(copy.home)) == 1
    chain = {step["asset"]: step for step in copy.json("audit", "tiny_child/wordpiece_vocab")["chain"]}
    assert {step["recipe"] for step in chain.values()} == {"tiny_child"}


def test_a_moved_dump_is_found_at_its_new_place(copy: World) -> None:
    elsewhere = copy.folder / "disk2"
    elsewhere.mkdir()
    (copy.folder / "text" / "tinywiki.xml.bz2").rename(elsewhere / "tinywiki.xml.bz2")
    assert "tinywiki.xml.bz2" in copy.bert("status", "tiny", code=1)
    assert "tinywiki.xml.bz2" in copy.bert("run", "tiny", "--dry-run", code=1)
    copy.edit("../text/tinywiki.xml.bz2", "../disk2/tinywiki.xml.bz2")
    assert copy.states() == dict.fromkeys(ASSETS, "up to date")


def test_a_lost_dagster_database_is_filled_again(copy: World) -> None:
    shutil.rmtree(copy.home / "dagster")
    assert copy.states() == dict.fromkeys(ASSETS, "up to date")
    assert "17 of 17 assets are up to date" in copy.bert("run", "tiny")
    assert dagster_runs(copy.home) == {}
    assert stale(copy) == set()


def test_force_gives_the_same_version_of_a_deterministic_stage(copy: World) -> None:
    before = copy.versions()
    copy.bert("run", "tiny/documents", "--force")
    assert copy.versions() == before
    record = copy.store.pointer("tiny", "documents")
    assert record is not None and record.body["forced"]
    (check,) = [r for r in record.body["validation"]["results"] if r["name"] == "reproducible"]
    assert check["passed"]
    # what was made of it was recorded anew, as reused; whose work that was is a courtesy that may get lost
    copy.bert("run", "tiny/contamination")
    after = copy.store.pointer("tiny", "contamination")
    assert after is not None and after.body["reused"]
    (copy.home / "records" / f"{after.body['reused']}.json").unlink()
    shutil.rmtree(copy.home / "dagster")
    assert "up to date" in copy.bert("run", "tiny/contamination")


def test_force_of_a_recipe_runs_every_asset(copy: World) -> None:
    before = copy.versions()
    assert "reused" not in copy.bert("run", "tiny/pretraining_shards_32", "--force")
    copy.bert("run", "tiny", "--force")
    assert copy.versions() == before
    records = {name: copy.store.pointer("tiny", name) for name in ASSETS}
    assert {name for name, record in records.items() if record and record.body["forced"]} == set(ASSETS)


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_killed_during_every_stage_and_run_again_everything_comes_out_equal(made: World, tmp_path: Path) -> None:
    """kill -9 of the whole tree as soon as a stage has started, one stage after the other, then the same command."""
    world = World.make(tmp_path / "world")
    for number, asset in enumerate(ASSETS):
        if world.store.pointer("tiny", asset) is not None:
            continue  # it ran beside one that was waited for
        process = world.start("run", "tiny")

        def kill(pid: int = process.pid, number: int = number) -> None:
            time.sleep(0.15 * (number % 4))  # another moment of each stage
            kill_tree(pid)

        when(process, lambda line, asset=asset: line.startswith(f"▸ {asset}"), kill)
        assert world.store.verify() == []
    assert "tiny is up to date" in world.bert("run", "tiny")
    assert world.versions() == made.versions()
    assert world.json("verify")["problems"] == []
    assert not list((world.home / "staging").iterdir())
    assert set(dagster_runs(world.home).values()) <= {"SUCCESS", "FAILURE"}, "no run stays STARTED"


def test_an_orphaned_step_ends_itself_and_the_dead_run_is_ended_by_the_next(copy: World) -> None:
    """kill -9 of `bert run` and of the run's process, but not of the step under them."""
    world = copy
    world.edit("steps: 30", "steps: 100000")
    process = world.start("run", "tiny/pretrained_32")
    left: list[int] = []

    def kill_upper() -> None:
        family = tree(process.pid)
        upper = [p for p in family if p.pid == process.pid or "assets.run" in p.cmdline()]
        left.extend(p.pid for p in family if p not in upper)
        for p in upper:
            p.kill()

    when(process, lambda line: line.startswith("pretrained_32:") and "loss" in line, kill_upper)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and [
        p for p in left if psutil.pid_exists(p) and psutil.Process(p).status() != "zombie"
    ]:
        time.sleep(0.5)
    assert not [p for p in left if psutil.pid_exists(p) and psutil.Process(p).status() != "zombie"]
    world.edit("steps: 100000", "steps: 30")
    assert "ended run" in world.bert("run", "tiny/wordpiece_vocab")
    assert sorted(dagster_runs(world.home).values()) == ["FAILURE", "SUCCESS"]


def test_a_step_that_starts_as_its_run_is_killed_holds_nobody_up(tmp_path: Path) -> None:
    """kill -9 of `bert run`, of the run and of its fork server at the moment when a step's process appears: the step must
    not take whoever inherits it for its run."""
    world = World.make(tmp_path / "world")
    process = world.start("run", "tiny/books_files")
    deadline = time.monotonic() + 120
    steps: list[psutil.Process] = []
    while not steps and time.monotonic() < deadline:
        servers = [p for p in tree(process.pid) if "forkserver" in " ".join(_words(p))]
        steps = [p for p in servers if any(q.pid == p.ppid() for q in servers)]
    assert steps, "no step appeared"
    for p in tree(process.pid):
        if p not in steps:
            with suppress(psutil.NoSuchProcess):
                p.kill()
    process.wait()
    assert "tiny/books_files is up to date" in world.bert("run", "tiny/books_files")
    assert set(dagster_runs(world.home).values()) <= {"FAILURE", "SUCCESS"}


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []


def test_a_killed_run_process_is_named(tmp_path: Path) -> None:
    world = World.make(tmp_path / "world")
    process = world.start("run", "tiny/wordpiece_vocab")

    def kill() -> None:
        for p in tree(process.pid):
            if "assets.run" in _words(p):
                p.kill()

    output = when(process, lambda line: line.startswith("▸ "), kill)
    assert process.returncode == 1
    assert "the run's process was killed by signal 9 (SIGKILL)" in output
    assert "Next: bert status tiny/wordpiece_vocab" in output


def test_runs_of_two_recipes_may_begin_in_a_new_home_at_once(tmp_path: Path) -> None:
    for number in range(3):
        world = World.make(tmp_path / f"world{number}")
        processes = [world.start("run", f"{recipe}/books_files") for recipe in ("tiny", "tiny_child")]
        outputs = [process.communicate(timeout=300)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)


# ── bad input ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_truncated_dump_is_named_and_nothing_is_published(tmp_path: Path) -> None:
    world = World.make(tmp_path / "world")
    dump = world.folder / "text" / "tinywiki.xml.bz2"
    dump.write_bytes(dump.read_bytes()[:-200])
    output = world.bert("run", "tiny/wikipedia_text", code=1)
    assert "tinywiki.xml.bz2" in output and "→" in output and "Traceback" not in output
    assert world.versions()["wikipedia_text"] is None
    dump.write_bytes(bz2.compress(bz2.decompress(bz2.compress(b"")) + b"<mediawiki></mediawiki>"))
    output = world.bert("run", "tiny/wikipedia_text", code=1)
    assert "wikipedia_text" in output and "Traceback" not in output


def test_a_recipe_with_a_typo_is_refused_by_file_and_line_and_takes_no_other_away(made: World, copy: World) -> None:
    copy.edit("dupe_factor: 2", "dupe_facter: 2")
    output = copy.bert("run", "tiny", code=1)
    assert "tiny.yaml" in output and "dupe_facter" in output and "dupe_factor" in output and "Traceback" not in output
    (copy.folder / "recipes" / "tiny_child.yaml").write_text("name: tiny_child\nextends: other\n", encoding="utf-8")
    (copy.folder / "recipes" / "other.yaml").write_text(
        (made.folder / "recipes" / "tiny.yaml").read_text(encoding="utf-8").replace("name: tiny", "name: other"),
        encoding="utf-8",
    )
    overview = copy.json("status")
    assert {r["recipe"] for r in overview["recipes"]} == {"other", "tiny_child"}
    assert [e["recipe"] for e in overview["errors"]] == ["tiny"]


def test_a_full_disk_is_one_message_that_names_the_way_out(tmp_path: Path) -> None:
    import os

    world = World.make(tmp_path / "world")
    disk = world.folder / "home"
    disk.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=60k", "tmpfs", str(disk)], capture_output=True
        ).returncode
    )
    if not mounted:
        pytest.skip("mounting a small disk needs root and a kernel that allows it")
    try:
        settings = world.folder / "settings.yaml"
        text = settings.read_text(encoding="utf-8")
        settings.write_text(text + f"dagster_home: {world.folder / 'dagster'}\n", encoding="utf-8")
        output = world.bert("run", "tiny/pretrained_32", code=1)
        assert "No space left on device" in output and "free space" in output, output
        assert "Traceback" not in output
        assert world.json("verify")["problems"] == []
        # what a stage will need is known before it begins: these two are refused instead of begun
        for size, told in (("300k", "documents need about"), ("1m", "two checkpoints of this model take")):
            subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)
            output = world.bert("run", "tiny/pretrained_32", code=1)
            assert told in output and "Free space" in output, output
            assert "Traceback" not in output
            assert world.json("verify")["problems"] == []
        subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
        world.bert("run", "tiny/pretrained_32")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        states = world.states()
        assert states["documents"] == states["pretrained_32"] == "up to date"
        assert world.json("verify")["problems"] == []
        output = world.bert("run", "tiny", code=1)
        assert "ead-only" in output and "BERT_HOME" in output and "Traceback" not in output
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
