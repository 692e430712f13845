"""`bert export RECIPE/finetuned_TASK DIR`: what transformers makes of the folder, against our own model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from assets.commands import exporting
from model import checkpoint
from model.layers.classifier import Classifier, Pooling
from model.tuning.heads import HEADS
from pipeline.errors import RecipeError
from pipeline.storage.record import Record
from pipeline.store import open_store
from tests.assets.bertcli import recorded
from tests.model import trainings
from tests.model.tiny import ARCHITECTURE, VOCABULARY, write_vocabulary

LABELS = ["O", "B-PER", "I-PER"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(1)


def put(stage: str, asset: str, fill: Any, inputs: dict[str, str]) -> Record:
    """A published artifact of recipe `mine`."""
    store = open_store()
    with store.staging() as place:
        fill(place)
        version = store.publish(stage, place)
    return recorded(store, "mine", asset, stage, version, inputs)


def finetuned(pooling: Pooling, kind: str = "classification", scale: float = 0.2, **more: Any) -> Classifier:
    """Publish a classifier with weights far from their initial values; the same."""
    classes = {"multiple_choice": 1, "regression": 1, "span": 2, "sentence_similarity": 0}.get(kind, len(LABELS))
    model = Classifier(ARCHITECTURE, len(VOCABULARY), classes, pooling).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))

    def fill(place: Path) -> None:
        labels = [] if kind in ("regression", "span", "sentence_similarity") else LABELS
        described = {"kind": kind, "labels": labels, "pooling": pooling, "architecture": ARCHITECTURE.plain(), **more}
        (place / "config.json").write_text(json.dumps(described))
        checkpoint.save_tensors(model.state_dict(), place / "model.safetensors")
        told = {
            "title": "People",
            "kind": kind,
            "metric": "accuracy",
            "labels": labels,
            "sizes": {"train": 9, "dev": 5},
        }
        scores = {**told, "seeds": [{"seed": 42}], "published_seed": 42, "summary": {"dev": None, "test": None}}
        (place / "scores.json").write_text(json.dumps(scores))
        (place / "predictions").mkdir()
        (place / "predictions" / "dev-seed-42.txt").write_bytes(b"as it is")

    words = put("wordpiece_vocab", "wordpiece_vocab", write_vocabulary, {})
    put("finetuned", "finetuned_people", fill, {"wordpiece_vocab": words.digest})
    return model


def loaded(auto: Any, folder: Path) -> Any:
    """What one of transformers' classes makes of a folder."""
    theirs, found = auto.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    assert not any(found.values())  # nothing is missing, misshapen or left over
    return theirs.eval()


@pytest.mark.parametrize("pooling", ["tokens", "cls"])
def test_transformers_gives_the_same_logits_and_names(tmp_path: Path, pooling: Pooling) -> None:
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

    ours = finetuned(pooling, "tagging" if pooling == "tokens" else "classification")
    done = exporting.export("mine/finetuned_people", tmp_path / "out")
    assert "note" not in done
    assert exporting.verify(str(tmp_path / "out"))["problems"] == []
    assert (tmp_path / "out" / "predictions" / "dev-seed-42.txt").read_bytes() == b"as it is"
    auto = AutoModelForTokenClassification if pooling == "tokens" else AutoModelForSequenceClassification
    theirs = loaded(auto, tmp_path / "out")
    assert theirs.config.id2label == dict(enumerate(LABELS))
    assert theirs.config.label2id == {name: number for number, name in enumerate(LABELS)}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = [["the", "cats", "sat"], ["paris", "is", "running", "."]]
    inputs = tokenizer(texts, is_split_into_words=True, padding=True, return_tensors="pt")
    mask = inputs["attention_mask"].bool()
    width = mask.shape[1]
    places = torch.arange(mask.numel()) if pooling == "tokens" else torch.arange(len(mask)) * width
    with torch.inference_mode():
        wanted = ours(trainings.given(inputs, places))
        given = theirs(**inputs).logits
    if pooling == "tokens":
        wanted, given = wanted[mask.flatten()], given[mask]
    torch.testing.assert_close(given, wanted, atol=1e-5, rtol=0)
    assert np.ptp(wanted.numpy()) > 0.1


