"""The `task_data_T` stage: the files of one downstream task, read, checked and written as tables of one form per kind.

known_tasks      the tasks known by name: their files, columns, counts, published scores
official_files   where these files are: a folder, an archive, a download
task_examples    files → examples, one reader per kind (task_records, conll, squad: one per format)
task_split       train, dev and test
task_kinds       the tables
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.artifact import read_json, write_json
from model.task_files import conll
from model.task_files.known_tasks import KNOWN, KnownTask, title_of
from model.task_files.official_files import official_files, where_to_get
from model.task_files.task_examples import Counted, File, answer_column, read_examples, with_answers
from model.task_files.task_kinds import ANSWER_OF, PARTS, SCHEMAS, Example, default_metric
from model.task_files.task_records import MALFORMED, SUFFIXES, read_records
from model.task_files.task_split import Parts, by_hash, overlap, positives, split_own
from pipeline import progress, sources
from pipeline.config import From, Metric, OfficialFrom, PathFrom, Task, TaskDataConfig, TaskForm
from pipeline.errors import DataError
from pipeline.formats.iob import is_iob
from pipeline.selection.sampling import evenly
from pipeline.stage import Stage
from pipeline.system import atomic

STAGE = Stage(
    name="task_data",
    function="model.tasks:prepare_task",
    # 2: files of the tasks known by name, every kind; 3: lines of names, labels that train lost to a share; 4: of a user's test part
    # either all examples are answered or those without are dropped
    version="4",
    sources=(
        "model/tasks.py",
        "model/task_files/known_tasks.py",
        "model/task_files/official_files.py",
        "model/task_files/task_examples.py",
        "model/task_files/task_kinds.py",
        "model/task_files/task_records.py",
        "model/task_files/task_split.py",
        "model/task_files/conll.py",
        "model/scoring/entities.py",
        "pipeline/formats/iob.py",
        "model/task_files/squad.py",
        "pipeline/selection/sampling.py",
        "pipeline/formats/archives.py",
        "pipeline/formats/inflate.py",
        "pipeline/formats/unpacked.py",
        "pipeline/formats/tables.py",
        "pipeline/formats/jsonl.py",
        "pipeline/formats/compressed.py",
    ),
    failure="model.tasks:say_failed",
)

NOT_RUN = "not_run.json"
"""stands in the place of everything else: the data was never there, or the task `failed`"""
CLASSES = ("classification", "pair_classification")
LABELLED = (*CLASSES, "tagging")
"""kinds whose answers are of a set of labels"""
SHOWN = 5
"""labels that a message or a note names"""
DEV_SHARE = 0.1
"""of the train of a public task, where the file that says which examples are dev is missing"""
GROUP_ROWS = 1 << 16


def prepare_task(inputs: Mapping[str, Path], config: TaskDataConfig, out: Path) -> dict[str, Any]:
    """Read a task's files and write a table per part and task.json, or not_run.json. `inputs` is empty.

    Raises:
        DataError: files that can't be read, a column that is missing, less than two labels, one that is not known.
        SourceError: a download that fails.
    """
    with tempfile.TemporaryDirectory(
        prefix=".scratch-", dir=out
    ) as scratch:  # of a killed one, with the staging folder
        try:
            read = _own(config, out, Path(scratch)) if config.define else _known(config, out, Path(scratch))
            if isinstance(read, _Absent):
                return _not_run(config, out, read)
            if config.sample < 1:
                sampled = {part: evenly(examples, config.sample) for part, examples in read.parts.items()}
                read = replace(read, parts=sampled, counted=_thinned(read, sampled))
            return _write(config.task, read, out)
        except DataError as error:
            raise DataError(_as_named(error.what, config, Path(scratch)), error.todo) from error


def _thinned(read: "_Read", sampled: Parts) -> Counted:
    """What was counted, with what a rehearsal leaves out."""
    left = {
        f"{part}: not in the sample": len(examples) - len(sampled[part])
        for part, examples in read.parts.items()
        if len(examples) > len(sampled[part])
    }
    return replace(read.counted, dropped=Counter({**read.counted.dropped, **left}))


def _as_named(what: str, config: TaskDataConfig, scratch: Path) -> str:
    """A message with the files as the recipe names them, not as they lie where they are read."""
    if config.define:
        for part in PARTS:
            origin = getattr(config.define.files, part)
            if isinstance(origin, PathFrom):
                what = what.replace(str(scratch / part / Path(origin.path).name), origin.path)
    return what.replace(f"{scratch}/", "")


@dataclass(frozen=True)
class _Absent:
    """Why there is no data."""

    why: str
    wants: list[str]
    todo: str = ""


@dataclass(frozen=True)
class _Read:
    """A task with its examples, split."""

    title: str
    form: TaskForm
    declared: bool
    """whether the labels of `form` are those that somebody declared, and not those that train has"""
    metrics: tuple[Metric, ...]
    parts: Parts
    needed: tuple[str, ...]
    """parts that must have examples"""
    counted: Counted
    published: tuple[dict[str, Any], ...]
    official: Mapping[str, int]
    """part → number of examples that it officially has; of tasks of one's own none"""


