"""What `bert compare` answers: a comparison made from what its members have now, without writing anything."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets import graph
from assets.commands.plan import ERROR, SETTLED, plan
from assets.commands.told import on_one_line
from model import comparison
from model.artifact import read_json
from model.tasks import NOT_RUN
from pipeline.build import Node, needed
from pipeline.config import ComparisonConfig
from pipeline.errors import RecipeError
from pipeline.recipe import RESERVED
from pipeline.store import open_store

SHOWN = 8
"""empty cells that a terminal names"""


def compare(name: str) -> dict[str, Any]:
    """The table of comparisons/NAME, the assets that lie behind their recipes (`behind`) or were never made (`missing`), why
    each cell is empty and what makes it (`empty`), and where the published page is, if it is of today.

    Raises RecipeError for an unknown or broken comparison, StoreError for content that is broken.
    """
    nodes = graph.comparison_nodes(name)
    if name not in nodes:  # "", which is all of them
        raise RecipeError("no comparison is named", f"Known: {', '.join(nodes)}.")
    node = nodes[name]
    assert isinstance(node.config, ComparisonConfig)
    store = open_store()
    need = needed(store, node)
    folders = {each: store.folder(record.stage, record.version) for each, record in need.inputs.items()}
    found = comparison.table(folders, node.config)
    behind = []
    for each in need.inputs:
        last = plan(store, graph.upstream(node.inputs[each]))[-1]
        if last.state not in SETTLED:
            todo = last.todo if last.state == ERROR else f"bert run {last.node.path}"
            behind.append({"asset": last.node.path, "why": last.why, "todo": todo})
    current = need.answer if need.up_to_date else None
    html = store.content(current.stage, current.version) / "comparison.html" if current else None
    missing = [source.path for each, source in node.inputs.items() if each not in need.inputs]
    empty = [
        _empty(node, folders, recipe, column.task)
        for recipe, column in dict.fromkeys(
            (recipe, column)
            for row in found["rows"]
            for column in node.config.columns
            for recipe in row["cells"][column.name]["not_run"]
        )
    ]
    empty = [each for number, each in enumerate(empty) if each not in empty[:number]]
    return {**found, "behind": behind, "missing": missing, "empty": empty, "html": str(html) if html else None}


def _empty(node: Node, folders: Mapping[str, Path], recipe: str, task: str | None) -> dict[str, str]:
    """Why a recipe has no number of a column, `what` is missing, and what makes it (`todo`)."""
    name = f"{recipe}/{'pretrained' if task is None else f'finetuned_{task}'}"
    source = node.inputs.get(name)
    if source is None:
        todo = f"Add {task} to finetuning.tasks of {recipe}, or leave {recipe} out of this comparison."
        return {"what": f"{recipe} has no task {task}", "why": "its recipe does not list it", "todo": todo}
    command = f"bert run {source.path}"
    if name not in folders:
        return {"what": source.path, "why": "never made", "todo": command}
    said = read_json(folders[name] / NOT_RUN)
    if said.get("failed"):
        return {"what": source.path, "why": f"it failed: {said['why']}", "todo": f"Mend it, then: {command}"}
    wants = f" It wants {', '.join(said['wants'])}." if said["wants"] else ""
    return {
        "what": source.path,
        "why": said["why"],
        "todo": f"{said.get('todo') or f'Name its files in {recipe}, finetuning.data.'}{wants} Then: {command}",
    }


def compare_text(found: dict[str, Any]) -> str:
    """The table as it stands in a terminal."""
    lines = [on_one_line(found["title"]), *([on_one_line(found["description"])] if found["description"] else []), ""]
    lines += [comparison.text_table(found, on_one_line), "", *map(on_one_line, comparison.notes(found))]
    lines += [
        f"Older than its recipe: {b['asset']} ({on_one_line(b['why'])}) → {on_one_line(b['todo'])}"
        for b in found["behind"]
    ]
    lines += [
        f"Missing: {each['what']} ({on_one_line(each['why'])}) → {on_one_line(each['todo'])}"
        for each in found["empty"][:SHOWN]
    ]
    more = len(found["empty"]) - SHOWN
    lines += [f"and {more} more (--json names them)"] if more > 0 else []
    page = found["html"] or f"bert run {RESERVED}/{found['name']}"
    return "\n".join([*lines, f"With plots: {page}"])
