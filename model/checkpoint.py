"""Checkpoints that are whole or not there: safetensors and JSON, never pickle, with a manifest of SHA-256 digests.

    checkpoints/step-0000001200/   model.safetensors  optimizer.safetensors  state.json  manifest.json
    checkpoints/LATEST             the name of the newest one, for other programs; replaced by rename
    checkpoints/broken-…           set aside by `newest`: something in it does not match its manifest

A folder is filled under a temporary name, every file is fsynced, the manifest is written last, then the folder is
renamed: a name that can be read as a step belongs to a complete checkpoint. Loading verifies it all the same.
"""

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pipeline.errors import DataError
from pipeline.system import atomic

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"
LATEST = "LATEST"
STEP = "step-"
TEMPORARY = "tmp."
REPLACED = "replaced."
"""before the name of a folder that is being replaced by another of its name"""


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint."""

    folder: Path
    step: int
    state: Mapping[str, Any]
    """what was saved beside the tensors, as JSON"""

    def tensors(self, name: str) -> "dict[str, Tensor]":
        """The tensors saved under `name`, on the CPU. Raises DataError when there are none of that name."""
        return load_tensors(self.folder / f"{name}.safetensors")


MAX_HEADER_BYTES = 1 << 20
"""Of a safetensors file: a tensor takes about 120, those of BERT-large with its optimizer's moments 0.15 MB."""
RESTORE = "Run `bert verify` to restore it."
"""what helps where a file of the store is broken"""


def load_tensors(path: Path, todo: str = RESTORE) -> "dict[str, Tensor]":
    """All tensors of a safetensors file, on the CPU. Raises DataError, with `todo`, when it can't be read as one."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        check_header(path)
        return load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{path} can't be read as safetensors: {error}", todo) from None


def check_header(path: Path) -> None:
    """ValueError for what the library reads all the same: a header beyond all need, which costs it time, and a name that stands
    twice, of which it takes the last."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise ValueError(f"its header has {length:,} bytes, more than {MAX_HEADER_BYTES >> 20} MiB")
        header = file.read(length)

    def distinct(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise ValueError(f"{max(names, key=names.count)} stands twice in its header")

    try:
        json.loads(header, object_pairs_hook=distinct)
    except RecursionError:
        raise ValueError("its header nests too deep") from None


def save_tensors(tensors: "Mapping[str, Tensor]", path: Path) -> None:
    """Write a safetensors file. Raises OSError, as every other write does, when the disk is full or read-only."""
    from safetensors.torch import save_file

    with writing(path):
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within the block, what safetensors says of a disk is an OSError, which names `path`."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def save(
    folder: Path,
    step: int,
    tensors: "Mapping[str, Mapping[str, Tensor]]",
    state: Mapping[str, Any],
    keep: int = 2,
    milestone_steps: int | None = None,
) -> Path:
    """Save `tensors[name]` as name.safetensors and `state` as state.json under `folder`; returns the checkpoint.

    Older checkpoints beyond the newest `keep` are deleted, but only after the new one was read back and verified; those of
    a multiple of `milestone_steps` stay. A checkpoint of this step that is there already, is replaced.

    Raises:
        StoreError: the disk is full or read-only; what was there stays.
        DataError: what was written does not read back, or a tensor has a value that is not finite: nothing is kept of it.
    """

    poisoned = [key for part in tensors.values() for key, tensor in part.items() if not bool(tensor.isfinite().all())]
    if poisoned:
        raise DataError(
            f"after step {step} {len(poisoned)} tensors have values that are not finite, {poisoned[0]} among them; they are "
            "not saved",
            "The run goes on from the checkpoint before; lower learning_rate, lengthen warmup_steps, or use precision fp32.",
        )

    def fill(place: Path) -> None:
        for name, part in tensors.items():
            save_tensors(part, place / f"{name}.safetensors")
        (place / "state.json").write_text(json.dumps(state, indent=1, allow_nan=False), encoding="utf-8")

    path = folder / f"{STEP}{step:010d}"
    write_verified(path, fill)
    problem = broken(path)
    if problem:
        raise DataError(f"the checkpoint just written is broken: {problem}", "Check the disk; the run can be resumed.")
    atomic.write_bytes(folder / LATEST, f"{path.name}\n".encode())
    for old in steps(folder)[keep:]:
        if not is_milestone(old, milestone_steps):
            shutil.rmtree(old)
    return path


