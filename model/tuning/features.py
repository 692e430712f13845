"""What a frozen encoder says of the texts of a task, computed once and kept: hidden states of the tokens that are read.

    features/PART/identity.json     what they were computed from
    features/PART/layer-NN.npy      float32 [N, H], hidden states of one layer, 00 the embeddings'
    features/PART/manifest.json     sizes and digests: the folder is whole

Of a tagging task these are the N words, each at its first sub-token (Devlin et al. 2019, section 5.3), sentence by
sentence: a BiLSTM over them reads words, without [CLS], [SEP] and the rest of a word, and a sentence as a whole even where
the encoder had to read it in several rows. Of other tasks they are all tokens, row by row.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from model import checkpoint
from model.artifact import read_json
from model.bert import Bert
from model.devices import Device
from model.layers.attention import Rows
from model.processes.child import Stop
from model.tuning.examples import Examples, Ints
from pipeline import progress, units
from pipeline.errors import StoreError
from pipeline.ragged import places, ranges
from pipeline.system import atomic

BATCH_TOKENS = 4096
"""tokens that the encoder reads at once, unless one row has more"""
IDENTITY = "identity.json"


@dataclass(frozen=True)
class Reading:
    """Which tokens of some rows are read: N of them, in sequences."""

    places: tuple[Ints, ...]
    """of every row: its tokens that are read"""
    numbers: tuple[Ints, ...]
    """of every row: which of the N these are; together every number once"""
    starts: Ints
    """[n + 1] where each sequence begins among the N, and the end of the last"""


def reading_of(examples: Examples) -> Reading:
    """Of a tagging task the first sub-token of every word, in sequences that are sentences, those without words left out; of
    others all tokens, in sequences that are rows."""
    if examples.asked is not None:
        return Reading(examples.asked.places, examples.asked.numbers, np.unique(examples.asked.starts))
    lengths = np.array([len(ids) for ids in examples.input_ids], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    whole = tuple(np.arange(length) for length in lengths)
    return Reading(whole, tuple(start + each for start, each in zip(starts, whole, strict=False)), starts)


def by_sequence(examples: Examples) -> Examples:
    """The same examples with the sequences of `reading_of` as rows: of a tagging task sentences, of which every word is one
    token, whose id says nothing."""
    if examples.asked is None:
        return examples
    starts = np.unique(examples.asked.starts)
    lengths = np.diff(starts)
    whole = tuple(np.arange(length) for length in lengths)
    numbers = tuple(start + each for start, each in zip(starts, whole, strict=False))
    return replace(
        examples,
        input_ids=tuple(np.zeros(length, np.int32) for length in lengths),
        second_starts=lengths,
        asked=replace(examples.asked, places=whole, numbers=numbers),
    )


@dataclass(frozen=True)
class Kept:
    """Hidden states on disk."""

    states: Mapping[int, npt.NDArray[np.float32]]
    """by layer, 0 the embeddings': [N, H], read from disk where they are touched"""
    starts: Ints
    """[n + 1] where each sequence begins among the N, and the end of the last"""

    @property
    def lengths(self) -> Ints:
        """Tokens of every sequence, [n]."""
        return np.diff(self.starts)

    def only(self, layers: Collection[int]) -> "Kept":
        """The same without the other layers."""
        return Kept({layer: self.states[layer] for layer in layers}, self.starts)

    def batch(self, sequences: Ints) -> tuple[dict[int, Tensor], Rows]:
        """Of some sequences, one after the other, as they are named: hidden states by layer, float32 [T, H] each on the CPU,
        and where each sequence lies among the T."""
        lengths = self.lengths[sequences]
        chosen = ranges(self.starts[sequences], lengths)
        states = {layer: torch.from_numpy(array[chosen]) for layer, array in self.states.items()}
        return states, _rows(lengths)


def keep(
    folder: Path,
    encoder: Bert,
    device: Device,
    examples: Examples,
    layers: Sequence[int],
    precision: str,
    stop: Stop,
) -> Kept | None:
    """The hidden states of `layers` (0: the embeddings) at the tokens that are read of `examples`; None: asked to stop.

    They are those of `folder` where it is whole and was computed from the same; else they are computed, without dropout, and
    put there. The folder appears when everything in it is on disk. What else is being written beside it is removed: nobody
    else may write there. `encoder` is on the device.

    Raises:
        StoreError: the disk has no room for them, or is read-only.
    """
    reading = reading_of(examples)
    count, hidden = int(reading.starts[-1]), encoder.architecture.hidden
    identity = _identity(encoder, examples, reading, layers, precision)
    if _usable(folder, identity):
        return _kept(folder, reading, layers)
    with atomic.explained(folder.parent):
        atomic.make_folder(folder.parent)
        for leftover in folder.parent.glob(f"{checkpoint.TEMPORARY}*"):
            shutil.rmtree(leftover)
        shutil.rmtree(folder, ignore_errors=True)  # it is of no use, and its room may be needed
    check_room(folder, count, len(layers), hidden)

    def fill(place: Path) -> None:
        arrays = {layer: _new_array(place / _name(layer), (count, hidden)) for layer in layers}
        _compute(arrays, encoder, device, examples, reading, precision, stop)
        for array in arrays.values():
            array.flush()
        atomic.write_json(place / IDENTITY, identity)

    try:
        if count:
            with progress.listen(_say):
                checkpoint.write_verified(folder, fill)
    except _Stopped:
        return None
    return _kept(folder, reading, layers)


class _Stopped(Exception):
    """Asked to stop while it computed."""


