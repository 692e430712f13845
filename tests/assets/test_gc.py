"""`bert gc` and `bert restore` as commands, and assets whose content went, through Dagster."""

import json
import subprocess
import sys
from pathlib import Path

from pipeline.store import Record
from tests.assets.bertcli import ASSETS, World, recorded
from tests.conftest import ROOT

NONE_KEPT = "retention: {history: 0, shards_days: 0, grace_days: 0}\n"


def hand_made(folder: Path, retention: str) -> World:
    """A world whose store holds two generations of a recipe that has no YAML."""
    world = World.make(folder)
    settings = world.folder / "settings.yaml"
    settings.write_text(settings.read_text(encoding="utf-8") + retention, encoding="utf-8")
    for mark in ("old", "new"):
        texts = added(world, "documents", "documents", mark, {})
        added(world, "wordpiece_vocab", "wordpiece_vocab", mark, {"documents": texts.digest})
    return world


def added(world: World, asset: str, stage: str, mark: str, inputs: dict[str, str]) -> Record:
    with world.store.staging() as staged:
        (staged / "file.txt").write_text(f"{asset} {mark}", encoding="utf-8")
        version = world.store.publish(stage, staged)
    return recorded(world.store, "gone", asset, stage, version, inputs)


def test_the_commands_say_what_goes_and_bring_it_back(tmp_path: Path) -> None:
    world = hand_made(tmp_path / "world", "retention: {history: 0}\n")
    (old,) = [world.store.record(d) for d in world.store.history("gone", "wordpiece_vocab")[1:]]
    found = world.json("gc", "--dry-run")
    assert {(each["stage"], each["assets"][0]) for each in found["goes"]} == {
        ("documents", "gone/documents"),
        ("wordpiece_vocab", "gone/wordpiece_vocab"),
    }
    assert found["goes_bytes"] == len("documents old") + len("wordpiece_vocab old")
    assert found["stays"] == [{"why": "assets have it now", "versions": 2, "size_bytes": found["goes_bytes"]}]
    text = world.bert("gc", "--dry-run")
    assert "2 version(s), 32 bytes, would go into the trash" in text and "Nothing was touched" in text
    assert not (world.home / "trash").exists()

    audit = world.json("audit", old.digest)
    assert "2 version(s), 32 bytes, went into the trash" in world.bert("gc")
    removed = world.json("audit", old.digest)
    assert [step["files"] for step in removed["chain"]] == [step["files"] for step in audit["chain"]]
    assert "newer versions took its place" in removed["chain"][0]["removed"]["reason"]
    assert "content removed on" in world.bert("audit", old.digest)
    assert world.json("verify")["problems"] == []
    assert "2 version(s), 32 bytes" in world.bert("doctor", code=None)
    assert world.json("gc")["trash_bytes"] == 32

    assert "is there again, whole" in world.bert("gc", "--restore", old.version[:12])
    assert world.store.intact("wordpiece_vocab", old.version)
    assert "nothing in the trash begins with" in world.bert("gc", "--restore", old.version[:12], code=1)
    assert "don't go together" in world.bert("gc", "--restore", "x", "--dry-run", code=1)

    file = tmp_path / "audit.json"
    file.write_text(json.dumps(audit), encoding="utf-8")
    (world.home / "records" / f"{old.digest}.json").unlink()
    assert world.json("gc", "--dry-run")["missing_records"] == [], "one that nothing names"
    assert "1 of 2 records were missing" in world.bert("restore", str(file))
    assert world.store.record(old.digest) == old
    file.write_text(json.dumps(audit).replace('"user": "u"', '"user": "v"', 1), encoding="utf-8")
    assert "was changed" in world.json("restore", str(file), code=1)["error"]


