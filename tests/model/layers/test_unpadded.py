"""Unpadded batches and batches of static shapes hold what a padded batch holds."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from model.bert import BertForPretraining, initialize, pretraining_losses
from model.feeding.batches import Batch, batch_of, padded_length
from model.feeding.targets import next_words
from model.layers.attention import Rows, _Attention, _by_kernel, unpadded
from model.layers.dropout import Dropout, kept
from model.layers.unpadded import UnpaddedBatch, unpadded_of
from pipeline.errors import DataError
from pipeline.sharding.shard_schema import Shards
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
    ends = batch.rows.starts.tolist()
    rows = list(pairwise(ends))
    fill = [0] * length
    places, ids = batch.asked[batch.masked_places].tolist(), batch.masked_ids.tolist()
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
    asked = [part.tolist() for part in flat.asked.split(flat.asked_rows.lengths)]
    starts = rows.input_offsets.tolist()
    assert asked == [
        [start, *(start + place for place, _ in masks)] for start, masks in zip(starts, found["masked"], strict=False)
    ]
    assert (flat.tokens, flat.rows.longest) == (batch.tokens, int(rows.lengths.max()))
    assert flat.asked_rows.longest == max(map(len, asked))
    assert (None if flat.labels is None else flat.labels.tolist()) == (
        None if batch.labels is None else batch.labels.tolist()
    )
    kinds = {name: value.dtype for name, value in vars(flat).items() if isinstance(value, torch.Tensor)}
    assert set(kinds.values()) == {torch.int64}
    assert flat.rows.starts.dtype == flat.asked_rows.starts.dtype == torch.int32


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


def gradients_of(model: BertForPretraining, batch: Batch | UnpaddedBatch) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradient of every parameter."""
    model.zero_grad()
    words, sentences = batch.logits(model)
    loss = pretraining_losses(words, batch.masked_ids, sentences, batch.labels).total
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


ROWS = {
    "nine": rows_of(9, 3),
    "one": rows_of(1, 4),
    "unlike": rows_of(40, 5).take(
        np.array([int(np.argmin(rows_of(40, 5).lengths)), int(np.argmax(rows_of(40, 5).lengths))])
    ),
}


@pytest.mark.parametrize("which", ROWS)
@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
@pytest.mark.parametrize("task", ["nsp", "none"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_without_padding_loss_and_gradients_are_those_with_it(
    which: str, attention: str, task: str, dtype: torch.dtype, tolerance: float
) -> None:
    rows = ROWS[which]
    if attention == "causal":
        rows = next_words(rows, np.arange(len(rows)), np.zeros(len(rows), np.int64))
    architecture = ARCHITECTURE.model_copy(update={"dropout": 0.0, "attention": attention, "layers": 3})
    model = BertForPretraining(architecture, len(VOCABULARY), task).to(dtype)
    initialize(model, 1)
    with torch.no_grad():
        for parameter in model.parameters():  # far from their initial values: every bias counts
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2), dtype=dtype)
    expected, of_padded = gradients_of(model, batch_of(rows, 16))
    for checkpointing in (False, True):
        model.encoder.checkpointing = checkpointing
        found, of_unpadded = gradients_of(model, unpadded_of(rows))
        assert abs(found - expected) < tolerance
        assert of_unpadded.keys() == of_padded.keys()
        for name, gradient in of_padded.items():
            torch.testing.assert_close(of_unpadded[name], gradient, atol=tolerance, rtol=tolerance, msg=name)


