"""`bert export`, an artifact as a folder for others, and `bert verify`: whether such a folder, or the store, is what was written."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assets import graph
from assets.audits import approved
from assets.audits.attesting import attestations
from assets.audits.auditing import chain
from assets.commands.named import current
from assets.commands.results import add_results, scored_release
from model import finetuning, release
from model.exporting.finetuned_export import export_finetuned, told_of, why_not
from model.exporting.onnx_export import check_installed, onnx_told, write_onnx
from pipeline import lineage
from pipeline.attestations.kept import keep
from pipeline.attestations.signature import sign
from pipeline.build import references_of
from pipeline.errors import RecipeError, StoreError
from pipeline.formats.foreign_json import parsed
from pipeline.storage.content import file_sha256
from pipeline.store import Record, Store, open_store
from pipeline.system import atomic

Plain = dict[str, Any]
AGAIN = "Export it again: bert export RECIPE/ASSET DIR"


def verify(target: str) -> Plain:
    """Everything in the store, one asset's whole chain, or an exported folder."""
    if target and Path(target).is_dir():
        return _verify_folder(Path(target))
    store = open_store()
    if not target:
        checked = [*store.verify(), *approved.problems(store)]
    else:
        records = list(lineage.ancestors(store, current(store, target)))
        checked = [
            problem
            for r in {(r.stage, r.version): r for r in records}.values()
            for problem in store.verify_version(r.stage, r.version)
        ]
    return {"target": target or "everything", "problems": [{"what": p.what, "todo": p.todo} for p in checked]}


def _verify_folder(folder: Path) -> Plain:
    lineage_file = folder / "lineage.json"
    if not lineage_file.exists():
        raise StoreError(f"{folder} has no lineage.json: it was not written by `bert export`", AGAIN)
    listed = _listed(lineage_file)
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} - {"lineage.json"}
    problems = [f"{name} is missing" for name in sorted(set(listed) - present)]
    problems += [f"{name} was added" for name in sorted(present - set(listed))]
    problems += [
        f"{name} was changed"
        for name in sorted(present & set(listed))
        if file_sha256(folder / name) != listed[name]["sha256"]
    ]
    told = {"target": str(folder), "problems": [{"what": f"{folder}: {p}", "todo": AGAIN} for p in problems]}
    if parsed(lineage_file.read_text(encoding="utf-8"))["chain"][0].get("stage") != release.STAGE.name:
        return told
    return {**told, "approval": approved.approval(open_store(), folder)}


def _listed(lineage_file: Path) -> dict[str, Plain]:
    """The files of an export, by path. StoreError for a lineage.json that is none, or was altered."""
    try:
        told = parsed(lineage_file.read_text(encoding="utf-8"))
        files = {str(file["path"]): dict(file) for file in _told_files(told)}
        seal = told.pop("seal")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise StoreError(f"{lineage_file} is damaged: {error!r}", AGAIN) from None
    if seal != _seal(told):
        raise StoreError(f"{lineage_file} was changed since it was written", AGAIN)
    return files


def _told_files(told: Plain) -> list[Plain]:
    """The files of an export: those of the artifact, or what they were exported as."""
    files: list[Plain] = told["exported"] if "exported" in told else told["chain"][0]["files"]
    return files


def _seal(told: Plain) -> str:
    """Digest of an audit, so that damage to it is found; records named in it prove it against a store."""
    return atomic.canonical_digest(told)


def verify_text(found: Plain) -> str:
    """What is broken, or that nothing is."""
    if not found["problems"]:
        whole = f"{found['target']}: every file and record is what its digest says"
        return "\n".join([whole, *([found["approval"]["told"]] if "approval" in found else [])])
    return "\n".join(f"✗ {p['what']}\n  → {p['todo']}" for p in found["problems"])


