"""`comparisons/NAME`: numbers of several recipes side by side, beside published ones, as Markdown, HTML and JSON.

It reads what its members have now and runs nothing: a cell whose recipe was never trained is empty and says `not run`.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from model import lines, metrics, pages
from model.imported import TOLD as IMPORTED
from model.tasks import NOT_RUN
from pipeline.config import Comparison, ComparisonColumn, ComparisonRow
from pipeline.errors import DataError
from pipeline.stage import Stage

STAGE = Stage(
    name="comparison",
    function="model.comparison:make_comparison",
    version="3",  # 3: wider pages
    libraries=("matplotlib",),
    sources=(
        "model/comparison.py",
        "model/report_plots.py",
        "model/pages.py",
        "model/report_templates/comparison.*.j2",
        "model/report_templates/style.css.j2",
        "model/metrics.py",
        "model/lines.py",
    ),
)

RUN, IN_PART, NOT_MADE, NONE, PUBLISHED_ONLY = "run", "run in part", "not run", "has none", "published only"
"""States of a cell. `has none`: the model has no such number, as next sentences of one that never saw pairs."""


def make_comparison(inputs: Mapping[str, Path], config: Comparison, out: Path) -> dict[str, Any]:
    """Write comparison.md, comparison.html and comparison.json.

    inputs: `RECIPE/pretrained` (of the last phase; of a recipe that only fine-tunes, its `imported_checkpoint`) and
    `RECIPE/finetuned_T`, as far as they are there.

    Raises:
        DataError: an input lacks a file, or the number that a column asks for.
    """
    found = table(inputs, config)
    pages.write(out / "comparison.json", json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False))
    pages.write(out / "comparison.md", markdown(found))
    told = {"notes": notes(found), "plots": _plots(found), **_lines(found)}
    page = pages.render("comparison.html.j2", {}, **found, **told)
    pages.write(out / "comparison.html", page)
    return _statistics(found)


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def table(inputs: Mapping[str, Path], config: Comparison) -> dict[str, Any]:
    """The comparison as JSON values. Of each cell: its state, the value of every recipe, their median, lowest and
    highest, and what was published; numbers in the unit that the column shows. Raises DataError."""
    columns = [
        {**column.plain(), "published": any(column.name in row.published for row in config.rows)}
        for column in config.columns
    ]
    rows = [
        {
            "label": row.label,
            "recipes": list(row.recipes),
            "cells": {column.name: _cell(inputs, row, column) for column in config.columns},
        }
        for row in config.rows
    ]
    told = {name: getattr(config, name) for name in ("name", "title", "description", "source")}
    return {**told, "columns": columns, "rows": rows}


def _cell(inputs: Mapping[str, Path], row: ComparisonRow, column: ComparisonColumn) -> dict[str, Any]:
    asked = {recipe: _value(inputs, recipe, row, column) for recipe in row.recipes}
    not_run = [recipe for recipe, (there, _) in asked.items() if not there]
    values = {recipe: value for recipe, (_, value) in asked.items() if value is not None}
    if not row.recipes:
        state = PUBLISHED_ONLY
    elif values:
        state = IN_PART if not_run else RUN
    else:
        state = NOT_MADE if not_run else NONE
    spread = metrics.spread(list(values.values())) if values else None
    return {
        "state": state,
        "median": lines.short(spread.median) if spread else None,
        "lowest": spread.lowest if spread else None,
        "highest": spread.highest if spread else None,
        "values": values,
        "not_run": not_run,
        "published": row.published.get(column.name),
    }


def _value(
    inputs: Mapping[str, Path], recipe: str, row: ComparisonRow, column: ComparisonColumn
) -> tuple[bool, float | None]:
    """(whether the recipe has run it, its number or None where its model has none)."""
    folder = inputs.get(f"{recipe}/pretrained" if column.task is None else f"{recipe}/finetuned_{column.task}")
    if folder is None or (folder / NOT_RUN).exists():
        return False, None
    value = _held_out(folder, column) if column.task is None else _score(folder, row, column)
    if value is None:
        return True, None
    return True, lines.short(100 * value if column.format == "points" else value)


def _held_out(folder: Path, column: ComparisonColumn) -> float | None:
    if (folder / IMPORTED).exists():
        return None  # made elsewhere: there is no held-out text
    scores, name = lines.read_json(folder / "held_out.json"), column.metric.split(".")[1]
    if name == "perplexity":
        loss = scores.get("mlm_loss")
        # a loss of 700 nats is far above that of guessing, and e^710 is no number any more
        return None if loss is None else math.exp(min(loss, 700.0))
    value: float | None = scores.get(name)
    return value


def _score(folder: Path, row: ComparisonRow, column: ComparisonColumn) -> float | None:
    """Median of the seeds of a fine-tuning; None where the part's labels are not known."""
    _, _, part, name = column.metric.split(".")
    scores = lines.read_json(folder / "scores.json")
    tried = _variant(scores, row, column) if row.settings else scores
    summary = tried["summary"].get(part)  # of a task that is only a test set there is no dev
    if summary is None:
        return None
    if name not in summary:
        raise DataError(
            f"column {column.name}: the task {column.task} has no metric {name}",
            f"It has {', '.join(sorted(summary))}.",
        )
    value: float | None = summary[name]["median"]
    return value


