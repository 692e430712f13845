"""What may go and why, on stores that are written by hand as records and pointers alone: every verdict follows from the rules
of docs/retention.md by a look at the drawing above each test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.settings import RetentionSettings
from pipeline.storage import retention
from pipeline.storage.record import Record, record_of
from pipeline.storage.retention import State, Version, decide
from pipeline.system.atomic import canonical_json

NOW = datetime(2026, 6, 1, tzinfo=UTC)
RULES = RetentionSettings(history=1, shards_days=30, grace_days=7)
STAGES = {"docs": "documents", "vocab": "wordpiece_vocab", "shards": "pretraining_shards", "model": "pretrained"}


class Built:
    """Records and pointers, by short names."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.pointers: dict[tuple[str, str], list[str]] = {}
        self.extra: dict[str, Any] = {}

    def add(self, recipe: str, asset: str, version: str, *inputs: Record, days: float = 1, **more: Any) -> Record:
        """A record of `recipe/asset` that names the version called so and was written `days` ago; it is what the asset has now."""
        when = (NOW - timedelta(days=days, seconds=len(self.records) / 1000)).isoformat()
        body = {
            "recipe": recipe,
            "asset": asset,
            "stage": STAGES.get(asset, asset),
            "key": f"key-of-{version}",
            "version": named(version),
            "inputs": {each.asset: each.digest for each in inputs},
            "started": when,
            "finished": when,
            "reused": None,
            "statistics": {},
            "asked": {},
            **more,
        }
        record = record_of(canonical_json(body))
        self.records[record.digest] = record
        self.pointers.setdefault((recipe, asset), []).insert(0, record.digest)
        return record

    def chain(self, recipe: str, mark: str, days: float = 1) -> Record:
        """docs → vocab, docs and vocab → shards, shards and vocab → model → release; versions are called docs-MARK, …"""
        docs = self.add(recipe, "docs", f"docs-{mark}", days=days)
        vocab = self.add(recipe, "vocab", f"vocab-{mark}", docs, days=days)
        shards = self.add(recipe, "shards", f"shards-{mark}", docs, vocab, days=days)
        model = self.add(recipe, "model", f"model-{mark}", shards, vocab, days=days)
        return self.add(recipe, "release", f"release-{mark}", model, vocab, days=days)

    def state(self, **more: Any) -> State:
        content = {(record.stage, record.version): 1e6 for record in self.records.values()}
        state = State(self.records, self.pointers, content=content)
        return replace(state, **{**self.extra, **more})


def named(version: str) -> str:
    """A version as long as a real one that can be read."""
    return version.ljust(64, ".")


def goes(state: State, rules: RetentionSettings = RULES) -> dict[str, str]:
    """Name of each version that may go → why."""
    verdict = decide(state, rules, NOW)
    assert verdict.lost == []
    return {each.version[1].rstrip("."): each.why for each in verdict.goes}


def stays(state: State, rules: RetentionSettings = RULES) -> dict[str, str]:
    return {version[1].rstrip("."): why for version, why in decide(state, rules, NOW).stays.items()}


def names(mark: str) -> set[str]:
    return {f"{each}-{mark}" for each in ("docs", "vocab", "shards", "model", "release")}


# ── roots and ancestors ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_assets_have_and_had_lately_stays_with_all_that_it_came_from() -> None:
    """Three generations, one of history: the first one goes."""
    built = Built()
    for mark in ("jan", "feb", "mar"):
        built.chain("a", mark)
    assert set(goes(built.state())) == names("jan")
    assert stays(built.state())["docs-feb"] == retention.HISTORY
    assert set(goes(built.state(), RULES.model_copy(update={"history": 0}))) == names("jan") | names("feb")
    assert goes(built.state(), RULES.model_copy(update={"history": 2})) == {}


def test_history_counts_versions_and_not_records() -> None:
    """docs-new was recorded three times (reused twice): the version before it is still the last one."""
    built = Built()
    built.add("a", "docs", "docs-oldest")
    built.add("a", "docs", "docs-old")
    for number in range(3):
        built.add("a", "docs", "docs-new", asked={"number": number})
    assert set(goes(built.state())) == {"docs-oldest"}


