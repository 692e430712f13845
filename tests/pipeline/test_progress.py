"""How a stage says how far it is."""

import pytest

from pipeline import progress
from pipeline.progress import Progress


def test_a_line_tells_rate_and_time_left() -> None:
    assert (
        str(Progress(300, 1200, "steps", 60, measured={"loss": 1.8312}))
        == "300/1,200 steps · 5.0/s · 3m00s left · loss 1.831"
    )
    told = Progress(300, 1200, "steps", 60, measured={"loss": 1.8}, where="seed 42, epoch 1 of 3")
    assert str(told) == "300/1,200 steps · 5.0/s · 3m00s left · seed 42, epoch 1 of 3 · loss 1.8"
    assert str(Progress(5, None, "pages", 0)) == "5 pages"
    assert str(Progress(7300, 7300, "steps", 7300)) == "7,300/7,300 steps · 1.0/s"


def test_bytes_are_shown_in_megabytes() -> None:
    assert str(Progress(5e6, 20e6, "bytes hashed", 2)) == "5.0/20.0 MB hashed · 2.5/s · 6s left"
    assert str(Progress(9e6, 20e6, "bytes", 2, before=4e6)) == "9.0/20.0 MB · 2.5/s · 4s left"


def test_a_resumed_stage_is_rated_by_what_it_did_itself() -> None:
    now = Progress(done=500, total=900, unit="steps", seconds=50, before=400)
    assert now.rate == 2.0
    assert now.eta_seconds == 200


def test_a_count_that_starts_again_is_rated_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    heard: list[Progress] = []
    with progress.listen(heard.append):
        for done in (400, 900, 100, 300):  # the end of one file, then the next
            progress.report(done, 1000, "rows")
    assert [p.before for p in heard] == [400, 400, 100, 100]
    assert all(p.rate >= 0 for p in heard)


def test_the_listener_hears_the_end_once_and_not_every_report(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Progress] = []
    with progress.listen(heard.append):
        for _ in progress.track(range(1000), 1000, "rows"):
            pass
        progress.report(1000, 1000, "rows")
    assert [p.done for p in heard] == [1000]
    heard.clear()
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    with progress.listen(heard.append):
        progress.report(1, 3, "rows", loss=2.0)
        progress.report(2, 3, "rows")
    assert [(p.done, p.measured) for p in heard] == [(1, {"loss": 2.0}), (2, {})]
    progress.report(3, 3, "rows")
    assert len(heard) == 2, "nobody listens any more"
