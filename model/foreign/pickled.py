"""Weights that torch pickled, of which nobody knows who made them: tensors are read, and nothing is run."""

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

_ZIP = b"PK\3\4"
_LEAST_TORCH = (2, 10)
"""CVE-2026-24747: before, a pickle could write beyond its memory for all that weights_only refuses."""
_FOREIGN = re.compile(r"(?:GLOBAL|class|function|type) `?([\w.]+)`? ?(?:was not|is not|from|whose)")
"""what torch says of a step that it refuses"""
_AGAIN = "Copy it from where the model came from, or download it, again; or take safetensors of the same model."
_TODO = "Take safetensors of the same model, or save it anew with transformers, where you trust who made it."


def load_pickled(path: Path) -> "dict[str, Tensor]":
    """The tensors of a file that `torch.save` wrote of a state_dict, on the CPU.

    A pickle is a program. torch's own reader of weights knows the few steps that make tensors and refuses all others.

    Raises:
        DataError: the file holds anything but tensors by name, or is damaged or cut off; or this torch is too old for such files.
    """
    import torch

    if tuple(map(int, torch.__version__.split(".")[:2])) < _LEAST_TORCH:
        raise DataError(
            f"{path} is a pickle, which torch {torch.__version__} can't be trusted with (CVE-2026-24747)",
            "Take safetensors of the same model, or import it where torch is 2.10 or later.",
        )
    _refuse_damaged(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise DataError(
            f"{path} can't be read: {error.strerror or error}", "Look at the file and its permissions, then run again."
        ) from None
    except Exception as error:  # bytes that nobody vouches for fail in whatever way
        foreign = _FOREIGN.search(str(error))
        if foreign:
            what = f"more than weights: it would run {foreign[1]}; nothing of it was run"
        elif isinstance(error, MemoryError) or "allocate" in str(error):
            what = "tensors larger than there is memory, or is damaged"
        else:
            what = f"no weights that torch can read, or is damaged ({type(error).__name__})"
        raise DataError(f"{path} holds {what}", _TODO if foreign else _AGAIN) from None
    if not isinstance(found, dict):
        raise DataError(f"{path} holds a {type(found).__name__}, not tensors by name", _TODO)
    for name, tensor in found.items():
        plain = isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not isinstance(name, str) or not plain:
            raise DataError(f"{path}: {str(name)[:100]} is no plain tensor", _TODO)
    return dict(found)


def _refuse_damaged(path: Path) -> None:
    """torch's reader asks for no checksum, and unpacks what it never writes packed."""
    try:
        with path.open("rb") as file:
            if file.read(len(_ZIP)) != _ZIP:  # torch's older form, or no weights at all
                return
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            packed = [each.filename for each in members if each.compress_type != zipfile.ZIP_STORED]
            damaged = None if packed else archive.testzip()
    except OSError as error:
        raise DataError(
            f"{path} can't be read: {error.strerror or error}", "Look at the file and its permissions, then run again."
        ) from None
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path} is damaged or cut off: {error}", _AGAIN) from None
    if packed:
        raise DataError(f"{path}: {packed[0]} is compressed, as torch never writes it", _TODO)
    if damaged:
        raise DataError(f"{path} is damaged: the checksum of {damaged} is wrong", _AGAIN)
