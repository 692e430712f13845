"""The pool's slots: whoever is finished holds none, or runs of every recipe would wait for it for ever."""

import threading
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import EngineEventData
from dagster._core.execution.plan.active import ActiveExecution

from assets.asset import RECIPE
from assets.dagster_home import end_dead_runs, instance
from assets.executor import EXECUTOR, MAX_CONCURRENT
from assets.run import _line

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


def test_who_waits_for_a_pool_is_told_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, folder in (("BERT_HOME", "home"), ("DAGSTER_HOME", "dagster")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    job = dg.Definitions(assets=[thing]).resolve_implicit_global_asset_job_def()
    blocked = dg.DagsterEvent(  # as the executor writes it
        "ENGINE_EVENT",
        job.name,
        step_key="tiny__finetuned_b",
        message=f"Step blocked by limit for pool {POOL}",
        event_specific_data=EngineEventData(metadata={"pool": dg.MetadataValue.pool(POOL)}),
    )
    entry = dg.EventLogEntry(None, 20, "", "1", 0.0, dagster_event=blocked, step_key="tiny__finetuned_b")
    with instance() as opened:
        storage = opened.event_log_storage
        storage.set_concurrency_slots(POOL, 1)
        said = "finetuned_b waits for its turn in the pool accelerator, 1 at a time"
        assert _line(opened, entry) == said
        for recipe, whom in (("tiny", "finetuned_a"), ("other", "other/finetuned_a")):
            run = opened.create_run_for_job(job_def=job, tags={RECIPE: recipe})
            assert storage.claim_concurrency_slot(POOL, run.run_id, f"{recipe}__finetuned_a").is_claimed
            assert _line(opened, entry) == f"{said}: {whom} has it"
            storage.free_concurrency_slots_for_run(run.run_id)
