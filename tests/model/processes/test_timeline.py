"""Events of a training, from rows as the loops write them."""

from model.processes.timeline import SHOWN, timeline

START = {"step": 0, "resumed": False, "device": "cpu", "device_name": "C", "threads": 1, "ranks": 1, "steps": 20}


def test_starts_resumes_and_checkpoints() -> None:
    timing = [
        START,
        {"step": 4, "seconds": 2.0, "tokens_per_second": 9.0, "memory_bytes": 1},
        {"step": 5, "checkpoint": True},
        {**START, "step": 5, "resumed": True, "device_name": "D"},
        {"step": 9, "seconds": 3.5, "memory_bytes": 1},
        {"step": 10, "checkpoint": True},
    ]
    found = timeline(timing, [])
    assert [(each["step"], each["resumed"], each["device_name"], each["seconds"]) for each in found["starts"]] == [
        (0, False, "C", 2.0),
        (5, True, "D", 3.5),
    ]
    assert found["checkpoints"] == {"saved": 2, "first_step": 5, "last_step": 10}
    assert timeline([], [])["checkpoints"] == {"saved": 0, "first_step": None, "last_step": None}


def test_what_went_wrong_is_told_with_its_place() -> None:
    metrics = [
        {"step": 3, "loss": 5.0, "skipped_steps": 0},
        {"step": 4, "spike": 9.5, "batch": 3},
        {"step": 6, "passed_over": [6, 8], "samples": [48, 64]},
    ]
    timing = [START, {"step": 5, "rolled_back_from": 9, "batches": [6, 7]}, {"step": 7, "warning": "compiled again"}]
    found = timeline(timing, metrics)
    assert found["spikes"] == [{"step": 4, "loss": 9.5, "batch": 3}]
    assert found["passed_over"] == [{"step": 6, "batches": [6, 8], "samples": [48, 64]}]
    assert found["rolled_back"] == [{"step": 9, "to": 5, "batches": [6, 7]}]
    assert found["warnings"] == [{"step": 7, "what": "compiled again"}]
    assert found["counts"] == {"rolled_back": 1, "warnings": 1, "spikes": 1, "passed_over": 1}


def test_of_many_events_all_are_counted_and_the_first_are_told() -> None:
    found = timeline([], [{"step": step, "spike": 1.0, "batch": step} for step in range(3 * SHOWN)])
    assert found["counts"]["spikes"] == 3 * SHOWN
    assert [each["step"] for each in found["spikes"]] == list(range(SHOWN))
