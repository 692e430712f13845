"""A decision about made-up models: what it compares, what it refuses, what it can't know."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from model.promotion.decision import card_faults, decide
from model.release import make_release
from pipeline.config import DecisionConfig, ReleaseConfig
from pipeline.schemas import DOCUMENTS_SCHEMA, write_parts
from pipeline.store import Record, Store
from tests.assets.bertcli import recorded
from tests.model import made_up
from tests.model.promotion.test_drift import document
from tests.model.test_release import pretrained
from tests.model.tiny import VOCABULARY, rows_of, write_rows, write_vocabulary

OTHER_WORDS = (*VOCABULARY[:5], *reversed(VOCABULARY[5:]))
TEXT = "the cat sat on the mat . a dog is running , paris is a cat . " * 4
PHASE = {
    "architecture": None,
    "sequence_length": 16,
    "steps": 40,
    "schedule_steps": 40,
    "warmup_steps": 0,
    "batch_size": 4,
    "learning_rate": 0.1,
    "max_predictions_per_seq": 3,
}
CURVE = [{"step": 20, "loss": 3.0, "skipped_steps": 0}, {"step": 40, "loss": 2.0, "skipped_steps": 0}]


@dataclass(frozen=True)
class Made:
    """One generation of a recipe, published."""

    records: dict[str, Record]
    folders: dict[str, Path]


def publish(store: Store, folder: Path, recipe: str, asset: str, stage: str, inputs: dict[str, str]) -> Record:
    with store.staging() as staged:
        shutil.copytree(folder, staged, dirs_exist_ok=True)
        version = store.publish(stage, staged)
    return recorded(store, recipe, asset, stage, version, inputs)


def generation(
    store: Store,
    base: Path,
    *,
    words: Sequence[str] = VOCABULARY,
    right: Sequence[float] = (0.8, 0.8, 0.8),
    held_out: Sequence[str] = ("h0", "h1", "h2"),
    train: Sequence[str] = ("t0", "t1", "t2"),
    touched: float = 0.0,
    curve: Sequence[dict[str, Any]] = CURVE,
    tasks: Sequence[str] = ("rte",),
) -> Made:
    base.mkdir()
    vocabulary = write_vocabulary(base / "wordpiece_vocab", words)
    pretrained(base / "pretrained_16")
    (base / "pretrained_16" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in curve))
    (base / "release").mkdir()
    read = {"pretrained": base / "pretrained_16", "wordpiece_vocab": vocabulary}
    make_release(read, ReleaseConfig(recipe="again", description=base.name), base / "release")
    (base / "documents").mkdir()
    rows = [
        {**document(d, "wiki", len(TEXT), s), "text": TEXT}
        for s, names in (("train", train), ("held_out", held_out))
        for d in names
    ]
    write_parts(rows, DOCUMENTS_SCHEMA, base / "documents")
    shards = rows_of(30, 16, 5)
    for number, row in enumerate(shards):
        row["documents"] = [held_out[number % len(held_out)]]
    write_rows(base / "pretraining_shards" / "held_out", shards, len(VOCABULARY))
    for task in tasks:
        made_up.classes(base, task, task.upper(), ["yes", "no"], right, {"dev": 400}, pairs=True)
    (base / "contamination").mkdir()
    entry = {"part": "dev", "texts": 400, "measurable": 400, "touched": int(400 * touched), "share": touched}
    (base / "contamination" / "contamination.json").write_text(json.dumps({"tasks": dict.fromkeys(tasks, entry)}))
    (base / "benchmark_report").mkdir()
    (base / "benchmark_report" / "report.json").write_text(json.dumps({"of": base.name}))

    made: dict[str, Record] = {}

    def put(asset: str, stage: str, **inputs: str) -> None:
        named = {name: made[of].digest for name, of in inputs.items()}
        made[asset] = publish(store, base / asset, "again", asset, stage, named)

    put("documents", "documents")
    put("wordpiece_vocab", "wordpiece_vocab", documents="documents")
    put("pretraining_shards", "pretraining_shards", documents="documents", wordpiece_vocab="wordpiece_vocab")
    put("pretrained_16", "pretrained", pretraining_shards="pretraining_shards", wordpiece_vocab="wordpiece_vocab")
    put("release", "release", pretrained="pretrained_16", wordpiece_vocab="wordpiece_vocab")
    put("contamination", "contamination", documents="documents")
    tuned = {f"finetuned_{task}": f"finetuned_{task}" for task in tasks}
    for name in tuned:
        put(name, "finetuned", pretrained="pretrained_16")
    put("benchmark_report", "benchmark_report", pretrained="pretrained_16", contamination="contamination", **tuned)
    folders = {name: store.folder(record.stage, record.version) for name, record in made.items()}
    return Made(made, {**folders, **{f"task_data_{task}": base / f"task_data_{task}" for task in tasks}})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"home: {tmp_path / 'home'}\ntraining: {{device: cpu, threads: 1}}\n", encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(settings))
    monkeypatch.delenv("BERT_HOME", raising=False)
    return Store(tmp_path / "home")


def decided(
    new: Made, old: Made | None, out: Path, scored: bool = True, **more: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(decision.json, gate → gate)."""
    known = (
        {
            "champion": old.records["release"].digest,
            "scored": old.records["benchmark_report"].digest if scored else None,
        }
        if old
        else {}
    )
    config = DecisionConfig.model_validate(
        {"recipe": "again", "gates": {}, "shrink": 0.1, "pretraining": PHASE, **known, **more}
    )
    out.mkdir()
    statistics = decide(new.folders, config, out)
    content = json.loads((out / "decision.json").read_text(encoding="utf-8"))
    assert statistics["verdict"] == content["verdict"] and content["in_words"] in (
        out / "decision.md"
    ).read_text().replace("\\", "")
    return content, {gate["name"]: gate for gate in content["gates"]}


