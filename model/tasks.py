"""Downstream tasks: those known by name, with the scores published for them, and the `task_data_T` stage.

A task of one's own (`finetuning.define` of a recipe) is read from tables. The files of the tasks known by name are
declared here, but not read yet: such a task publishes `not_run.json`, which says what it wants.
"""

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import progress, sources
from pipeline.config import From, Task, TaskDataConfig
from pipeline.errors import DataError
from pipeline.stage import Stage
from pipeline.tables import SUFFIXES, read_table

STAGE = Stage(
    name="task_data",
    function="model.tasks:prepare_task",
    version="1",
    sources=("model/tasks.py", "pipeline/tables.py"),
)

Kind = Literal["classification", "pair_classification", "regression", "span", "multiple_choice", "tagging"]

EXAMPLES_SCHEMA = pa.schema(
    [
        pa.field("example_id", pa.string(), nullable=False),
        pa.field("text_a", pa.string(), nullable=False),
        pa.field("text_b", pa.string()),
        pa.field("label", pa.int32()),
    ]
)
"""train.parquet, dev.parquet, test.parquet: `example_id` is `<part of the files>:<number of the record, from 1>`,
`text_b` null for single texts, `label` an index into the labels of task.json, null where it is not known."""
PARTS = ("train", "dev", "test")
NOT_RUN = "not_run.json"
"""stands in the place of everything else: the data was never there"""


# ── the tasks known by name ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Published:
    """One published score."""

    system: str
    split: Literal["dev", "test"]
    metric: str
    points: float
    """out of 100, as published"""
    source: str


@dataclass(frozen=True)
class KnownTask:
    """A public task, as its authors distribute it."""

    name: str
    title: str
    kind: Kind
    metrics: tuple[str, ...]
    """names of model/metrics.py, the official one first"""
    files: Mapping[str, str]
    """part → official file name"""
    published: tuple[Published, ...] = ()


_TABLE_1, _TABLE_2 = "Devlin et al. 2019, table 1", "Devlin et al. 2019, table 2"
_TABLE_3, _TABLE_4 = "Devlin et al. 2019, table 3", "Devlin et al. 2019, table 4"
_TABLE_5, _TABLE_7 = "Devlin et al. 2019, table 5", "Devlin et al. 2019, table 7"
_README = "google-research/bert README, small models of 2020"


def _row(system: str, split: Literal["dev", "test"], metric: str, points: float, source: str) -> Published:
    return Published(system, split, metric, points, source)


def _glue(metric: str, base: float, large: float, tiny: float, dev: Published | None = None) -> tuple[Published, ...]:
    """Rows of the GLUE server's test set, and the paper's dev score of BERT-base where it gives one."""
    rows = [
        _row("BERT-base", "test", metric, base, _TABLE_1),
        _row("BERT-large", "test", metric, large, _TABLE_1),
        _row("BERT-Tiny (2 layers of 128)", "test", metric, tiny, _README),
    ]
    return (*([dev] if dev else []), *rows)


def _base_dev(metric: str, points: float) -> Published:
    return _row("BERT-base", "dev", metric, points, _TABLE_5)


_TSV = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}

