"""The scores in an exported folder: those of the recipe's current benchmark report, where it is of the same model.

A release in the store names held-out scores only: what is fine-tuned from it comes later.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from model import finetuning, imported, release, report, results_card
from model.lines import read_json
from model.report_task import task_result
from model.tasks import NOT_RUN
from pipeline.errors import StoreError
from pipeline.store import Record, Store

CARD = "README.md"


def add_results(store: Store, record: Record, source: Path, folder: Path) -> bool:
    """Write card and .eval_results/ of an exported release or fine-tuned model; False: there is nothing to add.

    source: the artifact in the store; folder: the export, with its other files in place.
    """
    if record.stage == release.STAGE.name:
        return _of_release(store, record, folder)
    if record.stage == finetuning.STAGE.name and not (source / NOT_RUN).exists():
        return _of_finetuned(store, record, source, folder)
    return False


def _of_release(store: Store, record: Record, folder: Path) -> bool:
    found = _report(store, record, "pretrained")
    if found is None:
        return False
    content, date = found
    entries = [task for task in content["tasks"] if task["ran"]]
    if not any(entry["rows"] for entry in entries):
        return False
    whose = results_card.Source(record.recipe, record.version, date)
    card = folder / CARD
    card.write_text(results_card.of_release(card.read_text(encoding="utf-8"), entries, whose), encoding="utf-8")
    results_card.write_eval_results(results_card.eval_results(entries, whose), folder)
    return True


def _of_finetuned(store: Store, record: Record, source: Path, folder: Path) -> bool:
    task = record.asset.removeprefix("finetuned_")
    found = _report(store, record, record.asset)
    named = [entry for entry in found[0]["tasks"] if entry["task"] == task] if found else []
    # without a report of it, what the report would say
    entry = named[0] if named else task_result(task, _inputs(store, record, source), {}).entry
    whose = results_card.Source(
        record.recipe, _release_of(store, record), found[1] if found else "", _checkpoint_of(store, record)
    )
    architectures = read_json(folder / "config.json").get("architectures") or [""]
    (folder / CARD).write_text(results_card.of_finetuned(entry, whose, architectures[0]), encoding="utf-8")
    results_card.write_eval_results(results_card.eval_results([entry], whose), folder)
    return True


def _inputs(store: Store, record: Record, source: Path) -> dict[str, Path]:
    """What the report reads of a task; its data only where it is still there."""
    inputs = {record.asset: source}
    if "task_data" in record.inputs:
        data = store.record(record.inputs["task_data"])
        with suppress(StoreError):
            inputs[data.asset] = store.folder(data.stage, data.version)
    return inputs


def _report(store: Store, record: Record, name: str) -> tuple[Mapping[str, Any], str] | None:
    """(report.json, its day) of the recipe's current report, if its input `name` has the version that the artifact is, or was
    made of; None: there is none, or it is of another one."""
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