def _variant(scores: Mapping[str, Any], row: ComparisonRow, column: ComparisonColumn) -> Mapping[str, Any]:
    """The one combination of the grid that has the row's settings. DataError where there is none, or more than one."""
    tried: list[Mapping[str, Any]] = scores.get("variants", [])
    found = [each for each in tried if row.settings.items() <= each["settings"].items()]
    if len(found) != 1:
        told = "; ".join(", ".join(f"{k} {v}" for k, v in each["settings"].items()) for each in tried[:20])
        raise DataError(
            f"row {row.label}: {len(found) or 'no'} combinations of the grid of task {column.task} have "
            f"{', '.join(f'{k} {v}' for k, v in row.settings.items())}",
            f"There are: {told or 'none'}.",
        )
    return found[0]


# ── as text ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(cell: Mapping[str, Any], column: Mapping[str, Any]) -> str:
    """A cell in characters: the median and, of several runs, lowest and highest; or why there is none."""
    if cell["state"] in (NOT_MADE, NONE, PUBLISHED_ONLY):
        return {NOT_MADE: NOT_MADE, NONE: "–", PUBLISHED_ONLY: ""}[cell["state"]]
    digits = column["digits"]
    text = f"{cell['median']:.{digits}f}"
    if len(cell["values"]) > 1:
        text += f" ({cell['lowest']:.{digits}f}–{cell['highest']:.{digits}f})"
    if cell["state"] == IN_PART:
        text += f", {len(cell['values'])} of {len(cell['values']) + len(cell['not_run'])} run"
    return text


def _lines(found: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """`heads` and `lines` of the table: a column of our numbers and, where there are any, one of published ones."""
    heads, lines = ["", "seeds"], [[row["label"], str(len(row["recipes"]) or "")] for row in found["rows"]]
    for column in found["columns"]:
        heads.append(column["title"])
        for line, row in zip(lines, found["rows"], strict=True):
            line.append(shown(row["cells"][column["name"]], column))
        if column["published"]:
            heads.append(f"{column['title']}, published")
            for line, row in zip(lines, found["rows"], strict=True):
                published = row["cells"][column["name"]]["published"]
                line.append("" if published is None else f"{published:.15g}")
    return {"heads": [heads], "lines": lines}


def text_table(found: Mapping[str, Any], escape: Callable[[str], str] = str) -> str:
    """The table in Markdown's form, its columns in line; `escape` is applied to every cell."""
    told = _lines(found)
    cells = [[escape(text) for text in line] for line in (*told["heads"], *told["lines"])]
    widths = [max(3, *(len(line[place]) for line in cells)) for place in range(len(cells[0]))]

    def row(line: Sequence[str]) -> str:
        numbers = (text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True))
        return f"| {' | '.join([line[0].ljust(widths[0]), *numbers])} |"

    rule = f"|{'-' * (widths[0] + 2)}|{'|'.join('-' * (width + 1) + ':' for width in widths[1:])}|"
    return "\n".join([row(cells[0]), rule, *map(row, cells[1:])])


def markdown(found: Mapping[str, Any]) -> str:
    """comparison.md."""
    parts = [f"# {pages.escape_markdown(found['title'])}"]
    parts += [pages.escape_markdown(found["description"])] if found["description"] else []
    parts += [text_table(found, pages.escape_markdown), *map(pages.escape_markdown, notes(found))]
    return "\n\n".join(parts)


def notes(found: Mapping[str, Any]) -> list[str]:
    """What the table's signs mean, where the published numbers come from, and what was not run."""
    cells = [cell for row in found["rows"] for cell in row["cells"].values()]
    told = []
    if any(len(cell["values"]) > 1 for cell in cells):
        told.append("Of several runs, which differ in their seed: the median, and in brackets lowest and highest.")
    if any(cell["state"] == NONE for cell in cells):
        told.append("–: the model has no such number.")
    if any(column["published"] for column in found["columns"]) and found["source"]:
        told.append(f"Published: {found['source']}.")
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

    from model import report_plots

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
