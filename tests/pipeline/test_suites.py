"""Every check of every suite passes on a good artifact and fails on one poisoned for it, by real Great Expectations."""

import bz2
import hashlib
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from pipeline.books import BOOKS_SCHEMA
from pipeline.config import (
    Architecture,
    BooksTextConfig,
    Comparison,
    ContaminationConfig,
    DecisionConfig,
    DocumentsConfig,
    FilesConfig,
    FinetuneConfig,
    Frozen,
    ImportedConfig,
    OwnTextConfig,
    PredictConfig,
    PretrainConfig,
    ReleaseConfig,
    ReportConfig,
    ShardsConfig,
    TaskDataConfig,
    VocabularyConfig,
    WikipediaTextConfig,
)
from pipeline.profiles.tables import sigmas
from pipeline.schemas import DOCUMENTS_SCHEMA, TEXT_SCHEMA
from pipeline.selection.document_passes import DROPPED_SCHEMA
from pipeline.sharding.shard_schema import shard_schema
from pipeline.suites import DOES_NOT_APPLY, INPUTS, SUITES, Check, profile, suite_digest, validate
from pipeline.tokenizer import SPECIAL_TOKENS, tokenizer_json
from pipeline.validation import expect

Poison = Callable[[Path, dict[str, Any]], Any]
"""Spoils the folder or the stage's statistics."""


