"""`bert verify DIR --approved`: is this folder the release that is in use; and what is damaged of what the home says of releases."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from assets.audits import approved
from assets.commands import exporting, promoting
from pipeline.errors import StoreError
from pipeline.store import open_store
from tests.assets.bertcli import World
from tests.pipeline.storage.test_champion import release


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
        "told": f"vocab.txt: not what this home has of release {version[:12]}",
    }
    for name in ("README.md", "croissant.json", "adapter_config.json"):  # changed, or added, and listed to fit
        forged = shutil.copytree(folder, tmp_path / f"forged-{name}")
        (forged / name).write_text("forged", encoding="utf-8")
        told = json.loads((forged / "lineage.json").read_text(encoding="utf-8"))
        told.pop("seal")
        files = [file for file in told["exported"] if file["path"] != name]
        told["exported"] = [*files, {"path": name, "sha256": sha256(b"forged").hexdigest(), "size_bytes": 6}]
        (forged / "lineage.json").write_text(json.dumps({**told, "seal": exporting._seal(told)}), encoding="utf-8")
        assert "every file and record is what its digest says" in world.bert("verify", str(forged))
        assert f"{name}: not what this home has" in world.bert("verify", str(forged), "--approved", code=1)
    forged = tmp_path / "forged"
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
    bans = world.home / "barred.json"
    for text in ("{}", '"x"'):
        bans.write_text(text, encoding="utf-8")
        assert "barred.json is damaged" in world.bert("verify", code=1)
        with pytest.raises(StoreError, match="damaged"):
            promoting.rollback("tiny", "so", None)


def test_a_list_of_bans_that_was_lost_and_a_champion_whose_content_is_gone_are_found(world: World) -> None:
    store = open_store()
    first = store.pointer("tiny", "release")
    assert first is not None
    promoting.promote("tiny", "the first")
    second = release(store, "another", recipe="tiny", inputs=first.inputs)
    promoting.promote("tiny", "the second")
    promoting.rollback("tiny", "worse", None)
    (world.home / "barred.json").unlink()
    assert [
        f"says nothing of {second.version[:12]}, which was rolled back" in each.what
        for each in approved.problems(store)
    ] == [True]
    promoting.bar(second.version, "worse", lift=False)
    assert list(approved.problems(store)) == []
    content = store.content("release", first.version)
    content.rename(content.with_name("away"))
    assert f"names release {first.version[:12]}, whose content is missing or broken" in world.bert("verify", code=1)
    assert "✗ champions" in world.bert("doctor", code=1)


def test_approved_is_for_releases(world: World, tmp_path: Path) -> None:
    world.bert("export", "tiny/documents", str(tmp_path / "documents"))
    assert "--approved is for a folder with a release" in world.bert(
        "verify", str(tmp_path / "documents"), "--approved", code=1
    )
