"""What can be told of a folder that holds a model made elsewhere from the names of its files and a little JSON."""

import json
from collections.abc import Iterator
from pathlib import Path

WEIGHTS, OPTIMIZER, OPTIMIZER_JSON = "model.safetensors", "optimizer.safetensors", "optimizer.json"
_OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.ckpt.*", "*.h5", "*.msgpack", "*.safetensors.index.json")


def faults(folder: Path, mode: str, optimizer: str) -> Iterator[tuple[str, str]]:
    """Why pretraining can't begin from a folder: (what is wrong, what to do) of each.

    `mode` and `optimizer` as in the recipe's `pretraining`. Reads no weights.
    """
    if not folder.is_dir():
        yield "there is no such folder", "Correct the path (./NAME beside the recipe), or put the folder there."
        return
    if not (folder / "config.json").is_file():
        yield "has no config.json", "Name a folder that transformers or `bert export` wrote."
    if not (folder / WEIGHTS).is_file():
        others = sorted({path.name for pattern in _OTHER_WEIGHTS for path in folder.glob(pattern)})
        found = f" but {', '.join(others[:3])}" if others else ""
        yield (
            f"has no {WEIGHTS}{found}; pickled and split weights are not read",
            "Save it anew with transformers: model.save_pretrained(folder, max_shard_size='100GB').",
        )
    if not any((folder / name).is_file() for name in ("vocab.txt", "tokenizer.json")):
        yield (
            "has neither vocab.txt nor tokenizer.json: nobody knows what its word embeddings stand for",
            "Put the model's own vocab.txt there.",
        )
    if mode == "continue":
        yield from _optimizer_faults(folder, optimizer)


def _optimizer_faults(folder: Path, optimizer: str) -> Iterator[tuple[str, str]]:
    missing = [name for name in (OPTIMIZER, OPTIMIZER_JSON) if not (folder / name).is_file()]
    if missing:
        yield (
            f"has no {' and no '.join(missing)}, which mode continue goes on with",
            "Export a pretrained checkpoint (bert export RECIPE/pretrained_128 DIR), or write mode: warm.",
        )
        return
    try:
        kind = dict(json.loads((folder / OPTIMIZER_JSON).read_text(encoding="utf-8"))).get("optimizer")
    except (OSError, ValueError, TypeError) as error:
        yield f"{OPTIMIZER_JSON} can't be read: {error}", "Export the checkpoint again."
        return
    if kind != optimizer:
        was = f"of {kind}" if kind else "of an optimizer that it does not name"
        yield (
            f"holds the state {was}, pretraining.optimizer is {optimizer}",
            f"Write optimizer: {kind}, or mode: warm." if kind else "Export the checkpoint again, or write mode: warm.",
        )
