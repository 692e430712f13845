"""`bert run R --sample SHARE`: the rehearsal of a recipe, and what it says of the whole."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline import documents, shards, units, vocabulary
from pipeline.build import Node
from pipeline.errors import RecipeError, StoreError
from pipeline.recipe import RESERVED
from pipeline.recipes import rehearsal
from pipeline.store import Record, Store, open_store

IN_PROPORTION = (documents.STAGE.name, vocabulary.STAGE.name, shards.STAGE.name)
"""stages after the texts that take about as much longer as there is more text"""
Plain = dict[str, Any]


def target(path: str, share: float, dump: str | None) -> str:
    """`R@sample/ASSET` for `R/ASSET`. RecipeError for a share that is none, and for what can't be rehearsed."""
    recipe, slash, asset = path.partition("/")
    if not 0 < share < 1:
        raise RecipeError(
            f"--sample {share:g} is not a share", f"A share lies above 0 and below 1: bert run {path} --sample 0.001"
        )
    if recipe == RESERVED:
        raise RecipeError("comparisons train nothing that could be rehearsed", "bert run RECIPE --sample 0.001")
    if dump is not None:
        raise RecipeError("--sample and --dump don't go together: a rehearsal is no retrain", "Leave one of them out.")
    return f"{rehearsal.base_of(recipe)}{rehearsal.SUFFIX}{slash}{asset}"


def remember(recipe: str, share: float) -> None:
    """Note the share of `R@sample`, for those who come later."""
    rehearsal.remember(open_store().home, rehearsal.base_of(recipe), share)


def whole(store: Store, nodes: Mapping[str, Node]) -> list[Plain]:
    """Of every stage over text: seconds and bytes in the rehearsal, and in proportion those of the whole. What the rehearsal did
    not make itself, or of which it read everything, is left out."""
    found, documents_here, documents_there = [], 0, 0.0
    for name, node in nodes.items():
        record = store.pointer(node.recipe, name)
        if record is None:
            continue
        share = record.body["statistics"].get("sample_share")
        if share and name.endswith("_text"):
            count = record.body["statistics"]["row_count"]
            documents_here, documents_there = documents_here + count, documents_there + count / share
        elif documents_here and node.stage.name in IN_PROPORTION:
            share = documents_here / documents_there
        else:
            continue
        if share < 1 and record.body["reused"] is None:
            found.append(_in_proportion(store, name, record, share))
    return found


def _in_proportion(store: Store, name: str, record: Record, share: float) -> Plain:
    try:
        size = store.size_bytes(record)
    except StoreError:
        size = 0
    grows = record.stage != vocabulary.STAGE.name  # counting words takes longer; the vocabulary is as large
    return {
        "asset": name,
        "share": share,
        "seconds": record.seconds,
        "size_bytes": size,
        "whole_seconds": record.seconds / share,
        "whole_size_bytes": size / share if grows else size,
    }


def whole_text(rows: Sequence[Plain], recipe: str) -> str:
    """A line per stage, and what none of them tells."""
    base = rehearsal.base_of(recipe)
    training = f"How long {base} would train: bert run {base} --dry-run"
    if not rows:
        return f"\nAll text of {base} was read: a smaller share would not be faster. {training}"
    width = max(len(row["asset"]) for row in rows)
    lines = [
        f"  {row['asset']:{width}}  {units.duration(row['seconds']):>7} {units.size(row['size_bytes']):>9}  → about "
        f"{units.duration(row['whole_seconds'])}, {units.size(row['whole_size_bytes'])}"
        for row in rows
    ]
    return "\n".join([f"\nThe whole of {base}, in proportion to its text, on this machine:", *lines, training])
