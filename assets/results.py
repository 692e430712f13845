"""The scores in an exported folder: those of the recipe's current benchmark report, where it is of the same model.

A release in the store names held-out scores only: what is fine-tuned from it comes later.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model import finetuning, report, results_card
from model.lines import read_json
from model.report_task import task_result
from model.tasks import NOT_RUN
from pipeline.errors import StoreError
from pipeline.store import Record, Store

CARD = "README.md"


@dataclass(frozen=True)
class Scored:
    """What the recipe's current report says of a model."""

    record: Record
    """of the report"""
    content: Mapping[str, Any]
    """report.json"""

    @property
    def entries(self) -> list[Mapping[str, Any]]:
        """Of the tasks that were run."""
        return [task for task in self.content["tasks"] if task["ran"]]

    @property
    def date(self) -> str:
        """Its day."""
        return str(self.record.body["finished"])[:10]


def add_results(store: Store, record: Record, source: Path, folder: Path) -> bool:
    """Write card and .eval_results/ of an exported fine-tuned model; False: there is nothing to add.

    source: the artifact in the store; folder: the export, with its other files in place.
    """
    if record.stage != finetuning.STAGE.name or (source / NOT_RUN).exists():
        return False
    _of_finetuned(store, record, source, folder)
    return True


def _of_finetuned(store: Store, record: Record, source: Path, folder: Path) -> None:
    task = record.asset.removeprefix("finetuned_")
    found = report_of(store, record, record.asset)
    named = [entry for entry in found.content["tasks"] if entry["task"] == task] if found else []
    # without a report of it, what the report would say
    entry = named[0] if named else task_result(task, _inputs(store, record, source), {}).entry
    whose = results_card.Source(record.recipe, _release_of(store, record), found.date if found else "")
    architectures = read_json(folder / "config.json").get("architectures") or [""]
    (folder / CARD).write_text(results_card.of_finetuned(entry, whose, architectures[0]), encoding="utf-8")
    results_card.write_eval_results(results_card.eval_results([entry], whose), folder)


def _inputs(store: Store, record: Record, source: Path) -> dict[str, Path]:
    """What the report reads of a task; its data only where it is still there."""
    inputs = {record.asset: source}
    if "task_data" in record.inputs:
        data = store.record(record.inputs["task_data"])
        with suppress(StoreError):
            inputs[data.asset] = store.folder(data.stage, data.version)
    return inputs


def report_of(store: Store, record: Record, name: str) -> Scored | None:
    """The recipe's current report, if its input `name` has the version that the artifact is, or was made of; None: there is
    none, or it is of another one."""
    made = store.pointer(record.recipe, "benchmark_report")
    if made is None or name not in made.inputs:
        return None
    read = store.record(made.inputs[name]).version
    wanted = record.version if name == record.asset else store.record(record.inputs[name]).version
    if read != wanted:
        return None
    try:
        folder = store.folder(report.STAGE.name, made.version)
    except StoreError:  # its content was removed
        return None
    content = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return Scored(made, content)


def _release_of(store: Store, record: Record) -> str:
    """Version of the recipe's current release, if it has the encoder that was fine-tuned; "" else."""
    made = store.pointer(record.recipe, "release")
    encoder = record.inputs.get("pretrained")
    if made is None or encoder is None or "pretrained" not in made.inputs:
        return ""
    same = store.record(made.inputs["pretrained"]).version == store.record(encoder).version
    return made.version if same else ""
