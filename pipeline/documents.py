"""One table of documents from every source: each text once, split into train and held-out, with sentence ends.

Two passes over the text (pipeline/selection/document_passes.py), both in worker processes and in row groups; between them the choice of
the documents that stay (pipeline/selection/document_choice.py), from about a hundred bytes a document. So memory follows neither the size of
the text nor the number of workers' tasks, and the table is the same bytes for any number of workers.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline import progress
from pipeline.config import DocumentsConfig
from pipeline.errors import DataError
from pipeline.prose import languages
from pipeline.schemas import (
    CHARACTERS_PER_TOKEN,
    DOCUMENTS_SCHEMA,
    describe_lengths,
    group_runs,
    part_files,
    write_dropped,
)
from pipeline.selection import document_passes, duplicates
from pipeline.selection.decontamination import read_benchmark
from pipeline.selection.document_choice import Choice, choose, counts_by_reason, expected_held_out
from pipeline.selection.document_passes import DROPPED_SCHEMA, Numbers, Plan, Task, held_out_of, identity_digest
from pipeline.selection.exclusions import NOTHING, read_exclusions
from pipeline.settings import settings
from pipeline.stage import Stage
from pipeline.streams import mixed
from pipeline.system import workers
from pipeline.system.disk import check_room, scratch_folder

STAGE = Stage(
    name="documents",
    function="pipeline.documents:build_documents",
    version="2",
    libraries=("sentencex", "rensa", "pycld2"),
    sources=(
        "pipeline/documents.py",
        "pipeline/selection/document_passes.py",
        "pipeline/selection/document_choice.py",
        "pipeline/selection/duplicates.py",
        "pipeline/selection/exclusions.py",
        "pipeline/selection/quality.py",
        "pipeline/prose/languages.py",
        "pipeline/selection/ngrams.py",
        "pipeline/streams.py",
        "pipeline/selection/decontamination.py",
        "pipeline/formats/compressed.py",
        "pipeline/formats/inflate.py",
        "pipeline/formats/kinds.py",
        "pipeline/formats/tables.py",
        "pipeline/prose/sentences.py",
        "pipeline/prose/abbreviations/*.txt",
        "pipeline/schemas.py",
    ),
)

TASK_BYTES = 32 << 20
"""Of text, for one task: a part of the table. A small table is one, and needs no other process."""
WORK_PER_WORKER = 16 << 20
"""Bytes of text below which one more worker process costs more than it saves."""
TABLE_BYTES = 0.6
"""On disk for each byte of text, compressed; measured 0.4 on English, Japanese is denser."""
SHOWN = 5
SHOWN_LINES = 20


def build_documents(inputs: Mapping[str, Path], config: DocumentsConfig, out: Path) -> dict[str, Any]:
    """Write the documents of all sources (source name → folder of its text), by source name, then as in the source.

    A document is dropped for the first reason that applies of those in `document_passes.REASONS`. Also written: dropped.json
    (counts, also per source) and dropped.parquet (which, why, and what stays instead).

    Raises:
        DataError: a row that names another source, a list of withdrawals or abbreviations or a benchmark that can't be read.
        StoreError: the disk can't hold what is forecast.
        BertError: a worker process died. Then, and after any error, nothing is left in `out`.
    """
    document_passes.forget()
    excluded = read_exclusions(Path(config.exclude.path)) if config.exclude else NOTHING
    for named in config.abbreviations.values():
        document_passes.read_abbreviations(Path(named.path))
    tasks, text_bytes = _tasks(inputs)
    upstream = {name: _upstream(name, inputs[name], tasks) for name in sorted(inputs)}
    with scratch_folder(out) as scratch:
        plan = _plan(scratch, config, tasks)
        needed = TABLE_BYTES * text_bytes + plan.rows * _bytes_per_document(plan)
        check_room(out, needed, "documents", "Free space, or move the store (home in settings.yaml).")
        try:
            benchmarks = _prepare(plan)
            count = min(settings().beam.workers, 1 + text_bytes // WORK_PER_WORKER)
            matched, touched = _first_pass(plan, count)
            numbers = Numbers(scratch, plan.rows)
            choice = _choose(plan, numbers)
            table = _Table(plan, numbers, choice)
            written = _second_pass(plan, count, table.show())
            _move_parts(plan, out)
            _write_list(plan, out)
            accounts = {name: table.account(name) for name in sorted(inputs)}
            counted = _write_accounts(accounts, sum(each["documents"] for each in written), out)
        except BaseException:
            for path in (*out.glob("part-*.parquet"), out / "dropped.parquet", out / "dropped.json"):
                path.unlink(missing_ok=True)
            raise
    return {
        **table.describe(written, sorted(inputs)),
        **counted,
        "dropped_by_source": {name: account["dropped"] for name, account in accounts.items()},
        "waterfall": _waterfall(upstream, accounts),
        "withdrawals": _withdrawals(excluded.lines, matched),
        "benchmarks": {name: {**said, "documents": touched[name]} for name, said in benchmarks.items()},
        "languages": _languages(written),
        "sentences": sum(each["sentences"] for each in written),
        "one_sentence_documents": sum(each["one_sentence_documents"] for each in written),
    }


def split_of(doc_id: str, held_out: float) -> str:
    """Say "train" or "held_out", from doc_id alone.

    The first eight bytes of SHA-256 of `split` NUL doc_id, read as a big-endian fraction of 2^64, are compared with the
    share. So a document stays where it is when others come or go, and a larger share only adds to the held-out ones.
    """
    fraction = int.from_bytes(identity_digest(doc_id)[:8], "big")
    return "held_out" if held_out_of(np.array([fraction], np.uint64), held_out)[0] else "train"


# ── the plan ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _tasks(inputs: Mapping[str, Path]) -> tuple[list[Task], int]:
    """The row groups of all sources in order, cut into tasks, and the bytes of their text. The cut follows from the files alone."""
    tasks: list[Task] = []
    first = total = 0
    for name in sorted(inputs):
        for path in part_files(inputs[name]):
            for groups, rows, size in group_runs(path, TASK_BYTES):
                tasks.append(
                    Task(
                        number=len(tasks),
                        source=name,
                        file=path.resolve(),
                        first_group=groups[0],
                        last_group=groups[-1],
                        first=first,
                        rows=rows,
                    )
                )
                first += rows
                total += size
    return tasks, total


def _plan(scratch: Path, config: DocumentsConfig, tasks: Sequence[Task]) -> Plan:
    return Plan(
        scratch=scratch,
        config=config,
        tasks=tuple(tasks),
        rows=sum(task.rows for task in tasks),
        band_rows=duplicates.band_rows(config.near_duplicates) if config.near_duplicates < 1 else 0,
    )


def _bytes_per_document(plan: Plan) -> int:
    """On disk, on the way."""
    numbers = sum(np.dtype(kind).itemsize * width for kind, width in Numbers.KINDS.values())
    bands = duplicates.PERMUTATIONS // plan.band_rows if plan.band_rows else 0
    return numbers + 4 * bands + (duplicates.SIGNATURE_BYTES if bands else 0) + 100


def _prepare(plan: Plan) -> dict[str, dict[str, int]]:
    """Write what the workers read, and make the files that they write into; returns what each benchmark holds."""
    (plan.scratch / "plan.json").write_text(plan.model_dump_json(by_alias=True), encoding="utf-8")
    sizes = {name: np.dtype(kind).itemsize * width for name, (kind, width) in Numbers.KINDS.items()}
    if plan.band_rows:
        sizes |= {"signatures": duplicates.SIGNATURE_BYTES, "bands": 4 * (duplicates.PERMUTATIONS // plan.band_rows)}
    for name, size in sizes.items():
        with (plan.scratch / name).open("wb") as file:
            file.truncate(size * plan.rows)
    said = {}
    for name, benchmark in sorted(plan.config.decontaminate.items()):
        found = read_benchmark(name, benchmark, plan.scratch)
        np.save(document_passes.benchmark_file(plan.scratch, name), found.hashes)
        said[name] = {"texts": found.texts, "measurable": found.measurable}
    return said


def _first_pass(plan: Plan, count: int) -> tuple[Counter[int], Counter[str]]:
    """(line of the list of withdrawals → documents, benchmark → documents that share text with it)."""
    lines: Counter[int] = Counter()
    benchmarks: Counter[str] = Counter()
    nothing: list[dict[str, Any]] = [{} for _ in plan.tasks]
    for found in _run(plan, count, "pipeline.selection.document_passes:read", "documents read", nothing):
        lines.update({int(line): documents for line, documents in found["lines"].items()})
        benchmarks.update(found["benchmarks"])
    return lines, benchmarks


def _second_pass(plan: Plan, count: int, show: Sequence[int]) -> list[dict[str, Any]]:
    asked = [{"show": [place for place in show if task.first <= place < task.first + task.rows]} for task in plan.tasks]
    return list(_run(plan, count, "pipeline.selection.document_passes:write", "documents written", asked))


def _run(
    plan: Plan, count: int, function: str, unit: str, asked: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    progress.report(0, plan.rows, unit)
    path = str(plan.scratch / "plan.json")
    tasks = [{"plan": path, "number": task.number, **more} for task, more in zip(plan.tasks, asked, strict=True)]
    results = workers.ordered(function, tasks, count)
    for task, result in zip(plan.tasks, results, strict=True):
        progress.report(task.first + task.rows, plan.rows, unit)
        yield result


def _choose(plan: Plan, numbers: Numbers) -> Choice:
    bands = duplicates.PERMUTATIONS // plan.band_rows if plan.band_rows else 0
    if bands:
        progress.report(0, bands, "bands of near-duplicates")
    return choose(
        numbers,
        plan.band_rows,
        plan.config.near_duplicates,
        lambda done: progress.report(done, bands, "bands of near-duplicates"),
    )


# ── what is written ──────────────────────────────────────────────────────────────────────────────────────────────────


def _move_parts(plan: Plan, out: Path) -> None:
    """The parts that pass 2 wrote, in order; those without a row are left out, unless all are."""
    files = [file for task in plan.tasks for file in part_files(document_passes.part_folder(plan.scratch, task.number))]
    filled = [file for file in files if pq.read_metadata(file).num_rows] or files[:1]
    if not filled:
        pq.write_table(DOCUMENTS_SCHEMA.empty_table(), out / "part-00000.parquet", compression="zstd")
    for number, file in enumerate(filled):
        file.rename(out / f"part-{number:05d}.parquet")


def _write_list(plan: Plan, out: Path) -> None:
    """Write dropped.parquet: the lists of all tasks, with doc_ids in place of the places of what stays instead."""
    lists = [document_passes.dropped_file(plan.scratch, task.number) for task in plan.tasks]
    named = np.unique(
        np.concatenate(
            [np.zeros(0, np.int64), *(pq.read_table(path, columns=["kept"])["kept"].drop_null() for path in lists)]
        )
    )
    doc_ids = _doc_ids(plan, named)
    with pq.ParquetWriter(out / "dropped.parquet", DROPPED_SCHEMA, compression="zstd") as writer:
        for path in lists:
            table = pq.read_table(path)
            places = pa.array(np.searchsorted(named, table["kept"].fill_null(-1).to_numpy()))
            places = pc.if_else(table["kept"].combine_chunks().is_valid(), places, None)
            kept = doc_ids.take(places)
            writer.write_table(
                table.set_column(table.schema.get_field_index("kept"), DROPPED_SCHEMA.field("kept"), kept)
            )


def _doc_ids(plan: Plan, places: npt.NDArray[np.int64]) -> pa.Array:
    """The doc_ids at ascending places."""
    found = []
    for task in plan.tasks:
        start, stop = np.searchsorted(places, [task.first, task.first + task.rows])
        if stop > start:
            column = pq.read_table(document_passes.notes_file(plan.scratch, task.number), columns=["doc_id"])["doc_id"]
            found.append(column.combine_chunks().take(pa.array(places[start:stop] - task.first)))
    return pa.concat_arrays(found) if found else pa.array([], pa.string())


def _write_accounts(accounts: Mapping[str, dict[str, Any]], written: int, out: Path) -> dict[str, Any]:
    """Write dropped.json, and return its sums; DataError if they are not what was written."""
    dropped: Counter[str] = Counter()
    for each in accounts.values():
        dropped.update(each["dropped"])
    counted = write_dropped(out, sum(each["read"] for each in accounts.values()), written, dropped, accounts)
    return {name: value for name, value in counted.items() if name != "sources"}


# ── what is told ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _upstream(name: str, folder: Path, tasks: Sequence[Task]) -> dict[str, Any] | None:
    """What the source's own dropped.json says; DataError if it speaks of other rows than are there."""
    path = folder / "dropped.json"
    if not path.exists():
        return None
    said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows = sum(task.rows for task in tasks if task.source == name)
    if said["kept"] != rows:
        raise DataError(
            f"{path}: {said['kept']:,} documents were kept, but {rows:,} are there", f"Materialize {name}_text again."
        )
    return said