def _compute(
    arrays: Mapping[int, npt.NDArray[np.float32]],
    encoder: Bert,
    device: Device,
    examples: Examples,
    reading: Reading,
    precision: str,
    stop: Stop,
) -> None:
    """Fill [N, H] of every layer, the longest rows first: what needs most memory, and time, comes before the rest."""
    lengths = np.array([len(ids) for ids in examples.input_ids], np.int64)
    encoder.eval()
    done, total = 0, int(lengths.sum())
    progress.report(0, total, "tokens encoded")
    for rows in token_batches(lengths):
        if stop.asked:
            raise _Stopped
        inputs = _inputs(examples, rows, device)
        of_rows = (np.cumsum(lengths[rows]) - lengths[rows]).tolist()
        read = np.concatenate([start + reading.places[row] for start, row in zip(of_rows, rows, strict=True)])
        numbers = np.concatenate([reading.numbers[row] for row in rows])
        asked = device.put(torch.from_numpy(read))
        with torch.inference_mode(), device.autocast(precision):
            for layer, states in zip(range(max(arrays) + 1), encoder.unpadded_states(*inputs), strict=False):
                if layer in arrays:
                    arrays[layer][numbers] = states[asked].float().cpu().numpy()
        done += int(lengths[rows].sum())
        progress.report(done, total, "tokens encoded")


def token_batches(lengths: Ints) -> list[Ints]:
    """All rows once, longest first, in batches of at most BATCH_TOKENS tokens or of one row."""
    order = np.argsort(-lengths, kind="stable")
    batches: list[Ints] = []
    first, tokens = 0, 0
    for at, length in enumerate(lengths[order].tolist()):
        if at > first and tokens + length > BATCH_TOKENS:
            batches.append(order[first:at])
            first, tokens = at, 0
        tokens += length
    return [*batches, order[first:]] if len(order) else []


def _inputs(examples: Examples, rows: Ints, device: Device) -> tuple[Tensor, Tensor, Tensor, Rows]:
    """What `Bert.unpadded_states` takes."""
    chosen = [examples.input_ids[row] for row in rows]
    lengths = np.array([len(ids) for ids in chosen], np.int64)
    position_ids = places(lengths)
    types = (position_ids >= np.repeat(examples.second_starts[rows], lengths)).astype(np.int64)
    tokens = (np.concatenate(chosen).astype(np.int64), types, position_ids)
    input_ids, token_type_ids, positions = (device.put(torch.from_numpy(array)) for array in tokens)
    of_rows = _rows(lengths)
    return input_ids, token_type_ids, positions, Rows(device.put(of_rows.starts), of_rows.longest)


def _rows(lengths: Ints) -> Rows:
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return Rows(torch.from_numpy(starts), int(lengths.max(initial=0)))


# ── on disk ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _name(layer: int) -> str:
    return f"layer-{layer:02d}.npy"


def _new_array(path: Path, shape: tuple[int, int]) -> np.memmap[Any, np.dtype[np.float32]]:
    """An array on disk, whose blocks are the file's already: on a full disk that is an error, but writing into a file with holes
    through memory ends the process."""
    array = np.lib.format.open_memmap(path, "w+", np.dtype(np.float32), shape)
    with path.open("rb+") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _kept(folder: Path, reading: Reading, layers: Sequence[int]) -> Kept:
    if not reading.starts[-1]:  # no file can be mapped that has nothing in it
        return Kept({layer: np.empty((0, 0), np.float32) for layer in layers}, reading.starts)
    return Kept({layer: np.load(folder / _name(layer), mmap_mode="r") for layer in layers}, reading.starts)


def _usable(folder: Path, identity: Mapping[str, Any]) -> bool:
    """Whether the folder is whole and was computed from the same; says why not."""
    if not folder.exists():
        return False
    problem = checkpoint.broken(folder)
    if problem is None:
        before = read_json(folder / IDENTITY)
        changed = sorted(name for name in identity if before.get(name) != identity[name])
        if not changed:
            return True
        problem = f"other {', '.join(changed)}"
    _say(f"the features kept in {folder} can't be used ({problem}): they are computed anew")
    return False


def _identity(
    encoder: Bert, examples: Examples, reading: Reading, layers: Sequence[int], precision: str
) -> dict[str, Any]:
    """What the hidden states follow from, but for the last bits, which a device and its threads decide."""
    architecture = {name: value for name, value in encoder.architecture.plain().items() if name != "dropout"}
    # A public model may have no pooler: then it is drawn by each run's seed, and nothing here reads it.
    weights = {name: value for name, value in encoder.state_dict().items() if not name.startswith("pooler.")}
    return {
        "architecture": architecture,
        "encoder": _digest(value.cpu().numpy() for value in weights.values()),
        "layers": list(layers),
        "precision": precision,
        "rows": _digest([*examples.input_ids, examples.second_starts]),
        "tokens": _digest([*reading.places, *reading.numbers, reading.starts]),
    }


def _digest(arrays: Iterable[npt.NDArray[Any]]) -> str:
    """Of arrays, their sizes and their order."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(f"{array.dtype.str}{array.shape}".encode())
        whole.update(array.tobytes())
    return whole.hexdigest()


def check_room(folder: Path, count: int, layers: int, hidden: int) -> None:
    """Say how large the features of `count` tokens get. Raises StoreError where the disk of the folder beside has no such room."""
    needed, free = count * layers * hidden * 4, shutil.disk_usage(folder.parent).free
    told = f"features of {count:,} tokens, {layers} layers of {hidden}: {units.size(needed)}"
    if needed > free:
        raise StoreError(
            f"{folder}: {told}, but {units.size(free)} are free",
            "Free space there, set `home` in settings.yaml to another disk, or choose fewer layers.",
        )
    _say(f"{told} in {folder}, {units.size(free)} are free")


def _say(what: object) -> None:
    print(what, file=sys.stderr, flush=True)