def failed(found: dict[str, Any]) -> set[str]:
    return {name for name, gate in found.items() if gate["passed"] is False}


def test_without_a_champion_only_floors_and_soundness_count(store: Store, tmp_path: Path) -> None:
    new = generation(store, tmp_path / "new")
    content, found = decided(new, None, tmp_path / "out", gates={"floors": {"mlm_accuracy": 37, "rte": 75}})
    assert content["verdict"] == "promote" and content["champion"] is None
    assert (found["floor.mlm_accuracy"]["observed"], found["rte.seeds"]["observed"]) == ("37.50", "3")
    content, found = decided(
        new, None, tmp_path / "strict", gates={"floors": {"mlm_accuracy": 38, "sentence_accuracy": 90}, "seeds": 4}
    )
    assert (
        failed(found) == {"floor.mlm_accuracy", "floor.sentence_accuracy", "rte.seeds"} and content["verdict"] == "keep"
    )


def test_two_equal_models_are_equal_on_everything(store: Store, tmp_path: Path) -> None:
    old, new = (generation(store, tmp_path / name) for name in ("old", "new"))
    content, found = decided(new, old, tmp_path / "out")
    assert content["verdict"] == "promote" and content["champion"] == old.records["release"].version
    assert (
        "+0.0000, at worst +0.0000" in found["held_out.loss"]["observed"]
        and "per masked word" in found["held_out.loss"]["observed"]
    )
    assert "+0.00, at worst +0.00" in found["rte.accuracy"]["observed"]
    assert {"held_out.sentence_pairs", "documents.characters", "documents.length_drift", "rte.contamination"} <= set(
        found
    )


