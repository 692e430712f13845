"""ONNX files of our models: their numbers as onnxruntime computes them, against transformers'."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from model.exporting import onnx_export
from model.exporting.onnx_export import INPUTS, MOST_OFF, check_installed, rows, write_onnx
from pipeline.errors import DataError

POSITIONS, WORDS = 24, 90


def saved(name: str, folder: Path, **more: Any) -> Any:
    """A model of transformers with drawn weights, saved; its own numbers are large enough to tell differences."""
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=POSITIONS,
        initializer_range=0.3,
        **more,
    )
    model = getattr(transformers, name)(config).eval()
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def runtime() -> Any:
    pytest.importorskip("onnxscript", reason="needs onnxscript (requirements-dev.lock)")
    return pytest.importorskip("onnxruntime", reason="needs onnxruntime (requirements-dev.lock)")


@pytest.mark.parametrize(
    ("name", "outputs", "more"),
    [
        ("BertForPreTraining", ("last_hidden_state",), {}),
        ("BertModel", ("last_hidden_state",), {"hidden_act": "gelu_new"}),
        ("BertForSequenceClassification", ("logits",), {"num_labels": 3}),
        ("BertForTokenClassification", ("logits",), {"num_labels": 5}),
        ("BertForQuestionAnswering", ("start_logits", "end_logits"), {}),
    ],
)
def test_a_runtime_computes_what_transformers_computes(
    runtime: Any, name: str, outputs: tuple[str, ...], more: dict[str, Any], tmp_path: Path
) -> None:
    model = saved(name, tmp_path, **more)
    done = write_onnx(tmp_path)
    assert done.outputs == outputs and done.most_off is not None and done.most_off < MOST_OFF
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert tuple(each.name for each in session.get_inputs()) == INPUTS
    assert all(each.type == "tensor(int64)" and len(each.shape) == 2 for each in session.get_inputs())
    assert tuple(each.name for each in session.get_outputs()) == outputs
    for batch, length in ((1, 1), (1, POSITIONS), (7, 3), (3, 17)):
        fed = dict(zip(INPUTS, rows(POSITIONS, WORDS, batch, length), strict=True))
        there = fed["attention_mask"].astype(bool)
        tensors = {key: torch.from_numpy(value) for key, value in fed.items()}
        with torch.inference_mode():
            wanted = model.bert(**tensors) if name == "BertForPreTraining" else model(**tensors)
        for output, got in zip(outputs, session.run(list(outputs), fed), strict=True):
            mine = wanted[output].numpy()
            assert got.shape == mine.shape and np.abs(mine).max() > 0.01
            close = np.abs(got - mine)
            assert (close if name == "BertForSequenceClassification" else close[there]).max() < 1e-5


def test_the_file_says_nothing_of_this_machine_and_is_the_same_each_time(runtime: Any, tmp_path: Path) -> None:
    made = []
    for part in ("one", "two"):
        saved("BertForTokenClassification", tmp_path / part, num_labels=2)
        write_onnx(tmp_path / part)
        made.append((tmp_path / part / "model.onnx").read_bytes())
    assert made[0] == made[1]
    assert str(Path(onnx_export.__file__).parents[2]).encode() not in made[0] and b".py" not in made[0]


def test_left_to_right_attention_sees_nothing_behind(runtime: Any) -> None:
    """Our own model, which transformers' BERT has not: what stands behind a token changes nothing at it."""
    from model.bert import Bert
    from model.exporting.onnx_module import Encoder
    from pipeline.config import Architecture

    torch.manual_seed(1)
    bert = Bert(Architecture(layers=2, hidden=16, heads=2, max_positions=8, dropout=0, attention="causal"), 20).eval()
    ids, mask, types = (torch.from_numpy(part) for part in rows(8, 20, 2, 8))
    with torch.inference_mode():
        whole = Encoder(bert)(ids, torch.ones_like(mask), types)
        reference = bert(ids, types, torch.ones_like(mask, dtype=torch.bool))
        cut = Encoder(bert)(ids[:, :5], torch.ones_like(mask)[:, :5], types[:, :5])
    assert torch.allclose(whole, reference, atol=1e-6) and torch.allclose(whole[:, :5], cut, atol=1e-6)


def test_a_model_of_another_class_is_refused(runtime: Any, tmp_path: Path) -> None:
    saved("BertForMultipleChoice", tmp_path)
    with pytest.raises(DataError, match="no ONNX form for BertForMultipleChoice"):
        write_onnx(tmp_path)
    assert not (tmp_path / "model.onnx").exists()


def test_what_is_not_installed_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)  # as where it is not installed
    with pytest.raises(DataError, match="not installed: .*onnxscript") as caught:
        check_installed()
    assert "'.[onnx]'" in caught.value.todo
