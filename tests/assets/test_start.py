"""Recipes that begin from another's model, and child recipes of another seed, through the real command."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from pipeline.store import Record
from tests.assets.bertcli import World

ORIGINAL = Path(__file__).parents[1] / "data" / "original_bert"
BEFORE = ("wikipedia_dump", "wikipedia_text", "books_files", "books_text", "documents", "wordpiece_vocab")
SHARED = (*BEFORE, "pretraining_shards_32", "pretraining_shards_64")
CHILD = "name: {name}\nextends: tiny\nfinetuning: null\n"
START = CHILD + "vocabulary: null\narchitecture: null\n"
ONE_PHASE = "phases: [{sequence_length: 64, steps: 10}], schedule: per_phase, warmup_steps: 2"


@pytest.fixture(scope="module")
def world(made: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A copy of the made world with exports beside its recipes, and recipes that begin from them or from the store."""
    world = made.copy(tmp_path_factory.mktemp("start") / "world")
    for asset in ("release", "pretrained_32"):
        world.bert("export", f"tiny/{asset}", str(world.folder / asset))
    version = made.versions()["pretrained_64"]
    steady = "decay: wsd, decay_share: 0.4"
    recipes = {
        "seed2": CHILD + "pretraining: {seed: 2}\n",
        "warm": START + "pretraining: {start: {from: ../release, mode: warm}}\n",
        "on": START + f"pretraining: {{start: {{from: ../pretrained_32, mode: continue}}, {ONE_PHASE}}}\n",
        "stored": START + f"pretraining: {{start: {{from: {version}, mode: continue}}, {ONE_PHASE}, {steady}}}\n",
    }
    for name, text in recipes.items():
        (world.folder / "recipes" / f"{name}.yaml").write_text(text.replace("{name}", name), encoding="utf-8")
    return world


def record(world: World, path: str) -> Record:
    found = world.store.pointer(*path.split("/"))
    assert found is not None
    return found


def test_a_child_of_another_seed_shares_corpus_vocabulary_and_shards(world: World) -> None:
    world.bert("run", "seed2/release")
    for asset in SHARED:
        child, parent = record(world, f"seed2/{asset}"), record(world, f"tiny/{asset}")
        assert (child.key, child.version) == (parent.key, parent.version), asset
        assert child.body["reused"] == parent.digest
    for asset in ("pretrained_32", "pretrained_64", "release"):
        child, parent = record(world, f"seed2/{asset}"), record(world, f"tiny/{asset}")
        assert child.key != parent.key and child.version != parent.version, asset
    assert record(world, "seed2/pretrained_32").body["statistics"]["begun"] == "scratch"
    assert record(world, "seed2/pretrained_64").body["statistics"]["begun"] == "continue"


def test_a_warm_start_from_a_release_on_disk(world: World) -> None:
    world.bert("run", "warm/release")
    imported, parent = record(world, "warm/imported_checkpoint"), record(world, "tiny/release")
    assert imported.inputs == {}, "a root: nothing is compared across it"
    root = imported.body["statistics"]["root"]
    assert root == {
        "folder": "release",
        "asset": "tiny/release",
        "version": parent.version,
        "record": parent.digest,
    }
    files = {file["path"]: file["sha256"] for file in imported.body["asked"]["folder"]["files"]}
    listed = {file["path"]: file["sha256"] for file in world.store.manifest("release", parent.version)["files"]}
    assert listed.pop("README.md") != files["README.md"], "the export adds the report's scores to the card"
    assert listed.items() <= files.items()
    for asset in ("wordpiece_vocab", "pretraining_shards_32"):
        assert record(world, f"warm/{asset}").version == record(world, f"tiny/{asset}").version
    first, second = record(world, "warm/pretrained_32"), record(world, "warm/pretrained_64")
    assert set(first.inputs) == {"imported_checkpoint", "pretraining_shards", "wordpiece_vocab"}
    assert (first.body["statistics"]["begun"], second.body["statistics"]["begun"]) == ("warm", "continue")
    losses = [
        json.loads((world.store.content("pretrained", each.version) / "metrics.jsonl").read_text().splitlines()[0])
        for each in (first, record(world, "tiny/pretrained_32"))
    ]
    assert losses[0]["mlm_loss"] < losses[1]["mlm_loss"] - 0.5, "what was learned is there from the first steps on"
    chain = {step["asset"]: step for step in world.json("audit", "warm/release")["chain"]}
    assert chain["imported_checkpoint"]["statistics"]["root"]["record"] == parent.digest
    card = (world.store.content("release", record(world, "warm/release").version) / "README.md").read_text()
    assert "began with the weights of another model" in card
    # elsewhere it is the same
    (world.folder / "release").rename(world.folder / "moved")
    world.edit("../release", "../moved", recipe="warm")
    assert world.states("warm")["release"] == "up to date"


def test_what_continues_from_an_exported_phase_is_the_next_phase_of_its_recipe(world: World) -> None:
    """Byte for byte: `tiny` with a schedule per phase has the phase of length 64 trained by the same function of the same
    weights, moments, shards and seed."""
    world.bert("run", "on/release")
    going_on = record(world, "on/pretrained_64")
    assert going_on.body["statistics"]["begun"] == "continue"
    text = CHILD.replace("{name}", "two") + (
        "pretraining: {schedule: per_phase, phases: [{sequence_length: 32, steps: 30, warmup_steps: 4}, "
        "{sequence_length: 64, steps: 10, warmup_steps: 2}]}\n"
    )
    (world.folder / "recipes" / "two.yaml").write_text(text, encoding="utf-8")
    # the exported phase had one decay over 40 steps; begin from the one that had 30
    world.bert("run", "two/pretrained_64")
    world.bert("export", "two/pretrained_32", str(world.folder / "first"))
    world.edit("../pretrained_32", "../first", recipe="on")
    world.bert("run", "on/pretrained_64")
    ours, theirs = record(world, "on/pretrained_64"), record(world, "two/pretrained_64")
    for name in ("model.safetensors", "optimizer.safetensors", "optimizer.json", "metrics.jsonl", "held_out.json"):
        both = [world.store.content("pretrained", each.version) / name for each in (ours, theirs)]
        assert both[0].read_bytes() == both[1].read_bytes(), name
    assert ours.version != theirs.version, "begun.json tells them apart"