def _not_run(config: TaskDataConfig, out: Path, absent: _Absent) -> dict[str, Any]:
    todo = {"todo": absent.todo} if absent.todo else {}
    title = title_of(config.task, config.define)
    write_json(out / NOT_RUN, {"task": config.task, "title": title, "why": absent.why, "wants": absent.wants, **todo})
    return {"not_run": absent.why, "wants": ", ".join(absent.wants), **todo, "dropped": {}}


def say_not_run(task: str, title: str, why: str, wants: Sequence[str], out: Path) -> dict[str, Any]:
    """Write not_run.json of a task that has data and can't be trained or answered; the statistics of that."""
    atomic.write_json(out / NOT_RUN, {"task": task, "title": title, "why": why, "wants": wants})
    return {"not_run": why, "wants": ", ".join(wants), "dropped": {}}


def say_failed(inputs: Mapping[str, Path], config: Any, out: Path, why: str) -> dict[str, Any]:
    """Write not_run.json of a task whose data can't be used, or that can't be trained, so that the others are reported all the
    same. `config`: of this stage, or one that reads `inputs["task_data"]`."""
    told = inputs["task_data"] / "task.json" if "task_data" in inputs else None
    if told is not None and told.exists():
        title = read_json(told)["title"]
    else:
        title = title_of(config.task, getattr(config, "define", None))
    write_json(out / NOT_RUN, {"task": config.task, "title": title, "why": why, "wants": [], "failed": True})
    return {"not_run": why, "wants": "", "dropped": {}}


# ── a task of one's own ──────────────────────────────────────────────────────────────────────────────────────────────


def _own(config: TaskDataConfig, out: Path, scratch: Path) -> _Read | _Absent:
    define = config.define
    assert define is not None
    origins: dict[str, From | None] = {part: getattr(define.files, part) for part in PARTS}
    absent = [
        f"{part}: {Path(origin.path).name}"
        for part, origin in origins.items()
        if isinstance(origin, PathFrom) and not sources.present(origin)
    ]
    if absent:
        return _Absent("its files do not exist", absent)
    counted = Counted()
    read: Parts = {}
    named: dict[str, str] = {}
    for part, origin in origins.items():
        if origin is not None:
            (scratch / part).mkdir()
            path = _one_file(sources.open_files(origin, scratch / part), part)
            found = _listed(read_examples(File(part, path, define), counted), read)
            read[part] = with_answers(part, found, answer_column(define), counted) if part == "test" else found
            named[part] = str(path)
    tested = define.files.test is not None or define.test_share is not None
    form, metric = _named_tags(define, read, counted), define.metric or default_metric(define.kind)
    if form.kind in LABELLED and not form.labels:  # those of the whole file: a share of it may be all that has one
        form = form.model_copy(update={"labels": tuple(sorted(_used(read["train"])))})
    if form.kind == "tagging" and define.metric is None and not is_iob(_tags(read)):
        metric = "accuracy"  # there are no entities
    needed = PARTS if tested else PARTS[:2]
    parts = positives(define, split_own(define, read, counted), counted)
    for part in needed:
        if not parts[part]:
            raise _without_examples(config.task, define, part, read, named, counted)
    return _Read(
        title=title_of(config.task, define),
        form=form,
        declared=bool(define.labels),
        metrics=(metric,),
        parts=parts,
        needed=needed,
        counted=counted,
        published=tuple(row.plain() for row in define.published),
        official={},
    )