def test_transformers_compares_choices_with_the_same_logits(tmp_path: Path) -> None:
    from transformers import AutoModelForMultipleChoice, AutoTokenizer

    ours = finetuned("cls", "multiple_choice", scale=0.8)
    assert "note" not in exporting.export("mine/finetuned_people", tmp_path / "out")
    theirs = loaded(AutoModelForMultipleChoice, tmp_path / "out")
    assert theirs.config.architectures == ["BertForMultipleChoice"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    contexts, choices = (
        ["the cat"] * 3 + ["a dog is"] * 3,
        ["sat", "ran on mats", "is , .", "paris", "a b", "the dogs sat"],
    )
    inputs = tokenizer(contexts, choices, padding=True, return_tensors="pt")
    with torch.inference_mode():
        rows = torch.arange(6).reshape(2, 3)
        wanted = ours(trainings.given(inputs, torch.arange(6) * inputs["input_ids"].shape[1], rows))
        labels = torch.tensor([2, 0])
        given = theirs(**{name: value.reshape(2, 3, -1) for name, value in inputs.items()}, labels=labels)
    assert inputs["token_type_ids"].any()
    torch.testing.assert_close(given.logits, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        given.loss, HEADS["multiple_choice"].loss(wanted, labels, torch.ones(2)), atol=1e-5, rtol=0
    )
    assert np.ptp(wanted.numpy()) > 0.1


def test_transformers_gives_the_same_score_and_loss(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    ours = finetuned("cls", "regression", scale=0.8)
    assert "note" not in exporting.export("mine/finetuned_people", tmp_path / "out")
    theirs = loaded(AutoModelForSequenceClassification, tmp_path / "out")
    assert (theirs.config.num_labels, theirs.config.problem_type) == (1, "regression")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = tokenizer(["the cat", "a dog is"], ["sat", "ran on mats ."], padding=True, return_tensors="pt")
    scores = torch.tensor([0.5, 4.2])
    with torch.inference_mode():
        wanted = ours(trainings.given(inputs, torch.arange(2) * inputs["input_ids"].shape[1]))
        given = theirs(**inputs, labels=scores)
    torch.testing.assert_close(given.logits, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        given.loss, HEADS["regression"].loss(wanted, scores, torch.ones(2)), atol=1e-5, rtol=1e-5
    )
    assert np.ptp(wanted.numpy()) > 0.1


def test_transformers_finds_answers_with_the_same_logits_and_loss(tmp_path: Path) -> None:
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    ours = finetuned("tokens", "span", scale=0.8)
    assert "note" not in exporting.export("mine/finetuned_people", tmp_path / "out")
    theirs = loaded(AutoModelForQuestionAnswering, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = tokenizer(["the cat", "a dog"], ["sat on mats", "is running ."], return_tensors="pt")
    assert inputs["attention_mask"].all()  # of equal length: the loss of transformers is over padding too
    starts, ends, width = torch.tensor([4, 0]), torch.tensor([5, 0]), inputs["input_ids"].shape[1]
    with torch.inference_mode():
        wanted = ours(trainings.given(inputs, torch.arange(2 * width)))
        given = theirs(**inputs, start_positions=starts, end_positions=ends)
    torch.testing.assert_close(given.start_logits.flatten(), wanted[:, 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(given.end_logits.flatten(), wanted[:, 1], atol=1e-5, rtol=0)
    loss = HEADS["span"].loss(wanted, torch.stack([starts, ends], 1), torch.full((2,), width))
    torch.testing.assert_close(given.loss, loss, atol=1e-5, rtol=1e-5)
    assert np.ptp(wanted.numpy()) > 0.1


def test_transformers_gives_the_same_vectors_and_sentence_transformers_takes_their_mean(tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    ours = finetuned("mean", "sentence_similarity", max_length=9)
    assert "note" not in exporting.export("mine/finetuned_people", tmp_path / "out")
    theirs = loaded(AutoModel, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = tokenizer(["the cats sat", "paris", "running is the cats"], padding=True, return_tensors="pt")
    mask = inputs["attention_mask"].bool()
    with torch.inference_mode():
        hidden = theirs(**inputs).last_hidden_state
        # every row by itself, all of its tokens
        for row, given, there in zip(inputs["input_ids"], hidden, mask, strict=True):
            one = {"input_ids": row[there][None], "token_type_ids": torch.zeros(1, int(there.sum()), dtype=torch.int64)}
            one["attention_mask"] = torch.ones_like(one["input_ids"])
            wanted = ours(trainings.given(one, torch.arange(int(there.sum())), torch.tensor([[0, 0]])))
            torch.testing.assert_close(given[there].mean(0), wanted[0, 0], atol=1e-5, rtol=0)
    pooling = json.loads((tmp_path / "out" / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"] and pooling["word_embedding_dimension"] == theirs.config.hidden_size
    assert json.loads((tmp_path / "out" / "sentence_bert_config.json").read_text())["max_seq_length"] == 9
    assert len(json.loads((tmp_path / "out" / "modules.json").read_text())) == 2
    card = (tmp_path / "out" / "README.md").read_text()
    assert 'library_name: "sentence-transformers"' in card and "SentenceTransformer(folder)" in card
    code = card.split("```python\n")[2].partition("```")[0].replace('["A sentence.", "Another one."]', "texts")
    scope: dict[str, Any] = {"folder": str(tmp_path / "out"), "texts": ["the river was", "old"]}
    exec(code, scope)  # the card's second way, without the library
    for text, vector in zip(scope["texts"], scope["vectors"], strict=True):
        read = scope["tokenizer"]([text], return_tensors="pt")
        torch.testing.assert_close(vector, theirs(**read).last_hidden_state[0].mean(0), atol=1e-5, rtol=1e-4)
    names = load_file(tmp_path / "out" / "model.safetensors")
    assert not any(name.startswith(("bert.", "classifier")) for name in names)  # as the folders on the hub have it


def test_of_a_model_that_reads_windows_it_is_said_that_transformers_reads_one(tmp_path: Path) -> None:
    finetuned("cls", long_texts="windows", max_length=9)
    done = exporting.export("mine/finetuned_people", tmp_path / "out")
    assert "the mean of the logits of windows of 9 tokens; transformers computes one window" in done["note"]
    assert done["note"] in exporting.export_text(done)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["long_texts"] == "windows"


def test_a_model_that_transformers_has_no_class_for_is_copied_and_said(tmp_path: Path) -> None:
    finetuned("mean")
    done = exporting.export("mine/finetuned_people", tmp_path / "out")
    assert done["note"] == "transformers has no class for pooling mean: copied as it is"
    assert done["note"] in exporting.export_text(done)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["pooling"] == "mean"


def test_a_task_that_was_not_run_is_copied_and_said(tmp_path: Path) -> None:
    words = put("wordpiece_vocab", "wordpiece_vocab", write_vocabulary, {})
    put("finetuned", "finetuned_cola", lambda place: (place / "not_run.json").write_text("{}"), {"words": words.digest})
    done = exporting.export("mine/finetuned_cola", tmp_path / "out")
    assert done["note"] == "nothing was trained: copied as it is"
    assert (tmp_path / "out" / "not_run.json").exists()


def test_onnx_stands_beside_with_our_own_numbers(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="needs onnxscript (requirements-dev.lock)")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime (requirements-dev.lock)")
    from transformers import AutoTokenizer

    ours = finetuned("cls")
    done = exporting.export("mine/finetuned_people", tmp_path / "out", onnx=True)
    assert "model.onnx: input_ids, attention_mask, token_type_ids → logits; onnxruntime gives torch's" in done["note"]
    lineage = json.loads((tmp_path / "out" / "lineage.json").read_text())
    assert "model.onnx" in {file["path"] for file in lineage["exported"]}
    assert exporting.verify(str(tmp_path / "out"))["problems"] == []
    inputs = AutoTokenizer.from_pretrained(tmp_path / "out")(
        ["the cats sat", "paris is"], padding=True, return_tensors="pt"
    )
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    (given,) = session.run(["logits"], {name: value.numpy() for name, value in inputs.items()})
    with torch.inference_mode():
        wanted = ours(trainings.given(inputs, torch.arange(2) * inputs["input_ids"].shape[1]))
    np.testing.assert_allclose(given, wanted.numpy(), atol=1e-5)
    assert np.ptp(given) > 0.1


def test_onnx_of_what_is_no_model_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    finetuned("mean")
    with pytest.raises(RecipeError, match="no class for pooling mean"):
        exporting.export("mine/finetuned_people", tmp_path / "out", onnx=True)
    with pytest.raises(RecipeError, match="--onnx is for releases and fine-tuned models"):
        exporting.export("mine/wordpiece_vocab", tmp_path / "out", onnx=True)
    assert not list(tmp_path.glob("*out*"))
