"""`bert audit ASSET --document ID`: whether a document is behind an artifact, in which shards, at which steps it was seen, and
what depends on it. From records and content alone; what is gone is said to be unknown.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from assets.audits.affected import made_of
from model import pretraining
from model.feeding import seen
from model.processes import lines
from model.reporting.isolated import isolated
from model.training.guard import Batches
from pipeline import documents, lineage
from pipeline.errors import DataError, StoreError
from pipeline.store import Record, Store

Plain = dict[str, Any]
SHOWN_STEPS = 6
_TOLD = ("title", "url", "source", "licence", "date", "revision_id")


def traced(store: Store, record: Record, wanted: Sequence[str]) -> Plain:
    """What is known of these documents in the chain behind a record. Raises DataError where the chain has no documents,
    StoreError where it can't be proven."""
    chain = list(lineage.ancestors(store, record, roots=True))
    corpora = {each.version: each for each in chain if each.stage == documents.STAGE.name}
    if not corpora:
        raise DataError(
            f"{record.path} was not made from documents",
            "Ask of a release, a pretrained model, shards or a vocabulary.",
        )
    trainings = [each for each in chain if each.stage == pretraining.STAGE.name]
    found: dict[str, Plain] = {each: {"document": each, "is": "absent"} for each in wanted}
    for corpus in corpora.values():
        for name, told in _in_corpus(store, corpus, wanted):
            found[name] |= told
    for training in trainings:
        for name, told in _in_training(store, training, wanted).items():
            found[name].setdefault("trainings", []).append({"asset": training.asset, "record": training.digest, **told})
    dependent = [path for version in corpora for path in made_of(store, documents.STAGE.name, version)]
    for each in found.values():
        if each["is"] not in ("absent", "dropped"):
            each["affected"] = dependent
            each["exclude"] = _csv_line(each["document"], "WHY IT IS WITHDRAWN")
    return {"asset": record.path, "version": record.version, "documents": list(found.values())}


def _in_corpus(store: Store, corpus: Record, wanted: Sequence[str]) -> Iterator[tuple[str, Plain]]:
    """(document, what the documents say of it), of those that are there or were dropped."""
    try:
        folder = store.folder(corpus.stage, corpus.version)
    except StoreError as error:
        yield from ((name, {"is": "unknown", "why": error.what}) for name in wanted)
        return
    columns = ["doc_id", "split", *_TOLD]
    rows = pl.scan_parquet(folder / "part-*.parquet").filter(pl.col("doc_id").is_in(list(wanted))).select(columns)
    for row in rows.collect().to_dicts():
        told = {name: value if value is None else str(value) for name, value in row.items() if name in _TOLD}
        yield row["doc_id"], {"is": row["split"], **told}
    dropped = pl.scan_parquet(folder / "dropped.parquet").filter(pl.col("doc_id").is_in(list(wanted)))
    for row in dropped.collect().to_dicts():
        yield (
            row["doc_id"],
            {"is": "dropped", "why": ", ".join(str(row[name]) for name in row if name != "doc_id" and row[name])},
        )


def _in_training(store: Store, training: Record, wanted: Sequence[str]) -> dict[str, Plain]:
    """document → its rows in the shards of a training and the steps that took them, or why that is not known."""
    source = store.record(training.inputs["pretraining_shards"])
    try:
        folder = store.folder(source.stage, source.version)
        metrics = store.folder(training.stage, training.version) / "metrics.jsonl"
        passed_over = _passed_over(metrics)
    except StoreError as error:
        todo = f"{error.todo} Shards are made again, equal: bert run {source.path}"
        return {name: {"unknown": error.what, "todo": todo} for name in wanted}
    config, told = training.body["config"], training.body["statistics"]
    steps = int(told["held_out"]["step"]) - int(config["first_step"])  # what is published, which may not be the last
    rows = seen.seen(folder, config, steps, passed_over, wanted)
    return {
        name: {"shards": source.version, "steps": steps, "rows": [asdict(row) for row in of_it]}
        for name, of_it in rows.items()
    }


def _passed_over(metrics: Path) -> list[Batches]:
    rows = [row["passed_over"] for row in lines.read(metrics) if "passed_over" in row]
    return sorted((int(first), int(end)) for first, end in rows)


def _csv_line(*values: str) -> str:
    """As it may stand in a .csv file."""
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(values)
    return written.getvalue()


def traced_text(found: Plain) -> str:
    """A block per document."""
    told = [f"{found['asset']}  version {found['version']}"]
    for each in found["documents"]:
        told += [
            "",
            f"■ {isolated(each['document'])}: {_IS.get(each['is'], each['is'])}"
            + (f" ({each['why']})" if each.get("why") else ""),
        ]
        told += [f"    {name:9} {isolated(each[name])}" for name in _TOLD if each.get(name)]
        for training in each.get("trainings", ()):
            told += [f"    {line}" for line in _training_lines(training)]
        if "affected" in each:
            told.append(f"    affected  {', '.join(each['affected'])}")
            told.append(f"    withdraw  a line in the file that corpus.exclude names:  {each['exclude']}")
            told.append("              then run what is affected again: bert run RECIPE")
    return "\n".join(told)


_IS: Mapping[str, str] = {
    "train": "in the training text",
    "held_out": "in the held-out text: measured on, not trained on",
    "absent": "not among the documents",
    "dropped": "dropped, not trained on",
}


def _training_lines(training: Plain) -> Iterator[str]:
    if "unknown" in training:
        yield f"{training['asset']}: unknown: {training['unknown']} → {training['todo']}"
        return
    rows, steps = training["rows"], sorted({step for row in training["rows"] for step in row["steps"]})
    if not rows:
        yield f"{training['asset']}: in no row of its training shards"
        return
    shown = ", ".join(f"{step:,}" for step in steps[:SHOWN_STEPS]) + (
        f" … {steps[-1]:,}" if len(steps) > SHOWN_STEPS else ""
    )
    yield f"{training['asset']}: {len(rows):,} rows of {len({row['file'] for row in rows}):,} shard files, taken by {len(steps):,} of {training['steps']:,} steps: {shown or 'none'}"
