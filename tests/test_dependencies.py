"""Versions that were found unsafe are out of reach, and `make audit-deps` says what it knows and what it could not ask."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.conftest import ROOT

LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-xla.lock")
LEAST: dict[str, tuple[str, str]] = {
    "torch": ("2.10.0", "CVE-2026-24747, CVE-2025-32434: weights_only is got round"),
    "transformers": ("5.3.0", "CVE-2026-4372, CVE-2026-1839: a config.json or an rng_state.pth runs code"),
    "pyarrow": ("23.0.1", "CVE-2026-25087: use after free; CVE-2023-47248: an extension type is unpickled"),
    "lxml": ("6.1.0", "CVE-2026-41066: external entities by iterparse"),
    "dagster": ("1.13.2", "CVE-2026-41490: SQL injection by a partition's key; GHSA-h7x8-jv97-fvvm: files are read"),
    "dagster-webserver": ("1.13.2", "CVE-2023-51232: files are read through /logs"),
    "dagster-graphql": ("1.13.2", "as dagster"),
    "apache-beam": ("2.52.0", "mitigates CVE-2023-47248"),
}
"""package → (least version, the advisory that asks for it)"""
XLA_TORCH = "2.9.1"
"""torch-xla works beside no later one; model/foreign/pickled.py refuses pickled weights there, which the advisory is about."""
BANNED = ("js2py", "nltk", "lightning", "pytorch-lightning")
"""CVE-2024-28397; downloads that are programs; load_from_checkpoint that runs what it names"""


def locked(lock: str) -> dict[str, str]:
    """package → version of a lock file."""
    lines = (line.split("#")[0].split(";")[0].strip() for line in (ROOT / lock).read_text().splitlines())
    pins = [line.split("==") for line in lines if "==" in line]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_holds_a_version_that_was_found_unsafe(lock: str) -> None:
    pins = locked(lock)
    assert len(pins) > 20
    for name, (least, advisory) in LEAST.items():
        if name in pins and not (name == "torch" and lock == "requirements-xla.lock"):
            assert Version(pins[name]) >= Version(least), f"{lock}: {name} {pins[name]} < {least}: {advisory}"
    if lock == "requirements-xla.lock":
        assert Version(pins["torch"]).public == XLA_TORCH, (
            "a later one: take the exception out here and in .ci/audit_deps.py"
        )
    assert not set(BANNED) & set(pins)


def test_the_project_allows_no_version_that_was_found_unsafe() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    allowed = {each.name: each.specifier for each in map(Requirement, stated)}
    for name in set(LEAST) & set(allowed) - {"torch"}:
        least, advisory = LEAST[name]
        below = [version for version in (f"{least}.dev0", "0.1", _before(least)) if version in allowed[name]]
        assert below == [], f"pyproject.toml allows {name} {below}: {advisory}"
    assert "2.8.0" not in allowed["torch"], "2.9 is torch-xla's; there no pickled weights are read"


def _before(version: str) -> str:
    """The version right before: 23.0.1 → 23.0.0, 1.13.2 → 1.13.1, 6.1.0 → 6.0.999."""
    *head, last = map(int, version.split("."))
    if last:
        return ".".join(map(str, [*head, last - 1]))
    return ".".join(map(str, [*head[:-1], head[-1] - 1, 999]))


def test_what_is_installed_is_no_older() -> None:
    from importlib.metadata import PackageNotFoundError, version

    for name, (least, advisory) in LEAST.items():
        try:
            found = Version(version(name))
        except PackageNotFoundError:
            continue
        assert found >= Version(least), f"{name} {found}: {advisory}"


# ── make audit-deps ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    path = ROOT / ".ci" / "audit_deps.py"
    spec = importlib.util.spec_from_file_location("audit_deps", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FINE: dict[str, Any] = {"name": "safe", "version": "1.0", "vulns": []}
BAD: dict[str, Any] = {
    "name": "lxml",
    "version": "6.0",
    "vulns": [{"id": "PYSEC-2026-1", "aliases": ["CVE-2026-41066"], "fix_versions": ["6.1.0"]}],
}
UNASKED: dict[str, Any] = {"name": "hidden", "skip_reason": "Dependency not found on PyPI"}
ACCEPTED: dict[str, Any] = {
    "name": "torch",
    "version": "2.9.1",
    "vulns": [{"id": "GHSA-x", "aliases": ["CVE-2026-24747"]}],
}


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([FINE], 0, "nothing is known against its 1 packages"),
        ([FINE, BAD], 1, "lxml 6.0: CVE-2026-41066 PYSEC-2026-1, mended in 6.1.0"),
        ([FINE, UNASKED], 2, "PyPI could not be asked about 1 of 2 packages (hidden): no result"),
        ([BAD, UNASKED], 2, "lxml 6.0"),
        ([ACCEPTED], 0, "nothing is known"),
    ],
)
def test_what_is_said_of_the_answers(audit: ModuleType, found: Any, code: int, said: str) -> None:
    found_code, lines = audit.verdict("a.lock", found)
    assert found_code == code
    assert any(line.startswith("a.lock: ") and said in line for line in lines), lines


def test_without_an_answer_nothing_is_claimed(tmp_path: Path) -> None:
    """The real command, with a lock file that pip-audit can't read, and where pip-audit is missing."""
    (tmp_path / "a.lock").write_text("no requirement ==\n")
    done = subprocess.run(
        [sys.executable, ".ci/audit_deps.py", str(tmp_path / "a.lock")], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2 and "pip-audit failed: " in done.stdout and "Traceback" not in done.stdout + done.stderr