KNOWN: Mapping[str, KnownTask] = {
    task.name: task
    for task in (
        KnownTask("cola", "CoLA", "classification", ("matthews",), _TSV, _glue("matthews", 52.1, 60.5, 0.0)),
        KnownTask(
            *("sst2", "SST-2", "classification", ("accuracy",), _TSV),
            _glue("accuracy", 93.5, 94.9, 83.2, _base_dev("accuracy", 92.7)),
        ),
        KnownTask(
            *("mrpc", "MRPC", "pair_classification", ("f1", "accuracy")),
            {"train": "msr_paraphrase_train.txt", "dev": "dev_ids.tsv", "test": "msr_paraphrase_test.txt"},
            _glue("f1", 88.9, 89.3, 81.1, _base_dev("accuracy", 86.7)),
        ),
        KnownTask("stsb", "STS-B", "regression", ("spearman", "pearson"), _TSV, _glue("spearman", 85.8, 86.5, 73.6)),
        KnownTask("qqp", "QQP", "pair_classification", ("f1", "accuracy"), _TSV, _glue("f1", 71.2, 72.1, 62.2)),
        KnownTask(
            *("mnli", "MNLI (matched)", "pair_classification", ("accuracy",)),
            {
                "train": "train.tsv",
                "dev": "dev_matched.tsv",
                "dev_mismatched": "dev_mismatched.tsv",
                "test": "test_matched.tsv",
                "test_mismatched": "test_mismatched.tsv",
            },
            _glue("accuracy", 84.6, 86.7, 70.2, _base_dev("accuracy", 84.4)),
        ),
        KnownTask(
            *("qnli", "QNLI", "pair_classification", ("accuracy",), _TSV),
            _glue("accuracy", 90.5, 92.7, 81.5, _base_dev("accuracy", 88.4)),
        ),
        KnownTask("rte", "RTE", "pair_classification", ("accuracy",), _TSV, _glue("accuracy", 66.4, 70.1, 57.2)),
        KnownTask("wnli", "WNLI", "pair_classification", ("accuracy",), _TSV),
        KnownTask(
            *("ax", "AX (GLUE diagnostics)", "pair_classification", ("matthews",), {"test": "diagnostic.tsv"}),
            (_row("BERT-Tiny (2 layers of 128)", "test", "matthews", 21.0, _README),),
        ),
        KnownTask(
            *("squad1_1", "SQuAD 1.1", "span", ("f1", "exact_match")),
            {"train": "train-v1.1.json", "dev": "dev-v1.1.json"},
            (
                _row("BERT-base", "dev", "f1", 88.5, _TABLE_2),
                _row("BERT-large", "dev", "f1", 90.9, _TABLE_2),
                _row("human", "test", "f1", 91.2, _TABLE_2),
            ),
        ),
        KnownTask(
            *("squad2_0", "SQuAD 2.0", "span", ("f1", "exact_match")),
            {"train": "train-v2.0.json", "dev": "dev-v2.0.json"},
            (
                _row("BERT-large", "dev", "f1", 81.9, _TABLE_3),
                _row("BERT-large", "test", "f1", 83.1, _TABLE_3),
                _row("human", "test", "f1", 89.5, _TABLE_3),
            ),
        ),
        KnownTask(
            *("swag", "SWAG", "multiple_choice", ("accuracy",)),
            {"train": "train.csv", "dev": "val.csv", "test": "test.csv"},
            (
                _row("BERT-base", "dev", "accuracy", 81.6, _TABLE_4),
                _row("BERT-large", "dev", "accuracy", 86.6, _TABLE_4),
                _row("BERT-large", "test", "accuracy", 86.3, _TABLE_4),
            ),
        ),
        KnownTask(
            *("conll2003", "CoNLL-2003 NER", "tagging", ("entity_f1",)),
            {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"},
            (
                _row("BERT-base", "dev", "entity_f1", 96.4, _TABLE_7),
                _row("BERT-base", "test", "entity_f1", 92.4, _TABLE_7),
                _row("BERT-large", "dev", "entity_f1", 96.6, _TABLE_7),
                _row("BERT-large", "test", "entity_f1", 92.8, _TABLE_7),
            ),
        ),
    )
}
"""Tasks that a recipe can name without declaring them."""


def title_of(task: str, define: Task | None = None) -> str:
    """What people call the task."""
    if define is not None:
        return define.title or task
    return KNOWN[task].title if task in KNOWN else task


def published_of(task: str) -> list[dict[str, Any]]:
    """Published scores of a task, as JSON values; none for tasks of one's own."""
    return [asdict(row) for row in KNOWN[task].published] if task in KNOWN else []


# ── the stage ────────────────────────────────────────────────────────────────────────────────────────────────────────


def prepare_task(inputs: Mapping[str, Path], config: TaskDataConfig, out: Path) -> dict[str, Any]:
    """Read a task's files and write train, dev and test.parquet and task.json, or not_run.json. `inputs` is empty.

    Raises:
        DataError: a table that can't be read, a column that is missing, less than two labels, one that train lacks.
        SourceError: a download that fails.
    """
    if config.define is None:
        return _unread(config, out)
    origins = {part: getattr(config.define.files, part) for part in PARTS}
    absent = [f"{part}: {Path(origin.path).name}" for part, origin in origins.items() if origin and _absent(origin)]
    if absent:
        return _not_run(config, out, absent, "its files do not exist")
    with tempfile.TemporaryDirectory() as scratch:
        read, counted = _read(config.define, origins, Path(scratch))
    return _write(config, *_split(config.define, read, counted), out)


def _absent(origin: From) -> bool:
    return not sources.present(origin)


def _unread(config: TaskDataConfig, out: Path) -> dict[str, Any]:
    """`not_run` of a task known by name."""
    if config.task not in KNOWN:
        raise DataError(
            f"there is no task {config.task!r}", f"Define it in the recipe, or name one of {', '.join(KNOWN)}."
        )
    wants = [f"{part}: {name}" for part, name in KNOWN[config.task].files.items()]
    if config.from_ is None or _absent(config.from_):
        why = "the recipe names no files for it" if config.from_ is None else "its files do not exist"
        return _not_run(config, out, wants, why)
    return _not_run(config, out, wants, "this version of bertworks does not read the files of this task yet")


def _not_run(config: TaskDataConfig, out: Path, wants: list[str], why: str) -> dict[str, Any]:
    content = {"task": config.task, "title": title_of(config.task, config.define), "why": why, "wants": wants}
    _write_json(out / NOT_RUN, content)
    return {"not_run": why, "wants": ", ".join(wants), "dropped": {}}


# ── reading and splitting tables ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Example:
    """One text of a task."""

    example_id: str
    text: str
    label: str | None

    @property
    def same(self) -> str:
        """Equal for texts that differ in white space only."""
        return " ".join(self.text.split())


@dataclass
class Counted:
    """What happened on the way from the files to the tables."""

    read: Counter[str]
    """records, by part of the files"""
    dropped: Counter[str]
    """`part: reason` → records"""
    leaked_texts: int = 0
    """different texts of test (or dev) that train held too"""


def _read(define: Task, origins: Mapping[str, From | None], scratch: Path) -> tuple[dict[str, list[Example]], Counted]:
    """The examples of every part of the files, without empty texts and labels."""
    counted = Counted(Counter(), Counter())
    parts: dict[str, list[Example]] = {}
    for part, origin in origins.items():
        if origin is None:
            continue
        (scratch / part).mkdir()
        path = _table_file(sources.open_files(origin, scratch / part), part)
        parts[part] = list(_examples(define, path, part, counted))
        progress.report(sum(map(len, parts.values())), None, "examples")
    return parts, counted


def _table_file(folder: Path, part: str) -> Path:
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    if len(files) != 1:
        listed = ", ".join(path.name for path in files[:5]) or "none"
        raise DataError(
            f"files.{part} of the task holds {len(files)} files ({listed}); it must name one table",
            f"Name the file itself, ending in {', '.join(SUFFIXES)}.",
        )
    return files[0]


def _examples(define: Task, path: Path, part: str, counted: Counted) -> Iterator[Example]:
    table = read_table(path)
    labelled = part != "test" or define.label in table.columns
    table.require([define.text, define.label] if labelled else [define.text])
    for number, (_, row) in enumerate(table.rows, 1):
        counted.read[part] += 1
        text, label = row[define.text], row[define.label].strip() if labelled else None
        if not text.strip():
            counted.dropped[f"{part}: empty text"] += 1
        elif label == "":
            counted.dropped[f"{part}: empty label"] += 1
        else:
            yield Example(f"{part}:{number}", text, label)


def _split(
    define: Task, read: Mapping[str, list[Example]], counted: Counted
) -> tuple[dict[str, list[Example]], Counted]:
    """Train, dev and test without overlap: what test holds leaves train and dev, what dev holds leaves train."""
    train, dev, test = (read.get(part, []) for part in PARTS)
    if "test" not in read and define.test_share is not None:
        train, test = _by_hash(train, "test", define.test_share)
    seen_in_train = {example.same for example in train}
    leaked = {example.same for example in test} & seen_in_train
    train = _without(train, "train", "also stands in test", test, counted)
    dev = _without(dev, "dev", "also stands in test", test, counted)
    if "dev" in read:
        leaked |= {example.same for example in dev} & seen_in_train
        train = _without(train, "train", "also stands in dev", dev, counted)
    else:
        train, dev = _by_hash(train, "dev", define.dev_share)
    return {"train": train, "dev": dev, "test": test}, replace(counted, leaked_texts=len(leaked))


def _by_hash(examples: list[Example], name: str, share: float) -> tuple[list[Example], list[Example]]:
    """(kept, taken): about `share` of the texts is taken, by a hash of the text, so that equal texts stay together."""
    taken = [_position(name, example.same) < share for example in examples]
    pairs = list(zip(examples, taken, strict=True))
    return [e for e, out in pairs if not out], [e for e, out in pairs if out]


def _position(name: str, text: str) -> float:
    """A number from 0 up to 1 that follows from the text; independent for every `name`."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=name.encode()).digest()
    return int.from_bytes(digest, "big") / 2**64


def _without(examples: list[Example], part: str, reason: str, other: list[Example], counted: Counted) -> list[Example]:
    texts = {example.same for example in other}
    kept = [example for example in examples if example.same not in texts]
    if len(kept) < len(examples):
        counted.dropped[f"{part}: {reason}"] += len(examples) - len(kept)
    return kept


def _write(config: TaskDataConfig, parts: dict[str, list[Example]], counted: Counted, out: Path) -> dict[str, Any]:
    labels = _labels(config.task, parts)
    numbers = {label: number for number, label in enumerate(labels)}
    for part, examples in parts.items():
        columns = [
            [example.example_id for example in examples],
            [example.text for example in examples],
            [None] * len(examples),
            [None if example.label is None else numbers[example.label] for example in examples],
        ]
        table = pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, EXAMPLES_SCHEMA, strict=True)],
            schema=EXAMPLES_SCHEMA,
        )
        pq.write_table(table, out / f"{part}.parquet", compression="zstd", row_group_size=1 << 16)
    counts = {part: len(examples) for part, examples in parts.items()}
    by_label = {part: Counter(example.label for example in examples) for part, examples in parts.items()}
    dropped = dict(sorted(counted.dropped.items()))
    if sum(counted.read.values()) != sum(counts.values()) + sum(dropped.values()):
        raise DataError(
            f"the examples of {config.task} do not add up: read {dict(counted.read)}, kept {counts}, dropped {dropped}",
            "This is a fault of the stage; please report it.",
        )
    duplicates = counts["train"] - len({example.same for example in parts["train"]})
    content = {
        "name": config.task,
        "title": title_of(config.task, config.define),
        "kind": "classification",
        "metric": "accuracy",
        "labels": labels,
        "counts": counts,
        "label_counts": {label: {part: by_label[part][label] for part in PARTS} for label in labels},
        "read": dict(counted.read),
        "dropped": dropped,
        "leaked_texts": counted.leaked_texts,
        "duplicates_in_train": duplicates,
    }
    _write_json(out / "task.json", content)
    return {
        "title": content["title"],
        "examples": sum(counts.values()),
        **counts,
        "label_count": len(labels),
        "leaked_texts": counted.leaked_texts,
        "duplicates_in_train": duplicates,
        "read": dict(counted.read),
        "labels": {label: by_label["train"][label] for label in labels},
        "dropped": dropped,
    }


def _labels(task: str, parts: Mapping[str, list[Example]]) -> list[str]:
    """The labels of train by name. Raises DataError where dev or test has another one, or there are fewer than two."""
    labels = sorted({example.label for example in parts["train"] if example.label is not None})
    if len(labels) < 2:
        raise DataError(
            f"the training part of task {task} has {len(parts['train'])} examples and the labels {labels}; "
            "a classifier needs two labels at least",
            "Check the column that `label` names, and dev_share and test_share.",
        )
    for part in ("dev", "test"):
        for example in parts[part]:
            if example.label is not None and example.label not in labels:
                raise DataError(
                    f"example {example.example_id} of task {task} ({part}) has the label {example.label!r}, which no "
                    f"training example has; these have {', '.join(map(repr, labels[:20]))}",
                    "Correct the label, or add training examples of it.",
                )
    return labels


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
