"""The scores in an exported folder: those of the recipe's current benchmark report, where it is of the same model.

A release in the store names held-out scores only: what is fine-tuned from it comes later.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model import finetuning, imported, report
from model.artifact import read_json
from model.exporting import results_card
from model.reporting.report_task import task_result
from model.tasks import NOT_RUN
from pipeline.errors import StoreError
from pipeline.store import Record, Store

CARD = "README.md"


@dataclass(frozen=True)
class Added:
    """What was done with an exported folder."""

    changed: bool
    note: str = ""
    """which scores the card does not have, and what to run; "" where it has those of the report, or nothing was scored"""


@dataclass(frozen=True)
class Scored:
    """What the recipe's current report says of a release."""

    record: Record
    """of the report"""
    date: str
    """its day"""
    entries: list[Mapping[str, Any]]
    """of the tasks that were run, and not fine-tuned again since"""


def add_results(store: Store, record: Record, source: Path, folder: Path) -> Added:
    """Write card and .eval_results/ of an exported fine-tuned model, where there is anything to add. Those of a release are
    attestations (assets/audits/attesting.py).

    source: the artifact in the store; folder: the export, with its other files in place.
    """
    if record.stage == finetuning.STAGE.name and not (source / NOT_RUN).exists():
        return _of_finetuned(store, record, source, folder)
    return Added(False)


def scored_release(store: Store, record: Record) -> tuple[Scored | None, str]:
    """The recipe's current report, as far as it is of this release's encoder; and which scores it lacks and what to run, "" where
    none are missing."""
    made = store.pointer(record.recipe, report.STAGE.name)
    if made is None:
        return None, ""
    if not _same(store, made, record, "pretrained"):
        why = "the report is of another encoder than this release: its scores are not in the card"
        return None, f"{why}. {_again(record)}"
    found = _content(store, made)
    if found is None:
        return None, ""
    content, date = found
    stale = [task["task"] for task in content["tasks"] if _tuned_again(store, made, record, task["task"])]
    entries = [task for task in content["tasks"] if task["ran"] and task["task"] not in stale]
    note = f"fine-tuned again since the report: {', '.join(stale)}. The card has no scores of it. {_again(record)}"
    return Scored(made, date, entries), note if stale else ""


def _of_finetuned(store: Store, record: Record, source: Path, folder: Path) -> Added:
    task = record.asset.removeprefix("finetuned_")
    made = store.pointer(record.recipe, report.STAGE.name)
    stale = made is not None and record.asset in made.inputs and not _same(store, made, record, record.asset)
    found = None if made is None or stale or record.asset not in made.inputs else _content(store, made)
    named = [entry for entry in found[0]["tasks"] if entry["task"] == task] if found else []
    # without a report of it, what the report would say
    entry = named[0] if named else task_result(task, _inputs(store, record, source), {}).entry
    whose = results_card.Source(
        record.recipe, _release_of(store, record), found[1] if found else "", _checkpoint_of(store, record)
    )
    architectures = read_json(folder / "config.json").get("architectures") or [""]
    (folder / CARD).write_text(results_card.of_finetuned(entry, whose, architectures[0]), encoding="utf-8")
    results_card.write_eval_results(results_card.eval_results([entry], whose), folder)
    note = f"the report is of another version of {record.asset}; the card has the scores of this one. {_again(record)}"
    return Added(True, note if stale else "")


def _inputs(store: Store, record: Record, source: Path) -> dict[str, Path]:
    """What the report reads of a task; its data only where it is still there."""
    inputs = {record.asset: source}
    if "task_data" in record.inputs:
        data = store.record(record.inputs["task_data"])
        with suppress(StoreError):
            inputs[data.asset] = store.folder(data.stage, data.version)
    return inputs


def _again(record: Record) -> str:
    return f"For a report of what there is now: bert run {record.recipe}/{report.STAGE.name}"


def _same(store: Store, made: Record, record: Record, name: str) -> bool:
    """Whether input `name` of the report has the version that the artifact is, or was made of."""
    if name not in made.inputs:
        return False
    wanted = record.version if name == record.asset else store.record(record.inputs[name]).version
    return store.record(made.inputs[name]).version == wanted


def _tuned_again(store: Store, made: Record, record: Record, task: str) -> bool:
    """Whether a task has been fine-tuned since the report, from the encoder of this release: what the report says of it is no
    longer what the recipe has. From another encoder it is none of this release's."""
    name = f"finetuned_{task}"
    now = store.pointer(record.recipe, name)
    if now is None or name not in made.inputs or "pretrained" not in now.inputs:
        return False
    return not _same(store, made, now, name) and _same(store, now, record, "pretrained")


def _content(store: Store, made: Record) -> tuple[Mapping[str, Any], str] | None:
    """(report.json, its day) of a report; None: its content was removed."""
    try:
        folder = store.folder(report.STAGE.name, made.version)
    except StoreError:
        return None
    content = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return content, str(made.body["finished"])[:10]


def _checkpoint_of(store: Store, record: Record) -> str:
    """What a recipe that only fine-tunes began from; "" where the encoder was pretrained here."""
    encoder = store.record(record.inputs["pretrained"]) if "pretrained" in record.inputs else None
    if encoder is None or encoder.stage != imported.STAGE.name:
        return ""
    return results_card.of_root(encoder.body["statistics"].get("root", {}))


def _release_of(store: Store, record: Record) -> str:
    """Version of the recipe's current release, if it has the encoder that was fine-tuned; "" else."""
    made = store.pointer(record.recipe, "release")
    encoder = record.inputs.get("pretrained")
    if made is None or encoder is None or "pretrained" not in made.inputs:
        return ""
    same = store.record(made.inputs["pretrained"]).version == store.record(encoder).version
    return made.version if same else ""
