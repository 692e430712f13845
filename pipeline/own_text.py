"""Own corpora: text files (one document each) or tables (one document a row) become the text of one source."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config import OwnTextConfig
from pipeline.stage import Stage

STAGE = Stage(
    name="own_text",
    function="pipeline.own_text:extract_text",
    version="1",
    sources=("pipeline/own_text.py", "pipeline/tables.py", "pipeline/schemas.py"),
)


def extract_text(inputs: Mapping[str, Path], config: OwnTextConfig, out: Path) -> dict[str, Any]:
    """Write the documents of the folder `inputs["files"]`."""
    raise NotImplementedError
