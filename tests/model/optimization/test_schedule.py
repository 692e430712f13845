"""Learning rates by hand, and against the schedulers of torch and transformers."""

import math

import pytest
import torch

from model.optimization.schedule import learning_rate


def test_line_by_hand() -> None:
    # warm-up of 10 steps to 1e-4, then the line from 1e-4 at step 0 to 0 at step 100
    rates = {0: 1e-5, 4: 5e-5, 9: 1e-4, 10: 0.9e-4, 50: 0.5e-4, 99: 1e-6}
    for step, rate in rates.items():
        assert learning_rate(step, 1e-4, 10, 100) == pytest.approx(rate, rel=1e-12)
    assert learning_rate(0, 1e-4, 0, 100) == 1e-4
    # at the end of the paper's warm-up the rate drops by a hundredth
    assert learning_rate(10_000, 1e-4, 10_000, 1_000_000) == pytest.approx(0.99e-4)


def test_root_by_hand() -> None:
    # NVIDIA's first phase: 6e-3, 7,038 steps, warm-up 2,000, power ½; √(1 − 2000 / 7038) = 0.846066
    assert learning_rate(1999, 6e-3, 2000, 7038, power=0.5) == 6e-3
    assert learning_rate(2000, 6e-3, 2000, 7038, power=0.5) == pytest.approx(6e-3 * 0.846066, rel=1e-6)
    assert learning_rate(7037, 6e-3, 2000, 7038, power=0.5) == pytest.approx(6e-3 / math.sqrt(7038), rel=1e-9)
    # power 2: a quarter at half
    assert learning_rate(50, 1.0, 0, 100, power=2) == 0.25


def test_polynomial_is_that_of_torch() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    theirs = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=50, power=0.5)
    for step in range(50):
        assert learning_rate(step, 1.0, 0, 50, power=0.5) == pytest.approx(theirs.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        theirs.step()


def test_warmup_stable_decay_by_hand() -> None:
    # 100 steps, warm-up 10, the last 20 fall: steps 10–80 at 2, then 2 · (100 − step) / 20
    rates = {0: 0.2, 9: 2.0, 10: 2.0, 79: 2.0, 80: 2.0, 81: 1.9, 90: 1.0, 99: 0.1}
    for step, rate in rates.items():
        assert learning_rate(step, 2.0, 10, 100, decay_steps=20) == pytest.approx(rate, rel=1e-12)
    # what a longer run does in its stable part is what a shorter one did: it can go on from there
    assert [learning_rate(s, 2.0, 10, 100, decay_steps=20) for s in range(80)] == [
        learning_rate(s, 2.0, 10, 500, decay_steps=50) for s in range(80)
    ]


@pytest.mark.parametrize("options", [{}, {"power": 0.5}, {"power": 10.0}, {"decay_steps": 1}, {"decay_steps": 100_000}])
@pytest.mark.parametrize(("warmup", "total"), [(0, 1), (1, 2), (10_000, 1_000_000)])
def test_no_step_is_without_a_rate(options: dict[str, float], warmup: int, total: int) -> None:
    peak = 1e-4
    for step in {0, warmup - 1, warmup, total // 2, total - 1} - {-1}:
        assert 0 < learning_rate(step, peak, warmup, total, **options) <= peak  # type: ignore[arg-type]