def test_a_recipe_without_its_yaml_and_comparisons_count_and_shared_content_stays() -> None:
    """b shares docs-1 with a, which moved on; a comparison holds model-old, which its recipe has no longer."""
    built = Built()
    docs = built.add("a", "docs", "docs-1")
    model = built.add("a", "model", "model-old", docs)
    built.add("b", "docs", "docs-1", docs)
    for mark in ("2", "3"):
        built.add("a", "docs", f"docs-{mark}")
        built.add("a", "model", f"model-{mark}")
    assert set(goes(built.state())) == {"model-old"}
    built.add("comparisons", "sizes", "table", model)
    assert goes(built.state()) == {}


def test_the_chain_of_reused_work_stays_too() -> None:
    """shards came out of docs-1; docs-2 were made again to equal bytes below (same shards), so that their record reuses it."""
    built = Built()
    first = built.add("a", "docs", "docs-1")
    shards = built.add("a", "shards", "shards", first)
    second = built.add("a", "docs", "docs-2")
    third = built.add("a", "docs", "docs-3")
    again = built.add("a", "shards", "shards", third, reused=shards.digest)
    assert set(goes(built.state(), RULES.model_copy(update={"history": 0}))) == {"docs-2"}
    assert second.digest != again.digest
    del built.records[shards.digest]  # whose work it was is a courtesy: nothing is lost with it
    built.pointers["a", "shards"] = [again.digest]
    assert set(goes(built.state(), RULES.model_copy(update={"history": 0}))) == {"docs-1", "docs-2"}


def test_what_was_taken_by_version_or_as_a_root_stays() -> None:
    """b's vocabulary is that of a's version, b's checkpoint came out of a's model; a has moved on."""
    built = Built()
    vocab = built.add("a", "vocab", "a" * 64)
    model = built.add("a", "model", "model-1", vocab)
    for mark in ("2", "3"):
        built.add("a", "vocab", f"vocab-{mark}")
        built.add("a", "model", f"model-{mark}")
    assert set(goes(built.state())) == {"a" * 64, "model-1"}
    built.add("b", "vocab", "vocab-b", asked={"from": "a" * 64})
    assert set(goes(built.state())) == {"model-1"}
    root = {"stage": "pretrained", "version": model.version, "record": model.digest}
    built.add("b", "imported_checkpoint", "imported", statistics={"root": root})
    assert goes(built.state()) == {}


def test_champion_previous_attested_leased_unfinished_and_restored_stay() -> None:
    built = Built()
    releases = {mark: built.chain("a", mark) for mark in ("1", "2", "3", "4", "5", "6")}
    rules = RULES.model_copy(update={"history": 0})
    assert set(goes(built.state(), rules)) == set().union(*(names(m) for m in "12345"))
    kept = built.state(champions={"a": [releases["2"].digest, releases["1"].digest]})
    assert set(goes(kept, rules)) == names("3") | names("4") | names("5")
    kept = replace(kept, attested=[releases["3"].version])
    assert set(goes(kept, rules)) == names("4") | names("5")
    docs = next(record for record in built.records.values() if record.version == named("docs-4"))
    kept = replace(kept, unfinished={"run": [docs.digest]})
    assert set(goes(kept, rules)) == (names("4") | names("5")) - {"docs-4"}
    kept = replace(kept, leased={("wordpiece_vocab", named("vocab-4"))})
    assert set(goes(kept, rules)) == (names("4") | names("5")) - {"docs-4", "vocab-4"}
    back: Version = ("pretrained", named("model-5"))
    assert "model-5" not in goes(replace(kept, restored={back: NOW - timedelta(days=6)}), rules)
    assert "model-5" in goes(replace(kept, restored={back: NOW - timedelta(days=8)}), rules)
    why = stays(kept, rules)
    assert (why["release-6"], why["release-2"], why["release-3"]) == (
        retention.NOW, retention.CHAMPION, retention.ATTESTED
    )  # fmt: skip
    assert (why["docs-4"], why["vocab-4"]) == (retention.UNFINISHED, retention.LEASED)


def test_content_without_a_record_goes_once_it_is_older_than_a_lease() -> None:
    built = Built()
    built.chain("a", "1")
    left: Version = ("documents", "f" * 64)
    state = built.state()
    for age, waiting, expected in ((61, [], {"f" * 64}), (59, [], set()), (61, ["f" * 64], set())):
        held = replace(state, content={**state.content, left: age}, waiting=waiting)
        assert set(goes(held)) == expected
    assert "no record names it" in goes(replace(state, content={left: 61}))["f" * 64]


