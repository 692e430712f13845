"""Metrics of trained weights and of the released folder. Tensors are read one at a time, as numpy arrays."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import ImportedConfig, PretrainConfig, ReleaseConfig
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


def imported(folder: Path, config: ImportedConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`imported_checkpoint`."""
    declared, told = read_json(folder / "config.json"), read_json(folder / "told.json")
    sizes = declared["architecture"]
    entries = (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    tokenizer = read_json(folder / "tokenizer.json")["model"]["vocab"]
    shapes = {name: tensor.shape for name, tensor in tensors(folder / "model.safetensors")}
    words = shapes.get("encoder.embeddings.word.weight", ())
    inner = sizes["intermediate"] or 4 * sizes["hidden"]
    wanted = {
        "encoder.embeddings.word.weight": (declared["vocabulary_size"], sizes["hidden"]),
        "encoder.embeddings.position.weight": (sizes["max_positions"], sizes["hidden"]),
        f"encoder.layers.{sizes['layers'] - 1}.intermediate.weight": (inner, sizes["hidden"]),
    }
    wrong = sum(shapes.get(name) != shape for name, shape in wanted.items())
    layers = {name.split(".")[2] for name in shapes if name.startswith("encoder.layers.")}
    return {
        "infinite_weights": infinite_weights(folder / "model.safetensors"),
        "wrong_shapes": wrong + (len(layers) != sizes["layers"]),
        "vocabulary_mismatches": (len(entries) != declared["vocabulary_size"])
        + (words[:1] != (len(entries),))
        + sum(tokenizer.get(entry) != number for number, entry in enumerate(entries)),
        "optimizer_faults": _optimizer_faults(folder, shapes) if config.mode == "continue" else DOES_NOT_APPLY,
        "parts_missing": len(told["missing"]),
        "missing_names": ", ".join(told["missing"]),
        "weights_ignored": len(told["ignored"]),
        "ignored_names": ", ".join(told["ignored"][:3]),
        "tokenizer_differences": len(told["tokenizer_differences"]),
        "difference_names": "; ".join(told["tokenizer_differences"]),
    }


def _optimizer_faults(folder: Path, weights: Mapping[str, tuple[int, ...]]) -> int:
    """Moments that are not finite, negative second ones, and those whose weight is missing or of another shape."""
    faults = 2 * len(weights)
    for name, tensor in tensors(folder / "optimizer.safetensors"):
        kind, _, weight = name.partition(".")
        sound = bool(np.isfinite(tensor).all()) and (kind == "first" or bool((tensor >= 0).all()))
        faults += -1 if sound and weights.get(weight) == tensor.shape else 1
    return faults


def pretrained(folder: Path, config: PretrainConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`pretrained_L`."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    held_out = read_json(folder / "held_out.json")
    published = read_json(folder / "optimizer.json")["step"] - config.first_step
    # The best weights are those of an earlier step.
    trained = published if config.publish == "last" else max((row["step"] for row in rows), default=0)
    losses = [row["loss"] for row in rows if "loss" in row]
    baselines = held_out["baselines"]
    pairs = config.sentence_task != "none"
    return {
        "metric_rows": len(losses),
        "infinite_numbers": infinite_numbers(rows) + infinite_numbers(held_out),
        "infinite_weights": infinite_weights(folder / "model.safetensors"),
        "steps_missing": statistics.get("steps", config.steps) - trained,
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
