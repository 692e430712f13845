"""Windows of long texts: every token is in one, what is drawn follows from seed and epoch, and logits are pooled."""

import random

import numpy as np
import pytest
import torch

from model.tuning.examples import as_row
from model.tuning.long_texts import SHARED, drawn_windows, pooled, windowed, windows
from pipeline import tokenizer
from pipeline.tokenizer import SPECIAL_TOKENS, Tokenizer
from tests.conftest import shared

WORDS = ("the", "a", "old", "river", "rock", "sea", "sand", "wind", "cloud", "bird", "tree", "##s")


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return tokenizer.make([*SPECIAL_TOKENS, *WORDS], lowercase=True, strip_accents=True)


def shown(words: Tokenizer, rows: tuple[np.ndarray, ...]) -> list[str]:
    return [" ".join(words.tokens(ids)) for ids in rows]


def test_a_text_by_hand(words: Tokenizer) -> None:
    """8 tokens in windows of 4 that share 1 at least: 1 + ⌈4 / 3⌉ = 3, which begin at 0, 2 and 4."""
    texts = words.encode_ids(["the old river rock sea sand wind cloud", "bird tree", ""])
    found = windowed(texts, [None] * 3, words, 6)
    assert shown(words, found.input_ids) == [
        "[CLS] the old river rock [SEP]",
        "[CLS] river rock sea sand [SEP]",
        "[CLS] sea sand wind cloud [SEP]",
        "[CLS] bird tree [SEP]",
        "[CLS] [SEP]",
    ]
    assert found.starts.tolist() == [0, 3, 4, 5]
    assert found.second_starts.tolist() == [6, 6, 6, 4, 2]
    assert (found.counts, found.cut) == ({"windows": 5, "windowed_texts": 1}, 0)


def test_of_a_pair_the_longer_text_is_in_windows_beside_the_shorter(words: Tokenizer) -> None:
    """Rows of 9 hold 6 tokens of a pair."""
    first = words.encode_ids(["sea", "the old river rock sea sand wind", "bird bird", "a a a a a", "wind"])
    second = words.encode_ids(
        ["the old river rock sea sand wind", "sea", "tree tree tree tree", "old old old old old", ""]
    )
    found = windowed(first, list(second), words, 9)
    assert shown(words, found.input_ids) == [
        "[CLS] sea [SEP] the old river rock sea [SEP]",
        "[CLS] sea [SEP] river rock sea sand wind [SEP]",
        "[CLS] the old river rock sea [SEP] sea [SEP]",
        "[CLS] river rock sea sand wind [SEP] sea [SEP]",
        "[CLS] bird bird [SEP] tree tree tree tree [SEP]",  # it just fits
        "[CLS] a a a [SEP] old old old [SEP]",  # two long ones: the first keeps half of a row
        "[CLS] a a a [SEP] old old old [SEP]",
        "[CLS] wind [SEP] [SEP]",
    ]
    assert found.starts.tolist() == [0, 2, 4, 5, 7, 8]
    assert found.second_starts.tolist() == [3, 3, 7, 7, 4, 5, 5, 3]
    assert found.cut == 1