def _without_examples(
    task: str, define: Task, part: str, read: Parts, named: Mapping[str, str], counted: Counted
) -> DataError:
    """Why a part has no example: the file that has none, or the share of train that takes none, or all."""
    what = f"task {task} has no example of {part}"
    went = _what_went(counted)
    if part in read and not read[part]:
        return DataError(f"{what}: {named[part]} holds none{went}", f"Correct the file that `files.{part}` names.")
    if part in read:
        shares = define.shares if part == "train" else {}
        takers = " and ".join([*(f"{key} {value:g}" for key, value in shares.items()), "what other parts hold"])
        return DataError(
            f"{what}: {takers} leave none of those of {named[part]}{went}",
            f"Lower {' or '.join(shares)}, or add examples to the file." if shares else "Add examples to the file.",
        )
    share = define.shares[f"{part}_share"]
    groups = len({example.group for example in read["train"]})
    return DataError(
        f"{what}: {part}_share {share:g} of {named['train']}, taken by a hash of its {groups:,} different texts, is none"
        f"{went}",
        f"Raise {part}_share, add examples to the file, or name `files.{part}`.",
    )


def _one_file(folder: Path, part: str) -> Path:
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    if len(files) != 1:
        listed = ", ".join(path.name for path in files[:5]) or "none"
        raise DataError(
            f"files.{part} of the task holds {len(files)} files ({listed}); it must name one table",
            f"Name the file itself, ending in {', '.join(SUFFIXES)}.",
        )
    return files[0]


def _listed(examples: Iterator[Example], before: Parts) -> list[Example]:
    listed = list(examples)
    progress.report(len(listed) + sum(map(len, before.values())), None, "examples")
    return listed


# ── a task known by name ─────────────────────────────────────────────────────────────────────────────────────────────


def _known(config: TaskDataConfig, out: Path, scratch: Path) -> _Read | _Absent:
    task = KNOWN.get(config.task)
    if task is None:
        raise DataError(
            f"there is no task {config.task!r}", f"Define it in the recipe, or name one of {', '.join(KNOWN)}."
        )
    wants = [f"{part}: {name}" for part, name in task.files.items()]
    if config.from_ is None:
        return _Absent("the recipe names no files for it", wants, where_to_get(task))
    if not isinstance(config.from_, OfficialFrom) and not sources.present(config.from_):
        return _Absent("its files do not exist", wants, where_to_get(task))
    files = official_files(task, config.from_, scratch)
    missing = [name for name, part in task.parts.items() if name not in files]
    if any(task.parts[name].needed for name in missing):
        wants = [f"{name}: {task.parts[name].file}" for name in missing]
        return _Absent("some of its files are missing", wants, where_to_get(task))
    counted = Counted(notes=[f"{task.parts[name].file} is missing: no {name} part" for name in missing])
    parts = positives(task.form, _official_parts(task, files, counted), counted)
    counted.leaked_texts = overlap(parts)
    needed = tuple(name for name, part in task.parts.items() if part.needed or (name == "dev" and task.dev_ids))
    for name in needed:
        if not parts[name]:
            file = task.parts[name].file
            raise DataError(
                f"task {config.task} has no example of {name}: {file} holds none{_what_went(counted)}",
                f"Put the official {file} there.",
            )
    official = {name: task.parts[name].count for name in files}
    _compare(official, parts, counted)
    return _Read(
        title=task.title,
        declared=bool(task.form.labels),
        form=_named_tags(task.form, parts, counted),
        metrics=task.scored_by,
        parts=parts,
        needed=needed,
        counted=counted,
        published=tuple(row.plain() for row in task.published),
        official=official,
    )


def _official_parts(task: KnownTask, files: Mapping[str, Path], counted: Counted) -> Parts:
    """The examples of every part; a part whose file is missing has none."""
    read: Parts = {}
    ids = set[tuple[str, ...]]()
    for name, path in files.items():
        if task.dev_ids and name == "dev" and "ids" in path.stem:
            ids = _ids(task, path)
            continue
        file = File(name, path, task.form, task.parts[name].header, official=True)
        read[name] = _listed(read_examples(file, counted), read)
    if task.dev_ids and "dev" not in read:
        read["train"], read["dev"] = _dev_of_train(task, files["train"], read["train"], ids, counted)
    wanted = dict.fromkeys((*task.parts, *(PARTS if "train" in task.parts else ())))
    return {name: read.get(name, []) for name in wanted}


def _ids(task: KnownTask, path: Path) -> set[tuple[str, ...]]:
    records = read_records(path, task.form)
    records.require(task.dev_ids)
    return {tuple(row[column].strip() for column in task.dev_ids) for _, row in records.rows if row is not None}


