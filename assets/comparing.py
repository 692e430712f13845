"""What `bert compare` answers: a comparison made from what its members have now, without writing anything."""

from typing import Any

from assets import graph
from assets.plan import SETTLED, plan
from assets.told import on_one_line
from model import comparison
from pipeline.build import needed, open_store
from pipeline.config import ComparisonConfig
from pipeline.errors import RecipeError
from pipeline.recipe import RESERVED


def compare(name: str) -> dict[str, Any]:
    """The table of comparisons/NAME, the assets that lie behind their recipes (`behind`) or were never made (`missing`), and
    where the published page is, if it is of today.

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
            behind.append({"asset": last.node.path, "why": last.why})
    current = need.answer if need.up_to_date else None
    html = store.content(current.stage, current.version) / "comparison.html" if current else None
    missing = [source.path for each, source in node.inputs.items() if each not in need.inputs]
    return {**found, "behind": behind, "missing": missing, "html": str(html) if html else None}


def compare_text(found: dict[str, Any]) -> str:
    """The table as it stands in a terminal."""
    lines = [on_one_line(found["title"]), *([on_one_line(found["description"])] if found["description"] else []), ""]
    lines += [comparison.text_table(found, on_one_line), "", *map(on_one_line, comparison.notes(found))]
    lines += [
        f"Older than its recipe: {b['asset']} ({on_one_line(b['why'])}) → bert run {b['asset']}"
        for b in found["behind"]
    ]
    lines += [f"To run one: bert run {found['missing'][0]}"] if found["missing"] else []
    page = found["html"] or f"bert run {RESERVED}/{found['name']}"
    return "\n".join([*lines, f"With plots: {page}"])
