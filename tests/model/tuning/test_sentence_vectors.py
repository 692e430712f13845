"""Sentence vectors: the loss by hand, what is no negative, rows of pairs, cosines."""

from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cosine

from model.task_files.task_kinds import SCHEMAS
from model.tuning.sentence_vectors import (
    NONE,
    contrastive_loss,
    cosines,
    not_negative,
    read_sentence_pairs,
    text_numbers,
)
from pipeline import tokenizer
from pipeline.errors import DataError
from pipeline.tokenizer import SPECIAL_TOKENS


def test_the_loss_by_hand() -> None:
    """Two pairs in the plane. Cosines of the first text with both second ones: 1 and 0, 0.6 and 0.8; lengths are nothing."""
    vectors = torch.tensor([[[2.0, 0.0], [5.0, 0.0]], [[3.0, 4.0], [0.0, 0.1]]], dtype=torch.double)
    loss = contrastive_loss(vectors, torch.tensor([[0, 1], [2, 3]]))
    expected = (log(exp(20) + exp(0)) - 20 + log(exp(12) + exp(16)) - 16) / 2
    assert loss.item() == pytest.approx(expected, abs=1e-9)


def test_hard_negatives_by_hand() -> None:
    """As before; both have a third text, at cosines −1, 0 and −0.6, 0.8; that of the second pair is none."""
    vectors = torch.tensor(
        [[[2.0, 0.0], [5.0, 0.0], [-1.0, 0.0]], [[3.0, 4.0], [0.0, 0.1], [0.0, 7.0]]], dtype=torch.double
    )
    loss = contrastive_loss(vectors, torch.tensor([[0, 1, 4], [2, 3, NONE]]))
    expected = (log(exp(20) + exp(0) + exp(-20)) - 20 + log(exp(12) + exp(16) + exp(-12)) - 16) / 2
    assert loss.item() == pytest.approx(expected, abs=1e-9)


def test_with_different_texts_it_is_the_cross_entropy_of_the_literature() -> None:
    torch.manual_seed(3)
    vectors = torch.randn(7, 2, 16, dtype=torch.double, requires_grad=True)
    loss = contrastive_loss(vectors, torch.arange(14).reshape(7, 2))
    table = np.array([[1 - cosine(a, b) for b in vectors[:, 1].detach()] for a in vectors[:, 0].detach()])
    assert loss.item() == pytest.approx(F.cross_entropy(torch.tensor(20 * table), torch.arange(7)).item(), abs=1e-9)
    assert torch.autograd.gradcheck(lambda v: contrastive_loss(v, torch.arange(14).reshape(7, 2)), vectors)


def test_equal_texts_are_no_negatives() -> None:
    #                     0: a b    1: c d    2: a e    3: f b    4: b g    5: c h
    texts = torch.tensor([[0, 1], [2, 3], [0, 4], [5, 1], [1, 6], [7, 8]])
    found = not_negative(texts).tolist()
    same = {(0, 2), (0, 3), (0, 4), (3, 4)}
    assert found == [[(i, j) in same or (j, i) in same for j in range(6)] for i in range(6)]


def test_a_hard_negative_that_is_a_text_of_the_pair_is_none() -> None:
    texts = torch.tensor([[0, 1, 2], [2, 3, NONE], [4, 5, 5]])
    second, hard = not_negative(texts).split(3, dim=1)
    assert not second.any()
    # 2 is a text of pair 1; nobody has a negative of pair 1; that of pair 2 is its own second text
    assert hard.tolist() == [[False, True, False], [True, True, False], [False, True, True]]


def test_a_copy_of_a_pair_in_the_batch_changes_nothing_for_it() -> None:
    """Counted as a negative, its own second text would cost it log 2."""
    torch.manual_seed(5)
    vectors = torch.randn(2, 2, 8, dtype=torch.double)
    once = contrastive_loss(vectors, torch.tensor([[0, 1], [2, 3]]))
    first, second = (
        contrastive_loss(vectors[[row, other, row]], torch.tensor([[0, 1], [2, 3], [0, 1]]))
        for row, other in ((0, 1), (1, 0))
    )
    # (2 · loss of the doubled pair + loss of the other one, for which the copy is one more negative) / 3
    cos = F.normalize(vectors[:, 0], dim=1) @ F.normalize(vectors[:, 1], dim=1).T * 20
    losses = [F.cross_entropy(cos[[row]], torch.tensor([row])).item() for row in (0, 1)]
    more = [F.cross_entropy(cos[[row]][:, [row, 1 - row, 1 - row]], torch.tensor([0])).item() for row in (0, 1)]
    assert once.item() == pytest.approx(sum(losses) / 2)
    assert first.item() == pytest.approx((2 * losses[0] + more[1]) / 3)
    assert second.item() == pytest.approx((2 * losses[1] + more[0]) / 3)


def test_one_pair_alone_teaches_nothing_and_a_step_brings_pairs_together() -> None:
    torch.manual_seed(4)
    vectors = torch.randn(4, 3, 8, requires_grad=True)
    assert contrastive_loss(vectors[:1, :2], torch.tensor([[0, 1]])).item() == 0
    texts = torch.arange(12).reshape(4, 3)
    loss = contrastive_loss(vectors, texts)
    loss.backward()
    assert vectors.grad is not None
    after = vectors.detach() - 0.05 * vectors.grad
    assert contrastive_loss(after, texts) < loss
    assert cosines(after).mean() > cosines(vectors.detach()).mean()


def test_cosines() -> None:
    vectors = torch.tensor([[[1.0, 0.0], [1.0, 1.0]], [[0.0, 2.0], [0.0, -1.0]]])
    assert cosines(vectors).tolist() == pytest.approx([1 / sqrt(2), -1])


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_of_pairs(tmp_path: Path) -> None:
    words = tokenizer.make([*SPECIAL_TOKENS, "the", "cat", "sat", "dog", "ran"], lowercase=True, strip_accents=True)
    rows: list[dict[str, Any]] = [
        {"example_id": "a", "text_a": "the cat sat", "text_b": "Cat sat", "negative": "the dog ran the cat"},
        {"example_id": "b", "text_a": "the dog", "text_b": "the  cat sat", "negative": None, "score": 1.5},
    ]
    path = tmp_path / "train.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["sentence_similarity"]), path)
    found = read_sentence_pairs(path, words, 6)
    assert [" ".join(words.tokens(ids)) for ids in found.input_ids] == [
        "[CLS] the cat sat [SEP]",
        "[CLS] cat sat [SEP]",
        "[CLS] the dog ran the [SEP]",
        "[CLS] the dog [SEP]",
        "[CLS] the cat sat [SEP]",
    ]
    assert found.choices is not None and found.choices.tolist() == [0, 3, 5]
    assert found.second_starts.tolist() == [5, 4, 6, 4, 5]  # there is none
    assert np.isnan(found.labels[0]) and found.labels[1] == 1.5
    assert (len(found), found.truncated, found.lengths.tolist()) == (2, 1, [6, 5])
    assert found.counts == {"texts": 5, "cut_texts": 1, "hard_negatives": 1}
    numbers = text_numbers(found.input_ids)
    assert numbers[0] == numbers[4] and len(set(numbers.tolist())) == 4
    with pytest.raises(DataError, match="can't be read"):
        read_sentence_pairs(tmp_path / "gone.parquet", words, 6)
