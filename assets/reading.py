"""What the reading commands of `bert` answer, as plain values and as text. From records and manifests alone: Dagster's
database may be gone, and the store may be read-only.
"""

import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typer import style

from assets import approved, graph, promoting
from assets.attesting import attestations
from assets.auditing import chain
from assets.named import current
from assets.plan import CLEARED, ERROR, KNOWN, MAY_RUN, UP_TO_DATE, WILL_RUN, plan
from assets.rails import drawn
from assets.results import add_results, scored_release
from assets.told import on_one_line
from model import finetuning, release
from model.finetuned_export import export_finetuned, told_of, why_not
from model.onnx_export import check_installed, onnx_told, write_onnx
from model.release import SENTENCE_VECTORS
from pipeline import atomic, failures, lineage, rehearsal, retrain
from pipeline.attestations.kept import keep
from pipeline.attestations.signature import sign
from pipeline.build import Node, references_of, usable
from pipeline.config import Comparison
from pipeline.content import file_sha256
from pipeline.errors import RecipeError, StoreError
from pipeline.foreign_json import parsed
from pipeline.recipe import RESERVED
from pipeline.settings import settings
from pipeline.store import Record, Store, open_store

Plain = dict[str, Any]


# ── status ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def status(
    nodes: Mapping[str, Node], forced: Sequence[str] = (), target: str = "", wanted: Sequence[str] = ()
) -> Plain:
    """State of each asset, why, and what it is now; `target` is what was asked for, if not the whole recipe; `wanted`: assets
    whose content has to be there."""
    store = open_store()
    rows: list[Plain] = []
    for planned in plan(store, nodes, forced, wanted):
        record = _pointer(store, planned.node)
        rows.append(
            {
                "asset": planned.node.name,
                "reads": [source.name for source in planned.node.inputs.values() if source.name in nodes],
                "state": planned.state,
                "why": planned.why,
                "todo": planned.todo,
                "failure": failures.last(store.home, planned.node.recipe, planned.node.name)
                if planned.needs_step
                else None,
                "version": record.version if record else None,
                **_facts(store, record),
            }
        )
    recipe = next(iter(nodes.values())).recipe
    in_use = promoting.in_use(store, recipe)
    return {"recipe": recipe, "target": target or recipe, "forced": list(forced), "champion": in_use, "assets": rows}


def _pointer(store: Store, node: Node) -> Record | None:
    return store.pointer(node.recipe, node.name)


def _facts(store: Store, record: Record | None) -> Plain:
    if record is None:
        return {"size_bytes": None, "finished": None, "failed_checks": []}
    try:
        size = store.size_bytes(record)
    except StoreError:
        size = None
    return {"size_bytes": size, "finished": record.body["finished"], "failed_checks": usable(record)}


_MARKS = {UP_TO_DATE: "✓", KNOWN: "✓", CLEARED: "✓", WILL_RUN: "▸", MAY_RUN: "·", ERROR: "✗"}


_COLOURS = {UP_TO_DATE: "green", KNOWN: "green", CLEARED: "green", WILL_RUN: "yellow", ERROR: "red"}


def status_text(found: Plain) -> str:
    """The graph, a line per asset: state, version, size, age, and why; below it, why it failed the last time. With colours, for
    those that can show them."""
    width = max(len(row["asset"]) for row in found["assets"])
    rows = {row["asset"]: row for row in found["assets"]}
    lines = []
    for name, rails in drawn({name: row["reads"] for name, row in rows.items()}):
        row = rows[name]
        rail = rails.replace("*", style(_MARKS[row["state"]], fg=_COLOURS.get(row["state"])))
        state = style(f"{row['state']:10}", fg=_COLOURS.get(row["state"]))
        version = row["version"][:12] if row["version"] else "–"
        size = _size(row["size_bytes"]) if row["size_bytes"] is not None else "–"
        why = f"  {on_one_line(row['why'])}" if row["why"] else ""
        lines.append(
            f"{rail} {row['asset']:{width}}  {state}  {version:12}  {size:>8}  {_age(row['finished']):>8}{why}"
        )
        failure, more = row["failure"], []
        if row["todo"]:  # says what is wrong now
            more = [f"→ {on_one_line(row['todo'])}"]
        elif failure:
            more = [f"✗ failed {_age(failure['time'])} ago: {on_one_line(failure['what'])}"]
            more += [f"→ {on_one_line(failure['todo'])}"] if failure["todo"] else []
        lines += [f"{'':{len(rails) + width + 3}}{line}" for line in more]
    count = {state: sum(row["state"] == state for row in found["assets"]) for state in _MARKS}
    told = ", ".join(f"{number} {state}" for state, number in count.items() if number)
    command = f"bert run {found['target']}{' --force' if found['forced'] else ''}"
    following = "" if count[UP_TO_DATE] + count[CLEARED] == len(found["assets"]) else f"  Next: {command}"
    champion = promoting.in_use_text(found["champion"])
    return "\n".join([*lines, f"\n{found['recipe']}: {told}.{following}", *([champion] if champion else [])])


