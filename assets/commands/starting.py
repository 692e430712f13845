"""What `bert new` does and says: a recipe for somebody's own text."""

import sys
from pathlib import Path
from typing import Any

from pipeline.recipes.yamlfile import shown
from pipeline.settings import settings
from pipeline.starting.new_recipe import new_recipe

SHOWN = 8
"""So many files that are left out are named."""
Plain = dict[str, Any]


def start(name: str, text: Path, language: str) -> Plain:
    """Write the recipe and say what it is made for, as plain values. Raises as `new_recipe`."""
    made = new_recipe(
        name, text, language, settings().recipes_path, lambda line: print(line, file=sys.stderr, flush=True)
    )
    return {
        "recipe": name,
        "file": str(made.path),
        "sources": [
            {
                "name": source.name,
                "kind": source.found.kind,
                "path": str(source.found.path),
                "files": len(source.found.files),
                "foreign": source.found.foreign,
                "columns": source.columns.model_dump(exclude_none=True) if source.columns else None,
            }
            for source in made.sources
        ],
        "left": [str(path) for path in made.left],
        "share_read": made.text.share_read,
        "documents": made.text.documents,
        "held_out_documents": made.text.held_out_documents,
        "dropped": made.text.dropped,
        "characters": made.text.characters,
        "train_words": made.text.train_words,
        "vocabulary": made.text.vocabulary,
        "model": made.sizes.model.name,
        "weights": made.sizes.weights,
        "steps": made.sizes.steps,
        "passes": made.sizes.passes,
    }


def new_text(found: Plain) -> str:
    """What was taken and left, what the recipe asks for, and what to do next."""
    lines = [f"Written: {shown(Path(found['file']))}"]
    for source in found["sources"]:
        lines.append(
            f"  takes   {source['path']}: {source['files']:,} file{'s' * (source['files'] > 1)} as {source['kind']}"
        )
    if found["left"]:
        named = ", ".join(repr(Path(path).name) for path in found["left"][:SHOWN])
        more = f" and {len(found['left']) - SHOWN:,} more" if len(found["left"]) > SHOWN else ""
        lines.append(f"  leaves  {named}{more}: not read as text (convert them: docs/own-text.md)")
    dropped = sum(found["dropped"].values())
    if dropped:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in found["dropped"].items())
        lines.append(f"  drops   {dropped:,} of the documents that were read: {reasons}")
    read = "" if found["share_read"] == 1 else f" (an estimate: {found['share_read']:.1%} of it was read)"
    lines += [
        f"  text    {found['documents']:,} documents, {found['characters']:,} characters, {found['train_words']:,} words to train on{read}",
        f"  model   {found['model']}: {found['weights'] / 1e6:.1f} million weights, a vocabulary of {found['vocabulary']:,}, "
        f"{found['steps']:,} steps",
        f"\nNext: bert run {found['recipe']} --dry-run · bert run {found['recipe']}",
    ]  # fmt: skip
    return "\n".join(lines)