def _dev_of_train(
    task: KnownTask, path: Path, train: list[Example], ids: set[tuple[str, ...]], counted: Counted
) -> tuple[list[Example], list[Example]]:
    """(train, dev) of a train file that holds both: by the ids of dev, or, without, a share by hash of the texts."""
    if not ids:
        counted.notes = [note for note in counted.notes if not note.startswith(task.parts["dev"].file)]
        counted.notes.append(
            f"{task.parts['dev'].file} is missing: dev is a share of {DEV_SHARE:g} of train, by hash of the texts, not "
            "the official part"
        )
        return by_hash(train, "dev", DEV_SHARE)
    chosen = {
        f"train:{number}"
        for number, (_, row) in enumerate(read_records(path, task.form).rows, 1)
        if row is not None and tuple(row[column].strip() for column in task.dev_ids) in ids
    }
    kept = [example for example in train if example.example_id not in chosen]
    return kept, [example for example in train if example.example_id in chosen]


def _compare(official: Mapping[str, int], parts: Parts, counted: Counted) -> None:
    """Note where a part has another number of examples than it officially has. Those without text count, lines that are
    none do not."""
    for name, count in official.items():
        prefix, malformed = f"{name}: ", f"{name}: {MALFORMED}"
        dropped = sum(n for why, n in counted.dropped.items() if why.startswith(prefix) and why != malformed)
        found = len(parts[name]) + dropped
        if found != count:
            counted.notes.append(f"{name} has {found:,} examples, officially {count:,}")


# ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _tags(parts: Mapping[str, list[Example]]) -> Iterable[str]:
    return (tag for examples in parts.values() for example in examples for tag in example.label or ())


def _named_tags(form: TaskForm, parts: Parts, counted: Counted) -> TaskForm:
    """Of tagging, with tags of IOB: all parts as IOB2 (in place), and the form with all labels that these can have."""
    if form.kind != "tagging" or not is_iob(_tags(parts)):
        return form
    changed = 0
    for name, examples in parts.items():
        for number, example in enumerate(examples):
            if example.label is not None:
                tags = conll.iob2(example.label)
                changed += sum(a != b for a, b in zip(tags, example.label, strict=True))
                parts[name][number] = replace(example, label=tags)
    if changed:
        counted.notes.append(f"{changed:,} tags I- that begin an entity became B- (IOB2)")
    types = sorted({tag[2:] for tag in _tags({"train": parts.get("train", [])}) if tag != "O"})
    labels = form.labels or ("O", *(f"{side}-{type_}" for type_ in types for side in "BI"))
    return form.model_copy(update={"labels": labels})


def _labels(task: str, read: _Read) -> tuple[str, ...]:
    """The labels as they stand in the files: those declared, else those of train by name; none where there are no classes.

    Raises DataError for fewer than two in train, and where an example has one that is none of them. What train has no
    example of is noted.
    """
    form, parts = read.form, read.parts
    if form.kind not in LABELLED:
        return ()
    labels = form.labels or tuple(sorted(_used(parts["train"])))
    learnt = _used(parts["train"]) if "train" in parts else Counter(labels)
    if len(labels) < 2 or (len(learnt) < 2 and not read.official):  # of a public task, a few rows may be looked at
        raise DataError(
            f"the training part of task {task} has {len(parts['train'])} examples and the labels {sorted(learnt)}; "
            f"a classifier needs two labels at least{_what_went(read.counted)}",
            "Check the column that `label` names, `labels`, and whether dev or test hold the same texts as train.",
        )
    if unknown := _examples_with(parts, lambda label: label not in labels):
        whose = "it does not have" if read.official else "`labels` does not name"
        todo = "Correct the label." if read.official else "Correct the label, or add it to `labels`."
        if not read.declared:
            whose = "no training example has"
            todo = (
                "Correct the label, or add training examples of it; or list all labels as `labels`: then the run goes on, "
                "and these examples can only be answered wrong."
            )
        raise DataError(
            f"task {task} has labels that {whose}: {unknown}; there are {', '.join(map(repr, labels[:20]))}", todo
        )
    if unseen := _examples_with(parts, lambda label: label not in learnt):
        read.counted.notes.append(
            f"train has no example of these labels, so that they can only be answered wrong: {unseen}; add examples, or "
            "call them by another label"
        )
    return labels


