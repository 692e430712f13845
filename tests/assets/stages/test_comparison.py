"""comparisons/NAME in the store, in Dagster and on the command line, over made-up results of two recipes."""

import json
from pathlib import Path
from typing import Any

import pytest

from assets import graph
from assets.commands.comparing import compare, compare_text
from assets.definitions import definitions
from pipeline.build import build
from pipeline.config import Comparison, ComparisonConfig
from pipeline.errors import ChainError
from pipeline.recipe import load_recipes
from pipeline.store import Record
from tests.assets.bertcli import World, recorded

PAIR = """\
name: pair
title: With and without pairs
source: A paper
columns:
  - {name: loss, title: loss, metric: held_out.mlm_loss}
  - {name: pairs, title: pairs right, metric: held_out.nsp_accuracy, format: points, digits: 1}
rows:
  - {label: pairs, recipes: [tiny], published: {loss: 1.25}}
  - {label: none, recipes: [tiny_child]}
"""


def put(world: World, recipe: str, asset: str, stage: str, inputs: dict[str, str], **files: Any) -> Record:
    """Publish made-up content as what an asset is now."""
    store = world.store
    with store.staging() as staged:
        for name, value in files.items():
            (staged / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
        version = store.publish(stage, staged)
    return recorded(store, recipe, asset, stage, version, inputs)


def trained(world: World, recipe: str, loss: float, pairs: float | None) -> Record:
    """A `pretrained_64` from documents of its own."""
    documents = put(world, recipe, "documents", "documents", {}, text=recipe)
    scores = {"mlm_loss": loss, "mlm_accuracy": 0.5, "nsp_accuracy": pairs}
    return put(world, recipe, "pretrained_64", "pretrained", {"documents": documents.digest}, held_out=scores)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World.make(tmp_path / "world")
    comparisons = made.folder / "recipes" / "comparisons"
    comparisons.mkdir()
    (comparisons / "pair.yaml").write_text(PAIR, encoding="utf-8")
    return made


def shown(world: World) -> dict[str, list[Any]]:
    """Row → medians, by `bert compare`."""
    found = world.json("compare", "pair")
    return {row["label"]: [cell["median"] for cell in row["cells"].values()] for row in found["rows"]}


def test_from_nothing_to_a_full_table(world: World) -> None:
    assert shown(world) == {"pairs": [None, None], "none": [None, None]}
    assert not (world.home / "records").exists()  # comparing writes nothing
    trained(world, "tiny", 1.5, 0.8125)
    output = world.bert("run", "comparisons/pair")
    assert "comparisons/pair is up to date" in output
    assert "bert compare pair" in output
    record = world.store.pointer("comparisons", "pair")
    assert record is not None
    assert set(record.inputs) == {"tiny/pretrained"}  # nothing was trained for it
    assert sorted(path.name for path in (world.home / "assets").iterdir()) == ["comparisons", "tiny"]
    waits = {check["name"] for check in record.body["validation"]["results"] if not check["passed"]}
    assert waits == {"members_run"}
    output = world.bert("compare", "pair")
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in output.splitlines() if line[:1] == "│"]
    assert lines[0] == ["", "seeds", "loss", "loss, published", "pairs right"]
    assert lines[2:] == [["pairs", "1", "1.50", "1.25", "81.2"], ["none", "1", "not run", "", "not run"]]
    assert "Not run: tiny_child" in output
    assert "Missing: tiny_child/pretrained_64 (never made) → bert run tiny_child/pretrained_64" in output
    assert str(world.store.content("comparison", record.version) / "comparison.html") in output

    # Another member, from other documents: members are roots, not one chain.
    trained(world, "tiny_child", 1.75, None)
    row = world.json("status", "comparisons/pair")["assets"][0]
    assert (row["asset"], row["state"]) == ("pair", "will run")
    assert "tiny_child/pretrained_64 is new" in row["why"]
    assert shown(world) == {"pairs": [1.5, 81.25], "none": [1.75, None]}
    world.bert("run", "comparisons")
    again = world.store.pointer("comparisons", "pair")
    assert again is not None
    assert set(again.inputs) == {"tiny/pretrained", "tiny_child/pretrained"}
    assert world.json("run", "comparisons/pair")["assets"][0]["state"] == "up to date"
    assert world.store.pointer("comparisons", "pair") == again  # nothing ran
    assert "documents  (tiny_child)" in world.bert("audit", "comparisons/pair")
    status = world.json("status")["comparisons"]
    assert status == [
        {"comparison": "pair", "members": 2, "run": 2, "made": True, "title": "With and without pairs"},
    ]


