"""The table of a comparison: numbers by hand, cells that are empty and say so, pages that escape."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from model import comparison
from pipeline.config import ComparisonConfig
from pipeline.errors import DataError


def pretrained(folder: Path, loss: float, accuracy: float, pairs: float | None) -> Path:
    folder.mkdir(parents=True)
    scores = {"mlm_loss": loss, "mlm_accuracy": accuracy, "nsp_accuracy": pairs, "step": 300}
    (folder / "held_out.json").write_text(json.dumps(scores), encoding="utf-8")
    return folder


def finetuned(folder: Path, accuracy: float) -> Path:
    folder.mkdir(parents=True)
    spread = {"median": accuracy, "lowest": accuracy, "highest": accuracy, "deviation": None, "count": 1}
    scores = {"summary": {"dev": {"accuracy": spread}, "test": None}}
    (folder / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
    return folder


def config_of(**changes: Any) -> ComparisonConfig:
    plain: dict[str, Any] = {
        "name": "sizes",
        "title": "Sizes",
        "source": "A paper, table 1",
        "columns": (
            {"name": "loss", "title": "loss", "metric": "held_out.mlm_loss", "digits": 3},
            {"name": "ppl", "title": "perplexity", "metric": "held_out.perplexity"},
            {"name": "pairs", "title": "pairs", "metric": "held_out.nsp_accuracy", "format": "points", "digits": 1},
            {"name": "mnli", "title": "MNLI", "metric": "tasks.mnli.dev.accuracy", "format": "points", "digits": 1},
        ),
        "rows": (
            {"label": "three seeds", "recipes": ("a1", "a2", "a3"), "published": {"ppl": 3.99, "mnli": 84.4}},
            {"label": "one of two", "recipes": ("b1", "b2")},
            {"label": "no pairs", "recipes": ("c",)},
            {"label": "never", "recipes": ("d",), "published": {"ppl": 3.23}},
            {"label": "paper only", "published": {"mnli": 82.1}},
        ),
    }
    return ComparisonConfig.model_validate(plain | changes)


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    at = tmp_path / "in"
    (at / "cola").mkdir(parents=True)
    (at / "cola" / "not_run.json").write_text("{}", encoding="utf-8")
    return {
        "a1/pretrained": pretrained(at / "a1", 2.0, 0.5, 0.81),
        "a2/pretrained": pretrained(at / "a2", 1.0, 0.6, 0.84),
        "a3/pretrained": pretrained(at / "a3", 1.5, 0.6, 0.9),
        "a1/finetuned_mnli": finetuned(at / "a1t", 0.8125),
        "a2/finetuned_mnli": finetuned(at / "a2t", 0.8375),
        "a3/finetuned_mnli": finetuned(at / "a3t", 0.8),
        "b1/pretrained": pretrained(at / "b1", 3.0, 0.1, 0.5),
        "b1/finetuned_mnli": at / "cola",
        "c/pretrained": pretrained(at / "c", 2.5, 0.2, None),
    }


def test_median_and_extremes_by_hand(inputs: dict[str, Path]) -> None:
    first = comparison.table(inputs, config_of())["rows"][0]["cells"]
    assert (first["loss"]["median"], first["loss"]["lowest"], first["loss"]["highest"]) == (1.5, 1.0, 2.0)
    assert first["loss"]["values"] == {"a1": 2.0, "a2": 1.0, "a3": 1.5}
    assert first["ppl"]["median"] == 4.48169  # e^1.5, six digits
    assert (first["ppl"]["lowest"], first["ppl"]["highest"]) == (2.71828, 7.38906)  # e, e²
    assert (first["pairs"]["median"], first["pairs"]["highest"]) == (84.0, 90.0)
    assert (first["mnli"]["median"], first["mnli"]["published"]) == (81.25, 84.4)


def test_a_column_of_other_recipes(inputs: dict[str, Path], tmp_path: Path) -> None:
    row = {"label": "three", "recipes": ("a1", "a2", "a3"), "instead": {"mnli": ("b1", "a2"), "loss": ()}}
    config = config_of(rows=(row,))
    assert config.recipes() == ("a1", "a2", "a3", "b1")
    (found,) = comparison.table(inputs, config)["rows"]
    assert found["cells"]["mnli"]["values"] == {"a2": 83.75} and found["cells"]["mnli"]["not_run"] == ["b1"]
    assert found["cells"]["loss"]["state"] == "published only", "none is named"
    assert found["cells"]["ppl"]["values"].keys() == {"a1", "a2", "a3"} and found["recipes"] == ["a1", "a2", "a3"]
    comparison.make_comparison(inputs, config, tmp_path)
    page = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    every = page.partition("<h2>Every run</h2>")[2]
    assert [name for name in ("a1", "a2", "a3", "b1") if f">{name}<" in every] == ["a1", "a2", "a3", "b1"]


@pytest.mark.parametrize(
    ("number", "told"), [(1234567.5, "1234567.5"), (0.12345678, "0.12345678"), (84.0, "84"), (3.99, "3.99")]
)
def test_a_published_number_stands_as_it_was_written(number: float, told: str) -> None:
    rows = ({"label": "paper", "published": {"loss": number}},)
    line = comparison.text_table(comparison.table({}, config_of(rows=rows))).splitlines()[2]
    assert [cell.strip() for cell in line.strip("│").split("│")][3] == told


def test_cells_that_were_not_run_are_empty_and_say_so(inputs: dict[str, Path]) -> None:
    found = comparison.table(inputs, config_of())
    states = {row["label"]: [cell["state"] for cell in row["cells"].values()] for row in found["rows"]}
    run, part, none, never, paper = "run", "run in part", "has none", "not run", "published only"
    assert states == {
        "three seeds": [run, run, run, run],
        "one of two": [part, part, part, never],  # b1's task had no files
        "no pairs": [run, run, none, never],
        "never": [never] * 4,
        "paper only": [paper] * 4,
    }
    assert comparison.not_run(found) == ["b2", "b1", "c", "d"]
    assert all(cell["median"] is None for cell in found["rows"][3]["cells"].values())


def test_the_table_in_characters(inputs: dict[str, Path]) -> None:
    lines = comparison.text_table(comparison.table(inputs, config_of())).splitlines()
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert cells[0] == ["", "seeds", "loss", "perplexity", "perplexity, published", "pairs", "MNLI", "MNLI, published"]
    assert cells[2:] == [
        [
            "three seeds",
            "3",
            "1.500 (1.000–2.000)",
            "4.48 (2.72–7.39)",
            "3.99",
            "84.0 (81.0–90.0)",
            "81.2 (80.0–83.8)",
            "84.4",
        ],
        ["one of two", "2", "3.000, 1 of 2 run", "20.09, 1 of 2 run", "", "50.0, 1 of 2 run", "not run", ""],
        ["no pairs", "1", "2.500", "12.18", "", "–", "not run", ""],
        ["never", "1", "not run", "not run", "3.23", "not run", "not run", ""],
        ["paper only", "", "", "", "", "", "", "82.1"],
    ]
    assert len({len(line) for line in lines}) == 1  # in line


def test_three_files_equal_bytes_and_nothing_from_elsewhere(inputs: dict[str, Path], tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        out = tmp_path / name
        out.mkdir()
        statistics = comparison.make_comparison(inputs, config_of(), out)
        made.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert made[0] == made[1]
    assert set(made[0]) == {"comparison.md", "comparison.html", "comparison.json"}
    assert statistics == {"rows": 5, "columns": 4, "cells": 16, "cells_not_run": 9, "not_run": "b2, b1, c, d"}
    page = made[0]["comparison.html"].decode()
    assert page.count("<svg") == 4
    assert "http" not in page.replace("http://www.w3.org/", "")
    assert "not run" in page
    text = made[0]["comparison.md"].decode()
    assert "Published: A paper, table 1." in text
    assert "Not run: b2, b1, c, d." in text


def test_what_people_write_is_escaped(inputs: dict[str, Path], tmp_path: Path) -> None:
    evil = '<script>alert("x")</script> $a_b$ | [c](d)'
    columns = ({"name": "loss", "title": evil, "metric": "held_out.mlm_loss"},)
    rows = ({"label": evil, "recipes": ("a1",), "published": {"loss": 1}},)
    config = config_of(title=evil, description=evil, source=evil, columns=columns, rows=rows)
    comparison.make_comparison(inputs, config, tmp_path)
    page = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    text = (tmp_path / "comparison.md").read_text(encoding="utf-8")
    assert "<script" not in text
    row = next(line for line in text.splitlines() if line.startswith("| &lt;"))
    assert row.replace("\\|", "").count("|") == 5  # label, runs, loss, published


def test_a_pipe_in_a_label_is_a_pipe_and_no_column(inputs: dict[str, Path]) -> None:
    rows = ({"label": "a | b", "recipes": ("a1",)},)
    found = comparison.table(inputs, config_of(rows=rows))
    terminal = comparison.text_table(found).splitlines()
    assert "a | b" in terminal[2] and len({line.count("│") for line in terminal}) == 1
    import markdown

    page = markdown.markdown(comparison.markdown(found), extensions=["tables"])
    assert "<td>a | b</td>" in page and page.count("<td") == page.count("<th>") + page.count("<th ")


def test_negative_numbers_are_told_apart_from_dashes(inputs: dict[str, Path]) -> None:
    for seed, value in (("a1", -0.6), ("a2", -0.25), ("a3", 0.1)):
        finetuned(inputs[f"{seed}/pretrained"].parent / f"{seed}_cola", value)
        inputs[f"{seed}/finetuned_cola"] = inputs[f"{seed}/pretrained"].parent / f"{seed}_cola"
    column = {"name": "cola", "title": "CoLA", "metric": "tasks.cola.dev.accuracy", "format": "points", "digits": 1}
    config = config_of(columns=(column,), rows=({"label": "three", "recipes": ("a1", "a2", "a3")},))
    found = comparison.table(inputs, config)
    assert comparison.shown(found["rows"][0]["cells"]["cola"], found["columns"][0]) == "−25.0 (−60.0 to 10.0)"


def test_nothing_run_at_all_makes_a_table_without_plots(tmp_path: Path) -> None:
    statistics = comparison.make_comparison({}, config_of(), tmp_path)
    assert statistics["cells_not_run"] == statistics["cells"] == 16
    assert "<svg" not in (tmp_path / "comparison.html").read_text(encoding="utf-8")


def test_a_loss_beyond_all_numbers_is_still_a_perplexity(tmp_path: Path) -> None:
    at = {"a1/pretrained": pretrained(tmp_path / "a1", 1e6, 0.0, None)}
    cell = comparison.table(at, config_of())["rows"][0]["cells"]["ppl"]
    assert math.isfinite(cell["median"])


def test_a_row_of_one_combination_of_a_grid(tmp_path: Path) -> None:
    folder = finetuned(tmp_path / "in", 0.9)
    scores = json.loads((folder / "scores.json").read_text())

    def tried(accuracy: float, **settings: Any) -> dict[str, Any]:
        return {"settings": settings, "summary": {"dev": {"accuracy": {"median": accuracy}}, "test": None}}

    variants = [tried(0.7, layers="last", epochs=2), tried(0.9, layers="embeddings", epochs=2)]
    (folder / "scores.json").write_text(json.dumps({**scores, "variants": variants}))
    columns = ({"name": "ner", "title": "NER", "metric": "tasks.mnli.dev.accuracy", "format": "points"},)

    def cells(**settings: Any) -> Any:
        rows = ({"label": "one", "recipes": ("a",), "settings": settings},)
        return comparison.table({"a/finetuned_mnli": folder}, config_of(columns=columns, rows=rows))["rows"][0]["cells"]

    assert [cells(layers=layers)["ner"]["median"] for layers in ("last", "embeddings")] == [70.0, 90.0]
    assert cells()["ner"]["median"] == 90.0
    # a grid that was trained before the recipe was changed: the cell says so, and the others are made
    rows = [{"label": label, "recipes": ("a",), "settings": {"layers": label}} for label in ("first", "last")]
    found = comparison.table({"a/finetuned_mnli": folder}, config_of(columns=columns, rows=tuple(rows)))
    told = [comparison.shown(row["cells"]["ner"], found["columns"][0]) for row in found["rows"]]
    assert told == ["settings do not fit", "70.00"]
    there_are = "(there are: layers last, epochs 2; layers embeddings, epochs 2)"
    no_fit = "Settings do not fit: first, NER: of the grid of a's task mnli, no combination has layers first"
    assert f"{no_fit} {there_are}." in comparison.notes(found)
    assert "2 combinations have epochs 2" in cells(epochs=2)["ner"]["more"][0]


def test_a_metric_that_the_task_lacks_and_a_broken_file_are_named(inputs: dict[str, Path]) -> None:
    columns = ({"name": "mnli", "title": "MNLI", "metric": "tasks.mnli.dev.f1"},)
    with pytest.raises(DataError, match="the task mnli has no metric f1") as error:
        comparison.table(inputs, config_of(columns=columns, rows=({"label": "a", "recipes": ("a1",)},)))
    assert "It has accuracy" in error.value.todo
    (inputs["a1/pretrained"] / "held_out.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"held_out\.json can't be read"):
        comparison.table(inputs, config_of())


def test_why_a_cell_has_no_number(inputs: dict[str, Path], tmp_path: Path) -> None:
    """A recipe that only fine-tunes has no perplexity, trained or not; AX has no dev part, and its answers are not public."""
    ax = tmp_path / "ax"
    ax.mkdir()
    (ax / "scores.json").write_text(json.dumps({"summary": {"test": None}}))
    columns = (
        {"name": "ppl", "title": "perplexity", "metric": "held_out.perplexity"},
        {"name": "test", "title": "AX", "metric": "tasks.ax.test.matthews"},
        {"name": "dev", "title": "AX dev", "metric": "tasks.ax.dev.matthews"},
    )
    rows = ({"label": "outside", "recipes": ("mini",)}, {"label": "both", "recipes": ("a1", "mini")})
    config = config_of(columns=columns, rows=rows, only_fine_tune=("mini",))
    found = comparison.table({**inputs, "mini/finetuned_ax": ax}, config)
    table = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in comparison.text_table(found).splitlines()
    ]
    assert table[2:] == [
        ["outside", "1", "does not pretrain", "answers not known", "no such part"],
        ["both", "2", "7.39, mini: does not pretrain", "not run", "not run"],
    ]
    assert comparison.not_run(found) == ["a1"]
    told = comparison.make_comparison({**inputs, "mini/finetuned_ax": ax}, config, tmp_path)
    assert told["cells_not_run"] == 2 and told["not_run"] == "a1"
    page, text = ((tmp_path / f"comparison.{ending}").read_text() for ending in ("html", "md"))
    for words in ("does not pretrain", "answers not known", "Does not pretrain: a recipe that only fine-tunes"):
        assert words in page and words in text
