"""`S_text` of kind wikipedia: articles as prose."""

from pathlib import Path

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import rows, text_metadata
from pipeline.extraction import SAMPLE_PAGES
from pipeline.store import Record

SHOWN_TEMPLATES = 20


def metadata(record: Record, folder: Path) -> Metadata:
    """Pages, megabytes, drops by reason and lengths, and which templates lack a rule."""
    shown: Metadata = text_metadata(record, folder)
    templates = record.body["statistics"]["unhandled_templates"]
    if templates:
        shown["unhandled_templates"] = rows(templates[:SHOWN_TEMPLATES], ("name", "count", "pages", "example"))
        shown["unhandled_templates_note"] = dg.MetadataValue.text(
            f"Templates that stand in sentences and have no rule, so that their text is missing; counted in one page of "
            f"{SAMPLE_PAGES} (ids that {SAMPLE_PAGES} divides). A rule for the first of them gains most: docs/templates.md."
        )
    return shown


WIRING = Wiring(
    description="Articles of the dump as prose: lists, tables, references and markup are gone.",
    kinds=frozenset({"parquet", "beam"}),
    metadata=metadata,
    pool="beam",
)
