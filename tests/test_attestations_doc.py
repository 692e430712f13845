"""docs/attestations.md names what there is: every build type, every key of `provider`, every file."""

import re

from assets.graph import STAGES
from pipeline.settings import ProviderSettings
from tests.assets.audits.test_attesting import SET
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "attestations.md").read_text(encoding="utf-8")


def first_column(title: str) -> set[str]:
    """What stands in backticks in the first column of the first table of a section."""
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return {
        word
        for line in section.splitlines()
        if line.startswith("| ")
        for word in re.findall(r"`([^`]+)`", line.split("|")[1])
    }


def test_every_stage_is_a_build_type() -> None:
    assert first_column("Provenance") == {stage.name for stage in STAGES} | {"export"}


def test_every_key_of_the_provider_is_told() -> None:
    assert first_column("What only the provider knows") == set(ProviderSettings.model_fields)


def test_every_file_of_the_set_is_told() -> None:
    for name in SET - {"data-summary.json"}:
        assert f"`{name}`" in TEXT
