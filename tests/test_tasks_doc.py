"""docs/tasks.md is true: its recipes load, its links lead somewhere, and it names every task and every column."""

import re
from pathlib import Path

import pytest

from model.known_tasks import KNOWN
from model.task_kinds import SCHEMAS
from pipeline.config import FinetuningOverride
from pipeline.recipe import load_recipes
from tests.conftest import ROOT

DOC = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", DOC, re.S)
REST = """
corpus: {sources: {a: {kind: jsonl, from: {path: a}}}}
pretraining: {warmup_steps: 1, phases: [{sequence_length: 64, steps: 9}]}
"""
"""What else a recipe needs."""


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_piece_of_yaml_is_part_of_a_recipe(number: int, tmp_path: Path) -> None:
    name = f"piece{number}"
    rest, block = REST, BLOCKS[number]
    if block.startswith("checkpoint:"):
        rest, block = "", block.replace("../models/minilm", "ab" * 32)
    (tmp_path / f"{name}.yaml").write_text(f"name: {name}\n{block}{rest}", encoding="utf-8")
    loaded = load_recipes(tmp_path)
    assert loaded.errors == {} and list(loaded.recipes) == [name]


def test_it_names_every_known_task_with_its_kind_and_files_and_every_column() -> None:
    for task in KNOWN.values():
        (line,) = re.findall(rf"^\| `{task.name}` \|.*$", DOC, re.M)
        assert f"| {task.kind} |" in line
        assert "the same" in line or all(f"`{file}`" in line for file in task.files.values())
    for kind, schema in SCHEMAS.items():
        (line,) = re.findall(rf"^\| (?:\w+, )*{kind}(?:, \w+)* \| `(?!train).*$", DOC, re.M)
        assert all(f"`{column}`" in line for column in schema.names[1:])


def test_it_names_every_key_that_a_task_may_override() -> None:
    (keys,) = re.findall(r"- `overrides.TASK` may.*?\. A ", DOC, re.S)
    assert set(re.findall(r"`(\w+)`", keys)) == set(FinetuningOverride.model_fields)


@pytest.mark.parametrize("path", re.findall(r"\]\(([^)#:]+)\)", DOC))
def test_every_link_leads_somewhere(path: str) -> None:
    assert (ROOT / "docs" / path).exists()
