"""What can be told of a folder, or of a .zip of one, that holds a model made elsewhere from the names of its files and a
little JSON."""

import re
from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatch
from pathlib import Path

from pipeline.errors import DataError
from pipeline.formats.foreign_json import parsed
from pipeline.formats.unpacked import SUFFIX, Archive, opened

WEIGHTS, OPTIMIZER, OPTIMIZER_JSON = "model.safetensors", "optimizer.safetensors", "optimizer.json"
PICKLED, INDEX = "pytorch_model.bin", ".index"
ORIGINAL = f"bert_model.ckpt{INDEX}"
"""the index of a TensorFlow checkpoint as google-research/bert released them"""
SAVE_ANEW = "Save it anew with transformers: model.save_pretrained(folder, max_shard_size='100GB')."
_CONFIGS = ("config.json", "bert_config.json")
_OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.ckpt.*", "*.h5", "*.msgpack", "*.safetensors.index.json")
_SHARD = re.compile(r"\.data-\d{5}-of-(\d{5})$")
MAX_UNPACKED_BYTES = 32 << 30
"""BERT-large with the moments of its optimizer has 4 GiB in fp32."""
_MAX_JSON_BYTES = 1 << 20


def config_file(folder: Path) -> Path:
    """The file that describes a model: config.json, or what the original calls it."""
    return next((folder / name for name in _CONFIGS if (folder / name).is_file()), folder / _CONFIGS[0])


def weights_file(folder: Path) -> Path | None:
    """The file of weights that is read; of several forms the safest. Of a TensorFlow checkpoint it is the index, which may
    have any name where it is the only one."""
    name = _weights(_files(folder))
    return folder / name if name else None


def is_archive(place: Path) -> bool:
    """Whether it is a .zip and no folder."""
    return place.suffix.lower() == SUFFIX and place.is_file()


def unpack(archive: Path, folder: Path) -> None:
    """Put the files of the model in a .zip into `folder`, without weights in forms that are not read.

    Raises:
        DataError: the archive can't be read or trusted, holds no model or several, or more than a BERT has.
    """
    with opened(archive) as held:
        inside = _model_in(held, archive)
        weights = _weights(inside) or ""
        prefix = weights.removesuffix(INDEX)
        for name, member in inside.items():
            other = any(fnmatch(name, pattern) for pattern in _OTHER_WEIGHTS)
            if name == weights or name.startswith(f"{prefix}.data-") or not other:
                held.unpack(member, folder / name, MAX_UNPACKED_BYTES)


def faults(place: Path, mode: str, optimizer: str) -> Iterator[tuple[str, str]]:
    """Why pretraining can't begin from a folder or a .zip of one: (what is wrong, what to do) of each.

    `mode` and `optimizer` as in the recipe's `pretraining`. Reads no weights.
    """
    if is_archive(place):
        try:
            with opened(place) as archive:
                inside = _model_in(archive, place)
                yield from _faults(inside, lambda name: archive.read(inside[name], _MAX_JSON_BYTES), mode, optimizer)
        except DataError as error:
            yield error.what.removeprefix(f"{place} "), error.todo
    elif place.is_file():
        yield "is a file, but no folder and no .zip", "Name the folder that it lies in; unpack another archive first."
    elif not place.is_dir():
        yield "there is no such folder", "Correct the path (./NAME beside the recipe), or put the folder there."
    else:
        yield from _faults(_files(place), lambda name: (place / name).read_bytes(), mode, optimizer)


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()} if folder.is_dir() else set()


def _weights(names: Collection[str]) -> str | None:
    chosen = next((name for name in (WEIGHTS, PICKLED, ORIGINAL) if name in names), None)
    others = _indexes(names)
    return others[0] if chosen is None and len(others) == 1 else chosen


def _indexes(names: Collection[str]) -> list[str]:
    """The indexes of TensorFlow checkpoints."""
    return sorted(name for name in names if fnmatch(name, f"*.ckpt*{INDEX}"))


