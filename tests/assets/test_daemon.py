"""The sensor of new dumps under Dagster's own daemon, which is killed again and again: one dump gives one run."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import SensorInstigatorData, TickStatus

from tests.assets.bertcli import kill_tree
from tests.assets.test_retraining import put, world_of
from tests.conftest import ROOT
from tests.pipeline.badserver import serving

WORKSPACE = ["-w", str(ROOT / "workspace.yaml")]
# No run is ever started: what is looked at is what is asked for.
QUEUE = "telemetry: {enabled: false}\nconcurrency: {runs: {max_concurrent_runs: 0}}\n"
PATIENCE = 400.0
"""seconds for a daemon to load the code and look at its sensors, on a machine that does other things too"""


def until(what: str, seen: Callable[[], bool], every: float = 0.02) -> None:
    end = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < end, f"{what}: not within {PATIENCE:.0f} s"
        time.sleep(every)


@contextmanager
def daemon(environment: Mapping[str, str]) -> Iterator[None]:
    """Dagster's daemon, which is killed with everything under it at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dagster._daemon", "run", *WORKSPACE],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        kill_tree(process.pid)
        process.wait()


def test_a_daemon_that_is_killed_at_every_turn_asks_for_one_run_per_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as site:
        world = world_of(tmp_path / "world", site, "finetuning: {tasks: [], define: null, data: null}\nretrain: {}\n")
        home = world.home / "dagster"
        home.mkdir(parents=True)
        (home / "dagster.yaml").write_text(QUEUE, encoding="utf-8")
        environment = {**world.environment, "DAGSTER_HOME": str(home), "BERT_HOME": str(world.home)}
        command = [sys.executable, "-m", "dagster", "sensor", "start", "new_dump_again", *WORKSPACE]
        subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)
        monkeypatch.setenv("DAGSTER_HOME", str(home))
        put(site, "20260101", 40)
        with dg.DagsterInstance.get() as instance:

            def asked() -> list[str]:
                return [run.tags.get("dump", "") for run in instance.get_runs()]

            def ticks() -> list[TickStatus]:
                states = instance.all_instigator_state()
                return [t.status for s in states for t in instance.get_ticks(s.instigator_origin_id, s.selector_id)]

            def an_hour_later() -> None:
                """The next daemon looks at once, as it would an hour after the last look began."""
                for state in instance.all_instigator_state():
                    data = state.instigator_data
                    if isinstance(data, SensorInstigatorData):
                        sooner = data._replace(last_tick_start_timestamp=0.0, last_tick_timestamp=0.0)
                        instance.update_instigator_state(state.with_data(sooner))

            site.log.clear()
            with daemon(environment):  # killed while it looks
                until("the sensor asks the dump site", lambda: bool(site.log))
            an_hour_later()
            with daemon(environment):  # killed as soon as it has asked for a run
                until("a run is asked for", lambda: bool(asked()))
            an_hour_later()
            with daemon(environment):  # the look that was broken off is finished, or begun anew
                until("the look is finished", lambda: ticks()[:1] == [TickStatus.SUCCESS])
            an_hour_later()
            before = len(ticks())
            with daemon(environment):  # it looks again
                until("another look is finished", lambda: len(ticks()) > before and TickStatus.STARTED not in ticks())
            assert asked() == ["20260101"], "one dump, one run, whenever the daemon died"
            assert [run.status for run in instance.get_runs()] == [dg.DagsterRunStatus.QUEUED]
            keys = [run.tags["dagster/run_key"] for run in instance.get_runs()]
            assert keys == ["again 20260101"]