def _examples_with(parts: Parts, chosen: Callable[[str], bool]) -> str:
    """`'z' in 2 examples of dev (first dev:7)` for the labels that are chosen, the first few; "" where no example has one."""
    found: dict[tuple[str, str], list[str]] = {}  # (label, part) → examples
    for part, examples in parts.items():
        for example in examples:
            for label in dict.fromkeys(filter(chosen, _each(example))):
                found.setdefault((label, part), []).append(example.example_id)
    named = [
        f"{label!r} in {len(ids):,} example{'s' if len(ids) > 1 else ''} of {part} (first {ids[0]})"
        for (label, part), ids in list(found.items())[:SHOWN]
    ]
    return ", ".join([*named, *([f"and {len(found) - SHOWN:,} more"] if len(found) > SHOWN else [])])


def _what_went(counted: Counted) -> str:
    """What was read and dropped, where there is nothing left to tell it."""
    read = ", ".join(f"{part} {count:,}" for part, count in counted.read.items())
    dropped = ", ".join(f"{why} {count:,}" for why, count in sorted(counted.dropped.items()))
    return f" (read: {read or 'nothing'}; dropped: {dropped or 'nothing'})"


def _each(example: Example) -> Sequence[str]:
    """The labels of an example: none where they are not known."""
    if example.label is None:
        return ()
    return example.label if isinstance(example.label, list) else (example.label,)


def _used(examples: list[Example]) -> Counter[str]:
    return Counter(label for example in examples for label in _each(example))


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(task: str, read: _Read, out: Path) -> dict[str, Any]:
    form, parts, counted = read.form, read.parts, read.counted
    labels = _labels(task, read)
    if "f1" in read.metrics and form.kind in CLASSES and len(labels) != 2:
        raise DataError(f"task {task} has {len(labels)} labels; F1 is of two", "Write metric: macro_f1.")
    numbers = {label: number for number, label in enumerate(labels)}
    for part, examples in parts.items():
        _write_table(out / f"{part}.parquet", form, examples, numbers)
    counts = {part: len(examples) for part, examples in parts.items()}
    dropped = dict(sorted(counted.dropped.items()))
    if sum(counted.read.values()) != sum(counts.values()) + sum(dropped.values()):
        raise DataError(
            f"the examples of {task} do not add up: read {dict(counted.read)}, kept {counts}, dropped {dropped}",
            "This is a fault of the stage; please report it.",
        )
    by_label = {part: _used(examples) for part, examples in parts.items()}
    train = parts.get("train", [])
    duplicates = len(train) - len({example.same for example in train})
    names = form.label_names or labels
    scores = [example.label for example in train if example.label is not None] if form.kind == "regression" else []
    content = {
        "name": task,
        "title": read.title,
        "kind": form.kind,
        "metric": read.metrics[0],
        "metrics": list(read.metrics),
        "labels": list(names),
        "counts": counts,
        "label_counts": {n: {part: by_label[part][v] for part in parts} for v, n in zip(labels, names, strict=True)},
        "needed": list(read.needed),
        "official_counts": dict(read.official),
        "read": dict(counted.read),
        "dropped": dropped,
        "leaked_texts": counted.leaked_texts,
        "duplicates_in_train": duplicates,
        "notes": counted.notes,
        "published": list(read.published),
        **({"score_range": [min(scores), max(scores)]} if scores else {}),
        **({"answers": dict(sorted(counted.answers.items()))} if form.kind == "span" else {}),
    }
    write_json(out / "task.json", content)
    return {
        "title": content["title"],
        "examples": sum(counts.values()),
        **counts,
        "label_count": len(labels),
        "leaked_texts": counted.leaked_texts,
        "duplicates_in_train": duplicates,
        "read": dict(counted.read),
        "labels": {name: by_label["train"][label] for label, name in zip(labels, names, strict=True)} if train else {},
        "answers": dict(sorted(counted.answers.items())),
        **({"notes": "; ".join(counted.notes)} if counted.notes else {}),
        "dropped": dropped,
    }


def _write_table(path: Path, form: TaskForm, examples: list[Example], numbers: Mapping[str, int]) -> None:
    """Write the examples of a part."""
    schema, answer = SCHEMAS[form.kind], ANSWER_OF[form.kind]

    def value(example: Example, column: str) -> Any:
        if column == "example_id":
            return example.example_id
        if column != answer or form.kind == "span":
            return example.values[column]
        if example.label is None or not numbers:
            return example.label
        return [numbers[tag] for tag in example.label] if form.kind == "tagging" else numbers[example.label]

    columns = [pa.array([value(each, field.name) for each in examples], field.type) for field in schema]
    table = pa.Table.from_arrays(columns, schema=schema)
    pq.write_table(table, path, compression="zstd", row_group_size=GROUP_ROWS)
