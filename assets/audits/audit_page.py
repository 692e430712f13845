"""`bert audit ASSET --html FILE`: the audit as one page that needs nothing else: no network, no script."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assets.audits import lineage_drawing
from assets.audits.audit_text import events, number, score
from assets.audits.auditing import audited
from pipeline.attestations.chain import UNKNOWN
from pipeline.audits.origins import NONE
from pipeline.audits.removed import sound, verdict
from pipeline.store import Record, Store
from pipeline.system import atomic

Plain = dict[str, Any]
FOLDER = "audits"
"""of the home: the pages that Dagster's asset pages name"""
PAGES = ("release", "benchmark_report")
"""stages whose materialization writes a page"""
SHOWN_FILES, SHOWN_BOOKS, LETTERS = 50, 100, 25
"""files of an artifact and books of a source that the page lists, and letters of a name that fit into a box"""


def audit_page(found: Plain) -> str:
    """The page of what assets.audits.auditing.audit found. Everything from records is escaped and isolated."""
    from model.reporting import pages

    checks = [check for each in found["checks"] for check in each["checks"]]
    results = [check["result"] for check in checks]
    verdicts = [sound(account) for account in found["removed"]]
    return pages.render(
        "audit.html.j2",
        {
            "number": number,
            "svg": _in_svg,
            "verdict": verdict,
            "sound": sound,
            "events": events,
            "json": _json,
            "score": score,
        },
        **{key: value for key, value in found.items() if key != "removed"},
        accounts=found["removed"],
        drawing=_drawing(found),
        counts={
            "checks": len(checks) - results.count("not asked"),
            "failed": results.count("failed"),
            "waivers": sum(len(each["waivers"]) for each in found["checks"]),
            "accounts": len(verdicts),
            "broken": verdicts.count(False),
            "open": verdicts.count(UNKNOWN),
        },
        names={step["record"]: step["asset"] for step in found["chain"]},
        places={step["record"]: place for place, step in enumerate(found["chain"])},
        shown_files=SHOWN_FILES,
        shown_books=SHOWN_BOOKS,
        unknown_word=UNKNOWN,
        none_stated=NONE,
    )


def write_page(found: Plain, file: Path) -> None:
    """Write the page, replacing a file of that name at once. Raises StoreError where it can't be written."""
    with atomic.explained(file):
        atomic.write_bytes(file, audit_page(found).encode())


def page_of(store: Store, record: Record) -> Path:
    """The page of a record under the home, written anew: a record stays as it is, what is left of its content may not. Raises
    StoreError."""
    file = store.home / FOLDER / record.recipe / f"{record.asset}-{record.digest[:12]}.html"
    write_page(audited(store, record), file)
    return file


def _drawing(found: Plain) -> Plain:
    """The lineage, box by box and line by line."""
    steps: Sequence[Mapping[str, Any]] = found["chain"]
    drawn = lineage_drawing.draw({step["record"]: list(step["inputs"].values()) for step in steps})
    recipe = steps[0]["recipe"]
    boxes = [
        {
            "x": drawn.boxes[step["record"]].x,
            "y": drawn.boxes[step["record"]].y,
            "step": place,
            "title": f"{step['recipe']}/{step['asset']}",
            "name": _cut(step["asset"] if step["recipe"] == recipe else f"{step['recipe']}/{step['asset']}"),
            "digest": step["version"][:12],
            "date": step["finished"][:10],
            "external": not step["inputs"],
            "gone": not step["files"] or step["removed"] is not None,
            "failed": any(not result["passed"] for result in step["validation"]["results"]),
            "root": place == 0,
        }
        for place, step in enumerate(steps)
    ]
    return {
        "width": drawn.width,
        "height": drawn.height,
        "box_width": lineage_drawing.WIDTH,
        "box_height": lineage_drawing.HEIGHT,
        "boxes": boxes,
        "edges": sorted(drawn.edges, key=lambda edge: not edge.implied),
    }


def _cut(name: str) -> str:
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"


def _in_svg(text: Any) -> Any:
    """Text from data in SVG, which has no <bdi>: isolated by characters."""
    from markupsafe import Markup, escape

    from model.reporting.isolated import isolated

    return Markup(escape(isolated(str(text))))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
