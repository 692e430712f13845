"""The optimizers against float64 references in numpy and against torch.optim; clipping by hand."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from model.optimization.lamb import Lamb
from model.optimization.optimizer import AdamW, Optimizer, clip_gradients


def reference(
    weights: list[np.ndarray],
    gradients: list[list[np.ndarray]],
    rates: list[float],
    decays: list[float],
    correct: bool,
    lamb: bool = False,
) -> list[np.ndarray]:
    """optimization.py L126-149, written out for each array: m, v, update = m / (√v + ε) + decay · p; LAMB (You et al.
    2020, algorithm 2) brings the update of a decayed array to the norm of the array."""
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for number, (rate, step) in enumerate(zip(rates, gradients, strict=True), start=1):
        for i, gradient in enumerate(step):
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.999 * second[i] + 0.001 * gradient**2
            m, v = first[i], second[i]
            if correct:
                m, v = m / (1 - 0.9**number), v / (1 - 0.999**number)
            update = m / (np.sqrt(v) + 1e-6) + decays[i] * weights[i]
            if lamb and decays[i]:
                update *= math.sqrt((weights[i] ** 2).sum()) / math.sqrt((update**2).sum())
            weights[i] = weights[i] - rate * update
    return weights


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize("kind", [AdamW, Lamb])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_ten_steps_against_numpy(kind: type[Optimizer], correct: bool, dtype: torch.dtype, tolerance: float) -> None:
    random = np.random.default_rng(4)
    shapes = {"matrix": (5, 3), "bias": (7,), "embedding": (11, 2)}
    start = [random.normal(size=shape) for shape in shapes.values()]
    gradients = [[random.normal(size=shape) * 10.0**-step for shape in shapes.values()] for step in range(10)]
    rates = [0.1 / (step + 1) for step in range(10)]
    parameters = {name: nn.Parameter(torch.tensor(w, dtype=dtype)) for name, w in zip(shapes, start, strict=True)}
    optimizer = kind(parameters.items(), weight_decay=0.01, bias_correction=correct)
    for rate, step in zip(rates, gradients, strict=True):
        for parameter, gradient in zip(parameters.values(), step, strict=True):
            parameter.grad = torch.tensor(gradient, dtype=dtype)
        optimizer.step(rate)
    expected = reference(start, gradients, rates, [0.01, 0.0, 0.01], correct, kind is Lamb)
    for parameter, by_hand in zip(parameters.values(), expected, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), by_hand, atol=tolerance)


def test_trust_ratio_by_hand() -> None:
    """First corrected step, no decay: the update is the sign of the gradient, of norm 2 for 2 × 2; ‖p‖ = 20 000: no clamp."""
    weight = nn.Parameter(torch.full((2, 2), 10_000.0, dtype=torch.float64))
    weight.grad = torch.tensor([[3.0, -3.0], [3.0, 3.0]], dtype=torch.float64)
    Lamb([("weight", weight)], weight_decay=0.0, bias_correction=True).step(0.01)
    torch.testing.assert_close(
        weight.detach(), torch.tensor([[9900.0, 10100.0], [9900.0, 9900.0]]).double(), atol=1e-3, rtol=0
    )
    small = nn.Parameter(torch.full((2, 2), 1e-9, dtype=torch.float64))  # nor from below
    small.grad = torch.ones(2, 2, dtype=torch.float64)
    Lamb([("weight", small)], weight_decay=0.0, bias_correction=True).step(0.01)
    torch.testing.assert_close(small.detach(), torch.full((2, 2), 0.99e-9).double(), atol=1e-15, rtol=0)


def test_trust_ratio_is_one_for_what_is_not_decayed_and_where_a_norm_is_0() -> None:
    bias, zeros = nn.Parameter(torch.full((4,), 50.0)), nn.Parameter(torch.zeros(2, 2))
    still = nn.Parameter(torch.ones(2, 2))
    bias.grad, zeros.grad, still.grad = torch.ones(4), torch.ones(2, 2), torch.zeros(2, 2)
    named = [("bias", bias), ("zeros", zeros), ("still", still)]
    Lamb(named, weight_decay=0.0, bias_correction=True).step(0.01)
    torch.testing.assert_close(bias.detach(), torch.full((4,), 49.99), atol=1e-5, rtol=0)
    torch.testing.assert_close(zeros.detach(), torch.full((2, 2), -0.01), atol=1e-6, rtol=0)
    assert (still == 1).all()


def test_first_step_by_hand() -> None:
    # g = 0.5: m = 0.05, v = 0.00025, m / √v = 3.16228; without correction the first step is 3.16 times the rate
    weight = nn.Parameter(torch.tensor([[1.0]], dtype=torch.float64))
    weight.grad = torch.tensor([[0.5]], dtype=torch.float64)
    AdamW([("weight", weight)], weight_decay=0.0).step(0.01)
    assert weight.item() == pytest.approx(1 - 0.01 * 0.05 / (math.sqrt(0.00025) + 1e-6), abs=1e-12)
    # with correction m = 0.5, v = 0.25: exactly one rate
    weight = nn.Parameter(torch.tensor([[1.0]], dtype=torch.float64))
    weight.grad = torch.tensor([[0.5]], dtype=torch.float64)
    AdamW([("weight", weight)], weight_decay=0.0, bias_correction=True).step(0.01)
    assert weight.item() == pytest.approx(1 - 0.01 * 0.5 / (0.5 + 1e-6), abs=1e-12)


def test_bias_correction_is_that_of_torch() -> None:
    generator = torch.Generator().manual_seed(2)
    ours, theirs = (nn.Parameter(torch.ones(4, 4)) for _ in range(2))
    optimizer = AdamW([("w", ours)], weight_decay=0.1, epsilon=1e-8, bias_correction=True)
    other = torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1, eps=1e-8)
    for _ in range(20):
        gradient = torch.randn(4, 4, generator=generator)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        optimizer.step(0.01)
        other.step()
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_a_parameter_without_gradient_stays_and_is_not_decayed() -> None:
    used, unused = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    used.grad = torch.ones(2, 2)
    AdamW([("used", used), ("unused", unused)], weight_decay=0.5).step(0.1)
    assert (unused == 1).all() and (used < 1).all()


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize("kind", [AdamW, Lamb])
def test_state_continues_byte_for_byte(kind: type[Optimizer], correct: bool) -> None:
    def run(steps: range, weight: nn.Parameter, optimizer: Optimizer) -> None:
        for step in steps:
            weight.grad = torch.full((3, 3), math.sin(step))
            optimizer.step(0.01)

    whole = nn.Parameter(torch.ones(3, 3))
    run(range(8), whole, kind([("w", whole)], bias_correction=correct))
    half = nn.Parameter(torch.ones(3, 3))
    before = kind([("w", half)], bias_correction=correct)
    run(range(4), half, before)
    after = kind([("w", half)], bias_correction=correct)
    after.load_state({name: moment.clone() for name, moment in before.state().items()}, before.updates)
    run(range(4, 8), half, after)
    assert torch.equal(whole, half)


def test_clipping_by_hand() -> None:
    first, second = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    first.grad, second.grad = torch.tensor([3.0]), torch.tensor([4.0])
    assert clip_gradients([first, second], 1.0) == pytest.approx(5)
    assert [first.grad.item(), second.grad.item()] == pytest.approx([0.6, 0.8])
    assert clip_gradients([first, second], 1.5) == pytest.approx(1)
    assert [first.grad.item(), second.grad.item()] == pytest.approx([0.6, 0.8])
    second.grad = torch.tensor([math.inf])
    assert not math.isfinite(clip_gradients([first, second], 1.0))
    assert first.grad.item() == pytest.approx(0.6)
