"""The same text for two models, against hand calculation and, for the losses, against transformers."""

from pathlib import Path

import numpy as np
import pytest
import torch

from model.promotion import likelihood, same_text
from pipeline.tokenizer import make
from tests.model.promotion.test_drift import corpus, document
from tests.model.test_release import released
from tests.model.tiny import VOCABULARY, read_shards, rows_of, write_rows

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LONG = make((*SPECIAL, "cat", "sat", "mat", "the"), lowercase=True, strip_accents=True)
SHORT = make((*SPECIAL, "c", "##at", "s", "m", "the"), lowercase=True, strip_accents=True)


def texts(folder: Path, *of: str) -> Path:
    rows = [{**document(f"d{n}", "wiki", len(text), "held_out"), "text": text} for n, text in enumerate(of)]
    return corpus(folder, *rows)


def test_the_same_words_are_masked_for_both_and_nothing_is_too_long(tmp_path: Path) -> None:
    text = "the cat sat the mat " * 40
    folder = texts(tmp_path / "documents", text, text)
    ours, theirs = same_text.stretches(folder, {"d0", "d1"}, [LONG, SHORT], 16, 1000, all_words=False)
    assert ours.words.tolist() == theirs.words.tolist() and ours.documents.tolist() == theirs.documents.tolist()
    assert ours.rows.lengths.max() <= 16 and theirs.rows.lengths.max() <= 16
    assert set(ours.documents.tolist()) == {0, 1}
    for side, tokenizer in ((ours, LONG), (theirs, SHORT)):
        guessed = tokenizer.decode(side.rows.masked_ids)
        assert guessed == LONG.decode(ours.rows.masked_ids), "the same words in the same order"
        masked = side.rows.input_ids[
            np.repeat(side.rows.input_offsets[:-1], np.diff(side.rows.masked_offsets)) + side.rows.masked_positions
        ]
        assert set(masked.tolist()) == {tokenizer.mask_id}
    whole = "".join(LONG.decode(ours.rows.row(i).input_ids) for i in range(len(ours.rows)))
    assert whole.count("[CLS]") == len(ours.rows)
    share = ours.words.sum() / 400
    # 400 words; tolerance four standard deviations of a binomial share, 4 · sqrt(.15 · .85 / 400) = 0.07, and stretches
    # without a masked word are left out
    assert 0.08 < share < 0.22
    once_more = same_text.stretches(folder, {"d0", "d1"}, [LONG, SHORT], 16, 1000, all_words=False)
    assert np.array_equal(once_more[0].rows.input_ids, ours.rows.input_ids)


def test_left_to_right_every_word_is_guessed_one_place_before_it(tmp_path: Path) -> None:
    folder = texts(tmp_path / "documents", "the cat sat")
    (side,) = same_text.stretches(folder, {"d0"}, [SHORT], 16, 10, all_words=True)
    row = side.rows.row(0)
    assert SHORT.tokens(row.input_ids) == ["[CLS]", "the", "c", "##at", "s", "##at", "[SEP]"]
    assert (
        row.masked_positions.tolist() == [0, 1, 2, 3, 4]
        and SHORT.tokens(row.masked_ids) == SHORT.tokens(row.input_ids)[1:-1]
    )
    assert side.words.tolist() == [3]


def test_documents_that_the_champion_was_trained_on_are_left_out(tmp_path: Path) -> None:
    challenger = corpus(
        tmp_path / "new", document("a", "w", 9, "held_out"), document("b", "w", 9, "held_out"), document("c", "w", 9)
    )
    champion = corpus(tmp_path / "old", document("a", "w", 9), document("c", "w", 9, "held_out"))
    held_out = same_text.held_out_of(challenger)
    assert held_out == {"a", "b"} and same_text.trained_on(held_out, [champion]) == {"a"}
    rows = rows_of(4, 16, 1)
    for row, documents in zip(rows, (["a"], ["b"], ["b", "a"], ["d", "b"]), strict=True):
        row["documents"] = documents
    shards = write_rows(tmp_path / "shards", rows, len(VOCABULARY))
    numbers, documents = same_text.rows_without(shards, {"a"})
    assert numbers.tolist() == [1, 3] and documents.tolist() == [0, 1]
    assert same_text.rows_without(shards, set())[0].tolist() == [0, 1, 2, 3]


def test_losses_are_those_of_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForPreTraining

    _, folder, _ = released(tmp_path)
    shards = read_shards(write_rows(tmp_path / "rows", rows_of(40, 16, 3), len(VOCABULARY)))
    made = likelihood.of_rows(folder, shards, 16, "fp32", "sequences")
    model = AutoModelForPreTraining.from_pretrained(folder, local_files_only=True).eval()
    for i in range(len(shards)):
        row = shards.row(i)
        ids = torch.tensor(row.input_ids.astype(np.int64))[None]
        types = (torch.arange(ids.shape[1]) >= row.token_type_start).long()[None]
        with torch.inference_mode():
            told = model(input_ids=ids, token_type_ids=types)
        shares = told.prediction_logits[0, row.masked_positions.tolist()].log_softmax(1)
        loss = -shares[torch.arange(len(row.masked_ids)), torch.tensor(row.masked_ids.astype(np.int64))].sum()
        assert made.loss[i] == pytest.approx(float(loss), abs=2e-4)
        assert made.pairs is not None
        assert bool(made.pairs[i]) == (int(told.seq_relationship_logits.argmax()) == row.label)
