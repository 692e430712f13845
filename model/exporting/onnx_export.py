"""A released or fine-tuned model as an ONNX file, by torch's exporter: for programs that have neither torch nor transformers."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from model.artifact import read_json
from pipeline.errors import DataError

FILE = "model.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""int64 [batch, sequence] each, named as transformers' tokenizers name them"""
OUTPUTS = {
    "BertForPreTraining": ("last_hidden_state",),
    "BertModel": ("last_hidden_state",),
    "BertForSequenceClassification": ("logits",),
    "BertForTokenClassification": ("logits",),
    "BertForQuestionAnswering": ("start_logits", "end_logits"),
}
"""Class in config.json → outputs, named as optimum names them. Of a pretrained model the encoder alone is exported."""
OPSET = 18
"""what torch's exporter is written for"""
NEEDED = ("onnx", "onnxscript")
MOST_OFF = 1e-4
"""Absolute difference from torch's outputs that a runtime may have, in fp32: kernels add in another order."""
INSTALL = "Install them: pip install -c requirements.lock -e '.[onnx]'"


@dataclass(frozen=True)
class Exported:
    """An ONNX file that was written."""

    outputs: tuple[str, ...]
    most_off: float | None
    """largest absolute difference of its outputs, as onnxruntime computes them, from torch's; None: onnxruntime is not installed"""


def check_installed() -> None:
    """DataError where what torch's exporter needs is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise DataError(f"--onnx needs packages that are not installed: {', '.join(missing)}", INSTALL)


def check_class(described: dict[str, Any]) -> None:
    """DataError for the config.json of a model whose ONNX form would have to be made up here."""
    (name,) = described.get("architectures") or [""]
    if name not in OUTPUTS:
        raise DataError(
            f"there is no ONNX form for {name or 'a model without a class'}", f"There is one for {', '.join(OUTPUTS)}."
        )


def write_onnx(folder: Path) -> Exported:
    """Write model.onnx beside the config.json and model.safetensors of a folder that transformers loads.

    Batch and sequence are dynamic, the sequence up to the model's positions. Where onnxruntime is installed, the file is run on
    rows of several lengths, and its outputs are held against torch's.

    Raises:
        DataError: a model of another class, the exporter's packages are missing, or the file gives other numbers than torch.
    """
    import torch

    check_installed()
    check_class(read_json(folder / "config.json"))
    model, outputs = _model(folder)
    example = tuple(map(torch.from_numpy, rows(model.positions, model.vocabulary_size, 2, min(8, model.positions))))
    batch, sequence = torch.export.Dim("batch"), torch.export.Dim("sequence", max=model.positions)
    shapes = {name: {0: batch, 1: sequence} for name in INPUTS}
    with _quiet():
        torch.onnx.export(
            model,
            example,
            folder / FILE,
            input_names=list(INPUTS),
            output_names=list(outputs),
            dynamic_shapes=shapes,
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    _strip(folder / FILE)
    return Exported(outputs, _compared(folder / FILE, model, outputs) if find_spec("onnxruntime") else None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Within the block the exporter's own warnings are not shown: nobody here can change what they are about."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _strip(file: Path) -> None:
    """Take out what the exporter notes of every node: where in which file of this machine it was computed."""
    import onnx

    model = onnx.load(file)
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")
    onnx.save(model, file)


def rows(positions: int, vocabulary_size: int, batch: int, length: int) -> tuple[np.ndarray, ...]:
    """int64 [batch, length] for each of INPUTS: words drawn, rows of falling length padded with 0, a second text in the second half."""
    drawn = np.random.default_rng(positions + batch + length)
    lengths = np.maximum(1, length - np.arange(batch))
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    ids = drawn.integers(0, vocabulary_size, (batch, length)) * mask
    types = (np.arange(length) >= length // 2) * mask
    return ids, mask, types.astype(np.int64)


def _model(folder: Path) -> tuple[Any, tuple[str, ...]]:
    """The torch module to export, and the names of its outputs."""
    from model.exporting.onnx_module import load

    (name,) = read_json(folder / "config.json")["architectures"]
    return load(folder, name), OUTPUTS[name]


def _compared(file: Path, model: Any, outputs: tuple[str, ...]) -> float:
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    most = 0.0
    for batch, length in ((1, 1), (1, model.positions), (5, min(13, model.positions))):
        fed = rows(model.positions, model.vocabulary_size, batch, length)
        with torch.inference_mode():
            wanted = model(*map(torch.from_numpy, fed))
        got = session.run(list(outputs), dict(zip(INPUTS, fed, strict=True)))
        there = fed[1].astype(bool)
        for mine, theirs in zip(wanted if isinstance(wanted, tuple) else (wanted,), got, strict=True):
            difference = np.abs(mine.numpy() - theirs)
            if difference.ndim > 1 and difference.shape[:2] == there.shape:
                difference = difference[there]  # what stands at padding is nobody's
            most = max(most, float(difference.max()))
    if not most <= MOST_OFF:
        raise DataError(
            f"{FILE} gives other numbers than torch: {most:.2g} off, {MOST_OFF:g} may be",
            "Please report it; leave --onnx out.",
        )
    return most


def onnx_told(done: Exported) -> str:
    """What a person should know of a file that was written."""
    checked = (
        f"onnxruntime gives torch's numbers to {done.most_off:.1g}"
        if done.most_off is not None
        else "not run, since onnxruntime is not installed"
    )
    return f"{FILE}: {', '.join(INPUTS)} → {', '.join(done.outputs)}; {checked}"
