"""The pool's slots: whoever is finished holds none, or runs of every recipe would wait for it for ever."""

import threading
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.plan.active import ActiveExecution

from assets.dagster_home import end_dead_runs, instance
from assets.executor import EXECUTOR, MAX_CONCURRENT

POOL = "accelerator"


@dg.asset
def thing() -> None:
    """Never computed."""


def test_the_slot_of_a_finished_run_is_free_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, folder in (("BERT_HOME", "home"), ("DAGSTER_HOME", "dagster")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    job = dg.Definitions(assets=[thing]).resolve_implicit_global_asset_job_def()
    with instance() as opened:
        storage = opened.event_log_storage
        storage.set_concurrency_slots(POOL, 1)
        broken, waiting = (opened.create_run_for_job(job_def=job) for _ in range(2))
        assert storage.claim_concurrency_slot(POOL, broken.run_id, "thing").is_claimed
        assert not storage.claim_concurrency_slot(POOL, waiting.run_id, "thing").is_claimed
        end_dead_runs(opened)
        assert not storage.claim_concurrency_slot(POOL, waiting.run_id, "thing").is_claimed, "it is not finished"
        opened.report_run_failed(broken, "a step broke off before it said so")
        end_dead_runs(opened)
        assert storage.claim_concurrency_slot(POOL, waiting.run_id, "thing").is_claimed


@dg.asset(pool=POOL)
def pooled() -> None:
    """What waits for the slot."""


def waiting_job() -> dg.JobDefinition:
    """A run of it, with bertworks' executor."""
    job = dg.define_asset_job("waiting", selection=[pooled])
    return dg.Definitions(assets=[pooled], jobs=[job], executor=EXECUTOR).resolve_job_def("waiting")


def test_a_run_that_waits_for_a_slot_looks_for_it_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    look = ActiveExecution.get_steps_to_execute

    def counted(run: Any, limit: int) -> Any:
        nonlocal looked
        looked += limit == MAX_CONCURRENT  # nothing is at work
        return look(run, limit=limit)

    monkeypatch.setattr(ActiveExecution, "get_steps_to_execute", counted)
    with dg.instance_for_test(temp_dir=str(tmp_path)) as opened:
        storage = opened.event_log_storage
        storage.set_concurrency_slots(POOL, 1)
        other = opened.create_run_for_job(waiting_job())
        assert storage.claim_concurrency_slot(POOL, other.run_id, "pooled").is_claimed
        freed = threading.Timer(3, storage.free_concurrency_slots_for_run, (other.run_id,))
        freed.start()
        assert dg.execute_job(dg.reconstructable(waiting_job), instance=opened).success
        freed.join()
    assert looked < 100  # a few thousand a second without a pause
