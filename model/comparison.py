"""`comparisons/NAME`: numbers of several recipes side by side, beside published ones, as Markdown, HTML and JSON.

It reads what its members have now and runs nothing: a cell whose recipe was never trained is empty and says `not run`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model import metrics
from model.artifact import read_json, short, write_json
from model.reporting import pages
from model.reporting.isolated import isolated
from model.reporting.shown_numbers import decimal, interval
from model.tasks import NOT_RUN
from pipeline.config import ComparisonColumn, ComparisonConfig, ComparisonRow
from pipeline.errors import DataError
from pipeline.stage import Stage

STAGE = Stage(
    name="comparison",
    function="model.comparison:make_comparison",
    version="5",  # 4: negative spreads, isolated texts, cells that say why they are empty; 5: columns of other recipes
    libraries=("matplotlib",),
    sources=(
        "model/comparison.py",
        "model/reporting/report_plots.py",
        "model/reporting/shown_numbers.py",
        "model/reporting/pages.py",
        "model/reporting/isolated.py",
        "model/reporting/templates/comparison.*.j2",
        "model/reporting/templates/style.css.j2",
        "model/metrics.py",
        "model/artifact.py",
    ),
)

RUN, IN_PART, NOT_MADE, NONE, PUBLISHED_ONLY = "run", "run in part", "not run", "has none", "published only"
"""States of a cell. `has none`: there is no such number, as next sentences of a model that never saw pairs; `why` says it."""
NO_SUCH, NO_PRETRAINING, NO_ANSWERS, NO_PART, NO_FIT = (
    *("no such number", "does not pretrain", "answers not known", "no such part", "settings do not fit"),
)
"""Why there is none."""


def make_comparison(inputs: Mapping[str, Path], config: ComparisonConfig, out: Path) -> dict[str, Any]:
    """Write comparison.md, comparison.html and comparison.json.

    inputs: `RECIPE/pretrained`, of the last phase, and `RECIPE/finetuned_T` (or what predicts T), as far as they are there.

    Raises:
        DataError: an input lacks a file, or the number that a column asks for.
    """
    found = table(inputs, config)
    write_json(out / "comparison.json", found)
    pages.write(out / "comparison.md", markdown(found))
    told = {"notes": notes(found, isolated), "plots": _plots(found), **_lines(found, isolated)}
    page = pages.render("comparison.html.j2", {"decimal": decimal, "missing": _dashed}, **found, **told)
    pages.write(out / "comparison.html", page)
    return _statistics(found)


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def table(inputs: Mapping[str, Path], config: ComparisonConfig) -> dict[str, Any]:
    """The comparison as JSON values. Of each cell: its state, the value of every recipe, their median, lowest and
    highest, why recipes that were run have none, and what was published; numbers in the unit that the column shows.
    Raises DataError."""
    columns = [
        {**column.plain(), "published": any(column.name in row.published for row in config.rows)}
        for column in config.columns
    ]
    rows = [
        {
            "label": row.label,
            "recipes": list(row.recipes),
            "everyone": list(row.everyone()),
            "cells": {column.name: _cell(inputs, row, column, config.only_fine_tune) for column in config.columns},
        }
        for row in config.rows
    ]
    told = {name: getattr(config, name) for name in ("name", "title", "description", "source")}
    return {**told, "columns": columns, "rows": rows}


@dataclass(frozen=True)
class _Missing:
    """Why there is no number."""

    why: str
    """one of NO_…, or NOT_MADE"""
    more: str = ""


def _cell(
    inputs: Mapping[str, Path], row: ComparisonRow, column: ComparisonColumn, only_fine_tune: Sequence[str]
) -> dict[str, Any]:
    asked = {recipe: _value(inputs, recipe, row, column, recipe in only_fine_tune) for recipe in row.of(column.name)}
    missing = {recipe: value for recipe, value in asked.items() if isinstance(value, _Missing)}
    not_run = [recipe for recipe, each in missing.items() if each.why == NOT_MADE]
    values = {recipe: value for recipe, value in asked.items() if not isinstance(value, _Missing)}
    if not asked:
        state = PUBLISHED_ONLY
    elif values:
        state = IN_PART if not_run else RUN
    else:
        state = NOT_MADE if not_run else NONE
    spread = metrics.spread(list(values.values())) if values else None
    return {
        "state": state,
        "median": short(spread.median) if spread else None,
        "lowest": spread.lowest if spread else None,
        "highest": spread.highest if spread else None,
        "values": values,
        "not_run": not_run,
        "why": {recipe: each.why for recipe, each in missing.items() if each.why != NOT_MADE},
        "more": list(dict.fromkeys(each.more for each in missing.values() if each.more)),
        "published": row.published.get(column.name),
    }


def _value(
    inputs: Mapping[str, Path], recipe: str, row: ComparisonRow, column: ComparisonColumn, only_fine_tunes: bool
) -> float | _Missing:
    """A recipe's number, as the column shows it."""
    if column.task is None and only_fine_tunes:
        return _Missing(NO_PRETRAINING)
    folder = inputs.get(f"{recipe}/pretrained" if column.task is None else f"{recipe}/finetuned_{column.task}")
    if folder is None or (folder / NOT_RUN).exists():
        return _Missing(NOT_MADE)
    value = _held_out(folder, column) if column.task is None else _score(folder, recipe, row, column)
    if isinstance(value, _Missing):
        return value
    return short(100 * value if column.format == "points" else value)


