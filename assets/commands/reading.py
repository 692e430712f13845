"""What the reading commands of `bert` answer, as plain values and as text. From records and manifests alone: Dagster's
database may be gone, and the store may be read-only.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer import style

from assets import graph
from assets.commands import promoting
from assets.commands.named import current
from assets.commands.plan import CLEARED, ERROR, KNOWN, MAY_RUN, UP_TO_DATE, WILL_RUN, plan
from assets.commands.rails import drawn
from assets.commands.told import on_one_line, once
from model.release import SENTENCE_VECTORS
from pipeline import retrain, units
from pipeline.build import Node, usable
from pipeline.config import Comparison
from pipeline.errors import RecipeError, StoreError
from pipeline.recipe import RESERVED
from pipeline.recipes import rehearsal
from pipeline.settings import settings
from pipeline.storage import failures
from pipeline.store import Record, Store, open_store
from pipeline.system import owners

Plain = dict[str, Any]


def status(
    nodes: Mapping[str, Node], forced: Sequence[str] = (), target: str = "", wanted: Sequence[str] = ()
) -> Plain:
    """State of each asset, why, and what it is now; `target` is what was asked for, if not the whole recipe; `wanted`: assets
    whose content has to be there."""
    store = open_store()
    rows: list[Plain] = []
    for planned in plan(store, nodes, forced, wanted):
        record = _pointer(store, planned.node)
        rows.append(
            {
                "asset": planned.node.name,
                "reads": [source.name for source in planned.node.inputs.values() if source.name in nodes],
                "state": planned.state,
                "why": planned.why,
                "todo": planned.todo,
                "failure": failures.last(store.home, planned.node.recipe, planned.node.name)
                if planned.needs_step
                else None,
                "version": record.version if record else None,
                **_facts(store, record),
            }
        )
    recipe = next(iter(nodes.values())).recipe
    in_use = promoting.in_use(store, recipe)
    return {
        "recipe": recipe,
        "target": target or recipe,
        "forced": list(forced),
        "champion": in_use,
        "made_now_by": owners.holder(run_lock(store.home, recipe)),
        "assets": rows,
    }


def run_lock(home: Path, recipe: str) -> Path:
    """What `bert run RECIPE` holds as long as it runs."""
    return home / "locks" / f"run-{recipe}"


def _pointer(store: Store, node: Node) -> Record | None:
    return store.pointer(node.recipe, node.name)


def _facts(store: Store, record: Record | None) -> Plain:
    if record is None:
        return {"size_bytes": None, "finished": None, "failed_checks": []}
    try:
        size = store.size_bytes(record)
    except StoreError:
        size = None
    return {"size_bytes": size, "finished": record.body["finished"], "failed_checks": usable(record)}


FAILED = "failed"
_MARKS = {UP_TO_DATE: "✓", KNOWN: "✓", CLEARED: "✓", WILL_RUN: "▸", MAY_RUN: "·", ERROR: "✗", FAILED: "✗"}


_COLOURS = {UP_TO_DATE: "green", KNOWN: "green", CLEARED: "green", WILL_RUN: "yellow", ERROR: "red", FAILED: "red"}


def status_text(found: Plain) -> str:
    """The graph, a line per asset: state, version, size, age, and why; below it, why it failed the last time. With colours, for
    those that can show them."""
    width = max(len(row["asset"]) for row in found["assets"])
    rows = {row["asset"]: row for row in found["assets"]}
    lines = []
    for name, rails in drawn({name: row["reads"] for name, row in rows.items()}):
        row = rows[name]
        shown = FAILED if row["failure"] else row["state"]  # the run that is next may fail as the last one did
        rail = rails.replace("*", style(_MARKS[shown], fg=_COLOURS.get(shown)))
        state = style(f"{shown:10}", fg=_COLOURS.get(shown))
        version = row["version"][:12] if row["version"] else "–"
        size = units.short_size(row["size_bytes"]) if row["size_bytes"] is not None else "–"
        why = f"  {on_one_line(row['why'])}" if row["why"] else ""
        lines.append(
            f"{rail} {row['asset']:{width}}  {state}  {version:12}  {size:>8}  {units.age(row['finished']):>8}{why}"
        )
        failure, more = row["failure"], []
        if row["todo"]:  # says what is wrong now
            more = [f"→ {on_one_line(row['todo'])}"]
        elif failure:
            more = [f"{units.age(failure['time'])} ago: {on_one_line(failure['what'])}"]
            more += [f"→ {on_one_line(failure['todo'])}"] if failure["todo"] else []
        lines += [f"{'':{len(rails) + width + 3}}{line}" for line in more]
    of_rows = [FAILED if row["failure"] else row["state"] for row in found["assets"]]
    count = {state: of_rows.count(state) for state in _MARKS}
    told = ", ".join(f"{number} {state}" for state, number in count.items() if number)
    command = f"bert run {found['target']}{' --force' if found['forced'] else ''}"
    following = "" if count[UP_TO_DATE] + count[CLEARED] == len(found["assets"]) else f"  Next: {command}"
    if count[FAILED]:
        following = f"  Next: mend what failed, then {command}"
    champion = promoting.in_use_text(found["champion"])
    lines.append(f"\n{found['recipe']}: {told}.{following}")
    if found["made_now_by"]:
        lines.append(
            f"It is being made now, by {found['made_now_by']}; `bert run {found['target']}` shows how far it is."
        )
    return "\n".join([*lines, *([champion] if champion else [])])


def overview() -> Plain:
    """Every recipe with its number of assets and of those that were ever made, and every recipe that can't be used."""
    loaded, store = graph.load(), open_store()
    folder = settings().recipes_path
    if not loaded.recipes and not loaded.errors:
        raise RecipeError(f"{folder} holds no recipes", "Name their folder: recipes in settings.yaml.")
    known, broken = dict(loaded.recipes), dict(loaded.errors)
    for base in [each for each in rehearsal.rehearsed(store.home) if each in loaded.recipes]:
        name = f"{base}{rehearsal.SUFFIX}"
        try:
            known[name] = graph.rehearsal_of(loaded.recipes[base])
        except RecipeError as error:
            broken[name] = error
    recipes = []
    graphs = {name: graph.nodes(retrain.widest(recipe)) for name, recipe in sorted(known.items())}
    for name, nodes in graphs.items():
        made = [node for node in nodes.values() if _pointer(store, node)]
        recipes.append(
            {"recipe": name, "assets": len(nodes), "made": len(made), "description": known[name].description}
        )
    errors = [{"recipe": name, "error": e.what, "todo": e.todo} for name, e in sorted(broken.items())]
    compared = graph.load_compared(loaded)
    comparisons = [_compared(store, each, graphs) for each in compared.found.values()]
    errors += [
        {"recipe": f"{RESERVED}/{n}", "error": e.what, "todo": e.todo} for n, e in sorted(compared.errors.items())
    ]
    return {"recipes": recipes, "comparisons": comparisons, "errors": errors}


