"""The matrix as people read it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.crash.bertrun import BertCell
from tests.crash.cells import Cell, Point


@dataclass(frozen=True)
class Row:
    """A cell that was run."""

    cell: Cell | BertCell
    what: str
    said: str
    seconds: float

    @property
    def failed(self) -> bool:
        """Not as promised."""
        return self.what == "FAILED"


def summary(rows: Sequence[Row]) -> str:
    """How many of each outcome."""
    counts = Counter(row.what for row in rows)
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    good = sum(not row.failed for row in rows)
    return f"{good} of {len(rows)} cells are as promised ({told}), in {sum(row.seconds for row in rows):.0f} s"


def markdown(rows: Sequence[Row]) -> str:
    """A line for each write point, with the outcome of each fault."""
    lines = [f"{summary(rows)}.", "", "| work | write point | operation | fault: outcome |", "|---|---|---|---|"]
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if isinstance(row.cell, BertCell):
            found[("bert run", row.cell.name, "")] = [row.what]
            continue
        point = row.cell.point
        name = "from beginning to end" if isinstance(point, str) else point.name
        operation = point.operation if isinstance(point, Point) else "" if isinstance(point, str) else "reads"
        found.setdefault((row.cell.work, name, operation), []).append(f"{row.cell.fault}: {row.what}")
    lines += [f"| {' | '.join(key)} | {', '.join(outcomes)} |" for key, outcomes in found.items()]
    return "\n".join(lines) + "\n"
