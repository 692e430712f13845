"""What `bert run RECIPE --dry-run` says of how long the recipe's pretraining would take. Always an estimate, with what it
assumes; nothing is trained for it but a throw-away model for some seconds.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model import pretraining
from model.training import cost
from model.training.cost import Speed, Work
from model.training.pretraining_job import rows_at_once
from model.training.trial_questions import Question, ask
from pipeline.build import Node
from pipeline.config import Architecture, PretrainConfig, TrainConfig, VocabularyConfig
from pipeline.errors import TrainingError
from pipeline.settings import settings
from pipeline.store import Store, open_store

DEVICES = (1, 8, 64)
MFU = 0.4
"""Share of a stated device's peak that training is taken to reach, unless --mfu says another"""
PADDING = {128: 0.08, 512: 0.20}
"""Share of padding in shards that do not exist yet, by the length up to which it is taken: what shards of real text have
(7 to 9 % at 128, 18 to 23 % at 512)"""
LIMIT_SECONDS = 120.0
"""A step that takes longer to measure is not measured"""
CACHE = "cache/steps"
"""under the home: what was measured"""
Plain = dict[str, Any]


@dataclass(frozen=True)
class Phase:
    """A phase to estimate."""

    asset: str
    config: TrainConfig
    vocabulary_size: int
    work: Work
    padding_share: float
    padding_from: str
    """shards: those that the recipe has now; stated: PADDING"""

    @property
    def length(self) -> int:
        """Tokens of a row that are not padding, on average."""
        return max(4, round((1 - self.padding_share) * self.config.sequence_length))


def estimate(
    nodes: Mapping[str, Node], assets: Sequence[str], device: str | None = None, mfu: float = MFU
) -> Plain | None:
    """Hours of each phase among `assets` on 1, 8 and 64 devices, as plain values; None where there is no phase among them.

    Args:
        nodes: of the recipe.
        device: a card known to model/training/flops.py, of whose peak training reaches the share `mfu`; None: this machine's, measured.

    Raises:
        RecipeError: the stated device is not known, or a phase is not for it.
    """
    store = open_store()
    chosen = [node for name, node in nodes.items() if name in assets and node.stage is pretraining.STAGE]
    if not chosen:
        return None
    phases = [phase for node in chosen if (phase := _phase(store, node, nodes)) is not None]
    missing = "" if len(phases) == len(chosen) else "the architecture is imported_checkpoint's, which was not made yet"
    if device is not None:
        speeds, found = _stated(phases, device, mfu), {"basis": "stated", "device": device, "mfu": mfu}
    else:
        speeds, found, failed = _measured(phases)
        missing = missing or failed
    rows = [_row(phase, speed) for phase, speed in zip(phases, speeds, strict=False)]
    whole = len(rows) == len(chosen)
    return {
        "estimate": True,
        **found,
        "phases": rows,
        "total_hours": {str(n): _sum([row["hours"][str(n)] for row in rows]) if whole else None for n in DEVICES},
        "missing": missing,
        "assumes": _assumptions(found, phases),
    }


def _phase(store: Store, node: Node, nodes: Mapping[str, Node]) -> Phase | None:
    """None where its architecture is not known yet."""
    config = node.config
    assert isinstance(config, PretrainConfig)
    architecture = config.architecture or _imported(store, node.recipe)
    if architecture is None:
        return None
    shards = store.pointer(node.recipe, f"pretraining_shards_{config.sequence_length}")
    evaluated, padding = config.evaluate_sequences, _stated_padding(config.sequence_length)
    if shards is not None:
        evaluated = min(evaluated, shards.body["statistics"]["instances"]["held_out"])
        padding = shards.body["statistics"]["padding_fraction"]
    return Phase(
        asset=node.name,
        config=TrainConfig.model_validate({**dict(config), "architecture": architecture}),
        vocabulary_size=_vocabulary_size(store, nodes["wordpiece_vocab"]),
        work=Work(config.steps, config.batch_size, config.evaluate_every, evaluated, config.max_hours),
        padding_share=padding,
        padding_from="stated" if shards is None else "shards",
    )


def _imported(store: Store, recipe: str) -> Architecture | None:
    record = store.pointer(recipe, "imported_checkpoint")
    if record is None:
        return None
    described = json.loads((store.folder(record.stage, record.version) / "config.json").read_text(encoding="utf-8"))
    return Architecture.model_validate(described["architecture"])


def _vocabulary_size(store: Store, node: Node) -> int:
    """Of the vocabulary that the recipe has; without one, what it asks for."""
    record = store.pointer(node.recipe, node.name)
    assert isinstance(node.config, VocabularyConfig)
    return node.config.size if record is None else int(record.body["statistics"]["size"])


def _stated_padding(length: int) -> float:
    return next((share for longest, share in PADDING.items() if length <= longest), max(PADDING.values()))