# ── archives ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _model_in(archive: Archive, path: Path) -> dict[str, str]:
    """Name → member of the files of the one model that an archive holds: those of the folder, or of the archive itself, that
    has a configuration and weights; of several the one nearest the top. Empty where there is none.

    Raises DataError where several are equally near, and for members that are not to be read.
    """
    folders: dict[str, dict[str, str]] = {}
    for member in archive.sizes:
        folder, _, name = member.rpartition("/")
        folders.setdefault(folder, {})[name] = member
    described = [folder for folder, names in folders.items() if any(name in names for name in _CONFIGS)]
    whole = [folder for folder in described if _weights(folders[folder]) or _indexes(folders[folder])]
    found = sorted(whole or described, key=_depth)
    if not found:
        return folders.get("", {})
    if len(found) > 1 and _depth(found[0]) == _depth(found[1]):
        raise DataError(
            f"{path} holds several models: {', '.join(found[:3])}", "Unpack it, and name the folder of one of them."
        )
    inside = folders[found[0]]
    for member in inside.values():
        archive.check(member)
    if (size := sum(archive.sizes[member] for member in inside.values())) > MAX_UNPACKED_BYTES:
        raise DataError(f"{path} unpacks to {size:,} bytes", "Unpack it yourself if you trust it, and name the folder.")
    return inside


def _depth(folder: str) -> int:
    return len(folder.split("/")) if folder else 0


# ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _faults(
    names: Collection[str], read: Callable[[str], bytes], mode: str, optimizer: str
) -> Iterator[tuple[str, str]]:
    """`names` are the files, `read` gives the content of one."""
    if not any(name in names for name in _CONFIGS):
        yield (
            f"has no {' and no '.join(_CONFIGS)}",
            "Name a folder that transformers or `bert export` wrote, or one as google-research/bert released them.",
        )
    yield from _weights_faults(names)
    if not any(name in names for name in ("vocab.txt", "tokenizer.json")):
        yield (
            "has neither vocab.txt nor tokenizer.json: nobody knows what its word embeddings stand for",
            "Put the model's own vocab.txt there.",
        )
    if mode == "continue":
        yield from _optimizer_faults(names, read, optimizer)


def _weights_faults(names: Collection[str]) -> Iterator[tuple[str, str]]:
    file = _weights(names)
    if file is None and (several := _indexes(names)):
        yield (
            f"has several checkpoints: {', '.join(several[:3])}",
            f"Leave one of them there, or let one's name be {ORIGINAL.removesuffix(INDEX)}.",
        )
    elif file is None:
        others = sorted(name for name in names if any(fnmatch(name, pattern) for pattern in _OTHER_WEIGHTS))
        found = f" but {', '.join(others[:3])}" if others else ""
        yield f"has no {WEIGHTS}, {PICKLED} or {ORIGINAL}{found}; split weights are not read", SAVE_ANEW
    elif file.endswith(INDEX):
        prefix = file.removesuffix(INDEX)
        there = {name for name in names if name.startswith(f"{prefix}.data-")}
        count = max((int(match[1]) for match in map(_SHARD.search, there) if match), default=1)
        missing = [
            name for number in range(count) if (name := f"{prefix}.data-{number:05d}-of-{count:05d}") not in there
        ]
        if missing:
            yield f"has {file} but no {', '.join(missing[:3])}", "Copy the checkpoint from its origin again."


def _optimizer_faults(
    names: Collection[str], read: Callable[[str], bytes], optimizer: str
) -> Iterator[tuple[str, str]]:
    missing = [name for name in (OPTIMIZER, OPTIMIZER_JSON) if name not in names]
    if missing:
        yield (
            f"has no {' and no '.join(missing)}, which mode continue goes on with",
            "Export a pretrained checkpoint (bert export RECIPE/pretrained_128 DIR), or write mode: warm.",
        )
        return
    try:
        kind = dict(parsed(read(OPTIMIZER_JSON))).get("optimizer")
    except (OSError, ValueError, TypeError) as error:
        yield f"{OPTIMIZER_JSON} can't be read: {error}", "Export the checkpoint again."
        return
    if kind != optimizer:
        was = f"of {kind}" if kind else "of an optimizer that it does not name"
        yield (
            f"holds the state {was}, pretraining.optimizer is {optimizer}",
            f"Write optimizer: {kind}, or mode: warm." if kind else "Export the checkpoint again, or write mode: warm.",
        )
