"""Rehearsals: a recipe cut down so that its whole chain runs in minutes, before days are spent on it.

`R@sample` is the recipe R with a share of its text, its steps and its tasks' examples, and with assets of its own. What decides
over memory and over what can fail stays: the sizes of the model, of its batches and sequences, precision, every task.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config import Corpus, Finetuning, FinetuningOverride, Grid, Phase, Pretraining
from pipeline.errors import RecipeError
from pipeline.recipe import Recipe
from pipeline.recipes.names import CHAMPION
from pipeline.system import atomic

SUFFIX = "@sample"
LEAST_STEPS = 20
"""of a phase: enough for a warm-up, a checkpoint and an evaluation"""
LEAST_HELD_OUT = 0.1
"""share of the documents: of a few hundred, the shares that recipes name hold out none"""
EVALUATE_SEQUENCES = 200


def is_rehearsal(recipe: str) -> bool:
    """Whether this is the name of a rehearsal."""
    return recipe.endswith(SUFFIX)


def base_of(recipe: str) -> str:
    """The recipe that is rehearsed."""
    return recipe.removesuffix(SUFFIX)


def sampled(recipe: Recipe, share: float) -> Recipe:
    """The rehearsal of a recipe with this share (above 0, below 1) of its text, steps and examples.

    It is never retrained, and takes nothing of a champion.
    """
    told = f"Rehearsal of {recipe.name} with a share of {share:g}. {recipe.description}".strip()
    vocabulary = recipe.vocabulary
    changed: dict[str, Any] = {
        "name": f"{recipe.name}{SUFFIX}",
        "description": told,
        "corpus": recipe.corpus and _corpus(recipe.corpus),
        "vocabulary": vocabulary.model_copy(update={"from_": ""}) if vocabulary.from_ == CHAMPION else vocabulary,
        "pretraining": recipe.pretraining and _pretraining(recipe.pretraining, share),
        "finetuning": _finetuning(recipe.finetuning),
        "retrain": None,
    }
    made = recipe.model_copy(update=changed)
    made._sample = share
    return made


def _corpus(corpus: Corpus) -> Corpus:
    return corpus.model_copy(update={"held_out": max(corpus.held_out, LEAST_HELD_OUT)})


def _pretraining(section: Pretraining, share: float) -> Pretraining:
    phases = tuple(_phase(phase, section, share) for phase in section.phases)
    fewest = min(phase.steps for phase in phases)
    changed: dict[str, Any] = {
        "phases": phases,
        "log_every": min(section.log_every, max(1, fewest // 10)),
        "evaluate_every": min(section.evaluate_every, max(1, fewest // 2)),
        "evaluate_sequences": min(section.evaluate_sequences, EVALUATE_SEQUENCES),
    }
    if section.schedule == "shared":
        changed |= _warmup(section.warmup_of(section.phases[0]), sum(phase.steps for phase in phases), share)
    return section.model_copy(update=changed)


def _phase(phase: Phase, section: Pretraining, share: float) -> Phase:
    steps = min(phase.steps, max(LEAST_STEPS, round(phase.steps * share)))
    changed: dict[str, Any] = {"steps": steps, "max_hours": None}
    if section.schedule == "per_phase":
        changed |= _warmup(section.warmup_of(phase), steps, share)
    return phase.model_copy(update=changed)


def _warmup(steps: int, of: int, share: float) -> Mapping[str, Any]:
    """As long in proportion, and a quarter of the schedule at most: a decay over its last steps has room behind it."""
    return {"warmup_steps": min(round(steps * share), of // 4), "warmup_ratio": None}


def _finetuning(section: Finetuning) -> Finetuning:
    overrides = {
        task: override.model_copy(update=_once(override) | ({"epochs": 1} if override.epochs else {}))
        for task, override in section.overrides.items()
    }
    return section.model_copy(
        update={"seeds": 1, "epochs": 1, "grid": _first(section.grid), "early_exit": None, "overrides": overrides}
    )


def _once(override: FinetuningOverride) -> dict[str, Any]:
    seeds = {} if override.seeds is None else {"seeds": 1}
    return seeds if override.grid is None else {**seeds, "grid": _first(override.grid)}


def _first(grid: Grid) -> Grid:
    """The first of every list: one combination is tried, in one epoch."""
    return Grid(learning_rate=grid.learning_rate[:1], batch_size=grid.batch_size[:1])


# ── the share that a rehearsal was asked for ─────────────────────────────────────────────────────────────────────────


def remember(home: Path, recipe: str, share: float) -> None:
    """Note the share of the next rehearsals of this recipe, as `bert status` and the run's own process read it."""
    path = _noted(home, recipe)
    with atomic.explained(path):
        atomic.write_json(path, {"share": share})


def share_of(home: Path, recipe: str) -> float:
    """The share that was noted. RecipeError where the recipe was never rehearsed, or what was noted is damaged."""
    path = _noted(home, recipe)
    try:
        share = float(json.loads(path.read_text(encoding="utf-8"))["share"])
    except FileNotFoundError:
        share = 0.0
    except (ValueError, KeyError, TypeError, OSError):
        raise RecipeError(f"{path} can't be read", f"Ask again: bert run {recipe} --sample SHARE") from None
    if not 0 < share < 1:
        raise RecipeError(f"{recipe} was not rehearsed", f"Rehearse it: bert run {recipe} --sample 0.001")
    return share


def rehearsed(home: Path) -> list[str]:
    """The recipes of which a share is noted."""
    return sorted(path.stem for path in (home / "samples").glob("*.json"))


def _noted(home: Path, recipe: str) -> Path:
    return home / "samples" / f"{recipe}.json"
