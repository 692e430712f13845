"""The Dagster UI in a real browser: the graph, an asset's numbers and plot, its checks, a run started from the UI.

Needs Debian's chromium (`make browser`); skips with that reason elsewhere.
"""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Error, Page, sync_playwright

from tests.assets.bertcli import World
from tests.assets.test_ui_address import free_port
from tests.conftest import ROOT

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: make browser"),
]
WAIT = 120_000  # milliseconds until something must have appeared; a busy machine is slow, not wrong


LONG = """\
name: long
extends: tiny
description: Trains until somebody ends it.
pretraining: {phases: [{sequence_length: 32, steps: 500000}]}
finetuning: {tasks: [], define: null}
retrain: {}
"""


@dataclass(frozen=True)
class Ui:
    """A page of the browser on a running `bert ui`."""

    page: Page
    base: str

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)

    def see(self, text: str) -> None:
        """Wait until the text is visible."""
        self.page.get_by_text(text).first.wait_for(timeout=WAIT)

    def ask(self, query: str) -> Any:
        """What this server answers to a query."""
        data = json.dumps({"query": query}).encode()
        request = urllib.request.Request(f"{self.base}/graphql", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["data"]

    def stale(self) -> set[str]:
        """Names of the assets that this server says are unsynced."""
        nodes = self.ask("{ assetNodes { assetKey { path } staleStatus } }")["assetNodes"]
        paths = [node["assetKey"]["path"] for node in nodes if node["staleStatus"] == "STALE"]
        return {name for recipe, name in paths if recipe == "tiny"}

    def materialize(self, asset: str) -> str:
        """Press the button of an asset; the id of the run, once it runs."""
        before = self._runs()
        self.open(f"/assets/{asset}")
        self.page.get_by_role("button").filter(has_text="Materialize").first.click()
        until(lambda: set(self._runs()) - set(before))
        (run,) = set(self._runs()) - set(before)
        until(lambda: self._runs()[run] == "STARTED")
        return run

    def terminate(self, run: str) -> None:
        """End a run as a person does, and wait for its end."""
        self.open(f"/runs/{run}")
        self.page.get_by_role("button").filter(has_text="Terminate").first.click()
        self.page.get_by_role("button").filter(has_text="Terminate 1 run").last.click()
        until(lambda: self._runs()[run] == "CANCELED")

    def _runs(self) -> dict[str, str]:
        runs = self.ask("{ runsOrError { ... on Runs { results { runId status } } } }")["runsOrError"]["results"]
        return {run["runId"]: run["status"] for run in runs}


def until(seen: Callable[[], object], seconds: float = 180) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def world(made: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A copy of the made world, so that runs from the UI leave the original as it is."""
    world = made.copy(tmp_path_factory.mktemp("ui") / "world")
    (world.folder / "recipes" / "long.yaml").write_text(LONG, encoding="utf-8")
    shutil.copy(ROOT / "recipes" / "demo.yaml", world.folder / "recipes")
    world.bert("run", "long/pretraining_shards_32")
    return world


@pytest.fixture(scope="module")
def ui(world: World) -> Iterator[Ui]:
    port = free_port()
    server = world.start("ui", "--port", str(port))
    base = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 180
        while True:
            try:
                urllib.request.urlopen(f"{base}/server_info", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, server.communicate()[0]
                assert time.monotonic() < deadline, "the UI did not come up"
                time.sleep(0.5)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1700, "height": 1000})
            page.set_default_timeout(WAIT)
            yield Ui(page, base)
            browser.close()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            raise


def test_the_graph_of_the_recipe_is_shown_and_up_to_date(ui: Ui, tmp_path: Path) -> None:
    ui.open("/locations/bert/asset-groups/tiny")
    for asset in ("documents", "wordpiece_vocab", "pretrained_32", "benchmark_report"):
        ui.see(asset)
    ui.page.screenshot(path=tmp_path / "graph.png")


def test_the_graph_of_the_demo_is_shown(ui: Ui, tmp_path: Path) -> None:
    ui.open("/locations/bert/asset-groups/demo")
    for asset in ("wikipedia_dump", "books_text", "documents", "pretrained_128", "benchmark_report"):
        ui.see(asset)
    ui.page.screenshot(path=tmp_path / "demo.png")


def test_an_asset_shows_its_numbers_and_its_curve(ui: Ui) -> None:
    ui.open("/assets/tiny/pretrained_32")
    for text in ("mlm_accuracy", "loss_curve", "held_out", "tokens_per_second"):
        ui.see(text)
    ui.page.get_by_text("Plots", exact=True).first.click()
    ui.page.locator("canvas").first.wait_for()


def test_the_checks_of_an_asset_are_shown_with_their_results(ui: Ui) -> None:
    ui.open("/assets/tiny/documents?view=checks")
    for text in ("doc_ids_unique", "Succeeded", "reproducible"):
        ui.see(text)


def test_after_a_reload_exactly_the_touched_assets_are_unsynced(ui: Ui, world: World) -> None:
    world.edit("dupe_factor: 2", "dupe_factor: 3")
    try:
        ui.open("/locations/bert/asset-groups/tiny")
        ui.page.get_by_role("button").filter(has_text="Reload definitions").first.click()
        deadline = time.monotonic() + 120
        touched = {"pretraining_shards_32", "pretraining_shards_64"}
        while ui.stale() != touched and time.monotonic() < deadline:
            time.sleep(1)
        assert ui.stale() == touched
        ui.open("/assets/tiny/pretraining_shards_32")
        ui.see("Unsynced")
    finally:
        world.edit("dupe_factor: 3", "dupe_factor: 2")


def test_materializing_from_the_ui_reuses_what_is_known(ui: Ui, world: World) -> None:
    before = world.versions()
    ui.open("/assets/tiny/documents")
    ui.page.get_by_role("button").filter(has_text="Materialize").first.click()
    deadline = time.monotonic() + 180
    while "reused, nothing ran" not in _log(world) and time.monotonic() < deadline:
        time.sleep(1)
    assert "reused, nothing ran" in _log(world)
    assert world.versions() == before


def test_a_training_is_watched_ended_and_resumed_from_the_ui(ui: Ui, world: World, tmp_path: Path) -> None:
    run = ui.materialize("long/pretrained_32")
    curve = ui.page.get_by_text("Plots", exact=True).first

    def plotted() -> bool:  # nothing stands there until the training has said something
        ui.open("/assets/long/pretrained_32")
        try:
            curve.click(timeout=10_000)
            ui.page.locator("canvas").first.wait_for(timeout=10_000)
        except Error:
            return False
        return True

    until(plotted)
    ui.see("mlm_accuracy")
    ui.page.screenshot(path=tmp_path / "live.png")
    ui.terminate(run)
    assert "goes on from step" not in _log(world)
    last = max(path.name for path in (world.home / "runs").glob("*/0/checkpoints/step-*"))

    again = ui.materialize("long/pretrained_32")
    step = int(last.partition("-")[2])
    until(lambda: f"goes on from step {step:,}" in _log(world))
    ui.terminate(again)
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if str(world.home / "runs") in " ".join(p.info["cmdline"] or ())
    ]


def test_the_schedule_of_retrains_is_switched_on_and_off(ui: Ui) -> None:
    selector = '{repositoryName: "__repository__", repositoryLocationName: "bert", scheduleName: "monthly_long"}'
    query = (
        f"{{ scheduleOrError(scheduleSelector: {selector}) {{ ... on Schedule {{ scheduleState {{ status }} }} }} }}"
    )

    def state() -> str:
        return str(ui.ask(query)["scheduleOrError"]["scheduleState"]["status"])

    ui.open("/locations/bert/schedules/monthly_long")
    switch = ui.page.locator("label:has(input[type=checkbox])").first
    assert state() == "STOPPED"
    switch.click()
    until(lambda: state() == "RUNNING")
    switch.click()
    until(lambda: state() == "STOPPED")


def test_what_the_recipe_declares_is_shown_before_anything_was_made(ui: Ui) -> None:
    ui.open("/assets/long/release")
    for text in ("Trains until somebody ends it.", "declared"):
        ui.see(text)


def _log(world: World) -> str:
    """Messages of all runs, from Dagster's own storage."""
    code = (
        "import dagster as dg\n"
        "with dg.DagsterInstance.get() as i:\n"
        "    for run in i.get_runs(limit=1):\n"
        "        for e in i.get_records_for_run(run.run_id).records: print(e.event_log_entry.user_message)"
    )
    import sys

    environment = {**world.environment, "DAGSTER_HOME": str(world.home / "dagster")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout
