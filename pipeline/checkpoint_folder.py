"""What can be told of a folder that holds a model made elsewhere from the names of its files and a little JSON."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

WEIGHTS, OPTIMIZER, OPTIMIZER_JSON = "model.safetensors", "optimizer.safetensors", "optimizer.json"
PICKLED, INDEX = "pytorch_model.bin", ".index"
ORIGINAL = f"bert_model.ckpt{INDEX}"
"""the index of a TensorFlow checkpoint as google-research/bert released them"""
SAVE_ANEW = "Save it anew with transformers: model.save_pretrained(folder, max_shard_size='100GB')."
_CONFIGS = ("config.json", "bert_config.json")
_OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.ckpt.*", "*.h5", "*.msgpack", "*.safetensors.index.json")
_SHARD = re.compile(r"\.data-\d{5}-of-(\d{5})$")


def config_file(folder: Path) -> Path:
    """The file that describes a model: config.json, or what the original calls it."""
    return next((folder / name for name in _CONFIGS if (folder / name).is_file()), folder / _CONFIGS[0])


def weights_file(folder: Path) -> Path | None:
    """The file of weights that is read; of several forms the safest. Of a TensorFlow checkpoint it is the index, which may
    have any name where it is the only one."""
    for name in (WEIGHTS, PICKLED, ORIGINAL):
        if (folder / name).is_file():
            return folder / name
    others = indexes(folder)
    return others[0] if len(others) == 1 else None


def indexes(folder: Path) -> list[Path]:
    """The indexes of TensorFlow checkpoints."""
    return sorted(path for path in folder.glob(f"*.ckpt*{INDEX}") if path.is_file())


def faults(folder: Path, mode: str, optimizer: str) -> Iterator[tuple[str, str]]:
    """Why pretraining can't begin from a folder: (what is wrong, what to do) of each.

    `mode` and `optimizer` as in the recipe's `pretraining`. Reads no weights.
    """
    if folder.is_file():
        yield "is a file, not a folder", "Name the folder that it lies in; unpack an archive first."
        return
    if not folder.is_dir():
        yield "there is no such folder", "Correct the path (./NAME beside the recipe), or put the folder there."
        return
    if not config_file(folder).is_file():
        yield (
            f"has no {' and no '.join(_CONFIGS)}",
            "Name a folder that transformers or `bert export` wrote, or one as google-research/bert released them.",
        )
    yield from _weights_faults(folder)
    if not any((folder / name).is_file() for name in ("vocab.txt", "tokenizer.json")):
        yield (
            "has neither vocab.txt nor tokenizer.json: nobody knows what its word embeddings stand for",
            "Put the model's own vocab.txt there.",
        )
    if mode == "continue":
        yield from _optimizer_faults(folder, optimizer)


def _weights_faults(folder: Path) -> Iterator[tuple[str, str]]:
    file = weights_file(folder)
    if file is None and (several := indexes(folder)):
        yield (
            f"has several checkpoints: {', '.join(path.name for path in several[:3])}",
            f"Leave one of them there, or let one's name be {ORIGINAL.removesuffix(INDEX)}.",
        )
    elif file is None:
        others = sorted({path.name for pattern in _OTHER_WEIGHTS for path in folder.glob(pattern)})
        found = f" but {', '.join(others[:3])}" if others else ""
        yield f"has no {WEIGHTS}, {PICKLED} or {ORIGINAL}{found}; split weights are not read", SAVE_ANEW
    elif file.suffix == INDEX:
        prefix = file.name.removesuffix(INDEX)
        there = {path.name for path in folder.glob(f"{prefix}.data-*")}
        count = max((int(match[1]) for match in map(_SHARD.search, there) if match), default=1)
        missing = [
            name for number in range(count) if (name := f"{prefix}.data-{number:05d}-of-{count:05d}") not in there
        ]
        if missing:
            yield f"has {file.name} but no {', '.join(missing[:3])}", "Copy the checkpoint from its origin again."


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