def _stated(phases: Sequence[Phase], device: str, mfu: float) -> list[Speed]:
    return [
        cost.stated_speed(device, mfu, p.config.architecture, p.vocabulary_size, p.config, p.length) for p in phases
    ]


def _measured(phases: Sequence[Phase]) -> tuple[list[Speed], Plain, str]:
    """Of each phase that could be measured; what was measured on, and why there are no more."""
    training = settings().training
    questions = [
        Question(
            "seconds",
            phase.config,
            phase.vocabulary_size,
            training,
            rows_at_once(phase.work.batch_size, phase.config.sequence_length, training.micro_batch_tokens),
            phase.length,
            cache=settings().home_path / CACHE,
        )
        for phase in phases
    ]
    if not phases:
        return [], {"basis": "measured", "device": None, "threads": training.threads, "torch": None}, ""
    print("measuring a step on this machine, for how long training would take …", file=sys.stderr, flush=True)
    answers: list[Plain] = []
    failed = ""
    try:
        for answer in ask(questions, LIMIT_SECONDS, lambda said: print(f"  {said}", file=sys.stderr, flush=True)):
            answers.append(answer)
    except TrainingError as error:
        stated = all(phase.config.precision == "bf16" for phase in phases)
        failed = error.what.rstrip(".") + ("; state a device instead: --device H200" if stated else "")
    found: Plain = {"basis": "measured", "device": None, "threads": training.threads, "torch": None}
    if answers:
        found |= {"device": answers[0]["device_name"], "torch": answers[0]["torch"]}
    return [Speed(a["rows"], a["part_seconds"], a["update_seconds"]) for a in answers], found, failed


def _row(phase: Phase, speed: Speed) -> Plain:
    return {
        "asset": phase.asset,
        "steps": phase.work.steps,
        "batch_size": phase.work.batch_size,
        "sequence_length": phase.config.sequence_length,
        "precision": phase.config.precision,
        "padding_share": phase.padding_share,
        "padding_from": phase.padding_from,
        "rows_measured": speed.rows,
        "step_seconds": cost.step_seconds(phase.work.batch_size, speed),
        "hours": {str(n): cost.hours(phase.work, speed, n) for n in DEVICES},
    }


def _sum(hours: Sequence[float | None]) -> float | None:
    """None where one is not known."""
    known = [each for each in hours if each is not None]
    return sum(known) if len(known) == len(hours) else None


def _assumptions(found: Plain, phases: Sequence[Phase]) -> list[str]:
    padding = "; ".join(
        f"{p.padding_share:.0%} padding at {p.config.sequence_length} "
        f"({'as its shards have' if p.padding_from == 'shards' else 'as shards of real text usually have'})"
        for p in phases
    )
    basis = (
        f"training reaches {found['mfu']:.0%} of the peak in its maker's data sheet"
        if found["basis"] == "stated"
        else "a larger part of a batch takes as much longer as it has more rows"
    )
    limited = ["a phase with max_hours makes fewer steps where they would take longer"]
    return [
        "n devices are n times as fast as one",
        basis,
        *([padding] if padding else []),
        "evaluations cost a third of as much training",
        *(limited if any(phase.work.max_hours for phase in phases) else []),
        "checkpoints, fine-tuning and the stages before pretraining are not counted",
    ]


def estimate_text(found: Plain) -> str:
    """A line per phase, the sum, and what is assumed."""
    on = (
        f"{found['device']}, stated, at {found['mfu']:.0%} of its peak"
        if found["basis"] == "stated"
        else f"this {found['device']}, {found['threads']} threads, torch {found['torch']}, from a measured step"
    )
    lines = []
    if found["phases"]:
        head = "".join(f"{f'{n} device' + 's' * (n > 1):>14}" for n in DEVICES)
        lines += [f"\nPretraining would take about (an estimate; on {on}):", f"  {'':24}{head}{'a step':>12}"]
    for row in found["phases"]:
        told = "".join(f"{_hours(row['hours'][str(n)]):>14}" for n in DEVICES)
        lines.append(f"  {row['asset']:24}{told}{row['step_seconds']:>10.3g} s")
    if len(found["phases"]) > 1:
        lines.append(f"  {'together':24}" + "".join(f"{_hours(found['total_hours'][str(n)]):>14}" for n in DEVICES))
    if any(None in row["hours"].values() for row in found["phases"]):
        lines.append("  –: the batch has fewer rows than there are devices, or a phase is missing")
    if found["missing"]:
        lines.append(f"{'' if lines else chr(10)}No estimate{' of the rest' if lines else ''}: {found['missing']}")
    if found["phases"]:
        lines.append("  It assumes that " + ";\n  ".join(found["assumes"]) + ".")
    return "\n".join(lines)


def _hours(hours: float | None) -> str:
    if hours is None:
        return "–"
    if hours >= 1:
        return f"{hours:,.0f} h" if hours >= 10 else f"{hours:.1f} h"
    return f"{hours * 60:.0f} min" if hours * 60 >= 1 else "< 1 min"
