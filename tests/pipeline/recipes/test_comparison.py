"""Comparisons: what loads, and what is refused with file, line and what to do."""

from pathlib import Path

import pytest

from pipeline.config import FinetuneConfig
from pipeline.errors import RecipeError
from pipeline.recipe import Loaded, load_recipes
from pipeline.recipes.comparison import Comparisons, load_comparisons
from pipeline.settings import ROOT
from tests.pipeline.test_recipe import SMALL, write

TABLE = """\
name: sizes
title: Sizes
columns:
  - {name: loss, title: loss, metric: held_out.mlm_loss}
  - {name: mnli, title: MNLI, metric: tasks.mnli.dev.accuracy, format: points, digits: 1}
rows:
  - {label: 3/768/12, recipes: [small, smaller], published: {mnli: 77.9}}
  - {label: the paper's, published: {loss: 1.5}}
"""
WITH_TASK = SMALL + "finetuning: {tasks: [mnli]}\n"


@pytest.fixture
def recipes(tmp_path: Path) -> Loaded:
    child = "name: smaller\nextends: small\narchitecture: {layers: 2}\n"
    write(tmp_path, small=WITH_TASK, smaller=child, broken="name: broken\nextends: small\nshards: {filez: 2}\n")
    return load_recipes(tmp_path)


def load(folder: Path, recipes: Loaded, text: str) -> Comparisons:
    write(folder, comparisons__sizes=text)
    return load_comparisons(folder, recipes)


def test_a_comparison_as_it_is_written(tmp_path: Path, recipes: Loaded) -> None:
    loaded = load(tmp_path, recipes, TABLE)
    assert loaded.errors == {}
    sizes = loaded.get("sizes")
    assert sizes.recipes() == ("small", "smaller")
    assert sizes.rows[0].label == "3/768/12"
    assert sizes.rows[0].published == {"mnli": 77.9}
    assert [column.task for column in sizes.columns] == [None, "mnli"]
    assert [column.digits for column in sizes.columns] == [2, 1]


@pytest.mark.parametrize(
    ("old", "new", "line", "what", "todo"),
    [
        ("title: Sizes", "titel: Sizes", 2, "titel: unknown key", "Did you mean title?"),
        ("title: MNLI,", "caption: MNLI,", 5, "columns.1.caption: unknown key", "Known keys here: digits, format"),
        ("label: 3/768/12, ", "", 7, "rows.0.label: is missing", "Write `label:`"),
        ("[small, smaller]", "[small, smalller]", 7, "rows.0.recipes.1: is no recipe (it is smalller)", "smaller?"),
        ("[small, smaller]", "[small, broken]", 7, "can't be used: ", "Mend broken first"),
        ("[small, smaller]", "[small, small]", 7, "stands twice in this row", "Remove it"),
        ("published: {mnli", "instead: {mnly: [small]}, published: {mnli", 7, "instead.mnly: is no column", "mnli?"),
        ("published: {mnli", "instead: {mnli: [smal]}, published: {mnli", 7, "instead.mnli.0: is no recipe", "small?"),
        ("published: {mnli: 77.9}", "published: {mnly: 77.9}", 7, "published.mnly: is no column", "Did you mean mnli?"),
        ("published: {mnli: 77.9}", "published: {mnli: high}", 7, "must be a number (it is high)", "Correct"),
        (
            "held_out.mlm_loss",
            "held_out.mlm_los",
            4,
            "columns.0.metric: is neither held_out. and one of mlm_",
            "Correct",
        ),
        ("held_out.mlm_loss", "perplexity", 4, "columns.0.metric: is neither", "Correct"),
        ("tasks.mnli.dev.accuracy", "tasks.mnli.dev.acc", 5, "one of accuracy, f1, macro_f1", "Correct"),
        ("tasks.mnli.dev.accuracy", "tasks.mnli.dev", 5, "columns.1.metric: is neither", "Correct"),
        ("tasks.mnli.dev.accuracy", "tasks.mn-li.dev.accuracy", 5, "columns.1.metric: is neither", "Correct"),
        ("title: Sizes", "title: ''", 2, "title: ", "Correct"),
        ("title: MNLI", "title: ''", 5, "columns.1.title: ", "Correct"),
        ("tasks.mnli.dev.accuracy", "tasks.mnlj.dev.accuracy", 5, "has the task mnlj", "Did you mean mnli?"),
        ("tasks.mnli.dev.accuracy", "tasks.mnli.train.accuracy", 5, "columns.1.metric", "Correct"),
        ("name: mnli", "name: loss", 5, "columns.1.name: stands twice", "Rename one"),
        ("label: the paper's", "label: 3/768/12", 8, "rows.1.label: stands twice", "Put its recipes into one row"),
        (", published: {loss: 1.5}", "", 8, "neither recipes nor published numbers", "Name one"),
        ("name: sizes", "name: size", 1, "is not the file's name sizes", "Write `name: sizes`"),
        ("digits: 1", "digits: 9", 5, "columns.1.digits", "Correct"),
    ],
)
def test_what_is_refused(tmp_path: Path, recipes: Loaded, old: str, new: str, line: int, what: str, todo: str) -> None:
    assert TABLE.count(old) == 1
    loaded = load(tmp_path, recipes, TABLE.replace(old, new))
    assert loaded.found == {}
    error = loaded.errors["sizes"]
    assert f"{tmp_path}/comparisons/sizes.yaml:{line}: " in error.what
    assert what in error.what
    assert todo in str(error)


