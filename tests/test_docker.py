"""The images: what can be seen without Docker (sources, pins, targets), and the demo in a container where there is Docker."""

import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from assets.cli import ui
from tests.conftest import ROOT

FILES = [ROOT / "Dockerfile", *sorted((ROOT / "docker").glob("*.Dockerfile"))]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
IGNORED = [
    line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")
]
OURS = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def ignored(path: str) -> bool:
    """Whether a path below the root stays out of the image."""
    parts = path.split("/")
    above = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    return any(
        fnmatch(each, pattern) or (pattern.startswith("**/") and fnmatch(Path(each).name, pattern[3:]))
        for pattern in IGNORED
        for each in above
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_copied_is_there(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    sources = [line.split()[1:-1] for line in re.findall(r"^COPY (?!--from).*", text, re.M)]
    assert sources
    for source in (each for line in sources for each in line):
        assert (ROOT / source).exists() and not ignored(source), source


def test_all_files_of_git_go_in_and_what_git_ignores_stays_out() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True)
    if done.returncode:
        pytest.skip("needs a git checkout")
    assert [path for path in done.stdout.splitlines() if ignored(path)] == []
    unwanted = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    for pattern in (each for each in unwanted if each != "dist"):
        assert ignored(pattern.replace("*", "x")) or ignored(f"pipeline/{pattern.replace('*', 'x')}"), pattern


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_pins_are_those_of_the_lock_and_of_our_python(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for pin in re.findall(r"\b[\w-]+==[\d.]+", text):
        assert f"{pin}\n" in LOCK, pin
    assert set(re.findall(r"python:?(3\.\d+)", text)) == {"3.11"}


def test_what_runs_in_it_exists() -> None:
    (command,) = re.findall(r'^CMD \["make", "(\w+)"\]$', OURS, re.M)
    assert re.search(rf"^{command}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    port, host, *_ = ui.__defaults__ or ()
    assert f"\nEXPOSE {port}\n" in OURS and f"-p 127.0.0.1:{port}:{port}" in OURS
    assert host == "127.0.0.1" and "bert ui --host 0.0.0.0" in OURS, (
        "inside of a container its own 127.0.0.1 is no way in"
    )


def test_it_does_not_run_as_root_and_owns_its_home() -> None:
    (user,) = re.findall(r"^USER (\w+)$", OURS, re.M)
    (home,) = re.findall(r"\bBERT_HOME=(\S+)", OURS)
    assert f"chown {user} {home}\n" in OURS and f"\nVOLUME {home}\n" in OURS
    assert OURS.index("\nUSER ") > OURS.rindex("\nRUN ")


@pytest.mark.demo
def test_the_image_builds_and_runs_the_demo(tmp_path: Path) -> None:
    """Needs a package registry, some gigabytes and half an hour."""
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("needs Docker with a daemon that runs")
    subprocess.run(["docker", "build", "-t", "bertworks-test", "."], cwd=ROOT, check=True)
    volume = f"bertworks-test-{tmp_path.name}"
    try:
        run = ["docker", "run", "--rm", "-v", f"{volume}:/bert", "bertworks-test"]
        done = subprocess.run(run, text=True, capture_output=True, check=True)
        assert "demo is up to date" in done.stdout and "make ui" in done.stdout
        user = subprocess.run([*run, "id", "-un"], text=True, capture_output=True, check=True)
        assert user.stdout.strip() == "bert"
    finally:
        subprocess.run(["docker", "volume", "rm", volume], capture_output=True)
