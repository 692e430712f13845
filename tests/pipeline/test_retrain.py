"""What a retrain settles, and when one is asked for."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline import retrain
from pipeline.config import Retrain, WikimediaFrom
from pipeline.errors import RecipeError, SourceError, StoreError
from pipeline.origins import wikimedia
from pipeline.recipe import Recipe, load_recipes
from pipeline.retrains.new_dumps import judge, seen_name
from pipeline.storage import champion
from pipeline.store import Record, Store
from tests.assets.bertcli import recorded
from tests.pipeline.badserver import Site
from tests.pipeline.origins.test_wikimedia import add_dump, chosen, site  # noqa: F401

RECIPE = """
name: monthly
corpus:
  sources:
    wiki: {kind: wikipedia, from: {wiki: tlwiki, dump: latest}}
    fixed: {kind: wikipedia, from: {wiki: otherwiki, dump: "20200101"}}
pretraining:
  warmup_steps: 10
  decay: wsd
  decay_share: 0.1
  phases: [{sequence_length: 64, steps: 100}]
"""


TASKS = "finetuning: {tasks: [cola], seeds: 3}"


def recipe(folder: Path, section: str, more: str = "") -> Recipe:
    (folder / "recipes").mkdir(exist_ok=True)
    (folder / "recipes" / "monthly.yaml").write_text(f"{RECIPE}{more}\nretrain: {section}\n", encoding="utf-8")
    return load_recipes(folder / "recipes").get("monthly")


def released(store: Store, at: str) -> Record:
    """A release with its vocabulary and the checkpoint that it came from."""
    versions = {}
    for number, stage in enumerate(("wordpiece_vocab", "pretrained", "release")):
        with store.staging() as staged:
            (staged / "file").write_text(f"{stage} {at}", encoding="utf-8")
            versions[stage] = store.publish(stage, staged)
        asset = f"{stage}_64" if stage == "pretrained" else stage
        inputs = (
            {} if number < 2 else {name: store.history("monthly", asset_of)[0] for name, asset_of in INPUTS.items()}
        )
        recorded(store, "monthly", asset, stage, versions[stage], inputs)
    found = store.pointer("monthly", "release")
    assert found is not None
    return found


INPUTS = {"wordpiece_vocab": "wordpiece_vocab", "pretrained": "pretrained_64"}


def dates(recipe: Recipe) -> list[str]:
    assert recipe.corpus is not None
    return [source.from_.dump for source in recipe.corpus.sources.values()]


# ── what is settled ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_retrain_is_named_after_its_newest_dump_and_settled_once(tmp_path: Path, site: Site) -> None:  # noqa: F811
    store, asked = Store(tmp_path / "home"), recipe(tmp_path, "{}")
    with pytest.raises(SourceError, match="no finished dump of tlwiki is known here"):
        retrain.now(store, asked)
    add_dump(site, "20260101")
    add_dump(site, "20260201")
    add_dump(site, "20260301", done="in-progress")
    assert retrain.now(store, asked, network=True).dump == "20260201" and retrain.known(store, "monthly") == []
    first = retrain.settle(store, asked)
    assert (first.dump, first.dumps, first.number, first.champion) == ("20260201", {"wiki": "20260201"}, 1, None)
    assert dates(retrain.resolved(store, asked, first)) == ["20260201", "20200101"]
    add_dump(site, "20260401")
    second = retrain.settle(store, asked)
    assert (second.dump, second.number) == ("20260401", 2)
    assert retrain.settle(store, asked, "20260201") == first, "a rerun is the same retrain"
    earlier = retrain.settle(store, asked, "20260115")  # asked for by a person: the dump that there was then
    assert (earlier.dumps, earlier.number) == ({"wiki": "20260101"}, 3)
    assert [moment.dump for moment in retrain.known(store, "monthly")] == ["20260115", "20260201", "20260401"]


def test_a_rerun_after_the_promotion_asks_for_the_same(tmp_path: Path, site: Site) -> None:  # noqa: F811
    store = Store(tmp_path / "home")
    asked = recipe(tmp_path, "{start: warm}", "vocabulary: {from: champion}")
    add_dump(site, "20260101")
    first = retrain.settle(store, asked)
    scratch = retrain.resolved(store, asked, first)
    assert scratch.pretraining is not None and scratch.pretraining.start is None and scratch.vocabulary.from_ == ""
    january = released(store, "january")
    champion.promote(store, "monthly", january, None, "me", "first", "2026-01-20T00:00:00+00:00")
    assert retrain.resolved(store, asked, retrain.settle(store, asked)) == scratch
    add_dump(site, "20260201")
    warm = retrain.resolved(store, asked, retrain.settle(store, asked))
    assert warm.pretraining is not None and warm.pretraining.start is not None
    assert (warm.pretraining.start.from_, warm.pretraining.start.mode) == (january.version, "warm")
    assert warm.vocabulary.from_ == store.record(january.inputs["wordpiece_vocab"]).version
    champion.promote(store, "monthly", released(store, "february"), None, "me", "", "2026-02-20T00:00:00+00:00")
    assert retrain.resolved(store, asked, retrain.settle(store, asked, "20260201")) == warm
    assert "imported_checkpoint" in retrain.widest(asked).asset_names()
    assert "imported_checkpoint" in warm.asset_names() and "imported_checkpoint" not in scratch.asset_names()


def test_every_so_many_retrains_begin_from_scratch_and_the_others_from_the_stable_phase(
    tmp_path: Path,
    site: Site,  # noqa: F811
) -> None:
    store, asked = Store(tmp_path / "home"), recipe(tmp_path, "{start: continue, scratch_every: 3}")
    release = released(store, "january")
    champion.promote(store, "monthly", release, None, "me", "", "2026-01-20T00:00:00+00:00")
    begins = []
    for month in range(1, 7):
        add_dump(site, f"2026{month:02}01")
        settled = retrain.resolved(store, asked, retrain.settle(store, asked))
        assert settled.pretraining is not None
        begins.append(settled.pretraining.start and settled.pretraining.start.from_)
    stable = f"{store.record(release.inputs['pretrained']).version}/stable"
    assert begins == [stable, stable, None, stable, stable, None]


def test_without_the_site_the_newest_dump_that_is_known_counts_and_that_is_said(
    tmp_path: Path,
    site: Site,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, asked = Store(tmp_path / "home"), recipe(tmp_path, "{}")
    add_dump(site, "20260101")
    wikimedia.resolve(WikimediaFrom(wiki="tlwiki"))
    chosen(tmp_path, monkeypatch, site="http://127.0.0.1:9", hosts=["127.0.0.1"])
    assert retrain.settle(store, asked).dump == "20260101"
    assert "taking the newest dump of tlwiki known here: 20260101" in caplog.text


def test_a_damaged_file_of_a_retrain_is_named(tmp_path: Path) -> None:
    store, asked = Store(tmp_path / "home"), recipe(tmp_path, "{}")
    path = tmp_path / "home" / "assets" / "monthly" / "retrains" / "20260101.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"dump": "2026', encoding="utf-8")
    with pytest.raises(StoreError, match=r"20260101.json is damaged"):
        retrain.now(store, asked, "20260101")
    with pytest.raises(RecipeError, match="'../x' is no date"):
        retrain.now(store, asked, "../x")


# ── what a recipe may say ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("section", "more", "told"),
    [
        ("{start: warm}", "", None),
        ("{start: continue}", "", None),
        ("{start: scratch, scratch_every: 2}", "", "retrain.scratch_every: every retrain begins from scratch"),
        ("{day: 31}", "", "retrain.day"),
        ("{shrink: 2}", "", "retrain.shrink"),
        ("{gates: {floors: {cola: 30}}}", TASKS, None),
        ("{gates: {floors: {rte: 30}}}", TASKS, "retrain.gates.floors.rte: is no score of this recipe"),
        ("{gates: {by_task: {mlm_accuracy: 1}}}", TASKS, "retrain.gates.by_task.mlm_accuracy: is no score"),
        (
            "{gates: {floors: {sentence_accuracy: 90}}}",
            "shards: {sentence_task: none}",
            "no sentence pairs are learned",
        ),
        ("{gates: {seeds: 4}}", TASKS, "finetuning.seeds: cola has fewer seeds than the gates of retrains compare (4)"),
        (
            "{}",
            "finetuning: {tasks: [cola], overrides: {cola: {seeds: 2}}}",
            "finetuning.overrides.cola.seeds: cola has",
        ),
        ("null", "vocabulary: {from: champion}", "vocabulary.from: only a recipe that is retrained has a champion"),
    ],
)
def test_a_section_that_contradicts_itself_is_refused(
    tmp_path: Path, section: str, more: str, told: str | None
) -> None:
    if told is None:
        assert recipe(tmp_path, section, more).retrain is not None
        return
    with pytest.raises(RecipeError) as caught:
        recipe(tmp_path, section, more)
    assert told in str(caught.value) and "monthly.yaml:" in str(caught.value)


def test_a_stable_phase_needs_its_schedule(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    text = RECIPE.replace("  decay: wsd\n  decay_share: 0.1\n", "") + "retrain: {start: continue}\n"
    (tmp_path / "recipes" / "monthly.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match="only a schedule with decay: wsd has a stable phase"):
        load_recipes(tmp_path / "recipes").get("monthly")


# ── when one is asked for ────────────────────────────────────────────────────────────────────────────────────────────

NOW = datetime(2026, 3, 10, tzinfo=UTC)


def dump(wiki: str, date: str, size_bytes: int | None = 1000) -> dict[str, object]:
    entry = {"name": f"{wiki}-{date}.xml.bz2", **({"size_bytes": size_bytes} if size_bytes else {})}
    return {"wiki": wiki, "date": date, "files": [entry]}


def moment(taken: dict[str, dict[str, object]]) -> retrain.Moment | None:
    """The retrain that took these dumps."""
    dates = {source: str(each["date"]) for source, each in taken.items()}
    sizes = {source: wikimedia.size(each) for source, each in taken.items()}
    return retrain.Moment(max(dates.values()), dates, sizes, 1, None, None) if taken else None


OLD = {"a": dump("awiki", "20260201"), "b": dump("bwiki", "20260201")}


@pytest.mark.parametrize(
    ("offered", "taken", "days_ago", "does", "name", "why"),
    [
        (OLD, OLD, 0, "nothing", "20260201", "nothing new: awiki 20260201, bwiki 20260201 is in the last retrain"),
        (OLD, {}, 0, "request", "20260201", "every wiki has a newer dump"),
        ({**OLD, "a": dump("awiki", "20260301")}, OLD, 3, "wait", "20260301", "bwiki has no newer dump yet"),
        ({**OLD, "a": dump("awiki", "20260301")}, OLD, 14, "request", "20260301", "after 14 days of waiting"),
        (
            {"a": dump("awiki", "20260301"), "b": dump("bwiki", "20260302")},
            OLD,
            0,
            "request",
            "20260302",
            "every wiki has a newer dump",
        ),
        ({"a": dump("awiki", "20260301", 899)}, {"a": OLD["a"]}, 0, "hold", "20260301", "10% less than 20260201"),
        ({"a": dump("awiki", "20260301", 900)}, {"a": OLD["a"]}, 0, "request", "20260301", "every wiki"),
        ({"a": dump("awiki", "20260301", None)}, {"a": OLD["a"]}, 0, "request", "20260301", "every wiki"),
    ],
)
def test_a_retrain_is_asked_for_when_every_wiki_has_a_newer_dump_that_did_not_shrink(
    offered: dict[str, dict[str, object]],
    taken: dict[str, dict[str, object]],
    days_ago: int,
    does: str,
    name: str,
    why: str,
) -> None:
    seen = {seen_name(each): NOW - timedelta(days=days_ago) for each in offered.values()}
    verdict = judge(offered, moment(taken), seen, Retrain(), NOW)
    assert (verdict.does, verdict.dump) == (does, name) and why in verdict.why


def test_a_dump_that_comes_late_goes_into_the_next_retrain() -> None:
    taken = {"a": dump("awiki", "20260301"), "b": dump("bwiki", "20260201")}
    offered = {**taken, "b": dump("bwiki", "20260301")}
    verdict = judge(offered, moment(taken), {}, Retrain(), NOW)
    assert verdict.does == "nothing" and "bwiki 20260301 came after the retrain 20260301 began" in verdict.why


def test_settling_survives_a_second_process(tmp_path: Path, site: Site) -> None:  # noqa: F811
    store, asked = Store(tmp_path / "home"), recipe(tmp_path, "{}")
    add_dump(site, "20260101")
    first = retrain.settle(store, asked)
    path = store.home / "assets" / "monthly" / "retrains" / "20260101.json"
    assert json.loads(path.read_text(encoding="utf-8"))["number"] == 1
    before = path.stat().st_mtime_ns
    assert retrain.settle(Store(tmp_path / "home"), asked) == first and path.stat().st_mtime_ns == before
