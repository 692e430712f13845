"""Pickled weights: tensors are read, programs are never run, damage is told."""

import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from model.foreign.pickled import load_pickled
from pipeline.errors import DataError


class Program:
    """What writes a file when it is unpickled by a reader that trusts it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.path}'",)


def weights() -> dict[str, torch.Tensor]:
    return {"a": torch.arange(30_000).float(), "b": torch.nn.Parameter(torch.ones(2, 3, dtype=torch.bfloat16))}


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_by_name_are_read_in_both_of_torchs_forms(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save(weights(), path, _use_new_zipfile_serialization=zipped)
    found = load_pickled(path)
    assert list(found) == ["a", "b"] and all(torch.equal(found[name], each) for name, each in weights().items())


@pytest.mark.parametrize("form", ["zip", "older", "bare"])
def test_a_program_is_refused_by_name_and_never_run(tmp_path: Path, form: str) -> None:
    path, trace = tmp_path / "pytorch_model.bin", tmp_path / "it ran"
    if form == "bare":  # the oldest protocol, by hand
        path.write_bytes(b"cposix\nsystem\n(S'touch \"%s\"'\ntR." % bytes(trace))
    else:
        torch.save({"program": Program(trace), **weights()}, path, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(DataError) as error:
        load_pickled(path)
    assert "holds more than weights: it would run posix.system; nothing of it was run" in error.value.what
    assert str(path) in error.value.what and "safetensors" in error.value.todo
    assert not trace.exists()
    if form != "bare":  # the trap works: a trusting reader falls into it
        torch.load(path, weights_only=False)
        assert trace.exists()


@pytest.mark.parametrize("version", ["2.9.1", "2.9.1+cpu", "1.13.0"])
def test_a_torch_that_a_pickle_can_harm_reads_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    torch.save(weights(), tmp_path / "pytorch_model.bin")
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(DataError, match=r"can't be trusted with \(CVE-2026-24747\)") as refused:
        load_pickled(tmp_path / "pytorch_model.bin")
    assert "safetensors" in refused.value.todo


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def repacked(data: bytes, method: int, change: Callable[[bytes], bytes] = lambda content: content) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", method) as new:
        for each in old.infolist():
            content = old.read(each)
            new.writestr(each.filename, change(content) if each.filename.endswith("data.pkl") else content)
    return out.getvalue()


def packed(data: bytes) -> bytes:
    return repacked(data, zipfile.ZIP_DEFLATED)


def huge(data: bytes) -> bytes:
    """With 10¹³ where the first tensor has its 30,000 numbers, as its storage and in its shape."""
    small, large = b"M" + struct.pack("<H", 30_000), b"\x8a\x08" + struct.pack("<q", 10**13)
    assert data.count(small) >= 2
    return data.replace(small, large)


def huge_zip(data: bytes) -> bytes:
    return repacked(data, zipfile.ZIP_STORED, huge)


@pytest.mark.parametrize(
    ("zipped", "change", "said"),
    [
        (True, cut, "is damaged or cut off"),
        (False, cut, "holds no weights that torch can read, or is damaged"),
        (True, flipped, "is damaged: the checksum of .* is wrong"),
        (True, packed, "is compressed, as torch never writes it"),
        (True, huge_zip, "or is damaged"),
        (False, huge, "or is damaged"),
        (True, lambda data: b"", "or is damaged"),
        (True, lambda data: b"hello world", "or is damaged"),
    ],
)
def test_what_is_damaged_is_refused(tmp_path: Path, zipped: bool, change: Callable[[bytes], bytes], said: str) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save(weights(), path, _use_new_zipfile_serialization=zipped)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=said) as error:
        load_pickled(path)
    assert str(path) in error.value.what
    assert "again" in error.value.todo or "is compressed" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (torch.ones(2), "holds a Tensor, not tensors by name"),
        ({"a": 3}, "a is no plain tensor"),
        ({3: torch.ones(2)}, "3 is no plain tensor"),
        ({"a": torch.ones(2).to_sparse()}, "a is no plain tensor"),
        ({"a": torch.ones(2, device="meta")}, "a is no plain tensor"),
        ({"model": {"a": torch.ones(2)}}, "model is no plain tensor"),
    ],
)
def test_what_is_no_plain_tensor_is_refused(tmp_path: Path, content: Any, said: str) -> None:
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match=said):
        load_pickled(tmp_path / "pytorch_model.bin")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pytorch_model.bin can't be read: No such file"):
        load_pickled(tmp_path / "pytorch_model.bin")
