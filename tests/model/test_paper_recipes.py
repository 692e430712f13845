"""Every recipe of recipes/paper really trains: the same file over a toy bert_base, a few steps each."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assets import graph
from model.processes.child import Stop
from model.training.pretraining_loop import train
from pipeline.build import build
from pipeline.recipe import load_recipes
from pipeline.settings import settings
from pipeline.stage import ROOT
from pipeline.store import open_store
from pipeline.system import atomic
from pipeline.tokenizer import read_vocabulary
from tests import tiny

PAPER = sorted(path.stem for path in (ROOT / "recipes" / "paper").glob("*.yaml"))
TOY = """\
name: toy_{name}
extends: {name}
architecture: {{hidden: {hidden}}}
pretraining:
  precision: fp32
  phases: [{{sequence_length: 32, steps: 3}}]
  batch_size: 4
  warmup_steps: 1
  evaluate_sequences: 8
finetuning: null
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The tiny corpus under the name bert_base, the real files of recipes/paper over it, and a toy child of each."""
    settings_file = tiny.write(tmp_path)
    recipes = tmp_path / "recipes"
    base = tiny.RECIPE.replace("name: tiny", "name: bert_base").partition("finetuning:")[0]
    base = base.replace("layers: 1,", "layers: 4,")  # what is read of frozen layers needs as many
    books_only = [line for line in base.splitlines() if "kind: wikipedia" not in line]
    tasks = "finetuning: {tasks: [squad1_1, squad2_0, swag, conll2003], overrides: {squad1_1: {epochs: 1}, "
    tasks += "squad2_0: {epochs: 1}, swag: {epochs: 1}, conll2003: {epochs: 1}}}\n"
    (recipes / "bert_base.yaml").write_text("\n".join([*books_only, tasks]), encoding="utf-8")
    shutil.copytree(ROOT / "recipes" / "paper", recipes / "paper")
    real = load_recipes()
    for name in PAPER:
        hidden = real.get(name).architecture.hidden // 16
        (recipes / f"toy_{name}.yaml").write_text(TOY.format(name=name, hidden=hidden), encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(settings_file))
    monkeypatch.delenv("BERT_HOME", raising=False)
    yield tmp_path


def test_every_recipe_of_the_paper_trains_at_toy_size(world: Path) -> None:
    loaded = graph.load()
    assert loaded.errors == {}
    store, ran = open_store(), []
    for name in PAPER:
        nodes = graph.nodes(loaded.get(f"toy_{name}"))
        pretrained = nodes["pretrained_32"]
        for node in list(graph.upstream(pretrained).values())[:-1]:
            ran += [node.name] if build(store, node).ran else []
        shards, words = (store.pointer(pretrained.recipe, n.name) for n in pretrained.inputs.values())
        assert shards is not None and words is not None
        vocabulary = store.folder(words.stage, words.version)
        run = world / "runs" / name
        run.mkdir(parents=True)
        atomic.write_json(
            run / "config.json",
            {
                "config": pretrained.config.plain(),
                "vocabulary_size": len(read_vocabulary(vocabulary / "vocab.txt")),
                "vocabulary": str(vocabulary),
                "shards": str(store.folder(shards.stage, shards.version)),
                "previous": None,
                "training": settings().training.plain(),
            },
        )
        assert train(run, Stop())
        scores = json.loads((run / "result" / "held_out.json").read_text(encoding="utf-8"))
        assert scores["step"] == 3
        assert 0 < scores["mlm_loss"] < 10  # ln 260 = 5.6 is guessing
        pairs = loaded.get(f"toy_{name}").shards.sentence_task != "none"
        assert (scores["nsp_accuracy"] is not None) == pairs, name
    assert ran.count("documents") == ran.count("wordpiece_vocab") == 1  # shared through the store
    mixes = sum(name.startswith("masking") for name in PAPER)
    assert ran.count("pretraining_shards_32") == mixes + 5  # nsp, none, left to right, dynamic full sentences, order
