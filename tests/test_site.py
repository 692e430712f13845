"""The site of docs/ builds without a warning (links, anchors, pages outside of the nav) and asks nothing of another host."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="needs mkdocs-material (requirements-dev.lock)")
    pytest.importorskip("material", reason="needs mkdocs-material (requirements-dev.lock)")
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    made = {path.relative_to(site) for path in site.rglob("*.html")}
    assert len(pages) > 20
    assert {page.with_name("index.html") if page.stem == "README" else page for page in pages} <= made


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    """Scripts, styles, fonts and pictures; a link that a person clicks may lead anywhere."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]+)"', text)
        fetched += re.findall(r'<link\b(?![^>]*rel="canonical")[^>]*\bhref="([^"]+)"', text)
        assert fetched and not [url for url in fetched if re.match(r"(?:https?:)?//", url)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_a_file_that_a_page_links_to_is_shown(site: Path) -> None:
    german = site / "source" / "recipes" / "examples" / "german.yaml.html"
    assert "articles.jsonl" in german.read_text(encoding="utf-8")
    assert 'href="source/recipes/examples/german.yaml.html"' in (site / "own-text.html").read_text(encoding="utf-8")


def test_a_broken_link_ends_the_build(site: Path, tmp_path: Path) -> None:
    """The hook leaves what leads nowhere to mkdocs, which names it."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "there.txt").write_text("words", encoding="utf-8")
    (docs / "index.md").write_text(
        "# A\n\n[there](../there.txt) [gone](../gone.txt) [no](#no-such)\n", encoding="utf-8"
    )
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:\n  -")[0]
    config = config.replace("docs/tools/", f"{ROOT}/docs/tools/")
    (tmp_path / "mkdocs.yml").write_text(config + "nav: [index.md]\n", encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 1
    assert "../gone.txt" in done.stderr and "no-such" in done.stderr and "there.txt" not in done.stderr