def edit(path: Path, change: Callable[[list[dict[str, Any]]], Any], schema: pa.Schema | None = None) -> None:
    """Rewrite a Parquet file with changed rows."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema or table.schema), path)


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


# ── good artifacts, by stage ─────────────────────────────────────────────────────────────────────────────────────────


def good_files(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    (folder / "dump.xml.bz2").write_bytes(b"BZh91AY")
    (folder / "notes.txt").write_text("hello")
    declared = [
        {"name": path.name, "size_bytes": path.stat().st_size, "sha1": hashlib.sha1(path.read_bytes()).hexdigest()}
        for path in folder.iterdir()
    ]
    return FilesConfig.model_validate({"from": {"wiki": "enwiki", "dump": "20260101"}}), {
        "files": declared,
        "size_bytes": 900,
        "older": {"date": "20260101", "size_bytes": 1000},
    }


def text_rows(source: str, count: int) -> list[dict[str, Any]]:
    return [
        {
            "doc_id": f"{source}:{i + 7}",
            "source": source,
            "licence": "CC0-1.0",
            "text": f"Thing {i} is. It was.\n\nÉnd.",
        }
        for i in range(count)
    ]


def counted(folder: Path, kept: int) -> None:
    counts = {"read": kept + 3, "kept": kept, "dropped": {"empty": 2, "redirect": 1}}
    (folder / "dropped.json").write_text(json.dumps(counts))


def good_wikipedia(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    pq.write_table(pa.Table.from_pylist(text_rows("enwiki", 60), TEXT_SCHEMA), folder / "part-00000.parquet")
    counted(folder, 60)
    older = {"date": "20260101", "characters_millions": 2.0}
    return WikipediaTextConfig(source="enwiki"), {"characters_millions": 1.8, "older": older}


BEFORE = {"characters_millions": 1.8, "older": {"date": "0123 of 2026-01-01", "characters_millions": 2.0}}


def good_books(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    pq.write_table(pa.Table.from_pylist(text_rows("books", 60), TEXT_SCHEMA), folder / "part-00000.parquet")
    counted(folder, 60)
    flags = {"mojibake_repaired": False, "pretokenised": False, "lowercased": False}
    book = {"format": "txt", "bytes": 9, "characters": 9, "licence": "CC0-1.0", **flags}
    files = [{"path": f"{n:02}.txt", "documents": 1, **book} for n in range(60)]
    files += [{"path": "cover.jpg", "documents": 0, "dropped": "unknown_file_type", **book, "format": "jpg"}]
    pq.write_table(pa.Table.from_pylist(files, BOOKS_SCHEMA), folder / "books.parquet")
    said = {"manifest_unknown": 0, "manifest_unknown_files": [], "without_manifest_row": 0, **BEFORE}
    config = {"source": "books", "licence_required": True, "manifest": {"path": "shelf.csv"}}
    return BooksTextConfig.model_validate(config), said


def good_own(folder: Path, count: int = 60, **config: Any) -> tuple[Frozen, dict[str, Any]]:
    rows = [
        row | {"text": f"Thing {i} is. It was.\n\nA heading\n\nÉnd. And more of {i}."}
        for i, row in enumerate(text_rows("mine", count))
    ]
    pq.write_table(pa.Table.from_pylist(rows, TEXT_SCHEMA), folder / "part-00000.parquet")
    counted(folder, count)
    return OwnTextConfig(source="mine", kind="jsonl", licence_required=True, **config), dict(BEFORE)


def drops(**reasons: int) -> Poison:
    """60 documents are kept, these are dropped."""
    counts = {"read": 60 + sum(reasons.values()), "kept": 60, "dropped": reasons}
    return written("dropped.json", json.dumps(counts))


DROPPED = ("empty", "empty", "redirect")


def good_documents(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    rows = text_rows("books", 100)
    for i, row in enumerate(rows):
        ends = [len("Thing 0 is.") + (i > 9), len(row["text"])]  # in characters: É is one
        row |= {"split": "held_out" if i % 4 == 0 else "train", "sentence_ends": ends, "repeat": 1.0}
    pq.write_table(pa.Table.from_pylist(rows, DOCUMENTS_SCHEMA), folder / "part-00000.parquet")
    counted(folder, 100)
    dropped = [{"doc_id": f"x:{i}", "source": "books", "reason": reason} for i, reason in enumerate(DROPPED)]
    pq.write_table(pa.Table.from_pylist(dropped, DROPPED_SCHEMA), folder / "dropped.parquet")
    return DocumentsConfig(held_out=0.25, licence_required=True), {
        "characters_millions": 1.8,
        "older": {"date": "0123 of 2026-01-01", "characters_millions": 2.0},
        "languages": {"judged": 100, "agreed": 95},
        "withdrawals": {"lines": 3, "documents": 4, "unmatched": 0, "unmatched_lines": []},
        "held_out_expected": 25.0,
        "held_out_variance": 18.75,
    }


def good_vocabulary(folder: Path, layout: str = "compact") -> tuple[Frozen, dict[str, Any]]:
    words = [f"w{number}" for number in range(95)]
    unused = [f"[unused{number}]" for number in range(99)] if layout == "bert" else []
    entries = [SPECIAL_TOKENS[0], *unused, *SPECIAL_TOKENS[1:], *words]
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n")
    (folder / "tokenizer.json").write_text(tokenizer_json(entries, lowercase=True, strip_accents=True))
    return VocabularyConfig.model_validate({"size": len(entries), "layout": layout}), {"unknown_rate": 0.001}


SHARDS = ShardsConfig(sequence_length=64, max_predictions_per_seq=9, files=2)
PAD, UNK, CLS, SEP, MASK = range(5)
SPECIAL = {"vocab_size": 1000, "special_ids": dict(zip(SPECIAL_TOKENS, (PAD, UNK, CLS, SEP, MASK), strict=True))}


def instance(rng: random.Random, part: str, pair: bool = True) -> dict[str, Any]:
    a, b = (rng.choices(range(5, 1000), k=rng.randint(12, 28)) for _ in "ab")
    ids = [CLS, *a, SEP, *b, SEP] if pair else [CLS, *a, *b, SEP]
    candidates = [i for i, token in enumerate(ids) if token not in (CLS, SEP)]
    positions = sorted(rng.sample(candidates, min(9, max(1, round(len(ids) * 0.15)))))
    row: dict[str, Any] = {"masked_lm_positions": positions, "masked_lm_ids": [ids[i] for i in positions]}
    for i in positions:
        u = rng.random()
        ids[i] = MASK if u < 0.8 else rng.randrange(1000) if u < 0.9 else ids[i]
    documents = [f"{part}:{n}" for n in rng.sample(range(20), 2)]
    label = int(rng.random() < 0.5)
    row |= {"input_ids": ids, "documents": documents if pair and label else documents[:1]}
    return row | ({"token_type_start": len(a) + 2, "next_sentence_label": label} if pair else {})


def good_shards(folder: Path, pair: bool = True) -> tuple[Frozen, dict[str, Any]]:
    rng = random.Random(1)
    config = SHARDS if pair else SHARDS.model_copy(update={"sentence_task": "none"})
    schema = shard_schema(1000, config)
    for name, count in (("train/0", 200), ("train/1", 200), ("held_out/0", 300)):
        part = name.partition("/")[0]
        (folder / part).mkdir(exist_ok=True)
        rows = [instance(rng, part, pair) for _ in range(count)]
        pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"{name}.parquet")
    (folder / "inputs").mkdir()
    named = [{"doc_id": f"{part}:{n}", "split": part} for part in ("train", "held_out") for n in range(20)]
    pq.write_table(pa.Table.from_pylist(named), folder / "inputs" / "part-00000.parquet")
    return config, SPECIAL | {INPUTS: {"documents": folder / "inputs"}}


def good_pretrained(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    losses = [{"step": 10, "loss": 9.0}, {"step": 20, "loss": 7.5}, {"step": 20, "held_out": {"mlm_accuracy": 0.1}}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in losses))
    baselines = {"most_frequent_token_accuracy": 0.05, "nsp_majority_accuracy": 0.5}
    held_out = {"mlm_accuracy": 0.1, "nsp_accuracy": 0.6, "baselines": baselines}
    (folder / "held_out.json").write_text(json.dumps(held_out))
    (folder / "optimizer.json").write_text(json.dumps({"updates": 20, "step": 120}))
    save_file({"a": np.ones((3, 2), np.float32)}, folder / "model.safetensors")
    values = {"sequence_length": 32, "max_predictions_per_seq": 5, "batch_size": 8, "learning_rate": 1e-3}
    schedule = {"steps": 20, "first_step": 100, "schedule_steps": 120, "warmup_steps": 10}
    return PretrainConfig.model_validate({"architecture": Architecture(), **values, **schedule}), {}


def good_imported(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    shape = Architecture(layers=1, hidden=4, heads=2, intermediate=6, max_positions=8)
    described = {"architecture": shape.plain(), "vocabulary_size": len(WORDS), "sentence_task": "nsp"}
    (folder / "config.json").write_text(json.dumps(described))
    told: dict[str, Any] = {"missing": [], "ignored": [], "tokenizer_differences": []}
    (folder / "told.json").write_text(json.dumps(told))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in WORDS))
    (folder / "tokenizer.json").write_text(tokenizer_json(WORDS, lowercase=True, strip_accents=True))
    tensors = imported_weights()
    save_file(tensors, folder / "model.safetensors")
    moments = {f"{kind}.{name}": tensor for kind in ("first", "second") for name, tensor in tensors.items()}
    save_file(moments, folder / "optimizer.safetensors")
    return ImportedConfig(mode="continue", longest=8), {}


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat")


def imported_weights() -> dict[str, np.ndarray]:
    return {
        "encoder.embeddings.word.weight": np.ones((len(WORDS), 4), np.float32),
        "encoder.embeddings.position.weight": np.ones((8, 4), np.float32),
        "encoder.layers.0.intermediate.weight": np.ones((6, 4), np.float32),
    }


def good_release(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    for name in ("tokenizer.json", "tokenizer_config.json", "README.md"):
        (folder / name).write_text("{}")
    (folder / "config.json").write_text('{"vocab_size": 3}')
    (folder / "vocab.txt").write_text("a\nb\nc\n")
    save_file({"bert.embeddings.word_embeddings.weight": np.ones((3, 2), np.float32)}, folder / "model.safetensors")
    return ReleaseConfig(recipe="demo"), {}


TASK_SCHEMA = pa.schema(
    [("example_id", pa.string()), ("text_a", pa.string()), ("text_b", pa.string()), ("label", pa.int32())]
)


def good_task(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    for part, count in (("train", 6), ("dev", 10), ("test", 4)):
        rows = [{"example_id": f"{part}-{i}", "text_a": f"{part} {i}", "label": i % 2} for i in range(count)]
        pq.write_table(pa.Table.from_pylist(rows, TASK_SCHEMA), folder / f"{part}.parquet")
    task = {"name": "mine", "labels": ["no", "yes"], "counts": {"train": 6, "dev": 10, "test": 4}}
    (folder / "task.json").write_text(json.dumps(task))
    return TaskDataConfig(task="mine"), {}


def task_of_kind(folder: Path, kind: str) -> None:
    """A good task of another kind in the place of `good_task`'s: 6 examples of train, 10 of dev, 4 of test."""
    list_of = partial(pa.list_, pa.string())
    answer = pa.struct([("text", pa.string()), ("start", pa.int32())])
    fields: dict[str, list[tuple[str, pa.DataType]]] = {
        "regression": [("text_a", pa.string()), ("text_b", pa.string()), ("score", pa.float64())],
        "sentence_similarity": [("text_a", pa.string()), ("text_b", pa.string()), ("negative", pa.string()), ("score", pa.float64())],
        "multiple_choice": [("text_a", pa.string()), ("choices", list_of()), ("label", pa.int32())],
        "tagging": [("words", list_of()), ("tags", pa.list_(pa.int32())), ("document_id", pa.string())],
        "span": [("question", pa.string()), ("context", pa.string()), ("answers", pa.list_(answer)), ("impossible", pa.bool_())],
    }  # fmt: skip
    for part, count in (("train", 6), ("dev", 10), ("test", 4)):
        rows = [
            {"example_id": f"{part}-{i}", "text_a": f"{part} {i}", "text_b": "b", "score": i / 2} for i in range(count)
        ]
        for i, each in enumerate(rows):
            each |= {
                "choices": ["one", "two", "three"],
                "label": i % 3,
                "words": [part, str(i), "Ada"],
                "tags": [0, 1, 2],
            }
            found = [{"text": "é 1", "start": 4}, {"text": "not there", "start": None}][: 1 if part == "train" else 2]
            each |= {
                "question": f"{part} {i}?",
                "context": "Ça, é 1",
                "answers": found if i else [],
                "impossible": not i,
            }
        schema = pa.schema([("example_id", pa.string()), *fields[kind]])
        kept = [{name: each.get(name) for name in schema.names} for each in rows]
        pq.write_table(pa.Table.from_pylist(kept, schema), folder / f"{part}.parquet")
    labels = ["O", "B-PER", "I-PER"] if kind == "tagging" else []
    task = {"name": "mine", "kind": kind, "labels": labels, "counts": {"train": 6, "dev": 10, "test": 4}}
    (folder / "task.json").write_text(json.dumps(task))