def test_a_lost_record_and_a_broken_champion_stop_it_with_the_way_out(tmp_path: Path) -> None:
    world = hand_made(tmp_path / "world", "retention: {history: 0}\n")
    documents = world.store.pointer("gone", "documents")
    assert documents is not None
    audit = tmp_path / "audit.json"
    audit.write_text(json.dumps(world.json("audit", "gone/wordpiece_vocab")), encoding="utf-8")
    (world.home / "records" / f"{documents.digest}.json").unlink()
    output = world.bert("gc", code=1)
    assert documents.digest[:12] in output and "bert restore FILE" in output
    assert documents.digest[:12] in world.bert("gc", "--dry-run", code=1)
    world.bert("restore", str(audit))
    champion = world.home / "assets" / "gone" / "champion.json"
    champion.write_text("{", encoding="utf-8")
    assert "champion.json is damaged" in world.bert("gc", code=1)
    champion.unlink()
    assert len(world.json("gc")["goes"]) == 2


def materialize(world: World, *assets: str) -> None:
    """In a run that nobody has tagged, as Dagster's UI starts one."""
    code = (
        "import sys, dagster as dg\n"
        "from assets.run import job_of\n"
        "with dg.DagsterInstance.get() as instance:\n"
        "    keys = [dg.AssetKey(['tiny', name]) for name in sys.argv[1:]]\n"
        "    done = job_of('tiny').execute_in_process(instance=instance, asset_selection=keys)\n"
        "    assert done.success\n"
    )
    environment = {**world.environment, "DAGSTER_HOME": str(world.home / "dagster")}
    done = subprocess.run(
        [sys.executable, "-c", code, *assets], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_shards_of_finished_trainings_go_and_come_back_when_they_are_needed(made: World, tmp_path: Path) -> None:
    world = made.copy(tmp_path / "copy")
    settings = world.folder / "settings.yaml"
    settings.write_text(settings.read_text(encoding="utf-8") + NONE_KEPT, encoding="utf-8")
    before = world.versions()
    shards = ["pretraining_shards_32", "pretraining_shards_64"]
    settled = {name: "cleared" if name in shards else "up to date" for name in ASSETS}

    went = world.json("gc")
    assert sorted(each["assets"][0] for each in went["goes"]) == [f"tiny/{name}" for name in shards]
    assert world.json("gc")["removed_for_good_bytes"] == went["goes_bytes"] > 0
    assert world.states() == settled and world.versions() == before
    assert "17 of 17 assets are up to date" in world.bert("run", "tiny")
    assert world.states() == settled and world.json("verify")["problems"] == []
    chain = {step["asset"]: step for step in world.json("audit", "tiny/release")["chain"]}
    assert chain[shards[0]]["files"] and chain[shards[0]]["removed"]["made_again_when_needed"]

    materialize(world, "wordpiece_vocab", *shards, "pretrained_32")
    assert world.states() == settled, "with others it is settled as it is"
    materialize(world, shards[1])
    assert world.states() == {**settled, shards[1]: "up to date"}, "alone it is asked for"
    output = world.bert("run", f"tiny/{shards[0]}")
    assert "it is asked for" in output and f"✓ {shards[0]}" in output
    assert world.states() == dict.fromkeys(ASSETS, "up to date") and world.versions() == before

    world.json("gc"), world.json("gc")
    world.edit("{sequence_length: 64, steps: 10}", "{sequence_length: 64, steps: 12}")
    rows = {
        row["asset"]: row for row in world.json("status", "tiny")["assets"]
    }  # one decay over both phases: both train
    assert rows[shards[0]]["state"] == "will run" and "pretrained_32 reads it" in rows[shards[0]]["why"]
    assert (rows[shards[1]]["state"], rows["pretrained_64"]["state"]) == ("cleared", "may run")
    assert "tiny is up to date" in world.bert("run", "tiny")
    after = world.versions()
    assert world.states() == dict.fromkeys(ASSETS, "up to date")
    assert {name: after[name] for name in shards} == {name: before[name] for name in shards}
    assert after["pretrained_32"] != before["pretrained_32"] and after["pretrained_64"] != before["pretrained_64"]
    assert world.json("verify")["problems"] == []