def _waterfall(
    upstream: Mapping[str, dict[str, Any] | None], sources: Mapping[str, dict[str, Any]]
) -> dict[str, list[list[Any]]]:
    """Source → [step, documents] from what its own stage read down to what this one wrote, losses below zero: what is written is
    the sum of all steps before it."""
    found = {}
    for name, account in sources.items():
        said = upstream[name] or {"read": account["read"], "dropped": {}}
        steps = [["read", said["read"]]]
        steps += [[f"{name}_text: {reason}", -count] for reason, count in said["dropped"].items() if count]
        steps += [[f"documents: {reason}", -count] for reason, count in account["dropped"].items()]
        found[name] = [*steps, ["documents", account["kept"]]]
        if sum(count for _, count in steps) != account["kept"]:
            raise DataError(f"the documents of {name} do not add up: {found[name]}", f"Materialize {name}_text again.")
    return found


def _withdrawals(lines: Mapping[int, str], matched: Mapping[int, int]) -> dict[str, Any]:
    unmatched = [f"line {line}: {what}" for line, what in lines.items() if line not in matched]
    return {
        "lines": len(lines),
        "documents": sum(matched.values()),
        "unmatched": len(unmatched),
        "unmatched_lines": unmatched[:SHOWN_LINES],
    }


def _languages(written: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The kept documents by declared and detected language; `judged`: those whose declared language can be detected, and that
    have text enough."""
    table: Counter[tuple[str, str]] = Counter()
    for each in written:
        for declared, detected, count in each["languages"]:
            table[declared, detected] += count
    judged = agreed = 0
    for (declared, detected), count in table.items():
        code = languages.base_code(declared)
        if detected and code in languages.known_languages():
            judged += count
            agreed += count if code == detected else 0
    most = sorted(table.items(), key=lambda entry: (-entry[1], entry[0]))[:SHOWN_LINES]
    return {
        "judged": judged,
        "agreed": agreed,
        "table": [{"declared": one, "detected": other, "documents": count} for (one, other), count in most],
    }


class _Table:
    """The documents between the passes, for accounts and statistics."""

    def __init__(self, plan: Plan, numbers: Numbers, choice: Choice) -> None:
        self.plan = plan
        self.reason = choice.reason
        self.group = choice.group
        self.characters = numbers.read("characters")
        fractions = numbers.read("identity")[:, 0]
        self.held_out = held_out_of(fractions, plan.config.held_out)
        stay = np.flatnonzero(self.reason == 0)
        lengths = self.characters[stay]
        self.longest = _smallest(stay, -lengths)
        self.shortest = _smallest(stay, lengths)
        self.sample = _smallest(stay, mixed(fractions[stay]))
        self.largest_groups = [place for place in _smallest(stay, -self.group[stay]) if self.group[place] > 1]

    def show(self) -> list[int]:
        """Places of the documents that the statistics show."""
        return sorted({*self.longest, *self.shortest, *self.sample, *self.largest_groups})

    def rows_of(self, source: str) -> slice:
        """Where a source's documents lie."""
        mine = [task for task in self.plan.tasks if task.source == source]
        return slice(mine[0].first, mine[-1].first + mine[-1].rows) if mine else slice(0, 0)

    def account(self, source: str) -> dict[str, Any]:
        """{read, kept, dropped: {reason: count}} of one source."""
        reason = self.reason[self.rows_of(source)]
        return {"read": len(reason), "kept": int((reason == 0).sum()), "dropped": counts_by_reason(reason)}

    def describe(self, written: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
        """Lengths, sources, samples, groups of duplicates."""
        shown = {
            row["place"]: {k: v for k, v in row.items() if k != "place"} for each in written for row in each["shown"]
        }
        stay = self.reason == 0
        groups = self.group[self.group > 1]
        mean, variance = expected_held_out(self.group, self.plan.config.held_out)
        return {
            **describe_lengths(self.characters[stay]),
            "documents": {name: self._splits(self.rows_of(name)) for name in names},
            "tokens_millions_by_source": {
                name: round(
                    float(self.characters[self.rows_of(name)][stay[self.rows_of(name)]].sum())
                    / CHARACTERS_PER_TOKEN
                    / 1e6,
                    6,
                )
                for name in names
            },
            "held_out_expected": round(mean, 6),
            "held_out_variance": round(variance, 6),
            "duplicate_groups": len(groups),
            "documents_in_duplicate_groups": int(groups.sum()),
            "largest_duplicate_groups": [
                {"size": int(self.group[place]), **shown[place]} for place in self.largest_groups
            ],
            "sample": [shown[place] for place in self.sample],
            "longest": [shown[place] for place in self.longest],
            "shortest": [shown[place] for place in self.shortest],
        }

    def _splits(self, rows: slice) -> dict[str, int]:
        held_out = self.held_out[rows][self.reason[rows] == 0]
        return {"train": int((~held_out).sum()), "held_out": int(held_out.sum())}


def _smallest(places: npt.NDArray[np.int64], keys: npt.NDArray[Any]) -> list[int]:
    """The places of the SHOWN smallest keys, then by place."""
    if len(keys) > SHOWN:
        bound = np.partition(keys, SHOWN - 1)[SHOWN - 1]
        below, equal = np.flatnonzero(keys < bound), np.flatnonzero(keys == bound)
        chosen = np.concatenate([below, equal[: SHOWN - len(below)]])
    else:
        chosen = np.arange(len(keys))
    order = np.lexsort((places[chosen], keys[chosen]))
    return [int(place) for place in places[chosen[order]]]
