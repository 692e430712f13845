"""Fine-tuning in tests: its stage and its process on tiny networks, undisturbed, killed and stopped."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model import checkpoint, finetuning
from model.bert import BertForPretraining, initialize
from model.devices.cpu import Cpu
from model.layers.attention import Rows
from model.layers.classifier import Classifier
from model.processes.child import Stop
from model.tuning.examples import Examples, Ints
from model.tuning.tuning_batches import Batch, Padded, Read, batch_of
from pipeline.config import Architecture, FinetuneConfig
from pipeline.stage import ROOT

SETTINGS = "training: {device: cpu, threads: 1}\n"


def pretrained(folder: Path, size: int, architecture: Architecture) -> Path:
    """A network that is trained on nothing, for a vocabulary of this size."""
    folder.mkdir()
    network = BertForPretraining(architecture, size, "nsp")
    initialize(network, 7)
    checkpoint.save_tensors(network.state_dict(), folder / "model.safetensors")
    described = {"architecture": architecture.plain(), "vocabulary_size": size, "sentence_task": "nsp"}
    (folder / "config.json").write_text(json.dumps(described))
    return folder


def run_stage(made: dict[str, Path], folder: Path, config: FinetuneConfig) -> tuple[dict[str, Any], Path]:
    """Statistics and the folder that the stage leaves."""
    run, out = folder / "run", folder / "out"
    run.mkdir(parents=True, exist_ok=True)
    out.mkdir()
    return finetuning.finetune({**made, "run": run}, config, out), out


def run_undisturbed(made: dict[str, Path], folder: Path, config: FinetuneConfig) -> tuple[dict[str, Any], Path]:
    """`run_stage` with settings of its own: for fixtures of a module, which know no settings of a test."""
    (folder / "settings.yaml").write_text(SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_SETTINGS", str(folder / "settings.yaml"))
        return run_stage(made, folder, config)


def run_folder(made: dict[str, Path], folder: Path, config: FinetuneConfig, **training: Any) -> Path:
    """A run folder as the stage makes it, for the process without the stage."""
    run = folder / "run"
    run.mkdir()
    inputs = {name: str(folder) for name, folder in made.items()}
    plain = {"config": config.plain(), "training": {"device": "cpu", "threads": 1, **training}, **inputs}
    (run / "config.json").write_text(json.dumps(plain))
    return run


def kill_at_its_first_checkpoint(run: Path) -> None:
    """Start the process of a run folder and send SIGKILL when there is a checkpoint."""
    process = subprocess.Popen([sys.executable, "-m", "model.finetune", str(run)], cwd=ROOT, stderr=subprocess.PIPE)
    while process.poll() is None and not list(run.glob("current/*/step-*")):
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


class SideBySide(Cpu):
    """A CPU that gets padding, as other devices do."""

    unpadded = False


def batch(examples: Examples, numbers: Ints, whole: bool = False, padded: bool = False) -> Batch:
    """A batch on the CPU."""
    return batch_of(examples, numbers, whole, SideBySide() if padded else Cpu(), pad_id=0)


def given(inputs: Mapping[str, Tensor], tokens: Tensor, compared: Tensor | None = None) -> Padded:
    """A batch out of what transformers' tokenizer gives; of every row, as many `tokens` are read."""
    ids = inputs["input_ids"]
    each = len(tokens) // len(ids)
    starts = torch.arange(len(ids) + 1, dtype=torch.int32) * each
    read = Read(tokens, Rows(starts, each), torch.arange(len(ids)).repeat_interleave(each), compared)
    return Padded(ids, inputs["token_type_ids"], inputs["attention_mask"].bool(), read)


def logits(model: Classifier, examples: Examples, numbers: Ints) -> Tensor:
    """What a model says; the same, within rounding, with padding."""
    model.eval()
    with torch.no_grad():
        found, padded = (model(batch(examples, numbers, model.whole, padded)) for padded in (False, True))
    torch.testing.assert_close(found, padded, atol=1e-5, rtol=1e-4)
    return found


class StopAfter(Stop):
    """Asks to stop once it was looked at so many times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    @property
    def asked(self) -> bool:  # type: ignore[override]
        self.left -= 1
        return self.left < 0


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of every file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
