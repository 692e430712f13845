"""The six choices of layers, against the hidden states of transformers and by value."""

import math

import pytest
import torch
from torch import nn

from model.bert import initialize
from model.layers.attention import Rows
from model.layers.layer_choices import ChosenLayers, LayerChoice, combined, needed, numbers_of, width
from pipeline.config import Architecture
from pipeline.errors import DataError
from tests.model.test_bert import VOCABULARY, model_of, reference_of

SIX = Architecture(layers=6, hidden=16, heads=2, max_positions=16, dropout=0.0)


def states_of(layers: int, hidden: int = 2, tokens: int = 3) -> dict[int, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    return {number: torch.randn(tokens, hidden, generator=random) for number in range(layers + 1)}


@pytest.mark.parametrize(
    ("choice", "numbers", "values"),
    [
        ("embeddings", (0,), 768),
        ("second_to_last", (11,), 768),
        ("last", (12,), 768),
        ("weighted_last_four", (9, 10, 11, 12), 768),
        ("concat_last_four", (9, 10, 11, 12), 3072),
        ("weighted_all", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), 768),
    ],
)
def test_the_papers_choices_of_bert_base(choice: LayerChoice, numbers: tuple[int, ...], values: int) -> None:
    """Devlin et al. 2019, Table 7, for 12 layers of 768."""
    assert numbers_of(choice, 12) == numbers
    assert width(choice, 768) == values


@pytest.mark.parametrize("choice", ["weighted_last_four", "concat_last_four"])
def test_too_few_layers_are_said_with_what_can_be_chosen(choice: LayerChoice) -> None:
    with pytest.raises(DataError, match=rf"{choice} needs an encoder of at least 4 layers, this one has 3") as refused:
        ChosenLayers(choice, 3)
    assert "Choose among embeddings, second_to_last, last, weighted_all," in refused.value.todo
    with pytest.raises(DataError, match="second_to_last needs an encoder of at least 2 layers, this one has 1"):
        numbers_of("second_to_last", 1)
    assert numbers_of("weighted_all", 1) == numbers_of("last", 1) == (1,)
    assert numbers_of(choice, 4) == (1, 2, 3, 4)


def test_only_what_is_read_is_needed() -> None:
    assert needed(["last", "second_to_last"], 12) == (11, 12)
    assert needed(["weighted_last_four", "embeddings", "last"], 12) == (0, 9, 10, 11, 12)


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.5, -0.5]])
def test_a_weighted_sum_by_value(weights: list[float]) -> None:
    low, high = torch.tensor([[1.0, 2.0]]), torch.tensor([[-3.0, 5.0]])
    share = math.exp(weights[0]) / (math.exp(weights[0]) + math.exp(weights[1]))
    found = combined([low, high], torch.tensor(weights))
    expected = [share * 1.0 + (1 - share) * -3.0, share * 2.0 + (1 - share) * 5.0]
    assert found[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_initialized_weights_are_a_mean_and_are_learned() -> None:
    model = nn.ModuleDict({"chosen": ChosenLayers("weighted_last_four", 4), "head": nn.Linear(2, 1)})
    initialize(model, 1)
    states = states_of(4)
    found = model["chosen"](states)
    torch.testing.assert_close(found, (states[1] + states[2] + states[3] + states[4]) / 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(200):  # to tell layer 2 from the others
        optimizer.zero_grad()
        (model["chosen"](states) - states[2]).square().mean().backward()
        optimizer.step()
    assert torch.softmax(model["chosen"].weights, 0).argmax().item() == 1
    assert torch.softmax(model["chosen"].weights, 0)[1].item() > 0.8


@pytest.mark.parametrize("choice", ["embeddings", "second_to_last", "last", "concat_last_four"])
def test_what_learns_no_weights_has_none(choice: LayerChoice) -> None:
    assert not list(ChosenLayers(choice, 6).parameters())


def test_choices_over_our_states_are_those_over_the_states_of_transformers() -> None:
    """A model of six layers, one row: each choice written out over output_hidden_states."""
    model = model_of(SIX)
    ids = torch.randint(0, VOCABULARY, (9,), generator=torch.Generator().manual_seed(2))
    row = ids, torch.zeros_like(ids), torch.arange(9), Rows(torch.tensor([0, 9], dtype=torch.int32), 9)
    with torch.inference_mode():
        ours = dict(enumerate(model.encoder.unpadded_states(*row)))
        h = [state[0] for state in reference_of(model).bert(ids[None], output_hidden_states=True).hidden_states]
    expected = {
        "embeddings": h[0],
        "second_to_last": h[-2],
        "last": h[-1],
        "weighted_last_four": (h[-4] + h[-3] + h[-2] + h[-1]) / 4,
        "concat_last_four": torch.cat([h[-4], h[-3], h[-2], h[-1]], dim=-1),
        "weighted_all": (h[1] + h[2] + h[3] + h[4] + h[5] + h[6]) / 6,
    }
    assert len(h) == 7
    for choice, of_theirs in expected.items():
        with torch.inference_mode():
            found = ChosenLayers(choice, 6)(ours)  # type: ignore[arg-type]
        torch.testing.assert_close(found, of_theirs, atol=1e-5, rtol=0)