def _held_out(folder: Path, column: ComparisonColumn) -> float | _Missing:
    scores, name = read_json(folder / "held_out.json"), column.metric.split(".")[1]
    perplexity = name == "perplexity"
    value: float | None = scores.get("mlm_loss" if perplexity else name)
    if value is None:
        return _Missing(NO_SUCH)
    # a loss of 700 nats is far above that of guessing, and e^710 is no number any more
    return math.exp(min(value, 700.0)) if perplexity else value


def _score(folder: Path, recipe: str, row: ComparisonRow, column: ComparisonColumn) -> float | _Missing:
    """Median of the seeds of a fine-tuning."""
    _, _, part, name = column.metric.split(".")
    scores = read_json(folder / "scores.json")
    tried: Mapping[str, Any] = scores
    if row.settings:
        variants = scores.get("variants", [])
        found, wrong = row.fitting([each["settings"] for each in variants])
        if wrong:
            return _Missing(
                NO_FIT, f"{row.label}, {column.title}: of the grid of {recipe}'s task {column.task}, {wrong}"
            )
        tried = variants[found]
    if part not in tried["summary"]:
        return _Missing(NO_PART)
    summary = tried["summary"][part]
    if summary is None:
        return _Missing(NO_ANSWERS)
    if name not in summary:
        raise DataError(
            f"column {column.name}: the task {column.task} has no metric {name}",
            f"It has {', '.join(sorted(summary))}.",
        )
    value: float = summary[name]["median"]
    return value


# ── as text ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(cell: Mapping[str, Any], column: Mapping[str, Any]) -> str:
    """A cell in characters: the median and, of several runs, lowest and highest; or why there is none."""
    if cell["state"] in (NOT_MADE, PUBLISHED_ONLY):
        return NOT_MADE if cell["state"] == NOT_MADE else ""
    if cell["state"] == NONE:
        return ", ".join(dict.fromkeys(map(_dashed, cell["why"].values())))
    digits = column["digits"]
    text = decimal(cell["median"], digits)
    if len(cell["values"]) > 1:
        text += f" ({interval(cell['lowest'], cell['highest'], digits)})"
    if cell["state"] == IN_PART:
        text += f", {len(cell['values'])} of {len(cell['values']) + len(cell['not_run'])} run"
    if cell["why"]:
        text += "".join(f", {recipe}: {_dashed(why)}" for recipe, why in cell["why"].items())
    return text


def _dashed(why: str | None) -> str:
    return "–" if why in (None, NO_SUCH) else str(why)


def _lines(found: Mapping[str, Any], apart: Callable[[str], str] = str) -> dict[str, list[list[str]]]:
    """`heads` and `lines` of the table: a column of our numbers and, where there are any, one of published ones.

    apart: applied to a title that more is said behind.
    """
    heads, lines = ["", "seeds"], [[row["label"], str(len(row["recipes"]) or "")] for row in found["rows"]]
    for column in found["columns"]:
        heads.append(column["title"])
        for line, row in zip(lines, found["rows"], strict=True):
            line.append(shown(row["cells"][column["name"]], column))
        if column["published"]:
            heads.append(f"{apart(column['title'])}, published")
            for line, row in zip(lines, found["rows"], strict=True):
                published = row["cells"][column["name"]]["published"]
                line.append("" if published is None else f"{published:.15g}")
    return {"heads": [heads], "lines": lines}


