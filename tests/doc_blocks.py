"""What stands in README.md and docs/: their fenced blocks, and who runs each of them.

A block with commands is run by tests/assets/test_docs.py, unless a comment before it says otherwise:
`<!-- not run here: WHY -->` what no test can have, `<!-- run by tests/FILE.py::TEST -->` which test runs it instead.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)(`{3,})(\w*)\n(.*?)^\1\2$", re.S | re.M)
MARK = re.compile(r"<!-- (not run here|run by)(?:: | )((?:(?!-->).)+) -->\s*\Z", re.S)
COMMAND = re.compile(
    r"^\s*(?:\$ )?(?:\S*/)?(?:bert|make|python3?|pip|docker|kubectl|helm|gcloud|git|torchrun|dagster|ssh|curl|tensorboard) ",
    re.M,
)
"""A line that a person would type."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str
    mark: str = ""
    """`not run here`, `run by`, or nothing"""
    reason: str = ""
    """what the mark says"""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @cached_property
    def tree(self) -> Any:
        """A block of YAML as values."""
        return YAML(typ="safe", pure=True).load(self.text)


def blocks(path: Path) -> list[Block]:
    """Every fenced block of a page, from top to bottom."""
    text, page = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
    found = []
    for match in FENCE.finditer(text):
        mark = MARK.search(text[: match.start()])
        inside = re.sub(rf"^{match[1]}", "", match[4], flags=re.M)
        said = (mark[1], " ".join(mark[2].split())) if mark else ("", "")
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, match[3], inside, *said))
    return found


def prose(path: Path) -> str:
    """A page without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", FENCE.sub("", path.read_text(encoding="utf-8")), flags=re.S)


BLOCKS = [block for path in PAGES for block in blocks(path)]


def of(*languages: str) -> list[Block]:
    """The blocks of these languages."""
    return [block for block in BLOCKS if block.language in languages]