TUNED = """\
name: tuned
title: Tasks
columns:
  - {name: places, title: Places, metric: tasks.places.dev.accuracy}
  - {name: cola, title: CoLA, metric: tasks.cola.dev.matthews}
  - {name: ax, title: AX, metric: tasks.ax.test.matthews}
rows:
  - {label: all, recipes: [tiny, full]}
  - {label: few, recipes: [few]}
"""


def test_what_is_advised_makes_the_missing_cell_also_where_columns_are_tasks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERT_SETTINGS", str(world.folder / "settings.yaml"))
    recipes = world.folder / "recipes"
    (recipes / "comparisons" / "tuned.yaml").write_text(TUNED, encoding="utf-8")
    (recipes / "full.yaml").write_text(
        "name: full\nextends: tiny\nfinetuning: {tasks: [places, cola, mnli, ax]}\n", encoding="utf-8"
    )
    (recipes / "few.yaml").write_text("name: few\nextends: tiny\nfinetuning: {tasks: [places]}\n", encoding="utf-8")
    wanted = {"why": "the recipe names no files for it", "wants": ["train: train.tsv"], "todo": "Download it there."}
    put(world, "tiny", "finetuned_cola", "finetuned", {}, not_run=wanted)
    put(world, "full", "finetuned_places", "finetuned", {}, not_run={"why": "bad", "wants": [], "failed": True})
    found = compare("tuned")
    advice = {each["what"]: each["todo"] for each in found["empty"]}
    assert advice == {
        "tiny/finetuned_places": "bert run tiny/finetuned_places",
        "full/finetuned_places": "Mend it, then: bert run full/finetuned_places",
        "few/finetuned_places": "bert run few/finetuned_places",
        "tiny/finetuned_cola": "Download it there. It wants train: train.tsv. Then: bert run tiny/finetuned_cola",
        "full/finetuned_cola": "bert run full/finetuned_cola",
        "few has no task cola": "Add cola to finetuning.tasks of few, or leave few out of this comparison.",
        "tiny has no task ax": "Add ax to finetuning.tasks of tiny, or leave tiny out of this comparison.",
        "full/predicted_ax": "bert run full/predicted_ax",
        "few has no task ax": "Add ax to finetuning.tasks of few, or leave few out of this comparison.",
    }
    text = compare_text(found)
    for what, todo in list(advice.items())[:8]:
        (line,) = [line for line in text.splitlines() if f"Missing: {what} (" in line]
        assert line.endswith(f"→ {todo}")
    assert "and 1 more" in text
    for todo in advice.values():  # every command that is named exists
        if "bert run" in todo:
            target = todo.rpartition("bert run ")[2]
            assert graph.find(target)[1] is not None
    # a task that is only a test set has its number in predicted_T
    scores = {"summary": {"test": {"matthews": {"median": 0.25}}}}
    put(world, "full", "predicted_ax", "predicted", {}, scores=scores)
    cell = compare("tuned")["rows"][0]["cells"]["ax"]
    assert cell["values"] == {"full": 0.25}


def test_what_can_not_be_compared_says_why(world: World) -> None:
    assert "Did you mean pair?" in world.bert("compare", "pari", code=1)
    file = world.folder / "recipes" / "comparisons" / "pair.yaml"
    file.write_text(PAIR.replace("tiny_child", "tiny_chidl"), encoding="utf-8")
    told = world.json("compare", "pair", code=1)
    assert f"{file}:9: rows.1.recipes.0: is no recipe (it is tiny_chidl)" in told["error"]
    assert "Did you mean tiny_child?" in told["todo"]
    assert "comparisons/pair" in world.bert("status")
    for command in (("run", "comparisons"), ("status", "comparisons")):
        assert "is no recipe (it is tiny_chidl)" in world.bert(*command, code=1), "there is one, which is broken"