def text_table(
    found: Mapping[str, Any],
    escape: Callable[[str], str] = str,
    line: str = "│",
    apart: Callable[[str], str] = str,
) -> str:
    """The table with its columns in line; `escape` is applied to every cell.

    `line` stands between two columns: | makes it a table of Markdown, where `escape` has to see to a | inside a cell. `apart` is
    applied to text from outside that more is said behind.
    """
    told = _lines(found, apart)
    cells = [[escape(text) for text in texts] for texts in (*told["heads"], *told["lines"])]
    widths = [max(3, *(len(texts[place]) for texts in cells)) for place in range(len(cells[0]))]

    def row(texts: Sequence[str]) -> str:
        numbers = (text.rjust(width) for text, width in zip(texts[1:], widths[1:], strict=True))
        return f"{line} {f' {line} '.join([texts[0].ljust(widths[0]), *numbers])} {line}"

    right = [f"{'-' * (width + 1)}:" for width in widths[1:]]
    rule = f"{line}{line.join(['-' * (widths[0] + 2), *right])}{line}"
    return "\n".join([row(cells[0]), rule, *map(row, cells[1:])])


def markdown(found: Mapping[str, Any]) -> str:
    """comparison.md."""
    parts = [f"# {pages.escape_markdown(found['title'])}"]
    parts += [pages.escape_markdown(found["description"])] if found["description"] else []
    parts += [text_table(found, pages.escape_markdown, "|", isolated)]
    parts += map(pages.escape_markdown, notes(found, isolated))
    return "\n\n".join(parts)


def notes(found: Mapping[str, Any], apart: Callable[[str], str] = str) -> list[str]:
    """What the table's signs mean, where the published numbers come from, and what was not run. apart: as in `text_table`."""
    cells = [cell for row in found["rows"] for cell in row["cells"].values()]
    told = []
    if any(len(cell["values"]) > 1 for cell in cells):
        told.append("Of several runs, which differ in their seed: the median, and in brackets lowest and highest.")
    whys = {why for cell in cells for why in cell["why"].values()}
    if NO_SUCH in whys:
        told.append("–: the model has no such number.")
    if NO_PRETRAINING in whys:
        told.append("Does not pretrain: a recipe that only fine-tunes a model made elsewhere has no held-out text.")
    if NO_ANSWERS in whys:
        told.append("Answers not known: the test part is predicted, but its labels are not public.")
    if NO_FIT in whys:
        fits = "; ".join(apart(more) for cell in cells for more in cell["more"])
        told.append(f"Settings do not fit: {fits}.")
    if any(column["published"] for column in found["columns"]) and found["source"]:
        told.append(f"Published: {apart(found['source'])}.")
    left = not_run(found)
    if left:
        told.append(f"Not run: {', '.join(left)}.")
    return told


def not_run(found: Mapping[str, Any]) -> list[str]:
    """Recipes with a number that is missing, in the table's order."""
    return list(
        dict.fromkeys(name for row in found["rows"] for cell in row["cells"].values() for name in cell["not_run"])
    )


def _plots(found: Mapping[str, Any]) -> list[Any]:
    """A plot of each column that has numbers."""
    from markupsafe import Markup

    from model.reporting import report_plots

    plots = []
    for column in found["columns"]:
        cells = [(row["label"], row["cells"][column["name"]]) for row in found["rows"]]
        drawn = [
            {**cell, "title": label, "values": list(cell["values"].values()), "shown": shown(cell, column)}
            for label, cell in cells
            if cell["values"] or cell["published"] is not None
        ]
        if any(cell["values"] for _, cell in cells):
            plots.append(Markup(report_plots.bars(column["name"], column["title"], drawn)))
    return plots


def _statistics(found: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that the UI draws over time, and how much was run."""
    cells = [cell for row in found["rows"] for cell in row["cells"].values() if cell["state"] != PUBLISHED_ONLY]
    return {
        "rows": len(found["rows"]),
        "columns": len(found["columns"]),
        "cells": len(cells),
        "cells_not_run": sum(cell["state"] in (NOT_MADE, IN_PART) for cell in cells),
        "not_run": ", ".join(not_run(found)),
    }