def test_a_missing_record_is_named_so_that_nothing_goes() -> None:
    built = Built()
    built.chain("a", "1")
    docs = built.pointers["a", "docs"][0]
    del built.records[docs]
    verdict = decide(built.state(), RULES, NOW)
    assert any(docs[:12] in each and "a/docs" in each for each in verdict.lost)
    assert any("input docs" in each for each in verdict.lost)


# ── shards ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_old_shards_of_finished_trainings_go_although_they_are_needed() -> None:
    built = Built()
    built.chain("a", "1", days=31)
    verdict = decide(built.state(), RULES, NOW)
    assert [(each.version[1].rstrip("."), each.again) for each in verdict.goes] == [("shards-1", True)]
    assert verdict.goes[0].assets == ("a/shards",)
    assert goes(built.state(), RULES.model_copy(update={"shards_days": 32})) == {}
    assert goes(built.state(), RULES.model_copy(update={"shards_days": None})) == {}


def test_shards_stay_while_a_training_on_them_is_to_come_or_is_unfinished_or_they_are_read() -> None:
    """b shares the shards of a, and has no model yet."""
    built = Built()
    built.chain("a", "1", days=90)
    shards = built.records[built.pointers["a", "shards"][0]]
    assert set(goes(built.state())) == {"shards-1"}
    assert goes(built.state(leased={(shards.stage, shards.version)})) == {}
    assert goes(built.state(unfinished={"run": [shards.digest]})) == {}
    unknown = built.state(unfinished={"run": None})
    assert goes(unknown) == {} and "run" in decide(unknown, RULES, NOW).notes[0]
    theirs = built.add("b", "shards", "shards-1", days=80, reused=shards.digest)
    assert goes(built.state()) == {}
    built.add("b", "model", "model-b", theirs, days=75)
    assert goes(built.state())["shards-1"] == "its trainings are finished, the last use was 75 days ago"


def test_the_shards_of_a_champion_that_its_recipe_left_behind_go_and_the_champion_stays() -> None:
    built = Built()
    champion = built.chain("a", "1", days=90)
    built.chain("a", "2", days=3)
    state = built.state(champions={"a": [champion.digest]})
    assert set(goes(state, RULES.model_copy(update={"history": 0}))) == {"shards-1"}
    built.chain("a", "3", days=2)  # shards that no training has read, of a generation that is kept
    built.pointers["a", "model"].pop(0)
    assert "shards-3" not in goes(built.state(), RULES.model_copy(update={"shards_days": 1}))


# ── size ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ten_thousand_artifacts_of_many_recipes_are_judged_together() -> None:
    """200 recipes with 10 generations of 5 artifacts: 10,000."""
    built = Built()
    for recipe in range(200):
        for mark in range(10):
            built.chain(f"r{recipe}", f"{recipe}-{mark}", days=100 - mark)
    state = built.state()
    verdict = decide(state, RULES, NOW)
    assert len(verdict.goes) == 200 * (8 * 5 + 2), "eight generations, and the shards of the two that stay"
    assert len(verdict.goes) + len(set(verdict.stays) & set(state.content)) == len(state.content) == 10_000


def test_sums_add_up() -> None:
    built = Built()
    for mark in ("1", "2", "3"):
        built.chain("a", mark)
    verdict = decide(built.state(), RULES, NOW)
    sizes: Mapping[Version, int] = dict.fromkeys(built.state().content, 10)
    told: Sequence[tuple[str, int, int]] = retention.sums(sizes, verdict.stays)
    assert sum(count for _, count, _ in told) + len(verdict.goes) == 15
    assert {(why, count, size) for why, count, size in told} == {(retention.NOW, 5, 50), (retention.HISTORY, 5, 50)}


def test_what_only_a_rehearsal_made_goes() -> None:
    built = Built()
    built.chain("a@sample", "small")
    built.chain("a", "whole")
    built.add("a@sample", "docs", "docs-both")
    built.add("a", "docs", "docs-both")
    gone = goes(built.state())
    assert set(gone) == {f"{name}-small" for name in (*STAGES, "release")}
    assert all(why.endswith("by a rehearsal") for why in gone.values())
