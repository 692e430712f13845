"""How the trainings of a chain went: starts and resumes, steps that were skipped, spikes, devices, time, checkpoints."""

from collections.abc import Mapping
from typing import Any

from pipeline.attestations.chain import PRETRAINED, UNKNOWN, Chain, Work

Plain = dict[str, Any]
FINETUNED = "finetuned"
_TOLD = (
    *("begun", "steps", "sequences", "epochs", "skipped_steps", "passed_over_batches", "loss_spikes", "resume_count"),
    *("device", "device_name", "ranks", "threads", "accelerator_hours", "tokens_per_second", "peak_memory_bytes"),
)
_OF_FINETUNING = (
    *("seeds", "published_seed", "resume_count", "device", "device_name", "threads", "tokens_per_second"),
    "peak_memory_bytes",
)


def trained(chain: Chain) -> list[Plain]:
    """Of every phase of pretraining and every fine-tuning, inputs first."""
    works = [work for work in chain.of(PRETRAINED, FINETUNED) if "not_run" not in work.statistics]
    return [_trained(work) for work in works]


def _trained(work: Work) -> Plain:
    told = work.statistics
    names = _TOLD if work.record.stage == PRETRAINED else _OF_FINETUNING
    timeline = told.get("timeline")
    return {
        "asset": work.record.asset,
        "recipe": work.record.recipe,
        "version": work.record.version,
        "started": work.times[0] if work.times else UNKNOWN,
        "finished": work.times[1] if work.times else UNKNOWN,
        "hours": round(work.made.seconds / 3600, 4) if work.made else UNKNOWN,
        **{name: _known(told, name) for name in names},
        "timeline": dict(timeline) if isinstance(timeline, Mapping) else UNKNOWN,
    }


def _known(told: Mapping[str, Any], name: str) -> Any:
    value = told.get(name, UNKNOWN)
    return UNKNOWN if value is None else value
