"""What all tests share: the way to the optional data folder, and an environment without telemetry."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

ROOT = Path(__file__).resolve().parent.parent


def shared(path: str) -> Path:
    """A file of the shared data folder beside the checkout; skips the test where it is absent."""
    found = Path(os.environ.get("BERT_SHARED", ROOT.parent / "shared")) / path
    if not found.exists():
        pytest.skip(f"needs {path} of the shared folder (set BERT_SHARED), which is not on this machine")
    return found
