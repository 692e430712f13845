"""`bert rebuild --check` on a real chain: all of it is made again as it was; what was changed or is gone is named."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from assets.audits import rebuilding
from assets.audits.rebuilding import DIFFERENT, IDENTICAL, IMPOSSIBLE, WITHIN
from pipeline.store import Record
from tests.assets.bertcli import ASSETS, World


@pytest.fixture
def copy(made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A copy of the made world, to break; this process lives in it too."""
    world = made.copy(tmp_path / "copy")
    monkeypatch.setenv("BERT_SETTINGS", str(world.folder / "settings.yaml"))
    monkeypatch.delenv("BERT_HOME", raising=False)
    return world


def now(world: World, asset: str) -> Record:
    record = world.store.pointer("tiny", asset)
    assert record is not None
    return record


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_every_asset_is_made_again_as_it_was_whatever_the_recipe_says_now(copy: World, tmp_path: Path) -> None:
    copy.edit("dupe_factor: 2", "dupe_factor: 3")
    copy.edit("learning_rate: 1e-3\n  warmup_steps", "learning_rate: 2e-3\n  warmup_steps")
    copy.edit("size: 260", "size: 300")
    before = {folder: files(copy.home / folder) for folder in ("store", "records", "assets", "staging", "rejected")}
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = {asset: rebuilding.check(f"tiny/{asset}", scratch) for asset in ASSETS}
    told = {asset: (each["verdict"], each["same_bytes"], each["why"]) for asset, each in found.items()}
    assert {asset: verdict for asset, (verdict, _, _) in told.items()} == dict.fromkeys(ASSETS, IDENTICAL), told
    assert "hashed again, not fetched" in found["wikipedia_dump"]["why"]
    assert not list(scratch.iterdir()), "the scratch folders are gone"
    assert {folder: files(copy.home / folder) for folder in before} == before, "nothing was published"


def test_the_command_says_it_by_its_exit_code(copy: World) -> None:
    told = copy.json("rebuild", "--check", "tiny/wordpiece_vocab")
    assert (told["verdict"], told["same_bytes"], told["rebuilt"]) == (IDENTICAL, True, told["version"])
    assert "identical, the same bytes" in copy.bert("rebuild", "--check", "tiny/documents")
    assert "bert run tiny/documents --force" in copy.bert("rebuild", "tiny/documents", code=2)
    assert copy.json("rebuild", "--check", "tiny/nothing", code=2)["verdict"] == IMPOSSIBLE

    record = now(copy, "wordpiece_vocab")
    vocabulary = copy.home / "store" / record.stage / record.version / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text(encoding="utf-8").replace("[MASK]", "[XXXX]"), encoding="utf-8")
    output = copy.bert("rebuild", "--check", "tiny/wordpiece_vocab", code=1)
    assert "✗ vocab.txt: its bytes are not those that were published" in output and "bert verify" in output
    assert vocabulary.exists(), "nothing was set aside"


def test_an_input_that_was_removed_is_named_with_its_way_back(copy: World) -> None:
    record = now(copy, "documents")
    copy.store.put_away(record.stage, record.version, "nothing needs it", again=False)
    told = rebuilding.check("tiny/wordpiece_vocab", None)
    assert told["verdict"] == IMPOSSIBLE and "its input tiny/documents" in told["why"]
    assert "nothing needs it" in told["why"] and f"bert gc --restore {record.version}" in told["todo"]
    assert copy.store.bring_back(record.stage, record.version)
    assert rebuilding.check("tiny/wordpiece_vocab", None)["verdict"] == IDENTICAL
    assert rebuilding.check("tiny/documents~1", None)["verdict"] == IMPOSSIBLE, "it never was another"


def test_what_was_removed_itself_is_compared_by_its_digests(copy: World) -> None:
    record = now(copy, "wordpiece_vocab")
    copy.store.put_away(record.stage, record.version, "nothing needs it", again=False)
    told = rebuilding.check("tiny/wordpiece_vocab", None)
    assert told["verdict"] == IDENTICAL and "compared by digests: its content was removed on" in told["why"]


def test_files_from_outside_are_hashed_where_the_recipe_says_that_they_lie(copy: World) -> None:
    dump = copy.folder / "text" / "tinywiki.xml.bz2"
    data = dump.read_bytes()
    dump.write_bytes(data[:-1] + b"x")
    told = rebuilding.check("tiny/wikipedia_dump", None)
    assert (
        told["verdict"] == DIFFERENT and told["files"][0]["path"] == dump.name and "sha256" in told["files"][0]["what"]
    )
    told = rebuilding.check("tiny/wikipedia_text", None)
    assert told["verdict"] == IMPOSSIBLE and "the file changed since it was read" in told["why"]
    dump.unlink()
    told = rebuilding.check("tiny/wikipedia_dump", None)
    assert told["verdict"] == IMPOSSIBLE and "is gone" in told["why"]
    shutil.rmtree(copy.folder / "recipes")
    (copy.folder / "recipes").mkdir()
    assert "no recipe tiny says where it lies" in rebuilding.check("tiny/wikipedia_dump", None)["why"]
    assert rebuilding.check("tiny/wordpiece_vocab", None)["verdict"] == IDENTICAL, "it needs no recipe"
    told = rebuilding.check("tiny/task_data_places", None)
    assert told["verdict"] == IMPOSSIBLE and "must name files with the recorded bytes" in told["todo"]


@pytest.mark.parametrize(("by", "verdict"), [(1e-5, WITHIN), (0.5, DIFFERENT)])
def test_a_training_may_come_out_a_little_different(copy: World, by: float, verdict: str) -> None:
    record = now(copy, "pretrained_32")
    with copy.store.staging() as staged:
        shutil.copytree(copy.store.folder(record.stage, record.version), staged, dirs_exist_ok=True)
        (staged / "manifest.json").unlink()
        weights = load_file(staged / "model.safetensors")
        name = next(name for name, tensor in weights.items() if tensor.ndim == 2)
        weights[name] = weights[name] + np.float32(by)
        save_file(weights, staged / "model.safetensors")
        version = copy.store.publish(record.stage, staged)
    body = {**record.body, "version": version, "code_version": "0", "libraries": {"torch": "1.0"}}
    told = rebuilding.check(copy.store.append(body).digest, None)
    assert (told["verdict"], [file["path"] for file in told["files"]]) == (verdict, ["model.safetensors"])
    assert told["files"][0]["absolute"] == pytest.approx(by, rel=0.05)
    text = rebuilding.check_text(told).splitlines()
    assert text[0].startswith("not as it was: code version 0, now ") and any("torch 1.0, now" in line for line in text)
    assert any(line.startswith("tolerance: weights |a − b|") for line in text)
