"""Made-up folders of the finetuned stage, with predictions of every seed and the scores that these have, of every kind of task."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from model import metrics
from model.scoring.entities import added, counts_by_type
from model.scoring.squad_metrics import scores_1_1

Table = dict[str, list[Any]]
HYPERPARAMETERS = {
    "learning_rate": 3e-5,
    "epochs": 3,
    "batch_size": 32,
    "max_length": 128,
    "warmup": 0.1,
    "weight_decay": 0.01,
    "dropout": 0.1,
    "precision": "fp32",
    "pooling": "cls",
    "seeds": 3,
    "seed": 42,
}
_WORDS = [
    "the",
    "of",
    "river",
    "old",
    "town",
    "bridge",
    "king",
    "music",
    "a",
    "winter",
    "built",
    "in",
    "north",
    "first",
    "film",
    "year",
    "was",
    "house",
    "by",
    "water",
    "light",
]


def text(random: np.random.Generator, words: int = 9) -> str:
    return " ".join(random.choice(_WORDS, words)).capitalize() + "."


def write(
    folder: Path,
    data: Path,
    *,
    task: str,
    title: str,
    kind: str,
    metric: str,
    names: Sequence[str],
    labels: Sequence[str],
    parts: dict[str, tuple[Table, list[Table]]],
    scored: Callable[[Sequence[str], Table], dict[str, float]],
    unknown: Sequence[str] = (),
    train: int = 4000,
    **more: Any,
) -> Path:
    """The folder and, under `data`, that of task_data. parts: part → (rows of the task's data, predictions of each seed);
    unknown: parts whose answers are hidden."""
    (folder / "predictions").mkdir(parents=True)
    data.mkdir(parents=True)
    seeds = [42 + number for number in range(len(next(iter(parts.values()))[1]))]
    runs: list[dict[str, Any]] = [{"seed": seed, "best_epoch": 2, "skipped_steps": 0} for seed in seeds]
    summary: dict[str, Any] = {}
    for part, (rows, predictions) in parts.items():
        pq.write_table(pa.table(rows), data / f"{part}.parquet")
        for run, table in zip(runs, predictions, strict=True):
            shown = pa.table(table)
            if part in unknown:
                answer = "answers" if kind == "span" else "label"
                hidden = {name: [None] * len(shown) for name in (answer, "f1", "exact_match") if name in table}
                shown = pa.table({**table, **hidden})
            pq.write_table(shown, folder / "predictions" / f"{part}-seed-{run['seed']}.parquet")
            run[part] = None if part in unknown else scored(names, table)
        values = {name: [run[part][name] for run in runs] for name in names} if part not in unknown else {}
        summary[part] = {name: vars(metrics.spread(each)) for name, each in values.items()} or None
    best = max(runs, key=lambda run: run["dev"][metric])
    loss = [
        {
            "step": step,
            "run_step": step,
            "network": "pretrained",
            "variant": more.get("chosen", 0),
            "seed": 42,
            "loss": 0.3 + 1.2 / (1 + step / 30),
        }
        for step in range(10, 400, 10)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in loss))
    scores = {
        "task": task,
        "title": title,
        "kind": kind,
        "metric": metric,
        "labels": list(labels),
        "sizes": {
            "train": train,
            **{part: len(set(tables[0]["example_id"])) for part, (_, tables) in parts.items()},
        },
        "truncated": {"train": 17, **dict.fromkeys(parts, 0)},
        "hyperparameters": HYPERPARAMETERS,
        "seeds": runs,
        "summary": summary,
        "published_seed": best["seed"],
        "confusion": None,
        "baselines": {},
        **more,
    }
    (folder / "scores.json").write_text(json.dumps(scores))
    return folder


def of_labels(names: Sequence[str], table: Table) -> dict[str, float]:
    labels = sorted(set(table["label"]) | set(table["prediction"]))
    as_numbers = (np.array([labels.index(value) for value in table[name]]) for name in ("label", "prediction"))
    return metrics.scores(names, *as_numbers)


def of_numbers(names: Sequence[str], table: Table) -> dict[str, float]:
    return metrics.scores(names, np.array(table["label"]), np.array(table["prediction"]))


def of_spans(names: Sequence[str], table: Table) -> dict[str, float]:
    return {name: float(np.mean(table[name])) for name in names}


def of_tags(names: Sequence[str], table: Table) -> dict[str, float]:
    sentences: dict[str, list[int]] = {}
    for row, example in enumerate(table["example_id"]):
        sentences.setdefault(example, []).append(row)
    total = added(
        counts
        for rows in sentences.values()
        for counts in counts_by_type(*([table[c][r] for r in rows] for c in ("label", "prediction"))).values()
    )
    found = {"entity_f1": total.f1, "precision": total.precision, "recall": total.recall}
    return {name: found[name] if name in found else of_labels([name], table)[name] for name in names}


# ── predictions ──────────────────────────────────────────────────────────────────────────────────────────────────────


def guesses(random: np.random.Generator, truth: Sequence[str], labels: Sequence[str], right: float, part: str) -> Table:
    """Predictions of classes, of which a share is right."""
    drawn = [
        label if random.random() < right else str(random.choice([other for other in labels if other != label]))
        for label in truth
    ]
    sure = random.uniform(0.5, 1, len(truth))
    return {
        "example_id": [f"{part}:{number + 1}" for number in range(len(truth))],
        "label": list(truth),
        "prediction": drawn,
        **{
            f"p_{name}": [
                float(p if name == given else (1 - p) / (len(labels) - 1)) for given, p in zip(drawn, sure, strict=True)
            ]
            for name in labels
        },
    }


def classes(
    base: Path,
    task: str,
    title: str,
    labels: Sequence[str],
    right: Sequence[float],
    parts: dict[str, int],
    *,
    metric: str = "accuracy",
    names: Sequence[str] = ("accuracy", "macro_f1"),
    pairs: bool = False,
    unknown: Sequence[str] = (),
    choices: bool = False,
    seed: int = 1,
    **more: Any,
) -> Path:
    """A task of labels or choices; `right`: the share that each seed gets right; parts: part → examples."""
    random = np.random.default_rng(seed)
    made = {}
    for part, count in parts.items():
        truth = [str(label) for label in random.choice(labels, count)]
        rows: Table = {
            "example_id": [f"{part}:{number + 1}" for number in range(count)],
            "text_a": [text(random) for _ in range(count)],
        }
        if choices:
            rows["choices"] = [[text(random, 5) for _ in labels] for _ in range(count)]
        else:
            rows["text_b"] = [text(random) if pairs else None for _ in range(count)]
        made[part] = (rows, [guesses(random, truth, labels, share, part) for share in right])
    kind = "multiple_choice" if choices else "pair_classification" if pairs else "classification"
    majority = {part: dict.fromkeys(names, 1 / len(labels)) if part not in unknown else None for part in parts}
    baselines = {"majority": {"label": labels[0], **majority}}
    first = made["dev"][1][0]
    counts = metrics.confusion(
        *(np.array([labels.index(value) for value in first[name]]) for name in ("label", "prediction")), len(labels)
    )
    return write(
        base / f"finetuned_{task}",
        base / f"task_data_{task}",
        task=task,
        title=title,
        kind=kind,
        metric=metric,
        names=names,
        labels=labels,
        parts=made,
        scored=of_labels,
        unknown=unknown,
        **{"baselines": baselines, "confusion": {"part": "dev", "counts": counts}, **more},
    )


def scores(base: Path, task: str, title: str, noise: Sequence[float], parts: dict[str, int], **more: Any) -> Path:
    """A task of scores from 0 to 5; `noise`: standard deviation of each seed's errors."""
    random = np.random.default_rng(2)
    made = {}
    for part, count in parts.items():
        truth = np.round(random.uniform(0, 5, count) * 5) / 5
        ids = [f"{part}:{number + 1}" for number in range(count)]
        rows = {"example_id": ids, "text_a": [text(random) for _ in ids], "text_b": [text(random) for _ in ids]}
        predictions = [(truth + random.normal(0, by, count)).tolist() for by in noise]
        tables: list[Table] = [
            {"example_id": ids, "label": truth.tolist(), "prediction": given} for given in predictions
        ]
        made[part] = (rows, tables)
    nothing = dict.fromkeys(("spearman", "pearson"))
    return write(
        base / f"finetuned_{task}",
        base / f"task_data_{task}",
        task=task,
        title=title,
        kind="regression",
        metric="spearman",
        names=("spearman", "pearson"),
        labels=[],
        parts=made,
        scored=of_numbers,
        baselines={"majority": {"label": 2.53, **dict.fromkeys(parts, nothing)}},
        **more,
    )


def tags(base: Path, task: str, title: str, right: Sequence[float], parts: dict[str, int], **more: Any) -> Path:
    """A task of people and places in sentences of 4 to 12 words, in documents of 10 sentences."""
    random = np.random.default_rng(3)
    labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    made = {}
    for part, count in parts.items():
        words: Table = {"example_id": [], "word_number": [], "word": [], "label": []}
        rows: Table = {"example_id": [], "document_id": []}
        for number in range(count):
            length = int(random.integers(4, 12))
            named = ["O"] * length
            at = int(random.integers(0, length - 1))
            kind = str(random.choice(["PER", "LOC"]))
            named[at : at + 2] = [f"B-{kind}", f"I-{kind}"]
            rows["example_id"].append(f"{part}:{number + 1}")
            rows["document_id"].append(f"{part}-document-{number // 10}")
            words["example_id"] += [f"{part}:{number + 1}"] * length
            words["word_number"] += range(length)
            words["word"] += [str(word) for word in random.choice(_WORDS, length)]
            words["label"] += named
        tables: list[Table] = []
        for share in right:
            given = [tag if random.random() < share else str(random.choice(labels)) for tag in words["label"]]
            tables.append({**words, "prediction": given})
        made[part] = (rows, tables)
    names = ("entity_f1", "precision", "recall", "accuracy")
    constant = {part: {"entity_f1": 0.0, "precision": 0.0, "recall": 0.0, "accuracy": 0.7} for part in parts}
    return write(
        base / f"finetuned_{task}",
        base / f"task_data_{task}",
        task=task,
        title=title,
        kind="tagging",
        metric="entity_f1",
        names=names,
        labels=labels,
        parts=made,
        scored=of_tags,
        baselines={"majority": {"label": "O", **constant}},
        **more,
    )


def spans(base: Path, task: str, title: str, right: Sequence[float], questions: int, **more: Any) -> Path:
    """A task of questions, 25 of each article; 2.0 in the name: one question in five has no answer."""
    random = np.random.default_rng(4)
    ids = [f"q{number}" for number in range(questions)]
    gold = [[text(random, 3)[:-1], text(random, 2)[:-1]] for _ in ids]
    null = "2" in title.split()[-1][:1]
    gold = [[] if null and number % 5 == 0 else answers for number, answers in enumerate(gold)]
    rows: Table = {
        "example_id": ids,
        "question": [text(random, 7)[:-1] + "?" for _ in ids],
        "context": [text(random, 40) for _ in ids],
        "title": [f"article {number // 25}" for number in range(questions)],
    }
    tables = []
    for share in right:
        given = []
        for answers in gold:
            draw = random.random()
            best = answers[0] if answers else ""
            given.append(best if draw < share else f"{best} {text(random, 2)[:-1]}" if draw < (1 + share) / 2 else "")
        pairs = [
            scores_1_1(a or [""], g) if a else (float(not g), float(not g)) for a, g in zip(gold, given, strict=True)
        ]
        tables.append(
            {
                "example_id": ids,
                "answers": gold,
                "prediction": given,
                "exact_match": [pair[0] for pair in pairs],
                "f1": [pair[1] for pair in pairs],
                **({"null_odds": random.normal(0, 3, questions).tolist()} if null else {}),
            }
        )
    return write(
        base / f"finetuned_{task}",
        base / f"task_data_{task}",
        task=task,
        title=title,
        kind="span",
        metric="f1",
        names=("f1", "exact_match"),
        labels=[],
        parts={"dev": (rows, tables)},
        scored=of_spans,
        **more,
    )
