"""`bert promote`, `bert rollback`, `bert bar`."""

from pathlib import Path

import pytest

from assets.commands import promoting
from pipeline.errors import RecipeError, StoreError
from pipeline.storage import champion
from pipeline.store import Record, open_store
from tests.pipeline.receivers import webhook
from tests.pipeline.storage.test_champion import release


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """Two releases, the second one promoted after the first."""
    settings = tmp_path / "settings.yaml"
    (tmp_path / "recipes").mkdir()
    settings.write_text(f"recipes: {tmp_path / 'recipes'}\nhome: {tmp_path / 'home'}\n", encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(settings))
    found = []
    for text in ("january", "february"):
        found.append(release(open_store(), text))
        promoting.promote("monthly", f"the model of {text}")
    return found


def test_what_is_in_use_says_since_when_by_whom_and_why(two: list[Record]) -> None:
    told = promoting.in_use(open_store(), "monthly")
    assert told is not None and (told["version"], told["previous"]) == (two[1].version, two[0].version)
    line = promoting.in_use_text(told)
    assert (
        line.startswith(f"champion: release {two[1].version[:12]}, promoted 20") and "(the model of february)" in line
    )
    assert promoting.in_use(open_store(), "another") is None and promoting.in_use_text(None) == ""


def decided(release: Record, verdict: str, against: Record | None) -> Record:
    """A decision about a release, as its record tells it."""
    store = open_store()
    body = {
        **release.body,
        "asset": "promotion_decision",
        "stage": "promotion_decision",
        "inputs": {"release": release.digest},
    }
    body["statistics"] = {
        "verdict": verdict,
        "champion": against.version if against else None,
        "in_words": "The gates say so.",
    }
    record = store.append(body)
    store.point("monthly", "promotion_decision", record)
    return record


def test_a_decision_is_followed_once_and_only_against_the_champion_that_it_compared_with(two: list[Record]) -> None:
    store = open_store()
    march = release(store, "march")
    assert promoting.follow(store, decided(march, "keep", two[1])) == "not promoted. The gates say so."
    stale = promoting.follow(store, decided(march, "promote", two[0]))
    assert f"the champion is {two[1].version[:12]}, and this decision compared with {two[0].version[:12]}" in stale
    assert champion.read(store, "monthly").champion == two[1].digest
    decision = decided(march, "promote", two[1])
    assert promoting.follow(store, decision).startswith("promoted. The gates say so.")
    now = champion.read(store, "monthly")
    assert (now.champion, now.previous, now.history[0].decision) == (march.digest, two[1].digest, decision.digest)
    assert (store.home / "attestations" / march.version / "README.md").exists()
    assert promoting.follow(store, decision) == "" and champion.read(store, "monthly") == now, (
        "called again it does nothing"
    )
    promoting.rollback("monthly", "worse", None)
    with pytest.raises(StoreError, match="is barred"):
        promoting.follow(store, decision)


def test_a_person_may_promote_what_gates_refused_and_that_is_told_and_recorded(two: list[Record]) -> None:
    march = release(open_store(), "march")
    assert "there is no decision about it" in promoting.promote("monthly", "a trial")["gates"], (
        "it was about another release"
    )
    april = release(open_store(), "april")
    decision = decided(april, "keep", march)
    told = promoting.promote("monthly", "the gate is too strict")
    assert promoting.changed_text(told).endswith("\nThe gates say so.")
    assert champion.read(open_store(), "monthly").history[0].decision == decision.digest


def test_a_rolled_back_version_is_not_promoted_until_its_ban_is_lifted(two: list[Record]) -> None:
    back = promoting.rollback("monthly", "worse", None)
    assert (back["version"], back["did"]) == (two[0].version, "rolled back")
    with pytest.raises(Exception, match="is barred"):
        promoting.promote("monthly", "once more")
    assert promoting.bar(two[1].version[:8], "it was the disk", lift=True)["did"] == "unbarred"
    assert promoting.promote("monthly", "once more")["version"] == two[1].version
    told = promoting.bar_text(promoting.bar(two[1].version[:8], "it was not", lift=False))
    assert "It is the champion of monthly still.  Next: bert rollback monthly" in told


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda two: promoting.promote("monthly", " "), "--reason TEXT is missing"),
        (lambda two: promoting.rollback("monthly", "", None), "--reason TEXT is missing"),
        (lambda two: promoting.bar(two[0].version, "", lift=False), "--reason TEXT is missing"),
        (lambda two: promoting.promote("another", "so"), "another has no release"),
        (lambda two: promoting.bar("zzzzzz", "so", lift=False), "0 releases begin with zzzzzz"),
        (lambda two: promoting.bar(two[0].version[:3], "so", lift=False), "is too short"),
    ],
)
def test_what_can_t_be_done_says_what_to_do(two: list[Record], act: object, told: str) -> None:
    with pytest.raises(RecipeError, match=told) as caught:
        act(two)  # type: ignore[operator]
    assert caught.value.todo
    assert promoting.in_use(open_store(), "monthly")["version"] == two[1].version  # type: ignore[index]


def test_each_change_and_each_refusal_is_told_once(
    two: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with webhook() as hook:
        settings = tmp_path / "alerts.yaml"
        told = f"home: {tmp_path / 'home'}\nalerts: {{webhook: {{url: '{hook.url}'}}}}\n"
        settings.write_text(told, encoding="utf-8")
        monkeypatch.setenv("BERT_SETTINGS", str(settings))
        store = open_store()
        march = release(store, "march")
        for _ in range(2):  # a rerun asks again
            assert "not promoted" in promoting.follow(store, decided(march, "keep", two[1]))
        assert "promoted." in promoting.follow(store, decided(release(store, "april"), "promote", two[1]))
        promoting.rollback("monthly", "worse", None)
        kinds = [(body["kind"], body["recipe"], body["asset"]) for _, _, body in hook.got]
        assert kinds == [
            ("promotion refused", "monthly", "promotion_decision"),
            ("promoted", "monthly", "release"),
            ("rolled back", "monthly", "release"),
        ]
        assert "The gates say so." in hook.got[0][2]["cause"] and "worse" in hook.got[2][2]["cause"]
