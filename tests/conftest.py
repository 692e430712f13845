"""What all tests share: the way to the optional data folder, and an environment without telemetry."""

import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator
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


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that one of the processes of this test run makes, while those that want it too wait."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # each process has its own in there
    folder, done = base / name, base / f"{name}.done"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # half of it, by one that failed
            make(folder)
            done.touch()
    return folder


@pytest.fixture(autouse=True)
def nothing_stays_of_a_test() -> Iterator[None]:
    """Where the home is, which `dagster_home.prepare` tells the environment for processes to come, and whether SIGTERM ends this
    process, are after a test what they were before."""
    named = {name: os.environ.get(name) for name in ("BERT_HOME", "BERT_SETTINGS", "DAGSTER_HOME")}
    handler = signal.getsignal(signal.SIGTERM)
    yield
    for name, value in named.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if handler is not None and signal.getsignal(signal.SIGTERM) is not handler:
        signal.signal(signal.SIGTERM, handler)


@pytest.fixture(scope="session")
def object_store() -> Iterator[Callable[[], str]]:
    """A function that makes a bucket in an S3-speaking server on this machine and gives the URL of a folder in it."""
    pytest.importorskip("moto", reason="needs moto's server (requirements-dev.lock)")
    pytest.importorskip("s3fs", reason="needs s3fs (requirements-dev.lock)")
    from tests import objectstore

    with objectstore.server() as url, objectstore.environment(url):
        yield objectstore.new_bucket