def test_a_version_of_the_store_and_its_stable_part(world: World) -> None:
    world.bert("run", "stored/pretrained_64")
    imported, parent = record(world, "stored/imported_checkpoint"), record(world, "tiny/pretrained_64")
    root = imported.body["statistics"]["root"]
    assert root["stage"] == "pretrained" and root["version"] == parent.version
    assert world.store.record(root["record"]).version == parent.version
    assert imported.body["statistics"]["updates"] == 40
    made = record(world, "stored/pretrained_64")
    assert (world.store.content("pretrained", made.version) / "stable" / "optimizer.safetensors").exists()
    # and on from where the constant rate ended
    world.edit(root["version"], f"{made.version}/stable", recipe="stored")
    world.bert("run", "stored/imported_checkpoint")
    stable = record(world, "stored/imported_checkpoint").body["statistics"]
    assert (stable["root"]["part"], stable["updates"]) == ("stable", 46)
    world.bert("export", "stored/pretrained_64", str(world.folder / "steady"))
    world.edit(f"{made.version}/stable", "../steady/stable", recipe="stored")
    world.bert("run", "stored/imported_checkpoint")
    exported = record(world, "stored/imported_checkpoint")
    assert exported.body["statistics"]["root"]["asset"] == "stored/pretrained_64"
    assert exported.body["statistics"]["updates"] == 46


def test_a_model_of_this_store_that_is_only_fine_tuned_is_not_external(world: World) -> None:
    parent = record(world, "tiny/release")
    text = "name: own\nextends: tiny\n" + "".join(
        f"{key}: null\n" for key in ("corpus", "vocabulary", "shards", "architecture", "pretraining")
    )
    text += f"checkpoint: {{from: {parent.version}}}\n"
    (world.folder / "recipes" / "own.yaml").write_text(text, encoding="utf-8")
    world.bert("run", "own/wordpiece_vocab")
    imported = record(world, "own/imported_checkpoint")
    assert imported.body["statistics"]["external"] is False
    assert imported.body["statistics"]["root"]["record"] == parent.digest
    for asset in ("tiny/wordpiece_vocab", "own/wordpiece_vocab"):
        folder = world.store.content("wordpiece_vocab", record(world, asset).version)
        assert (folder / "vocab.txt").read_bytes() == (
            world.store.content("release", parent.version) / "vocab.txt"
        ).read_bytes()


def test_a_checkpoint_of_the_original_is_a_root_with_its_files_by_sha256(made: World, tmp_path: Path) -> None:
    world = made.copy(tmp_path / "world")
    shutil.copytree(ORIGINAL, world.folder / "uncased_L-2", ignore=shutil.ignore_patterns("*.safetensors"))
    text = CHILD.replace("{name}", "original") + (
        "vocabulary: {size: null, lowercase: true}\narchitecture: null\n"
        "pretraining: {start: {from: ../uncased_L-2, mode: warm}, phases: [{sequence_length: 16, steps: 4}], warmup_steps: 1}\n"
    )
    (world.folder / "recipes" / "original.yaml").write_text(text, encoding="utf-8")
    world.bert("run", "original/imported_checkpoint")
    imported = record(world, "original/imported_checkpoint")
    files = {file["path"]: file["sha256"] for file in imported.body["asked"]["folder"]["files"]}
    assert files == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (world.folder / "uncased_L-2").iterdir()
    }
    said = imported.body["statistics"]
    assert imported.inputs == {} and said["root"] == {"folder": "uncased_L-2"}
    assert (said["layout"], said["training_state_left_out"], said["missing"]) == ("original", 93, [])

    # as it was released: the archive counts by its own bytes, what comes out of it is the same
    archive = Path(shutil.make_archive(str(world.folder / "released"), "zip", world.folder, "uncased_L-2"))
    world.edit("../uncased_L-2,", "../released.zip,", recipe="original")
    world.bert("run", "original/imported_checkpoint")
    zipped = record(world, "original/imported_checkpoint")
    (file,) = zipped.body["asked"]["folder"]["files"]
    assert (file["path"], file["sha256"]) == ("released.zip", hashlib.sha256(archive.read_bytes()).hexdigest())
    assert zipped.key != imported.key and zipped.version == imported.version
    assert zipped.body["statistics"]["root"] == {"archive": "released.zip"}


def test_a_folder_that_lost_its_vocabulary_is_refused_by_file_and_line(made: World, tmp_path: Path) -> None:
    world = made.copy(tmp_path / "world")
    world.bert("export", "tiny/pretrained_32", str(world.folder / "lost"))
    for name in ("vocab.txt", "tokenizer.json"):
        (world.folder / "lost" / name).unlink()
    text = START.replace("{name}", "lost") + "pretraining: {start: {from: ../lost, mode: continue}}\n"
    (world.folder / "recipes" / "lost.yaml").write_text(text, encoding="utf-8")
    output = world.bert("run", "lost", code=1)
    assert "lost.yaml:6: pretraining.start.from: has neither vocab.txt nor tokenizer.json" in output
    assert "Traceback" not in output
