"""Fine-tuning over a frozen encoder whose outputs are kept, and with a BiLSTM over either kind of encoder."""

import json
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from model import checkpoint
from model.bert import initialize
from model.devices.cpu import Cpu
from model.exporting import finetuned_export
from model.layers.classifier import Classifier, Pooling
from model.processes import run_folder
from model.processes.child import Stop
from model.tuning.examples import Examples, as_row
from model.tuning.features import by_sequence, keep
from model.tuning.finetuning_loop import train
from model.tuning.finetuning_run import load_encoder
from model.tuning.tagged_words import read_words
from model.tuning.tuning_batches import KeptStates, kept_batch
from pipeline import tokenizer
from pipeline.config import Architecture, Bilstm, FinetuneConfig, Grid, LayerChoice
from pipeline.errors import DataError
from pipeline.stage import ROOT
from tests.model import test_finetuning, test_spans, test_tagging, trainings
from tests.model.tiny import write_vocabulary
from tests.model.trainings import StopAfter, batch, content, pretrained, run_stage, run_undisturbed
from tests.model.tuning import test_choices

CHOICES: tuple[LayerChoice, ...] = (
    *("embeddings", "second_to_last", "last"),
    *("weighted_last_four", "concat_last_four", "weighted_all"),
)
DEEP = Architecture(layers=5, hidden=32, heads=2, max_positions=32)
SMALL = Bilstm(hidden=32, layers=2)
CONFIG = FinetuneConfig(
    task="people",
    seeds=1,
    learning_rate=2e-2,
    epochs=30,
    batch_size=2,
    max_length=12,
    encoder="frozen",
    layers=CHOICES,
    bilstm=SMALL,
)
SHORT = CONFIG.model_copy(update={"layers": CHOICES[-2:], "epochs": 4, "baselines": ("untrained",)})
pytestmark = pytest.mark.usefixtures("one_thread_of_the_cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Inputs of the stage: three sentences, one of them longer than a row, and one without words."""
    base = tmp_path_factory.mktemp("inputs")
    (base / "people.conll").write_text(test_tagging.SENTENCES, encoding="utf-8")
    vocabulary = [*tokenizer.SPECIAL_TOKENS, *test_tagging.PIECES]
    rows = [
        {
            "example_id": f"train:{number}",
            "words": sentence.words,
            "tags": [test_tagging.LABELS.index(tag) for tag in test_tagging.iob2(sentence.tags or [])],
        }
        for number, sentence in enumerate(test_tagging.read_sentences(base / "people.conll"), 1)
    ]
    rows.insert(1, {"example_id": "train:none", "words": [], "tags": []})
    return {
        "wordpiece_vocab": write_vocabulary(base / "wordpiece_vocab", vocabulary),
        "pretrained": pretrained(base / "pretrained", len(vocabulary), DEEP),
        "task_data": test_tagging.write_task(base / "task_data", rows, test_tagging.LABELS),
    }


@pytest.fixture(scope="module")
def learnt(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    return run_undisturbed(made, tmp_path_factory.mktemp("learnt"), CONFIG)


def described(out: Path) -> Any:
    return json.loads((out / "config.json").read_text())


def scores_of(out: Path) -> Any:
    return json.loads((out / "scores.json").read_text())


def test_the_six_choices_are_a_grid_and_learn_by_heart(learnt: tuple[dict[str, Any], Path]) -> None:
    """Devlin et al. 2019, table 7. Networks that are trained on nothing tell words apart, and a BiLSTM learns the rest."""
    statistics, out = learnt
    scores = scores_of(out)
    variants = scores["variants"]
    assert [variant["settings"]["layers"] for variant in variants] == list(CHOICES)
    assert [variant["summary"]["dev"]["entity_f1"]["median"] for variant in variants] == [1.0] * 6
    chosen = variants[scores["chosen"]]["settings"]["layers"]
    assert scores["hyperparameters"]["layers"] == chosen
    found = described(out)
    assert (found["encoder"], found["layers"], found["bilstm"]) == ("frozen", chosen, {"hidden": 32, "layers": 2})
    assert (statistics["dev_words"], statistics["dev_windowed_sentences"]) == (31, 1)
    # what is trained, and published, is what stands on top: 4 matrices of each input in each direction of a layer
    values, own = {"concat_last_four": (128, 0), "weighted_last_four": (32, 4), "weighted_all": (32, 5)}.get(
        chosen, (32, 0)
    )
    lstm = sum(2 * 4 * 32 * (inputs + 32 + 2) for inputs in (values, 64))
    weights = checkpoint.load_tensors(out / "model.safetensors")
    assert scores["parameters"] == sum(each.numel() for each in weights.values()) == lstm + own + 65 * 5
    assert not any(name.startswith("encoder.") for name in weights)
    assert "frozen encoder, which is not in the folder" in finetuned_export.why_not(out)


def test_nothing_of_the_features_stays(learnt: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    assert not (learnt[1].parent / "run" / "features").exists()
    (tmp_path / "features" / "pretrained" / "dev").mkdir(parents=True)
    run_folder.clear(tmp_path)
    assert not (tmp_path / "features").exists()


def test_killed_and_stopped_and_resumed_it_gives_the_same_bytes(made: dict[str, Path], tmp_path: Path) -> None:
    """Killed in a run, stopped in another, killed while features are computed: those of the network without pretraining."""
    (tmp_path / "undisturbed").mkdir()
    undisturbed = trainings.run_folder(made, tmp_path / "undisturbed", SHORT)
    assert train(undisturbed, Stop())
    assert len(scores_of(undisturbed / "result")["baselines"]["untrained"]["variants"]) == 2
    run = trainings.run_folder(made, tmp_path, SHORT, checkpoint_seconds=0.05)
    trainings.kill_at_its_first_checkpoint(run)
    kept = run / "features" / "pretrained" / "train"
    computed = {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}
    assert not train(run, StopAfter(12))
    assert {path.name: path.stat().st_mtime_ns for path in kept.iterdir()} == computed  # what was kept is used again
    process = subprocess.Popen([sys.executable, "-m", "model.finetune", str(run)], cwd=ROOT, stderr=subprocess.PIPE)
    while process.poll() is None and not (run / "features" / "untrained").exists():
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (run / "features" / "pretrained").exists()  # no run needs them any more
    assert train(run, Stop())
    assert content(run / "result") == content(undisturbed / "result")
    assert not (run / "features").exists()


def test_asked_to_stop_while_features_are_computed_it_stops(made: dict[str, Path], tmp_path: Path) -> None:
    run = trainings.run_folder(made, tmp_path, CONFIG)
    assert not train(run, StopAfter(1))
    assert not (run / "runs").exists() and not (run / "result").exists()


def test_every_word_is_predicted_from_its_sentence_as_torch_computes_it(
    made: dict[str, Path], learnt: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    """The published weights in torch's own LSTM, over hidden states of one sentence at a time."""
    _, out = learnt
    words = tokenizer.load(made["wordpiece_vocab"])
    examples = read_words(made["task_data"] / "dev.parquet", words, CONFIG.max_length)
    encoder = whole(made, len(words.vocabulary), "tokens").encoder
    kept = keep(tmp_path / "dev", encoder, Cpu(), examples, range(6), "fp32", Stop())
    weights = checkpoint.load_tensors(out / "model.safetensors")
    choice = described(out)["layers"]
    numbers = {"embeddings": [0], "second_to_last": [4], "last": [5], "weighted_all": [1, 2, 3, 4, 5]}.get(
        choice, [2, 3, 4, 5]
    )
    assert kept is not None and examples.asked is not None
    states = [torch.from_numpy(np.array(kept.states[number])) for number in numbers]
    if choice.startswith("weighted"):
        shares = torch.softmax(weights["chosen.weights"], 0)
        values = sum(share * state for share, state in zip(shares, states, strict=True))
    else:
        values = torch.cat(states, 1)
    assert isinstance(values, torch.Tensor)
    lstm = nn.LSTM(values.shape[1], 32, 2, bidirectional=True)
    lstm.load_state_dict({n.removeprefix("bilstm.lstm."): w for n, w in weights.items() if "lstm" in n})
    frame = pl.read_parquet(out / "predictions" / "dev-seed-42.parquet")
    starts = examples.asked.starts.tolist()
    with torch.no_grad():
        read = [lstm(values[first:end])[0] for first, end in pairwise(starts) if end > first]
        logits = torch.cat(read) @ weights["head.weight"].T + weights["head.bias"]
    expected = torch.softmax(logits, 1).numpy()
    assert np.abs(frame.select("^p_.*$").to_numpy() - expected).max() < 1e-5


# ── what stands on top reads the same of kept states as of the encoder ───────────────────────────────────────────────


def whole(made: dict[str, Path], size: int, pooling: Pooling, bilstm: Bilstm | None = None) -> Classifier:
    """A classifier with the pretrained encoder in it."""
    model = Classifier(DEEP, size, 3, pooling, bilstm)
    initialize(model, 3)
    load_encoder(model, made["pretrained"])
    with torch.no_grad():
        model.head.weight *= 20  # what comes out is small at first
    return model.eval()


def texts(made: dict[str, Path]) -> tuple[Examples, int]:
    words = tokenizer.load(made["wordpiece_vocab"])
    pairs = [("anna met bob", "the old sea"), ("rome", None), ("the old river in paris and the sea .", "bob in rome")]
    first, second = words.encode_ids([a for a, _ in pairs]), words.encode_ids([b or "" for _, b in pairs])
    rows = [as_row(a, b if given else None, words, 12) for a, b, (_, given) in zip(first, second, pairs, strict=True)]
    ids, starts = tuple(row[0] for row in rows), np.array([row[1] for row in rows])
    return Examples(("a", "b", "c"), (), ids, starts, np.zeros(3, np.int64), 0), len(words.vocabulary)


@pytest.mark.parametrize(
    ("pooling", "bilstm"),
    [
        *((each, None) for each in ("mean", "last", "tokens", "cls")),
        *((each, SMALL) for each in ("mean", "ends", "tokens")),
    ],
)
def test_kept_states_give_the_logits_that_the_encoder_gives(
    made: dict[str, Path], tmp_path: Path, pooling: Pooling, bilstm: Bilstm | None
) -> None:
    examples, size = texts(made)
    ours, numbers = whole(made, size, pooling, bilstm), np.array([2, 0, 1])
    kept = keep(tmp_path / "kept", ours.encoder, Cpu(), examples, [0, 5], "fp32", Stop())
    assert kept is not None
    frozen = Classifier(DEEP, size, 3, pooling, bilstm, "last").eval()
    frozen.load_state_dict({name: value for name, value in ours.state_dict().items() if "encoder" not in name})
    with torch.no_grad():
        if pooling == "cls":  # of a frozen encoder the pooler is not used
            states = batch(examples, numbers).states(ours.encoder)  # type: ignore[union-attr]
            expected = ours.head(states)
        else:
            expected = trainings.logits(ours, examples, numbers)
        found = frozen(kept_batch(examples, numbers, kept.only([5]), Cpu()))
    assert found.abs().max() > 0.05
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_kept_words_give_the_logits_that_the_encoder_gives(made: dict[str, Path], tmp_path: Path) -> None:
    """Where sentences fit into rows; longer ones are read row by row by a BiLSTM over a trained encoder."""
    words = tokenizer.load(made["wordpiece_vocab"])
    examples = read_words(made["task_data"] / "dev.parquet", words, 32)
    assert examples.counts["windowed_sentences"] == 0
    ours, rows = whole(made, len(words.vocabulary), "tokens", SMALL), np.array([2, 0, 1])
    kept = keep(tmp_path / "kept", ours.encoder, Cpu(), examples, [5], "fp32", Stop())
    assert kept is not None
    frozen = Classifier(DEEP, len(words.vocabulary), 3, "tokens", SMALL, "last").eval()
    frozen.load_state_dict({name: value for name, value in ours.state_dict().items() if "encoder" not in name})
    sentences = by_sequence(examples)
    given = kept_batch(sentences, rows, kept, Cpu())
    assert isinstance(given, KeptStates) and given.read.rows.lengths == [21, 7, 3]
    assert sentences.labels_of(rows).tolist() == examples.labels_of(rows).tolist()
    with torch.no_grad():
        torch.testing.assert_close(frozen(given), trainings.logits(ours, examples, rows), atol=1e-5, rtol=1e-4)


def test_of_a_text_a_bilstm_gives_the_states_in_which_it_ends(made: dict[str, Path]) -> None:
    """Against what torch's LSTM returns as its last states, a text at a time."""
    examples, size = texts(made)
    ours = whole(made, size, "ends", SMALL)
    assert ours.bilstm is not None
    found = trainings.logits(ours, examples, np.arange(3))
    with torch.no_grad():
        for row in range(3):
            one = batch(examples, np.array([row]), whole=True)
            states = one.states(ours.encoder)  # type: ignore[union-attr]
            _, (ends, _) = ours.bilstm.lstm(states)  # [2 · layers, hidden], the last layer's two directions last
            expected = ours.head(torch.cat([ends[-2], ends[-1]]))
            torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=1e-4)


def test_left_to_right_the_last_token_sees_what_the_first_does_not() -> None:
    causal = DEEP.model_copy(update={"attention": "causal"})
    ids = [np.array([2, 7, 8, 9, 3], np.int32), np.array([2, 7, 8, 10, 3], np.int32)]
    examples = Examples(("a", "b"), (), tuple(ids), np.array([5, 5]), np.zeros(2, np.int64), 0)
    for pooling, differ in (("cls", False), ("last", True), ("mean", True)):
        model = Classifier(causal, 20, 3, pooling).eval()  # type: ignore[arg-type]
        initialize(model, 1)
        one, other = trainings.logits(model, examples, np.arange(2))
        assert torch.equal(one, other) != differ, pooling
    with torch.no_grad():
        states = batch(examples, np.arange(2), whole=True).states(model.encoder)  # type: ignore[union-attr]
        model.pooling = "last"
        torch.testing.assert_close(trainings.logits(model, examples, np.arange(2)), model.head(states[[4, 9]]))


# ── other tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────


def inputs(base: Path, vocabulary: list[str], task_data: Path, architecture: Architecture = DEEP) -> dict[str, Path]:
    size = len(vocabulary) + len(tokenizer.SPECIAL_TOKENS)
    return {
        "wordpiece_vocab": write_vocabulary(base / "wordpiece_vocab", [*tokenizer.SPECIAL_TOKENS, *vocabulary]),
        "pretrained": pretrained(base / "pretrained", size, architecture),
        "task_data": task_data,
    }


def places(base: Path, architecture: Architecture = DEEP) -> dict[str, Path]:
    """Texts whose class a word gives away."""
    (base / "task_data").mkdir()
    test_finetuning.write_task(base / "task_data")
    return inputs(base, test_finetuning.WORDS, base / "task_data", architecture)


PLACES = CONFIG.model_copy(
    update={"task": "places", "layers": (), "epochs": 3, "batch_size": 16, "learning_rate": 1e-2, "baselines": ()}
)


@pytest.mark.parametrize(
    ("encoder", "bilstm", "pooling"),
    [("frozen", None, "mean"), ("frozen", SMALL, "cls"), ("trained", SMALL, "cls"), ("trained", SMALL, "mean")],
)
def test_texts_are_learnt(tmp_path: Path, encoder: Any, bilstm: Bilstm | None, pooling: Any) -> None:
    changed = {"encoder": encoder, "bilstm": bilstm, "pooling": pooling}
    if bilstm is None:
        changed |= {"epochs": 6, "learning_rate": 5e-2}  # one linear layer over states of a network that knows nothing
    wide = DEEP.model_copy(update={"hidden": 48, "layers": 4 if encoder == "frozen" else 1})
    _, out = run_stage(places(tmp_path, wide), tmp_path, PLACES.model_copy(update=changed))
    scores = scores_of(out)
    assert scores["summary"]["dev"]["accuracy"]["median"] >= 0.9
    found = described(out)
    assert found["pooling"] == ("mean" if pooling == "mean" else "ends")
    assert found["layers"] == ("concat_last_four" if encoder == "frozen" else None)
    if encoder == "trained":
        assert finetuned_export.why_not(out) == "transformers has no class with a BiLSTM on top of BERT"
        assert scores["variants"][0]["settings"] == {"learning_rate": 1e-2, "batch_size": 16, "epochs": 3}


def test_left_to_right_texts_are_learnt_at_their_last_token(tmp_path: Path) -> None:
    made = places(tmp_path, DEEP.model_copy(update={"attention": "causal", "layers": 2, "hidden": 32}))
    config = PLACES.model_copy(update={"encoder": "trained", "bilstm": None, "pooling": "last"})
    _, out = run_stage(made, tmp_path, config)
    assert scores_of(out)["summary"]["dev"]["accuracy"]["median"] >= 0.9
    assert finetuned_export.why_not(out) == "transformers has no class for pooling last"
    refused = trainings.run_folder(made, tmp_path / "out", config.model_copy(update={"pooling": "cls"}))
    with pytest.raises(DataError, match=r"its \[CLS\] sees nothing but itself") as error:
        train(refused, Stop())
    assert "pooling: last" in error.value.todo and "mean" in error.value.todo


COMMON: dict[str, Any] = {"layers": (), "batch_size": 4}


def test_choices_are_learnt_over_a_frozen_encoder(tmp_path: Path) -> None:
    made = inputs(
        tmp_path, list(test_choices.WORDS), test_choices.write_task(tmp_path / "task", test_choices.made_up(30))
    )
    config = CONFIG.model_copy(update={**COMMON, "task": "endings", "epochs": 12, "learning_rate": 1e-2})
    _, out = run_stage(made, tmp_path, config)
    assert scores_of(out)["summary"]["dev"]["accuracy"]["median"] >= 0.9


@pytest.mark.parametrize("encoder", ["frozen", "trained"])
def test_spans_are_learnt(tmp_path: Path, encoder: Any) -> None:
    made = inputs(
        tmp_path,
        list(test_spans.WORDS),
        test_spans.write_task(tmp_path / "task", test_spans.made_up(none=False)),
        DEEP.model_copy(update={"layers": 4 if encoder == "frozen" else 2}),
    )
    config = CONFIG.model_copy(
        update={
            **COMMON,
            "encoder": encoder,
            "task": "questions",
            "max_length": 24,
            "epochs": 40,
            "learning_rate": 3e-3,
        }
    )
    _, out = run_stage(made, tmp_path, config)
    assert scores_of(out)["summary"]["dev"]["f1"]["median"] >= 0.9


def test_an_encoder_that_is_too_shallow_is_said(tmp_path: Path) -> None:
    """Of a model made elsewhere, whose layers a recipe need not state."""
    made = places(tmp_path, DEEP.model_copy(update={"layers": 3}))
    run = trainings.run_folder(made, tmp_path, PLACES)
    with pytest.raises(DataError, match="concat_last_four needs an encoder of at least 4 layers, this one has 3"):
        train(run, Stop())


def test_choices_of_layers_are_a_grid_with_the_others() -> None:
    grid = Grid(learning_rate=(1e-3, 1e-4))
    config = CONFIG.model_copy(update={"layers": ("last", "embeddings"), "grid": grid})
    assert [(each.layers, each.learning_rate) for each in config.variants] == [
        *(("last", 1e-3), ("last", 1e-4), ("embeddings", 1e-3), ("embeddings", 1e-4))
    ]
