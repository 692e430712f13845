"""Gates: what a model is held against before it becomes the champion. Pure functions of numbers.

A score counts as not worse than the champion's where that is shown and not only hoped for: the lower end of the 95 % interval of
the difference, of a paired bootstrap over the same examples, must not be below -ε (non-inferiority; Efron and Tibshirani
1993, chapter 13, for the intervals).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy.typing as npt

from model.reporting import bootstrap
from pipeline.config import Gates

Numbers = npt.NDArray[Any]
POINTS = 100
"""of a share"""


@dataclass(frozen=True)
class Gate:
    """One thing that was looked at."""

    name: str
    passed: bool | None
    """None: it does not count here, and `why` says so"""
    observed: str
    limit: str
    why: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Difference:
    """A number of the challenger less the champion's, on the same examples."""

    ours: float
    theirs: float
    low: float
    """lower end of the 95 % interval of the difference"""
    high: float
    drawn: int
    """how many examples, articles or documents there are to draw from"""

    @property
    def value(self) -> float:
        """The difference itself."""
        return self.ours - self.theirs


def difference(ours: float, theirs: float, resamples: tuple[Numbers, Numbers], drawn: int) -> Difference:
    """resamples: the two numbers in the same resamples, float64 [resamples] each."""
    return Difference(ours, theirs, *bootstrap.ends(resamples[0] - resamples[1]), drawn)


# ── one by one ───────────────────────────────────────────────────────────────────────────────────────────────────────


def files(problems: Sequence[str]) -> Gate:
    """Every byte of the release is what its manifest says."""
    return Gate("files_verified", not problems, "; ".join(problems) or "every byte", "every byte")


def card(missing: Sequence[str]) -> Gate:
    """The release's card says what a card has to say."""
    return Gate("card_complete", not missing, f"lacks {', '.join(missing)}" if missing else "complete", "complete")


def barred(version: str, bans: Sequence[str]) -> Gate:
    """A version that a person barred, or that was rolled back, does not come back by itself."""
    is_barred = version in bans
    todo = f'If that no longer holds: bert bar {version[:12]} --lift --reason "…"' if is_barred else ""
    return Gate("not_barred", not is_barred, "barred" if is_barred else "not barred", "not barred", todo)


def health(phase: str, steps: int, skipped: int, spikes: int, limits: Gates) -> Iterator[Gate]:
    """Of one phase of pretraining: updates that were skipped because they were not finite, and jumps of the loss."""
    share = skipped / max(1, steps)
    yield Gate(
        f"{phase}.skipped_steps",
        share <= limits.skipped_steps,
        f"{skipped:,} of {steps:,}",
        f"≤ {POINTS * limits.skipped_steps:g} %",
    )
    yield Gate(f"{phase}.loss_spikes", spikes <= limits.loss_spikes, f"{spikes:,}", f"≤ {limits.loss_spikes:,}")


def floor(name: str, points: float | None, least: float) -> Gate:
    """A score that must be reached whatever the champion has."""
    shown = "no score" if points is None else f"{points:.2f}"
    return Gate(f"floor.{name}", points is not None and points >= least, shown, f"≥ {least:g}")


def seeds(task: str, counted: int, least: int) -> Gate:
    """Enough trainings of a task came out."""
    return Gate(f"{task}.seeds", counted >= least, f"{counted}", f"≥ {least}")


def complete(missing: Sequence[str], scored: int) -> Gate:
    """Every task that the champion was scored on has been scored."""
    shown = f"no score of {', '.join(missing)}" if missing else f"all {scored}"
    return Gate("tasks_scored", not missing, shown, "every task that the champion was scored on")


def task(name: str, metric: str, part: str, found: Difference, unit: str, limits: Gates) -> Gate:
    """A task's score, in points."""
    epsilon = limits.by_task.get(name, limits.tasks)
    passed = found.low >= -epsilon
    why = f"{found.drawn:,} {unit} of {part}"
    if not passed and found.value >= -epsilon:
        why += f": too few to show that it is not worse; retrain.gates.by_task.{name} says how much it may be"
    return Gate(
        f"{name}.{metric}",
        passed,
        f"{found.ours:.2f} against {found.theirs:.2f}: {_signed(found.value)}, at worst {_signed(found.low)}",
        f"at worst ≥ −{epsilon:g}",
        why,
    )


def held_out_loss(found: Difference, per: str, why: str, limits: Gates) -> Gate:
    """Loss on the same held-out text, in nats; higher is worse."""
    return Gate(
        "held_out.loss",
        found.high <= limits.held_out_loss,
        f"{found.ours:.4f} against {found.theirs:.4f} per {per}: {_signed(found.value, 4)}, at worst {_signed(found.high, 4)}",
        f"at worst ≤ +{limits.held_out_loss:g}",
        why,
    )


def sentence_pairs(found: Difference, limits: Gates) -> Gate:
    """Right sentence pairs of the same held-out text, in points."""
    epsilon = POINTS * limits.sentence_pairs
    return Gate(
        "held_out.sentence_pairs",
        found.low >= -epsilon,
        f"{found.ours:.2f} against {found.theirs:.2f}: {_signed(found.value)}, at worst {_signed(found.low)}",
        f"at worst ≥ −{epsilon:g}",
    )


def words(ours: int, theirs: int, shrink: float) -> Gate:
    """The training text did not shrink."""
    least = round((1 - shrink) * theirs)
    return Gate("documents.characters", ours >= least, f"{ours:,} against {theirs:,}", f"≥ {least:,}")


def drift(name: str, index: float, most: float) -> Gate:
    """A population stability index (model/promotion/drift.py)."""
    return Gate(f"documents.{name}_drift", index <= most, f"{index:.3f}", f"≤ {most:g}")


def contamination(task: str, ours: float, theirs: float, more: float) -> Gate:
    """Share of a task's test texts that share a run of words with the corpus."""
    return Gate(
        f"{task}.contamination",
        ours <= theirs + more,
        f"{POINTS * ours:.1f} % against {POINTS * theirs:.1f} %",
        f"≤ {POINTS * (theirs + more):.1f} %",
    )


def unknown(name: str, why: str) -> Gate:
    """What can't be known fails: nobody has shown that the new model is as good."""
    return Gate(name, False, "not known", "known", why)


def without(name: str, why: str) -> Gate:
    """What does not count here."""
    return Gate(name, None, "–", "–", why)


# ── all of them ──────────────────────────────────────────────────────────────────────────────────────────────────────


def verdict(gates: Sequence[Gate]) -> str:
    """`promote` where no gate failed, else `keep`."""
    return "keep" if any(gate.passed is False for gate in gates) else "promote"


def in_words(content: Mapping[str, Any]) -> str:
    """One sentence about a decision."""
    failed = [gate for gate in content["gates"] if gate["passed"] is False]
    version, champion = content["version"][:12], content["champion"]
    if not failed:
        instead = f"in the place of {champion[:12]}" if champion else "as the first champion"
        return f"Release {version} passed every gate {instead}."
    named = "; ".join(f"{gate['name']}: {gate['observed']} (wanted {gate['limit']})" for gate in failed)
    stays = f"{champion[:12]} stays the champion" if champion else "there is still no champion"
    return f"Release {version} failed {len(failed)} of {len(content['gates'])} gates, {stays}. {named}"


def _signed(value: float, places: int = 2) -> str:
    return f"{'−' if value < 0 else '+'}{abs(value):.{places}f}"