def test_what_is_worse_is_refused_and_named(store: Store, tmp_path: Path) -> None:
    old = generation(store, tmp_path / "old", right=(0.9, 0.9, 0.9))
    bad = [{"step": 40, "loss": 2.0, "skipped_steps": 3}, *({"step": n, "spike": 9.0, "batch": n} for n in range(11))]
    new = generation(store, tmp_path / "new", right=(0.7, 0.7, 0.7), touched=0.2, curve=bad, train=("t0", "t1"))
    content, found = decided(new, old, tmp_path / "out", barred=[new.records["release"].version])
    assert failed(found) == {
        *("not_barred", "pretrained_16.skipped_steps", "pretrained_16.loss_spikes", "documents.characters"),
        *("rte.accuracy", "rte.contamination"),
    }
    assert content["verdict"] == "keep" and "stays the champion" in content["in_words"]


def test_with_two_vocabularies_the_same_words_are_asked_of_both(store: Store, tmp_path: Path) -> None:
    old, new = generation(store, tmp_path / "old", words=OTHER_WORDS), generation(store, tmp_path / "new")
    _, found = decided(new, old, tmp_path / "out", gates={"held_out_loss": 50})
    gate = found["held_out.loss"]
    assert gate["passed"] is True and " per word: " in gate["observed"] and "the vocabularies differ" in gate["why"]
    assert found["held_out.sentence_pairs"]["passed"] is None
    ours, theirs = gate["observed"].split(" per word")[0].split(" against ")
    assert ours != theirs, "the same weights under other words guess something else"


def test_text_that_the_champion_was_trained_on_does_not_count(store: Store, tmp_path: Path) -> None:
    old = generation(store, tmp_path / "old", train=("t0", "t1", "h0"))
    new = generation(store, tmp_path / "new")
    _, found = decided(new, old, tmp_path / "out", shrink=0.5)
    assert "20 sequences; 1 documents left out" in found["held_out.loss"]["why"]
    all_seen = generation(store, tmp_path / "seen", train=("h0", "h1", "h2"))
    _, found = decided(new, all_seen, tmp_path / "none")
    assert "held_out.loss" in failed(found), "what can't be known is no proof"


def test_every_task_of_the_champion_has_to_be_scored(store: Store, tmp_path: Path) -> None:
    old = generation(store, tmp_path / "old", tasks=("rte", "mrpc"))
    new = generation(store, tmp_path / "new")
    _, found = decided(new, old, tmp_path / "out")
    assert failed(found) == {"tasks_scored"} and "MRPC" in found["tasks_scored"]["observed"]
    _, found = decided(new, old, tmp_path / "unscored", scored=False)
    assert failed(found) == set() and found["tasks"]["passed"] is None


def test_a_champion_whose_content_is_gone_is_said_to_be_unknown(store: Store, tmp_path: Path) -> None:
    old, new = (generation(store, tmp_path / name) for name in ("old", "new"))
    for asset in ("release", "finetuned_rte"):
        record = old.records[asset]
        shutil.rmtree(store.content(record.stage, record.version), ignore_errors=True)
    other = generation(store, tmp_path / "third", right=(0.85, 0.85, 0.85))
    _, found = decided(other, old, tmp_path / "out")
    assert {"held_out"} <= failed(found)
    assert new.records["finetuned_rte"].version == old.records["finetuned_rte"].version, "one content, two records"
    assert "rte" in failed(found)


def test_a_release_that_is_the_champion_needs_no_comparison(store: Store, tmp_path: Path) -> None:
    old = generation(store, tmp_path / "old")
    content, found = decided(old, old, tmp_path / "out")
    assert content["verdict"] == "promote" and "it is this very release" in found["champion"]["why"]


def test_an_altered_release_is_not_one_of_the_store(store: Store, tmp_path: Path) -> None:
    new = generation(store, tmp_path / "new")
    altered = shutil.copytree(new.folders["release"], tmp_path / "altered")
    (altered / "README.md").write_text("# no card\n", encoding="utf-8")
    _, found = decided(Made(new.records, {**new.folders, "release": altered}), None, tmp_path / "out")
    assert failed(found) == {"files_verified", "card_complete"}
    assert "library_name" in found["card_complete"]["observed"]
    assert card_faults((new.folders["release"] / "README.md").read_text(encoding="utf-8")) == []
