"""The files of the sentence-transformers library: those of a folder that it wrote, but for sizes."""

import json
from pathlib import Path

import torch

from model.exporting.sentence_export import write_sentence_modules
from model.layers.attention import Rows
from model.layers.classifier import mean_pool
from tests.model.test_release import released


def test_they_are_those_of_all_minilm_l6_v2(tmp_path: Path) -> None:
    """sentence-transformers/all-MiniLM-L6-v2 on the hub, without its module Normalize, which a cosine does not need."""
    _, folder, _ = released(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_sentence_modules(folder, 48)
    read = {path: json.loads((folder / path).read_text()) for path in ("modules.json", "sentence_bert_config.json")}
    assert read["modules.json"] == [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    assert read["sentence_bert_config.json"] == {"max_seq_length": 48, "do_lower_case": False}
    hidden = json.loads((folder / "config.json").read_text())["hidden_size"]
    assert json.loads((folder / "1_Pooling" / "config.json").read_text()) == {
        "word_embedding_dimension": hidden,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_what_they_describe_is_our_mean(tmp_path: Path) -> None:
    """The first module is AutoModel; the second's mean is over all tokens that the mask has (its documentation)."""
    from transformers import AutoModel, AutoTokenizer

    model, folder, _ = released(tmp_path)
    words = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    encoded = words(["the cat sat", "the cat"], return_tensors="pt", padding=True)
    with torch.inference_mode():
        theirs = AutoModel.from_pretrained(folder, local_files_only=True).eval()(**encoded).last_hidden_state
        mask = encoded["attention_mask"].bool()
        hidden = model.eval().encoder(encoded["input_ids"], encoded["token_type_ids"], mask)
        lengths = mask.sum(1)
        rows = Rows(torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int(), int(lengths.max()))
        ours = mean_pool(hidden[mask], torch.arange(len(mask)).repeat_interleave(lengths), rows)
    for row, hidden, length in zip(ours, theirs, lengths.tolist(), strict=True):
        assert torch.allclose(row, hidden[:length].mean(0), atol=1e-5)
