"""What becomes of a recipe in its rehearsal: numbers by hand, and every recipe of the repository."""

from pathlib import Path

import pytest

from pipeline.errors import RecipeError
from pipeline.recipe import load_recipes
from pipeline.recipes import rehearsal
from pipeline.recipes.rehearsal import sampled

RECIPES = load_recipes().recipes


def test_bert_base_in_a_thousandth() -> None:
    whole = RECIPES["bert_base"]
    made = sampled(whole, 0.001)
    assert made.name == "bert_base@sample" and made.retrain is None
    assert (
        made.architecture == whole.architecture and made.shards == whole.shards and made.vocabulary == whole.vocabulary
    )
    assert made.pretraining is not None and whole.pretraining is not None
    assert [(p.sequence_length, p.steps) for p in made.pretraining.phases] == [(128, 900), (512, 100)]
    assert made.pretraining.batch_size == 256 and made.pretraining.warmup_steps == 10, "10,000 of 1,000,000"
    assert (made.pretraining.log_every, made.pretraining.evaluate_every) == (10, 50)
    assert made.corpus is not None and made.corpus.held_out == 0.1
    assert made.finetuning.tasks == whole.finetuning.tasks
    assert (made.finetuning.seeds, made.finetuning.epochs) == (1, 1)
    assert made.finetuning.grid.learning_rate == (5e-5,)
    squad = made.finetuning.overrides["squad1_1"]
    assert (squad.max_length, squad.batch_size, squad.epochs) == (384, 32, 1), "what memory hangs on stays"


def test_a_warm_up_leaves_room_for_the_decay() -> None:
    whole = RECIPES["bert_base"]
    assert whole.pretraining is not None
    short = whole.pretraining.model_copy(update={"decay": "wsd", "decay_share": 0.5, "warmup_steps": 900_000})
    made = sampled(whole.model_copy(update={"pretraining": short}), 1e-5)
    assert made.pretraining is not None
    phases = made.pretraining.phases
    assert [phase.steps for phase in phases] == [20, 20], "at least twenty of each"
    assert made.pretraining.warmup_of(phases[0]) == 9, "900,000 x 1e-5; below a quarter of forty"


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_can_be_rehearsed_and_only_what_reads_less_is_asked_anew(name: str) -> None:
    whole, made = RECIPES[name], sampled(RECIPES[name], 0.01)
    configs, rehearsed = whole.configs(), made.configs()
    assert set(rehearsed) == set(configs) - {"promotion_decision"}
    for asset, config in rehearsed.items():
        if asset.endswith("_files"):
            assert config == configs[asset], "files of one's own are the same bytes"
        if asset.endswith("_text") or asset.startswith("task_data_"):
            assert config.asked()["sample"] == 0.01


def test_the_share_is_remembered_and_a_damaged_note_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="was not rehearsed"):
        rehearsal.share_of(tmp_path, "demo")
    rehearsal.remember(tmp_path, "demo", 0.001)
    assert rehearsal.share_of(tmp_path, "demo") == 0.001 and rehearsal.rehearsed(tmp_path) == ["demo"]
    for damaged in ("{", "[]", '{"share": "much"}', '{"share": 7}'):
        (tmp_path / "samples" / "demo.json").write_text(damaged)
        with pytest.raises(RecipeError) as caught:
            rehearsal.share_of(tmp_path, "demo")
        assert "--sample" in caught.value.todo
