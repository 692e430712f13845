"""What differs between two folders, and what of it is within the tolerance of a training."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save_file

from pipeline.storage.sameness import Difference, differences

WEIGHTS = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A trained model, twice."""
    for name in ("a", "b"):
        folder = tmp_path / name
        (folder / "predictions").mkdir(parents=True)
        save_file({"w": WEIGHTS, "v": WEIGHTS * 2}, folder / "model.safetensors")
        (folder / "scores.json").write_text(json.dumps({"best": {"seed": 42, "accuracy": 0.75}}), encoding="utf-8")
        (folder / "metrics.jsonl").write_text(
            '{"step": 5, "loss": 2.5}\n{"step": 10, "loss": 2.25}\n', encoding="utf-8"
        )
        rows = {"label": ["x", "y"] * 100, "probabilities": [[0.75, 0.25]] * 200}
        pl.DataFrame(rows).write_parquet(folder / "predictions" / "dev.parquet")
        (folder / "vocab.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    return tmp_path / "a", tmp_path / "b"


def one(folders: tuple[Path, Path], tolerant: bool = True) -> Difference:
    (found,) = differences(*folders, tolerant)
    return found


def test_equal_folders_do_not_differ(folders: tuple[Path, Path]) -> None:
    assert differences(*folders, tolerant=True) == differences(*folders, tolerant=False) == []
    rows = pl.read_parquet(folders[0] / "predictions" / "dev.parquet")
    rows.write_parquet(folders[1] / "predictions" / "dev.parquet", compression="snappy")
    assert differences(*folders, tolerant=False) == [], "the same rows"


@pytest.mark.parametrize(("by", "within"), [(1e-5, True), (9e-4, True), (0.02, False), (np.nan, False)])
def test_weights(folders: tuple[Path, Path], by: float, within: bool) -> None:
    changed = WEIGHTS.copy()
    changed[1, 2] += np.float32(by)
    save_file({"w": changed, "v": WEIGHTS * 2}, folders[1] / "model.safetensors")
    found = one(folders)
    assert (found.path, found.within) == ("model.safetensors", within)
    if not np.isnan(by):
        assert found.absolute == pytest.approx(by, rel=1e-2) and found.relative == pytest.approx(by / 1.0, rel=1e-2)
        assert "in w" in found.what
    assert not one(folders, tolerant=False).within, "a deterministic stage has no tolerance"


@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        ({"w": WEIGHTS}, "tensor v is only in one of them"),
        ({"w": WEIGHTS.T.copy(), "v": WEIGHTS}, "tensor w: float32[2, 3], made again float32[3, 2]"),
    ],
)
def test_other_tensors(folders: tuple[Path, Path], tensors: dict[str, Any], told: str) -> None:
    save_file(tensors, folders[1] / "model.safetensors")
    found = one(folders)
    assert not found.within and found.what == told


@pytest.mark.parametrize(
    ("value", "within", "told"),
    [
        ({"best": {"seed": 42, "accuracy": 0.755}}, True, "by 0.005 at most, in best.accuracy"),
        ({"best": {"seed": 42, "accuracy": 0.8}}, False, "by 0.05 at most, in best.accuracy"),
        ({"best": {"seed": 43, "accuracy": 0.75}}, False, "best.seed: 42, made again 43"),
        ({"best": {"accuracy": 0.75}}, False, "best.seed is only in one of them"),
    ],
)
def test_scores(folders: tuple[Path, Path], value: Any, within: bool, told: str) -> None:
    (folders[1] / "scores.json").write_text(json.dumps(value), encoding="utf-8")
    found = one(folders)
    assert found.within is within and told in found.what


def test_curves_and_predictions(folders: tuple[Path, Path]) -> None:
    log = folders[1] / "metrics.jsonl"
    log.write_text('{"step": 5, "loss": 2.5}\n{"step": 10, "loss": 2.26}\n', encoding="utf-8")
    assert one(folders).within and "line 2.loss" in one(folders).what
    log.write_text('{"step": 5, "loss": 2.5}\n', encoding="utf-8")
    assert one(folders).what == "2 lines, made again 1"
    log.write_bytes((folders[0] / "metrics.jsonl").read_bytes())

    path = folders[1] / "predictions" / "dev.parquet"
    for flipped, probability, within in ((2, 0.752, True), (3, 0.75, False), (0, 0.85, False)):
        labels = ["z"] * flipped + (["x", "y"] * 100)[flipped:]
        pl.DataFrame({"label": labels, "probabilities": [[probability, 0.25]] * 200}).write_parquet(path)
        assert one(folders).within is within, (flipped, probability)


def test_the_first_difference_is_named(folders: tuple[Path, Path]) -> None:
    (folders[1] / "vocab.txt").write_text("one\ntwo\n3\n", encoding="utf-8")
    assert one(folders).what == "from line 3 on: 'three', made again '3'; 14 bytes, made again 10"
    (folders[1] / "vocab.txt").write_bytes(b"one\n\xff")
    assert one(folders).what == "from byte 4 on; 14 bytes, made again 5"
    (folders[1] / "vocab.txt").unlink()
    (folders[1] / "more.txt").write_text("", encoding="utf-8")
    assert [(each.path, each.what) for each in differences(*folders, tolerant=True)] == [
        ("more.txt", "it is not among what was published"),
        ("vocab.txt", "it was not made again"),
    ]


def test_the_first_row_is_named(folders: tuple[Path, Path]) -> None:
    path = folders[1] / "predictions" / "dev.parquet"
    labels = ["x", "y"] * 100
    labels[7] = "w"
    pl.DataFrame({"label": labels, "probabilities": [[0.75, 0.25]] * 200}).write_parquet(path)
    told = "from row 7 on, column label: 'y', made again 'w'; 200 rows, made again 200"
    assert one(folders, tolerant=False).what == told
    pl.DataFrame({"label": ["x", "y"], "probabilities": [[0.75, 0.25]] * 2}).write_parquet(path)
    assert one(folders, tolerant=False).what == "200 rows, made again 2"
