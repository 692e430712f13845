"""The pool's slots: whoever is finished holds none, or runs of every recipe would wait for it for ever."""

from pathlib import Path

import dagster as dg
import pytest

from assets.dagster_home import end_dead_runs, instance

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
