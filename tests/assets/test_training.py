"""Training in a real Dagster instance: live points, cancel, force terminate, killed processes, two runs of one key."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from model import checkpoint
from model.processes import lines
from tests.assets.bertcli import World, dagster_runs, tree, when

pytestmark = pytest.mark.slow
LONG = "steps: 100000"
"""never finished"""


@pytest.fixture
def world(made: World, tmp_path: Path) -> World:
    """A copy of the made world: with another number of steps, pretrained_32 is all that must run."""
    return made.copy(tmp_path / "world")


def instance(world: World, code: str) -> Any:
    """What a line of Python says of Dagster's instance `i`, while its runs go on."""
    script = f"import dagster as dg, json\nwith dg.DagsterInstance.get() as i: print(json.dumps({code}))"
    environment = {**world.environment, "DAGSTER_HOME": str(world.home / "dagster")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
    return found


def words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline()) if process.status() != "zombie" else []
    return []


def training(world: World) -> list[psutil.Process]:
    """The processes that train in this world."""
    home = str(world.home / "runs")
    found = [(process, words(process)) for process in psutil.process_iter()]
    return [process for process, said in found if "model.pretrain" in said and said[-1].startswith(home)]


def attempt(world: World) -> Path:
    """The folder of the training that is not finished."""
    (folder,) = world.store.unfinished_runs()
    return folder


def step(world: World) -> int:
    """The last step that the training has told of."""
    folders = world.store.unfinished_runs()
    row = lines.newest(folders[0] / "metrics.jsonl", "loss") if folders else None
    return row["step"] if row else 0


def saved_at(folder: Path) -> int:
    found = checkpoint.newest(folder / "checkpoints")
    return 0 if found is None else found.step


def test_an_asset_shows_live_points_and_a_cancel_saves(world: World) -> None:
    world.edit("steps: 30", LONG)
    process = world.start("run", "tiny/pretrained_32")
    family: list[psutil.Process] = []
    points: list[dict[str, float]] = []

    def cancel() -> None:
        family.extend(tree(process.pid))
        seen = "i.fetch_observations(dg.AssetKey(['tiny', 'pretrained_32']), limit=9).records"
        points.extend(
            instance(world, f"[{{n: m.value for n, m in r.asset_observation.metadata.items()}} for r in {seen}]")
        )
        process.send_signal(signal.SIGINT)

    output = when(process, lambda line: line.startswith("pretrained_32:") and "loss" in line, cancel)
    assert process.returncode == 1, output
    assert "steps of 8 × 32 tokens" in output and " of checkpoints" in output  # before it begins
    assert "tried again" not in output and "Interrupted" not in output
    assert points and {"step", "loss", "learning_rate"} <= set(points[0]) and points[0]["step"] > 0
    assert sorted(dagster_runs(world.home).values()) == ["CANCELED", "SUCCESS"]
    tries = "[r.tags.get('dagster/max_retries') for r in i.get_runs()]"
    assert instance(world, tries) == ["0", None], "what a person ended is not started again"
    assert not [each for each in family if words(each)]
    folder = attempt(world)
    assert saved_at(folder) >= points[0]["step"]
    assert "stopped and saved: " in (folder / "stderr.log").read_text()
    assert not list(folder.glob("heartbeat-*")) and not (folder / "launcher").exists()
    (found,) = [check for check in world.json("doctor") if check["name"] == "training runs"]
    assert found["found"].startswith("1 unfinished, ") and str(folder) in found["found"]


def test_a_second_bert_run_shows_the_first_even_where_that_was_killed(world: World) -> None:
    world.edit("steps: 30", LONG)
    first = world.start("run", "tiny/pretrained_32")
    wait_for(lambda: step(world) > 20)
    first.kill()
    first.communicate()
    second = world.start("run", "tiny/pretrained_32")
    output = when(
        second,
        lambda line: line.startswith("pretrained_32:") and "steps" in line,
        lambda: second.send_signal(signal.SIGINT),
    )
    assert "waiting for bert run tiny" in output and "which has ended; what it started goes on" in output
    assert "Traceback" not in output and second.returncode
    (started,) = instance(world, "[r.run_id for r in i.get_runs() if r.status.value == 'STARTED']")
    canceling = f"[str(i.report_run_canceled(i.get_run_by_id({started!r})))]"
    assert len(instance(world, canceling)) == 1  # as a person does in Dagster
    wait_for(lambda: not training(world))


