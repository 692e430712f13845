"""Bootstrap intervals against closed forms. Seeds are fixed; every tolerance is stated where it is used."""

import math

import numpy as np
import pytest
from scipy import stats

from model.reporting import bootstrap
from model.reporting.weighted_metrics import accuracy, f1, intervals, mean, pearson, spearman

Z = stats.norm.ppf(0.975)


def answers(right: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.ones(examples, int)
    return labels, np.where(np.arange(examples) < right, 1, 0)


@pytest.mark.parametrize(("right", "examples"), [(200, 400), (380, 400), (45, 50)])
def test_the_accuracy_of_resamples_is_binomial(right: int, examples: int) -> None:
    """Drawing n of n examples with replacement, k of them right, gives a Binomial(n, k/n) number of right ones.

    Tolerance: four standard errors of a quantile of 4,000 draws, and the binomial's own step of 1/n.
    """
    resamples, share = 4000, right / examples
    values = bootstrap.resampled({"a": accuracy(*answers(right, examples))}, examples, resamples=resamples, seed=1)["a"]
    deviation = math.sqrt(share * (1 - share) / examples)
    assert values.mean() == pytest.approx(share, abs=4 * deviation / math.sqrt(resamples))
    assert values.std() == pytest.approx(deviation, abs=4 * deviation / math.sqrt(2 * resamples))
    error_of_quantile = math.sqrt(0.025 * 0.975 / resamples) / stats.norm.pdf(Z) * deviation
    for edge in (0.025, 0.975):
        expected = stats.binom.ppf(edge, examples, share) / examples
        assert np.quantile(values, edge) == pytest.approx(expected, abs=4 * error_of_quantile + 1 / examples)


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    """300 test sets of 300 examples, accuracy 0.8. Tolerance 0.04: three standard errors of the coverage, 0.0126 each."""
    random = np.random.default_rng(2)
    held = 0
    for _ in range(300):
        labels, predictions = answers(random.binomial(300, 0.8), 300)
        interval = intervals(["accuracy"], labels, predictions)["accuracy"]
        held += interval.low <= 0.8 <= interval.high
    assert held / 300 == pytest.approx(0.95, abs=0.04)


def test_intervals_of_corpus_metrics_are_as_wide_as_theory_says() -> None:
    """Tolerance 10 %: a width of 1,000 resamples has a standard error of 4 % (two quantiles, each 0.084 deviations).

    Pearson of normal variables: standard error (1 − r²)/√n. Spearman: (1 − r²)·√((1 + r²/2)/n) (Bonett and Wright 2000).
    F1 = 2a/(2a + b) of the shares a of true positives and b of false ones: by the delta method.
    """
    random = np.random.default_rng(3)
    n = 2000
    x = random.normal(size=n)
    y = 0.6 * x + 0.8 * random.normal(size=n)
    r, rank = stats.pearsonr(x, y).statistic, stats.spearmanr(x, y).statistic
    labels = random.integers(0, 2, n)
    predictions = np.where(random.random(n) < 0.8, labels, 1 - labels)
    a, b = np.mean(labels & predictions), np.mean(labels != predictions)
    by_a, by_b = 2 * b / (2 * a + b) ** 2, -2 * a / (2 * a + b) ** 2
    errors = {
        "pearson": (1 - r**2) / math.sqrt(n),
        "spearman": (1 - rank**2) * math.sqrt((1 + rank**2 / 2) / n),
        "f1": math.sqrt((by_a**2 * a * (1 - a) + by_b**2 * b * (1 - b) - 2 * by_a * by_b * a * b) / n),
    }
    found = bootstrap.intervals(
        {"pearson": pearson(x, y), "spearman": spearman(x, y), "f1": f1(labels, predictions)}, n
    )
    for name, error in errors.items():
        assert found[name].high - found[name].low == pytest.approx(2 * Z * error, rel=0.1), name


def test_groups_count_as_one_draw() -> None:
    """40 articles of 25 questions, all right or all wrong: as uncertain as 40 examples. Tolerances as above."""
    labels, predictions = answers(28 * 25, 40 * 25)
    groups = np.repeat(np.arange(40), 25)
    values = bootstrap.resampled({"a": accuracy(labels, predictions)}, 1000, groups, resamples=4000, seed=4)["a"]
    deviation = math.sqrt(0.7 * 0.3 / 40)
    assert values.std() == pytest.approx(deviation, abs=4 * deviation / math.sqrt(2 * 4000))
    single = intervals(["accuracy"], labels, predictions)["accuracy"]
    grouped = intervals(["accuracy"], labels, predictions, groups)["accuracy"]
    assert grouped.high - grouped.low == pytest.approx(2 * Z * deviation, rel=0.1)
    assert single.high - single.low == pytest.approx(2 * Z * math.sqrt(0.7 * 0.3 / 1000), rel=0.1)


def test_groups_of_unequal_size_are_drawn_whole() -> None:
    """One article of 3 questions and one of 1: a resample holds 2, 4 or 6 questions, and the small one in full or not."""
    seen = bootstrap.resampled({"n": lambda weights: weights.sum(axis=1)}, 4, [0, 0, 0, 1], resamples=200, seed=5)["n"]
    assert set(seen) == {2.0, 4.0, 6.0}


def test_the_same_call_gives_the_same_interval_whatever_else_is_asked() -> None:
    values = np.random.default_rng(6).random(50)
    alone = bootstrap.intervals({"a": mean(values)}, 50)
    assert bootstrap.intervals({"b": mean(1 - values), "a": mean(values)}, 50)["a"] == alone["a"]


def test_large_sets_are_drawn_in_blocks() -> None:
    """More weights than one block holds: still one value a resample, and each resample as many draws as examples."""
    examples = bootstrap._BLOCK // 2 + 1
    seen = bootstrap.resampled({"n": lambda weights: weights.sum(axis=1)}, examples, resamples=3, seed=7)["n"]
    assert seen.tolist() == [examples] * 3


def test_too_few_groups_are_not_drawn() -> None:
    assert bootstrap.useful_groups(np.arange(bootstrap.FEWEST_GROUPS - 1)) is None
    numbers = bootstrap.useful_groups([5, 5, *range(100, 100 + bootstrap.FEWEST_GROUPS)])
    assert numbers is not None and numbers.tolist() == [0, *range(bootstrap.FEWEST_GROUPS + 1)]


def test_no_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="no examples"):
        bootstrap.intervals({"a": mean(np.array([]))}, 0)
