"""`bert verify DIR --approved`: is this folder the release that is in use; and what is damaged of what the home says of releases."""

import json
import shutil
from pathlib import Path

import pytest

from assets import approved, promoting
from pipeline.build import open_store
from tests.assets.bertcli import World


@pytest.fixture
def world(made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    copied = made.copy(tmp_path / "world")
    monkeypatch.setenv("BERT_SETTINGS", str(copied.folder / "settings.yaml"))
    return copied


def test_a_folder_is_approved_while_its_release_is_in_use(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    world.bert("export", "tiny/release", str(folder))
    assert "never promoted" in world.bert("verify", str(folder), "--approved", code=1)
    assert "never promoted" in world.bert("verify", str(folder)), "unaltered it is all the same"
    promoting.promote("tiny", "it reads well")
    told = world.json("verify", str(folder), "--approved")
    assert told["approval"]["state"] == approved.APPROVED and "it reads well" in told["approval"]["told"]
    version = world.versions()["release"]
    promoting.bar(version, "a source was withdrawn", lift=False)
    assert "barred since" in approved.approval(open_store(), folder)["told"], "in use, and that it is barred is said"

    # An export whose own list was made to fit is found out by the store's.
    forged = shutil.copytree(folder, tmp_path / "forged")
    (forged / "vocab.txt").write_text("other words", encoding="utf-8")
    assert approved.approval(open_store(), forged) == {
        "state": "altered",
        "told": f"vocab.txt: not what release {version[:12]} has in this home",
    }
    told = json.loads((forged / "lineage.json").read_text(encoding="utf-8"))
    told["chain"][0]["record"] = "0" * 64
    (forged / "lineage.json").write_text(json.dumps(told), encoding="utf-8")
    assert approved.approval(open_store(), forged)["state"] == "not known here"


def test_what_is_damaged_of_champions_bans_and_attestations_is_found(world: World) -> None:
    promoting.promote("tiny", "the first")
    promoting.bar(world.versions()["release"], "a trial", lift=False)
    assert "every file and record" in world.bert("verify")
    card = world.home / "attestations" / world.versions()["release"] / "README.md"
    kept = card.read_bytes()
    card.write_bytes(kept + b"x")
    found = world.bert("verify", code=1)
    assert f"{card} is not what provenance.intoto.jsonl beside it says" in found
    card.write_bytes(kept)
    for path in (world.home / "assets" / "tiny" / "champion.json", world.home / "barred.json"):
        whole = path.read_bytes()
        path.write_bytes(whole[:20])
        assert path.name in world.bert("verify", code=1)
        path.write_bytes(whole)
    assert "every file and record" in world.bert("verify")


def test_approved_is_for_releases(world: World, tmp_path: Path) -> None:
    world.bert("export", "tiny/documents", str(tmp_path / "documents"))
    assert "--approved is for a folder with a release" in world.bert(
        "verify", str(tmp_path / "documents"), "--approved", code=1
    )
