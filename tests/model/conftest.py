"""Fixtures of several files of this folder."""

from pathlib import Path

import pytest
import torch

from tests.model.trainings import SETTINGS


@pytest.fixture
def one_thread_of_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For this process, and in the settings of those that it starts."""
    torch.set_num_threads(1)
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    monkeypatch.setenv("BERT_SETTINGS", str(tmp_path / "settings.yaml"))
