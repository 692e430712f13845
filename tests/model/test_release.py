"""A release as others load it: transformers gives the same hidden states, logits and ids."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model import checkpoint
from model.bert import BertForPretraining
from model.fill_mask import load_release
from model.layers.weights import from_hugging_face, to_hugging_face
from model.release import SENTENCE_VECTORS, make_release
from pipeline import tokenizer
from pipeline.config import Architecture, ReleaseConfig
from pipeline.errors import DataError
from tests.model.tiny import ARCHITECTURE, VOCABULARY, write_vocabulary

SCORES = {
    "step": 1000,
    "sequences": 12,
    "masked_words": 34,
    "mlm_loss": 2.5,
    "mlm_accuracy": 0.375,
    "nsp_loss": 0.5,
    "nsp_accuracy": 0.8125,
    "baselines": {
        "most_frequent_token_id": 7,
        "most_frequent_token_accuracy": 0.0625,
        "nsp_majority_accuracy": 0.53125,
    },
}


def pretrained(
    folder: Path, sentence_task: str = "nsp", architecture: Architecture = ARCHITECTURE
) -> BertForPretraining:
    """A folder as the pretrained stage leaves it, with weights far from their initial values; returns its model."""
    torch.set_num_threads(1)
    folder.mkdir()
    model = BertForPretraining(architecture, len(VOCABULARY), sentence_task).eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    checkpoint.save_tensors(model.state_dict(), folder / "model.safetensors")
    shape = {
        "architecture": architecture.plain(),
        "vocabulary_size": len(VOCABULARY),
        "sentence_task": sentence_task,
    }
    (folder / "config.json").write_text(json.dumps(shape))
    (folder / "held_out.json").write_text(json.dumps(SCORES))
    return model


def released(
    folder: Path, sentence_task: str = "nsp", architecture: Architecture = ARCHITECTURE
) -> tuple[BertForPretraining, Path, dict[str, Any]]:
    model = pretrained(folder / "pretrained", sentence_task, architecture)
    out = folder / "release"
    out.mkdir()
    inputs = {"pretrained": folder / "pretrained", "wordpiece_vocab": write_vocabulary(folder / "vocabulary")}
    return model, out, make_release(inputs, ReleaseConfig(recipe="tiny", description="Cats on mats."), out)


def loaded(auto: Any, folder: Path) -> Any:
    """The model that transformers makes of the folder; nothing may be missing or misshapen."""
    model, found = auto.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    assert not found["missing_keys"] and not found["mismatched_keys"]
    return model.eval()


@pytest.mark.parametrize("changes", [{}, {"gelu": "tanh"}, {"attention": "causal"}, {"hidden": 30, "heads": 5}])
def test_transformers_gives_the_same_hidden_states_and_logits(tmp_path: Path, changes: dict[str, Any]) -> None:
    from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining

    model, folder, _ = released(tmp_path, architecture=ARCHITECTURE.model_copy(update=changes))
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, len(VOCABULARY), (2, 12), generator=generator)
    types = (torch.arange(12) >= 5).long().repeat(2, 1)
    mask = torch.arange(12)[None] < torch.tensor([[12], [9]])
    positions = torch.tensor([[0, 2, 7], [0, 1, 8]])
    inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
    encoder, both = loaded(AutoModel, folder), loaded(AutoModelForPreTraining, folder)
    words_only = loaded(AutoModelForMaskedLM, folder)
    with torch.inference_mode():
        hidden = model.encoder(**inputs)
        words, sentences = model(**inputs, positions=positions, masked_places=torch.arange(6))
        pooled = model.encoder.pool(hidden)
        theirs, heads = encoder(**inputs), both(**inputs)
        masked = words_only(**inputs).logits
    torch.testing.assert_close(hidden[mask], theirs.last_hidden_state[mask], atol=1e-5, rtol=0)
    torch.testing.assert_close(pooled, theirs.pooler_output, atol=1e-5, rtol=0)
    rows = torch.tensor([[0], [1]])
    torch.testing.assert_close(words, heads.prediction_logits[rows, positions].flatten(0, 1), atol=1e-5, rtol=0)
    torch.testing.assert_close(words, masked[rows, positions].flatten(0, 1), atol=1e-5, rtol=0)
    torch.testing.assert_close(sentences, heads.seq_relationship_logits, atol=1e-5, rtol=0)
    again = load_release(folder)
    assert again.encoder.architecture == model.encoder.architecture
    assert all(torch.equal(weight, again.state_dict()[name]) for name, weight in model.state_dict().items())


@pytest.mark.parametrize(
    "text",
    [
        "The cat sat on the mat.",
        "dogs running, Páris",
        "unknown words and 猫",
        "",
        "a" + "b" * 150,  # known pieces, longer than the 100 characters at which the library gives up by default
        "a" + "b" * 250,
    ],
)
def test_transformers_gives_the_same_ids(tmp_path: Path, text: str) -> None:
    from transformers import AutoTokenizer

    _, folder, _ = released(tmp_path)
    theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ours = tokenizer.load(folder)
    ids = [ours.cls_id, *ours.encode_ids([text])[0].tolist(), ours.sep_id]
    assert theirs(text)["input_ids"] == ids
    pair = theirs(text, "the dog")
    assert pair["input_ids"] == [*ids, *ours.encode_ids(["the dog"])[0].tolist(), ours.sep_id]
    assert pair["token_type_ids"] == [0] * len(ids) + [1] * 3
    assert theirs.model_max_length == ARCHITECTURE.max_positions
    assert (theirs.mask_token_id, theirs.pad_token_id) == (ours.mask_id, ours.pad_id)


def test_without_a_sentence_task_everything_still_loads(tmp_path: Path) -> None:
    from transformers import AutoModel, AutoModelForPreTraining

    model, folder, _ = released(tmp_path, "none")
    ids = torch.arange(8)[None]
    encoder, both = loaded(AutoModel, folder), loaded(AutoModelForPreTraining, folder)
    with torch.inference_mode():
        hidden = model.encoder(ids, torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool))
        torch.testing.assert_close(hidden, encoder(ids).last_hidden_state, atol=1e-5, rtol=0)
        assert both(ids).seq_relationship_logits.tolist() == [[0, 0]]
    card = (folder / "README.md").read_text()
    assert "holds zeros" in card and "next-sentence accuracy" not in card


def test_no_warning_when_it_loads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from transformers import AutoModelForPreTraining, AutoTokenizer, logging

    _, folder, _ = released(tmp_path)
    logging.enable_propagation()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            AutoModelForPreTraining.from_pretrained(folder, local_files_only=True)
            AutoTokenizer.from_pretrained(folder, local_files_only=True)
    finally:
        logging.disable_propagation()
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_the_card_and_the_statistics(tmp_path: Path) -> None:
    model, folder, statistics = released(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    card = (folder / "README.md").read_text()
    for text in ("# tiny", "Cats on mats.", "| masked-word accuracy | 0.3750 | 0.0625 |", "1,000 steps", "AutoModel"):
        assert text in card
    assert "| next-sentence accuracy | 0.8125 | 0.5312 |" in card
    assert "becomes σ" in card and tokenizer.load(folder).lowercase
    assert card.endswith(f"```\n\n{SENTENCE_VECTORS}\n") and "[CLS] and the pooler mean nothing" in card
    assert statistics["parameters"] == sum(p.numel() for p in model.parameters())
    assert statistics["held_out"] == SCORES
    assert str(tmp_path) not in card


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        released(tmp_path / name)
    for path in (tmp_path / "one" / "release").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "release" / path.name).read_bytes()


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    pretrained(tmp_path / "pretrained")
    words = write_vocabulary(tmp_path / "vocabulary")
    more = (*VOCABULARY, "more")
    (words / "vocab.txt").write_text("".join(f"{token}\n" for token in more))
    (words / "tokenizer.json").write_text(tokenizer.tokenizer_json(more, lowercase=True, strip_accents=True))
    with pytest.raises(DataError, match="the vocabulary has 21 tokens, the model 20"):
        make_release(
            {"pretrained": tmp_path / "pretrained", "wordpiece_vocab": words}, ReleaseConfig(recipe="tiny"), tmp_path
        )


def test_names_that_are_not_berts_are_refused() -> None:
    for name in ("encoder.layers.0.attention.weight", "classifier.weight", "masked_words.transform.dense.weight"):
        with pytest.raises(DataError, match=name):
            to_hugging_face({name: np.zeros(1)})
    assert from_hugging_face({"bert.encoder.layer.11.output.LayerNorm.bias": 1}) == {
        "encoder.layers.11.output_norm.bias": 1
    }
