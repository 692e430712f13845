"""Unpadded batches and batches of static shapes hold what a padded batch holds."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from model.batches import Batch, batch_of, next_words, padded_length
from model.bert import BertForPretraining, initialize, pretraining_losses
from model.unpadded import UnpaddedBatch, unpadded_of
from pipeline.errors import DataError
from pipeline.shard_schema import Shards
from tests.model.tiny import ARCHITECTURE, VOCABULARY


def rows_of(count: int, seed: int, pair: bool = True) -> Shards:
    """Random rows of 3 to 16 tokens, with 0 to 3 masked positions each."""
    random = np.random.default_rng(seed)
    lengths = random.integers(3, 17, count)
    masks = np.minimum(random.integers(0, 4, count), lengths - 1)
    positions = [np.sort(random.choice(np.arange(1, n), m, replace=False)) for n, m in zip(lengths, masks, strict=True)]
    return Shards(
        input_ids=random.integers(1, len(VOCABULARY), lengths.sum()).astype(np.uint16),
        input_offsets=np.concatenate([[0], np.cumsum(lengths)]),
        masked_positions=np.concatenate(positions).astype(np.uint16),
        masked_ids=random.integers(0, len(VOCABULARY), masks.sum()).astype(np.uint16),
        masked_offsets=np.concatenate([[0], np.cumsum(masks)]),
        token_type_start=(1 + random.integers(0, lengths - 1)).astype(np.int32) if pair else None,
        label=random.integers(0, 2, count).astype(np.int8) if pair else None,
    )


def padded(batch: UnpaddedBatch, length: int) -> dict[str, list[list[int]]]:
    """Token by token, without numpy."""
    ends = batch.cu_seqlens.tolist()
    rows = list(pairwise(ends))
    fill = [0] * length
    places, ids = batch.masked_places.tolist(), batch.masked_ids.tolist()
    return {
        "input_ids": [(batch.input_ids[a:b].tolist() + fill)[:length] for a, b in rows],
        "token_type_ids": [(batch.token_type_ids[a:b].tolist() + fill)[:length] for a, b in rows],
        "attention_mask": [[column < b - a for column in range(length)] for a, b in rows],
        "masked": [[(p - a, i) for p, i in zip(places, ids, strict=True) if a <= p < b] for a, b in rows],
    }


def masked_of(batch: Batch) -> list[list[tuple[int, int]]]:
    found: list[list[tuple[int, int]]] = [[] for _ in batch.positions]
    width = batch.positions.shape[1]
    for place, id_ in zip(batch.masked_places.tolist(), batch.masked_ids.tolist(), strict=True):
        found[place // width].append((int(batch.positions[place // width, place % width]), id_))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_padding_an_unpadded_batch_gives_the_padded_one(seed: int) -> None:
    rows = rows_of(9, seed, pair=seed % 2 == 0)
    flat, batch = unpadded_of(rows), batch_of(rows, 16)
    found = padded(flat, batch.input_ids.shape[1])
    assert batch.input_ids.tolist() == found["input_ids"]
    assert batch.token_type_ids.tolist() == found["token_type_ids"]
    assert batch.attention_mask.tolist() == found["attention_mask"]
    assert masked_of(batch) == found["masked"]
    assert flat.position_ids.tolist() == [place for length in rows.lengths for place in range(length)]
    assert flat.input_ids[flat.first_tokens.long()].tolist() == batch.input_ids[:, 0].tolist()
    assert (flat.tokens, flat.longest) == (batch.tokens, int(rows.lengths.max()))
    assert (None if flat.labels is None else flat.labels.tolist()) == (
        None if batch.labels is None else batch.labels.tolist()
    )
    kinds = {name: value.dtype for name, value in vars(flat).items() if isinstance(value, torch.Tensor)}
    assert kinds.pop("cu_seqlens") == torch.int32 and set(kinds.values()) == {torch.int64}


def test_static_shapes_follow_from_the_number_of_rows() -> None:
    shapes = set()
    for seed in range(6):
        batch = batch_of(rows_of(5, seed), 16, padded=16, predictions=4)
        assert batch.masked_weights is not None and batch.labels is not None
        tensors = [value for value in vars(batch).values() if isinstance(value, torch.Tensor)]
        shapes.add(tuple((tensor.shape, tensor.dtype) for tensor in tensors))
        assert batch.masked_places.tolist() == [row * 5 + 1 + k for row in range(5) for k in range(4)]
    ((*_, weights),) = shapes
    assert weights == ((20,), torch.float32)
    with pytest.raises(DataError, match="a row has 3 masks, more than 2"):
        batch_of(rows_of(5, 0), 16, padded=16, predictions=2)
    with pytest.raises(DataError, match="tokens, more than 8"):
        batch_of(rows_of(5, 0), 16, padded=8, predictions=4)


@pytest.mark.parametrize("left_to_right", [False, True])
def test_fillers_change_neither_the_loss_nor_the_gradient(left_to_right: bool) -> None:
    """float64: to 1e-12, sums of other length may round otherwise. A changed filler changes not one bit."""
    rows = rows_of(7, 3)
    if left_to_right:
        rows = next_words(rows, np.arange(7), np.zeros(7, np.int64))
    model = BertForPretraining(ARCHITECTURE.model_copy(update={"dropout": 0.0}), len(VOCABULARY), "nsp").double()
    initialize(model, 1)

    def gradients(batch: Batch, filler: int) -> tuple[float, dict[str, torch.Tensor]]:
        model.zero_grad()
        words, _ = model(*batch.model_inputs)
        if batch.masked_weights is None:
            loss = pretraining_losses(words, batch.masked_ids, None, None).total
        else:
            ids = torch.where(batch.masked_weights > 0, batch.masked_ids, filler)
            each = torch.nn.functional.cross_entropy(words, ids, reduction="none")
            loss = (each * batch.masked_weights).sum() / batch.masked_weights.sum()
        loss.backward()
        return loss.item(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    plain, plain_gradients = gradients(batch_of(rows, 16), 0)
    static = batch_of(rows, 16, padded=16, predictions=15)
    found, found_gradients = gradients(static, 0)
    other, other_gradients = gradients(static, 9)
    assert abs(found - plain) < 1e-12 and found == other
    assert plain_gradients.keys() == found_gradients.keys()
    for name, gradient in plain_gradients.items():
        assert torch.allclose(found_gradients[name], gradient, rtol=1e-9, atol=1e-12)
        assert torch.equal(found_gradients[name], other_gradients[name])


@pytest.mark.parametrize(
    ("longest", "shapes", "padded"), [(1, 4, 32), (33, 4, 64), (128, 4, 128), (33, 8, 48), (97, 8, 112), (65, 1, 128)]
)
def test_padded_lengths(longest: int, shapes: int, padded: int) -> None:
    assert padded_length(longest, 128, shapes) == padded