def is_milestone(path: Path, milestone_steps: int | None) -> bool:
    """Whether a checkpoint is kept for good: its step is a multiple of `milestone_steps`, and not the beginning."""
    step = step_of(path)
    return bool(milestone_steps and step) and step % (milestone_steps or 1) == 0


def step_of(path: Path) -> int:
    """The step of a checkpoint's folder."""
    return int(path.name.removeprefix(STEP))


def steps(folder: Path) -> list[Path]:
    """The checkpoints under `folder`, newest first."""
    found = [path for path in folder.glob(f"{STEP}*") if path.name.removeprefix(STEP).isdecimal()]
    return sorted(found, key=step_of, reverse=True)


def newest(folder: Path, preferred: Callable[[Checkpoint], bool] = lambda found: True) -> Checkpoint | None:
    """The newest intact checkpoint under `folder` that is `preferred`, else the newest; None when there is none.

    Broken ones on the way are renamed to `broken-…` and named on stderr; what an interrupted save left is removed.
    """
    for leftover in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(leftover)
    for leftover in folder.glob(f".{LATEST}.*"):
        leftover.unlink()
    put_back(folder)
    first = None
    for path in steps(folder):
        problem = broken(path)
        if problem is None:
            found = read(path)
            if preferred(found):
                return found
            first = first or found
            continue
        aside = path.with_name(f"broken-{path.name}-{uuid4().hex[:8]}")
        path.rename(aside)
        print(f"checkpoint {path.name} is set aside as {aside.name}: {problem}", file=sys.stderr, flush=True)
    return first


def read(path: Path) -> Checkpoint:
    """A checkpoint that is known to be intact."""
    return Checkpoint(path, step_of(path), json.loads((path / "state.json").read_text(encoding="utf-8")))


def write_verified(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write files into a temporary folder, make them durable with a manifest, and rename it to `folder`.

    A folder of that name is replaced; where that is interrupted, `put_back` restores it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    put_back(folder.parent)
    temporary = folder.parent / f"{TEMPORARY}{uuid4().hex}"
    temporary.mkdir()
    try:
        fill(temporary)
        files = sorted(path for path in temporary.rglob("*") if path.is_file())
        listed = {
            str(path.relative_to(temporary)): {"size_bytes": path.stat().st_size, "sha256": _sha256(path)}
            for path in files
        }
        for path in files:
            atomic.fsync_file(path)
        for inner in (path for path in temporary.rglob("*") if path.is_dir()):
            atomic.fsync_folder(inner)
        atomic.write_json(temporary / MANIFEST, listed)
        replaced = folder.with_name(f"{REPLACED}{folder.name}")
        if folder.exists():  # never a moment in which neither the old nor the new one is on disk
            folder.rename(replaced)
        atomic.rename_folder(temporary, folder)
    except OSError as error:
        raise atomic.explain(error, temporary) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        put_back(folder.parent)


def put_back(parent: Path) -> None:
    """End what `write_verified` began: a folder that was set aside goes where the new one stands, and gets its name back where
    that never came."""
    for replaced in parent.glob(f"{REPLACED}*"):
        folder = replaced.with_name(replaced.name.removeprefix(REPLACED))
        if folder.exists():
            shutil.rmtree(replaced)
        else:
            replaced.rename(folder)


def broken(folder: Path) -> str | None:
    """What is wrong with a folder that `write_verified` wrote; None when it is as it was written."""
    try:
        listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"{MANIFEST} can't be read: {error}"
    try:
        for name, entry in listed.items():
            if (folder / name).stat().st_size != entry["size_bytes"]:
                return f"{name} has another size than its manifest says"
            if _sha256(folder / name) != entry["sha256"]:
                return f"{name} does not match its SHA-256"
    except (OSError, KeyError, TypeError, AttributeError) as error:
        return f"its files are not those of {MANIFEST}: {error}"
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