def overview() -> Plain:
    """Every recipe with its number of assets and of those that were ever made, and every recipe that can't be used."""
    loaded, store = graph.load(), open_store()
    folder = settings().recipes_path
    if not loaded.recipes and not loaded.errors:
        raise RecipeError(f"{folder} holds no recipes", "Name their folder: recipes in settings.yaml.")
    known, broken = dict(loaded.recipes), dict(loaded.errors)
    for name in [f"{base}{rehearsal.SUFFIX}" for base in rehearsal.rehearsed(store.home) if base in loaded.recipes]:
        try:
            known[name] = graph.recipe_of(name)
        except RecipeError as error:
            broken[name] = error
    recipes = []
    graphs = {name: graph.nodes(retrain.widest(recipe)) for name, recipe in sorted(known.items())}
    for name, nodes in graphs.items():
        made = [node for node in nodes.values() if _pointer(store, node)]
        recipes.append(
            {"recipe": name, "assets": len(nodes), "made": len(made), "description": known[name].description}
        )
    errors = [{"recipe": name, "error": e.what, "todo": e.todo} for name, e in sorted(broken.items())]
    compared = graph.load_compared(loaded)
    comparisons = [_compared(store, each, graphs) for each in compared.found.values()]
    errors += [
        {"recipe": f"{RESERVED}/{n}", "error": e.what, "todo": e.todo} for n, e in sorted(compared.errors.items())
    ]
    return {"recipes": recipes, "comparisons": comparisons, "errors": errors}


def _compared(store: Store, compared: Comparison, graphs: Mapping[str, Mapping[str, Node]]) -> Plain:
    """A comparison, with the number of its members and of those that were ever trained."""
    node = graph.comparison_node(compared, graphs.__getitem__)
    there = [source.recipe for source in node.inputs.values() if _pointer(store, source)]
    members = compared.recipes()
    return {
        "comparison": compared.name,
        "members": len(members),
        "run": len(set(there)),
        "made": _pointer(store, node) is not None,
        "title": compared.title,
    }


def overview_text(found: Plain) -> str:
    """A line per recipe and comparison."""
    names = [*(r["recipe"] for r in found["recipes"]), *(c["comparison"] for c in found["comparisons"])]
    width = max(20, *map(len, names)) if names else 20
    lines = [
        f"{r['recipe']:{width}} {r['made']:3} of {r['assets']:3} assets made   {r['description']}"
        for r in found["recipes"]
    ]
    lines += [""] if found["comparisons"] else []
    lines += [
        f"{c['comparison']:{width}} {c['run']:3} of {c['members']:3} recipes run   {c['title']}"
        for c in found["comparisons"]
    ]
    lines += [f"✗ {e['recipe']}: {e['error']}\n  → {e['todo']}" for e in found["errors"]]
    return "\n".join([*lines, "\nNext: bert status RECIPE · bert run RECIPE · bert compare NAME"])


# ── verify and export ────────────────────────────────────────────────────────────────────────────────────────────────


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
        raise StoreError(
            f"{folder} has no lineage.json: it was not written by `bert export`",
            "Export it again: bert export RECIPE/ASSET DIR",
        )
    listed = _listed(lineage_file)
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} - {"lineage.json"}
    problems = [f"{name} is missing" for name in sorted(set(listed) - present)]
    problems += [f"{name} was added" for name in sorted(present - set(listed))]
    problems += [
        f"{name} was changed"
        for name in sorted(present & set(listed))
        if file_sha256(folder / name) != listed[name]["sha256"]
    ]
    todo = "Export it again: bert export RECIPE/ASSET DIR"
    told = {"target": str(folder), "problems": [{"what": f"{folder}: {p}", "todo": todo} for p in problems]}
    if parsed(lineage_file.read_text(encoding="utf-8"))["chain"][0].get("stage") != release.STAGE.name:
        return told
    return {**told, "approval": approved.approval(open_store(), folder)}


def _listed(lineage_file: Path) -> dict[str, Plain]:
    """The files of an export, by path. StoreError for a lineage.json that is none, or was altered."""
    todo = "Export it again: bert export RECIPE/ASSET DIR"
    try:
        told = parsed(lineage_file.read_text(encoding="utf-8"))
        files = {str(file["path"]): dict(file) for file in _told_files(told)}
        seal = told.pop("seal")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise StoreError(f"{lineage_file} is damaged: {error!r}", todo) from None
    if seal != _seal(told):
        raise StoreError(f"{lineage_file} was changed since it was written", todo)
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


def published(recipe: str, asset: str) -> Path:
    """The verified folder of an asset's current version. Raises RecipeError when it was never made."""
    store = open_store()
    record = current(store, f"{recipe}/{asset}")
    return store.folder(record.stage, record.version)


def export(target: str, folder: Path, tfrecord: bool = False, key: Path | None = None, onnx: bool = False) -> Plain:
    """Copy the current version of an asset to `folder`, with lineage.json (its audit) beside the files.

    A release gets its attestations, which are kept under the home too (assets/attesting.py). A fine-tuned model becomes what
    transformers loads, with its scores (assets/results.py); where there is no such thing, `note` says why. With `tfrecord`,
    shards become TFRecord files as google-research/bert writes them; with `onnx` a model gets model.onnx beside it; with `key` the
    folder is signed. Raises StoreError when the folder exists or can't be written, RecipeError and DataError for what can't be TFRecord
    files or ONNX, or for a key that is none; then nothing is left behind.
    """
    store = open_store()
    record = current(store, target)
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
    from pipeline.tfrecord_export import export_tfrecords

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


def fill_mask_text(found: Plain) -> str:
    """Each guess filled in, with its probability; and what the model is not for."""
    lines = [found["text"]]
    for mask in found["masks"]:
        lines += [f"  {guess['probability']:6.1%}  {guess['token']}" for guess in mask]
    return "\n".join([*lines, "", SENTENCE_VECTORS])


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _age(finished: str | None) -> str:
    if finished is None:
        return ""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(finished)).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