def _compared(store: Store, compared: Comparison, graphs: Mapping[str, Mapping[str, Node]]) -> Plain:
    """A comparison, with the number of its members and of those that were ever trained."""
    node = graph.comparison_node(compared, graphs.__getitem__)
    there = [source.recipe for source in node.inputs.values() if _pointer(store, source)]
    members = compared.recipes()
    return {
        "comparison": compared.name,
        "members": len(members),
        "run": len(set(there)),
        "made": _pointer(store, node) is not None,
        "title": compared.title,
    }


def overview_text(found: Plain) -> str:
    """A line per recipe and comparison."""
    names = [*(r["recipe"] for r in found["recipes"]), *(c["comparison"] for c in found["comparisons"])]
    width = max(20, *map(len, names)) if names else 20
    lines: list[str] = []
    for begun in (True, False):  # what somebody works with stands first
        part = [recipe for recipe in found["recipes"] if bool(recipe["made"]) == begun]
        if part and not begun:
            lines += ["", "never run:"] if lines else ["none of these was run yet:"]
        lines += [
            f"{r['recipe']:{width}} {r['made']:3} of {r['assets']:3} assets made   {r['description']}" for r in part
        ]
    lines += ["", "comparisons:"] if found["comparisons"] else []
    lines += [
        f"{c['comparison']:{width}} {c['run']:3} of {c['members']:3} recipes run   {c['title']}"
        for c in found["comparisons"]
    ]
    for (error, todo), names in once((e["recipe"], e["error"], e["todo"]) for e in found["errors"]).items():
        lines += [f"✗ {', '.join(names)}: {error}\n  → {todo}"]
    return "\n".join([*lines, "\nNext: bert status RECIPE · bert run RECIPE · bert compare NAME"])


def published(recipe: str, asset: str) -> Path:
    """The verified folder of an asset's current version. Raises RecipeError when it was never made."""
    store = open_store()
    record = current(store, f"{recipe}/{asset}")
    return store.folder(record.stage, record.version)


def fill_mask_text(found: Plain) -> str:
    """Each guess filled in, with its probability; and what the model is not for."""
    lines = [found["text"]]
    for mask in found["masks"]:
        lines += [f"  {guess['probability']:6.1%}  {guess['token']}" for guess in mask]
    return "\n".join([*lines, "", SENTENCE_VECTORS])
