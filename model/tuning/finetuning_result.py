"""What a job of fine-tuning publishes: scores, predictions of every seed, and the weights of the best."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from torch import Tensor

from model import checkpoint, metrics
from model.tuning.examples import Examples
from model.tuning.finetuning_job import PRETRAINED, UNTRAINED, Found, Run
from model.tuning.finetuning_run import Setup
from model.tuning.heads import Decided, Head
from pipeline.system import atomic

_NOT_TUNED = ("task", "baselines", "grid")
"""of a job's configuration: what is no hyperparameter"""


def publish(setup: Setup, found: Mapping[Run, Found], untouched: Mapping[str, Tensor], metrics_file: Path) -> None:
    """Write RUN_DIR/result, with nothing in it that depends on the machine's speed.

    found: of every run. untouched: logits of every part before any step, where that is a baseline.
    """
    chosen = setup.ranking.best_variant(PRETRAINED, found)
    ours = [run for run in found if run.network == PRETRAINED and run.number == chosen]
    best = setup.ranking.best_seed(ours, found)
    labels, config = setup.task["labels"], setup.job.config
    logits = {run: checkpoint.load_tensors(setup.runs() / run.name / "logits.safetensors") for run in ours}
    scores = _scores(setup, found, chosen, best, logits[best], untouched)

    def fill(place: Path) -> None:
        shutil.copyfile(setup.weights(best) / "model.safetensors", place / "model.safetensors")
        atomic.write_json(
            place / "config.json",
            {
                "task": config.task,
                "title": setup.task["title"],
                "kind": setup.task["kind"],
                "labels": labels,
                "pooling": setup.pooling,
                **_on_top(setup, best),
                "max_length": config.max_length,
                **({"long_texts": config.long_texts} if config.long_texts != "truncate" else {}),
                "architecture": setup.architecture.plain(),
                "vocabulary_size": len(setup.tokenizer.vocabulary),
                **({"decided": found[best]["decided"]} if found[best]["decided"] else {}),
            },
        )
        atomic.write_json(place / "scores.json", scores)
        shutil.copyfile(metrics_file, place / "metrics.jsonl")
        (place / "predictions").mkdir()
        for run, of_parts in logits.items():
            for part, outputs in of_parts.items():
                path = place / "predictions" / f"{part}-seed-{run.seed}"
                table, files = setup.head.predictions(setup.examples[part], outputs, labels, found[run]["decided"])
                pq.write_table(table, path.with_suffix(".parquet"), compression="zstd")
                for ending, text in files.items():
                    path.with_suffix(f".{ending}").write_text(text, encoding="utf-8")

    checkpoint.write_verified(setup.folder / "result", fill)


def _scores(
    setup: Setup,
    found: Mapping[Run, Found],
    chosen: int,
    best: Run,
    logits: Mapping[str, Tensor],
    untouched: Mapping[str, Tensor],
) -> dict[str, Any]:
    """scores.json."""
    config, labels, examples = setup.job.config, setup.task["labels"], setup.examples
    variants = _variants(setup, found, PRETRAINED)
    scored = "test" if found[best].get("test") is not None else "dev"
    confusion = _confusion(setup.head, examples[scored], logits[scored], len(labels), found[best]["decided"])
    counts = {part: dict(each.counts) for part, each in examples.items()}
    values = {name: value for name, value in config.plain().items() if name not in _NOT_TUNED}
    return {
        "task": config.task,
        "title": setup.task["title"],
        "kind": setup.task["kind"],
        "metric": setup.task["metric"],
        "labels": labels,
        "sizes": {part: len(each) for part, each in examples.items()},
        "truncated": {part: each.truncated for part, each in examples.items()},
        **({"counts": counts} if any(counts.values()) else {}),
        "parameters": found[best]["parameters"],
        "hyperparameters": values | best.variant.plain() | {"pooling": setup.pooling},
        "seeds": variants[chosen]["seeds"],
        "summary": variants[chosen]["summary"],
        "variants": variants,
        "chosen": chosen,
        "published_seed": best.seed,
        "confusion": {"part": scored, "counts": confusion} if confusion is not None else None,
        "baselines": _baselines(setup, found, untouched),
        **({"published": setup.task["published"]} if setup.task.get("published") else {}),
    }


