"""Gates: what passes and what fails, by hand calculation."""

import numpy as np
import pytest

from model.promotion import gates
from pipeline.config import Gates

LIMITS = Gates()


def of(values: list[float], ours: float, theirs: float) -> gates.Difference:
    """A difference whose resamples are these."""
    return gates.difference(ours, theirs, (np.array(values), np.zeros(len(values))), 100)


def test_a_difference_has_the_interval_of_the_paired_resamples() -> None:
    ours, theirs = np.linspace(0, 1000, 1001) + 3, np.linspace(0, 1000, 1001)
    found = gates.difference(80, 77, (ours, theirs), 50)
    assert (found.value, found.low, found.high) == (3, 3, 3), "what both share is gone: that is what pairing is for"
    spread = of(list(range(1001)), 5, 0)
    assert (spread.low, spread.high) == pytest.approx((25, 975))


@pytest.mark.parametrize(
    ("low", "epsilon", "passed"), [(-1.99, None, True), (-2.01, None, False), (-2.01, 2.5, True), (0.5, 0.0, True)]
)
def test_a_task_is_not_worse_where_its_lower_end_is_not_below_epsilon(
    low: float, epsilon: float | None, passed: bool
) -> None:
    limits = LIMITS if epsilon is None else Gates(by_task={"cola": epsilon})
    gate = gates.task("cola", "matthews", "dev", gates.Difference(50, 50.5, low, 1, 1043), "texts", limits)
    assert gate.passed is passed and gate.name == "cola.matthews"
    assert ("too few to show" in gate.why) is (not passed), "the score itself is within ε: more examples, or a larger ε"


def test_loss_is_worse_when_it_is_higher_and_pairs_when_they_are_fewer() -> None:
    better, worse = gates.Difference(2.0, 2.1, -0.12, -0.08, 900), gates.Difference(2.1, 2.0, 0.01, 0.12, 900)
    assert gates.held_out_loss(better, "masked word", "", LIMITS).passed is True
    assert gates.held_out_loss(worse, "masked word", "", LIMITS).passed is False
    assert gates.sentence_pairs(gates.Difference(97, 97.2, -0.9, 0.5, 900), LIMITS).passed is True
    assert gates.sentence_pairs(gates.Difference(97, 97.2, -1.1, 0.5, 900), LIMITS).passed is False


def test_the_rest_by_hand() -> None:
    health = {g.name: g.passed for g in gates.health("pretrained_128", 1000, 11, 10, LIMITS)}
    assert health == {"pretrained_128.skipped_steps": False, "pretrained_128.loss_spikes": True}
    assert gates.floor("cola", 24.99, 25).passed is False and gates.floor("cola", 25.0, 25).passed is True
    assert gates.floor("cola", None, 0).passed is False, "no score reaches no floor"
    assert gates.barred("a" * 64, ["a" * 64]).passed is False and gates.barred("b" * 64, ["a" * 64]).passed is True
    assert gates.seeds("cola", 2, 3).passed is False
    assert gates.complete(["CoLA"], 3).passed is False and "CoLA" in gates.complete(["CoLA"], 3).observed
    assert gates.words(900, 1000, 0.1).passed is True and gates.words(899, 1000, 0.1).passed is False
    assert gates.contamination("rte", 0.051, 0.0, 0.05).passed is False
    assert gates.contamination("rte", 0.24, 0.2, 0.05).passed is True
    assert gates.drift("length", 0.26, 0.25).passed is False
    assert gates.files(["x is broken"]).passed is False and gates.card(["Use"]).passed is False


def test_one_failed_gate_is_enough_and_is_named_with_its_number() -> None:
    found = [gates.files([]), gates.without("champion", "none"), gates.floor("cola", 20.0, 25)]
    assert gates.verdict(found) == "keep" and gates.verdict(found[:2]) == "promote"
    content = {"gates": [g.plain() for g in found], "version": "c" * 64, "champion": "d" * 64}
    told = gates.in_words(content)
    assert "failed 1 of 3 gates, dddddddddddd stays the champion" in told and "floor.cola: 20.00 (wanted ≥ 25)" in told
    content["gates"] = content["gates"][:2]
    assert gates.in_words(content) == "Release cccccccccccc passed every gate in the place of dddddddddddd."
    assert gates.verdict([gates.unknown("held_out", "gone")]) == "keep", "what can't be known is no proof"