def good_finetuned(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    (folder / "predictions").mkdir()
    for part in ("dev", "test"):
        for seed in (42, 43):
            rows = [{"example_id": str(i), "label": "yes", "prediction": ("no", "yes")[i % 2]} for i in range(4)]
            pq.write_table(pa.Table.from_pylist(rows), folder / "predictions" / f"{part}-seed-{seed}.parquet")
    scores = {
        "metric": "accuracy",
        "sizes": {"train": 9, "dev": 4, "test": 4},
        "seeds": [{"accuracy": 0.9}, {"accuracy": 0.8}],
        "summary": {"dev": {"accuracy": {"median": 0.85}}},
        "baselines": {"majority": {"dev": {"accuracy": 0.5}}},
    }
    (folder / "scores.json").write_text(json.dumps(scores))
    save_file({"a": np.ones(3, np.float32)}, folder / "model.safetensors")
    return FinetuneConfig(task="mine", seeds=2), {}


def good_predicted(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    (folder / "predictions").mkdir()
    rows = [{"example_id": str(i), "label": None, "prediction": ("no", "yes")[i % 2]} for i in range(4)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "predictions" / "test-seed-42.parquet")
    scores = {"metric": "matthews", "sizes": {"test": 4}, "summary": {"test": {"matthews": {"median": 0.25}}}}
    (folder / "scores.json").write_text(json.dumps({**scores, "published_seed": 42}))
    return PredictConfig(task="ax", model="mnli"), {}


def good_contamination(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    mine = {"part": "test", "texts": 50, "measurable": 40, "touched": 2, "share": 0.05}
    absent = {"part": None, "texts": 0, "measurable": 0, "touched": 0, "share": None}
    content = {"ngram_words": 13, "documents": 9, "tasks": {"mine": mine, "cola": absent}}
    (folder / "contamination.json").write_text(json.dumps(content))
    return ContaminationConfig(), {}


def good_report(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    (folder / "report.md").write_text("# Report")
    mine = {"task": "mine", "rows": [{"part": "dev", "ours": 80.0, "low": 77.5, "high": 82.5}]}
    glue = {"file": "leaderboards/glue.zip", "files": ["CoLA.tsv"], "missing": {}}
    leaderboards = {"glue": glue, "squad": {"squad1_1": ["leaderboards/predictions.json"]}}
    content = {"tasks": [mine, {"task": "cola"}], "leaderboards": leaderboards}
    (folder / "report.json").write_text(json.dumps(content))
    for name in ("examples/mine.parquet", "leaderboards/glue.zip", "leaderboards/predictions.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    (folder / "report.html").write_text('<style>p {color: red}</style><img src="data:image/png;base64,AA"><svg></svg>')
    return ReportConfig(recipe="demo", tasks=("mine", "cola")), {}


def good_comparison(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    (folder / "comparison.md").write_text("# Sizes")
    (folder / "comparison.html").write_text("<p>Sizes</p><svg></svg>")
    rows = [{"label": label, "cells": {"loss": {"value": 2.5, "not_run": []}}} for label in ("small", "large")]
    (folder / "comparison.json").write_text(json.dumps({"rows": rows}))
    column = {"name": "loss", "title": "loss", "metric": "held_out.mlm_loss"}
    plain = {"name": "sizes", "title": "Sizes", "columns": [column], "rows": [{"label": "small"}, {"label": "large"}]}
    return Comparison.model_validate(plain), {}


def good_decision(folder: Path) -> tuple[Frozen, dict[str, Any]]:
    gates = [
        {"name": "files_verified", "passed": True, "observed": "every byte", "limit": "every byte", "why": ""},
        {"name": "champion", "passed": None, "observed": "–", "limit": "–", "why": "there is none yet"},
    ]
    (folder / "decision.json").write_text(json.dumps({"verdict": "promote", "gates": gates}))
    (folder / "decision.md").write_text("# Promoted")
    phase = {
        "architecture": None,
        "sequence_length": 64,
        "steps": 1,
        "schedule_steps": 1,
        "warmup_steps": 0,
        "batch_size": 1,
    }
    phase |= {"learning_rate": 0.1, "max_predictions_per_seq": 9}
    return DecisionConfig.model_validate({"recipe": "r", "gates": {}, "shrink": 0.1, "pretraining": phase}), {}


GOOD: dict[str, Callable[[Path], tuple[Frozen, dict[str, Any]]]] = {
    "files": good_files,
    "wikipedia_text": good_wikipedia,
    "books_text": good_books,
    "own_text": good_own,
    "documents": good_documents,
    "wordpiece_vocab": good_vocabulary,
    "pretraining_shards": good_shards,
    "imported_checkpoint": good_imported,
    "pretrained": good_pretrained,
    "release": good_release,
    "task_data": good_task,
    "finetuned": good_finetuned,
    "predicted": good_predicted,
    "contamination": good_contamination,
    "benchmark_report": good_report,
    "promotion_decision": good_decision,
    "comparison": good_comparison,
}


# ── poison: one for each check ───────────────────────────────────────────────────────────────────────────────────────


def row(number: int, file: str = "part-00000.parquet", **values: Any) -> Poison:
    """Change values of one row; a callable gets the row."""

    def change(rows: list[dict[str, Any]]) -> None:
        for name, value in values.items():
            rows[number][name] = value(rows[number]) if callable(value) else value

    return lambda folder, statistics: edit(folder / file, change)


def of_kind(kind: str, poison: Poison) -> Poison:
    """Spoils a task of another kind."""

    def change(folder: Path, statistics: dict[str, Any]) -> None:
        task_of_kind(folder, kind)
        poison(folder, statistics)

    return change


def official(poison: Poison, **counts: int) -> Poison:
    """Spoils a public task, whose parts officially have so many examples."""

    def change(folder: Path, statistics: dict[str, Any]) -> None:
        told = {
            "official_counts": {"train": 6, "dev": 10, "test": 4} | counts,
            "dropped": {},
            "notes": ["dev is short"],
        }
        edit_json(folder / "task.json", lambda task: task.update(told))
        poison(folder, statistics)

    return change


def every(file: str, **values: Any) -> Poison:
    """Change values of every row; a callable gets the row."""

    def change(rows: list[dict[str, Any]]) -> None:
        for each in rows:
            each.update({name: value(each) if callable(value) else value for name, value in values.items()})

    return lambda folder, statistics: edit(folder / file, change)


def all_of(*poisons: Poison) -> Poison:
    def poison(folder: Path, statistics: dict[str, Any]) -> None:
        for each in poisons:
            each(folder, statistics)

    return poison


def emptied(*files: str) -> Poison:
    return all_of(*(lambda folder, statistics, at=file: edit(folder / at, lambda rows: rows.clear()) for file in files))


def written(file: str, content: str | bytes) -> Poison:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda folder, statistics: (folder / file).write_bytes(data)


def replaced(file: str, old: str, new: str) -> Poison:
    def poison(folder: Path, statistics: dict[str, Any]) -> None:
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new, 1))

    return poison


def removed(file: str) -> Poison:
    return lambda folder, statistics: (folder / file).unlink()


def weights(value: float) -> Poison:
    def poison(folder: Path, statistics: dict[str, Any]) -> None:
        tensor = np.array([[1, 2], [3, value], [5, 6]], np.float32)
        save_file({"bert.embeddings.word_embeddings.weight": tensor}, folder / "model.safetensors")

    return poison


def without_column(folder: Path, statistics: dict[str, Any]) -> None:
    path = folder / "part-00000.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["licence"]), path)


def statistic(**values: Any) -> Poison:
    return lambda folder, statistics: statistics.update(values)


TEXT_POISON: dict[str, Poison] = {
    "has_documents": emptied("part-00000.parquet"),
    "columns_as_agreed": without_column,
    "documents_add_up": replaced("dropped.json", '"empty": 2', '"empty": 1'),
    "doc_ids_unique": row(1, doc_id=lambda r: r["doc_id"].split(":")[0] + ":7"),
    "texts_not_empty": row(1, text=" \n\t"),
    "source_named": row(1, source="other"),
    "encoding_sound": row(1, text="caf\ufffd"),
    "licence_recorded": row(1, licence=None),
}
TRAIN = ("train/0.parquet", "train/1.parquet")


def token(position: int, value: int) -> Callable[[dict[str, Any]], list[int]]:
    """The instance's tokens with one replaced."""

    def changed(r: dict[str, Any]) -> list[int]:
        ids = list(r["input_ids"])
        ids[position] = value
        return ids

    return changed


def shortened(rows: int) -> Callable[[list[dict[str, Any]]], None]:
    """Only so many rows are left."""

    def change(found: list[dict[str, Any]]) -> None:
        del found[rows:]

    return change


def with_masks(share: float) -> Poison:
    """This share of the masks is left in every row of train, rounded up; the other tokens are as they were."""

    def change(rows: list[dict[str, Any]]) -> None:
        for r in rows:
            left = math.ceil(len(r["masked_lm_ids"]) * share)
            for i, original in zip(r["masked_lm_positions"][left:], r["masked_lm_ids"][left:], strict=True):
                r["input_ids"][i] = original
            del r["masked_lm_positions"][left:], r["masked_lm_ids"][left:]

    return all_of(*(lambda folder, statistics, at=file: edit(folder / at, change) for file in TRAIN))


def remasked(wanted: Callable[[int, int], int]) -> Poison:
    """Replace what stands at every masked position of train by `wanted(original id, number of the mask)`."""

    def changed(r: dict[str, Any]) -> list[int]:
        ids = list(r["input_ids"])
        for number, (i, original) in enumerate(zip(r["masked_lm_positions"], r["masked_lm_ids"], strict=True)):
            ids[i] = wanted(original, number)
        return ids

    return all_of(*(every(file, input_ids=changed) for file in TRAIN))


POISON: dict[str, dict[str, Poison]] = {
    "files": {
        "has_files": all_of(removed("dump.xml.bz2"), removed("notes.txt")),
        "files_not_empty": written("more.csv", ""),
        "files_are_what_they_say": written("dump.xml.bz2", "<html>404 Not Found</html>"),
        "has_dump": removed("dump.xml.bz2"),
        "checksums_as_declared": written("dump.xml.bz2", b"BZh91AX"),
        "index_agrees": all_of(
            written("a-multistream.xml.bz2", bz2.compress(b"<page>")), written("a-multistream-index.txt", "1:1:A\n")
        ),
        "files_as_listed": all_of(
            written("a-p1p9.xml.bz2", b"BZh91AY"), written("SHA256SUMS", f"{'0' * 64}  a-p10p19.xml.bz2\n")
        ),
        "not_much_smaller": lambda folder, statistics: statistics.update(size_bytes=899),
    },
    "wikipedia_text": TEXT_POISON
    | {
        "in_page_order": row(1, doc_id="enwiki:3"),
        "markup_gone": row(1, text="{{Infobox"),
        "markup_rare": row(1, text="[[ " + "long prose " * 10_000),  # 9 in a megabyte
        "holes_rare": row(1, text="A town ( ; ) is. " + "long prose " * 8_000),  # 11 in a megabyte
        "not_much_smaller": lambda folder, statistics: statistics.update(characters_millions=1.79),
    },
    "books_text": TEXT_POISON
    | {
        "licence_demanded": row(1, licence=None),
        "archives_whole": row(1, "books.parquet", format="archive", dropped="truncated"),
        "gutenberg_licence_gone": row(1, text="An end.\n\n*** END OF THE PROJECT GUTENBERG EBOOK EMMA ***\n\nMore."),
        "files_readable": all_of(*(row(n, "books.parquet", dropped="encrypted") for n in (1, 2))),
        "pages_read": row(1, "books.parquet", unread="ch3.xhtml: missing"),
        "headings_gone": row(1, text="Before.\n\nCHAPTER IV\n\nAfter."),
        "has_paragraphs": all_of(*(row(n, text=f"One {n}.") for n in range(31))),
        "not_pretokenised": row(1, "books.parquet", pretokenised=True),
        "not_lowercased": row(1, "books.parquet", lowercased=True),
        "texts_differ": all_of(*(row(n, text="Same.\n\nText.") for n in range(8))),
        "manifest_rows_used": statistic(manifest_unknown=1, manifest_unknown_files=["emma.txt"]),
        "manifest_covers": statistic(without_manifest_row=1),
        "not_much_smaller": statistic(characters_millions=1.79),
    },
    "own_text": TEXT_POISON
    | {
        "licence_demanded": row(1, licence=None),
        "most_rows_used": drops(broken_line=61),
        "nearly_all_rows_used": drops(broken_line=7),
        "has_paragraphs_of_sentences": all_of(
            *(row(i, text=f"Thing {i} is.\n\nIt was there in 3.5 days.\n\nA heading") for i in range(31))
        ),
        "texts_differ": all_of(drops(duplicate_doc_id=4), *(row(i, text="One. And two.") for i in range(4))),
        "not_much_smaller": statistic(characters_millions=1.79),
    },
    "documents": {
        "has_train": every("part-00000.parquet", split="held_out"),
        "has_held_out": every("part-00000.parquet", split="train"),
        "columns_as_agreed": without_column,
        "documents_add_up": lambda folder, statistics: edit(folder / "part-00000.parquet", lambda rows: rows.pop()),
        "splits_known": row(1, split="dev"),
        "doc_ids_unique": row(1, doc_id="books:7"),
        "texts_unique": row(1, text="Thing 0 is. It was.\n\nÉnd."),
        "texts_not_empty": row(1, text="", sentence_ends=[]),
        "sentence_ends_sound": row(1, sentence_ends=lambda r: [11, 11, len(r["text"])]),
        "repeats_positive": row(1, repeat=0.0),
        "has_sentences": every("part-00000.parquet", sentence_ends=lambda r: [len(r["text"])]),
        "held_out_share": every(
            "part-00000.parquet", split=lambda r: "held_out" if r["doc_id"] < "books:9" else "train"
        ),
        "licence_recorded": row(1, licence="  "),
        "licence_demanded": row(1, licence=None),
        "drops_listed": lambda folder, statistics: edit(folder / "dropped.parquet", lambda rows: rows.pop()),
        "language_share": statistic(languages={"judged": 100, "agreed": 89}),
        "language_right": statistic(languages={"judged": 100, "agreed": 49}),
        "duplicate_share": all_of(
            replaced("dropped.json", '"redirect": 1', '"near_duplicate": 103'),
            replaced("dropped.json", '"read": 103', '"read": 205'),
        ),
        "withdrawals_matched": statistic(
            withdrawals={"lines": 3, "documents": 1, "unmatched": 1, "unmatched_lines": ["line 4: url https://x.test"]}
        ),
        "not_much_smaller": statistic(characters_millions=1.79),
    },
    "wordpiece_vocab": {
        "size_as_declared": replaced("vocab.txt", "w94\n", ""),
        "entries_unique": replaced("vocab.txt", "w3\n", "w2\n"),
        "entries_not_empty": replaced("vocab.txt", "w3\n", "w 3\n"),
        "special_tokens_placed": replaced("vocab.txt", "[UNK]\n[CLS]", "[CLS]\n[UNK]"),
        "tokenizer_agrees": replaced("vocab.txt", "w3\nw4", "w4\nw3"),
        "tokens_in_reach": replaced("vocab.txt", "w3\nw4\n", "W3\nn't\n"),
        "unknown_rate": statistic(unknown_rate=0.06),
        "unknown_rate_low": statistic(unknown_rate=0.006),
    },
    "pretraining_shards": {
        "has_train": emptied(*TRAIN),
        "has_held_out": emptied("held_out/0.parquet"),
        "files_complete": removed("train/1.parquet"),
        "held_out_tokens": lambda folder, statistics: edit(folder / "held_out/0.parquet", shortened(5)),
        "held_out_tokens_enough": lambda folder, statistics: edit(folder / "held_out/0.parquet", shortened(150)),
        "lengths_fit": row(1, TRAIN[0], input_ids=lambda r: [*r["input_ids"][:-1], *[9] * 60, SEP]),
        "ids_in_vocabulary": row(1, TRAIN[0], input_ids=token(1, 1000)),
        "structure": row(1, TRAIN[0], token_type_start=lambda r: r["token_type_start"] + 1),
        "positions_sound": row(1, TRAIN[0], masked_lm_positions=lambda r: [0, *r["masked_lm_positions"][1:]]),
        "mask_counts": row(
            1,
            TRAIN[0],
            masked_lm_positions=lambda r: r["masked_lm_positions"][1:],
            masked_lm_ids=lambda r: r["masked_lm_ids"][1:],
        ),
        "masked_share": all_of(
            with_masks(0.3), lambda folder, statistics: edit(folder / "held_out/0.parquet", shortened(1))
        ),
        "masked_share_full": with_masks(0.7),
        "mask_random_keep": remasked(lambda original, number: MASK),
        "next_sentence_share": all_of(
            *(every(file, next_sentence_label=1, documents=["train:1", "train:2"]) for file in TRAIN)
        ),
        "random_next_is_random": row(1, TRAIN[0], next_sentence_label=1, documents=["train:1"]),
        "documents_named": row(1, TRAIN[0], documents=[]),
        "held_out_unseen": row(1, TRAIN[0], next_sentence_label=1, documents=["held_out:1", "train:2"]),
        "held_out_only": row(1, "held_out/0.parquet", next_sentence_label=1, documents=["held_out:1", "other:1"]),
        "shards_differ": lambda folder, statistics: (folder / TRAIN[1]).write_bytes((folder / TRAIN[0]).read_bytes()),
        "instances_differ": lambda folder, statistics: edit(
            folder / TRAIN[0], lambda rows: rows.extend([rows[0]] * 10)
        ),
    },
    "imported_checkpoint": {
        "weights_finite": lambda folder, statistics: save_file(
            {name: tensor * np.float32(np.inf) for name, tensor in imported_weights().items()},
            folder / "model.safetensors",
        ),
        "shapes_as_declared": replaced("config.json", '"layers": 1', '"layers": 2'),
        "vocabulary_fits": written("vocab.txt", "".join(f"{token}\n" for token in (*WORDS[:5], "cat", "the"))),
        "optimizer_fits": lambda folder, statistics: save_file(
            {f"second.{name}": -tensor for name, tensor in imported_weights().items()},
            folder / "optimizer.safetensors",
        ),
        "nothing_missing": replaced("told.json", '"missing": []', '"missing": ["pooler"]'),
        "nothing_ignored": replaced("told.json", '"ignored": []', '"ignored": ["classifier.weight"]'),
        "tokenizer_same": replaced("told.json", '"tokenizer_differences": []', '"tokenizer_differences": ["so"]'),
    },
    "pretrained": {
        "has_metrics": written("metrics.jsonl", ""),
        "losses_finite": replaced("metrics.jsonl", "7.5", "NaN"),
        "weights_finite": weights(float("nan")),
        "steps_done": written("optimizer.json", '{"updates": 19, "step": 119}'),
        "loss_fell": replaced("metrics.jsonl", "7.5", "9.0"),
        "mlm_beats_baseline": replaced("held_out.json", '"mlm_accuracy": 0.1', '"mlm_accuracy": 0.05'),
        "nsp_beats_baseline": replaced("held_out.json", '"nsp_accuracy": 0.6', '"nsp_accuracy": 0.4'),
    },
    "release": {
        "files_complete": removed("README.md"),
        "vocabulary_fits": written("vocab.txt", "a\nb\n"),
        "weights_finite": weights(float("inf")),
    },
    "task_data": {
        "data_present": written("not_run.json", "{}"),
        "has_examples": all_of(
            emptied("test.parquet"), lambda f, s: edit_json(f / "task.json", lambda t: t["counts"].update(test=0))
        ),
        "dev_large_enough": all_of(
            lambda f, s: edit(f / "dev.parquet", lambda rows: rows.pop()),
            lambda f, s: edit_json(f / "task.json", lambda t: t["counts"].update(dev=9)),
        ),
        "example_ids_unique": row(1, "train.parquet", example_id="train-0"),
        "texts_not_empty": row(1, "test.parquet", text_a=" "),
        "labels_known": row(1, "dev.parquet", label=None),
        "counts_agree": emptied("dev.parquet"),
        "test_unseen": row(1, "test.parquet", text_a="train 3"),
        "official_test_unseen": official(row(1, "test.parquet", text_a="train 3")),
        "labels_all_seen": every("train.parquet", label=0),
        "official_counts": official(lambda f, s: None, dev=5),
        "scores_filled": of_kind("regression", row(1, "dev.parquet", score=math.inf)),
        "choices_complete": of_kind("multiple_choice", row(1, "train.parquet", choices=["one", " ", "three"])),
        "tags_match_words": of_kind("tagging", row(1, "dev.parquet", tags=[0, 1])),
        "entities_whole": of_kind("tagging", row(1, "train.parquet", tags=[0, 0, 2])),
        "answers_inside": of_kind("span", row(1, "dev.parquet", answers=[{"text": "é 1", "start": 5}])),
        "questions_answered": of_kind("span", row(1, "train.parquet", answers=[])),
    },
    "finetuned": {
        "data_present": written("not_run.json", "{}"),
        "seeds_complete": removed("predictions/test-seed-43.parquet"),
        "scores_finite": replaced("scores.json", "0.8}", "NaN}"),
        "weights_finite": weights(float("nan")),
        "beats_majority": replaced("scores.json", "0.5", "0.85"),
        "predictions_vary": every("predictions/dev-seed-43.parquet", prediction="yes"),
    },
    "predicted": {
        "data_present": written("not_run.json", "{}"),
        "answers_complete": removed("predictions/test-seed-42.parquet"),
        "scores_finite": replaced("scores.json", "0.25", "NaN"),
        "predictions_vary": every("predictions/test-seed-42.parquet", prediction="yes"),
    },
    "contamination": {
        "has_documents": replaced("contamination.json", '"documents": 9', '"documents": 0'),
        "shares_sound": replaced("contamination.json", '"touched": 2', '"touched": 41'),
        "test_untouched": replaced("contamination.json", "0.05", "0.2"),
    },
    "benchmark_report": {
        "files_complete": written("report.md", ""),
        "tasks_complete": replaced("report.json", '"cola"', '"sst2"'),
        "intervals_sound": replaced("report.json", "77.5", "87.5"),
        "examples_complete": removed("examples/mine.parquet"),
        "submissions_complete": written("leaderboards/predictions.json", ""),
        "self_contained": replaced("report.html", "<svg>", '<script src="https://cdn.example/plot.js"></script><svg>'),
    },
    "promotion_decision": {
        "files_complete": written("decision.md", ""),
        "verdict_follows": replaced("decision.json", '"promote"', '"keep"'),
        "gates_passed": replaced("decision.json", "true", "false"),
    },
    "comparison": {
        "files_complete": written("comparison.md", ""),
        "rows_complete": replaced("comparison.json", '"large"', '"huge"'),
        "numbers_finite": replaced("comparison.json", "2.5", "NaN"),
        "self_contained": replaced(
            "comparison.html", "<svg>", '<script src="https://cdn.example/plot.js"></script><svg>'
        ),
        "members_run": replaced("comparison.json", '"not_run": []', '"not_run": ["tiny"]'),
    },
}
CASES = [(stage, check) for stage, poisons in POISON.items() for check in poisons]


def failed(stage: str, folder: Path, config: Frozen, statistics: dict[str, Any]) -> dict[str, str]:
    """The failed checks and what was observed; every check has said something."""
    results = validate(stage, folder, config, statistics)
    assert [result.name for result in results] == [check.name for check in SUITES[stage].checks]
    return {result.name: result.observed for result in results if not result.passed}


@pytest.mark.parametrize("stage", GOOD)
def test_a_good_artifact_passes_every_check(stage: str, tmp_path: Path) -> None:
    assert failed(stage, tmp_path, *GOOD[stage](tmp_path)) == {}


@pytest.mark.parametrize(("stage", "check"), CASES)
def test_each_check_fails_on_its_poison(stage: str, check: str, tmp_path: Path) -> None:
    config, statistics = GOOD[stage](tmp_path)
    POISON[stage][check](tmp_path, statistics)
    observed = failed(stage, tmp_path, config, statistics)
    assert check in observed
    assert "not measured" not in observed[check]


def test_every_check_of_every_suite_has_a_poison() -> None:
    declared = {(stage, check.name) for stage, suite in SUITES.items() for check in suite.checks}
    assert declared == set(CASES)
    for suite in SUITES.values():
        assert len({check.name for check in suite.checks}) == len(suite.checks)
        assert all(check.description.endswith((".", ").")) and check.name.isidentifier() for check in suite.checks)


def test_poison_is_told_from_what_it_must_not_touch(tmp_path: Path) -> None:
    """A check that fails names its own metric; the others stay green."""
    config, statistics = good_shards(tmp_path)
    POISON["pretraining_shards"]["random_next_is_random"](tmp_path, statistics)
    assert failed("pretraining_shards", tmp_path, config, statistics) == {"random_next_is_random": "1"}


def test_lines_of_sentences_are_right_where_the_recipe_says_so(tmp_path: Path) -> None:
    config, statistics = good_own(tmp_path, sentence_per_line=True)
    every("part-00000.parquet", text=lambda r: f"One of {r['doc_id']}.\nTwo.")(tmp_path, statistics)
    assert failed("own_text", tmp_path, config, statistics) == {}


@pytest.mark.parametrize(
    ("text", "single"),
    [
        ("One.\n\nTwo!\n\n“Three?”", True),
        ("Er kostet 3.50 Euro.\n\n„Wirklich?“, fragte sie.", True),
        ("一つ目の文です。\n\n二つ目の文です。", True),
        ("一つ目の文です。二つ目の文です。", False),
        ("A heading\n\nAnother heading", False),
        ("One. Two.\n\nThree.", False),
        ("“One.” Two.", False),
        ("One.", True),
    ],
)
def test_what_counts_as_lines_of_single_sentences(text: str, single: bool, tmp_path: Path) -> None:
    config, statistics = good_own(tmp_path, count=1)
    row(0, text=text)(tmp_path, statistics)
    assert profile("own_text", tmp_path, config, statistics)["single_sentence_share"] == single


# ── other ways ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bert_layout_of_the_vocabulary(tmp_path: Path) -> None:
    config, statistics = good_vocabulary(tmp_path, "bert")
    assert failed("wordpiece_vocab", tmp_path, config, statistics) == {}
    replaced("vocab.txt", "[unused4]", "x")(tmp_path, statistics)
    assert set(failed("wordpiece_vocab", tmp_path, config, statistics)) == {"special_tokens_placed", "tokenizer_agrees"}


def test_shards_without_pairs(tmp_path: Path) -> None:
    config, statistics = good_shards(tmp_path, pair=False)
    results = {r.name: r for r in validate("pretraining_shards", tmp_path, config, statistics)}
    assert all(result.passed for result in results.values())
    assert results["next_sentence_share"].observed == DOES_NOT_APPLY
    row(1, TRAIN[0], input_ids=token(-1, 9))(tmp_path, statistics)
    assert "structure" in failed("pretraining_shards", tmp_path, config, statistics)


def test_a_pretraining_without_pairs_needs_no_next_sentence_score(tmp_path: Path) -> None:
    config, statistics = good_pretrained(tmp_path)
    edit_json(tmp_path / "held_out.json", lambda scores: scores.update(nsp_accuracy=None))
    edit_json(tmp_path / "held_out.json", lambda scores: scores["baselines"].update(nsp_majority_accuracy=None))
    without = config.model_copy(update={"sentence_task": "none"})
    assert failed("pretrained", tmp_path, without, statistics) == {}


@pytest.mark.parametrize(
    "left",
    ["a {{b", "b}} c", "[[a", "a]] b", "{| x", "|} x", "<ref name=a>", "</div>", "&nbsp;", "&#160;", "'''a", "a''", "== H ==",
     "__TOC__", 'style="x"', "thumb|x", "| 20px", "File:a", "Category:b", "* item", "# item", "**\titem", "|-", "| cell",
     "|}", "|+ caption", "! header", "! a !! b"],
)  # fmt: skip
def test_kinds_of_markup_are_counted(left: str, tmp_path: Path) -> None:
    config, statistics = good_wikipedia(tmp_path)
    row(1, text=f"Some prose.\n\n{left}")(tmp_path, statistics)
    assert profile("wikipedia_text", tmp_path, config, statistics)["markup_per_mb"] > 0


@pytest.mark.parametrize(
    "hole",
    ["A town ( ; ) is.", "A town () is.", "() A town", "A town ( ) is.", "町（）は", "町（ 、）は", "A town (; born 1900) is.",
     "町（、1900年）は", "(, then", "A, , B", "A,, B", "(a) , , b", "町、、村", "A; ; B"],
)  # fmt: skip
def test_kinds_of_holes_are_counted(hole: str, tmp_path: Path) -> None:
    config, statistics = good_wikipedia(tmp_path)
    row(1, text=f"Some prose. {hole} More.")(tmp_path, statistics)
    metrics = profile("wikipedia_text", tmp_path, config, statistics)
    assert metrics["holes_per_mb"] > 0 == metrics["markup_per_mb"]


@pytest.mark.parametrize(
    "text",
    ["*NSYNC is a band.", "#MeToo began.", "!Kung is spoken.", "**Ñは", "main() and (f()) return.", "a(1, 2, 3); b",
     "Five * two # x.", "f(; i < 3)?", "„Nein“, sagte er, („so“).", "|x| < 1", "1, 2, 3 (4, 5); (6; 7)", "A :( or :) or ;)",
     ",,Tak'' powiedział.", "Oui ; non , peut-être."],
)  # fmt: skip
def test_honest_text_is_neither_markup_nor_a_hole(text: str, tmp_path: Path) -> None:
    config, statistics = good_wikipedia(tmp_path)
    row(1, text=text.replace("''", "”"))(tmp_path, statistics)
    metrics = profile("wikipedia_text", tmp_path, config, statistics)
    assert metrics["holes_per_mb"] == metrics["markup_per_mb"] == 0


INVISIBLE = [
    "\u200b",
    "\ufeff",
    "\u2060",
    "\u00ad",
    "\u200e\u200f",
    "\u180e",
    "\u3164",
    "\u2800",
    "\ufe0f",
    "\x00\x1f",
    "\u2028\u3000",
]


@pytest.mark.parametrize("stage", ["wikipedia_text", "books_text", "documents"])
def test_text_that_nobody_can_see_is_empty(stage: str, tmp_path: Path) -> None:
    config, statistics = GOOD[stage](tmp_path)
    for number, text in enumerate(["", *INVISIBLE, "".join(INVISIBLE)]):
        row(number, text=text)(tmp_path, statistics)
    for number, text in enumerate([".", "\u200bא", "\u200d한", "ㄱ\u3164", "\u2801"], start=20):
        row(number, text=text)(tmp_path, statistics)
    assert profile(stage, tmp_path, config, statistics)["empty_texts"] == len(INVISIBLE) + 2


def test_an_empty_text_among_others_is_left_to_who_reads_it(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("")
    config = FilesConfig(**{"from": {"path": str(tmp_path)}})
    assert profile("files", tmp_path, config, {"files": []})["empty_files"] == 2
    (tmp_path / "c.txt").write_text("Text.")
    assert profile("files", tmp_path, config, {"files": []})["empty_files"] == 0


def test_files_that_fail_are_named(tmp_path: Path) -> None:
    config, statistics = good_files(tmp_path)
    (tmp_path / "more.csv").write_text("")
    (tmp_path / "fake.gz").write_text("no gzip")
    told = failed("files", tmp_path, config, statistics)
    assert told["files_not_empty"] == "1 (empty_names more.csv)"
    assert told["files_are_what_they_say"] == "1 (wrong_names fake.gz)"


def test_without_an_older_dump_there_is_nothing_to_compare(tmp_path: Path) -> None:
    config, statistics = good_files(tmp_path)
    del statistics["older"]
    assert profile("files", tmp_path, config, statistics)["shrinkage"] == DOES_NOT_APPLY


def test_what_does_not_apply_to_documents_passes(tmp_path: Path) -> None:
    _, statistics = good_documents(tmp_path)
    statistics = {name: value for name, value in statistics.items() if name.startswith("char")}
    statistics |= {"languages": {"judged": 0, "agreed": 0}, "withdrawals": {"lines": 0}}
    row(1, licence=None)(tmp_path, statistics)
    results = {r.name: r for r in validate("documents", tmp_path, DocumentsConfig(held_out=0.25), statistics)}
    assert [name for name, result in results.items() if not result.passed] == ["licence_recorded"]
    skipped = {name for name, result in results.items() if result.observed == DOES_NOT_APPLY}
    assert skipped == {
        "licence_demanded",
        "language_share",
        "language_right",
        "withdrawals_matched",
        "not_much_smaller",
    }


def test_withdrawals_that_match_nothing_are_named(tmp_path: Path) -> None:
    config, statistics = good_documents(tmp_path)
    POISON["documents"]["withdrawals_matched"](tmp_path, statistics)
    told = failed("documents", tmp_path, config, statistics)
    assert told == {"withdrawals_matched": "1 (unmatched_lines line 4: url https://x.test)"}


def test_more_held_out_documents_are_no_fault_where_duplicates_explain_them(tmp_path: Path) -> None:
    """100 groups of 4: each is held out with 1 − 0.75⁴ = 0.684; 68 of 100 are expected, 25 would be 9 deviations off."""
    config, statistics = good_documents(tmp_path)
    statistics |= {"held_out_expected": 68.36, "held_out_variance": 21.63}
    assert set(failed("documents", tmp_path, config, statistics)) == {"held_out_share"}
    every("part-00000.parquet", split=lambda r: "held_out" if int(r["doc_id"][6:]) < 77 else "train")(
        tmp_path, statistics
    )
    assert failed("documents", tmp_path, config, statistics) == {}


def test_referenced_files_are_looked_at_where_they_lie(tmp_path: Path) -> None:
    staged, outside = tmp_path / "staged", tmp_path / "outside"
    staged.mkdir()
    outside.mkdir()
    (outside / "dump.bz2").write_bytes(b"BZh9")
    (staged / "references.json").write_text('[{"path": "dump.bz2", "size_bytes": 4, "sha256": ""}]')
    for named in (outside, outside / "dump.bz2"):
        config = FilesConfig.model_validate({"from": {"path": str(named)}})
        assert failed("files", staged, config, {}) == {}
    (outside / "dump.bz2").write_bytes(b"html")
    assert set(failed("files", staged, config, {})) == {"files_are_what_they_say"}


def test_downloads_are_all_that_was_declared_and_nothing_else(tmp_path: Path) -> None:
    config, statistics = good_files(tmp_path)
    (tmp_path / "more.txt").write_text("nobody said so")
    (tmp_path / "notes.txt").unlink()
    assert failed("files", tmp_path, config, statistics) == {"checksums_as_declared": "2"}
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "tales.txt").write_text("hello")
    sha256 = hashlib.sha256(b"hello").hexdigest()
    url = FilesConfig.model_validate({"from": {"url": "https://a.example/tales.txt", "sha256": sha256}})
    said = {"files": [{"name": "tales.txt", "size_bytes": 5, "sha256": sha256}]}
    assert failed("files", tmp_path / "one", url, said) == {}
    (tmp_path / "one" / "tales.txt").write_text("hallo")
    assert failed("files", tmp_path / "one", url, said) == {"checksums_as_declared": "1"}


@pytest.mark.parametrize(
    ("stage", "poison", "said"),
    [
        ("documents", written("part-00000.parquet", b"PAR1 cut"), "can't be read"),
        ("documents", removed("part-00000.parquet"), "holds no part-*.parquet"),
        ("pretrained", removed("held_out.json"), "No such file"),
        ("pretrained", written("optimizer.json", "{}"), "has not the form agreed: KeyError 'step'"),
        ("release", written("model.safetensors", b"\0" * 9), "can't be read"),
        ("pretraining_shards", written("train/0.parquet", b""), "can't be read"),
        ("wordpiece_vocab", written("vocab.txt", b"\xff\xfe"), "can't be read"),
    ],
)
def test_what_cannot_be_read_fails_every_check(stage: str, poison: Poison, said: str, tmp_path: Path) -> None:
    config, statistics = GOOD[stage](tmp_path)
    poison(tmp_path, statistics)
    observed = failed(stage, tmp_path, config, statistics)
    assert set(observed) == {check.name for check in SUITES[stage].checks}
    assert said in observed[SUITES[stage].checks[0].name]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "many"])
def test_a_metric_that_is_no_number_fails(value: Any, tmp_path: Path) -> None:
    """Great Expectations passes over nulls and NaN; a check must not."""
    config, _ = good_vocabulary(tmp_path)
    assert "unknown_rate" in failed("wordpiece_vocab", tmp_path, config, {"unknown_rate": value})


def test_a_task_of_ones_own_need_not_have_a_test_part(tmp_path: Path) -> None:
    _, statistics = good_task(tmp_path)
    POISON["task_data"]["has_examples"](tmp_path, statistics)
    for own, missing in (({}, False), ({"test_share": 0.5}, True)):
        define = {"files": {"train": {"path": "a.csv"}}, **own}
        config = TaskDataConfig.model_validate({"task": "mine", "define": define})
        assert ("has_examples" in failed("task_data", tmp_path, config, statistics)) == missing


@pytest.mark.parametrize("kind", ["regression", "sentence_similarity", "multiple_choice", "tagging", "span"])
def test_tasks_of_every_kind(kind: str, tmp_path: Path) -> None:
    config, statistics = good_task(tmp_path)
    task_of_kind(tmp_path, kind)
    assert failed("task_data", tmp_path, config, statistics) == {}


@pytest.mark.parametrize(
    ("kind", "poison", "check"),
    [
        ("regression", row(2, "train.parquet", score=None), "scores_filled"),
        ("regression", row(2, "train.parquet", text_a=""), "texts_not_empty"),
        ("regression", row(2, "test.parquet", text_a="dev 1"), "test_unseen"),
        ("sentence_similarity", row(2, "dev.parquet", score=None), "scores_filled"),
        ("sentence_similarity", row(2, "test.parquet", score=math.inf), "scores_filled"),
        ("sentence_similarity", row(2, "test.parquet", text_a="train 1"), "test_unseen"),
        ("multiple_choice", row(2, "train.parquet", label=3), "labels_known"),
        ("multiple_choice", row(2, "train.parquet", label=-1), "labels_known"),
        ("multiple_choice", row(2, "dev.parquet", choices=["one"], label=0), "choices_complete"),
        ("multiple_choice", row(2, "test.parquet", text_a="train 4"), "test_unseen"),
        ("tagging", row(2, "train.parquet", tags=[0, 0, 3]), "labels_known"),
        ("tagging", row(2, "dev.parquet", tags=None), "labels_known"),
        ("tagging", row(2, "dev.parquet", words=[], tags=[]), "texts_not_empty"),
        ("tagging", row(2, "test.parquet", words=["train", "3", "Ada"]), "test_unseen"),
        ("tagging", every("train.parquet", tags=[0, 0, 0]), "labels_all_seen"),
        ("span", row(2, "train.parquet", answers=[{"text": "not there", "start": None}]), "questions_answered"),
        ("span", row(2, "dev.parquet", impossible=True), "questions_answered"),
        ("span", row(2, "train.parquet", impossible=None), "questions_answered"),
        ("span", row(2, "train.parquet", answers=[{"text": "1", "start": -1}]), "answers_inside"),
        ("span", row(2, "train.parquet", question=" "), "texts_not_empty"),
        ("span", row(2, "test.parquet", question="train 4?"), "test_unseen"),
    ],
)
def test_what_is_wrong_with_a_task_of_some_kind(kind: str, poison: Poison, check: str, tmp_path: Path) -> None:
    config, statistics = good_task(tmp_path)
    of_kind(kind, poison)(tmp_path, statistics)
    assert set(failed("task_data", tmp_path, config, statistics)) == {check}


def test_labels_of_test_may_be_unknown_in_every_kind(tmp_path: Path) -> None:
    config, statistics = good_task(tmp_path)
    for kind, unknown in (
        ("regression", {"score": None}),
        ("sentence_similarity", {"score": None}),
        ("multiple_choice", {"label": None}),
        ("tagging", {"tags": None}),
        ("span", {"answers": [], "impossible": None}),
    ):
        of_kind(kind, every("test.parquet", **unknown))(tmp_path, statistics)
        assert failed("task_data", tmp_path, config, statistics) == {}


def test_pairs_of_train_need_no_scores(tmp_path: Path) -> None:
    config, statistics = good_task(tmp_path)
    of_kind("sentence_similarity", every("train.parquet", score=None))(tmp_path, statistics)
    assert failed("task_data", tmp_path, config, statistics) == {}


def test_a_public_task_keeps_its_test_examples_whole_and_may_lack_a_test_part(tmp_path: Path) -> None:
    config, statistics = good_task(tmp_path)
    official(row(1, "test.parquet", text_a=" "))(tmp_path, statistics)
    assert failed("task_data", tmp_path, config, statistics) == {}
    emptied("test.parquet")(tmp_path, statistics)
    said = {"needed": ["train", "dev"], "official_counts": {"train": 6, "dev": 10}}
    edit_json(tmp_path / "task.json", lambda task: task.update(said) or task["counts"].update(test=0))
    assert failed("task_data", tmp_path, config, statistics) == {}


def test_examples_that_were_dropped_count_for_a_public_task_but_malformed_lines_do_not(tmp_path: Path) -> None:
    config, statistics = good_task(tmp_path)
    official(lambda f, s: None, train=8)(tmp_path, statistics)
    dropped = {"train: empty text": 2, "train: malformed record": 3}
    edit_json(tmp_path / "task.json", lambda task: task.update(dropped=dropped))
    assert failed("task_data", tmp_path, config, statistics) == {}


def test_a_test_set_without_anything_to_train_on(tmp_path: Path) -> None:
    config, statistics = good_task(tmp_path)
    for part in ("train", "dev"):
        (tmp_path / f"{part}.parquet").unlink()
    said = {"needed": ["test"], "counts": {"test": 4}, "official_counts": {"test": 4}, "dropped": {}}
    edit_json(tmp_path / "task.json", lambda task: task.update(said))
    assert failed("task_data", tmp_path, config, statistics) == {}


def test_predictions_of_an_empty_test_part_are_complete(tmp_path: Path) -> None:
    config, statistics = good_finetuned(tmp_path)
    emptied(*(f"predictions/test-seed-{seed}.parquet" for seed in (42, 43)))(tmp_path, statistics)
    assert failed("finetuned", tmp_path, config, statistics) == {}
    emptied("predictions/dev-seed-42.parquet")(tmp_path, statistics)
    assert set(failed("finetuned", tmp_path, config, statistics)) == {"seeds_complete"}


def test_not_run_passes_all_but_the_warning_that_there_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "not_run.json").write_text('{"task": "cola", "title": "CoLA", "wants": ["train.tsv"]}')
    for stage, config in (("task_data", TaskDataConfig(task="cola")), ("finetuned", FinetuneConfig(task="cola"))):
        results = validate(stage, tmp_path, config, {})
        assert [(r.name, r.severity) for r in results if not r.passed] == [("data_present", "warning")]


def test_an_expectation_that_raises_has_failed() -> None:
    """GX reports a column that is not there as an exception beside the result."""
    check = Check("x", "", "ExpectColumnValuesToBeBetween", {"column": "absent", "min_value": 0, "max_value": 1})
    good = Check("y", "", "ExpectColumnValuesToBeBetween", {"column": "there", "min_value": 0, "max_value": 1})
    assert expect({"there": 1}, [check, good]) == {"x": False, "y": True}


def test_results_say_what_was_observed_and_expected(tmp_path: Path) -> None:
    config, statistics = good_vocabulary(tmp_path)
    POISON["wordpiece_vocab"]["size_as_declared"](tmp_path, statistics)
    first = validate("wordpiece_vocab", tmp_path, config, statistics)[0].plain()
    assert (first["observed"], first["expected"], first["severity"]) == ("-1 (size 99)", "= 0", "critical")
    assert json.loads(json.dumps(first)) == first


def test_metrics_of_shards_against_counting_by_hand(tmp_path: Path) -> None:
    config, statistics = good_shards(tmp_path)
    metrics = profile("pretraining_shards", tmp_path, config, statistics)
    rows = [r for f in (*TRAIN, "held_out/0.parquet") for r in pq.read_table(tmp_path / f).to_pylist()]
    now = [
        (r["input_ids"][i], o) for r in rows for i, o in zip(r["masked_lm_positions"], r["masked_lm_ids"], strict=True)
    ]
    assert metrics["mask_share"] == pytest.approx(sum(n == MASK for n, _ in now) / len(now))
    assert metrics["keep_share"] == pytest.approx(sum(n == o for n, o in now) / len(now))
    assert metrics["label_share"] == pytest.approx(sum(r["next_sentence_label"] for r in rows) / len(rows))


def test_sigmas_of_a_binomial() -> None:
    assert sigmas(60, 100, 0.5) == pytest.approx(2.0)  # deviation √(100·½·½) = 5
    assert sigmas(0, 0, 0.5) is None
    assert sigmas(100, 100, 1.0) == 0.0
    assert sigmas(99, 100, 1.0) == float("-inf")


def test_the_digest_follows_the_rules_and_not_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    before = suite_digest("files")
    check = SUITES["files"].checks[0]
    monkeypatch.setitem(check.arguments, "min_value", 2)
    assert suite_digest("files") != before
    assert len({suite_digest(stage) for stage in SUITES}) == len(SUITES)


def test_declaring_and_digesting_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pipeline.suites import SUITES, suite_digest; [suite_digest(s) for s in SUITES]; "
        "heavy = {'great_expectations', 'pandas', 'polars', 'pyarrow', 'torch', 'apache_beam'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