def test_every_token_is_in_a_window_and_neighbours_share_a_quarter() -> None:
    draw = random.Random(3)
    tokens = np.array([0, 1, *(draw.randrange(3000) for _ in range(500))], np.int64)
    room = np.array([draw.randrange(1, 511) for _ in tokens], np.int64)
    begins, sizes, starts = windows(tokens, room)
    for text, (count, most) in enumerate(zip(tokens.tolist(), room.tolist(), strict=True)):
        own = range(starts[text], starts[text + 1])
        assert {int(sizes[row]) for row in own} == {min(count, most)}
        assert begins[own[0]] == 0 and begins[own[-1]] + sizes[own[-1]] == count
        for row in own[1:]:
            assert begins[row - 1] < begins[row]  # none for nothing
            assert begins[row - 1] + sizes[row - 1] - begins[row] >= most // SHARED
        if len(own) > 1:  # with one less they could not share as much
            assert (len(own) - 1) * most - (len(own) - 2) * (most // SHARED) < count


def test_what_fits_is_the_row_that_it_was(words: Tokenizer) -> None:
    draw = random.Random(4)
    for _ in range(300):
        length = draw.randint(8, 20)
        a, b = (words.encode_ids([" ".join(draw.choices(WORDS[:-1], k=draw.randint(0, 9)))])[0] for _ in range(2))
        second = None if draw.random() < 0.5 else b
        row, second_start, cut = as_row(a, second, words, length)
        found = windowed([a], [second], words, length)
        assert (len(found.input_ids) > 1 or found.cut == 1) == cut
        if not cut:
            assert found.input_ids[0].tolist() == row.tolist()
            assert found.second_starts.tolist() == [second_start]
        assert max(map(len, found.input_ids)) <= length


def test_a_novel_comes_back_out_of_its_windows() -> None:
    text = shared("data/books/novels/Doyle_Hound_1902.txt").read_text(encoding="utf-8")
    vocabulary = shared("data/reference/vocab-bert-base-uncased.txt").read_text(encoding="utf-8").splitlines()
    tokens = tokenizer.make(vocabulary, lowercase=True, strip_accents=True)
    (ids,) = tokens.encode_ids([text])
    found = windowed([ids], [None], tokens, 512)
    begins, sizes, _ = windows(np.array([len(ids)]), np.array([510]))
    again = np.full(len(ids), -1)
    for row, begin, size in zip(found.input_ids, begins, sizes, strict=True):
        assert (row[0], row[-1], len(row)) == (tokens.cls_id, tokens.sep_id, 512)
        again[begin : begin + size] = row[1:-1]
    assert len(found.input_ids) > 150 and again.tolist() == ids.tolist()


# ── what a training step sees ────────────────────────────────────────────────────────────────────────────────────────

STARTS = np.array([0, 3, 4, 14, 15], np.int64)


def test_drawn_windows_follow_from_seed_and_epoch() -> None:
    rows, sizes = drawn_windows(STARTS, np.array([2, 1, 0]), 4, 1, 0)
    assert sizes.tolist() == [4, 1, 3]
    assert rows[4:].tolist() == [3, 0, 1, 2]
    assert sorted(set(rows[:4])) == rows[:4].tolist() and set(rows[:4]) <= set(range(4, 14))
    alone, _ = drawn_windows(STARTS, np.array([2]), 4, 1, 0)
    assert alone.tolist() == rows[:4].tolist()  # whatever else is in the batch
    assert (
        len({tuple(drawn_windows(STARTS, np.array([2]), 4, seed, epoch)[0]) for seed, epoch in np.ndindex(9, 9)}) > 60
    )
    every, sizes = drawn_windows(STARTS, np.arange(4), 10, 1, 0)
    assert every.tolist() == list(range(15)) and sizes.tolist() == [3, 1, 10, 1]
    none, sizes = drawn_windows(STARTS, np.empty(0, np.int64), 4, 1, 0)
    assert (len(none), len(sizes)) == (0, 0)


def test_every_window_is_drawn_as_often() -> None:
    counts = np.zeros(14, np.int64)
    epochs = 3000
    for epoch in range(epochs):
        counts[drawn_windows(STARTS, np.array([2]), 4, 7, epoch)[0]] += 1
    # 1,200 each; binomial with a deviation of 27
    assert np.abs(counts[4:] - epochs * 4 / 10).max() < 120


def test_pooled_logits_by_hand() -> None:
    logits = torch.tensor([[1.0, 4.0], [3.0, 0.0], [5.0, 6.0], [0.0, 0.0], [0.0, 3.0], [3.0, 0.0]], requires_grad=True)
    mean = pooled(logits, torch.tensor([2, 1, 3]))
    assert mean.tolist() == [[2, 2], [5, 6], [1, 1]]
    (mean * torch.tensor([[2.0], [1.0], [6.0]])).sum().backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[1, 1], [1, 1], [1, 1], [2, 2], [2, 2], [2, 2]]


def test_a_window_that_knows_outweighs_those_that_do_not() -> None:
    """The softmax of mean logits is the geometric mean of the windows' probabilities, made to sum to 1."""
    logits = torch.zeros(5, 3, dtype=torch.double)
    logits[4, 1] = 10
    (found,) = pooled(logits, torch.tensor([5])).softmax(1)
    product = logits.softmax(1).prod(0) ** (1 / 5)
    assert torch.allclose(found, product / product.sum())
    assert found.argmax() == 1 and found[1] > 0.78


def test_a_part_without_texts_has_no_logits() -> None:
    assert pooled(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)).shape == (0, 3)