def test_a_hung_process_is_killed_when_the_run_is_terminated_by_force(world: World) -> None:
    """What "Force termination immediately" does: the run is marked as canceled at once."""
    world.edit("steps: 30", LONG)
    settings = world.folder / "settings.yaml"
    settings.write_text(settings.read_text().replace("threads: 1,", "threads: 1, stop_seconds: 1,"), encoding="utf-8")
    process = world.start("run", "tiny/pretrained_32")
    wait_for(lambda: step(world) > 20)
    (hung,) = training(world)
    hung.send_signal(signal.SIGSTOP)
    family = tree(process.pid)
    started = "i.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))"
    assert len(instance(world, f"[str(i.report_run_canceled(run)) for run in {started}]")) == 1
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1 and "canceled" in output, output
    assert sorted(dagster_runs(world.home).values()) == ["CANCELED", "SUCCESS"]
    wait_for(lambda: not [each for each in family if words(each)])


def test_a_killed_training_and_a_killed_step_are_tried_again_and_give_the_version_of_an_undisturbed_run(
    world: World, tmp_path: Path
) -> None:
    world.edit("steps: 30", "steps: 600")
    whole = world.copy(tmp_path / "whole")
    whole.bert("run", "tiny/pretrained_32")

    process = world.start("run", "tiny/pretrained_32")
    wait_for(lambda: step(world) > 100)
    (first,) = training(world)
    first.kill()
    (second,) = wait_for(lambda: [each for each in training(world) if each.pid != first.pid])
    folder = attempt(world)
    before = step(world)
    wait_for(lambda: step(world) > before + 100)
    psutil.Process(second.ppid()).kill()  # the step
    wait_for(lambda: not words(second))
    assert saved_at(folder) >= before + 100
    assert "stopped and saved: " in (folder / "stderr.log").read_text()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "! pretrained_32: model.pretrain was killed by SIGKILL" in output
    assert "! pretrained_32: its process was killed" in output and output.count("tried again in 15 s") == 2
    assert set(dagster_runs(world.home).values()) == {"SUCCESS"}

    assert world.versions()["pretrained_32"] == whole.versions()["pretrained_32"]
    record = world.store.pointer("tiny", "pretrained_32")
    assert record is not None and record.body["statistics"]["resume_count"] == 2
    assert not training(world)

    # What was published needs no checkpoints any more; how it went can still be read.
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json", "lock", "metrics.jsonl", "published.json", "stderr.log", "tensorboard", "timing.jsonl",
    ]  # fmt: skip
    assert json.loads((folder / "published.json").read_text())["version"] == record.version
    assert world.store.unfinished_runs() == []


def test_a_second_run_of_the_same_training_follows_the_first_and_publishes_nothing(world: World) -> None:
    """Two recipes that ask for the same, on an accelerator pool with two slots."""
    world.edit("steps: 30", "steps: 300")
    (world.folder / "recipes" / "twin.yaml").write_text("name: twin\nextends: tiny\n", encoding="utf-8")
    dagster = world.home / "dagster" / "dagster.yaml"
    dagster.write_text(dagster.read_text().replace("default_limit: 1", "default_limit: 2"), encoding="utf-8")
    before = len(list((world.home / "store" / "pretrained").iterdir()))
    first = world.start("run", "tiny/pretrained_32")
    wait_for(lambda: step(world) > 50)
    (trains,) = training(world)
    trains.send_signal(signal.SIGSTOP)
    try:
        second = world.start("run", "twin/pretrained_32")
        output = when(second, lambda line: "which this one waits for" in line, trains.resume)
    finally:
        with suppress(psutil.NoSuchProcess):
            trains.resume()
    assert second.returncode == 0, output
    (waited,) = [line for line in output.splitlines() if "which this one waits for" in line][:1]
    assert "steps of training run " in waited and "(pid " in waited and "loss" in waited
    assert "reused, nothing ran" in output
    said, _ = first.communicate(timeout=120)
    assert first.returncode == 0, said
    assert world.versions("twin")["pretrained_32"] == world.versions()["pretrained_32"]
    assert len(list((world.home / "store" / "pretrained").iterdir())) == before + 1
    record = world.store.pointer("twin", "pretrained_32")
    assert record is not None and record.body["reused"]
    starts = [
        row
        for folder in (world.home / "runs" / record.key).iterdir()
        if folder.name.isdigit()
        for row in lines.read(folder / "timing.jsonl")
        if "device" in row
    ]
    assert len(starts) == 1, "it was trained once"


def test_the_rest_of_a_run_that_was_killed_after_publishing_is_cleared_by_the_next(world: World) -> None:
    record = world.store.pointer("tiny", "pretrained_32")
    assert record is not None
    folder = world.home / "runs" / record.key / "0"
    (folder / "published.json").unlink()
    (folder / "result").mkdir()
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "left").touch()
    assert f"cleared runs/{record.key}/0: its result is published" in world.bert("run", "tiny")
    assert (folder / "published.json").exists() and not (folder / "result").exists()
    assert not (folder / "checkpoints").exists()
    assert world.json("verify")["problems"] == []
