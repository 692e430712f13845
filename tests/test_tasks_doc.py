"""docs/tasks.md names every task, every column and every key that a task may override."""

import re

from model.task_files.known_tasks import KNOWN
from model.task_files.task_kinds import SCHEMAS
from pipeline.config import FinetuningOverride
from tests.conftest import ROOT

DOC = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")


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