def export(target: str, folder: Path, tfrecord: bool = False, key: Path | None = None, onnx: bool = False) -> Plain:
    """Copy the current version of an asset to `folder`, with lineage.json (its audit) beside the files.

    A release gets its attestations, which are kept under the home too (assets/audits/attesting.py). A fine-tuned model becomes what
    transformers loads, with its scores (assets/commands/results.py); where there is no such thing, `note` says why. With `tfrecord`,
    shards become TFRecord files as google-research/bert writes them; with `onnx` a model gets model.onnx beside it; with `key` the
    folder is signed. Raises StoreError when the folder exists or can't be written, RecipeError and DataError for what can't be TFRecord
    files or ONNX, or for a key that is none; then nothing is left behind.
    """
    store = open_store()
    record = current(store, target)
    _check_asked(record, target, folder, tfrecord, onnx)
    source = store.folder(record.stage, record.version, references=_references(target))
    partial = folder.with_name(f".{folder.name}.partial")
    told = chain(store, record)
    why = why_not(source) if record.stage == finetuning.STAGE.name else ""
    if onnx and why:
        raise RecipeError(f"--onnx: {why}", f"bert export {target} {folder} copies it as it is.")
    if onnx:
        check_installed()
    note = f"{why}: copied as it is" if why else ""
    try:
        shutil.rmtree(partial, ignore_errors=True)
        if tfrecord:
            told["exported"] = _export_tfrecords(source, record.body["asked"], partial)
        elif record.stage == finetuning.STAGE.name and not why:
            note = told_of(source)
            words = store.record(record.inputs["wordpiece_vocab"])
            export_finetuned(source, store.folder(words.stage, words.version), partial)
            told["exported"] = _files_of(partial)
        else:
            _copy(source, [file["path"] for file in told["chain"][0]["files"]], partial)
        added = add_results(store, record, source, partial)
        if added.changed:
            told["exported"] = _files_of(partial)
        note = "\n".join(filter(None, (note, added.note)))
        if record.stage == release.STAGE.name:
            note = "\n".join(filter(None, (scored_release(store, record)[1], _attest(store, record, partial))))
            told["exported"] = _files_of(partial)
        if onnx:
            note = "\n".join(filter(None, (note, onnx_told(write_onnx(partial)))))
            told["exported"] = _files_of(partial)
        if key is not None:
            sign(partial, key)
            told["exported"] = _files_of(partial)
        atomic.write_json(partial / "lineage.json", {**told, "seal": _seal(told)})
        partial.rename(folder)
    except OSError as error:
        raise atomic.explain(error, folder) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    done = {"asset": target, "version": record.version, "folder": str(folder), "files": len(_told_files(told)) + 1}
    return {**done, "note": note} if note else done


def _check_asked(record: Record, target: str, folder: Path, tfrecord: bool, onnx: bool) -> None:
    """Refuse a folder that is there, and forms that an artifact of this stage doesn't have."""
    if folder.exists():
        raise StoreError(f"{folder} exists already", "Name a folder that does not, or remove it first.")
    if tfrecord and record.stage != "pretraining_shards":
        raise RecipeError(
            f"--tfrecord is for pretraining shards, and {target} is none",
            f"bert export {record.recipe}/pretraining_shards_128 {folder} --tfrecord, or another length.",
        )
    models = (release.STAGE.name, finetuning.STAGE.name)
    if onnx and record.stage not in models:
        raise RecipeError(
            f"--onnx is for releases and fine-tuned models, and {target} is none",
            f"bert export {record.recipe}/release {folder} --onnx",
        )


def _attest(store: Store, record: Record, partial: Path) -> str:
    """Put the attestations of a release beside its files; what is to be said where they can't be kept under the home."""
    said = attestations(store, record)
    for name, data in said.items():
        (partial / name).parent.mkdir(exist_ok=True)
        (partial / name).write_bytes(data)
    try:
        keep(store, record.version, said)
    except StoreError as error:  # a store that can only be read can be exported from
        return f"The attestations are in the folder only: {error.what}"
    return ""


def export_text(found: Plain) -> str:
    """What was exported, and what is to be said of it."""
    text = f"{found['asset']} version {found['version'][:12]}: {found['files']} files in {found['folder']}"
    return f"{text}\n{found['note']}" if "note" in found else text


def _files_of(folder: Path) -> list[Plain]:
    """Path, size and SHA-256 of every file of a folder."""
    return [
        {"path": path.relative_to(folder).as_posix(), "size_bytes": path.stat().st_size, "sha256": file_sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]


def _copy(source: Path, files: Sequence[str], partial: Path) -> None:
    for file in files:
        goal = partial / file
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / file, goal)


def _export_tfrecords(source: Path, asked: Mapping[str, Any], partial: Path) -> list[Plain]:
    """Write the TFRecord files of shards; path, size and SHA-256 of each."""
    from pipeline.sharding.tfrecord_export import export_tfrecords

    for part in ("train", "held_out"):
        export_tfrecords(source / part, partial / part, asked["sequence_length"], asked["max_predictions_per_seq"])
    return _files_of(partial)


def _references(target: str) -> Path | None:
    """Where the files lie that the recipe of `RECIPE/ASSET` only names; None where the recipe is gone."""
    try:
        _, node = graph.find(target)
    except RecipeError:
        return None
    return references_of(node) if node else None
