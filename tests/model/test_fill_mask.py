"""Filling in [MASK], against transformers on the same folder."""

from pathlib import Path

import pytest
import torch

from model.fill_mask import fill_mask
from pipeline.errors import DataError
from tests.model.test_release import released
from tests.model.tiny import VOCABULARY


def test_guesses_are_those_of_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    _, folder, _ = released(tmp_path)
    text = "The [MASK] sat on [MASK] mat."
    guesses = fill_mask(folder, text, top=4)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForMaskedLM.from_pretrained(folder, local_files_only=True).eval()
    encoded = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        shares = model(**encoded).logits[0].softmax(1)
    places = (encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero().flatten()
    assert len(guesses) == len(places) == 2
    for ours, place in zip(guesses, places, strict=True):
        best = shares[place].topk(4)
        assert [token for token, _ in ours] == [VOCABULARY[i] for i in best.indices]
        assert [share for _, share in ours] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_all_guesses_make_one(tmp_path: Path) -> None:
    _, folder, _ = released(tmp_path)
    (guesses,) = fill_mask(folder, "the [MASK]", top=1000)
    assert len(guesses) == len(VOCABULARY)
    assert sum(share for _, share in guesses) == pytest.approx(1, abs=1e-5)


def test_bad_input_is_named(tmp_path: Path) -> None:
    _, folder, _ = released(tmp_path)
    with pytest.raises(DataError, match=r"no \[MASK\] in 'the cat'"):
        fill_mask(folder, "the cat")
    with pytest.raises(DataError, match="the text has 23 tokens, the model reads 16"):
        fill_mask(folder, "cat " * 20 + "[MASK]")
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match=r"model\.safetensors"):
        fill_mask(folder, "the [MASK]")
    with pytest.raises(DataError, match=r"config\.json can't be read"):
        fill_mask(tmp_path, "the [MASK]")