@pytest.mark.parametrize("form", ["padded", "unpadded"])
def test_a_layer_computed_twice_gives_the_same_bits(form: str) -> None:
    """With dropout, on a CPU, in fp32 and under bf16: the second time drops the same units."""
    model = BertForPretraining(ARCHITECTURE, len(VOCABULARY), "nsp")
    initialize(model, 1)
    batch = batch_of(ROWS["nine"], 16) if form == "padded" else unpadded_of(ROWS["nine"])
    for half in (False, True):
        found = []
        for model.encoder.checkpointing in (False, True):
            torch.manual_seed(5)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                found.append(gradients_of(model, batch))
        (loss, kept), (again, computed) = found
        assert loss == again and kept.keys() == computed.keys()
        assert all(torch.equal(kept[name], computed[name]) for name in kept)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_dropout_is_that_of_torch_with_the_same_units_dropped(causal: bool) -> None:
    """float64, rows of 1, 4, 2 and 7 tokens, two heads of three, 30 % dropped: values to 1e-12, gradients by differences."""
    sizes, dropped, seed = [1, 4, 2, 7], 0.3, 11
    random = torch.Generator().manual_seed(1)
    asking = sizes if causal else [1, 2, 1, 3]
    q, k, v = (
        torch.randn(sum(some), 2, 3, generator=random, dtype=torch.float64, requires_grad=True)
        for some in (asking, sizes, sizes)
    )

    def mixed(*parts: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = _Attention.apply(*parts, (asking, sizes), causal, dropped, seed)
        return found

    bits = np.random.SFC64(seed)
    expected = []
    for a, b, c in zip(q.split(asking), k.split(sizes), v.split(sizes), strict=True):
        scores = torch.einsum("qad,kad->aqk", a, b) / 3**0.5
        if causal:
            scores = scores + torch.full(scores.shape[1:], -torch.inf, dtype=torch.float64).triu(1)
        units = kept(tuple(scores.shape), dropped, bits, torch.float64)
        expected.append(torch.einsum("aqk,kad->qad", scores.softmax(-1) * units * 65536 / (65536 - 19661), c))
    torch.testing.assert_close(mixed(q, k, v), torch.cat(expected), atol=1e-12, rtol=0)
    assert torch.autograd.gradcheck(mixed, (q, k, v))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("asking", [[1, 2, 1], [3, 7, 1]])
def test_nested_tensors_give_the_attention_of_rows(asking: list[int]) -> None:
    """What a GPU is to use, here with torch's kernel for CPUs, which knows no causal one; float64, to 1e-12."""
    looked_at = [3, 7, 1]
    random = torch.Generator().manual_seed(1)
    q, k, v = (
        torch.randn(sum(some), 2, 8, generator=random, dtype=torch.float64, requires_grad=True)
        for some in (asking, looked_at, looked_at)
    )
    of_asking, of_all = (Rows(torch.tensor([0, *some]).cumsum(0).int(), max(some)) for some in (asking, looked_at))
    by_row = unpadded(of_asking, of_all)(q, k, v, 0.0)
    by_kernel = _by_kernel(q, k, v, of_asking, of_all, causal=False, dropout=0.0)
    torch.testing.assert_close(by_kernel, by_row, atol=1e-12, rtol=0)
    weights = torch.randn(by_row.shape, generator=random, dtype=torch.float64)
    ours = torch.autograd.grad(by_kernel, (q, k, v), weights)
    torch.testing.assert_close(ours, torch.autograd.grad(by_row, (q, k, v), weights), atol=1e-12, rtol=0)


def test_dropout_drops_its_share_and_moves_no_mean() -> None:
    """2 million values, seed 3. The share 0.1 is 6554 / 65536; 5 standard deviations are 0.00107."""
    dropout, ones = Dropout(0.1), torch.ones(2000, 1000)
    torch.manual_seed(3)
    found = dropout(ones)
    share = (found == 0).double().mean().item()
    assert share == pytest.approx(6554 / 65536, abs=0.00107)
    assert found.double().mean().item() == pytest.approx(1, abs=0.0012)
    assert found.unique().tolist() == [0.0, pytest.approx(1 / (1 - 6554 / 65536))]
    by_row = (found == 0).double().mean(1)
    assert by_row.std().item() == pytest.approx((0.1 * 0.9 / 1000) ** 0.5, rel=0.1)
    assert not torch.equal(dropout(ones), found)
    torch.manual_seed(3)
    assert torch.equal(dropout(ones), found)
    assert torch.equal(dropout.eval()(ones), ones)
    assert Dropout(0.1)(ones.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize(
    ("longest", "shapes", "padded"), [(1, 4, 32), (33, 4, 64), (128, 4, 128), (33, 8, 48), (97, 8, 112), (65, 1, 128)]
)
def test_padded_lengths(longest: int, shapes: int, padded: int) -> None:
    assert padded_length(longest, 128, shapes) == padded