def _on_top(setup: Setup, run: Run) -> dict[str, Any]:
    """Of config.json: whether model.safetensors holds the encoder, what is read of one that is frozen, and the BiLSTM."""
    bilstm = setup.job.config.bilstm
    return {
        "encoder": setup.job.config.encoder,
        "layers": run.variant.layers,
        "bilstm": bilstm.plain() if bilstm else None,
    }


def _variants(setup: Setup, found: Mapping[Run, Found], network: str) -> list[dict[str, Any]]:
    """Every combination of the grid with its seeds and their summary."""
    parts = [part for part in setup.examples if part != "train"]
    shown = []
    for number, variant in enumerate(setup.job.config.variants):
        runs = {run: each for run, each in found.items() if (run.network, run.number) == (network, number)}
        seeds = [_shown(run, each, parts) for run, each in runs.items()]
        settings = {name: value for name, value in variant.plain().items() if value is not None}
        shown.append({"settings": settings, "seeds": seeds, "summary": _summary(seeds, parts, setup.scored)})
    return shown


def _shown(run: Run, found: Found, parts: Sequence[str]) -> dict[str, Any]:
    """A run's entry in scores.json."""
    kept = ("best_epoch", *parts, "epochs", "skipped_steps")
    return {
        "seed": run.seed,
        **{name: found[name] for name in kept},
        **found["decided"],
        **({"diverged": found["diverged"]} if found["diverged"] else {}),
    }


def _summary(seeds: Sequence[Mapping[str, Any]], parts: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Median, extremes and deviation over the seeds, per part and metric; None for a part without labels."""
    return {
        part: None
        if seeds[0][part] is None
        else {name: asdict(metrics.spread([seed[part][name] for seed in seeds])) for name in names}
        for part in parts
    }


def _confusion(
    head: Head, examples: Examples, logits: Tensor, classes: int, decided: Decided
) -> list[list[int]] | None:
    """Counts [label][prediction] of the known labels; None where there are no classes."""
    if not classes:
        return None
    known = examples.known
    return metrics.confusion(examples.labels[known], head.guesses(examples, logits, decided)[known], classes)


# ── baselines ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _baselines(setup: Setup, found: Mapping[Run, Found], untouched: Mapping[str, Tensor]) -> dict[str, Any]:
    """Always what one guesses who reads nothing; where it says something, the network before any step; if asked for, TF-IDF and
    the network without pretraining."""
    shown: dict[str, Any] = {}
    asked, train = setup.job.config.baselines, setup.examples["train"]
    others = {part: each for part, each in setup.examples.items() if part != "train"}
    if UNTRAINED in asked:
        variants = _variants(setup, found, UNTRAINED)
        best = setup.ranking.best_variant(UNTRAINED, found)
        more = {"variants": variants, "chosen": best} if len(variants) > 1 else {}
        shown["untrained"] = {"seeds": variants[best]["seeds"], "summary": variants[best]["summary"], **more}
    if "tfidf" in asked and not train.texts:
        why = f"it labels whole texts one by one, which is no answer to a task of kind {setup.task['kind']}"
        print(f"no TF-IDF baseline: {why}", file=sys.stderr, flush=True)
    elif "tfidf" in asked:
        from model.reporting import tfidf

        print("TF-IDF baseline", file=sys.stderr, flush=True)
        guesses = tfidf.predict(train.texts, train.labels.tolist(), *(each.texts for each in others.values()))
        shown["tfidf"] = {part: setup.scores(part, guess) for part, guess in zip(others, guesses, strict=True)}
    if untouched:
        guessed = {part: setup.head.guesses(others[part], logits, {}) for part, logits in untouched.items()}
        shown["untouched"] = {part: setup.scores(part, guess) for part, guess in guessed.items()}
    constant = setup.head.constant(train)
    shown["majority"] = {
        "label": setup.task["labels"][constant] if setup.task["labels"] else constant,
        **{part: constant_scores(setup, part) for part in others},
    }
    return shown


def constant_scores(setup: Setup, part: str) -> dict[str, float | None] | None:
    """Scores of the best guess for one who reads nothing; None for a correlation, which a constant has none of."""
    examples, guess = setup.examples[part], setup.head.constant(setup.examples["train"])
    found = setup.scores(part, setup.head.constantly(examples, guess))
    if found is None:
        return None
    return {name: None if name in metrics.CORRELATIONS else value for name, value in found.items()}
