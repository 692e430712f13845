"""Metrics of trained weights and of the released folder. Tensors are read one at a time, as numpy arrays."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import PretrainConfig, ReleaseConfig
from pipeline.suites import DOES_NOT_APPLY

RELEASE_FILES = (
    "config.json",
    "model.safetensors",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "README.md",
)
WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"


def pretrained(folder: Path, config: PretrainConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`pretrained_L`."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    held_out = read_json(folder / "held_out.json")
    losses = [row["loss"] for row in rows if "loss" in row]
    baselines = held_out["baselines"]
    pairs = config.sentence_task != "none"
    return {
        "metric_rows": len(losses),
        "infinite_numbers": infinite_numbers(rows) + infinite_numbers(held_out),
        "infinite_weights": infinite_weights(folder / "model.safetensors"),
        "steps_missing": statistics.get("steps", config.steps) - max((row["step"] for row in rows), default=0),
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "loss_drop": losses[0] - losses[-1] if losses else None,
        "mlm_accuracy": held_out["mlm_accuracy"],
        "mlm_baseline": baselines["most_frequent_token_accuracy"],
        "mlm_gain": held_out["mlm_accuracy"] - baselines["most_frequent_token_accuracy"],
        "nsp_accuracy": held_out["nsp_accuracy"],
        "nsp_baseline": baselines["nsp_majority_accuracy"],
        "nsp_gain": held_out["nsp_accuracy"] - baselines["nsp_majority_accuracy"] if pairs else DOES_NOT_APPLY,
    }


def release(folder: Path, config: ReleaseConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`release`."""
    missing = [name for name in RELEASE_FILES if not (folder / name).is_file() or not (folder / name).stat().st_size]
    if missing:
        return {"files_missing": len(missing)}
    declared = read_json(folder / "config.json")["vocab_size"]
    entries = len((folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    embeddings = [len(tensor) for name, tensor in tensors(folder / "model.safetensors") if name == WORD_EMBEDDINGS]
    return {
        "files_missing": 0,
        "vocabulary_mismatches": (entries != declared) + (embeddings != [declared]),
        "infinite_weights": infinite_weights(folder / "model.safetensors"),
    }


def read_json(path: Path) -> Any:
    """The value of a JSON file; NaN and Infinity are read as such."""
    return json.loads(path.read_text(encoding="utf-8"))


def tensors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """(name, tensor) of a safetensors file, one at a time."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        for name in file.keys():  # noqa: SIM118 — not a dict
            yield name, file.get_tensor(name)


def infinite_weights(path: Path) -> int:
    """Weights that are NaN or infinite; a file without weights counts as one."""
    counts = [int((~np.isfinite(tensor)).sum()) for _, tensor in tensors(path)]
    return sum(counts) if counts else 1


def infinite_numbers(value: Any) -> int:
    """Numbers inside a JSON value that are NaN or infinite."""
    if isinstance(value, dict):
        return sum(map(infinite_numbers, value.values()))
    if isinstance(value, list):
        return sum(map(infinite_numbers, value))
    return int(isinstance(value, float) and not math.isfinite(value))
