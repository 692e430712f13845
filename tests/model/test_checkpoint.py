"""Checkpoints: whole or not there, verified, the last ones kept."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from model import checkpoint
from pipeline.errors import DataError, StoreError
from pipeline.stage import ROOT


def save(folder: Path, step: int, keep: int = 2) -> Path:
    weights = {"a": torch.full((3,), float(step)), "b": torch.arange(6).reshape(2, 3)}
    return checkpoint.save(
        folder, step, {"model": weights, "optimizer": {"m": torch.ones(2)}}, {"loss": step / 3}, keep
    )


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    save(tmp_path, 12)
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.step == 12 and found.state == {"loss": 4.0}
    assert torch.equal(found.tensors("model")["a"], torch.full((3,), 12.0))
    assert torch.equal(found.tensors("model")["b"], torch.arange(6).reshape(2, 3))
    assert set(found.tensors("optimizer")) == {"m"}
    with pytest.raises(DataError, match=r"nothing\.safetensors"):
        found.tensors("nothing")


def safetensors(header: bytes, values: bytes = bytes(8)) -> bytes:
    return len(header).to_bytes(8, "little") + header + values


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (safetensors(b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "a": {}}'), "a stands twice"),
        (safetensors(b" " * ((1 << 20) + 1)), "its header has 1,048,577 bytes, more than 1 MiB"),
        ((2**63).to_bytes(8, "little") + b"{}", "more than 1 MiB"),
        (safetensors(b'{"a":' * 50_000), "nests too deep"),
        (safetensors(b"{}}"), "can't be read as safetensors"),
        (safetensors(b"\xff"), "can't be read as safetensors"),
        (b"", "can't be read as safetensors"),
    ],
)
def test_headers_that_are_not_believed(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(DataError, match=said) as refused:
        checkpoint.load_tensors(tmp_path / "a.safetensors", "Copy it again.")
    assert str(tmp_path / "a.safetensors") in refused.value.what and refused.value.todo == "Copy it again."


def test_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) is None
    assert checkpoint.newest(tmp_path / "absent") is None


def test_steps_are_ordered_as_numbers_and_the_last_ones_kept(tmp_path: Path) -> None:
    for step in (9, 10, 99, 100):
        save(tmp_path, step, keep=3)
    assert [int(path.name.removeprefix("step-")) for path in checkpoint.steps(tmp_path)] == [100, 99, 10]


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save(tmp_path, 5)
    checkpoint.save(tmp_path, 5, {"model": {"a": torch.zeros(1)}}, {})
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.tensors("model")["a"].tolist() == [0.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "step-0000000005"]


KILLED = """
import os, sys
from pathlib import Path
import torch
from model import checkpoint
from pipeline.system import atomic
whole, count = getattr(os, sys.argv[2]), 0
def cut(*arguments, **named):
    global count
    count += 1
    if count == int(sys.argv[3]):
        os.kill(os.getpid(), 9)
    return whole(*arguments, **named)
setattr(os, sys.argv[2], cut)
checkpoint.save(Path(sys.argv[1]), 5, {"model": {"a": torch.zeros(1)}}, {})
"""


@pytest.mark.parametrize("rename", [1, 2, 3, 4])
def test_killed_while_a_step_is_saved_again_one_of_the_two_is_there(tmp_path: Path, rename: int) -> None:
    """Before each of the renames: of the manifest, of the old folder away, of the new one, of LATEST."""
    save(tmp_path, 5)
    command = [sys.executable, "-c", KILLED, str(tmp_path), "rename" if rename in (2, 3) else "replace"]
    number = {1: 1, 2: 1, 3: 2, 4: 2}[rename]
    ended = subprocess.run([*command, str(number)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == -9, ended.stderr
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.step == 5
    assert found.tensors("model")["a"].tolist() == ([0.0] if rename == 4 else [5.0, 5.0, 5.0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "step-0000000005"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("flipped bit", "model.safetensors does not match its SHA-256"),
        ("cut", "model.safetensors has another size than its manifest says"),
        ("missing file", "model.safetensors"),
        ("no manifest", "manifest.json can't be read"),
        ("torn manifest", "manifest.json can't be read"),
        ("bad state", "state.json has another size than its manifest says"),
    ],
)
def test_a_broken_checkpoint_is_set_aside_for_the_one_before(
    tmp_path: Path, damage: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    weights, manifest = newest / "model.safetensors", newest / "manifest.json"
    if damage == "flipped bit":
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif damage == "missing file":
        weights.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "torn manifest":
        manifest.write_bytes(manifest.read_bytes()[:20])
    else:
        (newest / "state.json").write_text('{"loss": 0.25}')
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.step == 1 and found.state == {"loss": 1 / 3}
    aside = [path for path in tmp_path.iterdir() if path.name.startswith("broken-step-0000000002")]
    assert len(aside) == 1 and not newest.exists()
    message = capsys.readouterr().err
    assert "step-0000000002 is set aside" in message and reason in message


def test_what_an_interrupted_save_left_is_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1)
    leftover = tmp_path / "tmp.0123"
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"half")
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.step == 1
    assert not leftover.exists()


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process may grow beyond 100 kB: writes fail as on a full disk, with another number."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_save_that_fails_leaves_the_one_before(tmp_path: Path, small_files: None) -> None:
    save(tmp_path, 1)
    with pytest.raises(StoreError, match="File too large"):
        checkpoint.save(tmp_path, 2, {"model": {"a": torch.ones(100_000)}}, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "step-0000000001"]
    assert (tmp_path / "LATEST").read_text() == "step-0000000001\n"
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.step == 1


def test_files_are_safetensors_and_json(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    assert sorted(p.name for p in folder.iterdir()) == [
        "manifest.json",
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    ]
    assert json.loads((folder / "state.json").read_text()) == {"loss": 1 / 3}
    assert set(json.loads((folder / "manifest.json").read_text())) == {
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    }
