"""The bidirectional LSTM over rows one after the other, against torch's over each row alone."""

import numpy as np
import pytest
import torch
from torch import nn

from model.bert import Bert, initialize
from model.layers.attention import Rows
from model.layers.bilstm import BiLSTM, time_major
from tests.model.tiny import ARCHITECTURE, VOCABULARY

LENGTHS = [3, 1, 7, 3, 5]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def rows_of(lengths: list[int]) -> Rows:
    return Rows(torch.tensor([0, *lengths]).cumsum(0).int(), max(lengths))


def network(dtype: torch.dtype = torch.float64, hidden: int = 5) -> BiLSTM:
    model = BiLSTM(4, hidden, 2)
    initialize(model, 3)
    with torch.no_grad():
        for parameter in model.parameters():  # far from their initial values: both biases count
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    return model.to(dtype)


def values_of(lengths: list[int], seed: int = 1, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(sum(lengths), 4, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def one_by_one(model: BiLSTM, values: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """Every row alone, as a plain sequence."""
    return torch.cat([model.lstm(row)[0] for row in values.split(lengths)])


@pytest.mark.parametrize("lengths", [LENGTHS, [4], [1, 1], [2, 0, 3]])
def test_every_row_is_read_as_torch_reads_it_alone(lengths: list[int]) -> None:
    """float64: values and gradients to 1e-12."""
    model, values = network(), values_of(lengths).requires_grad_()
    weights = torch.randn(sum(lengths), model.width, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    inputs = (values, *model.parameters())
    found = model(values, rows_of(lengths))
    expected = one_by_one(model, values, [length for length in lengths if length])
    assert found.shape == (sum(lengths), 10)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    ours, theirs = (torch.autograd.grad(out, inputs, weights) for out in (found, expected))
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


def test_a_token_by_the_formula() -> None:
    """One layer over two tokens, forward and backward, by the equations of torch's documentation in numpy."""
    model = BiLSTM(4, 3, 1).double()
    initialize(model, 5)
    values = values_of([2])
    weights = {name: parameter.detach().numpy() for name, parameter in model.lstm.named_parameters()}

    def read(tokens: np.ndarray, suffix: str) -> np.ndarray:
        h, c, found = np.zeros(3), np.zeros(3), []
        for token in tokens:
            gates = weights[f"weight_ih_l0{suffix}"] @ token + weights[f"bias_ih_l0{suffix}"]
            gates = gates + weights[f"weight_hh_l0{suffix}"] @ h + weights[f"bias_hh_l0{suffix}"]
            i, f, g, o = np.split(gates, 4)
            open_ = [1 / (1 + np.exp(-gate)) for gate in (i, f, o)]
            c = open_[1] * c + open_[0] * np.tanh(g)
            h = open_[2] * np.tanh(c)
            found.append(h)
        return np.array(found)

    forward, backward = read(values.numpy(), ""), read(values.numpy()[::-1], "_reverse")[::-1]
    found = model(values, rows_of([2])).detach().numpy()
    np.testing.assert_allclose(found, np.concatenate([forward, backward], 1), atol=1e-12)


def test_neither_the_order_of_rows_nor_their_neighbours_change_a_row() -> None:
    """fp32; matrix products of other sizes may round otherwise."""
    model, values, rows = network(torch.float32), values_of(LENGTHS, dtype=torch.float32), rows_of(LENGTHS)
    found = model(values, rows).split(LENGTHS)
    order = [4, 0, 3, 1, 2]
    moved = torch.cat([values.split(LENGTHS)[row] for row in order])
    again = model(moved, rows_of([LENGTHS[row] for row in order])).split([LENGTHS[row] for row in order])
    for place, row in enumerate(order):
        torch.testing.assert_close(again[place], found[row], atol=1e-6, rtol=0)
    changed = values.clone()
    changed[4:11] = 100.0  # all of row 2, the longest
    others = model(changed, rows).split(LENGTHS)
    for row in (0, 1, 3, 4):
        torch.testing.assert_close(others[row], found[row], atol=1e-6, rtol=0)
    assert not torch.allclose(others[2], found[2])


def test_the_same_rows_give_the_same_bits() -> None:
    model, values, rows = network(torch.float32), values_of(LENGTHS, dtype=torch.float32), rows_of(LENGTHS)

    def gradients() -> list[torch.Tensor]:
        found = model(values, rows)
        return [found, *torch.autograd.grad(found.square().sum(), list(model.parameters()))]

    assert all(torch.equal(first, second) for first, second in zip(gradients(), gradients(), strict=True))


def test_its_state_is_fp32_under_autocast() -> None:
    model, values = network(torch.float32), values_of(LENGTHS, dtype=torch.bfloat16)
    expected = model(values.float(), rows_of(LENGTHS))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(values, rows_of(LENGTHS))
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_a_batch_of_rows_without_tokens_gives_nothing() -> None:
    assert network()(values_of([0, 0]), rows_of([0, 0])).shape == (0, 10)


def test_tokens_in_the_order_in_which_they_are_read() -> None:
    """Rows a0, bcd = 1 2 3, ef = 4 5: first the first of each, longer rows first."""
    order, sizes = time_major(np.array([1, 3, 2]))
    assert order.tolist() == [1, 4, 0, 2, 5, 3]
    assert sizes.tolist() == [3, 2, 1]


def test_weights_follow_from_the_seed_and_leave_those_of_the_encoder() -> None:
    def both(seed: int) -> nn.ModuleDict:
        encoder = Bert(ARCHITECTURE, len(VOCABULARY))
        found = nn.ModuleDict({"encoder": encoder, "bilstm": BiLSTM(ARCHITECTURE.hidden, 64, 2)})
        torch.manual_seed(0)  # whatever was drawn before
        torch.rand(seed)
        initialize(found, seed)
        return found

    first, again, other = both(1), both(1), both(2)
    alone = Bert(ARCHITECTURE, len(VOCABULARY))
    initialize(alone, 1)
    weights = first.state_dict()
    for name, value in alone.state_dict().items():
        assert torch.equal(weights[f"encoder.{name}"], value)
    for name, value in weights.items():
        assert torch.equal(value, again.state_dict()[name])
    for name, value in first["bilstm"].lstm.named_parameters():
        if value.ndim > 1:
            # uniform: nothing beyond ±1/√64, and a std of 1/√(3 · 64) = 0.0722
            assert value.abs().max().item() <= 0.125
            assert value.std().item() == pytest.approx(0.0722, rel=0.05)
            assert not torch.equal(value, other["bilstm"].lstm.get_parameter(name))
        else:
            forget = 1.0 if name.startswith("bias_ih") else 0.0
            gates = [part.unique().tolist() for part in value.split(64)]
            assert gates == [[0.0], [forget], [0.0], [0.0]]


def test_at_768_units_it_begins_as_wide_as_bert_does() -> None:
    """What _initialize_lstm says: a std of 1/√(3 · 768) = .0208."""
    model = BiLSTM(16, 768, 1)
    initialize(model, 1)
    assert model.lstm.weight_hh_l0.std().item() == pytest.approx(0.0208, rel=0.01)