def test_all_comparisons_but_those_that_can_not_be_used(world: World) -> None:
    bad = world.folder / "recipes" / "comparisons" / "bad.yaml"
    bad.write_text(PAIR.replace("tiny_child", "gone").replace("name: pair", "name: bad"), encoding="utf-8")
    for command in (("run", "comparisons", "--dry-run"), ("status", "comparisons"), ("run", "comparisons")):
        output = world.bert(*command, code=1)
        assert "comparisons/bad is left out: " in output and "is no recipe (it is gone)" in output
    assert world.store.pointer("comparisons", "pair") is not None, "the other one is made"
    assert "left out" not in world.bert("run", "comparisons/pair")
    for nameless in ("", "comparisons/"):
        assert "no comparison is named\n  → Known: pair." in world.bert("compare", nameless, code=1)


def test_dagster_has_a_group_and_a_job_of_comparisons_where_there_are_any(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERT_SETTINGS", str(world.folder / "settings.yaml"))
    comparisons = world.folder / "recipes" / "comparisons"
    (comparisons / "bad.yaml").write_text(PAIR, encoding="utf-8")  # another name than the file's
    whole = definitions().resolve_asset_graph()
    found = {key.to_user_string(): whole.get(key) for key in whole.get_all_asset_keys() if key.path[0] == "comparisons"}
    assert set(found) == {"comparisons/pair", "comparisons/bad"}
    assert {node.group_name for node in found.values()} == {"comparisons"}
    parents = {key.to_user_string() for key in found["comparisons/pair"].parent_keys}
    assert parents == {"tiny/pretrained_64", "tiny_child/pretrained_64"}
    assert "is not the file's name bad" in str(found["comparisons/bad"].description)
    job = definitions("comparisons").resolve_job_def("comparisons")
    assert {key.to_user_string() for key in job.asset_layer.executable_asset_keys} == {"comparisons/pair"}
    for file in comparisons.iterdir():
        file.unlink()
    assert not any(key.path[0] == "comparisons" for key in definitions().resolve_asset_graph().get_all_asset_keys())
    only = definitions("tiny").resolve_asset_graph()
    assert {key.path[0] for key in only.get_all_asset_keys()} == {"tiny"}


def test_a_member_that_failed_its_checks_is_not_compared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_SETTINGS", str(world.folder / "settings.yaml"))
    record = trained(world, "tiny", 1.5, 0.8)
    failed = {"name": "loss_finite", "passed": False, "severity": "critical", "observed": "nan", "expected": "1"}
    body = {**record.body, "validation": {"suite_digest": "", "results": [failed]}}
    world.store.point("tiny", "pretrained_64", world.store.append(body))
    node = graph.comparison_nodes("pair")["pair"]
    with pytest.raises(ChainError, match="its input pretrained_64 failed loss_finite"):
        build(world.store, node)
    assert world.store.pointer("comparisons", "pair") is None


def test_what_a_recipe_can_have_follows_from_it() -> None:
    """A recipe that only fine-tunes has no held-out text, AX is predicted; other comparisons keep their digest."""
    columns = [
        {"name": "ppl", "title": "perplexity", "metric": "held_out.perplexity"},
        {"name": "ax", "title": "AX", "metric": "tasks.ax.test.matthews"},
        {"name": "mrpc", "title": "MRPC", "metric": "tasks.mrpc.dev.accuracy"},
    ]
    rows = [{"label": "one", "recipes": ["minilm", "bert_base"]}]
    told = {"name": "n", "title": "t", "columns": columns, "rows": rows}
    compared = Comparison.model_validate_json(json.dumps(told))
    recipes = load_recipes()
    assert "ax" in recipes.get("bert_base").finetuning.tasks
    node = graph.comparison_node(compared, lambda name: graph.nodes(recipes.get(name)))
    assert isinstance(node.config, ComparisonConfig) and node.config.only_fine_tune == ("minilm",)
    assert {name: source.path for name, source in node.inputs.items()} == {
        "bert_base/pretrained": "bert_base/pretrained_512",
        "bert_base/finetuned_ax": "bert_base/predicted_ax",
        "bert_base/finetuned_mrpc": "bert_base/finetuned_mrpc",
        "minilm/finetuned_mrpc": "minilm/finetuned_mrpc",
    }
    whole = Comparison.model_validate_json(json.dumps({**told, "rows": [{"label": "one", "recipes": ["bert_base"]}]}))
    node = graph.comparison_node(whole, lambda name: graph.nodes(recipes.get(name)))
    assert node.config.digest() == whole.digest() == node.declared
