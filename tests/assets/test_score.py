"""`bert score` as a user runs it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from model.scoring.command import TASKS
from tests.assets.bertcli import World
from tests.conftest import ROOT

GOLD = '{"data": [{"paragraphs": [{"qas": [{"id": "q1", "answers": [{"text": "red dog"}]}, {"id": "q2", "answers": []}]}]}]}'


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "gold.json").write_text(GOLD)
    (tmp_path / "pred.json").write_text('{"q1": "the red dog!"}')
    return World(tmp_path)


def files(world: World) -> tuple[str, ...]:
    return "--gold", str(world.folder / "gold.json"), "--predictions", str(world.folder / "pred.json")


def test_scores_for_a_person(world: World) -> None:
    output = world.bert("score", "squad2.0", *files(world))
    rows = dict(re.findall(r"^(f1|exact_match(?:, \w+ \w+)?) +([\d.]+) ", output, re.M))
    assert rows == {
        "f1": "50.0000",
        "exact_match": "50.0000",
        "exact_match, has answer": "100.0000",
        "exact_match, no answer": "0.0000",
    }
    assert "squad2.0: 2 questions of gold.json" in output
    assert "1,000 resamples of 2 questions" in output
    assert "note: 1 question has no prediction and scores 0: 'q2'" in output


def test_scores_for_a_program(world: World) -> None:
    found = world.json("score", "squad2_0", *files(world))
    assert found["task"] == "squad2.0"
    assert found["scores"][0] == {"metric": "f1", "part": "", "count": 2, "points": 50.0, "low": 0.0, "high": 100.0}
    assert found["missing"] == ["q2"]


def test_thresholds(world: World) -> None:
    (world.folder / "pred.json").write_text('{"q1": "red dog", "q2": "blue"}')
    (world.folder / "na.json").write_text('{"q1": 0.25, "q2": 0.75}')
    output = world.bert("score", "squad2.0", *files(world), "--na-probabilities", str(world.folder / "na.json"))
    assert "f1, best threshold" in output and "threshold of the best f1: 0.25" in output


def test_what_is_wrong_is_told_without_a_traceback(world: World) -> None:
    (world.folder / "pred.json").write_text('{"q1": "red dog",\n "q2"}')
    output = world.bert("score", "squad2.0", *files(world), code=1)
    assert output.startswith("error: ") and "pred.json, line 2, column 6: no JSON" in output
    assert "Traceback" not in output
    assert "column 6" in world.json("score", "squad2.0", *files(world), code=1)["error"]


def test_help_names_every_task(world: World) -> None:
    assert set(TASKS) <= set(re.findall(r"[\w.]+[\w]", world.bert("score", "--help")))


def test_docs_name_every_task() -> None:
    text = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")
    assert set(TASKS) <= set(re.findall(r"`([\w.]+)`", text))


def test_scoring_needs_no_torch() -> None:
    code = "import sys, model.scoring.command; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"
