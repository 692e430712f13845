"""How long pretraining would take, as `bert run RECIPE --dry-run` tells it."""

from pathlib import Path

import pytest
import torch

from assets.commands.cost import estimate_text
from tests.assets.bertcli import World


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world where nothing was made yet."""
    return World.make(tmp_path_factory.mktemp("cost") / "world")


def test_a_step_is_measured_without_shards(fresh: World) -> None:
    told = fresh.json("run", "tiny", "--dry-run")["training"]
    assert told["estimate"] is True and told["basis"] == "measured" and told["threads"] == 1 and told["missing"] == ""
    first, second = told["phases"]
    assert [p["asset"] for p in (first, second)] == ["pretrained_32", "pretrained_64"]
    assert (first["steps"], first["batch_size"], first["rows_measured"]) == (30, 8, 8)
    assert first["padding_from"] == "stated" and (first["padding_share"], second["padding_share"]) == (0.08, 0.08)
    for phase, evaluations in ((first, 2), (second, 1)):
        # 64 held-out sequences are 8 batches, a third of a step's forward and backward each
        assert phase["hours"]["1"] * 3600 > phase["steps"] * phase["step_seconds"]
        assert phase["hours"]["1"] * 3600 <= (phase["steps"] + evaluations * 8 / 3) * phase["step_seconds"]
        assert phase["hours"]["8"] == pytest.approx(phase["hours"]["1"] / 8)
        assert phase["hours"]["64"] is None, "a batch of 8 has no 64 parts"
    assert told["total_hours"]["8"] == pytest.approx(first["hours"]["8"] + second["hours"]["8"])
    assert told["total_hours"]["64"] is None
    text = estimate_text(told)
    assert first["hours"]["1"] < 1 / 60 and "pretrained_32                  < 1 min       < 1 min             –" in text
    assert "an estimate" in text and "n devices are n times as fast as one" in text and "8% padding at 32" in text
    assert not (fresh.home / "store").exists() and not (fresh.home / "runs").exists(), "nothing runs"


def test_only_phases_that_would_run_are_told(fresh: World) -> None:
    told = fresh.json("run", "tiny/pretrained_32", "--dry-run")["training"]
    assert [phase["asset"] for phase in told["phases"]] == ["pretrained_32"]
    assert fresh.json("run", "tiny/documents", "--dry-run")["training"] is None


def test_a_stated_device(fresh: World) -> None:
    recipe = fresh.folder / "recipes" / "tiny_bf16.yaml"
    recipe.write_text("name: tiny_bf16\nextends: tiny\npretraining: {precision: bf16}\n", encoding="utf-8")
    options = ("run", "tiny_bf16", "--dry-run", "--device", "NVIDIA H200")
    told = fresh.json(*options)["training"]
    assert (told["basis"], told["device"], told["mfu"]) == ("stated", "NVIDIA H200", 0.4)
    half = fresh.json(*options, "--mfu", "0.2")["training"]
    assert half["phases"][0]["step_seconds"] == pytest.approx(2 * told["phases"][0]["step_seconds"])
    text = fresh.bert(*options)
    assert "on NVIDIA H200, stated, at 40% of its peak" in text and "measuring" not in text


def test_options_that_say_nothing_are_refused(fresh: World) -> None:
    assert "pretrained_32 is trained in fp32" in fresh.bert("run", "tiny", "--dry-run", "--device", "H200", code=1)
    assert "--device and --mfu are for --dry-run" in fresh.bert("run", "tiny", "--device", "H200", code=1)
    assert "--mfu is the share of a stated" in fresh.bert("run", "tiny", "--dry-run", "--mfu", "0.3", code=1)
    recipe = fresh.folder / "recipes" / "tiny_half.yaml"
    recipe.write_text("name: tiny_half\nextends: tiny\npretraining: {precision: bf16}\n", encoding="utf-8")
    for stated in ("", "tpu"):
        refused = fresh.bert("run", "tiny_half", "--dry-run", "--device", stated, code=1)
        assert f"no peak is known for '{stated}'" in refused and "Known: H200" in refused
    assert "are for --dry-run" in fresh.bert("run", "tiny_half", "--device", "", code=1)


def test_how_long_is_told_before_the_sources_are_there(tmp_path: Path) -> None:
    world = World.make(tmp_path / "world")
    world.edit("books}, licence: public domain", "bux}, licence: public domain")
    options = ("run", "tiny", "--dry-run")
    world.edit("batch_size: 8\n", "batch_size: 8\n  precision: bf16\n")
    output = world.bert(*options, "--device", "H200", code=1)
    assert "text/bux does not exist" in output and "together" in output and "an estimate" in output
    told = world.json(*options, "--device", "H200", code=1)
    assert [phase["asset"] for phase in told["training"]["phases"]] == ["pretrained_32", "pretrained_64"]


def test_why_nothing_was_measured_is_a_sentence(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    world = World.make(tmp_path / "world")
    settings = world.folder / "settings.yaml"
    text = settings.read_text(encoding="utf-8")
    assert "device: cpu" in text
    settings.write_text(text.replace("device: cpu", "device: cuda"), encoding="utf-8")
    output = world.bert("run", "tiny/pretrained_32", "--dry-run")
    assert "torch sees no CUDA device. Set it to cpu or auto" in output
    assert "state a device" not in output, "of fp32 there is no peak"
    told = world.json("run", "tiny/pretrained_32", "--dry-run")["training"]
    assert told["phases"] == [] and told["total_hours"] == {"1": None, "8": None, "64": None}


def test_a_model_that_was_not_imported_yet_is_said_to_be_missing(fresh: World) -> None:
    recipe = fresh.folder / "recipes" / "tiny_warm.yaml"
    recipe.write_text(
        "name: tiny_warm\nextends: tiny\nvocabulary: null\narchitecture: null\n"
        f"pretraining: {{start: {{from: {'0' * 64}, mode: warm}}}}\n",
        encoding="utf-8",
    )
    output = fresh.bert("run", "tiny_warm", "--dry-run")
    assert "No estimate: the architecture is imported_checkpoint's, which was not made yet" in output