GRID = (
    SMALL
    + """\
finetuning:
  tasks: [mnli, cola]
  grid: {learning_rate: [5e-5, 3e-5], epochs: [2, 3]}
  overrides: {cola: {learning_rate: 1e-4}}
"""
)
ROW = """\
name: sizes
title: Sizes
columns:
  - {name: mnli, title: MNLI, metric: tasks.mnli.dev.accuracy}
  - {name: cola, title: CoLA, metric: tasks.cola.dev.matthews}
rows:
  - label: one
    recipes: [small]
    settings: {SETTINGS}
"""


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (
            "{learning_rate: 5e-5, epochs: 2}",
            [
                "small's task cola, which column cola asks for: no combination has learning_rate 5e-05, epochs 2 "
                "(there are: learning_rate 0.0001, batch_size 32, epochs 2; learning_rate 0.0001, batch_size 32, epochs 3)"
            ],
        ),
        ("{epochs: 2}", ["small's task mnli, which column mnli asks for: 2 combinations have epochs 2"]),
        ("{layers: last}", ["task mnli, which", "no combination has layers last", "task cola, which"]),
    ],
)
def test_settings_have_to_fit_the_grid_of_every_column(tmp_path: Path, settings: str, what: list[str]) -> None:
    write(tmp_path, small=GRID)
    loaded = load(tmp_path, load_recipes(tmp_path), ROW.replace("{SETTINGS}", settings))
    told = loaded.errors["sizes"].what
    assert f"{tmp_path}/comparisons/sizes.yaml:9: rows.0.settings: do not fit the grid of " in told
    for each in what:
        assert each in told
    one = ROW.replace("{SETTINGS}", "{learning_rate: 5e-5, epochs: 2}").replace("  - {name: cola", "  # {name: cola")
    assert load(tmp_path, load_recipes(tmp_path), one).errors == {}


def test_every_problem_is_told_and_one_bad_file_leaves_the_others(tmp_path: Path, recipes: Loaded) -> None:
    write(tmp_path, comparisons__good=TABLE.replace("name: sizes", "name: good"))
    loaded = load(tmp_path, recipes, TABLE.replace("smaller", "gone").replace("{loss: 1.5}", "{lost: 1.5}"))
    assert set(loaded.found) == {"good"}
    assert "gone" in loaded.errors["sizes"].what
    assert "lost" in loaded.errors["sizes"].what
    with pytest.raises(RecipeError, match="(?s)there is no comparison goood.*Did you mean good"):
        loaded.get("goood")


def test_a_file_that_ends_in_yml_is_no_comparison(tmp_path: Path, recipes: Loaded) -> None:
    (tmp_path / "comparisons").mkdir()
    (tmp_path / "comparisons" / "sizes.yml").write_text(TABLE, encoding="utf-8")
    assert "end in .yaml" in load_comparisons(tmp_path, recipes).errors["sizes"].what


def test_a_folder_without_comparisons_has_none(tmp_path: Path, recipes: Loaded) -> None:
    assert load_comparisons(tmp_path, recipes) == Comparisons({}, {})


def test_the_shipped_comparisons_hold_the_papers_numbers() -> None:
    loaded = load_comparisons(ROOT / "recipes", load_recipes())
    assert loaded.errors == {}
    published = {
        name: [tuple(row.published.values()) for row in found.rows]
        for name, found in loaded.found.items()
        if name.startswith("paper")
    }
    assert published == {
        "paper_table_5": [
            (84.4, 88.4, 86.7, 92.7, 88.5),
            (83.9, 84.9, 86.5, 92.6, 87.9),
            (82.1, 84.3, 77.5, 92.1, 77.8),
            (82.1, 84.1, 75.7, 91.6, 84.9),
        ],
        "paper_table_6": [
            (5.84, 77.9, 79.8, 88.4),
            (5.24, 80.6, 82.2, 90.7),
            (4.68, 81.9, 84.8, 91.3),
            (3.99, 84.4, 86.7, 92.9),
            (3.54, 85.7, 86.9, 93.3),
            (3.23, 86.6, 87.8, 93.7),
        ],
        "paper_table_7": [
            *((95.7, 92.2), (92.6,), (93.1,), (96.6, 92.8), (96.4, 92.4)),
            *((91.0,), (95.6,), (94.9,), (95.9,), (96.1,), (95.5,)),
        ],
        "paper_table_8": [
            *((84.2, 95.4, 94.9), (84.3, 94.9, 94.0), (84.1, 95.2, 94.6)),
            *((84.4, 95.2, 94.7), (83.7, 94.8, 94.6), (83.6, 94.9, 94.6)),
        ],
    }


def test_the_rows_of_table_7_are_the_grid_of_its_recipe() -> None:
    recipes = load_recipes()
    rows = load_comparisons(ROOT / "recipes", recipes).found["paper_table_7"].rows
    tried = [row.settings["layers"] for row in rows if row.settings]
    config = recipes.get("base_features").config_for("finetuned_conll2003")
    assert tried == [variant.layers for variant in config.variants]  # type: ignore[attr-defined]
    assert {variant.learning_rate for variant in config.variants} == {1e-3}  # type: ignore[attr-defined]


@pytest.mark.parametrize("row", range(6))
def test_the_rows_of_tables_6_and_8_are_what_their_labels_say(row: int) -> None:
    recipes = load_recipes()
    compared = load_comparisons(ROOT / "recipes", recipes).found
    size = compared["paper_table_6"].rows[row]
    shape = recipes.get(size.recipes[0]).architecture
    assert size.label == f"{shape.layers}/{shape.hidden}/{shape.heads}"
    mix = compared["paper_table_8"].rows[row]
    masked, random, same = recipes.get(mix.recipes[0]).shards.mask_random_keep
    assert mix.label == "/".join(f"{100 * share:.0f}" for share in (masked, same, random))
    (frozen,) = mix.instead["features"]
    above = recipes.get(frozen)
    phases = ("pretrained_128", "pretrained_512")
    assert [above.digest_for(name) for name in phases] == [
        recipes.get(mix.recipes[0]).digest_for(name) for name in phases
    ]
    config, base = (recipes.get(name).config_for("finetuned_conll2003").plain() for name in (frozen, "base_features"))
    assert config.pop("layers") == ["concat_last_four"] and len(base.pop("layers")) == 6
    assert config == base, "trained as table 7's"


def test_the_other_papers_recipes_are_what_their_papers_say() -> None:
    """Liu et al. 2019, table 9 (base); Devlin et al. 2019, table 5 and C.1; Lan et al. 2020, section 3.1."""
    recipes = load_recipes()
    roberta = recipes.get("roberta_like")
    config = roberta.config_for("pretrained_512")
    assert roberta.shards.masking == "dynamic"
    assert (roberta.shards.packing, roberta.shards.sentence_task) == ("full_sentences", "none")
    wanted = {
        "batch_size": 8192,
        "learning_rate": 6e-4,
        "steps": 500_000,
        "schedule_steps": 500_000,
        "warmup_steps": 24_000,
        "adam_beta1": 0.9,
        "adam_beta2": 0.98,
        "adam_epsilon": 1e-6,
        "weight_decay": 0.01,
        "bias_correction": True,
    }
    assert {name: config.plain()[name] for name in wanted} == wanted
    half = recipes.get("base_500k").pretraining
    assert [phase.steps for phase in half.phases] == [450_000, 50_000]
    assert recipes.get("base_no_nsp").shards.sentence_task == "none"
    assert recipes.get("base_sentence_order").shards.sentence_task == "sop"
    left = recipes.get("base_left_to_right")
    assert (left.shards.objective, left.architecture.attention) == ("clm", "causal")
    above = recipes.get("base_left_to_right_bilstm")
    phases = ("pretrained_128", "pretrained_512")
    assert [left.digest_for(name) for name in phases] == [above.digest_for(name) for name in phases]
    assert [each.config_for("finetuned_mnli").plain()["bilstm"] for each in (left, above)] == [
        *(None, {"hidden": 768, "layers": 2})
    ]
    frozen = recipes.get("base_features").config_for("finetuned_conll2003")
    assert isinstance(frozen, FinetuneConfig) and len(frozen.variants) == 6
    assert (frozen.encoder, frozen.learning_rate, frozen.epochs) == ("frozen", 1e-3, 20)
